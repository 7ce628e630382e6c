"""Few rows that have most of the weight: every fit, scorecard and test says so."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from glayers import (
    AutoCalibrator,
    TemperatureScaling,
    VectorScaling,
    calibration_gap,
    metrics,
    rows_needed,
    threshold,
)
from glayers.errors import GlayersWarning
from glayers.metrics import (
    METRICS,
    StreamingScorecard,
    calibration_test,
    classwise_ks_test,
    ece_test,
    intervals,
    ks_test,
    scorecard,
)
from tests.metrics.simulation import sample

HEAVY = np.append(np.ones(199), 1e6)


@pytest.mark.parametrize(
    "measure", [scorecard, intervals, calibration_test, ks_test, ece_test, classwise_ks_test], ids=lambda f: f.__name__
)
def test_scorecards_and_tests_warn_if_one_row_has_most_of_the_weight(measure: Callable[..., Any]) -> None:
    p, y = sample(0, 200, 3)
    few = {} if measure is scorecard else {"n_resamples": 99}
    with pytest.warns(GlayersWarning, match=r"200 rows count as 1\.0"):
        measure(p, y, sample_weight=HEAVY, **few)
    measure(p, y, sample_weight=np.append(np.ones(199), 5.0), **few)  # no warning, which would be an error here


@pytest.mark.parametrize("name", sorted(METRICS.keys() & set(metrics.__all__)))
def test_every_metric_warns_alone(name: str) -> None:
    p, y = sample(0, 200, 12)
    with pytest.warns(GlayersWarning, match=r"200 rows count as 1\.0"):
        getattr(metrics, name)(p, y, sample_weight=HEAVY)


def test_thresholds_and_streams_warn_too() -> None:
    p, y = sample(0, 200, 3)
    with pytest.warns(GlayersWarning, match=r"200 rows count as 1\.0"):
        threshold(p, y, accuracy=0.6, sample_weight=HEAVY)
    stream = StreamingScorecard()
    for part in (slice(150), slice(150, 200)):  # of the last part alone, nothing is said
        stream.update(p[part], y[part], sample_weight=HEAVY[part])
    with pytest.warns(GlayersWarning, match=r"200 rows count as 1\.0"):
        stream.result()


@pytest.mark.parametrize("calibrator", [TemperatureScaling(), VectorScaling(), AutoCalibrator(time_budget=0)])
@pytest.mark.filterwarnings("ignore:auto. .*did not lower the loss")  # said too
def test_fits_warn_if_one_row_has_most_of_the_weight(calibrator: Any) -> None:
    p, y = sample(0, 200, 3)
    with pytest.warns(GlayersWarning, match=r"200 rows count as 1\.0"):
        calibrator.fit(np.log(p), y, HEAVY)
    assert any("200 rows count as 1.0" in note for note in calibrator.diagnostics_.notes)


@pytest.mark.parametrize("measure", [calibration_gap, rows_needed], ids=lambda f: f.__name__)
def test_forecasts_and_gaps_warn_if_one_row_has_most_of_the_weight(measure: Callable[..., Any]) -> None:
    p, y = sample(0, 200, 3)
    with pytest.warns(GlayersWarning, match=r"200 rows count as 1\.0"):
        measure(np.log(p), y, HEAVY, calibrator="temperature")


def test_few_rows_of_equal_weight_are_no_surprise() -> None:
    p, y = sample(0, 6, 3)
    scorecard(p, y, sample_weight=np.full(6, 2.0))
