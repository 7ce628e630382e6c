"""Calibrators of probabilities and of one confidence per row: fitted, applied, saved, and used on the command line."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from glayers import (
    CALIBRATORS,
    BadPredictions,
    Confidences,
    GlayersWarning,
    Predictions,
    TemperatureScaling,
    VectorScaling,
    compare,
    load,
    metrics,
    read_confidences,
)
from glayers.activations import softmax
from tests.cli.running import run
from tests.contracts.calibrators import tilted
from tests.strategies import Numbers

ONE_NUMBER = ("platt", "quadratic", "beta", "isotonic", "histogram")


def answers(n: int, seed: int) -> Confidences:
    """Confidences that are too high, also where the answer is more likely wrong than right."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.05, 0.99, n)
    return Confidences(confidence, rng.random(n) < confidence**2)


def forest() -> tuple[Numbers, Numbers]:
    """Probabilities in steps of 1 %, with zeros."""
    z, labels = tilted()
    p = np.round(softmax(z), 2)
    p[np.arange(len(p)), p.argmax(axis=1)] += 1 - p.sum(axis=1)
    return p, labels


def test_probabilities_are_calibrated_as_their_logarithms(tmp_path: Path) -> None:
    z, labels = tilted()
    z = z / 3  # no probability is 0
    told = TemperatureScaling(inputs="probabilities").fit(softmax(z), labels)
    assert told.temperature_ == pytest.approx(TemperatureScaling().fit(z, labels).temperature_)
    told.save(tmp_path / "t.safetensors")
    assert np.array_equal(load(tmp_path / "t.safetensors").predict_proba(softmax(z)), told.predict_proba(softmax(z)))
    rows = Predictions(z, labels)
    assert np.allclose(told.apply(rows).probabilities(), told.predict_proba(softmax(z)))
    binary = TemperatureScaling(inputs="probabilities").fit(softmax(z[:, :2])[:, 1:], labels % 2)
    assert np.allclose(binary.predict_proba([[0.5]]), 0.5)
    with pytest.raises(BadPredictions, match=r"must sum to 1; row 0 sums to .*Divide each row.*several labels: use"):
        told.predict_proba(np.full_like(z, 0.3))


def test_zeros_are_raised_to_half_the_smallest_other_probability_and_counted() -> None:
    p, labels = forest()
    with pytest.warns(
        GlayersWarning, match=rf"{(p == 0).sum()} of {p.size} probabilities are 0 and were raised to 0.005"
    ):
        fitted = TemperatureScaling(inputs="probabilities").fit(p, labels)
    raised = np.where(p == 0, 0.005, p)
    assert fitted.temperature_ == pytest.approx(TemperatureScaling().fit(np.log(raised), labels).temperature_)
    assert fitted.predict_proba([[1.0, 0.0, 0.0, 0.0]]).min() > 0  # without labels


def test_zeros_of_rows_that_were_rounded_when_printed_are_zeros_too() -> None:
    p, labels = forest()
    p[:, 1] -= np.where(p[:, 1] > 0.5, 0.008, 0.0)  # such rows sum to 0.992, so that a raised zero grows
    with pytest.warns(GlayersWarning, match="moved by 1e-12"):
        rows = Predictions.from_probabilities(p, labels)
    with pytest.warns(GlayersWarning, match=rf"{(p == 0).sum()} of {p.size} .* 0 and were raised to 0.00[45]"):
        TemperatureScaling(inputs="probabilities").fit_predictions(rows)


def test_a_data_frame_with_its_classes_in_another_order_is_refused() -> None:
    z, labels = tilted()
    frame = pd.DataFrame(z, columns=["cat", "dog", "owl", "bee"])
    fitted = TemperatureScaling().fit(frame, labels)
    assert fitted.class_names_ == ("cat", "dog", "owl", "bee")
    assert np.array_equal(fitted.predict_proba(frame), fitted.predict_proba(z))
    with pytest.raises(BadPredictions, match="fitted on the classes cat, dog, owl, bee, but these rows have bee, cat"):
        fitted.predict_proba(frame[["bee", "cat", "dog", "owl"]])


@pytest.mark.parametrize("name", ONE_NUMBER)
def test_a_confidence_is_calibrated_by_itself(name: str, tmp_path: Path) -> None:
    given, new = answers(2000, 0), answers(2000, 1)
    fitted = CALIBRATORS[name](inputs="confidence").fit(given.confidence, given.correct)
    after = fitted.apply(new)
    assert isinstance(after, Confidences)
    assert np.array_equal(after.confidence, fitted.predict_proba(new.confidence)[:, 1])
    assert metrics.ks(after) < 0.4 * metrics.ks(new)
    assert metrics.accuracy(after) == metrics.accuracy(new)
    fitted.save(tmp_path / "c.safetensors")
    assert np.array_equal(load(tmp_path / "c.safetensors").apply(new).confidence, after.confidence)


def test_a_low_confidence_stays_low() -> None:
    given = answers(4000, 0)
    for name in ("histogram", "isotonic"):  # the top class of 0.1 and 0.9 would be the other one
        fitted = CALIBRATORS[name](inputs="confidence").fit_predictions(given)
        assert fitted.predict_proba([0.2])[0, 1] == pytest.approx(0.04, abs=0.03)


