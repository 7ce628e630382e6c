"""Probabilities and a cost matrix -> the action of least expected cost for each row, and what such actions cost.

Where costs are not known, `net_benefit` shows for every ratio of costs whether acting on the model pays.

costs[c, a] is the cost of action a where the label is c. To abstain, such as asking a colleague, is one more action
with the same cost for every label. The expected cost of an action is linear in the probabilities, so probabilities that
are off by a factor lead to wrong actions however well they rank. Elkan, "The Foundations of Cost-Sensitive Learning",
IJCAI 2001.
"""

from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from glayers.arrays import Floats, Ints, to_floats
from glayers.checks import check_probabilities, number_between
from glayers.errors import BadPredictions, listed, shown
from glayers.metrics.bootstrap import Bootstrap, Interval
from glayers.metrics.events import ROUNDING, Event, Rows, Scored, as_event, check_event, check_rows, top
from glayers.metrics.metric import Metric
from glayers.predictions.predictions import Confidences, Predictions, two_classes
from glayers.text_tables import aligned_table, json_ready

__all__ = ["Measured", "decide", "net_benefit", "realised_costs"]

_CONSTANT = "best constant action"
_THRESHOLDS = tuple(percent / 100 for percent in range(5, 100, 5))
_LARGEST = 1e100  # so that squares of costs stay finite
_Columns: TypeAlias = dict[str, dict[str, Floats]]


@dataclass(frozen=True)
class Measured:
    """Numbers with intervals, such as the costs of several policies; it prints as a table.

    `found["calibrated"]["cost"]` is an `Interval`, with `value`, `low` and `high`.

    Attributes
    ----------
    heading
        What was measured.
    lines
        The `Interval` in each column, by the name of the line.
    facts
        What else was found, by name; nested ones are not printed.
    level
        The probability with which an interval should cover.
    """

    heading: str
    lines: dict[str, dict[str, Interval]]
    facts: dict[str, Any]
    level: float

    @classmethod
    def of(cls, heading: str, rows: Rows | Scored, values: _Columns, facts: dict[str, Any], settings: Any) -> Self:
        """Return the means of values per row, by line and column, with intervals from the same resamples.

        `settings` are those of `Bootstrap`, in order.
        """
        bootstrap = Bootstrap(*settings)
        metrics = []
        for line, columns in values.items():
            metrics += [_mean_of(f"{line!r} {name}", column) for name, column in columns.items()]
        means = iter(bootstrap.columns(rows, metrics, "resampling").values())
        lines = {}
        for line, columns in values.items():
            lines[line] = {column: next(means).interval(bootstrap.level) for column in columns}
        return cls(heading, lines, facts, bootstrap.level)

    def __getitem__(self, line: str) -> dict[str, Interval]:
        """Return a line of the table."""
        return self.lines[line]

    def to_dict(self) -> dict[str, Any]:
        """Return every number, ready for JSON."""
        lines = {name: {column: cell._asdict() for column, cell in cells.items()} for name, cells in self.lines.items()}
        return json_ready({"lines": lines, **self.facts, "level": self.level})

    def __str__(self) -> str:
        *_, columns = self.lines.values()  # the last line has all of them
        table = [["", *columns]]
        notes = set()
        for name, cells in self.lines.items():
            table.append([name, *(_text(cells.get(column, "")) for column in columns)])
            notes |= {f"* unreliable: {cell.unreliable}" for cell in cells.values() if cell.unreliable}
        facts = [f"{name}: {_text(fact)}" for name, fact in self.facts.items() if not isinstance(fact, dict)]
        heading = f"{self.heading}, {100 * self.level:g} % intervals"
        return "\n".join([heading, aligned_table(table), *facts, *sorted(notes)])


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
    given = _with_classes(probabilities)
    p = given.probabilities() if isinstance(given, Predictions) else check_probabilities(given)
    return np.asarray((p @ cost_matrix(costs, p.shape[1], abstain)).argmin(axis=1))


