import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glayers import (
    AutoCalibrator,
    BadPredictions,
    Confidences,
    GlayersError,
    GlayersWarning,
    Predictions,
    TemperatureScaling,
    comparison,
)
from glayers.calibrators import CALIBRATORS, GroupCalibrator, PlattScaling, VectorScaling
from glayers.comparison import DEFAULT_METHODS, Comparison, compare
from glayers.metrics import calibration_test, scorecard


def rows(n: int, classes: int = 3, seed: int = 0, names: tuple[str, ...] | None = None) -> Predictions:
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    labels = (z + np.linspace(1, -1, classes) + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Predictions(3 * z, labels, class_names=names)


def logits_of(found: Comparison, method: str) -> Any:
    calibrated = found.predictions(method)
    assert isinstance(calibrated, Predictions)
    return calibrated.logits


def test_every_method_is_fitted_on_the_one_and_scored_on_the_other() -> None:
    calibration, test = rows(600), rows(900, seed=1)
    found = compare(calibration, test, ["temperature", "vector"])
    assert list(found.scorecards) == ["uncalibrated", "temperature", "vector"]
    for name, make in (("temperature", TemperatureScaling), ("vector", VectorScaling)):
        alone = make().fit(calibration.logits, calibration.labels).transform(test.logits)
        assert found.scorecards[name] == scorecard(test.with_logits(alone))
        np.testing.assert_array_equal(logits_of(found, name), alone)
    assert found.scorecards["uncalibrated"] == scorecard(test)
    assert found.predictions("uncalibrated") is test


def test_the_tables_say_the_same_numbers() -> None:
    found = compare(rows(300), rows(400, seed=1), ["temperature"])
    nll = f"{found.scorecards['temperature']['nll']:.4f}"
    accuracy = f"{100 * found.scorecards['temperature']['accuracy']:.2f}"
    line = next(line for line in str(found).splitlines() if "temperature" in line)
    assert nll in line
    assert accuracy in line
    assert json.loads(json.dumps(found.to_dict()))["temperature"]["nll"] == found.scorecards["temperature"]["nll"]


def test_every_method_that_is_not_significantly_worse_than_the_best_has_a_star() -> None:
    same = {"once": TemperatureScaling(), "again": TemperatureScaling()}
    found = compare(rows(600), rows(900, seed=1), same)
    assert sorted(found.best["nll"]) == ["again", "once"]  # the same probabilities: none is better
    starred = {line[0]: line[1].endswith(" *") for line in found.cells()[1:]}
    assert starred == {"uncalibrated": False, "once": True, "again": True}
    assert set(found.best["accuracy"]) == {"uncalibrated", "once", "again"}  # temperature changes no answer
    assert "* not significantly worse than the best" in str(found)


def test_the_seed_reaches_the_calibration_tests() -> None:
    calibration, test = rows(300), rows(400, seed=1)
    found = compare(calibration, test, ["temperature"], random_state=5)
    tests = [compare(calibration, test, ["temperature"], random_state=seed).calibration_tests for seed in (5, 6)]
    five, six = (each["temperature"].to_dict() for each in tests)
    expected = calibration_test(
        found.predictions("temperature"), calibrator=found.calibrators["temperature"], before=test, random_state=5
    )
    assert five == expected.to_dict() != six


def test_differences_are_paired_and_say_so_in_a_sentence() -> None:
    found = compare(rows(600), rows(900, seed=1), ["temperature", "vector"])
    told = found.differences(["nll"], n_resamples=200)
    difference = told.between("nll", "temperature", "uncalibrated")
    assert difference.interval.value == pytest.approx(
        found.scorecards["temperature"]["nll"] - found.scorecards["uncalibrated"]["nll"]
    )
    assert difference.significant
    assert "temperature lowers NLL by " in str(told)


def test_calibrators_of_ones_own_go_by_their_names() -> None:
    found = compare(rows(300), rows(400, seed=1), {"mine": VectorScaling(strength=10.0)})
    assert found.calibrators["mine"].strength == 10.0
    assert "mine" in str(found)


def test_calibrators_are_copied_before_the_fit() -> None:
    found = compare(rows(300), rows(400, seed=1), {"a": ONE, "b": ONE})
    assert found.calibrators["a"] is not found.calibrators["b"]
    assert found.scorecards["a"] == found.scorecards["b"]
    assert "map_" not in vars(ONE)


def test_a_failed_fit_is_named_and_the_others_continue() -> None:
    groups = np.zeros(300, dtype=int)
    calibration = Predictions(rows(300).logits, rows(300).labels, groups=groups)
    found = compare(calibration, rows(400, seed=1), ["temperature", "vector"])
    assert "groups must hold at least 2" in found.failed["vector"]
    assert "vector could not be fitted: " in str(found)
    assert "temperature" in found.scorecards


def test_warnings_of_a_fit_are_printed_below_the_table() -> None:
    never = rows(300)
    kept = never.labels != 2
    calibration = Predictions(never.logits[kept], never.labels[kept])
    found = compare(calibration, rows(400, seed=1), ["temperature"])
    assert any("no row is labelled 2" in note for note in found.remarks())
    assert "temperature: no row is labelled 2" in str(found)


def test_class_names_go_along() -> None:
    names = ("cat", "dog", "owl")
    found = compare(rows(300, names=names), rows(300, seed=1, names=names), ["temperature"])
    assert found.calibrators["temperature"].class_names_ == names
    with pytest.raises(BadPredictions, match=r"same model; they have .* class names .*a.* and"):
        compare(rows(300, names=names), rows(300, seed=1, names=names[::-1]), ["temperature"])


def test_parts_that_do_not_match_and_unknown_methods_are_refused() -> None:
    with pytest.raises(BadPredictions, match="must come from the same model; they have 3 and 4 logits"):
        compare(rows(30), rows(30, classes=4))
    with pytest.raises(GlayersError, match=r"methods must be some of auto, temperature.*; got \['magic'"):
        compare(rows(30), rows(30, seed=1), ["magic"])
    with pytest.raises(GlayersError, match=r"methods must be some of auto, .*; got 'auto'"):
        compare(rows(30), rows(30, seed=1), "auto")
    with pytest.raises(GlayersError, match="must map names other than 'uncalibrated' to calibrators"):
        compare(rows(30), rows(30, seed=1), {"uncalibrated": TemperatureScaling()})


@pytest.mark.parametrize(
    ("calibration", "test", "complaint"),
    [
        (
            rows(30).logits,
            rows(30),
            r"calibration must be Predictions, from Predictions\(logits, labels\).*got array",
        ),
        (rows(30), (rows(30).logits, rows(30).labels), "test must be Predictions.*got \\(array"),
        (None, rows(30), "calibration must be Predictions.*got None"),
    ],
    ids=["array", "pair", "none"],
)
def test_anything_but_predictions_is_refused(calibration: Any, test: Any, complaint: str) -> None:
    with pytest.raises(BadPredictions, match=complaint) as caught:
        compare(calibration, test, ["temperature"])
    assert "\n" not in str(caught.value)


ONE = TemperatureScaling()


@pytest.mark.parametrize(
    ("methods", "complaint"),
    [
        ({"a": TemperatureScaling}, "a calibrator must be .*; got <class '.*atureScaling'>"),
        ({"a": "temperatur"}, "a calibrator must be .*; got 'temperatur'"),
        ({"a": None}, "a calibrator must be .*; got None"),
        ({"a": GroupCalibrator()}, "a calibrator must be .*; got GroupCalibrator"),
        ({3: TemperatureScaling()}, "must map names other than .*; got 3"),
        ([TemperatureScaling()], r"some of auto, .*; got \[TemperatureScaling.*'mine'"),
        ([TemperatureScaling], r"some of auto, .*; got \[<class .*TemperatureScaling"),
        ([["temperature"]], r"got \[\['temperature'\]\]"),
        (3, "methods must be some of .*; got 3"),
        (TemperatureScaling(), "methods must be some of .*; got TemperatureScaling"),
    ],
    ids=str,
)
def test_anything_but_methods_is_refused_before_any_fit(methods: Any, complaint: str) -> None:
    with pytest.raises(GlayersError, match=complaint):
        compare(rows(30), rows(30, seed=1), methods)
    assert "map_" not in vars(ONE)


def test_a_bad_seed_is_refused_before_any_fit() -> None:
    for seed in (-1, 2**32, "0", 1.5):
        wrong: Any = seed
        with pytest.raises(BadPredictions, match=r"random_state must be in 0\.\.4294967295, a whole number; got "):
            compare(rows(30), rows(30, seed=1), {"mine": ONE}, random_state=wrong)
    assert "map_" not in vars(ONE)


def test_predictions_of_failed_and_unknown_methods_are_an_error() -> None:
    calibration = Predictions(rows(300).logits, rows(300).labels, groups=np.zeros(300, dtype=int))
    found = compare(calibration, rows(400, seed=1), ["temperature", "vector"])
    with pytest.raises(GlayersError, match="'vector' is no fitted method: groups must hold at least 2"):
        found.predictions("vector")
    with pytest.raises(GlayersError, match=r"'magic' is no fitted method: there are uncalibrated, temperature$"):
        found.predictions("magic")


def test_calibration_rows_as_test_rows_give_a_warning() -> None:
    part = rows(200)
    with pytest.warns(GlayersWarning, match="too optimistic"):
        compare(part, part, ["temperature"])


def test_every_method_with_a_seed_gets_the_seed() -> None:
    found = compare(rows(200), rows(200, seed=1), ["temperature", "vector"], random_state=7)
    assert found.calibrators["vector"].random_state == 7


def test_the_default_methods_are_known() -> None:
    assert set(DEFAULT_METHODS) <= set(CALIBRATORS)
    assert PlattScaling in {type(make()) for make in CALIBRATORS.values()}


def test_default_methods_that_would_take_many_minutes_are_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "DEFAULT_METHODS", ("temperature", "matrix-odir"))
    monkeypatch.setattr(comparison, "_MOST_WORK", 1_000)
    calibration, test = rows(200), rows(200, seed=1)
    found = compare(calibration, test)
    assert list(found.calibrators) == ["temperature"]
    assert "left out, as with 200 rows x 3 classes it takes many minutes" in str(found)
    assert "--methods matrix-odir" in found.failed["matrix-odir"]
    assert not compare(calibration, test, ["temperature", "matrix-odir"]).failed


