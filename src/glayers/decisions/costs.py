"""Probabilities and a cost matrix -> the action of least expected cost for each row, and what such actions cost.

Where costs are not known, `net_benefit` shows for every ratio of costs whether acting on the model pays.

costs[c, a] is the cost of action a where the label is c. To abstain, such as asking a colleague, is one more action
with the same cost for every label. The expected cost of an action is linear in the probabilities, so probabilities that
are off by a factor lead to wrong actions however well they rank. Elkan, "The Foundations of Cost-Sensitive Learning",
IJCAI 2001.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glayers.arrays import Floats, Ints, to_floats
from glayers.checks import check_probabilities, to_float, two_dimensional
from glayers.errors import BadPredictions, shown
from glayers.metrics.bootstrap import Bootstrap, Bootstrapped, Interval
from glayers.metrics.events import ROUNDING, Event, Rows, Scored, as_event, check_event, check_rows, top
from glayers.metrics.metric import Metric
from glayers.predictions.predictions import Confidences, Predictions, two_classes
from glayers.text_tables import aligned_table, json_ready

__all__ = ["Costs", "DecisionCurve", "decide", "net_benefit", "realised_costs"]

_CONSTANT = "best constant action"
_LARGEST = 1e100  # so that squares of costs stay finite


@dataclass(frozen=True)
class Costs:
    """What actions cost on labelled rows, with intervals.

    Attributes
    ----------
    by_policy
        The mean cost per row of each policy: of the given probabilities by name, and of "best constant action".
    savings
        The cost of each policy minus that of the first, from the same rows.
    constant_action
        The action that costs least if every row gets the same.
    expected
        What the first probabilities expected their actions to cost.
    level
        The probability with which an interval should cover.
    """

    by_policy: dict[str, Interval]
    savings: dict[str, Interval]
    constant_action: int
    expected: float
    level: float

    def to_dict(self) -> dict[str, Any]:
        """Return every number, ready for JSON."""
        numbers = vars(self) | {"costs": _by_name(self.by_policy), "savings": _by_name(self.savings)}
        del numbers["by_policy"]
        return json_ready(numbers)

    def __str__(self) -> str:
        width = max(map(len, self.by_policy))
        first = next(iter(self.by_policy))
        lines = [f"Mean cost per row, {100 * self.level:g} % interval"]
        for name, cost in self.by_policy.items():
            lines.append(f"{name:<{width}}  {range_text(cost)}")
            if name in self.savings:
                lines[-1] += f"; {first} saves {range_text(self.savings[name])}"
        lines.append(f"The best constant action is {self.constant_action}. {first} expected {self.expected:.4g}.")
        return "\n".join(lines + notes_on([*self.by_policy.values(), *self.savings.values()]))


@dataclass(frozen=True, eq=False)
class DecisionCurve:
    """Net benefit per row at each threshold, with intervals; treating nobody has a net benefit of 0.

    Attributes
    ----------
    thresholds
        The probabilities from which on a row is treated, ascending.
    model, treat_all
        The net benefit of treating rows by the model, and of treating every row, one `Interval` per threshold.
    gain
        The net benefit of the model minus that of treating every row, from the same rows. The model is worth using
        where both `model` and `gain` are above 0.
    event
        What the probability is about, in words.
    level
        The probability with which an interval should cover.
    """

    thresholds: tuple[float, ...]
    model: tuple[Interval, ...]
    treat_all: tuple[Interval, ...]
    gain: tuple[Interval, ...]
    event: str
    level: float

    def __str__(self) -> str:
        lines = [["treat from", "model", "treat all", "gain over treating all"]]
        for threshold, *found in zip(self.thresholds, self.model, self.treat_all, self.gain, strict=True):
            lines.append([f"{100 * threshold:g} %", *map(range_text, found)])
        heading = f"Net benefit per row ({self.event}), {100 * self.level:g} % intervals; of treating none it is 0"
        notes = notes_on([*self.model, *self.treat_all, *self.gain])
        return "\n".join([heading, aligned_table(lines), *notes])


def decide(probabilities: object, costs: object, *, abstain: float | None = None) -> Ints:
    """Return the action (n,) of least expected cost for each row; the expected costs are probabilities @ costs.

    Parameters
    ----------
    probabilities
        Array (n, k) or `Predictions`; or `Confidences`, whose classes are wrong and correct.
    costs
        Array (k, actions): the cost of each action for each label. A square matrix with zeros on its diagonal means
        that the actions are the classes.
    abstain
        The cost of abstaining, whatever the label: one more action, with the next number. None does not allow it.

    Returns
    -------
    ndarray of shape (n,)
        The number of the action, a column of `costs`; to abstain is the number of columns.

    Examples
    --------
    To miss class 1 costs ten times as much as a false alarm, so 20 % suffice for an alarm.

    >>> decide([[0.8, 0.2], [0.95, 0.05]], [[0, 1], [10, 0]]).tolist()
    [1, 0]
    >>> decide([[0.8, 0.2], [0.95, 0.05]], [[0, 1], [10, 0]], abstain=0.6).tolist()
    [2, 0]
    """
    probabilities = _with_classes(probabilities)
    if isinstance(probabilities, Predictions):
        p = probabilities.probabilities()
    else:
        p = check_probabilities(probabilities)
    return np.asarray((p @ cost_matrix(costs, p.shape[1], abstain)).argmin(axis=1))


def realised_costs(
    policies: dict[str, Any],
    costs: object,
    *,
    abstain: float | None = None,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: int | None = 0,
) -> Costs:
    """Return what the decisions of several probabilities cost on the same labelled rows, with intervals.

    Parameters
    ----------
    policies
        `Predictions` or `Confidences` of the same rows by name, such as {"calibrated": ..., "uncalibrated": ...}.
    costs, abstain
        As in `decide`. The best constant action is chosen on the same rows, which flatters it a little.
    level, n_resamples, random_state
        As in `metrics.intervals`.

    Returns
    -------
    Costs

    Examples
    --------
    >>> rows = Predictions.from_probabilities([[0.8, 0.2], [0.95, 0.05], [0.4, 0.6]] * 20, [0, 0, 1] * 20)
    >>> found = realised_costs({"model": rows}, [[0, 1], [10, 0]])
    >>> round(found.by_policy["model"].value, 3), found.constant_action
    (0.333, 1)
    """
    named = isinstance(policies, dict) and all(isinstance(x, Predictions | Confidences) for x in policies.values())
    if not named or not policies or _CONSTANT in policies:
        raise BadPredictions("policies must be Predictions by name, such as {'calibrated': rows}")
    checked = {str(name): check_rows(_with_classes(given), strict=True) for name, given in policies.items()}
    (first, rows), *others = checked.items()
    for _, other in others:
        same = np.array_equal(other.labels, rows.labels) and np.array_equal(other.weights, rows.weights)
        if not same or other.n_classes != rows.n_classes:
            raise BadPredictions("policies must have the same labels, classes and weights: pass the same rows")
    matrix = cost_matrix(costs, rows.n_classes, abstain)
    cost_of_label = matrix[rows.labels]
    constant = int((rows.weights @ cost_of_label).argmin())
    actions = {name: (policy.probabilities @ matrix).argmin(axis=1) for name, policy in checked.items()}
    actions[_CONSTANT] = np.full(len(rows), constant)
    paid = [cost_of_label[np.arange(len(rows)), taken] for taken in actions.values()]
    means = _bootstrapped_means(rows, paid, Bootstrap(n_resamples, level, random_state, progress=False))
    found = dict(zip(actions, means, strict=True))
    expected = float(rows.weights @ (rows.probabilities @ matrix).min(axis=1))
    by_policy = {name: cost.interval(level) for name, cost in found.items()}
    savings = {name: cost.minus(found[first]).interval(level) for name, cost in found.items() if name != first}
    return Costs(by_policy, savings, constant, expected, level)


def net_benefit(
    predictions: object,
    thresholds: object = None,
    *,
    event: Event | str = "positive",
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: int | None = 0,
) -> DecisionCurve:
    """Return the decision curve: what treating by the model gains at each threshold, beside treating all or none.

    Somebody who treats from a probability t on takes one case that is treated to be worth (1 - t) / t treatments that
    were not needed. The net benefit counts cases that are treated, minus t / (1 - t) for each row treated needlessly.

    Parameters
    ----------
    predictions
        `Predictions` or `Confidences`. Use rows that the calibrator was not fitted on.
    thresholds
        Probabilities above 0 and below 1; 5 %, 10 %, ..., 95 % by default.
    event
        What is treated: by default class 1 of two. `positive("ill")` or `label("flu")` is another class.
    level, n_resamples, random_state
        As in `metrics.intervals`.

    Returns
    -------
    DecisionCurve
        Vickers and Elkin, Medical Decision Making 2006.

    Examples
    --------
    Of four rows, 50 % treats two, of which one is ill: 1/4 - 1/4 * 1. Treating all: 2/4 - 2/4 * 1.

    >>> rows = Predictions.from_probabilities([[0.2, 0.8], [0.4, 0.6], [0.7, 0.3], [0.9, 0.1]] * 9, [1, 0, 1, 0] * 9)
    >>> found = net_benefit(rows, [0.2, 0.5])
    >>> [round(benefit.value, 4) for benefit in found.model], [round(b.value, 4) for b in found.treat_all]
    ([0.4375, 0.0], [0.375, 0.0])
    """
    if thresholds is None:
        thresholds = np.arange(5, 100, 5) / 100
    cuts = tuple(np.unique(to_floats(thresholds, "thresholds")).tolist())
    if not cuts or not all(0 < cut < 1 for cut in cuts):
        raise BadPredictions(f"thresholds must be probabilities above 0 and below 1; got {thresholds!r:.60}")
    if isinstance(predictions, Confidences):
        event = top  # the only one
    rows = check_event(predictions, event=event)
    of_treating = [rows.hits - cut / (1 - cut) * (1 - rows.hits) for cut in cuts]  # each row
    by_model = [np.where(rows.scores >= cut - ROUNDING, each, 0.0) for cut, each in zip(cuts, of_treating, strict=True)]
    settings = Bootstrap(n_resamples, level, random_state, progress=False)
    found = _bootstrapped_means(rows, [*by_model, *of_treating], settings)
    model = found[: len(cuts)]
    treat_all = found[len(cuts) :]
    gain = [mine.minus(of_all) for mine, of_all in zip(model, treat_all, strict=True)]
    curves = [tuple(benefit.interval(level) for benefit in curve) for curve in (model, treat_all, gain)]
    return DecisionCurve(cuts, curves[0], curves[1], curves[2], as_event(event).name, level)


def _with_classes(given: object) -> object:
    """Return confidences as predictions of the classes wrong and correct, and anything else as it is."""
    return two_classes("confidence", given) if isinstance(given, Confidences) else given


def cost_matrix(costs: object, n_classes: int, abstain: float | None = None) -> Floats:
    """Return the checked costs (classes, actions), with a last column for abstaining if that has a cost."""
    matrix = two_dimensional(to_floats(costs, "costs"), "costs").astype(np.float64)
    if len(matrix) != n_classes or not (np.abs(matrix) <= _LARGEST).all():
        raise BadPredictions(
            f"costs must be finite numbers up to {_LARGEST:g}, with one line per class ({n_classes}) and one column "
            f"per action; got {matrix.shape}"
        )
    if abstain is None:
        return matrix
    price = to_float(abstain)
    if not abs(price) <= _LARGEST:
        raise BadPredictions(f"abstain must be a finite cost up to {_LARGEST:g}; got {shown(abstain)}")
    return np.column_stack([matrix, np.full(n_classes, price)])


def mean_intervals(rows: Rows | Scored, values: dict[str, Floats], settings: Bootstrap) -> dict[str, Interval]:
    """Return the mean of each value per row with its interval; the same seed draws the same resamples."""
    found = _bootstrapped_means(rows, values.values(), settings)
    return {name: mean.interval(settings.level) for name, mean in zip(values, found, strict=True)}


def _bootstrapped_means(rows: Rows | Scored, values: Collection[Floats], settings: Bootstrap) -> list[Bootstrapped]:
    metrics = [_mean_of(str(place), column) for place, column in enumerate(values)]
    return list(settings.columns(rows, metrics, "resampling").values())


def _mean_of(name: str, column: Floats) -> Metric:
    """Return the mean of a value per row that is known already."""
    return Metric(name, name, lambda _: column, "", about="rows", kind="loss", lowest=-math.inf, highest=math.inf)


def _by_name(intervals: dict[str, Interval]) -> dict[str, Any]:
    return {name: interval._asdict() for name, interval in intervals.items()}


def range_text(found: Interval, digits: str = ".4g") -> str:
    """Return a number with its interval, and a star if that may be too narrow."""
    star = " *" if found.unreliable else ""
    return f"{found.value:{digits}} ({found.low:{digits}} to {found.high:{digits}}){star}"


def notes_on(intervals: Iterable[Interval]) -> list[str]:
    """Return why intervals are marked, a line for each reason."""
    reasons = {found.unreliable for found in intervals if found.unreliable}
    return [f"* unreliable: {reason}" for reason in sorted(reasons)]
