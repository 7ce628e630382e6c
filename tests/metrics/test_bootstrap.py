from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glayers import BadPredictions
from glayers.metrics import bootstrap
from glayers.metrics.bootstrap import Bootstrap, Resampling
from glayers.metrics.events import check_rows
from tests.strategies import Numbers

LABELS: Numbers = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 3], [1, 2, 14, 23]))
N = len(LABELS)


def plan(
    labels: Numbers = LABELS,
    weights: Any = None,
    groups: Any = None,
    n_resamples: int = 30,
    random_state: int | None = 0,
) -> Resampling:
    probabilities = np.full((len(labels), 4), 0.25)
    settings = Bootstrap(n_resamples, 0.95, random_state)
    return Resampling(check_rows(probabilities, labels, weights, groups), settings)


def shares(weights: Any, n_rows: int) -> Numbers:
    return check_rows(np.full((n_rows, 2), 0.5), np.zeros(n_rows, dtype=int), weights).weights


def all_columns(planned: Resampling) -> Numbers:
    batches = list(planned.blocks())
    assert len(batches) == planned.n_batches
    return np.concatenate([b.weights for b in batches], axis=1)


def drawn_counts(planned: Resampling) -> Numbers:
    """How often each row was drawn, (n, resamples), where rows have no weights."""
    columns = all_columns(planned)
    return (columns * N).round(9)[:, 1 + planned.n_left_out :]


@given(seed=st.integers(0, 1000), kind=st.sampled_from(["none", "whole", "shares"]), grouped=st.booleans())
@settings(max_examples=15, deadline=None)
def test_every_column_is_a_distribution_over_rows(seed: int, kind: str, grouped: bool) -> None:
    rng = np.random.default_rng(seed)
    weights = {"none": None, "whole": rng.integers(0, 4, N), "shares": rng.uniform(0, 2, N)}[kind]
    groups = rng.integers(0, 7, N) if grouped else None
    columns = all_columns(plan(weights=weights, groups=groups, random_state=seed))
    given_shares = shares(weights, N)
    np.testing.assert_allclose(columns.sum(axis=0), 1)
    np.testing.assert_allclose(columns[:, 0], given_shares)
    assert (columns >= 0).all()
    assert (columns[given_shares == 0] == 0).all()


def test_rows_are_drawn_as_often_as_a_multinomial_has_them() -> None:
    counts = drawn_counts(plan(n_resamples=4000))
    np.testing.assert_array_equal(counts, np.round(counts))
    assert np.abs(counts.mean(axis=1) - 1).max() < 4.5 / np.sqrt(4000)  # the deviation of a count is 1
    assert counts.var() == pytest.approx(1 - 1 / N, abs=0.02)


def test_a_seed_gives_the_same_bytes_in_every_pass_whatever_the_width_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned = plan()
    first = all_columns(planned)
    np.testing.assert_array_equal(all_columns(planned), first)
    monkeypatch.setattr(bootstrap, "_ENTRIES", 5 * N)
    narrow = plan()
    assert narrow.n_batches == 15  # 1 + 40 + 30 columns, 5 at a time
    np.testing.assert_array_equal(all_columns(narrow), first)
    assert (all_columns(plan(random_state=1)) != all_columns(plan())).any()
    assert (all_columns(plan(random_state=None)) != all_columns(plan(random_state=None))).any()


def test_groups_are_drawn_whole() -> None:
    groups = np.random.default_rng(1).permutation(np.repeat(["a", "b", "c", "d"], [1, 9, 10, 20]))
    planned = plan(groups=groups)
    columns = all_columns(planned)[:, 1 + planned.n_left_out :]
    names = np.unique(groups)
    for name in names:
        assert (np.ptp(columns[groups == name], axis=0) < 1e-9).all()
    drawn = np.array([columns[groups == name][0] for name in names])
    counts = 4 * drawn / drawn.sum(axis=0)  # four groups are drawn each time, so these are whole numbers
    np.testing.assert_allclose(counts, counts.round(), atol=1e-9)


def test_rows_that_are_groups_of_their_own_need_not_be_in_order() -> None:
    names = np.random.default_rng(2).permutation(N)
    columns = all_columns(plan(groups=names))
    expected = all_columns(plan(groups=np.arange(N)))
    np.testing.assert_array_equal(columns[np.argsort(names)], expected)


def test_other_weights_count_as_the_rows_drawn_would() -> None:
    weights = np.random.default_rng(4).uniform(0.2, 2, N)
    planned = plan(weights=weights, n_resamples=5)
    for column in all_columns(planned).T[1 + planned.n_left_out :]:
        counts = column / weights
        counts = (counts * N / counts.sum()).round().astype(int)
        expected_shares = shares(np.repeat(weights, counts), N)
        np.testing.assert_allclose(np.repeat(column / np.maximum(counts, 1), counts), expected_shares)


def test_the_jackknife_leaves_out_each_row_once() -> None:
    columns = all_columns(plan())
    left_out = columns[:, 1 : 1 + N]
    assert ((left_out == 0).sum(axis=0) == 1).all()
    assert ((left_out == 0).sum(axis=1) == 1).all()
    np.testing.assert_allclose(left_out[left_out > 0], 1 / (N - 1))


def test_many_rows_are_left_out_in_blocks_of_equal_size() -> None:
    labels = np.random.default_rng(5).integers(0, 3, 1050)
    columns = all_columns(plan(labels=labels, n_resamples=2))
    sizes = (columns[:, 1:101] == 0).sum(axis=0)
    assert sorted(set(sizes.tolist())) == [10, 11]
    assert ((columns[:, 1:101] == 0).sum(axis=1) == 1).all()


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(BadPredictions, match=r"at least 2 rows of positive weight; got 1"):
        plan(weights=np.eye(N)[0])
    with pytest.raises(BadPredictions, match=r"at least 2 groups of positive weight; got 1"):
        plan(weights=np.eye(N)[0], groups=np.arange(N))
    with pytest.raises(BadPredictions, match="at least 2 different values"):
        plan(groups=np.zeros(N))
