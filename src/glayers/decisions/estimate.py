"""A calibrator and rows without labels -> how good the model is on them, with intervals.

Calibrated probabilities say how often each answer is right, so their means estimate accuracy, precision and recall
before any label is known. Three things are uncertain. Labels are random: they are drawn from the probabilities. Where
class frequencies have changed, the new ones are estimates: they are drawn, too. And the calibrator was fitted on n
rows. Its mean confidence is right as far as n labels can tell, so its error is that of a mean over n rows: it adds
1 / n to the 1 / m of the variance of m new labels. Draws are stretched by the root of 1 + m / n. On halves of
calibration rows, squared errors were 1.00 times the variance so computed, and 0.80 times that with the posterior of the
coefficients in place of 1 / n. Garg et al., "Leveraging Unlabeled Data to Predict Out-of-Distribution Performance",
ICLR 2022, compare such estimates.

All of this needs rows like the calibration rows. Where the class frequencies alone differ, labels are drawn from the
probabilities of a calibrator that is adapted to them; where more differs, the estimate is refused. Either way, the
estimate is about the predictions of the calibrator that was passed.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from glayers.arrays import Floats, Ints, effective_rows, row_blocks
from glayers.calibrators import Calibrator
from glayers.calibrators.base import check_calibrator
from glayers.calibrators.class_shift import ClassShift
from glayers.checks import check_groups, number_between, whole_number
from glayers.decisions.costs import cost_matrix
from glayers.errors import BadPredictions, GlayersError, GlayersWarning
from glayers.metrics.events import Scored, check_seed
from glayers.metrics.metric import score
from glayers.metrics.scorecard import METRICS
from glayers.predictions import Confidences, Predictions
from glayers.predictions.predictions import map_inputs, two_classes
from glayers.shift import shift_test
from glayers.text_tables import json_ready

__all__ = ["Estimate", "Range", "estimate"]

_REFUSAL_LEVEL = 0.99  # of 100 good batches, 99 are estimated
_MOST_POPULATIONS = 100  # groups; with more, groups are units such as patients, whose rows depend on each other
_TINY = 1e-300  # nothing is divided by 0: a class that no row has or gets has a precision and a recall of 0
_BY_CLASS = ("precision", "recall", "f1")
# What conditions may be about.
ESTIMATED = {name: METRICS[name] for name in ("accuracy", "auroc")}
ESTIMATED["lowest_f1"] = replace(METRICS["accuracy"], name="lowest_f1")
ESTIMATED["cost"] = replace(METRICS["accuracy"], name="cost", unit="plain", lowest=-math.inf, highest=math.inf)


@dataclass(frozen=True)
class Range:
    """An estimate and its interval."""

    value: float
    low: float
    high: float

    def against(self, observed: float) -> str:
        """Say how good the estimate was, once labels are known.

        >>> Range(0.912, 0.901, 0.924).against(0.908)
        'estimated 91.20 % (90.10 to 92.40), observed 90.80 %: inside'
        """
        verdict = "inside" if self.low <= observed <= self.high else "outside"
        return f"estimated {self}, observed {100 * observed:.2f} %: {verdict}"

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
        By class name: precision, recall and F1; empty for confidences, whose answers have no class.
    confusion
        Expected counts (k, k): one line per predicted class, one column per label.
    rows, level
        The number of rows, and the probability with which an interval should cover what labels will show.
    adapted
        Whether other class frequencies were taken into account.
    cost
        The mean cost per row of the actions of least expected cost; None without costs.
    groups
        The estimate of each group by name, if the groups are populations.
    """

    accuracy: Range
    auroc: Range
    classes: dict[str, dict[str, Range]]
    confusion: Floats
    rows: int
    level: float
    adapted: bool
    cost: Range | None = None
    groups: dict[str, "Estimate"] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return every number, ready for JSON."""
        return json_ready(asdict(self))

    def scores(self) -> dict[str, float]:
        """Return the estimates that conditions may be about, by name; the lowest F1 is that of the worst class."""
        found = {"accuracy": self.accuracy, "auroc": self.auroc, "lowest_f1": self._worst()[1], "cost": self.cost}
        return {name: estimated.value for name, estimated in found.items() if estimated is not None}

    def _worst(self) -> tuple[str, Range | None]:
        """Return the class with the lowest F1, and that F1, if there are classes."""
        of_classes = [(name, shares["f1"]) for name, shares in self.classes.items()]
        return min(of_classes, key=lambda of_class: of_class[1].value, default=("", None))

    def __str__(self) -> str:
        after = ", whose class frequencies have changed" if self.adapted else ""
        lines = [
            f"Estimated from {self.rows:,} rows without labels{after}; {100 * self.level:g} % intervals",
            f"accuracy  {self.accuracy}",
            f"AUROC     {self.auroc}",
        ]
        if self.cost is not None:
            lines.append(f"cost      {self.cost.value:.4g} ({self.cost.low:.4g} to {self.cost.high:.4g}) per row")
        if self.classes:
            lines.append("lowest F1: class {}, {}".format(*self._worst()))
        for name, group in self.groups.items():
            lines.append(f"group {name}, {group.rows:,} rows: accuracy {group.accuracy}")
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
        A fitted or loaded calibrator. The estimate is about its predictions, also where class frequencies have changed.
    logits
        Logits (n, m) of the new rows, or what the calibrator's `inputs` name; or `Predictions`, whose labels are not
        used.
    groups
        Group of each row (n,); `Predictions` may have their own. Up to 100 groups are populations, such as hospitals,
        and each gets its own estimate. More groups are units, such as patients, whose rows depend on each other: they
        count as copies, and the test of shift uses one row of each.
    costs, abstain
        As in `decide`: the mean cost of the best actions is estimated too.
    level
        The probability with which intervals should cover what the labels will show.
    n_draws
        How many times labels are drawn.
    random_state
        Seed.

    Returns
    -------
    Estimate
        Its intervals count the draw of labels, the number of calibration rows, and errors of new class frequencies.

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
    check_calibrator(calibrator)
    if isinstance(logits, Predictions | Confidences):
        if logits.weights is not None:
            raise BadPredictions("estimate takes rows of equal weight; leave the weights out")
        groups = logits.groups if groups is None else groups
        logits = map_inputs(calibrator.inputs, two_classes(calibrator.inputs, logits))
    if abstain is not None and costs is None:
        raise BadPredictions("abstain= needs costs=: it is the cost of one more action")
    seed = check_seed(random_state)
    level = number_between(level, "level", 0, 1)
    n_draws = whole_number(n_draws, "n_draws", 20, 100_000)
    own = calibrator.predict_proba(logits)
    units = np.arange(len(own))
    populations = {}
    if groups is not None:
        names, members = np.unique(check_groups(groups, len(own)), return_inverse=True)
        if len(names) > _MOST_POPULATIONS:
            units = members
        else:
            populations = {str(name): members == number for number, name in enumerate(names)}
            groups = None  # the test of shift may use all rows
    suited = _suited(calibrator, logits, groups)
    predicted = own.argmax(axis=1)
    if calibrator.inputs == "confidence":  # the question is whether the answer is correct, whatever its confidence
        predicted = np.ones(len(own), dtype=np.int64)
    matrix = np.full((own.shape[1], 1), np.nan)
    if costs is not None:
        matrix = cost_matrix(costs, own.shape[1], abstain)
    paid = matrix.T[(own @ matrix).argmin(axis=1)]
    rows = _Unlabelled(suited.predict_proba(logits), units, predicted, own[np.arange(len(own)), predicted], paid)
    rng = np.random.default_rng(seed)
    found = _estimated(rows, suited, level, n_draws, rng)
    for name, members in populations.items():
        part = _Unlabelled(*(column[members] for column in rows))
        found.groups[name] = _estimated(part, suited, level, n_draws, rng)
    return found


class _Unlabelled(NamedTuple):
    """Rows without labels: how likely each label is, and what a model does."""

    p: Floats  # (n, k)
    units: Ints
    predicted: Ints
    confidence: Floats
    costs: Floats  # (n, k): what the action costs for each label; nan without costs

    def statistics(self, labels: Ints, chances: Floats) -> tuple[Floats, Floats]:
        """Return every statistic, and the confusion matrix, if each row has these labels (n, r) with these chances.

        The statistics are accuracy, AUROC, the precision of all classes, their recall, their F1, and the cost.
        """
        n_classes = self.p.shape[1]
        cells = self.predicted[:, None] * n_classes + labels
        counts = np.bincount(cells.ravel(), chances.ravel(), n_classes**2).astype(np.float64)
        confusion = counts.reshape(n_classes, n_classes)
        right = np.where(labels == self.predicted[:, None], chances, 0.0).sum(axis=1)
        costs = np.vecdot(np.take_along_axis(self.costs, labels, axis=1), chances)
        hits = np.diag(confusion)
        predicted = np.maximum(confusion.sum(axis=1), _TINY)
        true = np.maximum(confusion.sum(axis=0), _TINY)
        overall = [right.mean(), score(ESTIMATED["auroc"].evaluate, Scored(self.confidence, right))]
        by_class = [hits / predicted, hits / true, 2 * hits / (predicted + true)]
        return np.concatenate([overall, *by_class, [costs.mean()]]), confusion


def _estimated(rows: _Unlabelled, suited: Calibrator, level: float, n_draws: int, rng: np.random.Generator) -> Estimate:
    """Return the estimate of rows whose labels are as likely as a suited calibrator says."""
    n_rows, n_classes = rows.p.shape
    value, confusion = rows.statistics(np.broadcast_to(np.arange(n_classes), rows.p.shape), rows.p)
    certain = np.ones((n_rows, 1))
    drawn = _drawn_labels(suited.adaptation_, rows.p, rows.units, n_draws, rng)
    draws = np.array([rows.statistics(labels[:, None], certain)[0] for labels in drawn])
    n_new = effective_rows(np.bincount(rows.units))
    spread = (draws - draws.mean(axis=0)) * np.sqrt(1 + n_new / _calibration_rows(suited))
    adapted = suited.adaptation_ is not None
    accuracy, auroc, *by_class, cost = _ranges(value, value + spread, level, n_rows)
    names: Any = suited.class_names_ or range(n_classes)
    if suited.inputs == "confidence":
        names = ()
    classes = {}
    for c, name in enumerate(names):
        classes[str(name)] = dict(zip(_BY_CLASS, by_class[c::n_classes], strict=True))
    known = None if math.isnan(cost.value) else cost
    return Estimate(accuracy, auroc, classes, confusion, n_rows, level, adapted, known)


def _ranges(value: Floats, draws: Floats, level: float, n_rows: int) -> list[Range]:
    """Return each statistic with its interval."""
    ends = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    ends[:, :-1] = ends[:, :-1].clip(0.0, 1.0)  # all but the cost are shares
    low = np.minimum(ends[0], value)  # with few rows, draws may miss what the probabilities expect
    high = np.maximum(ends[1], value)
    low[0] = np.floor(low[0] * n_rows) / n_rows  # an accuracy that so few rows can have
    high[0] = np.ceil(high[0] * n_rows) / n_rows
    return [Range(*map(float, numbers)) for numbers in zip(value, low, high, strict=True)]


def _calibration_rows(suited: Calibrator) -> float:
    """Return how many rows the calibrator has learned from; with other class frequencies, some count more than others.

    Weights w of the rows leave Kish's effective number, n / mean(w^2).
    """
    rows = suited.calibration_rows_.rows
    if suited.adaptation_ is not None:
        rows /= max(1.0, float(np.array(suited.adaptation_.before) @ suited.adaptation_.ratio**2))
    return rows


def _drawn_labels(
    shift: ClassShift | None, p: Floats, units: Ints, n_draws: int, rng: np.random.Generator
) -> Iterator[Ints]:
    """Yield labels (n,) that may be true, each time of other class frequencies if these were estimated.

    Rows of one unit share one random number, as if they were copies.
    """
    errors = np.zeros(p.shape[1])  # of the logarithms of the class frequencies
    if shift is not None and shift.standard_errors is not None:
        errors = np.array(shift.standard_errors)
        errors /= np.maximum(shift.after, errors)
    for _ in range(n_draws):
        factors = np.exp(errors * rng.normal(size=len(errors)))
        labels = np.empty(len(p), dtype=np.int64)
        shares = rng.uniform(size=units.max() + 1)[units]
        for rows in row_blocks(*p.shape):
            cumulative = np.cumsum(p[rows] * factors, axis=1)
            uniform = shares[rows, None] * cumulative[:, -1:]
            labels[rows] = (uniform > cumulative).sum(axis=1)
        yield labels


def _suited(calibrator: Calibrator, logits: Any, groups: Any) -> Calibrator:
    """Return a calibrator for these rows: itself, or one that is adapted to other class frequencies.

    A change of frequencies counts at the usual 95 %: adapting for nothing costs less than overlooking a change. Rows
    are refused only for strong reasons.
    """
    shift = shift_test(calibrator, logits, groups=groups, level=_REFUSAL_LEVEL)
    if calibrator.inputs != "confidence":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GlayersWarning)
            adapted = calibrator.adapt(logits, groups=groups)
        change = adapted.adaptation_
        if change.shifted and not change.fit_p_value <= 1 - _REFUSAL_LEVEL:
            return adapted
    if not shift.shifted:
        return calibrator
    raise GlayersError(
        f"these rows are of another kind than the calibration rows, so nothing can be estimated without labels. "
        f"{shift}. Calibrate on labelled rows of this kind"
    )