def test_the_progress_bar_names_the_method_being_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def record(self: Any, task: Any, **news: Any) -> None:
        said.extend(filter(None, [news.get("description")]))

    monkeypatch.setattr("rich.progress.Progress.update", record)
    compare(rows(60), rows(60, seed=1), ["temperature", "vector"], progress=True)
    assert said == ["fitting temperature (1 of 2)", "fitting vector (2 of 2)"]


def test_one_test_row_prints_without_stars() -> None:
    assert "*" not in str(compare(rows(500), rows(1, seed=1), ["temperature"]))


def test_an_infinite_loss_is_printed() -> None:
    score = [1.0, 1.0, 0.5, 0.6, 0.7, 0.8] * 5
    calibration = Confidences(score, ([True] * 5 + [False]) * 5)
    test = Confidences(score, [True, False] * 15)
    assert "inf" in str(compare(calibration, test, ["isotonic"], progress=False))


def test_a_remark_names_its_method_once() -> None:
    one, other = (Predictions(np.random.default_rng(s).normal(size=(60, 3)), np.arange(60) % 3) for s in (1, 2))
    found = compare(one, other, ["vector"])
    [remark] = [remark for remark in found.remarks() if "falls back" in remark]
    assert remark.startswith("vector: falls back")


def test_auto_is_not_recommended_where_another_method_is_significantly_better() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(2000, 3))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    old, new = Predictions(3 * z[:1000], labels[:1000]), Predictions(3 * z[1000:], labels[1000:])
    found = compare(old, new, ["temperature", "auto"])
    assert found.recommended == "auto"
    worse = AutoCalibrator().fit_predictions(old.with_logits(old.logits / 3))
    cards = found.scorecards | {"auto": scorecard(worse.apply(new))}
    changed = replace(found, calibrators=found.calibrators | {"auto": worse}, scorecards=cards)
    assert changed.recommended == "temperature"
