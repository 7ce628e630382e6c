"""Rows with several labels: each label is calibrated, saved and scored by itself."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch

from glayers import (
    BadFile,
    BadPredictions,
    BetaCalibration,
    Calibrator,
    GlayersError,
    GlayersWarning,
    IsotonicCalibration,
    LabelCurve,
    MultiLabelCalibrator,
    MultiLabelPredictions,
    PlattScaling,
    Predictions,
    TemperatureScaling,
    compare,
    load,
    metrics,
    read_predictions,
    rows_needed,
    shift_test,
)
from glayers.bridges.torch import CalibratedNetwork, to_module
from tests.cli.running import complaint, run, usage_error
from tests.strategies import Numbers


def several(n: int = 1500, seed: int = 0) -> tuple[Numbers, Numbers]:
    """Logits of three labels that are each wrong in another way, and labels of which a row has none, one or several."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3)) * 2
    labels = (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(np.int64)
    return z * [3.0, 1.0, 0.5] + [0.0, 2.0, 0.0], labels


def test_each_label_is_calibrated_by_itself() -> None:
    (z, labels), (z_new, labels_new) = several(), several(seed=1)
    fitted = MultiLabelCalibrator(BetaCalibration()).fit(z, labels)
    alone = BetaCalibration().fit(z[:, [1]], labels[:, 1])
    p = fitted.predict_proba(z_new)
    np.testing.assert_allclose(p[:, 1], alone.predict_proba(z_new[:, [1]])[:, 1], rtol=1e-13)
    assert np.array_equal(fitted.predict(z_new), p > 0.5)
    before, after = (metrics.label_scorecards(each, labels_new) for each in (1 / (1 + np.exp(-z_new)), p))
    assert all(after[name]["nll"] < before[name]["nll"] for name in before)
    assert after.mean["ks"] < 0.5 * before.mean["ks"]


def test_scores_of_a_label_are_those_of_its_probability() -> None:
    z, labels = several(200)
    p = 1 / (1 + np.exp(-z))
    frame = pd.DataFrame(p, columns=["cat", "dog", "owl"])
    cards = metrics.label_scorecards(frame, labels)
    rows = Predictions(z[:, [2]], labels[:, 2])
    assert cards["owl"]["nll"] == pytest.approx(metrics.nll(rows))
    assert cards["owl"]["ks"] == pytest.approx(metrics.ks(rows, event=metrics.label(1)))
    assert cards.mean["ks"] == pytest.approx(np.mean([cards[name]["ks"] for name in ("cat", "dog", "owl")]))
    assert [line.split()[0] for line in str(cards).splitlines()[1:]] == ["cat", "dog", "owl", "mean"]
    with pytest.raises(BadPredictions, match=r"labels must have the shape of the logits, \(200, 3\).* got \(200,\)"):
        metrics.label_scorecards(p, labels[:, 0])


def test_probabilities_of_labels_need_not_sum_to_one() -> None:
    z, labels = several()
    told = MultiLabelCalibrator(TemperatureScaling(inputs="probabilities")).fit(1 / (1 + np.exp(-z)), labels)
    logits = MultiLabelCalibrator(TemperatureScaling()).fit(z, labels)
    assert np.allclose(told.predict_proba(1 / (1 + np.exp(-z))), logits.predict_proba(z), atol=1e-6)


def test_all_labels_are_saved_in_one_file(tmp_path: Path) -> None:
    z, labels = several()
    frame = pd.DataFrame(z, columns=["cat", "dog", "owl"])
    fitted = MultiLabelCalibrator(PlattScaling()).fit(frame, labels)
    fitted.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert isinstance(again, MultiLabelCalibrator)
    assert np.array_equal(again.predict_proba(z), fitted.predict_proba(z))
    assert again.class_names_ == ("cat", "dog", "owl")
    assert [each.diagnostics_.rows for each in again.calibrators_] == [1500] * 3
    again.save(tmp_path / "n.safetensors")
    assert (tmp_path / "n.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()
    np.savez(tmp_path / "z.npz", logits=z)
    words = ["score", tmp_path / "z.npz", "--model", tmp_path / "m.safetensors"]
    assert "no significant shift" in run(*words).stdout
    assert "was fitted by group or on several labels" in complaint(
        run("card", tmp_path / "m.safetensors", tmp_path / "z.npz")
    )
    assert "Platt scaling of each label" in run("info", tmp_path / "m.safetensors").stdout
    data = bytearray((tmp_path / "m.safetensors").read_bytes())
    data[-3] ^= 1
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(GlayersError, match="do not match their checksum"):
        load(tmp_path / "m.safetensors")


def test_errors_name_the_way_out() -> None:
    z, labels = several()
    with pytest.raises(BadPredictions, match="If rows may have several labels, use MultiLabelCalibrator"):
        BetaCalibration().fit(z, labels)
    with pytest.raises(BadPredictions, match=r"labels must have the shape of the logits, \(1500, 3\)"):
        MultiLabelCalibrator().fit(z, labels[:, 0])
    with pytest.raises(
        BadPredictions, match="labels must be 0, 1, or NaN where they are missing; row 0, column 0 has 2"
    ):
        MultiLabelCalibrator().fit(z, labels + 2)
    with pytest.raises(GlayersError, match="calibrator must be a calibrator of logits or probabilities"):
        MultiLabelCalibrator("beta").fit(z, labels)
    fitted = MultiLabelCalibrator(TemperatureScaling()).fit(pd.DataFrame(z, columns=["a", "b", "c"]), labels)
    with pytest.raises(BadPredictions, match=r"fitted on the classes a, b, c, but these rows have b, a, c"):
        fitted.predict_proba(pd.DataFrame(z, columns=["b", "a", "c"]))
    with pytest.raises(BadPredictions, match="fitted on 3 logits per row; got 2"):
        fitted.predict_proba(z[:, :2])
    never = np.where(np.arange(3) == 1, 0, labels)
    with pytest.warns(GlayersWarning, match=r"the first is about label 1: no row is labelled 1"):
        MultiLabelCalibrator().fit(z, never)


def test_a_loaded_calibrator_of_labels_is_the_one_that_was_saved(tmp_path: Path) -> None:
    z, labels = several()
    fitted = MultiLabelCalibrator().fit(pd.DataFrame(z, columns=["cat", "dog", "owl"]), labels)
    fitted.save(tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    assert np.allclose(1 / (1 + np.exp(-loaded.transform(z))), fitted.predict_proba(z))
    assert loaded.predict_proba(z[:0]).shape == (0, 3)
    assert loaded.get_params()["calibrator__inputs"] == "logits"
    with pytest.raises(BadPredictions, match=r"fitted on the classes cat, dog, owl, but these rows have dog, cat, owl"):
        loaded.predict_proba(pd.DataFrame(z, columns=["dog", "cat", "owl"]))


def test_one_label_and_torch_arrays_work_too() -> None:
    z, labels = several()
    one = MultiLabelCalibrator(PlattScaling()).fit(z[:, :1], labels[:, :1])
    assert one.predict_proba(z[:, :1]).shape == (1500, 1)
    fitted = MultiLabelCalibrator(PlattScaling()).fit(z, labels)
    given = torch.as_tensor(z)
    assert np.allclose(fitted.predict_proba(given).numpy(), fitted.predict_proba(z), rtol=1e-12)
    assert np.allclose(to_module(fitted).predict_proba(given).numpy(), fitted.predict_proba(z), rtol=1e-12)
    assert np.allclose(to_module(one).predict_proba(given[:, :1]).numpy(), one.predict_proba(z[:, :1]), rtol=1e-12)


@pytest.mark.parametrize("inputs", ["logits", "probabilities"])
def test_all_labels_are_exported_to_one_onnx_file(inputs: str, tmp_path: Path) -> None:
    z, labels = several()
    given = z if inputs == "logits" else 1 / (1 + np.exp(-z))
    fitted = MultiLabelCalibrator(IsotonicCalibration(inputs=inputs)).fit(given, labels)  # type: ignore[arg-type]
    given = given.astype(np.float32)
    fitted.class_names_ = ("cat", "dog", "owl")
    fitted.to_onnx(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    p, logits = session.run(["probabilities", "logits"], {f"uncalibrated_{inputs}": given})
    assert np.abs(p - fitted.predict_proba(given)).max() < 1e-6
    assert np.allclose(logits, fitted.transform(given), atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["class_names"] == '["cat", "dog", "owl"]'


def test_the_command_line_fits_applies_scores_and_exports_several_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    z, labels = several(600)
    names = np.array(["cat", "dog", "owl"])
    np.savez("old.npz", logits=z, labels=labels, class_names=names)
    np.savez("p.npz", probabilities=1 / (1 + np.exp(-z)))
    frame = pd.DataFrame(z, columns=[f"logit_{name}" for name in names])
    frame.to_csv("new.csv", index=False)
    done = run("fit", "old.npz", "-m", "platt", "-o", "m.safetensors")
    assert "Platt scaling of each label, fitted on 600 rows of 3 labels from old.npz" in done.stdout
    assert run("apply", "m.safetensors", "new.csv", "-o", "out.csv").exit_code == 0
    expected = MultiLabelCalibrator(PlattScaling()).fit(z, labels).predict_proba(z)
    out = pd.read_csv("out.csv")
    assert list(out) == [f"probability_{name}" for name in names]
    np.testing.assert_allclose(out, expected, rtol=1e-13)
    assert run("apply", "m.safetensors", "old.npz", "-o", "out.npz").exit_code == 0
    scores = json.loads(run("score", "out.npz", "--json").stdout)
    cards = metrics.label_scorecards(expected, labels)
    assert scores["all"]["labels"]["dog"]["nll"] == pytest.approx(cards["1"]["nll"])
    both = json.loads(run("score", "old.npz", "--model", "m.safetensors", "--json").stdout)
    assert both["calibrated"]["labels"]["dog"]["nll"] == pytest.approx(cards["1"]["nll"])
    assert both["uncalibrated"]["labels"]["dog"]["nll"] > both["calibrated"]["labels"]["dog"]["nll"]
    assert "equal to NumPy" in run("export", "m.safetensors", "-o", "m.onnx").stdout
    assert "holds probabilities, but the model was fitted on logits" in complaint(
        run("apply", "m.safetensors", "p.npz", "-o", "q.npz")
    )
    frame[frame.columns[::-1]].to_csv("odd.csv", index=False)
    assert "fitted on the classes cat, dog, owl" in complaint(run("apply", "m.safetensors", "odd.csv", "-o", "q.npz"))
    one_hot = np.eye(3, dtype=int)[labels.argmax(axis=1)]
    np.savez("one_hot.npz", logits=z, labels=one_hot)
    assert "If they are one-hot" in complaint(run("fit", "one_hot.npz", "-o", "q.safetensors"))
    assert "without --by-group" in usage_error(run("fit", "old.npz", "--by-group", "-o", "q.safetensors"))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"groups": np.arange(7)}, "different numbers of rows"),
        ({"counts": np.ones(600, int)}, "have no counts"),
        ({"class_names": np.array(["cat", "cat", "owl"])}, "class_names must be 3 different names"),
    ]
    for odd, reason in refused:
        np.savez("odd.npz", logits=z, labels=labels, **odd)
        assert reason in complaint(run("fit", "odd.npz", "-m", "platt", "-o", "q.safetensors"))
    np.savez("huge.npz", logits=1e4 * z, labels=labels)
    huge = json.loads(run("score", "huge.npz", "--json").stdout)
    assert huge["all"]["labels"]["1"]["nll"] == pytest.approx(metrics.nll(Predictions(1e4 * z[:, [1]], labels[:, 1])))


def test_sigmoid_outputs_passed_as_logits_are_pointed_out() -> None:
    z, labels = several(200)
    outputs = 1 / (1 + np.exp(-z))
    with pytest.warns(GlayersWarning, match=r'inputs="probabilities"'):
        MultiLabelCalibrator().fit(outputs, labels)
    MultiLabelCalibrator(BetaCalibration(inputs="probabilities")).fit(outputs, labels)  # warnings are errors here


def rare(n: int, n_labels: int, seed: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return distorted logits, labels and true probabilities; labels are present in 0.1 to 30 % of rows."""
    rng = np.random.default_rng(seed)
    frequency = np.exp(np.linspace(np.log(0.001), np.log(0.3), n_labels))
    z = np.log(frequency / (1 - frequency)) + rng.normal(size=(n, n_labels)) * 1.5
    p = 1 / (1 + np.exp(-z))
    slopes, levels = np.exp(rng.normal(0.5, 0.2, n_labels)), rng.normal(0.3, 0.4, n_labels)
    return slopes * z + levels, (rng.random(z.shape) < p).astype(float), p


def expected_nll(fitted: MultiLabelCalibrator, z: Numbers, p: Numbers) -> float:
    """The mean NLL per label over draws of the labels."""
    calibrated = fitted.transform(z)
    return float((np.logaddexp(0, calibrated) - p * calibrated).mean())


def test_rare_labels_borrow_strength_from_the_others() -> None:
    gains: dict[type[Calibrator], list[float]] = {TemperatureScaling: [], PlattScaling: [], IsotonicCalibration: []}
    for seed in range(3):
        z, labels, p = rare(5000, 30, seed)
        with warnings.catch_warnings(action="ignore", category=GlayersWarning):  # some labels have no positive row
            own = MultiLabelCalibrator().fit(z[:1000], labels[:1000])
            fits = {kind: MultiLabelCalibrator(kind()).fit(z[:1000], labels[:1000]) for kind in gains}
        for kind, alone in fits.items():
            gains[kind].append(expected_nll(alone, z[1000:], p[1000:]) - expected_nll(own, z[1000:], p[1000:]))
    assert min(map(min, gains.values())) > 0


def test_labels_that_are_alike_share_one_curve_and_others_do_not() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2000, 20)) * 2
    labels = (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(float)
    alike = MultiLabelCalibrator().fit(2 * z + 1, labels)
    shifts = np.linspace(-3, 3, 20)
    apart = MultiLabelCalibrator().fit(2 * z + shifts, labels)
    assert alike.transform(np.ones((1, 20))).std() < 0.1
    np.testing.assert_allclose(apart.transform(shifts[None])[0], 0.0, atol=0.35)  # where p is 1/2


def test_a_missing_label_is_left_out_of_its_fit_scores_and_tests() -> None:
    z, labels = several(900)
    known = labels.astype(float)
    known[:300, 1] = np.nan
    fitted = MultiLabelCalibrator(PlattScaling()).fit(z, known)
    alone = PlattScaling().fit(z[300:, [1]], labels[300:, 1])
    np.testing.assert_allclose(fitted.predict_proba(z)[:, 1], alone.predict_proba(z[:, [1]])[:, 1], rtol=1e-13)
    rows = MultiLabelPredictions(z, known, label_names=["cat", "dog", "owl"])
    dog = Predictions(z[300:, [1]], labels[300:, 1])
    assert len(rows) == 2400
    assert metrics.label_scorecards(rows)["dog"]["nll"] == pytest.approx(metrics.nll(dog))
    test = metrics.label_tests(rows)["dog"]
    assert test.rows == 600
    assert test.tests["ks"].value == pytest.approx(metrics.ks(dog, event=metrics.label(1)))
    assert metrics.nll(rows) == pytest.approx(np.mean(np.logaddexp(0, z) - labels * z, where=~np.isnan(known)))


def test_tests_of_labels_hold_for_all_labels_together() -> None:
    rejected = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(200, 6))
        rows = MultiLabelPredictions(z, (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(int))
        rejected += any(test.rejected for test in metrics.label_tests(rows, random_state=seed).values())
    assert rejected <= 4  # 5 % of 20 is 1, and 3 were found; without Holm's correction 6


def test_labels_without_an_example_of_each_kind_get_a_right_answer_or_a_clear_error() -> None:
    z, labels = several(900)
    known = labels.astype(float)
    for constant in (0.0, 1.0):
        known[:, 1] = constant
        with pytest.warns(GlayersWarning, match=rf"label 1: no row is labelled {int(1 - constant)}"):
            fitted = MultiLabelCalibrator().fit(z, known)
        p = fitted.predict_proba(z)
        assert (np.abs(p[:, 1] - constant) < 0.1).all()
        one_row = Predictions(z[:, [1]], known[:, 1])
        assert metrics.nll(fitted.apply(MultiLabelPredictions(z, known)).by_label()["1"]) < metrics.nll(one_row)
        assert np.isfinite(metrics.label_scorecards(p, known).mean["auroc"])  # of the two labels that have one
    known[:, 1] = np.nan
    with pytest.raises(BadPredictions, match="labels 1 are missing in every row; leave out their columns"):
        MultiLabelCalibrator().fit(z, known)
    assert list(metrics.label_scorecards(p, known)) == ["0", "2"]
    with pytest.raises(BadPredictions, match="every label is missing"):
        MultiLabelPredictions(z, np.full(z.shape, np.nan))
    known[:, 1] = 0.0
    known[17, 1] = 1.0
    shifted = z.copy()
    shifted[:, 1] -= 4
    fitted = MultiLabelCalibrator().fit(shifted, known)  # warnings are errors here
    assert 0.0 < fitted.predict_proba(shifted)[:, 1].mean() < 0.01


def test_a_label_that_a_row_cannot_have_keeps_probability_zero() -> None:
    z, labels = several(900)
    z[:100, 0] = -np.inf
    labels[:100, 0] = 0
    fitted = MultiLabelCalibrator().fit(z, labels)
    rest = MultiLabelCalibrator().fit(z, np.where(np.isneginf(z), np.nan, labels))
    assert (fitted.predict_proba(z)[:100, 0] == 0).all()
    np.testing.assert_allclose(fitted.predict_proba(z)[:, 1:], rest.predict_proba(z)[:, 1:], atol=1e-3)
    labels[5, 0] = 1
    with pytest.raises(BadPredictions, match="labels must be possible classes"):
        MultiLabelCalibrator().fit(z, labels)
    z[:, 0] = -np.inf
    labels[:, 0] = 0
    with pytest.warns(GlayersWarning, match="no row is labelled 1"):
        never = MultiLabelCalibrator().fit(z, labels)
    assert (never.predict_proba(z)[:, 0] == 0).all()


def test_weights_of_two_equal_repeated_rows_and_copies_in_a_group_count_as_one_row() -> None:
    z, labels, _ = rare(400, 5, 0)
    with warnings.catch_warnings(action="ignore", category=GlayersWarning):
        once = MultiLabelCalibrator().fit(z, labels)
        copied = MultiLabelCalibrator().fit(
            np.repeat(z, 6, 0), np.repeat(labels, 6, 0), groups=np.repeat(range(400), 6)
        )
        weighted = MultiLabelCalibrator().fit(z, labels, sample_weight=np.full(400, 3.0))
    np.testing.assert_allclose(copied.transform(z), once.transform(z), atol=0.15)
    np.testing.assert_allclose(weighted.transform(z), once.transform(z), atol=1e-9)


def test_a_curve_of_a_label_never_decreases() -> None:
    rng = np.random.default_rng(0)
    z = np.linspace(-5, 5, 500)[:, None]
    for labels in (z[:, 0] < 0, np.abs(z[:, 0]) > 3, rng.random(500) < 0.5):
        p = LabelCurve().fit(z, labels.astype(int)).predict_proba(z)[:, 1]
        assert (np.diff(p) >= -1e-12).all()
    with pytest.raises(GlayersError, match="about two classes, absent and present; got 3"):
        LabelCurve().fit(rng.normal(size=(10, 3)), np.arange(10) % 3)


def test_compare_report_and_shift_take_several_labels(tmp_path: Path) -> None:
    (z, labels), (z_new, labels_new) = several(600), several(600, seed=1)
    names = ["cat", "dog", "owl"]
    old, new = (MultiLabelPredictions(*part, label_names=names) for part in ((z, labels), (z_new, labels_new)))
    found = compare(old, new)
    assert list(found.scorecards) == ["uncalibrated", "temperature", "platt", "beta", "isotonic", "auto"]
    assert found.recommended == "auto"
    cards = metrics.label_scorecards(MultiLabelCalibrator(PlattScaling()).fit(z, labels).apply(new))
    assert found.scorecards["platt"]["nll"] == pytest.approx(cards.mean["nll"])
    found.to_html(tmp_path / "r.html", calibration=old, n_resamples=20)
    assert "present" in (tmp_path / "r.html").read_text()
    fitted = found.calibrators["auto"]
    assert not shift_test(fitted, new).shifted
    p_values = shift_test(fitted, np.add(z_new, [0, 3, 0])).p_values
    assert min(p_values, key=p_values.__getitem__).startswith("dog: ")
    assert not shift_test(fitted, z_new, labels_new).shifted
    other = MultiLabelPredictions(z_new, labels_new, label_names=["cat", "owl", "dog"])
    with pytest.raises(BadPredictions, match="must have the same labels; they have cat, dog, owl, and cat, owl, dog"):
        compare(old, other)
    with pytest.raises(BadPredictions, match="fitted on the classes cat, dog, owl, but these rows have cat, owl, dog"):
        fitted.apply(other)
    with pytest.raises(BadPredictions, match=r"needs MultiLabelPredictions\(logits, labels\); got Predictions"):
        fitted.apply(Predictions(z_new, labels_new[:, 0]))
    with pytest.raises(BadPredictions, match="fitted on 3 labels; got 2"):
        fitted.apply(MultiLabelPredictions(z_new[:, :2], labels_new[:, :2]))


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".npz", ".json"])
def test_missing_labels_are_read_from_every_format(ending: str, tmp_path: Path) -> None:
    z, labels = several(300)
    known = labels.astype(float)
    known[:100, 2] = np.nan
    names = ["cat", "dog", "owl"]
    frame = pd.DataFrame(z, columns=[f"logit_{name}" for name in names])
    for name, column in zip(names, known.T, strict=True):
        frame[f"label_{name}"] = pd.Series(column).astype("Int64")
    file = tmp_path / f"rows{ending}"
    if ending == ".parquet":
        frame.to_parquet(file)
    elif ending == ".npz":
        np.savez(file, logits=z, labels=known, class_names=names)
    elif ending == ".json":
        matrix = [[None if np.isnan(cell) else cell for cell in row] for row in known.tolist()]
        file.write_text(json.dumps({"logits": z.tolist(), "labels": matrix, "class_names": names}))
    else:
        frame.to_csv(file, index=False, sep="\t" if ending == ".tsv" else ",")
    rows = read_predictions(file)
    assert isinstance(rows, MultiLabelPredictions)
    assert rows.names == ("cat", "dog", "owl")
    assert rows.by_label()["owl"].labels.tolist() == labels[100:, 2].tolist()
    assert np.array_equal(rows.by_label()["owl"].logits, z[100:, [2]])


def test_cells_of_labels_that_are_no_presence_are_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("logit_a,logit_b,label_a,label_b\n1.5,2,yes,0\n")
    with pytest.raises(BadFile, match=r"line 2, column 'label_a' has 'yes'"):
        read_predictions(tmp_path / "rows.csv")
    # Such a column may also be another one.
    (tmp_path / "rows.csv").write_text("logit_a,logit_b,label,label_a\n1.5,2,1,who\n")
    assert read_predictions(tmp_path / "rows.csv").labels.tolist() == [1]


def test_the_program_refuses_a_model_of_the_other_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    z, labels = several(300)
    np.savez("several.npz", logits=z, labels=labels)
    np.savez("classes.npz", logits=z, labels=labels.argmax(axis=1))
    TemperatureScaling().fit(z, labels.argmax(axis=1)).save("classes.safetensors")
    MultiLabelCalibrator().fit(z, labels).save("several.safetensors")
    refused = run("score", "several.npz", "--model", "classes.safetensors")
    assert "rows with several labels need MultiLabelCalibrator" in complaint(refused)
    refused = run("score", "classes.npz", "--model", "several.safetensors")
    assert "fitted on several labels: give a matrix" in complaint(refused)
    failed = run("score", "several.npz", "--fail-if-miscalibrated")
    assert failed.exit_code == 3
    assert "labels not calibrated" in failed.stdout


def test_several_labels_are_never_fitted_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    z, labels = several(300)
    rows = MultiLabelPredictions(z, labels)
    for fit in (
        TemperatureScaling().fit_predictions,
        rows_needed,
        TemperatureScaling().fit(z[:, :1], labels[:, 0]).apply,
    ):
        with pytest.raises(
            GlayersError, match=r"several labels need MultiLabelCalibrator\(method\); for one label, pass"
        ):
            fit(rows)
    for name in ("a", "b"):  # the rows of two files would share the numbers of groups
        np.savez(f"{name}.npz", logits=z, labels=labels)
    assert "rows with several labels are read at once" in complaint(run("score", "a.npz", "b.npz"))


def test_one_sure_and_wrong_row_does_not_spoil_the_other_labels() -> None:
    z, labels = several(600)
    before = MultiLabelCalibrator().fit(z, labels).predict_proba(z)
    z[0, 0], labels[0, 0] = 1e4, 0
    after = MultiLabelCalibrator().fit(z, labels).predict_proba(z)
    np.testing.assert_allclose(after[:, 1:], before[:, 1:], atol=0.02)  # 0.5 with one temperature of all rows


def test_missing_labels_of_data_frames_and_rows_of_weight_zero_are_left_out() -> None:
    z, labels = several(300)
    known = labels.astype(float)
    known[:150, 1] = np.nan
    expected = MultiLabelCalibrator().fit(z, known).predict_proba(z)
    with_none = known.astype(object)
    with_none[np.isnan(known)] = None
    for same in (pd.DataFrame(known).astype("Int64"), with_none):
        assert np.array_equal(MultiLabelCalibrator().fit(z, same).predict_proba(z), expected)
    weights = np.repeat([1.0, 0.0], 150)  # label 1 has no row left
    with pytest.raises(BadPredictions, match="labels 1 are missing in every row"):
        MultiLabelCalibrator().fit(z, known, sample_weight=weights)
    half = MultiLabelCalibrator().fit(z, labels, sample_weight=weights)
    assert np.array_equal(half.predict_proba(z), MultiLabelCalibrator().fit(z[:150], labels[:150]).predict_proba(z))
    with pytest.raises(BadPredictions, match="every label is missing"):
        MultiLabelPredictions(z[:, [1]], known[:, [1]], weights)


def test_abstention_of_a_label_is_about_the_decision() -> None:
    z, labels = several(300)
    cards = metrics.label_scorecards(1 / (1 + np.exp(-z)), labels)
    for number in range(3):
        whole = metrics.scorecard(Predictions(z[:, [number]], labels[:, number]))
        for name in ("accuracy", "confidence", "aurc", "excess_aurc", "accuracy_at_coverage", "coverage_at_accuracy"):
            assert cards[str(number)][name] == pytest.approx(whole[name]), name


def test_a_label_known_in_one_group_has_no_p_value() -> None:
    z, labels = several(60)
    known = labels.astype(float)
    groups = np.arange(60) // 3
    known[groups > 0, 1] = np.nan
    tests = metrics.label_tests(MultiLabelPredictions(z, known, groups=groups))
    assert np.isnan(tests["1"].p_value)
    assert tests["1"].groups == 1
    assert tests["1"].verdict == "too few groups"
    assert 0 < tests["0"].p_value <= 1
    assert 0 < tests["2"].p_value <= 1


def test_a_prior_of_another_kind_is_refused() -> None:
    with pytest.raises(GlayersError, match="prior must be None, or what MultiLabelCalibrator learns; got 3"):
        LabelCurve(prior=3).fit([[1.0], [-1.0]], [1, 0])


def test_one_label_that_is_off_decides_although_all_together_look_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4_000, 12)) * 2
    labels = (rng.random(z.shape) < 1 / (1 + np.exp(-z - np.eye(12)[3] * 0.5))).astype(np.int64)
    np.savez("several.npz", logits=z, labels=labels)
    failed = run("score", "several.npz", "--fail-if-miscalibrated", "--json")
    assert failed.exit_code == 3
    found = json.loads(failed.stdout)
    assert found["all"]["calibration_test"]["verdict"] == "calibrated"
    assert found["verdict"] == "not calibrated"
    assert "some labels are not calibrated" in found["failed"][0]


def test_labels_in_another_order_than_their_scores_are_refused() -> None:
    z, labels = several()
    names = ["cat", "dog", "owl"]
    scores, truth = pd.DataFrame(z, columns=names), pd.DataFrame(labels, columns=names)
    assert MultiLabelPredictions(scores, truth).names == ("cat", "dog", "owl")
    with pytest.raises(BadPredictions, match=r"the columns of the labels, owl, dog, cat, must have the names"):
        MultiLabelPredictions(scores, truth[names[::-1]])


def test_a_calibrator_of_probabilities_is_not_put_behind_a_network() -> None:
    z, labels = several()
    fitted = MultiLabelCalibrator(PlattScaling(inputs="probabilities")).fit(1 / (1 + np.exp(-z)), labels)
    with pytest.raises(BadPredictions, match="fitted on probabilities, and a network gives logits"):
        CalibratedNetwork(torch.nn.Identity(), fitted)
