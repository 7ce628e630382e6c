"""Every setting of the public functions with values that are no settings: a result, or an error of the library."""

import json
import warnings
from inspect import isfunction
from pathlib import Path

import numpy as np
import pytest

import glayers
from glayers import metrics
from tests.fuzz.settings import LABELS, LOGITS, ODD, calls, outcome


@pytest.mark.slow
def test_odd_settings_give_a_result_or_an_error_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    warnings.simplefilter("ignore")
    for name, call in calls(tmp_path).items():
        for setting in call[1]:
            for odd in ODD:
                outcome(call, name, setting, odd)


def test_every_public_function_gets_odd_settings(tmp_path: Path) -> None:
    tried = {function.__name__ for function, _ in calls(tmp_path).values()}
    public = {name for module in (glayers, metrics) for name in module.__all__ if isfunction(getattr(module, name))}
    assert public - tried == {"register"}  # of metrics: it refuses all but a `Metric`


def test_what_is_ready_for_json_has_null_for_numbers_that_are_not_finite() -> None:
    fitted = glayers.TemperatureScaling().fit(LOGITS, LABELS)
    few = glayers.shift_test(fitted, LOGITS, groups=np.arange(200) % 2, level=np.float32(0.9))  # type: ignore[arg-type]
    record = few.to_dict()
    assert record["p_value"] is None
    json.dumps(record, allow_nan=False)
    gap = glayers.calibration_gap(LOGITS, LABELS, groups=np.arange(200) % 4, calibrator=fitted)
    json.dumps(gap.to_dict(), allow_nan=False)
    adapted = fitted.adapt(LOGITS[:3]).adaptation_.to_dict()
    assert adapted["p_value"] is None
    with warnings.catch_warnings(action="ignore", category=glayers.GlayersWarning):  # of five rows
        chosen = glayers.AutoCalibrator(time_budget=0).fit(LOGITS[:5], LABELS[:5]).selection_.to_dict()
    assert chosen["gain_error"] is None
    json.dumps([adapted, chosen], allow_nan=False)
