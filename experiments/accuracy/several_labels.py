"""Simulated rows with 14 and 71 labels, many of them rare -> the NLL per label of methods, above that of the truth.

Writes experiments/results/several_labels.csv and the same as Markdown. Labels are present in 0.1 to 30 % of rows, so
that with 2,000 calibration rows some have two positives. The logits of a network are the true ones, distorted: the
same way for all labels ("alike"), by another slope and level for each ("own"), or also bent ("bent"). One scenario is a
trained classifier: logistic regressions on scikit-learn's multi-label problem. The NLL of the simulated ones is the
mean over draws of new labels, given the true probabilities of 10,000 new rows; the last one is scored on labels.
"""

import argparse
import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from experiments.stamp import write_page
from scipy.special import expit
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression

from glayers import CALIBRATORS, GlayersWarning, MultiLabelCalibrator

RESULTS = Path(__file__).parents[1] / "results" / "several_labels.csv"
METHODS = ("temperature", "platt", "beta", "isotonic")
LABELS, ROWS, DRAWS, NEW_ROWS = (14, 71), (500, 2_000), 5, 10_000
OURS = "MultiLabelCalibrator()"


def main() -> None:
    lines = []
    for n_labels in LABELS:
        for kind in ("alike", "own", "bent", "trained"):
            for n_rows in ROWS:
                found = [losses_of(*rows_of(kind, n_labels, n_rows, draw), n_rows) for draw in range(DRAWS)]
                for method in found[0]:
                    values = [each[method] for each in found]
                    mean, error = np.mean(values), np.std(values, ddof=1) / np.sqrt(DRAWS)
                    lines.append([n_labels, kind, n_rows, method, f"{mean:.5f}", f"{error:.5f}"])
                print(*lines[-1], flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerows([["labels", "scenario", "rows", "method", "nll", "standard error"], *lines])
    write_page(RESULTS.with_suffix(".md"), as_markdown(lines))


def rows_of(kind: str, n_labels: int, n_rows: int, draw: int) -> tuple[Any, Any, Any]:
    """Return logits, labels, and what to score new rows by: true probabilities, or labels."""
    rng = np.random.default_rng([n_labels, n_rows, draw])
    total = n_rows + NEW_ROWS
    if kind == "trained":
        return trained(n_labels, total, draw)
    frequency = np.exp(rng.uniform(np.log(0.001), np.log(0.3), n_labels))
    of_row = rng.normal(size=(total, 1)) / 2  # labels of a row go together
    z = (
        np.log(frequency / (1 - frequency))
        + of_row
        + rng.normal(size=(total, n_labels)) * rng.uniform(0.8, 2, n_labels)
    )
    slopes = np.exp(rng.normal(0.5, 0.25, n_labels))
    levels = rng.normal(0.3, 0.5, n_labels)
    if kind == "alike":
        slopes[:], levels[:] = 1.7, 0.5
    bent = 2 * np.sinh(z / 2) if kind == "bent" else z
    p = expit(z)
    return slopes * bent + levels, (rng.random(z.shape) < p).astype(float), p


def trained(n_labels: int, total: int, draw: int) -> tuple[Any, Any, Any]:
    """Return the logits of logistic regressions, fitted to 300 rows of scikit-learn's multi-label problem."""
    inputs, y = make_multilabel_classification(
        n_samples=total + 300, n_features=40, n_classes=n_labels, n_labels=3, random_state=draw
    )
    logits = np.zeros((total, n_labels))
    for label in range(n_labels):
        if len(np.unique(y[:300, label])) == 2:
            fitted = LogisticRegression(C=10, max_iter=300).fit(inputs[:300], y[:300, label])
            logits[:, label] = fitted.decision_function(inputs[300:])
    labels = y[300:].astype(float)
    return logits, labels, labels


def losses_of(logits: Any, labels: Any, p: Any, n_rows: int) -> dict[str, float]:
    """Return the mean NLL per label of new rows by method, above that of `p`: true probabilities, or labels."""
    calibrators = {"uncalibrated": None, **{name: MultiLabelCalibrator(CALIBRATORS[name]()) for name in METHODS}}
    calibrators[OURS] = MultiLabelCalibrator()
    p = p[n_rows:]
    truth = np.clip(p, 1e-300, 1 - 1e-16)
    least = -(p * np.log(truth) + (1 - p) * np.log1p(-truth)).mean()
    found = {}
    for name, calibrator in calibrators.items():
        new = logits[n_rows:]
        if calibrator is not None:
            with warnings.catch_warnings(action="ignore", category=GlayersWarning):
                new = calibrator.fit(logits[:n_rows], labels[:n_rows]).transform(new)
        found[name] = float((np.logaddexp(0, new) - p * new).mean() - least)
    return found


def as_markdown(lines: list[list[Any]]) -> str:
    value = {tuple(line[:4]): f"{1e4 * float(line[4]):.1f} ± {1e4 * float(line[5]):.1f}" for line in lines}
    methods = list(dict.fromkeys(line[3] for line in lines))
    text = [
        "Made by `make table-several-labels`. Mean NLL per label in units of 0.0001, above that of the "
        f"true probabilities (of the trained classifier, above 0), with its standard error over {DRAWS} draws.",
        "",
        "| labels | scenario | rows | " + " | ".join(methods) + " |",
        "|---:|---|---:|" + "---:|" * len(methods),
    ]
    for n_labels, kind, n_rows in dict.fromkeys(tuple(line[:3]) for line in lines):
        cells = [value[n_labels, kind, n_rows, method] for method in methods]
        text.append(f"| {n_labels} | {kind} | {n_rows:,} | " + " | ".join(cells) + " |")
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # no options but --help
    main()
