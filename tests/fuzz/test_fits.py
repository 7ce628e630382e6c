"""Every calibrator on nasty rows: a fit that failed said so, no loss rises silently, and nothing predicts NaN."""

from pathlib import Path

import numpy as np
import pytest

from glayers import CALIBRATORS
from tests.fuzz.fits import TORCH, check_calibrator


@pytest.mark.parametrize("name", CALIBRATORS)
def test_nasty_rows_are_fitted_or_refused_and_what_went_wrong_is_said(name: str, tmp_path: Path) -> None:
    inputs = 3 if name in TORCH else 25
    outcomes = [check_calibrator(name, np.random.default_rng([7, number]), tmp_path) for number in range(inputs)]
    assert "fitted" in outcomes
