"""A method, calibration rows and test rows -> a line of results: every metric of the paper's tables, and the NLL."""

import warnings
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np

from glayers import (
    AutoCalibrator,
    Calibrator,
    DirichletCalibration,
    GLayers,
    GlayersWarning,
    MatrixScaling,
    Predictions,
    SharedGLayers,
    TemperatureScaling,
    metrics,
)

Cell: TypeAlias = dict[str, str]  # a line of the csv


class Found(NamedTuple):
    """The settings found by the search at 3 layers; None means search."""

    learning_rate: float | None = None
    weight_decay: float | None = None


class Metric(NamedTuple):
    """A table of the paper: heading, digits, the function that picks the better value, its formula."""

    heading: str
    digits: int
    better: Callable[[Iterable[float]], float]
    of: Callable[[np.ndarray, np.ndarray], float]


METRICS = {
    "ks_top1_percent": Metric("KS, percent", 3, min, lambda p, y: 100 * metrics.ks(p, y)),
    "accuracy_percent": Metric("Accuracy, percent", 3, max, lambda p, y: 100 * metrics.accuracy(p, y)),
    "brier_x100": Metric("Brier, times 100", 3, min, lambda p, y: 100 * metrics.brier(p, y)),
    "ece_top1_percent": Metric("ECE, percent", 3, min, lambda p, y: 100 * metrics.ece(p, y)),
    "ks_mean_top5_percent": Metric(
        "Mean KS of ranks 1 to 5, percent", 3, min, lambda p, y: 100 * metrics.mean_top_ks(p, y, n_ranks=5)
    ),
    # At 10 classes the paper's figure is the mean over nine ranks.
    "ks_mean_top10_percent": Metric(
        "Mean KS of ranks 1 to 10 (of 10 classes: 1 to 9), percent",
        3,
        min,
        lambda p, y: 100 * metrics.mean_top_ks(p, y, n_ranks=min(10, p.shape[1] - 1)),
    ),
    "nll": Metric("NLL, which the paper did not print", 4, min, metrics.nll),
}
SEARCHED, REUSED = "g_layers_3", ("g_layers_2", "g_layers_4", "g_layers_5")
OURS = ("g-layers", "shared-g-layers", "auto")
SEEDLESS = ("uncalibrated", "temperature")


def paper_recipe(given: Predictions, depth: int, seed: int, found: Found) -> Calibrator:
    """Fit the paper's g: h = 3 units per class, settings by cross-validation unless they are known."""
    return _fit(GLayers(depth, 3, recipe="paper", random_state=seed, **found._asdict()), given)


def odir(given: Predictions, seed: int) -> Calibrator:
    """Fit as published: cross-validation chooses the strength, and it never falls back to temperature scaling."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)  # about the fallback, which a given strength does not use
        chosen = MatrixScaling(penalty="odir", random_state=seed).fit(given.logits, given.labels)
    # The precision is that of lambda times the mean square off the diagonal, summed over rows.
    off_diagonal = given.n_classes * (given.n_classes - 1)
    strength = chosen.precisions_["matrix"] * off_diagonal / (2 * len(given))
    return _fit(MatrixScaling(strength=strength, penalty="odir"), given)


def _fit(calibrator: Calibrator, given: Predictions) -> Calibrator:
    return calibrator.fit(given.logits, given.labels)


# Calibration rows, a seed and what was found at 3 layers -> the fitted method; in the order of the tables.
METHODS: dict[str, Callable[[Predictions, int, Found], Calibrator | None]] = {
    "uncalibrated": lambda *_: None,
    "temperature": lambda given, *_: _fit(TemperatureScaling(), given),
    "ms_odir": lambda given, seed, _: odir(given, seed),
    "dir_odir": lambda given, seed, _: _fit(DirichletCalibration(random_state=seed), given),
    "g_layers_1": lambda given, seed, _: paper_recipe(given, 1, seed, Found()),
    "g_layers_2": lambda given, seed, found: paper_recipe(given, 2, seed, found),
    "g_layers_3": lambda given, seed, _: paper_recipe(given, 3, seed, Found()),
    "g_layers_4": lambda given, seed, found: paper_recipe(given, 4, seed, found),
    "g_layers_5": lambda given, seed, found: paper_recipe(given, 5, seed, found),
    "g-layers": lambda given, seed, _: _fit(GLayers(random_state=seed), given),
    "shared-g-layers": lambda given, seed, _: _fit(SharedGLayers(random_state=seed), given),
    "auto": lambda given, seed, _: _fit(AutoCalibrator(random_state=seed), given),
}


def fit_cell(method: str, seed: int, found: Found, calibration: Predictions, test: Predictions) -> Cell:
    """Fit on calibration rows, score on test rows, and record the warnings of the fit."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", GlayersWarning)
        fitted = METHODS[method](calibration, seed, found)
    p = test.probabilities() if fitted is None else fitted.predict_proba(test.logits)
    cell = {"calibration_rows": str(len(calibration)), "test_rows": str(len(test))}
    cell |= {name: f"{metric.of(p, test.labels):.4f}" for name, metric in METRICS.items()}
    if isinstance(fitted, GLayers) and fitted.recipe == "paper":
        tried = fitted.cv_results_
        best = int(np.argmax(tried["chosen"]))
        cell |= {name: repr(float(tried[name][best])) for name in Found._fields}
    return cell | {"note": "; ".join(str(warning.message) for warning in said)}
