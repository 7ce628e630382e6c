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
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glayers.arrays import Floats, Ints, row_blocks
from glayers.calibrators import Calibrator
from glayers.checks import check_groups, number_between, whole_number
from glayers.decisions.costs import cost_matrix
from glayers.errors import BadPredictions, GlayersError, GlayersWarning, shown
from glayers.metrics.events import Scored, check_seed
from glayers.metrics.metric import score
from glayers.metrics.selective import METRICS as SELECTIVE
from glayers.shift import shift_test
from glayers.text_tables import json_ready

__all__ = ["Estimate", "Range", "estimate"]

_SHIFT_LEVEL = 0.99  # of 100 good batches, 99 are estimated as they are
_PRIOR_PRECISION = 1.0  # of scale and shifts: a class without calibration rows has odds within a factor of e
_BY_CLASS = ("precision", "recall", "f1")
_AUROC = next(metric.evaluate for metric in SELECTIVE if metric.name == "auroc")


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
    cost
        The mean cost per row of the best actions, if costs were given.
    groups
        The accuracy of each group.
    rows, level
        The number of rows, and the probability with which an interval should cover what labels will show.
    adapted
        Whether other class frequencies were taken into account.
    """

    accuracy: Range
    auroc: Range
    classes: dict[str, dict[str, Range]]
    confusion: Floats
    cost: Range | None
    groups: dict[str, Range]
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
        if self.cost is not None:
            lines.append(f"cost      {self.cost.value:.4g} ({self.cost.low:.4g} to {self.cost.high:.4g}) per row")
        lines += [f"accuracy of group {name}  {found}" for name, found in self.groups.items()]
        worst = min(self.classes, key=lambda name: self.classes[name]["f1"].value)
        lines.append(f"lowest F1: class {worst}, {self.classes[worst]['f1']}")
        return "\n".join(lines)


def estimate(
    calibrator: Calibrator,
    logits: Any,
    *,
    groups: Any = None,
    costs: Any = None,
    abstain: float | None = None,
    level: float = 0.9,
    n_draws: int = 200,
    random_state: int = 0,
) -> Estimate:
    """Estimate accuracy, precision, recall, F1, AUROC and costs of rows without labels.

    Parameters
    ----------
    calibrator
        A fitted or loaded calibrator.
    logits
        Logits (n, m) of the new rows, or what the calibrator's `inputs` name.
    groups
        Group of each row (n,); the accuracy of each group is estimated too.
    costs, abstain
        As in `decide`: the mean cost of the best actions is estimated too.
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
    if abstain is not None and costs is None:
        raise BadPredictions("abstain= needs costs=: it is the cost of one more action")
    check_seed(random_state)
    number_between(level, "level", 0, 1)
    whole_number(n_draws, "n_draws", 20, 100_000)
    suited = _suited(calibrator, logits, groups)
    with np.errstate(divide="ignore"):
        log_p = np.log(suited.predict_proba(logits))
    asked = _Questions(log_p, calibrator.inputs, groups, costs, abstain)
    value, confusion = asked.expected(np.exp(log_p))
    truth = _Truth(log_p, calibrator.calibration_rows_.rows)
    if suited is not calibrator:
        truth.add_shift_errors(suited.adaptation_)
    rng = np.random.default_rng(random_state)
    draws = [asked.realised(truth.labels(rng)) for _ in range(n_draws)]
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    low = np.minimum(low, value)  # with few rows, draws may miss what the probabilities expect
    high = np.maximum(high, value)
    ranges = [Range(*map(float, numbers)) for numbers in zip(value, low, high, strict=True)]
    n_classes = len(confusion)
    by_class = ranges[-3 * n_classes :]
    names = suited.class_names_ or range(n_classes)
    return Estimate(
        accuracy=ranges[0],
        auroc=ranges[1],
        classes={str(name): dict(zip(_BY_CLASS, by_class[c::n_classes], strict=True)) for c, name in enumerate(names)},
        confusion=confusion,
        cost=None if costs is None else ranges[2],
        groups=dict(zip(asked.groups, ranges[-3 * n_classes - len(asked.groups) :], strict=False)),
        rows=len(log_p),
        level=level,
        adapted=suited is not calibrator,
    )


