"""A calibrator and labelled rows -> how often its prediction sets hold the label, and how large they are.

`Calibrator.predict_set` makes the sets. The report measures both kinds, and says whether temperature scaling enlarges
the adaptive sets of this model: it often enlarges those with random numbers. Dabah and Tirer, "On Temperature Scaling
and Conformal Prediction of Deep Classifiers", arXiv 2402.05806, 2024.
"""

from dataclasses import dataclass

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Floats
from glayers.calibrators import Calibrator, TemperatureScaling
from glayers.calibrators.base import check_calibrator
from glayers.decisions.costs import mean_intervals, notes_on, range_text
from glayers.metrics.bootstrap import Bootstrap, Interval
from glayers.metrics.events import Rows, check_rows
from glayers.predictions import Predictions
from glayers.predictions.predictions import map_inputs
from glayers.serving.sets import KINDS, SetThresholds, classes_in_sets
from glayers.text_tables import aligned_table

__all__ = ["SetReport", "set_report"]


@dataclass(frozen=True, eq=False)
class SetReport:
    """Prediction sets of labelled rows; it prints as a table.

    Attributes
    ----------
    sets
        By kind of set and name, with 95 % intervals: "coverage", the share of rows whose set holds the label; "size",
        the mean number of classes; "empty" and "single", the share of sets with no class and with one.
    by_class
        By kind of set and class name: the coverage of the rows of the class.
    enlargement
        By how many classes temperature scaling enlarges the mean adaptive set, compared with uncalibrated
        probabilities, if thresholds are such that both cover `level` of these rows. The interval takes the two
        thresholds as given.
    level, rows
        The level of the sets, and the number of rows.
    """

    sets: dict[str, dict[str, Interval]]
    by_class: dict[str, dict[str, float]]
    enlargement: Interval
    level: float
    rows: int

    def __str__(self) -> str:
        lines = [["", "coverage", "size", "empty", "single", "lowest coverage of a class"]]
        for kind, found in self.sets.items():
            of_classes = self.by_class[kind]
            lowest = min(of_classes, key=of_classes.__getitem__)
            shown = [range_text(interval, ".3f") for interval in found.values()]
            lines.append([kind, *shown, f"{of_classes[lowest]:.3f} ({lowest})"])
        change = "changes the size of adaptive sets little"
        if self.enlargement.low > 0:
            change = "enlarges adaptive sets"
        elif self.enlargement.high < 0:
            change = "makes adaptive sets smaller"
        intervals = [each for found in self.sets.values() for each in found.values()]
        said = [
            f"Prediction sets at {100 * self.level:g} %, {self.rows:,} rows, 95 % intervals",
            aligned_table(lines),
            f"Temperature scaling of this model {change}: the mean size changes by "
            f"{range_text(self.enlargement, '.3f')} at equal coverage.",
        ]
        return "\n".join(said + notes_on([*intervals, self.enlargement]))


def set_report(calibrator: Calibrator, predictions: Predictions, level: float = 0.9) -> SetReport:
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
    SetReport

    Examples
    --------
    >>> from glayers import VectorScaling
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> found = set_report(VectorScaling().fit_predictions(calibration), test, level=0.95)
    >>> round(found.sets["adaptive"]["coverage"].value, 2), found.sets["adaptive"]["empty"].value
    (0.95, 0.0)
    """
    check_calibrator(calibrator)
    rows = check_rows(calibrator.apply(predictions))
    settings = Bootstrap(progress=False)
    sets = {}
    by_class = {}
    for kind in KINDS:
        in_set = calibrator.predict_set(map_inputs(calibrator.inputs, predictions), level, kind)
        covered = in_set[np.arange(len(rows)), rows.labels].astype(np.float64)
        size = in_set.sum(axis=1, dtype=np.float64)
        values = {"coverage": covered, "size": size, "empty": 1.0 * (size == 0), "single": 1.0 * (size == 1)}
        sets[kind] = mean_intervals(rows, values, settings)
        by_class[kind] = _by_class(rows, covered)
    uncalibrated = predictions.with_logits(with_reference_class(predictions.logits.astype(np.float64)))
    tempered = TemperatureScaling()._fit_and_keep(uncalibrated).apply(uncalibrated)
    change = _adaptive_sizes(tempered, level) - _adaptive_sizes(uncalibrated, level)
    enlargement = mean_intervals(rows, {"enlargement": change}, settings)["enlargement"]
    return SetReport(sets, by_class, enlargement, level, len(rows))


def _by_class(rows: Rows, covered: Floats) -> dict[str, float]:
    """Return the coverage of each class that has rows."""
    found = {}
    for number, name in enumerate(rows.class_names or range(rows.n_classes)):
        weights = rows.weights * (rows.labels == number)
        if weights.any():
            found[str(name)] = float(weights @ covered / weights.sum())
    return found


def _adaptive_sizes(predictions: Predictions, level: float) -> Floats:
    """Return the sizes of adaptive sets with a threshold from these very rows."""
    threshold = SetThresholds.of(predictions).at(level, "adaptive")
    return classes_in_sets(predictions.logits, "adaptive", threshold).sum(axis=1, dtype=np.float64)
