"""One correction per group: it helps where groups differ, hardly costs where they do not, and is saved."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from glayers import (
    BadFile,
    BadPredictions,
    GlayersError,
    GroupCalibrator,
    PlattScaling,
    Predictions,
    TemperatureScaling,
    load,
)
from glayers.activations import softmax
from tests.calibrators.artifact_files import contents, write
from tests.strategies import Numbers

SITES = np.array(["Bern", "Oslo", "Rome", "Wien"])
FACTORS, BIASES = np.array([3.0, 1.0, 2.0, 1.5]), np.array([0.0, 2.0, -1.0, 0.0])


def drawn(rows: int, seed: int, differ: bool = True) -> tuple[Numbers, Numbers, Any]:
    """Calibrated logits, changed by a factor and a bias of class 0 that depend on the site, or are the same for all."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 3)) * 2
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    site = rng.integers(4, size=rows) if differ else np.zeros(rows, int)
    seen = FACTORS[site][:, None] * z
    seen[:, 0] += BIASES[site]
    return seen, labels, SITES[site if differ else rng.integers(4, size=rows)]


def method() -> GroupCalibrator:
    return GroupCalibrator(TemperatureScaling())


def log_loss(probabilities: Numbers, labels: Numbers) -> float:
    return -float(np.log(probabilities[np.arange(len(labels)), labels]).mean())


def test_groups_that_differ_are_corrected_and_unknown_ones_get_the_common_calibrator() -> None:
    fitted = method().fit(*drawn(4_000, 0))
    z, labels, site = drawn(4_000, 1)
    common = fitted.common_.predict_proba(z)
    assert log_loss(fitted.predict_proba(z, site), labels) < log_loss(common, labels) - 0.03
    of_site = np.searchsorted(SITES, site)
    true = (z - BIASES[of_site][:, None] * [1, 0, 0]) / FACTORS[of_site][:, None]
    assert log_loss(fitted.predict_proba(z, site), labels) < log_loss(softmax(true), labels) + 0.005
    assert min(fitted.shares_.values()) > 0.5
    assert (fitted.predict_proba(z, np.full(len(z), "Paris")) == common).all()
    assert (fitted.predict(z, site) == fitted.predict_proba(z, site).argmax(axis=1)).all()


def test_groups_that_do_not_differ_cost_next_to_nothing() -> None:
    costs = []
    for seed in range(4):
        fitted = method().fit(*drawn(400, seed, differ=False))
        z, labels, site = drawn(2_000, 100 + seed, differ=False)
        both = fitted.predict_proba(z, site), fitted.common_.predict_proba(z)
        costs.append(log_loss(both[0], labels) - log_loss(both[1], labels))
    assert np.mean(costs) < 0.003
    assert max(costs) < 0.01


