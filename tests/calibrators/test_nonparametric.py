"""Non-parametric and binary classics: laws they share, truths they recover, and other implementations they match."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from glayers.activations import log_softmax, softmax
from glayers.calibrators.base import Calibrator
from glayers.calibrators.one_versus_rest import (
    BetaCalibration,
    HistogramBinning,
    IsotonicCalibration,
    PlattScaling,
    fit_logistic,
    platt_targets,
)
from glayers.errors import GlayersError, GlayersWarning
from tests.strategies import Numbers

METHODS: dict[str, Callable[[], Calibrator]] = {
    "platt": PlattScaling,
    "beta": BetaCalibration,
    "isotonic": IsotonicCalibration,
    "histogram": HistogramBinning,
}
every_method = pytest.mark.parametrize("name", list(METHODS))


def calibrated(n: int, k: int = 3, seed: int = 0) -> tuple[Numbers, Numbers]:
    """Logits and labels drawn from their softmax."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, k)) * 1.5
    return z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)


@every_method
@pytest.mark.parametrize("m", [1, 2, 4])
def test_rows_sum_to_one_and_stay_finite_for_extreme_logits(name: str, m: int) -> None:
    z, labels = calibrated(300, max(2, m))
    z = z[:, 1:] - z[:, :1] if m == 1 else z
    extreme = np.concatenate([z, 1e4 * np.sign(z[:20]), -1e4 * np.sign(z[:20])]).astype(np.float32)
    for fitted in (METHODS[name]().fit(z, labels), METHODS[name]().fit(extreme, np.resize(labels, len(extreme)))):
        p = fitted.predict_proba(extreme)
        assert p.shape == (len(extreme), max(2, m))
        assert np.isfinite(fitted.transform(extreme)).all()
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
        assert fitted.diagnostics_.converged


@every_method
def test_one_logit_is_two_logits_with_a_zero(name: str) -> None:
    z, labels = calibrated(400, 2)
    lone = z[:, 1:] - z[:, :1]
    two = np.concatenate([np.zeros_like(lone), lone], axis=1)
    np.testing.assert_allclose(
        METHODS[name]().fit(lone, labels).predict_proba(lone), METHODS[name]().fit(two, labels).predict_proba(two)
    )


@every_method
def test_a_calibrated_model_stays_nearly_unchanged(name: str) -> None:
    z, labels = calibrated(20_000)
    change = np.abs(METHODS[name]().fit(z, labels).predict_proba(z) - softmax(z))
    # A bin of a fifteenth of the rows is up to 0.1 wide in its middle, so rounding to it moves rows by some hundredths.
    assert change.mean() < 0.03
    assert change.mean() < 0.01 or name == "histogram"


@every_method
def test_the_order_of_rows_and_constants_added_to_them_change_nothing(name: str) -> None:
    z, labels = calibrated(500, 4)
    order = np.random.default_rng(1).permutation(len(z))
    plain = METHODS[name]().fit(z, labels).predict_proba(z)
    np.testing.assert_allclose(METHODS[name]().fit(z[order], labels[order]).predict_proba(z), plain, atol=1e-9)
    np.testing.assert_allclose(METHODS[name]().fit(z + 3.0, labels).predict_proba(z + 3.0), plain, atol=1e-6)


@every_method
def test_a_class_without_rows_keeps_a_small_positive_probability(name: str) -> None:
    z, labels = calibrated(600, 4)
    seen = labels != 2
    with pytest.warns(GlayersWarning, match="no row is labelled 2"):
        fitted = METHODS[name]().fit(z[seen], labels[seen])
    p = fitted.predict_proba(z)
    assert (p > 0).all()
    assert p[seen, 2].mean() < 0.01


