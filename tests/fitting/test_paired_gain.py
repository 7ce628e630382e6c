import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glayers.fitting.comparison import gain_in_words, paired_gain


def test_the_gain_is_paired_and_its_error_is_that_of_a_mean() -> None:
    before = np.array([2.0, 3.0, 4.0, 9.0, 2.0, 1.0, 5.0, 4.0, 3.0])
    after = np.array([1.0, 1.0, 4.0, 3.0, 2.0, 2.0, 4.0, 1.0, 1.0])
    gains = before - after  # 1, 2, 0, 6, 0, -1, 1, 3, 2: 14 together
    gain, error = paired_gain(before, after, None, None)
    assert gain == pytest.approx(14 / 9)
    assert error == pytest.approx(gains.std(ddof=1) / 3)


def test_rows_of_no_weight_and_rows_of_one_group_tell_nothing_more() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 40))
    few = paired_gain(before[:20], after[:20], None, None)
    assert paired_gain(before, after, np.where(np.arange(40) < 20, 3.0, 0.0), None) == pytest.approx(few)
    spoilt = np.where(np.arange(40) < 20, after, np.inf)
    assert paired_gain(before, spoilt, np.where(np.arange(40) < 20, 3.0, 0.0), None) == pytest.approx(few)
    twenty_times = np.repeat(np.arange(40), 20)
    grouped = paired_gain(before[twenty_times], after[twenty_times], None, twenty_times)
    assert grouped == pytest.approx(paired_gain(before, after, None, None))


def test_few_observations_are_no_evidence_however_many_rows_they_are() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 300))
    one_group = np.concatenate([np.zeros(298), [1, 2]])  # worth 300^2 / (298^2 + 2) = 1.01 groups
    one_weight = np.ones(300)
    one_weight[17] = 1e4  # worth 10,299^2 / (1e8 + 299) = 1.06 rows
    seven = np.arange(300) % 7
    for weights, groups in ((None, one_group), (one_weight, None), (None, seven), (None, np.zeros(300))):
        gain, error = paired_gain(before, after, weights, groups)
        assert gain == pytest.approx(np.average(before - after, weights=weights))
        assert error == np.inf
    assert np.isfinite(paired_gain(before[:296], after[:296], None, np.arange(296) % 8)[1])


@given(n=st.integers(1, 30), scale=st.floats(1e-6, 1e6))
def test_from_eight_equal_observations_on_there_is_an_error(n: int, scale: float) -> None:
    before = np.random.default_rng(n).normal(size=n)
    assert np.isfinite(paired_gain(before, np.zeros(n), np.full(n, scale), None)[1]) == (n >= 8)


@pytest.mark.parametrize("size", [1e150, 1e200, 1e300])
def test_losses_however_large_keep_their_gain_and_its_error(size: float) -> None:
    before, after = np.random.default_rng(0).uniform(size=(2, 50))
    plain, large = paired_gain(before, after, None, None), paired_gain(size * before, size * after, None, None)
    assert np.divide(large, size) == pytest.approx(plain)


@pytest.mark.parametrize("far", [np.inf, -np.inf, np.nan])
def test_losses_that_are_no_numbers_are_no_evidence(far: float) -> None:
    before = np.ones(20)
    after = np.where(np.arange(20) == 3, far, 0.0)
    assert paired_gain(before, after, None, None) == (0.0, np.inf)
    assert paired_gain(after, after, None, None) == (0.0, np.inf)


def test_a_gain_without_an_error_says_why() -> None:
    assert gain_in_words(0.25, 0.125) == "0.25 +- 0.12"
    assert "inf" not in gain_in_words(0.25, np.inf)
