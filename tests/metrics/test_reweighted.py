from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glayers.metrics import old as metrics
from glayers.metrics.old import reweighted
from glayers.metrics.old.bootstrap import Settings
from glayers.metrics.old.resampling import Resampling
from glayers.metrics.old.reweighted import STATISTICS, Rows, evaluate
from tests.strategies import Case, Numbers, cases, make_case

FIXED_EDGES = {"ece_equal_mass", "debiased_ece", "debiased_rms_calibration_error"}


def plan(y: Numbers, w: Numbers | None, n_resamples: int = 3) -> Resampling:
    return Settings(n_resamples, 0.95, "percentile", False, 0, False).plan(y, w, None)


def columns_of(
    p: Numbers, y: Numbers, w: Numbers | None, names: Iterable[str] = STATISTICS, n_resamples: int = 3
) -> dict[str, Numbers]:
    rows = Rows.of_probabilities(p, y, w)
    return evaluate(rows, tuple(names), plan(y, w, n_resamples), lambda: None)


@given(case=cases(), kind=st.sampled_from(["none", "whole", "shares"]))
@settings(max_examples=40, deadline=None)
def test_at_the_samples_own_weights_every_statistic_is_the_scorecards(case: Case, kind: str) -> None:
    p, y, w = case
    weights = {"none": None, "whole": np.ceil(w), "shares": w}[kind]
    card = metrics.scorecard(p, y, weights)
    found = columns_of(p, y, weights)
    assert tuple(found) == STATISTICS
    for name, values in found.items():
        assert values[0] == pytest.approx(getattr(card, name), abs=1e-12), name


@pytest.mark.parametrize(("rows", "classes"), [(700, 3), (1500, 40)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_wide_and_narrow_samples_agree_too(rows: int, classes: int, dtype: type[np.floating]) -> None:
    p, y, w = make_case(rows, rows, classes)
    card = metrics.scorecard(p.astype(dtype), y, w)
    for name, values in columns_of(p.astype(dtype), y, w).items():
        assert values[0] == pytest.approx(getattr(card, name), abs=1e-12), name


@given(case=cases(), weighted=st.booleans())
@settings(max_examples=25, deadline=None)
def test_at_a_resample_every_statistic_is_the_scorecards_of_the_rows_drawn(case: Case, weighted: bool) -> None:
    p, y, w = case
    found = columns_of(p, y, w if weighted else None)
    (batch,) = plan(y, w if weighted else None).batches()
    for column, share in enumerate(batch.shares.T):
        counts = share / w if weighted else share
        rows = np.repeat(np.arange(len(y)), (counts * len(y) / counts.sum()).round().astype(int))
        card = metrics.scorecard(p[rows], y[rows], w[rows] if weighted else None)
        for name in set(STATISTICS) - FIXED_EDGES:
            assert found[name][column] == pytest.approx(getattr(card, name), abs=1e-10), name


def test_equal_mass_bins_keep_the_edges_of_the_sample() -> None:
    p, y, _ = make_case(5, 600, 4)
    found = columns_of(p, y, None, FIXED_EDGES)
    (batch,) = plan(y, None).batches()
    scores, hits = p.max(axis=1), p.argmax(axis=1) == y
    bins = np.searchsorted(np.sort(scores)[39:-1:40], scores)  # 40 of 600 rows in each of 15 bins
    assert np.bincount(bins).tolist() == [40] * 15
    for column, share in enumerate(batch.shares.T):
        total = debiased = squares = 0.0
        for b in range(15):
            weight, rows = share[bins == b].sum(), 600 * share[bins == b].sum()
            gap = abs(share[bins == b] @ (scores - hits)[bins == b]) / weight
            rate = share[bins == b] @ hits[bins == b] / weight
            noise = np.random.default_rng(b).standard_normal(200_000) * np.sqrt(rate * (1 - rate) / rows)
            total += weight * gap
            debiased += weight * (2 * gap - np.abs(gap + noise).mean())
            squares += weight * (gap**2 - rate * (1 - rate) / (rows - 1))
        assert found["ece_equal_mass"][column] == pytest.approx(total)
        assert found["debiased_ece"][column] == pytest.approx(debiased, abs=2e-4)
        assert found["debiased_rms_calibration_error"][column] == pytest.approx(np.sqrt(max(0, squares)))


def test_classes_taken_a_few_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    p, y, w = make_case(6, 90, 7)
    whole = columns_of(p, y, w)
    monkeypatch.setattr(reweighted, "_ENTRIES", 180)  # two classes of 90 rows
    advanced: list[None] = []
    pieces = evaluate(Rows.of_probabilities(p, y, w), STATISTICS, plan(y, w), lambda: advanced.append(None))
    assert len(advanced) == 4
    for name in STATISTICS:
        np.testing.assert_allclose(pieces[name], whole[name], atol=1e-14)


def test_only_what_is_asked_for_is_evaluated() -> None:
    p, y, w = make_case(7, 50, 3)
    whole = columns_of(p, y, w)
    for name in STATISTICS:
        (alone,) = columns_of(p, y, w, [name]).items()
        assert alone[0] == name
        np.testing.assert_array_equal(alone[1], whole[name])


def test_a_label_without_probability_makes_the_nll_infinite_where_it_was_drawn() -> None:
    p, y, _ = make_case(8, 40, 3)
    p[5], y[5] = [0.5, 0.5, 0.0], 2
    nll = columns_of(p, y, None, ["nll"], n_resamples=50)["nll"]
    assert nll[0] == np.inf
    assert 10 < np.isinf(nll[1:]).sum() < 45  # a row is drawn with probability 0.63
    assert not np.isnan(nll).any()


def test_logits_give_losses_that_probabilities_have_lost() -> None:
    logits = np.array([[0.0, 1e4, 3.0], [1e4, 0.0, 2.0], [0.0, 0.0, 0.0]])
    rows = Rows.of_logits(logits, [0, 0, 2], None)
    assert rows.log_losses.tolist() == pytest.approx([1e4, 0, np.log(3)])
    assert evaluate(rows, ["nll"], plan(np.array([0, 0, 2]), None), lambda: None)["nll"][0] == pytest.approx(
        metrics.nll_from_logits(logits, [0, 0, 2])
    )


def test_zeros_that_came_out_just_below_are_zeros() -> None:
    p, y, w = make_case(9, 60, 3)
    p[:20, 1], p[:20, 0] = -1e-7, 1 - p[:20, 2]
    y[:20] = 0
    card = metrics.scorecard(p, y, w)
    for name, values in columns_of(p, y, w).items():
        assert values[0] == pytest.approx(getattr(card, name), abs=1e-12), name


def test_a_smooth_error_narrower_than_a_grid_cell_is_the_metrics_too() -> None:
    p, y = np.tile([0.99967, 0.00033, 0.0], (3, 1)), np.zeros(3, dtype=np.int64)
    found = columns_of(p, y, None, ["smooth_ece"])["smooth_ece"]
    np.testing.assert_allclose(found, metrics.smooth_ece(p, y), atol=1e-12)
