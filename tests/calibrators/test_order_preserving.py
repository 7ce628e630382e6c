"""Order-preserving calibrators: every ranking is kept, known curves are found, temperature scaling is the fallback."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glayers import Predictions
from glayers.activations import log_softmax, softmax
from glayers.calibrators import order_preserving
from glayers.calibrators.order_preserving import OrderPreserving
from glayers.calibrators.temperature import TemperatureScaling
from glayers.errors import GlayersWarning
from glayers.maps import Chain
from glayers.metrics import nll
from tests.strategies import Numbers


def bent(n: int, k: int = 4, seed: int = 0) -> tuple[Numbers, Numbers, Numbers]:
    """Logits whose low log-probabilities are three times too low, labels, and the true probabilities."""
    rng = np.random.default_rng(seed)
    truth = log_softmax(rng.normal(size=(n, k)) * 2)
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    return np.where(truth < -1.5, 3 * truth + 3, truth), labels, np.exp(truth)


@pytest.fixture(scope="module")
def chain() -> Chain:
    z, labels, _ = bent(1_500)
    return OrderPreserving(max_iterations=20).fit(z, labels).map_


@given(
    row=st.lists(
        st.floats(-1e4, 1e4)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.sampled_from([0.0, 1.0, 1 + 2**-52]),
        min_size=4,
        max_size=4,
    )
)
def test_the_order_of_any_row_is_kept_exactly(chain: Chain, row: list[float]) -> None:
    out = chain(np.array([row]))[0]
    assert np.isfinite(out).all()
    assert [a < b for a in row for b in row] == [a < b for a in out for b in out]


def test_a_bent_curve_is_straightened_better_than_by_temperature() -> None:
    z, labels, _ = bent(3_000)
    new, new_labels, _ = bent(20_000, seed=1)
    found = OrderPreserving().fit(z, labels)
    own = np.arange(len(new)), new_labels
    plain = TemperatureScaling().fit(z, labels)
    gain = log_softmax(found.transform(new))[own] - log_softmax(plain.transform(new))[own]
    assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))
    assert found.held_out_loss_ < found.held_out_loss_of_temperature_
    assert (found.predict(new) == new.argmax(axis=1)).all()
    assert found.diagnostics_.moved


def test_where_nothing_is_to_gain_temperature_scaling_comes_back() -> None:
    rng = np.random.default_rng(2)
    z = rng.normal(size=(60, 3))
    labels = rng.integers(0, 3, 60)
    labels[:40] = z[:40].argmax(axis=1)
    # With no iterations there is nothing to gain.
    with pytest.warns(GlayersWarning, match="back to temperature scaling"):
        found = OrderPreserving(max_iterations=0).fit(z, labels)
    plain = TemperatureScaling().fit(z, labels)
    np.testing.assert_allclose(found.predict_proba(z), plain.predict_proba(z), atol=1e-9)
    assert found.n_parameters_ == 1


@pytest.mark.parametrize("m", [1, 3])
def test_rows_sum_to_one_and_stay_finite_for_extreme_logits(m: int) -> None:
    rng = np.random.default_rng(0)
    z = (rng.normal(size=(300, m)) * 3).astype(np.float32)
    labels = (z.argmax(axis=1) if m > 1 else (z[:, 0] > 0)).astype(int)
    labels[::5] = 0
    z[:10] = 1e4 * np.sign(z[:10])
    found = fit_quietly(OrderPreserving(max_iterations=10), z, labels)
    assert np.isfinite(found.transform(z)).all()
    np.testing.assert_allclose(found.predict_proba(z).sum(axis=1), 1, rtol=1e-12)


def test_weights_of_zero_are_rows_left_out() -> None:
    z, labels, _ = bent(800)
    weights = np.ones(800)
    weights[500:] = 0
    wrong = labels.copy()
    wrong[500:] = 0
    one, other = (
        fit_quietly(OrderPreserving(max_iterations=15), z, labels, weights),
        fit_quietly(OrderPreserving(max_iterations=15), z, wrong, weights),
    )
    new, _, _ = bent(50, seed=3)
    # Folds are dealt by label, so they differ, and with them the number of iterations.
    assert np.abs(one.predict_proba(new) - other.predict_proba(new)).mean() < 0.03


def test_groups_stay_together_and_the_same_seed_gives_the_same_bytes() -> None:
    z, labels, _ = bent(600)
    groups = np.arange(600) // 6
    one, two = (OrderPreserving(n_folds=3).fit(z, labels, groups=groups).transform(z) for _ in range(2))
    assert one.tobytes() == two.tobytes()


def test_a_class_without_rows_keeps_a_small_positive_probability() -> None:
    z, labels, _ = bent(2_000)
    with pytest.warns(GlayersWarning, match="no row is labelled 2"):
        found = OrderPreserving(max_iterations=15).fit(z[labels != 2], labels[labels != 2])
    assert (found.predict_proba(z) > 0).all()


def test_more_rows_than_a_fit_can_bear_are_drawn_from(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels, _ = bent(4_000)
    monkeypatch.setattr(order_preserving, "_MOST_ENTRIES", 8_000)
    found = OrderPreserving().fit(z, labels)
    assert found.diagnostics_.rows == 4_000
    assert found.diagnostics_.loss_after < nll(Predictions(TemperatureScaling().fit(z, labels).transform(z), labels))


def test_the_brier_score_can_be_what_is_lowered() -> None:
    z, labels, _ = bent(2_000)

    def brier(found: OrderPreserving) -> float:
        return float(((found.predict_proba(z) - np.eye(4)[labels]) ** 2).sum(axis=1).mean())

    assert brier(OrderPreserving(loss="brier").fit(z, labels)) < float(
        ((softmax(z) - np.eye(4)[labels]) ** 2).sum(axis=1).mean()
    )


def fit_quietly(
    calibrator: OrderPreserving, z: Numbers, labels: Numbers, weights: Numbers | None = None
) -> OrderPreserving:
    """Fit where falling back to temperature scaling is as good an outcome."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)
        return calibrator.fit(z, labels, sample_weight=weights)