def test_groups_of_few_rows_or_of_no_weight_get_the_common_calibrator() -> None:
    z, labels, site = drawn(3_000, 0)
    kept = (site != "Rome") | (np.cumsum(site == "Rome") <= 10)
    fitted = method().fit(z[kept], labels[kept], site[kept])
    assert "Rome" not in fitted.corrections_
    weighted = method().fit(z, labels, site, sample_weight=(site != "Wien").astype(float))
    assert "Wien" not in weighted.corrections_
    assert set(fitted.shares_) == {"Bern", "Oslo", "Wien"}


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_few_rows_of_groups_that_mean_nothing_cost_little(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def made(rows: int) -> tuple[Numbers, Numbers, Any]:
        z = 2 * rng.normal(size=(rows, 3))
        return z, (z + rng.gumbel(size=z.shape)).argmax(axis=1), SITES[rng.integers(4, size=rows)]

    z, labels, site = made(120)
    fitted, plain = method().fit(z, labels, site), TemperatureScaling().fit(z, labels)
    z, labels, site = made(5_000)
    assert log_loss(fitted.predict_proba(z, site), labels) < log_loss(plain.predict_proba(z), labels) + 0.02


def test_a_group_whose_rows_are_separable_stays_near_the_common_calibrator() -> None:
    z, labels, site = drawn(1_000, 0)
    few = np.flatnonzero(site == "Oslo")[:25]
    kept = np.concatenate([few, np.flatnonzero(site != "Oslo")])
    labels[few] = z[few].argmax(axis=1)  # a matrix of any size would make them certain
    fitted = method().fit(z[kept], labels[kept], site[kept])
    fresh = drawn(500, 1)[0]
    moved = np.log(fitted.predict_proba(fresh, np.full(500, "Oslo"))) - np.log(fitted.common_.predict_proba(fresh))
    assert np.abs(moved).max() < 3
    assert np.abs(moved).mean() > 0.01, "they say something, though"


def test_labels_may_be_names_of_the_columns(tmp_path: Path) -> None:
    z, labels, site = drawn(600, 0)
    frame = pd.DataFrame(z, columns=["a", "b", "c", "d", "e"][: z.shape[1]])
    fitted = method().fit(frame, frame.columns.to_numpy()[labels], site)
    numbered = method().fit(frame, labels, site)
    assert (fitted.predict(frame, site) == frame.columns.to_numpy()[numbered.predict(frame, site)]).all()
    fitted.save(tmp_path / "g.safetensors")
    again: Any = load(tmp_path / "g.safetensors")
    assert (again.predict(frame, site) == fitted.predict(frame, site)).all()


def test_a_file_keeps_the_groups(tmp_path: Path) -> None:
    z, labels, site = drawn(600, 0)
    number = np.searchsorted(SITES, site)  # numbers are groups too
    fitted = method().fit(z, labels, number, sample_weight=np.linspace(0.5, 2.0, 600))
    fitted.save(tmp_path / "g.safetensors")
    again: Any = load(tmp_path / "g.safetensors")
    assert (again.predict_proba(z, number.astype(float)) == fitted.predict_proba(z, number)).all()
    assert again.shares_ == fitted.shares_
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "g.safetensors").read_bytes()
    facts, arrays = contents(tmp_path / "g.safetensors")
    common, *corrections = facts["parts"]
    parts = facts["parts"]
    changes: list[dict[str, Any]] = [
        {"parts": {common: parts[common]}},
        {"parts": {name: parts[name] for name in corrections}},
        {"parts": parts | {"more": parts[common]}},
        {"parts": parts | {corrections[0]: parts[common]}},
        {"parts": parts | {corrections[0]: 3}},
        {"parts": []},
        {"parts": 3},
        {"calibrator": "TemperatureScaling"},
        {"class_names": ["a"]},
    ]
    for change in changes:
        with pytest.raises(BadFile):
            load(write(tmp_path / "bad.safetensors", {**facts, **change}, arrays))


def test_one_group_predicts_from_logits_alone_and_exports(tmp_path: Path) -> None:
    z, labels, site = drawn(400, 0)
    given = Predictions(z, labels, groups=site, class_names=("a", "b", "c"))
    fitted = method().fit_predictions(given)
    assert (fitted.predict_proba(z, site) == method().fit(z, labels, site).predict_proba(z, site)).all()
    expected = fitted.predict_proba(z, site)
    assert np.allclose(fitted.apply(given).probabilities(), expected, atol=1e-12)
    oslo = site == "Oslo"
    assert np.allclose(fitted.for_group("Oslo").predict_proba(z[oslo]), expected[oslo], atol=1e-12)
    assert (fitted.for_group("Paris").predict_proba(z) == fitted.common_.predict_proba(z)).all()
    fitted.for_group("Oslo").to_onnx(tmp_path / "oslo.onnx")  # compares its results with those of NumPy
    assert (tmp_path / "oslo.onnx").exists()


def test_wrong_input_is_refused() -> None:
    z, labels, site = drawn(60, 0)
    with pytest.raises(BadPredictions, match="groups are missing"):
        method().fit(z, labels, None)
    with pytest.raises(BadPredictions, match="groups"):
        method().fit(z, labels, site[:5])
    with pytest.raises(GlayersError, match=r"of all classes; got .*\. Groups are for .* not for conf"):
        GroupCalibrator(PlattScaling(inputs="confidence")).fit(z, labels, site)
    with pytest.raises(BadPredictions, match="groups are missing"):
        method().fit(z, labels, site).predict_proba(z, None)


def test_a_group_keeps_its_name_whatever_the_other_rows_are() -> None:
    z, labels, site = drawn(300, 0)
    number = np.where(site == site[0], 1.0, 2.5)
    fitted = method().fit(z, labels, number)
    assert set(fitted.shares_) <= {"1", "2.5"}
    ones = number == 1.0
    assert (fitted.predict_proba(z, number)[ones] == fitted.predict_proba(z[ones], number[ones])).all()
    assert (
        fitted.predict_proba(z[ones], number[ones].astype(object)) == fitted.predict_proba(z[ones], [1] * sum(ones))
    ).all()
    for bad in (np.nan, np.inf):
        with pytest.raises(BadPredictions, match="finite numbers or names"):
            method().fit(z, labels, np.where(ones, bad, 1.0))
    assert set(method().fit(z, labels, np.where(ones, 1e20, 2e20)).shares_) <= {str(10**20), str(2 * 10**20)}
