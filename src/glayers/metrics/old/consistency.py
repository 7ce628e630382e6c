"""Any metric, probabilities and labels -> its test: the metric of labels drawn from the model's own probabilities.

Nothing is known of the metric but that larger is worse. `inference.py` does the same faster for KS and ECE, whose noise
is known.
"""

import math
from collections.abc import Callable
from numbers import Real

import numpy as np

from glayers.errors import BadPredictions
from glayers.metrics.old.checks import check
from glayers.metrics.old.redrawing import redrawn_labels, written_out
from glayers.metrics.old.verdicts import CalibrationTest, Draws, judge_by_draws
from glayers.metrics.old.waiting import waiting_bar
from glayers.probabilities import check_probability_rows


def consistency_test(
    metric: Callable[..., float],
    probabilities: object,
    labels: object,
    weights: object = None,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> CalibrationTest:
    """Test any metric(probabilities, labels, weights=...) that is larger for worse models, by redrawing all labels.

    Of a score such as the NLL it asks whether the loss exceeds what the model itself expects: overconfidence. Bind
    settings with `functools.partial`. Rows must not depend on each other. Consistency resampling: Broecker and Smith,
    Weather and Forecasting 2007; for classifiers Vaicenavicius et al., AISTATS 2019.

    >>> from glayers.metrics.old import classwise_ece
    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> consistency_test(classwise_ece, p, y, n_resamples=199).p_value
    0.005
    """
    if not callable(metric):
        raise BadPredictions(f"metric must be a function of probabilities and labels, such as ece; got {metric!r:.60}")
    draws = Draws(n_resamples, level, random_state)
    checked = check(probabilities, labels, weights)
    check_probability_rows(checked.probabilities)
    rows = written_out(weights, len(checked.labels))
    given = checked.probabilities if rows is None else checked.probabilities[rows]
    truth = checked.labels if rows is None else checked.labels[rows]
    weighted = {} if weights is None or rows is not None else {"weights": weights}
    value = _number(metric, metric(given, truth, **weighted))
    resamples = redrawn_labels(given, n_resamples, draws.generator())
    drawn = []
    with waiting_bar(progress, "redrawing labels", n_resamples) as advance:
        for resample in resamples:
            drawn.append(_number(metric, metric(given, resample, **weighted)))
            advance()
    return judge_by_draws(value, np.array(drawn), level)


def _number(metric: Callable[..., float], found: object) -> float:
    """Return what a metric gave, if it can be compared with what it gives for other labels."""
    number = float(found) if isinstance(found, Real) else math.nan
    if math.isnan(number):
        raise BadPredictions(f"the metric must give a number for any labels; {metric!r} gave {found!r:.60}")
    return number
