"""Rows -> the lowest confidence above which a model is accurate enough, with a guarantee.

Every candidate leaves a fixed number of rows above it, so the candidates do not depend on the outcomes. Given its own
confidence, the rows above a candidate are independent draws from the population above it. The number of errors among
them is binomial, and the test of each candidate is exact. The fallback procedure keeps the probability that any
accepted candidate is too low at 1 - level: candidates are tested in a fixed order, from few rows to all, and each one
that passes hands its share of the error probability to the next. Wiens, "A Fixed Sequence Bonferroni Procedure for
Testing Multiple Endpoints", Pharmaceutical Statistics, 2003.
"""

import math
from dataclasses import asdict, dataclass

import numpy as np

from glayers.arrays import effective_rows
from glayers.checks import number_between
from glayers.errors import WITHOUT_GROUPS
from glayers.metrics.events import Event, Scored, check_event, top
from glayers.text_tables import plural

__all__ = ["Threshold", "threshold"]

_STARTS = 3  # one alone would be lost by an early error, and each more takes a share of the error probability


@dataclass(frozen=True)
class Threshold:
    """The lowest confidence at which a model may answer.

    Attributes
    ----------
    confidence
        Answer where the confidence is at least this; None if these rows show no such confidence.
    target
        The accuracy that answers must have.
    level
        The probability that the promise holds, over draws of these rows.
    coverage
        The share of rows that are answered.
    accuracy
        The accuracy of these answers on these rows; None if none is answered.
    rows
        The number of rows.
    groups
        The number of groups that they are in; None without groups.
    """

    confidence: float | None
    target: float
    level: float
    coverage: float
    accuracy: float | None
    rows: int
    groups: int | None = None

    def to_dict(self) -> dict[str, float | int | None]:
        """Return every number, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        promise = f"an accuracy of at least {100 * self.target:g} %, with a certainty of {100 * self.level:g} %"
        if self.confidence is None or self.accuracy is None:
            told = f"{plural(self.rows, 'row')} can tell. Use more rows or a lower target"
            if self.groups is not None:
                told = f"{self.rows:,} rows in {plural(self.groups, 'group')} can tell, where each group counts as "
                told += f"about one row. {WITHOUT_GROUPS}"
            return f"No threshold reaches {promise}, as far as {told}."
        right = f"{100 * self.accuracy:.2f} %"
        if self.confidence == 0:
            return f"No threshold is needed for {promise}: {right} of all {self.rows:,} answers are right."
        return (
            f"Answer where the confidence is at least {math.ceil(1e4 * self.confidence) / 1e4:.4f}: {promise}. "
            f"{100 * self.coverage:.1f} % of {self.rows:,} rows are answered, and {right} of these answers are right."
        )


def threshold(
    probabilities: object,
    labels: object = None,
    *,
    accuracy: float,
    level: float = 0.9,
    sample_weight: object = None,
    groups: object = None,
    event: Event | str = top,
) -> Threshold:
    """Return the lowest confidence above which the accuracy is at least `accuracy`, guaranteed at `level`.

    Use rows that the calibrator was not fitted on.

    Parameters
    ----------
    probabilities
        Array (n, k), `Predictions` or `Confidences`.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    accuracy
        The accuracy that answers above the threshold must have, such as 0.95.
    level
        The probability that they have it in the population, over draws of rows.
    sample_weight, groups
        Weights and groups of rows (n,). Both count by effective numbers: rows of one group as if they were copies.
        The promise is then approximate, and needs weights and sizes of groups that do not depend on the outcome.
    event
        What "right" means: `top`, `within_top(r)` and so on.

    Returns
    -------
    Threshold

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1, 5000)
    >>> from glayers import Confidences
    >>> found = threshold(Confidences(confidence, rng.uniform(size=5000) < confidence), accuracy=0.9)
    >>> round(found.confidence, 2), round(found.coverage, 2)
    (0.82, 0.36)
    """
    target = number_between(accuracy, "accuracy", 0, 1)
    level = number_between(level, "level", 0, 1)
    rows = check_event(probabilities, labels, sample_weight, groups, event)
    confidence = _lowest_accepted(rows, target, 1 - level)
    counted = len(rows), None if rows.groups is None else len(np.unique(rows.groups))
    if confidence is None:
        return Threshold(None, target, level, 0.0, None, *counted)
    weights = rows.weights * (rows.scores >= confidence)
    covered = float(weights.sum())
    right = float(weights @ rows.hits) / covered
    return Threshold(confidence, target, level, min(1.0, covered), min(1.0, right), *counted)


def _lowest_accepted(rows: Scored, target: float, risk: float) -> float | None:
    """Return the lowest threshold that passes."""
    accepted = None
    share = 0.0
    before = None
    descending = np.sort(rows.scores)[::-1]
    first_left_out = np.round(np.arange(1, 101) / 100 * len(rows)).astype(np.int64)
    just_above = np.append(np.nextafter(descending, math.inf), 0.0)[first_left_out]  # 0 if none is left out
    starts = _starts(rows.total, target, risk)
    for percent, confidence in enumerate(just_above.tolist(), start=1):
        if percent in starts:
            share += risk / len(starts)
        if confidence > descending[0] or confidence == before:  # rows of equal confidence make no new candidate
            continue
        before = confidence
        if share > 0 and _p_value(rows, rows.scores >= confidence, target) <= share:
            accepted = confidence
        else:
            share = 0.0
    return accepted


def _starts(n_rows: float, target: float, risk: float) -> set[int]:
    """Return the percents of coverage at which the order of tests starts, on a geometric scale up to all rows.

    The first has half as many rows again as would pass without a single error.
    """
    needed = 1.5 * math.log(risk) / math.log(target)
    first = min(1.0, max(needed / n_rows, 0.02))
    return {math.ceil(100 * first ** (1 - step / _STARTS)) for step in range(_STARTS)}


def _p_value(rows: Scored, answered: np.ndarray, target: float) -> float:
    """Return the probability of so few errors if the accuracy of the answers were just below the target."""
    from scipy.special import betainc  # on first use: importing it takes longer than importing glayers

    weights = rows.weights[answered]
    right = float(weights @ rows.hits[answered]) / (float(weights.sum()) or 1.0)
    n = effective_rows(np.bincount(rows.group_numbers[answered], weights))
    errors = (1 - right) * n
    if errors >= n:
        return 1.0
    return float(betainc(n - errors, errors + 1, target))
