"""Probabilities and labels -> tests of calibration: whether an error is larger than chance would make it.

Chance is what a calibrated model shows on the same rows (`redrawing.py`). Each test is about one event a row: given the
scores, its hits are coin flips, and errors such as KS and ECE are functions of running sums of hit - score. So labels
need not be drawn, and for KS not even coins. `consistency.py` has any other metric, `all_classes.py` and `canonical.py`
have all classes at once.
"""

from collections.abc import Iterable

from glayers.metrics.old.bins import Binning
from glayers.metrics.old.checks import check, check_scored, top
from glayers.metrics.old.events import class_event, rank_event, subset_event, within_top_event
from glayers.metrics.old.verdicts import CalibrationTest, Draws
from glayers.metrics.old.walks import Method, Walk, largest_gap_test, summed_gaps_test


def ks_test(
    probabilities: object,
    labels: object,
    weights: object = None,
    groups: object = None,
    *,
    rank: int = 1,
    method: Method = "asymptotic",
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
) -> CalibrationTest:
    """Test `ks_error` of the class at this rank of each row, 1 for the highest.

    "asymptotic" takes the p-value from Brownian motion, corrected for how coin flips differ from it, and draws nothing;
    it wants rows that do not depend on each other. "resampling" draws hits from the scores, or with groups flips the
    signs of whole groups. Arrieta-Ibarra et al., JMLR 2022.

    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> print(ks_test(p, y))  # says 70 percent, right 55
    0.15, p = 0.0013: a calibrated model shows 0.05146 on average and at most 0.09653 in 95 % of cases
    """
    event = rank_event(check(probabilities, labels, weights), rank)
    return largest_gap_test(Walk.of(event, weights, groups), method, Draws(n_resamples, level, random_state))


def ks_within_top_test(
    probabilities: object,
    labels: object,
    r: int,
    weights: object = None,
    groups: object = None,
    *,
    method: Method = "asymptotic",
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
) -> CalibrationTest:
    """Test `ks_within_top`: "the label is among the r highest". Methods as in `ks_test`, Arrieta-Ibarra et al. 2022."""
    event = within_top_event(check(probabilities, labels, weights), r)
    return largest_gap_test(Walk.of(event, weights, groups), method, Draws(n_resamples, level, random_state))


def class_ks_test(
    probabilities: object,
    labels: object,
    class_number: int,
    weights: object = None,
    groups: object = None,
    *,
    method: Method = "asymptotic",
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
) -> CalibrationTest:
    """Test `class_ks` of one class: "the label is this class". Methods as in `ks_test`; Arrieta-Ibarra et al., 2022."""
    event = class_event(check(probabilities, labels, weights), class_number)
    return largest_gap_test(Walk.of(event, weights, groups), method, Draws(n_resamples, level, random_state))


def subset_ks_test(
    probabilities: object,
    labels: object,
    subset: Iterable[int],
    weights: object = None,
    groups: object = None,
    *,
    method: Method = "asymptotic",
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
) -> CalibrationTest:
    """Test `subset_ks`: "the label is in this set of classes". Methods as in `ks_test`; Arrieta-Ibarra et al., 2022."""
    event = subset_event(check(probabilities, labels, weights), subset)
    return largest_gap_test(Walk.of(event, weights, groups), method, Draws(n_resamples, level, random_state))


def ks_test_of(
    scores: object,
    hits: object,
    weights: object = None,
    groups: object = None,
    *,
    method: Method = "asymptotic",
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
) -> CalibrationTest:
    """Test `ks_error_of`: any event, from its scores and its hits. Methods as in `ks_test`, Arrieta-Ibarra et al. 2022.

    >>> ks_test_of([0.0, 1.0, 1.0], [0, 1, 0]).p_value  # what is certain cannot fail
    0.0
    """
    event = check_scored(scores, hits, weights)
    return largest_gap_test(Walk.of(event, weights, groups), method, Draws(n_resamples, level, random_state))


def ece_test(
    probabilities: object,
    labels: object,
    weights: object = None,
    groups: object = None,
    *,
    bins: int = 15,
    binning: Binning = "equal_width",
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
) -> CalibrationTest:
    """Test `ece` of the top class, by resampling: hits are drawn from the scores, or whole groups change their sign.

    Consistency resampling: Broecker and Smith, Weather and Forecasting 2007; for classifiers Vaicenavicius et al.,
    AISTATS 2019.

    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> test = ece_test(p, y)
    >>> round(test.value, 12), test.p_value < 0.01
    (0.15, True)
    """
    event = top(check(probabilities, labels, weights))
    walk = Walk.through_bins(event, weights, groups, bins, binning)
    return summed_gaps_test(walk, Draws(n_resamples, level, random_state))