def realised_costs(
    policies: dict[str, Any],
    costs: object,
    *,
    abstain: float | None = None,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: int | None = 0,
) -> Measured:
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
    Measured
        A line for each policy and for "best constant action", with the mean "cost" per row and, but for the first, what
        the first saves, from the same rows. Facts: the classes in the order of the lines of `costs`, the number of the
        best constant action, and the cost that the first probabilities expected.

    Examples
    --------
    >>> rows = Predictions.from_probabilities([[0.8, 0.2], [0.95, 0.05], [0.4, 0.6]] * 20, [0, 0, 1] * 20)
    >>> found = realised_costs({"model": rows}, [[0, 1], [10, 0]])
    >>> round(found["model"]["cost"].value, 3), found.facts["best constant action"]
    (0.333, 1)
    """
    named = isinstance(policies, dict) and all(isinstance(x, Predictions | Confidences) for x in policies.values())
    if not named or not policies or _CONSTANT in policies:
        raise BadPredictions("policies must be Predictions by name, such as {'calibrated': rows}")
    checked = {str(name): check_rows(_with_classes(given)) for name, given in policies.items()}
    if len(checked) < len(policies):
        raise BadPredictions(f"names of policies must differ as text; got {shown(list(policies))}")
    first, rows = next(iter(checked.items()))
    matrix = cost_matrix(costs, rows.n_classes, abstain)
    values: _Columns = {}
    for name, policy in checked.items():
        for fact in ("n_classes", "labels", "weights", "group_numbers"):
            if not np.array_equal(getattr(policy, fact), getattr(rows, fact)):
                raise BadPredictions(f"pass the same rows: the {fact} of {name} and {first} differ")
        values[name] = {"cost": matrix[rows.labels, (policy.probabilities @ matrix).argmin(axis=1)]}
    constant = int((rows.weights @ matrix[rows.labels]).argmin())
    values[_CONSTANT] = {"cost": matrix[rows.labels, constant]}
    for name in [*values][1:]:
        values[name][f"saved by {first}"] = values[name]["cost"] - values[first]["cost"]
    expected = float(rows.weights @ (rows.probabilities @ matrix).min(axis=1))
    names = [*map(str, rows.class_names or range(rows.n_classes))]
    facts = {"lines of costs": names, _CONSTANT: constant, f"cost expected by {first}": expected}
    return Measured.of("Mean cost per row", rows, values, facts, (n_resamples, level, random_state, False))


def net_benefit(
    predictions: object,
    thresholds: object = _THRESHOLDS,
    *,
    event: Event | str = "positive",
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: int | None = 0,
) -> Measured:
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
    Measured
        A line for each threshold, such as "0.05", with the net benefit of the "model", that of "treat all", and the
        "gain" of the model over treating all, from the same rows; treating nobody has a net benefit of 0. Vickers and
        Elkin, Medical Decision Making 2006.

    Examples
    --------
    Of four rows, 50 % treats two, of which one is ill: 1/4 - 1/4 * 1. Treating all: 2/4 - 2/4 * 1.

    >>> rows = Predictions.from_probabilities([[0.2, 0.8], [0.4, 0.6], [0.7, 0.3], [0.9, 0.1]] * 9, [1, 0, 1, 0] * 9)
    >>> found = net_benefit(rows, [0.2, 0.5])
    >>> [(t, round(line["model"].value, 4), round(line["treat all"].value, 4)) for t, line in found.lines.items()]
    [('0.2', 0.4375, 0.375), ('0.5', 0.0, 0.0)]
    """
    cuts = np.unique(to_floats(thresholds, "thresholds"))
    if not cuts.size or not ((cuts > 0) & (cuts < 1)).all():
        raise BadPredictions(f"thresholds must be probabilities above 0 and below 1; got {thresholds!r:.60}")
    if isinstance(predictions, Confidences):
        event = top  # the only one
    rows = check_event(predictions, event=event)
    values = {}
    for cut in cuts:
        of_treating = rows.hits - cut / (1 - cut) * (1 - rows.hits)  # each row
        of_model = np.where(rows.scores >= cut - ROUNDING, of_treating, 0.0)
        values[str(cut)] = {"model": of_model, "treat all": of_treating, "gain": of_model - of_treating}
    heading = f"Net benefit per row ({as_event(event).name})"
    return Measured.of(heading, rows, values, {}, (n_resamples, level, random_state, False))


def _with_classes(given: object) -> object:
    """Return confidences as predictions of the classes wrong and correct, and anything else as it is."""
    return two_classes("confidence", given) if isinstance(given, Confidences) else given


def cost_matrix(costs: object, n_classes: int, abstain: float | None = None) -> Floats:
    """Return the checked costs (classes, actions), with a last column for abstaining if that has a cost."""
    matrix = to_floats(costs, "costs").astype(np.float64)
    is_table = matrix.ndim == 2 and len(matrix) == n_classes and matrix.size > 0
    if not is_table or not (np.abs(matrix) <= _LARGEST).all():
        raise BadPredictions(
            f"costs must be finite numbers up to {_LARGEST:g}, with one line per class ({n_classes}) and one column "
            f"per action; got {matrix.shape}"
        )
    if abstain is None:
        return matrix
    price = number_between(abstain, "abstain", -_LARGEST, _LARGEST)
    return np.column_stack([matrix, np.full(n_classes, price)])


def _mean_of(name: str, column: Floats) -> Metric:
    """Return the mean of a value per row that is known already."""
    return Metric.of_function(lambda *_: column, name=name, about="rows", per_row=True)


def _text(found: Any) -> str:
    """Return a number with four digits; with its interval, it has a star if that may be too narrow."""
    if isinstance(found, Interval):
        star = " *" if found.unreliable else ""
        return f"{found.value:.4g} ({found.low:.4g} to {found.high:.4g}){star}"
    if isinstance(found, float):
        return f"{found:.4g}"
    return listed(found) if isinstance(found, list) else str(found)
