"""A calibrator and rows without labels -> how good the model is on them, with intervals.

Calibrated probabilities say how often each answer is right, so their means estimate accuracy, precision and recall
before any label is known. Two things are uncertain. Labels are random: they are drawn from the probabilities. And the
calibrator was fitted on n rows: its log-odds are moved by one scale for all classes and one shift per class, drawn from
the normal approximation of what n such rows determine. Garg et al., "Leveraging Unlabeled Data to Predict
Out-of-Distribution Performance", ICLR 2022, compare such estimates.

All of this needs rows like the calibration rows. Where the class frequencies alone differ, the calibrator is adapted
first; where more differs, the estimate is refused.
"""

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glayers.arrays import Floats, Ints, row_blocks
from glayers.calibrators import Calibrator
from glayers.checks import number_between, whole_number
from glayers.errors import GlayersError, GlayersWarning, shown
from glayers.metrics.events import Scored, check_seed
from glayers.metrics.metric import score
from glayers.metrics.scorecard import METRICS
from glayers.shift import shift_test
from glayers.text_tables import json_ready

__all__ = ["Estimate", "Range", "estimate"]

_SHIFT_LEVEL = 0.99  # of 100 good batches, 99 are estimated as they are
_PRIOR_PRECISION = 1.0  # of scale and shifts: a class without calibration rows has odds within a factor of e
_BY_CLASS = ("precision", "recall", "f1")
_AUROC = METRICS["auroc"].evaluate


@dataclass(frozen=True)
class Range:
    """An estimate and its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.2f} % ({100 * self.low:.2f} to {100 * self.high:.2f})"


@dataclass(frozen=True, eq=False)
class Estimate:
    """How good a model is on rows without labels; it prints as a table.

    Attributes
    ----------
    accuracy, auroc
        The accuracy, and the probability that a right answer has a higher confidence than a wrong one.
    classes
        By class name: precision, recall and F1.
    confusion
        Expected counts (k, k): one line per predicted class, one column per label.
    rows, level
        The number of rows, and the probability with which an interval should cover what labels will show.
    adapted
        Whether other class frequencies were taken into account.
    """

    accuracy: Range
    auroc: Range
    classes: dict[str, dict[str, Range]]
    confusion: Floats
    rows: int
    level: float
    adapted: bool

    def to_dict(self) -> dict[str, Any]:
        """Return every number, ready for JSON."""
        found: dict[str, Any] = json_ready(asdict(self))
        return found

    def __str__(self) -> str:
        after = ", after adapting to their class frequencies" if self.adapted else ""
        lines = [
            f"Estimated from {self.rows:,} rows without labels, {100 * self.level:g} % intervals{after}",
            f"accuracy  {self.accuracy}",
            f"AUROC     {self.auroc}",
        ]
        worst = min(self.classes, key=lambda name: self.classes[name]["f1"].value)
        lines.append(f"lowest F1: class {worst}, {self.classes[worst]['f1']}")
        return "\n".join(lines)


def estimate(
    calibrator: Calibrator,
    logits: Any,
    *,
    groups: Any = None,
    level: float = 0.9,
    n_draws: int = 200,
    random_state: int = 0,
) -> Estimate:
    """Estimate accuracy, precision, recall, F1 and AUROC of rows without labels.

    Parameters
    ----------
    calibrator
        A fitted or loaded calibrator.
    logits
        Logits (n, m) of the new rows, or what the calibrator's `inputs` name.
    groups
        Group of each row (n,): rows of a group depend on each other, so that the test of shift uses one of them.
    level
        The probability with which intervals should cover what the labels will show.
    n_draws
        How many times labels and calibrator are drawn.
    random_state
        Seed.

    Returns
    -------
    Estimate
        Its intervals count one scale and one shift per class of the calibrator. They are too narrow for calibrators
        that bend more with few rows, such as isotonic regression.

    Raises
    ------
    GlayersError
        If the rows differ from the calibration rows in more than their class frequencies.

    Examples
    --------
    >>> from glayers import VectorScaling
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> fitted = VectorScaling().fit_predictions(calibration)
    >>> found = estimate(fitted, test.logits[:2000])
    >>> round(found.accuracy.value, 2), found.accuracy.low < found.accuracy.value < found.accuracy.high
    (0.91, True)
    """
    if not isinstance(calibrator, Calibrator):
        raise GlayersError(f"pass a fitted calibrator, or glayers.load(path); got {shown(calibrator)}")
    check_seed(random_state)
    number_between(level, "level", 0, 1)
    whole_number(n_draws, "n_draws", 20, 100_000)
    suited = _suited(calibrator, logits, groups)
    with np.errstate(divide="ignore"):
        log_p = np.log(suited.predict_proba(logits))
    predicted = log_p.argmax(axis=1)
    if calibrator.inputs == "confidence":  # the question is whether the answer is correct, whatever its confidence
        predicted = np.ones(len(log_p), dtype=np.int64)
    p = np.exp(log_p)
    n_classes = p.shape[1]
    confidence = p[np.arange(len(p)), predicted]
    confusion = np.zeros((n_classes, n_classes))
    np.add.at(confusion, predicted, p)
    value = _statistics(confidence, confidence, confusion)
    rng = np.random.default_rng(random_state)
    draws = []
    for labels in _drawn_labels(log_p, suited, n_draws, rng):
        cells = np.bincount(predicted * n_classes + labels, minlength=n_classes**2).astype(np.float64)
        right = (predicted == labels).astype(np.float64)
        draws.append(_statistics(confidence, right, cells.reshape(confusion.shape)))
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    low = np.minimum(low, value)  # with few rows, draws may miss what the probabilities expect
    high = np.maximum(high, value)
    accuracy, auroc, *by_class = [Range(*map(float, numbers)) for numbers in zip(value, low, high, strict=True)]
    classes = {}
    for c, name in enumerate(suited.class_names_ or range(n_classes)):
        classes[str(name)] = dict(zip(_BY_CLASS, by_class[c::n_classes], strict=True))
    return Estimate(accuracy, auroc, classes, confusion, len(p), level, adapted=suited is not calibrator)


def _statistics(confidence: Floats, right: Floats, confusion: Floats) -> Floats:
    """Return accuracy, AUROC, and then the precision, the recall and the F1 of all classes."""
    hits = np.diag(confusion)
    predicted = confusion.sum(axis=1)
    true = confusion.sum(axis=0)
    overall = [right.mean(), score(_AUROC, Scored(confidence, right))]
    return np.concatenate([overall, _ratio(hits, predicted), _ratio(hits, true), _ratio(2 * hits, predicted + true)])


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Return 0 where nothing was predicted or nothing is true."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _drawn_labels(log_p: Floats, suited: Calibrator, n_draws: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Yield labels (n,) that may be true, each time of another calibrator that as many rows could have given."""
    n_rows, n_classes = log_p.shape
    masked = np.isneginf(log_p)
    log_p = np.maximum(log_p, -700.0)  # a masked class must not give -inf - -inf
    spread = _spread(log_p, np.where(masked, 0.0, np.exp(log_p)), suited.calibration_rows_.rows)
    shift_errors = np.zeros(n_classes)
    if suited.adaptation_ is not None and suited.adaptation_.standard_errors is not None:
        # The new class frequencies are estimates themselves.
        errors = np.array(suited.adaptation_.standard_errors)
        shift_errors = errors / np.maximum(suited.adaptation_.after, errors)
    for _ in range(n_draws):
        *shifts, scale = spread @ rng.normal(size=n_classes + 1)
        shifts = shifts + shift_errors * rng.normal(size=n_classes)
        labels = np.empty(n_rows, dtype=np.int64)
        for rows in row_blocks(n_rows, n_classes):
            moved = (1 + scale) * log_p[rows] + shifts
            moved[masked[rows]] = -np.inf
            cumulative = np.cumsum(np.exp(moved - moved.max(axis=1, keepdims=True)), axis=1)
            uniform = rng.uniform(size=(len(moved), 1)) * cumulative[:, -1:]
            labels[rows] = (uniform > cumulative).sum(axis=1)
        yield labels


