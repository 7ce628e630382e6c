"""A calibrator and rows without labels -> how good the model is on them, with intervals.

Calibrated probabilities say how often each answer is right, so their means estimate accuracy, precision and recall
before any label is known. Three things are uncertain. Labels are random: they are drawn from the probabilities. Class
frequencies may have changed: whether a test finds that or not, they are drawn in turn with the labels (data
augmentation; Tanner and Wong, Journal of the American Statistical Association, 1987), and estimates are means over
these draws. And the calibrator was fitted on n rows. Its mean confidence is right as far as n labels can tell, so its
error is that of a mean over n rows: it adds 1 / n to the 1 / m of the variance of m new labels. Draws are stretched by
the root of 1 + m / n. On halves of calibration rows, squared errors were 1.00 times the variance so computed, and 0.80
times that with the posterior of the coefficients in place of 1 / n. Garg et al., "Leveraging Unlabeled Data to Predict
Out-of-Distribution Performance", ICLR 2022, compare such estimates.

All of this needs rows like the calibration rows. Where more differs than the class frequencies, the estimate is
refused. Either way, the estimate is about the predictions of the calibrator that was passed.
"""

import math
import warnings
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Floats, Ints, effective_rows, in_row_blocks, to_numpy
from glayers.calibrators.base import Calibrator, check_calibrator
from glayers.checks import check_groups, number_between, whole_number
from glayers.decisions.costs import cost_matrix
from glayers.errors import BadPredictions, GlayersError, GlayersWarning
from glayers.metrics.events import check_seed
from glayers.metrics.metric import METRICS
from glayers.metrics.null_distribution import labels_at
from glayers.predictions.predictions import Confidences, Predictions, map_inputs, two_classes
from glayers.shift import shift_test
from glayers.text_tables import json_ready, plural

__all__ = ["Estimate", "Range", "estimate"]

_REFUSAL_LEVEL = 0.99  # of 100 good batches, 99 are estimated
_MOST_POPULATIONS = 100  # groups; with more, groups are units such as patients, whose rows depend on each other
_TINY = 1e-300  # nothing is divided by 0: a class that no row has or gets has a precision and a recall of 0
_STRENGTHS = np.geomspace(1, 1e6, 19)  # how many rows the old class frequencies may be worth as a prior of the new ones
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


