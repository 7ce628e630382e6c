"""Rows with several labels: each label is calibrated, saved and scored by itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch

from glayers import (
    BadPredictions,
    BetaCalibration,
    GlayersError,
    GlayersWarning,
    IsotonicCalibration,
    MultiLabelCalibrator,
    PlattScaling,
    Predictions,
    TemperatureScaling,
    load,
    metrics,
)
from glayers.bridges.torch import to_module
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
    fitted = MultiLabelCalibrator().fit(z, labels)
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
    with pytest.raises(BadPredictions, match=r"both have shape \(rows, labels\); got \(200, 3\) and \(200,\)"):
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
    assert "calibrators of several labels" in complaint(run(*words))
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
    with pytest.raises(BadPredictions, match="labels must be 0 or 1; row 0, column 0 has 2"):
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
    assert scores["dog"]["nll"] == pytest.approx(cards["1"]["nll"])
    both = json.loads(run("score", "old.npz", "--model", "m.safetensors", "--json").stdout)
    assert both["calibrated"]["dog"]["nll"] == pytest.approx(cards["1"]["nll"])
    assert both["uncalibrated"]["dog"]["nll"] > both["calibrated"]["dog"]["nll"]
    assert "equal to NumPy" in run("export", "m.safetensors", "-o", "m.onnx").stdout
    assert "holds probabilities, but the model was fitted on logits" in complaint(
        run("apply", "m.safetensors", "p.npz", "-o", "q.npz")
    )
    frame[frame.columns[::-1]].to_csv("odd.csv", index=False)
    assert "fitted on the classes cat, dog, owl" in complaint(run("apply", "m.safetensors", "odd.csv", "-o", "q.npz"))
    one_hot = np.eye(3, dtype=int)[labels.argmax(axis=1)]
    np.savez("one_hot.npz", logits=z, labels=one_hot)
    assert "If they are one-hot" in complaint(run("fit", "one_hot.npz", "-o", "q.safetensors"))
    assert "leave the other options out" in usage_error(run("score", "out.npz", "--intervals"))
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
    assert huge["1"]["nll"] == pytest.approx(metrics.nll(Predictions(1e4 * z[:, [1]], labels[:, 1])))


def test_sigmoid_outputs_passed_as_logits_are_pointed_out() -> None:
    z, labels = several(200)
    outputs = 1 / (1 + np.exp(-z))
    with pytest.warns(GlayersWarning, match=r'inputs="probabilities"'):
        MultiLabelCalibrator().fit(outputs, labels)
    MultiLabelCalibrator(BetaCalibration(inputs="probabilities")).fit(outputs, labels)  # warnings are errors here