class _Questions:
    """What is asked about rows, and what it needs of them."""

    def __init__(self, log_p: Floats, inputs: str, groups: Any, costs: Any, abstain: float | None) -> None:
        n_rows, self.n_classes = log_p.shape
        self.predicted = log_p.argmax(axis=1)
        if inputs == "confidence":  # the question is whether the answer is correct, whatever its confidence
            self.predicted = np.ones(n_rows, dtype=np.int64)
        self.confidence = np.exp(log_p[np.arange(n_rows), self.predicted])
        self.groups = {}
        if groups is not None:
            of_row = check_groups(groups, n_rows)
            self.groups = {str(name): of_row == name for name in np.unique(of_row)}
        self.price = None
        if costs is not None:
            self.price = cost_matrix(costs, self.n_classes, abstain)
            self.actions = (np.exp(log_p) @ self.price).argmin(axis=1)

    def expected(self, p: Floats) -> tuple[Floats, Floats]:
        """Return what the probabilities expect of every statistic, and the expected confusion matrix."""
        confusion = np.zeros((self.n_classes, self.n_classes))
        np.add.at(confusion, self.predicted, p)
        costs = None
        if self.price is not None:
            costs = np.einsum("nk,kn->n", p, self.price[:, self.actions])
        return self._statistics(self.confidence, confusion, costs), confusion

    def realised(self, labels: Ints) -> Floats:
        """Return every statistic if these were the labels."""
        cells = np.bincount(self.predicted * self.n_classes + labels, minlength=self.n_classes**2)
        confusion = cells.reshape(self.n_classes, self.n_classes).astype(np.float64)
        costs = None
        if self.price is not None:
            costs = self.price[labels, self.actions]
        return self._statistics((self.predicted == labels).astype(np.float64), confusion, costs)

    def _statistics(self, right: Floats, confusion: Floats, costs: Floats | None) -> Floats:
        """Return accuracy, AUROC, cost if there is any, the accuracy of each group, and `_BY_CLASS` of each class."""
        numbers = [right.mean(), score(_AUROC, Scored(self.confidence, right))]
        if costs is not None:
            numbers.append(costs.mean())
        numbers += [right[rows].mean() for rows in self.groups.values()]
        hits = np.diag(confusion)
        predicted = confusion.sum(axis=1)
        true = confusion.sum(axis=0)
        return np.concatenate(
            [numbers, _ratio(hits, predicted), _ratio(hits, true), _ratio(2 * hits, predicted + true)]
        )


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Return 0 where nothing was predicted or nothing is true."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


class _Truth:
    """Labels that may be true: drawn from probabilities of a calibrator that was fitted on so many rows."""

    def __init__(self, log_p: Floats, n_calibration: float) -> None:
        self.log_p = np.maximum(log_p, -700.0)  # a masked class must not give -inf - -inf
        self.masked = np.isneginf(log_p)
        p = np.exp(log_p)
        n_rows, n_classes = p.shape
        self.shift_errors = np.zeros(n_classes)
        curvature = np.empty((n_classes + 1, n_classes + 1))
        centred = self.log_p - (p * self.log_p).sum(axis=1, keepdims=True)
        curvature[:-1, :-1] = np.diag(p.sum(axis=0)) - p.T @ p
        curvature[-1, :-1] = (p * centred).sum(axis=0)
        curvature[:-1, -1] = curvature[-1, :-1]
        curvature[-1, -1] = (p * centred**2).sum()
        curvature *= n_calibration / n_rows
        curvature[np.diag_indices(n_classes + 1)] += _PRIOR_PRECISION
        values, vectors = np.linalg.eigh(curvature)
        self.spread = vectors / np.sqrt(np.maximum(values, _PRIOR_PRECISION))

    def add_shift_errors(self, adaptation: Any) -> None:
        """Count that the new class frequencies are estimates themselves."""
        errors = np.array(adaptation.standard_errors)
        self.shift_errors = errors / np.maximum(adaptation.after, errors)

    def labels(self, rng: np.random.Generator) -> Ints:
        """Return labels (n,), each time of another calibrator."""
        n_rows, n_classes = self.log_p.shape
        *shifts, scale = self.spread @ rng.normal(size=n_classes + 1)
        shifts = shifts + self.shift_errors * rng.normal(size=n_classes)
        labels = np.empty(n_rows, dtype=np.int64)
        for rows in row_blocks(n_rows, n_classes):
            moved = (1 + scale) * self.log_p[rows] + shifts
            moved[self.masked[rows]] = -np.inf
            cumulative = np.cumsum(np.exp(moved - moved.max(axis=1, keepdims=True)), axis=1)
            uniform = rng.uniform(size=(len(moved), 1)) * cumulative[:, -1:]
            labels[rows] = (uniform > cumulative).sum(axis=1)
        return labels


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
