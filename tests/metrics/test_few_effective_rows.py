"""Few rows that have most of the weight: every fit, scorecard and test says so."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from glayers import TemperatureScaling, VectorScaling
from glayers.errors import GlayersWarning
from glayers.metrics import (
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
    with pytest.warns(GlayersWarning, match=r"200 rows count as 1\.0"):
        measure(p, y, sample_weight=HEAVY)
    measure(p, y, sample_weight=np.append(np.ones(199), 5.0))  # no warning, which would be an error here


@pytest.mark.parametrize("calibrator", [TemperatureScaling(), VectorScaling()])
def test_fits_warn_if_one_row_has_most_of_the_weight(calibrator: Any) -> None:
    p, y = sample(0, 200, 3)
    with pytest.warns(GlayersWarning, match=r"200 rows count as 1\.0"):
        calibrator.fit(np.log(p), y, HEAVY)
    assert any("200 rows count as 1.0" in note for note in calibrator.diagnostics_.notes)


def test_few_rows_of_equal_weight_are_no_surprise() -> None:
    p, y = sample(0, 6, 3)
    scorecard(p, y, sample_weight=np.full(6, 2.0))
