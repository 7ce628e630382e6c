"""A calibrator, rows to fit on and rows to score -> numbers as written to a csv, and the warnings of the fit."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from experiments.paper.studies.lines import Line

from glayers import CALIBRATORS, Calibrator, GlayersError, Predictions, metrics
from glayers.arrays import Array

NOTHING = "uncalibrated"
METHODS = (NOTHING, *CALIBRATORS)
# Their order in tables that have no room for all.
MAIN = (
    *(NOTHING, "temperature", "vector", "matrix-odir", "dirichlet"),
    *("g-layers-paper", "g-layers", "shared-g-layers", "auto"),
)


class Metric(NamedTuple):
    """Its heading, the factor for the library's fraction, the digits of a csv and of a table, its formula."""

    heading: str
    scale: float
    kept: int
    digits: int
    of: Callable[[Array, Array], float]


METRICS = {
    "nll": Metric("NLL", 1, 5, 4, metrics.nll),
    "ks": Metric("KS, percent", 100, 4, 2, metrics.ks),
    "ece": Metric("ECE, percent", 100, 4, 2, metrics.ece),
    "brier": Metric("Brier, times 100", 100, 4, 3, metrics.brier),
    "accuracy": Metric("accuracy, percent", 100, 3, 2, metrics.accuracy),
}


class Outcome(NamedTuple):
    """Probabilities of the test rows (None if the fit failed), and the warnings or the error of the fit."""

    probabilities: Array | None
    note: str


def make(method: str, seed: int) -> Calibrator:
    """Return an unfitted calibrator by name, with a fixed seed."""
    calibrator = CALIBRATORS[method]()
    return calibrator.set_params(random_state=seed) if "random_state" in calibrator.get_params() else calibrator


def calibrated(method: str, seed: int, calibration: Predictions, test: Predictions) -> Outcome:
    """Fit a method by name; `uncalibrated` counts as a method."""
    if method == NOTHING:
        return Outcome(test.probabilities(), "")
    return noted(lambda: make(method, seed).fit(calibration.logits, calibration.labels).predict_proba(test.logits))


def noted(predict: Callable[[], Array]) -> Outcome:
    """Return the predictions and the warnings; a method that refuses these rows is a result too."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            probabilities, failure = predict(), []
        except GlayersError as problem:
            probabilities, failure = None, [f"failed: {problem}"]
    return Outcome(probabilities, "; ".join(dict.fromkeys([*(str(warning.message) for warning in said), *failure])))


def scored(outcome: Outcome, test: Predictions) -> Line:
    """Return every metric and the note."""
    p = outcome.probabilities
    line = {name: "" if p is None else printed(name, about.of(p, test.labels)) for name, about in METRICS.items()}
    return line | {"note": outcome.note}


def printed(metric: str, value: float) -> str:
    """Return a metric as the csv holds it.

    >>> printed("ks", 0.0123456), printed("nll", float("inf"))
    ('1.2346', 'inf')
    """
    about = METRICS[metric]
    return f"{np.multiply(about.scale, value):.{about.kept}f}"
