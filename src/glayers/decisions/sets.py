"""A calibrator and labelled rows -> how often its prediction sets hold the label, and how large they are.

`Calibrator.predict_set` makes the sets. The report measures both kinds, and says whether temperature scaling enlarges
the adaptive sets of this model, as it often does. Dabah and Tirer, "On Temperature Scaling and Conformal Prediction of
Deep Classifiers", arXiv 2402.05806, 2024.
"""

from typing import Any

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Floats
from glayers.calibrators import Calibrator, TemperatureScaling
from glayers.calibrators.base import check_calibrator
from glayers.decisions.costs import Measured
from glayers.metrics.events import Rows, check_rows
from glayers.predictions.predictions import Predictions, map_inputs
from glayers.serving.sets import KINDS, SetThresholds, classes_in_sets

__all__ = ["set_report"]

_ADDED = "added by temperature scaling"


def set_report(calibrator: Calibrator, predictions: Predictions, level: float = 0.9) -> Measured:
    """Return how often prediction sets hold the label of labelled rows, and how large they are.

    Parameters
    ----------
    calibrator
        A fitted calibrator with `predict_set`.
    predictions
        Uncalibrated rows with labels, which it was not fitted on.
    level
        The level of the sets, as for `predict_set`.

    Returns
    -------
    Measured
        A line for each kind of set, with 95 % intervals: "coverage", the share of rows whose set holds the label;
        "size", the mean number of classes; "empty" and "single", the share of sets with no class and with one. The
        adaptive sets also have "added by temperature scaling": by how many classes it enlarges the mean set of this
        model, compared with uncalibrated probabilities, if both cover `level` of these rows. Facts: the coverage of
        each class that has rows, the lowest, and "temperature scaling" if it enlarges adaptive sets significantly.

    Examples
    --------
    >>> from glayers import VectorScaling
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> found = set_report(VectorScaling().fit_predictions(calibration), test, level=0.95)
    >>> round(found["adaptive"]["coverage"].value, 2), found["adaptive"]["empty"].value
    (0.95, 0.0)
    """
    check_calibrator(calibrator)
    rows = check_rows(calibrator.apply(predictions))
    values = {}
    facts: dict[str, Any] = {}
    for kind in KINDS:
        in_set = calibrator.predict_set(map_inputs(calibrator.inputs, predictions), level, kind)
        size = in_set.sum(axis=1, dtype=np.float64)
        covered = in_set[np.arange(len(rows)), rows.labels].astype(np.float64)
        values[kind] = {"coverage": covered, "size": size, "empty": 1.0 * (size == 0), "single": 1.0 * (size == 1)}
        of_classes = _by_class(rows, covered)
        lowest = min(of_classes, key=of_classes.__getitem__)
        facts[f"{kind}, coverage by class"] = of_classes
        facts[f"{kind}, lowest coverage of a class"] = f"{of_classes[lowest]:.3f} ({lowest})"
    uncalibrated = predictions.with_logits(with_reference_class(predictions.logits.astype(np.float64)))
    tempered = TemperatureScaling()._fit_and_keep(uncalibrated).apply(uncalibrated)
    values["adaptive"][_ADDED] = _adaptive_sizes(tempered, level) - _adaptive_sizes(uncalibrated, level)
    found = Measured.of(f"Prediction sets at {100 * level:g} %", rows, values, facts, (1000, 0.95, 0, False))
    if found["adaptive"][_ADDED].low > 0:
        facts["temperature scaling"] = "it enlarges the adaptive sets of this model"
    return found


def _by_class(rows: Rows, covered: Floats) -> dict[str, float]:
    """Return the coverage of each class that has rows."""
    names = rows.class_names or range(rows.n_classes)
    total = np.bincount(rows.labels, rows.weights, rows.n_classes)
    held = np.bincount(rows.labels, rows.weights * covered, rows.n_classes)
    return {str(name): float(held[c] / total[c]) for c, name in enumerate(names) if total[c]}


def _adaptive_sizes(predictions: Predictions, level: float) -> Floats:
    """Return the sizes of adaptive sets with a threshold from these very rows."""
    threshold = SetThresholds.of(predictions).at(level, "adaptive")
    return classes_in_sets(predictions.logits, "adaptive", threshold).sum(axis=1, dtype=np.float64)