def _spread(log_p: Floats, p: Floats, n_calibration: float) -> Floats:
    """Return a root of the covariance of one shift per class and one scale, as so many rows determine them."""
    n_rows, n_classes = p.shape
    centred = log_p - (p * log_p).sum(axis=1, keepdims=True)
    curvature = np.empty((n_classes + 1, n_classes + 1))
    curvature[:-1, :-1] = np.diag(p.sum(axis=0)) - p.T @ p
    curvature[-1, :-1] = (p * centred).sum(axis=0)
    curvature[:-1, -1] = curvature[-1, :-1]
    curvature[-1, -1] = (p * centred**2).sum()
    curvature *= n_calibration / n_rows
    curvature += _PRIOR_PRECISION * np.eye(n_classes + 1)
    values, vectors = np.linalg.eigh(curvature)
    return np.asarray(vectors / np.sqrt(np.maximum(values, _PRIOR_PRECISION)))


def _suited(calibrator: Calibrator, logits: Any, groups: Any) -> Calibrator:
    """Return a calibrator for these rows: itself, or one that is adapted to other class frequencies."""
    shift = shift_test(calibrator, logits, groups=groups, level=_SHIFT_LEVEL)
    if not shift.shifted:
        return calibrator
    if calibrator.inputs != "confidence":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GlayersWarning)
            adapted = calibrator.adapt(logits, groups=groups, level=_SHIFT_LEVEL)
        if adapted.adaptation_.shifted and not adapted.adaptation_.unexplained:
            return adapted
    raise GlayersError(
        f"these rows are of another kind than the calibration rows, so nothing can be estimated without labels. "
        f"{shift}. Calibrate on labelled rows of this kind"
    )