@pytest.mark.parametrize("name", ["platt", "isotonic", "beta"])
def test_a_known_distortion_of_two_classes_is_undone(name: str) -> None:
    """The truth is sigmoid(z); the network says 2 z + 1, which beta and Platt can undo exactly and the rest closely."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=20_000) * 1.5
    labels = (rng.random(len(z)) < expit(z)).astype(int)
    says = (2 * z + 1.0)[:, None]
    found = METHODS[name]().fit(says, labels).predict_proba(says)[:, 1]
    assert np.abs(found - expit(z)).mean() < (0.01 if name in {"platt", "beta"} else 0.02)


@pytest.mark.parametrize("name", ["platt", "beta"])
def test_a_distortion_within_the_family_is_recovered(name: str) -> None:
    rng = np.random.default_rng(0)
    p = expit(rng.normal(size=20_000) * 1.5)
    a, b, c = (1.5, 1.5, 0.5) if name == "platt" else (0.5, 2.0, 0.3)
    labels = (rng.random(len(p)) < expit(a * np.log(p) - b * np.log1p(-p) + c)).astype(int)
    found = METHODS[name]().fit(logit(p)[:, None], labels).map_.parameters()
    assert found["1.power"][1] == pytest.approx(a, abs=0.1)
    assert found["1.rest_power"][1] == pytest.approx(b, abs=0.1)
    assert found["1.shift"][1] == pytest.approx(c, abs=0.1)


def test_platt_on_two_classes_is_logistic_regression_on_the_difference_of_logits() -> None:
    z, labels = calibrated(400, 2)
    score = z[:, 1] - z[:, 0]
    targets = platt_targets(labels == 1, np.ones(len(labels)))
    # A soft target is a hit and a miss, weighted.
    twice, both = np.tile(score, 2)[:, None], np.repeat([1, 0], len(score))
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    peer.fit(twice, both, sample_weight=np.concatenate([targets, 1 - targets]))
    found = PlattScaling().fit(z, labels)
    np.testing.assert_allclose(found.predict_proba(z), peer.predict_proba(score[:, None]), atol=1e-6)
    assert found.n_parameters_ == 6


def test_a_logistic_fit_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    features, weights = rng.normal(size=(300, 2)) * [1, 40] + [5, 0], rng.uniform(0.1, 2, 300)
    hits = rng.random(300) < expit(features[:, 0] - 5 + features[:, 1] / 40)
    peer = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12).fit(features, hits, sample_weight=weights)
    found = fit_logistic(features, hits.astype(float), weights)
    np.testing.assert_allclose(found.point, [*peer.coef_[0], *peer.intercept_], rtol=1e-6)


def test_beta_slopes_are_never_negative_and_end_at_the_best_edge() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2_000, 1)) * 2
    for slope in (-1.0, 0.1):
        labels = (rng.random(2_000) < expit(slope * z[:, 0] ** 2 - 0.5)).astype(int)
        fitted = BetaCalibration().fit(z, labels)
        found = fitted.map_.parameters()
        power, rest = found["1.power"][1], found["1.rest_power"][1]
        assert min(power, rest) == 0.0
        log_rest, log_p = log_softmax(np.append(0 * z, z, axis=1)).T
        targets = platt_targets(labels == 1, np.ones(len(z)))
        # Nowhere near is it better: moving a slope inside or the shift never lowers the loss.
        losses = []
        for da, db, dc in [(0, 0, 0), (1e-3, 0, 0), (0, 1e-3, 0), (1e-3, 1e-3, 0), (0, 0, 1e-3), (0, 0, -1e-3)]:
            score = (power + da) * log_p - (rest + db) * log_rest + found["1.shift"][1] + dc
            losses.append(np.mean(np.logaddexp(0, score) - targets * score))
        assert min(losses[1:]) > losses[0]


def test_isotonic_is_scikit_learns_for_each_class_made_to_sum_to_one() -> None:
    z, labels = calibrated(800, 4)
    new, _ = calibrated(300, 4, seed=9)
    p, q = softmax(z), softmax(new)
    peer = np.stack(
        [
            IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p[:, c], labels == c).predict(q[:, c])
            for c in range(4)
        ],
        axis=1,
    )
    peer = np.maximum(peer, 1e-6)
    found = IsotonicCalibration().fit(z, labels).predict_proba(new)
    np.testing.assert_allclose(found, peer / peer.sum(axis=1, keepdims=True), atol=1e-9)


def test_isotonic_is_monotone() -> None:
    z, labels = calibrated(500, 2)
    rising = np.linspace(-8, 8, 400)[:, None]
    lone = z[:, 1:] - z[:, :1]
    assert (np.diff(IsotonicCalibration().fit(lone, labels).predict_proba(rising)[:, 1]) >= -1e-15).all()


def slow_bins(scores: Numbers, hits: Numbers, n_bins: int, pseudo_hits: float) -> Numbers:
    """Sort, deal equal numbers of rows out, count: the new probability of every row."""
    order = np.argsort(scores)
    new = np.empty(len(scores))
    for part in np.array_split(order, n_bins):
        new[part] = (sum(bool(hits[i]) for i in part) + pseudo_hits) / (len(part) + 1)
    return new


def test_histogram_binning_is_what_a_slow_loop_counts() -> None:
    z, labels = calibrated(600, 3)  # 600 rows make 12 bins of 50 exactly
    p = softmax(z)
    each = np.stack([slow_bins(p[:, c], labels == c, 12, 1 / 3) for c in range(3)], axis=1)
    found = HistogramBinning(12).fit(z, labels).predict_proba(z)
    np.testing.assert_allclose(found, each / each.sum(axis=1, keepdims=True), atol=1e-12)


def test_settings_are_checked() -> None:
    z, labels = calibrated(50)
    with pytest.raises(GlayersError, match="n_bins must be at least 1"):
        HistogramBinning(0).fit(z, labels)


@every_method
def test_few_rows_and_equal_rows_are_no_obstacle(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)
        for z, labels in [(np.zeros((3, 3)), [0, 1, 2]), (np.eye(2, 3) - 1, [0, 2])]:
            p = METHODS[name]().fit(z, labels).predict_proba(z)
            np.testing.assert_allclose(p.sum(axis=1), 1)
            assert (p > 0).all()


@pytest.mark.filterwarnings("ignore:no row is labelled")
@pytest.mark.parametrize("make", [PlattScaling, BetaCalibration])
@pytest.mark.parametrize("row", [[0.0, 0.0, 0.0], [0.3, -1.7, 2.2], [1 / 3, 0.1, 5e-9]])
def test_logits_that_are_the_same_in_every_row_give_the_frequencies(make: type[Calibrator], row: list[float]) -> None:
    labels = np.arange(90) % 3 % 2  # twice as many of class 0 as of class 1, none of class 2
    found = make().fit(np.tile(row, (90, 1)), labels)
    assert found.diagnostics_.converged
    assert max(np.abs(value).max() for value in found.map_.parameters().values()) < 10
    assert found.predict_proba([row])[0] == pytest.approx([2 / 3, 1 / 3, 0], abs=0.02)


@pytest.mark.parametrize("make", [PlattScaling, BetaCalibration])
def test_masked_rows_do_not_decide_the_curve_of_a_class(make: type[Calibrator]) -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(600, 3))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    masked = np.where((np.arange(3) == (labels + 1)[:, None] % 3) & (rng.random((600, 1)) < 0.5), -1e4, 3 * z)
    found = make().fit(masked, labels)
    assert found.diagnostics_.loss_after < found.diagnostics_.loss_before
    as_impossible = make().fit(np.where(masked == -1e4, -np.inf, masked), labels)
    assert found.predict_proba(3 * z) == pytest.approx(as_impossible.predict_proba(3 * z), abs=1e-6)


@pytest.mark.parametrize("make", [PlattScaling, BetaCalibration])
def test_huge_logits_still_tell_the_classes_apart(make: type[Calibrator]) -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(200, 1))
    labels = (rng.random((200, 1)) < 1 / (1 + np.exp(-z)))[:, 0].astype(int)
    huge = make().fit(1e300 * z, labels)  # only their signs are left
    assert huge.diagnostics_.loss_after < 0.6  # without the logits, log 2 = 0.69