def test_kinds_of_input_are_not_mixed() -> None:
    z, labels = tilted()
    with pytest.raises(BadPredictions, match="Confidences do not fit a calibrator with inputs='logits'"):
        TemperatureScaling().fit_predictions(answers(50, 0))
    with pytest.raises(BadPredictions, match="Predictions do not fit a calibrator with inputs='confidence'"):
        TemperatureScaling(inputs="confidence").fit_predictions(Predictions(z, labels))
    with pytest.raises(BadPredictions, match="inputs must be one of 'logits', 'probabilities', 'confidence'"):
        TemperatureScaling().set_params(inputs="odds").fit(z, labels)
    masked = np.where(np.arange(4) == (labels[:, None] + 1) % 4, -np.inf, z)
    with pytest.raises(BadPredictions, match="a class is impossible in some rows"):
        TemperatureScaling(inputs="probabilities").fit_predictions(Predictions(masked, labels))


def test_confidences_are_compared_and_reported(tmp_path: Path) -> None:
    found = compare(answers(600, 0), answers(600, 1), ["platt", "isotonic"])
    assert found.recommended in ("platt", "isotonic")
    assert "KS" in str(found)
    found.to_html(tmp_path / "report.html", calibration=answers(600, 0), n_resamples=20)
    page = (tmp_path / "report.html").read_text()
    assert "one confidence each" in page
    assert 'id="classes"' not in page
    assert "overconfident" in page.lower()


def test_confidences_go_through_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, seed in (("old", 0), ("new", 1)):
        rows = answers(500, seed)
        pd.DataFrame({"confidence": rows.confidence, "correct": rows.correct.astype(int)}).to_csv(f"{name}.csv")
    assert "confidence" in run("fit", "old.csv", "-m", "isotonic", "-o", "m.safetensors").stdout
    assert run("apply", "m.safetensors", "new.csv", "-o", "after.csv").exit_code == 0
    assert metrics.ks(read_confidences("after.csv")) < 0.3 * metrics.ks(read_confidences("new.csv"))
    pd.read_csv("new.csv")[["confidence"]].assign(id=1).to_csv("alone.csv")  # new answers, not yet judged
    assert run("apply", "m.safetensors", "alone.csv", "-o", "alone.json").exit_code == 0
    assert run("compare", "old.csv", "new.csv", "--methods", "platt").exit_code == 0


def test_probabilities_without_a_name_go_through_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    p, labels = forest()
    np.save("p.npy", p)
    np.save("y.npy", labels)
    assert "look like probabilities" in run("score", "p.npy", "--labels", "y.npy").stderr
    options = ["--labels", "y.npy", "--probabilities"]
    assert run("score", "p.npy", *options).exit_code == 0
    assert "from probabilities" in run("fit", "p.npy", *options, "-m", "temperature", "-o", "m.safetensors").stdout
    assert run("apply", "m.safetensors", "p.npy", "--probabilities", "-o", "after.npz").exit_code == 0
    after = np.load("after.npz")["probabilities"]
    assert np.allclose(after, load("m.safetensors").predict_proba(p))


def test_labels_given_by_name_come_back_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 3))
    numbers = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    names = np.array(["zebra", "ant", "mole"])  # not sorted
    frame = pd.DataFrame(z, columns=names)
    for labels in (names[numbers], pd.Categorical(names[numbers]), names[numbers].astype(object)):
        fitted = TemperatureScaling().fit(frame, labels)
        p = fitted.predict_proba(frame)
        assert fitted.predict(frame).tolist() == names[p.argmax(axis=1)].tolist()
        assert fitted.classes_.tolist() == names.tolist()
        np.testing.assert_array_equal(p, TemperatureScaling().fit(frame, numbers).predict_proba(z))
    fitted.save(tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").predict(z).tolist() == fitted.predict(z).tolist()
    assert fitted.adapt(frequencies=[1, 1, 2]).predict(z)[0] in names
    by_number = TemperatureScaling().fit(frame, numbers)
    assert by_number.predict(z).tolist() == p.argmax(axis=1).tolist()
    by_number.save(tmp_path / "n.safetensors")
    assert load(tmp_path / "n.safetensors").predict(z).tolist() == p.argmax(axis=1).tolist()
    with pytest.raises(BadPredictions, match="row 7 has cat"):
        TemperatureScaling().fit(frame, np.where(np.arange(300) == 7, "cat", names[numbers]))


def test_soft_labels_go_with_weights_groups_and_masked_classes() -> None:
    z, _ = tilted()
    n, k = z.shape
    soft = 0.8 * softmax(z / 3) + 0.2 / k
    weights = np.repeat([0.0, 1.0, 3.0], [n // 3, n // 3, n - 2 * (n // 3)])
    counted = weights > 0
    whole = TemperatureScaling().fit(z, soft, weights, groups=np.arange(n) // 2)
    assert whole.temperature_ == TemperatureScaling().fit(z[counted], soft[counted], weights[counted]).temperature_
    z[:5, 1] = -np.inf
    with pytest.raises(BadPredictions, match=r"labels must be possible classes; row .* has 1, whose logit is -inf"):
        TemperatureScaling().fit(z, soft)
    soft[:5, 1] = 0.0
    soft /= soft.sum(axis=1, keepdims=True)
    assert (VectorScaling().fit(z, soft).predict_proba(z)[:5, 1] == 0).all()
    for odd, said in (
        (0.9 * soft, "each row of soft labels must sum to 1; row 0 has 0.9"),
        (soft - 0.1, "must lie be"),
    ):
        with pytest.raises(BadPredictions, match=said):
            TemperatureScaling().fit(z, odd)
    with pytest.raises(BadPredictions, match=r"A metric takes soft labels in Predictions\(logits, labels\)"):
        metrics.nll(softmax(z), soft)