class _Cost(Range):
    """The mean cost of a row, which is no share."""

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


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
    changed
        Whether the class frequencies differ significantly from those of the calibration rows, at 95 %.
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
    changed: bool
    cost: Range | None = None
    groups: dict[str, "Estimate"] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return every number, ready for JSON; the lowest F1 and the accuracy of each group again by themselves."""
        by_group = {name: group.accuracy.value for name, group in self.groups.items()}
        more = {"lowest_f1": self.scores().get("lowest_f1"), "group_accuracy": by_group}
        return json_ready(asdict(self) | more)

    def scores(self) -> dict[str, float]:
        """Return the estimates that conditions may be about, by name; the lowest F1 is that of the worst class."""
        found = {"accuracy": self.accuracy.value, "auroc": self.auroc.value}
        if self.classes:
            found["lowest_f1"] = min(scores["f1"].value for scores in self.classes.values())
        if self.cost is not None:
            found["cost"] = self.cost.value
        return found

    def __str__(self) -> str:
        lines = [
            f"Estimated from {self._counted} without labels; {100 * self.level:g} % intervals",
            f"accuracy  {self.accuracy}",
            f"AUROC     {self.auroc}",
        ]
        if self.cost is not None:
            lines.append(f"cost      {self.cost} per row")
        if self.classes:
            worst = min(self.classes, key=lambda name: self.classes[name]["f1"].value)
            lowest = str(self.classes[worst]["f1"])
            if not self.confusion[list(self.classes).index(worst)].any():  # an F1 of 0, whatever the labels are
                lowest = "which is predicted for no row"
            lines.append(f"lowest F1: class {worst}, {lowest}")
        for name, group in self.groups.items():
            lines.append(f"group {name}, {group._counted}: accuracy {group.accuracy}")
        return "\n".join(lines)

    @property
    def _counted(self) -> str:
        """The number of rows, and whether their class frequencies have changed."""
        after = " whose class frequencies have changed" if self.changed else ""
        return plural(self.rows, "row") + after


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
        and each gets an estimate of its own. Its class frequencies are near those of all rows, unless its own rows say
        otherwise. More groups are units, such as patients, whose rows depend on each other: they count as copies, and
        the test of shift uses one row of each.
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
        Its intervals count the draw of labels, the number of calibration rows, and class frequencies that may be new.

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
        calibrator._check_names(getattr(logits, "class_names", None))
        logits = map_inputs(calibrator.inputs, two_classes(calibrator.inputs, logits))
    seed = check_seed(random_state)
    level = number_between(level, "level", 0, 1)
    n_draws = whole_number(n_draws, "n_draws", 20, 100_000)
    p = calibrator.predict_proba(logits)
    units = np.arange(len(p))
    members = np.zeros_like(units)
    names: Any = ()
    if groups is not None:
        names, numbers = np.unique(check_groups(groups, len(p)), return_inverse=True)
        if len(names) > _MOST_POPULATIONS:
            units, names = numbers, ()
        else:
            members, groups = numbers, None  # the test of shift may use all rows
    rows = _Unlabelled(to_numpy(logits, "logits"), units, members, *_answers(calibrator, p, costs, abstain))
    suited = _suited(calibrator, logits, groups)
    chances, labels = _drawn(rows, suited, n_draws, seed)
    found = _estimate(rows, suited, chances, labels, level)
    for number, name in enumerate(names):
        here = members == number
        part = _Unlabelled(*(column[here] for column in rows))
        fitting = _suited(calibrator, part.logits, None, f"group {name}: ", len(names))
        found.groups[str(name)] = _estimate(part, fitting, chances[here], labels[here], level)
    return found


def _answers(calibrator: Calibrator, p: Floats, costs: Any, abstain: float | None) -> tuple[Ints, Floats, Floats]:
    """Return what a model predicts, how sure it is, and what its best action costs for each label (nan if unknown)."""
    if abstain is not None and costs is None:
        raise BadPredictions("abstain= needs costs=: it is the cost of one more action")
    matrix = np.full((p.shape[1], 1), np.nan)
    if costs is not None:
        matrix = cost_matrix(costs, p.shape[1], abstain)
    predicted = p.argmax(axis=1)
    if calibrator.inputs == "confidence":  # the question is whether the answer is correct, whatever its confidence
        predicted = np.ones_like(predicted)
    return predicted, p[np.arange(len(p)), predicted], matrix.T[(p @ matrix).argmin(axis=1)]


class _Unlabelled(NamedTuple):
    """Rows without labels, and what a model does with them."""

    logits: Array
    units: Array  # numbers: rows of one unit count as copies
    members: Array  # the number of the population of each row
    predicted: Array
    confidence: Array
    costs: Array  # (n, k): what the action costs for each label; nan without costs

    @property
    def independent(self) -> float:
        """The share of rows that count: those of one unit count as copies."""
        return effective_rows(np.bincount(self.units)) / len(self.units)

    def statistics(self, ranks: Floats, right: Array, labels: Array, paid: Floats) -> Floats:
        """Return cost, accuracy and AUROC, then precision, recall and F1 of each class (3 + 3 k).

        `ranks` are those of the confidence, from their middle. `right` and `paid` are about each row, and `labels` (k,)
        counts labels. An answer that is right with a chance of 0.8 counts as 0.8 right and 0.2 wrong answers.
        """
        answers = np.bincount(self.predicted, minlength=len(labels))
        hits = np.bincount(self.predicted, right, len(labels))
        n_right = hits.sum()
        pairs = n_right * (len(right) - n_right)
        auroc = 0.5 - (1 - right) @ ranks / max(pairs, _TINY)
        by_class = hits / np.maximum([answers, labels, (answers + labels) / 2], _TINY)
        return np.concatenate([[paid.mean(), n_right / len(right), auroc], by_class.ravel()])


def _estimate(rows: _Unlabelled, suited: Calibrator, chances: Floats, labels: Ints, level: float) -> Estimate:
    """Return the estimate of rows with these chances (n, k) of labels, and labels (n, draws) that may be true."""
    from scipy.stats import rankdata  # on first use: importing it takes longer than importing glayers

    n_rows, n_classes = chances.shape
    places = np.arange(n_rows)
    ranks = rankdata(rows.confidence) - (n_rows + 1) / 2
    likely = chances[places, rows.predicted], chances.sum(axis=0), np.vecdot(rows.costs, chances)
    values = rows.statistics(ranks, *likely)
    draws = []
    for drawn in labels.T:
        counts = np.bincount(drawn, minlength=n_classes)
        draws.append(rows.statistics(ranks, drawn == rows.predicted, counts, rows.costs[places, drawn]))
    change = suited.adaptation_
    # Where rare classes are now frequent, fewer calibration rows count (Kish).
    weight = (chances.mean(axis=0) ** 2 / suited.calibration_rows_.smoothed_means()).sum()
    stretch = math.sqrt(1 + weight * rows.independent * n_rows / suited.calibration_rows_.rows)
    middle = np.mean(draws, axis=0)
    ends = np.quantile(middle + stretch * (draws - middle), [(1 - level) / 2, (1 + level) / 2], axis=0)
    cost, accuracy, auroc, *by_class = _ranges(values, ends, n_rows)
    confusion = np.stack([chances[rows.predicted == c].sum(axis=0) for c in range(n_classes)])
    names: Any = () if suited.inputs == "confidence" else suited.class_names_ or range(n_classes)
    classes = {str(name): dict(zip(_BY_CLASS, by_class[c::n_classes], strict=True)) for c, name in enumerate(names)}
    known = None if math.isnan(cost.value) else _Cost(**vars(cost))
    return Estimate(accuracy, auroc, classes, confusion, n_rows, level, change is not None and change.shifted, known)


def _ranges(values: Floats, ends: Floats, n_rows: int) -> list[Range]:
    """Return each statistic with its interval."""
    ends[:, 1:] = ends[:, 1:].clip(0.0, 1.0)  # all but the cost are shares
    low, high = np.minimum(ends[0], values), np.maximum(ends[1], values)  # of few rows, draws may miss what is expected
    low[1] = math.floor(round(low[1] * n_rows, 6)) / n_rows  # an accuracy that so few rows can have
    high[1] = math.ceil(round(high[1] * n_rows, 6)) / n_rows
    return [Range(*map(float, numbers)) for numbers in zip(values, low, high, strict=True)]


def _drawn(rows: _Unlabelled, suited: Calibrator, n_draws: int, seed: int | None) -> tuple[Floats, Ints]:
    """Return the mean chances (n, k) of labels, and labels (n, draws) that may be true.

    The labels of one draw tell which class frequencies the next one may have: those of all rows are near the old ones,
    and those of a population near those of all rows, as far as the labels agree. Rows of one unit share a random
    number. Confidences have no classes whose frequencies could change.
    """
    rng = np.random.default_rng(seed)
    chances = suited.predict_proba(rows.logits)
    expected = np.zeros_like(chances)
    n_classes = chances.shape[1]
    labels = np.empty((len(chances), n_draws), np.min_scalar_type(n_classes))
    n_members = rows.members.max() + 1
    old = suited.calibration_rows_.smoothed_means()
    stated = chances if suited.adaptation_ is None else chances / suited.adaptation_.ratio
    for draw in range(n_draws):
        expected += chances
        shares = rng.uniform(size=rows.units.max() + 1)[rows.units]
        labels[:, draw] = in_row_blocks(labels_at, chances, shares[:, None])[:, 0]
        if suited.inputs != "confidence":
            pairs = rows.members * n_classes + labels[:, draw]
            counts = rows.independent * np.bincount(pairs, minlength=n_members * n_classes).reshape(n_members, -1)
            frequencies = _plausible_frequencies(counts.sum(axis=0), old, rng)[None]
            if n_members > 1:
                frequencies = np.stack([_plausible_frequencies(own, frequencies[0], rng) for own in counts])
            chances = stated * (frequencies / old)[rows.members]
            chances /= chances.sum(axis=1, keepdims=True)
    return expected / n_draws, labels


def _plausible_frequencies(counts: Array, usual: Floats, rng: np.random.Generator) -> Floats:
    """Draw class frequencies that are as probable as these counts of labels say.

    They have a Dirichlet prior around the usual ones; how many rows it is worth is drawn first.
    """
    from scipy.special import gammaln  # on first use: importing it takes longer than importing glayers

    prior = _STRENGTHS[:, None] * usual
    log_likelihood = (gammaln(prior + counts) - gammaln(prior)).sum(axis=1)
    log_likelihood += gammaln(_STRENGTHS) - gammaln(_STRENGTHS + counts.sum())
    strength = rng.choice(len(_STRENGTHS), p=softmax(log_likelihood))
    drawn = np.maximum(rng.gamma(counts + prior[strength]), _TINY)
    return np.asarray(drawn / drawn.sum())


def _suited(calibrator: Calibrator, logits: Any, groups: Any, whose: str = "", n_tested: int = 1) -> Calibrator:
    """Return a calibrator for these rows: one that is adapted to their class frequencies, except for confidences.

    Rows are refused only for strong reasons. Of several populations that are tested, none may be refused by chance
    either (Bonferroni).
    """
    refused = (1 - _REFUSAL_LEVEL) / n_tested
    shift = shift_test(calibrator, logits, groups=groups, level=1 - refused)
    suited = calibrator
    explained = False
    if calibrator.inputs != "confidence":
        with warnings.catch_warnings(action="ignore", category=GlayersWarning):
            suited = calibrator.adapt(logits, groups=groups)
        explained = suited.adaptation_.shifted and not suited.adaptation_.fit_p_value <= refused
    if explained or not shift.shifted:
        return suited
    raise GlayersError(
        f"{whose}these rows are of another kind than the calibration rows, so nothing can be estimated without labels. "
        f"{shift}. Calibrate on labelled rows of this kind"
    )
