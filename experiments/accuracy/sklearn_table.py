"""Eight data sets and four classifiers -> log loss of `CalibratedClassifier` and scikit-learn's CalibratedClassifierCV.

Writes experiments/results/sklearn.csv and the same as Markdown. The data sets come with scikit-learn or are generated.
Each is split three times: half of the rows to fit classifier and calibration, by 5 folds, and half to score. All
methods share the classifiers of the folds, which are fitted once.
"""

import argparse
import csv
import hashlib
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from experiments.stamp import write_page
from sklearn import datasets
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.metaestimators import available_if

from glayers import CalibratedClassifier

RESULTS = Path(__file__).parents[1] / "results" / "sklearn.csv"
SPLITS = 3
OURS, THEIRS = "glayers", ("sigmoid", "isotonic", "temperature")


def generated(n_classes: int, n_rows: int, seed: int, **settings: Any) -> Any:
    sizes = {"n_features": 20, "n_informative": 8, "n_redundant": 4}
    return datasets.make_classification(n_rows, n_classes=n_classes, random_state=seed, **sizes | settings)


SETS: dict[str, Callable[[], Any]] = {
    "digits": lambda: datasets.load_digits(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "breast cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "iris": lambda: datasets.load_iris(return_X_y=True),
    "two classes, noisy labels": lambda: generated(2, 2000, 1, flip_y=0.2),
    "two classes, 5 % positive": lambda: generated(2, 3000, 2, weights=[0.95]),
    "ten classes": lambda: generated(10, 3000, 3, class_sep=1.5),
    "two moons": lambda: datasets.make_moons(1000, noise=0.3, random_state=4),
}
CLASSIFIERS: dict[str, Any] = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "random forest": RandomForestClassifier(random_state=0),
    "gradient boosting": HistGradientBoostingClassifier(max_iter=50, random_state=0),
    "naive Bayes": GaussianNB(),
}


class Remembered(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that is fitted once for the same rows: the methods differ only in what follows it."""

    fitted: dict[tuple[str, bytes], Any] = {}  # noqa: RUF012  # for all instances

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def fit(self, X: Any, y: Any) -> "Remembered":
        """Fit, or look up the fit on the same rows."""
        key = repr(self.classifier), hashlib.sha256(X.tobytes() + y.tobytes()).digest()
        if key not in self.fitted:
            self.fitted[key] = clone(self.classifier).fit(X, y)
        self.model_ = self.fitted[key]
        self.classes_, self.n_features_in_ = self.model_.classes_, X.shape[1]
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return those of the classifier."""
        return self.model_.predict_proba(X)

    @available_if(lambda self: hasattr(self.classifier, "decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """Return that of the classifier, if it has one."""
        return self.model_.decision_function(X)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    rows = []
    for name, load in SETS.items():
        started = time.perf_counter()
        x, y = load()
        rows += [{"set": name, "classifier": key} | one_cell(x, y, each) for key, each in CLASSIFIERS.items()]
        Remembered.fitted.clear()
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    write(rows)
    print(RESULTS.with_suffix(".md").read_text())


def one_cell(x: np.ndarray, y: np.ndarray, classifier: Any) -> dict[str, float]:
    """Mean log loss of every method over the splits."""
    base = Remembered(classifier)
    methods = {"uncalibrated": base, OURS: CalibratedClassifier(base)}
    methods |= {name: CalibratedClassifierCV(base, method=name, cv=5) for name in THEIRS}
    losses: dict[str, list[float]] = {name: [] for name in methods}
    for seed in range(SPLITS):
        x_fit, x_test, y_fit, y_test = train_test_split(x, y, test_size=0.5, stratify=y, random_state=seed)
        for name, method in methods.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                p = clone(method).fit(x_fit, y_fit).predict_proba(x_test)
            losses[name].append(log_loss(y_test, p))  # which clips probabilities at the precision of float64
    return {name: round(float(np.mean(each)), 4) for name, each in losses.items()}  # as the csv has them


def write(rows: list[dict[str, Any]]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    columns = list(rows[0])
    cells = [[f"{row[c]:.4f}" if isinstance(row[c], float) else row[c] for c in columns] for row in rows]
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *cells])
    lines = ["| " + " | ".join(columns) + " |", "|---|---|" + "---:|" * (len(columns) - 2)]
    lines += ["| " + " | ".join(each) + " |" for each in cells]
    means = [f"{np.mean([row[c] for row in rows]):.4f}" for c in columns[2:]]
    lines += ["| mean | | " + " | ".join(means) + " |", ""]
    for name in ("uncalibrated", *THEIRS):
        excess = np.array([row[OURS] - row[name] for row in rows])
        lines.append(
            f"Against {name}: lower by {-excess.mean():.4f} on average, lower in {(excess < 0).sum()} of {len(rows)} "
            f"cells; the largest excess is {excess.max():.4f}."
        )
    excess = np.array([row[OURS] - min(row[name] for name in THEIRS) for row in rows])
    lines.append(
        f"\nAgainst the best of the three in each cell: {-excess.mean():.4f} lower on average; the largest excess is "
        f"{excess.max():.4f}; cells worse by more than 0.005: {(excess > 0.005).sum()}."
    )
    write_page(RESULTS.with_suffix(".md"), "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
