"""Linear scaling families: nested, held at temperature, equal to independent fits, and never worse than temperature."""

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from glayers import Predictions
from glayers.activations import log_softmax, softmax
from glayers.arrays import Floats, Ints
from glayers.calibrators import TemperatureScaling
from glayers.calibrators.linear import DirichletCalibration, LinearScaling, MatrixScaling, VectorScaling
from glayers.errors import GlayersError, GlayersWarning
from glayers.fitting.evidence import USUAL
from glayers.metrics import brier_sum, nll

TUNED: list[Any] = [
    VectorScaling,
    MatrixScaling,
    lambda **kw: MatrixScaling(penalty="odir", **kw),
    DirichletCalibration,
]


def sample(rows: int = 600, classes: int = 4, seed: int = 0, bend: bool = True) -> tuple[Floats, Ints]:
    """Overconfident logits, and labels from a matrix map of them: no temperature makes them true."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, classes)) * 2
    z -= z.mean(axis=1, keepdims=True)  # what a constant in a row adds, no map of probabilities could see
    matrix = np.eye(classes) + (rng.normal(size=(classes, classes)) * 0.4 if bend else 0)
    truth = z @ matrix + (np.linspace(-1, 1, classes) if bend else 0)
    return 2.5 * z, (truth + rng.gumbel(size=z.shape)).argmax(axis=1)


@cache
def default_fit(make: Any) -> Any:
    """Return one family fitted on the sample, for tests that only look at it."""
    return make().fit(*sample())


@pytest.mark.parametrize("seed", range(4))
def test_nested_families_never_fit_worse(seed: int) -> None:
    z, y = sample(seed=seed, classes=3 + seed)
    families = [TemperatureScaling(), VectorScaling(0), MatrixScaling(strength=0)]
    losses = [nll(Predictions(z, y)), *(nll(Predictions(c.fit(z, y).transform(z), y)) for c in families)]
    assert (np.diff(losses) < 1e-9).all()


@pytest.mark.parametrize("make", TUNED)
def test_adding_a_constant_to_a_row_changes_nothing(make: Any) -> None:
    z, y = sample()
    constants = np.random.default_rng(1).normal(size=(len(z), 1)) * 50
    plain, shifted = default_fit(make), make().fit(z + constants, y)
    assert plain.predict_proba(z + constants) == pytest.approx(plain.predict_proba(z), abs=1e-9)
    assert shifted.predict_proba(z) == pytest.approx(plain.predict_proba(z), abs=1e-4)


@pytest.mark.parametrize("make", TUNED)
def test_logits_that_are_true_come_back_nearly_unchanged(make: Any) -> None:
    z, y = sample(rows=6000, bend=False)
    true = z / 2.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)  # temperature scaling may well be what comes back
        found = make().fit(true, y).predict_proba(true)
    assert np.abs(found - softmax(true)).mean() < 0.01


@pytest.mark.parametrize("make", [VectorScaling, MatrixScaling])
@pytest.mark.parametrize("strength", [1e12, np.inf])
def test_infinite_strength_is_temperature_scaling(make: Any, strength: float) -> None:
    z, y = sample()
    expected = TemperatureScaling().fit(z, y).predict_proba(z)
    assert make(strength=strength).fit(z, y).predict_proba(z) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("loss", ["log", "brier"])
def test_dirichlet_without_penalty_is_multinomial_regression_on_log_probabilities(loss: Any) -> None:
    z, y = sample(rows=3000)
    found = DirichletCalibration(0, loss=loss).fit(z, y).predict_proba(z)
    x = log_softmax(z / TemperatureScaling().fit(z, y).temperature_)
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=5000).fit(x, y).predict_proba(x)
    assert found == pytest.approx(peer, abs=1e-3 if loss == "log" else 0.1)
    # The Brier score has its own minimum, lower there and not far away.
    assert brier_sum(found, y) <= brier_sum(peer, y) + (1e-4 if loss == "log" else 0.0)


@pytest.mark.parametrize("make", [VectorScaling, MatrixScaling, DirichletCalibration])
def test_a_strength_is_a_factor_on_the_usual_precisions(make: Any) -> None:
    z, y = sample()
    fitted = make(strength=0.3).fit(z, y)
    assert fitted.precisions_ == {name: pytest.approx(0.3 * USUAL[name]) for name in fitted.precisions_}
    assert fitted.out_of_fold_ is None
    losses = [nll(Predictions(make(strength=s).fit(z, y).transform(z), y)) for s in (0.0, 0.1, 1.0, 10.0, np.inf)]
    assert (np.diff(losses) > 0).all(), "the stronger, the nearer to temperature scaling"


def test_odir_penalises_the_mean_square_off_the_diagonal_and_of_the_intercept() -> None:
    z, y = sample()
    n, k = z.shape
    fitted = MatrixScaling(strength=(0.02, 0.05), penalty="odir").fit(z, y)
    x = log_softmax(z / TemperatureScaling().fit(z, y).temperature_)
    floor: Any = fitted.map_.steps[-1]
    dense = floor.branches[0].steps[-1].branches[0].steps[-1]
    weight = np.eye(k) + dense.weight
    assert fitted.transform(z) == pytest.approx(log_softmax(x @ weight + dense.bias), abs=1e-9)
    slope = (softmax(x @ weight + dense.bias) - np.eye(k)[y]) / n
    expected = -2 * 0.02 * weight * (1 - np.eye(k)) / (k * (k - 1))
    assert x.T @ slope == pytest.approx(expected, abs=1e-4)
    assert slope.sum(axis=0) == pytest.approx(-2 * 0.05 * dense.bias / k, abs=1e-4)
    assert np.abs(expected).max() > 1e-3, "the test could not fail"


def test_one_strength_of_odir_is_both() -> None:
    z, y = sample()
    one, both = (MatrixScaling(strength=s, penalty="odir").fit(z, y) for s in (0.02, (0.02, 0.02)))
    assert one.predict_proba(z).tobytes() == both.predict_proba(z).tobytes()


def test_the_rows_determine_what_they_show() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(4_000, 6))
    noise = rng.gumbel(size=z.shape)
    shifted = VectorScaling().fit(z, (z + np.linspace(-1, 1, 6) + noise).argmax(axis=1))
    assert shifted.effective_["shift"] > 4.5  # of six shifts, a common one changes nothing
    assert shifted.precisions_["shift"] == pytest.approx(5 / (np.linspace(-1, 1, 6) ** 2).sum(), rel=0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)  # it may fall back to temperature scaling
        nothing = VectorScaling().fit(z, (z + noise).argmax(axis=1))
    assert nothing.precisions_["shift"] > 30 * shifted.precisions_["shift"]
    assert nothing.effective_["shift"] < shifted.effective_["shift"]


@pytest.mark.parametrize("make", TUNED[1:])
def test_a_matrix_that_made_the_labels_is_found(make: Any) -> None:
    z, y = sample(rows=8_000, seed=3)
    rng = np.random.default_rng(3)
    rng.normal(size=z.shape)
    truth = softmax(z / 2.5 @ (np.eye(4) + rng.normal(size=(4, 4)) * 0.4) + np.linspace(-1, 1, 4))
    found = make().fit(z, y).predict_proba(z)
    assert np.abs(found - truth).mean() < 0.01
    assert np.abs(TemperatureScaling().fit(z, y).predict_proba(z) - truth).mean() > 0.05


def test_one_logit_is_platt_scaling() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(500, 1)) * 3
    y = (rng.random(500) < 1 / (1 + np.exp(-(0.4 * z[:, 0] + 1)))).astype(int)
    peer = LogisticRegression(C=np.inf, tol=1e-10).fit(z, y).predict_proba(z)
    assert VectorScaling(0).fit(z, y).predict_proba(z) == pytest.approx(peer, abs=1e-4)
    for calibrator in (MatrixScaling(), MatrixScaling(penalty="odir"), DirichletCalibration(), VectorScaling()):
        found = calibrator.fit(z, y)
        assert found.predict_proba(z).shape == (500, 2)
        assert found.diagnostics_.loss_after < found.diagnostics_.loss_before


@pytest.mark.parametrize("make", TUNED)
def test_a_class_without_a_label_keeps_a_finite_small_probability(make: Any) -> None:
    z, y = sample()
    y = np.where(y == 2, 0, y)
    with pytest.warns(GlayersWarning, match="no row is labelled 2"):
        fitted = make().fit(z, y)
    p = fitted.predict_proba(z)[:, 2]
    assert np.isfinite(np.log(p)).all()
    assert p.mean() < 0.2


@pytest.mark.parametrize("make", TUNED)
def test_float32_says_the_same(make: Any) -> None:
    z, y = sample()
    single, double = make().fit(z.astype(np.float32), y), default_fit(make)
    assert single.precisions_ == pytest.approx(double.precisions_, rel=1e-3)
    assert single.predict_proba(z) == pytest.approx(double.predict_proba(z), abs=1e-4)


@pytest.mark.parametrize("make", TUNED)
def test_where_temperature_is_all_there_is_it_comes_back_or_next_to_it(make: Any) -> None:
    z, y = sample(rows=120, classes=6, bend=False, seed=5)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        fitted = make(n_folds=4).fit(z, y)
    temperature = TemperatureScaling().fit(z, y)
    if fitted.n_parameters_ == 1:
        assert any("back to temperature scaling" in str(w.message) for w in seen)
        assert fitted.predict_proba(z) == pytest.approx(temperature.predict_proba(z), abs=1e-9)
    else:
        held_out, plain = (nll(Predictions(each, y)) for each in (fitted.out_of_fold_, temperature.transform(z)))
        assert held_out < plain


@pytest.mark.parametrize("make", TUNED)
def test_a_given_strength_is_fitted_as_given(make: Any) -> None:
    z, y = sample(rows=60, classes=8, bend=False, seed=2)  # rows that would fall back, see the next test
    fitted = make(strength=1e-3).fit(z, y)
    assert fitted.n_parameters_ > 1
    assert fitted.out_of_fold_ is None
    assert fitted.diagnostics_.reason == "strength as given"


def test_noise_is_answered_with_temperature_scaling() -> None:
    z, y = sample(rows=60, classes=8, bend=False, seed=2)
    with pytest.warns(GlayersWarning, match="back to temperature scaling"):
        found = DirichletCalibration(n_folds=2).fit(z, y)
    assert found.n_parameters_ == 1
    assert "back to temperature scaling" in found.diagnostics_.reason


@pytest.mark.parametrize("seed", [0, 2])
def test_an_odir_matrix_of_few_rows_is_not_taken_for_better_than_temperature(seed: int) -> None:
    """Nearly nothing is penalised: held-out predictions near the fit to all rows would know their own labels."""
    rng = np.random.default_rng(seed)
    rows, classes = np.arange(540), 30
    z = rng.normal(size=(len(rows), classes))
    z[rows, rng.integers(classes, size=len(rows))] += 5
    y = np.where(rng.random(len(rows)) < 0.8, z.argmax(axis=1), z.argsort(axis=1)[:, -2])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")  # also of classes without a row
        found = MatrixScaling(penalty="odir").fit(z[:40], y[:40])
    assert any("falls back to temperature scaling" in str(each.message) for each in seen)
    assert found.diagnostics_.converged
    assert found.n_parameters_ == 1


@pytest.mark.parametrize("make", TUNED)
def test_out_of_fold_predictions_are_worth_what_new_rows_show(make: Any) -> None:
    z, y = sample(rows=4_000, seed=3)
    fitted = make().fit(z[:1_000], y[:1_000], groups=np.arange(1_000) // 3)
    held_out, seen, new = (
        nll(Predictions(*each))
        for each in (
            (fitted.out_of_fold_, y[:1_000]),
            (fitted.transform(z[:1_000]), y[:1_000]),
            (fitted.transform(z[1_000:]), y[1_000:]),
        )
    )
    assert seen < held_out
    assert held_out == pytest.approx(new, abs=0.05)  # two standard errors of 1,000 losses


@pytest.mark.parametrize("make", TUNED)
def test_separable_rows_stay_finite(make: Any) -> None:
    z, _ = sample(rows=60)
    y = (z @ np.random.default_rng(0).normal(size=(4, 4))).argmax(axis=1)  # a matrix tells all of them right
    for strength in (0, None):
        fitted = make(strength=strength).fit(z, y)
        assert np.isfinite(fitted.transform(3 * z)).all()
        assert fitted.diagnostics_.loss_after < fitted.diagnostics_.loss_before


@pytest.mark.parametrize(
    ("calibrator", "complaint"),
    [
        (MatrixScaling().set_params(penalty="ridge"), "penalty must be"),
        (VectorScaling(-1.0), "strength must be"),
        (DirichletCalibration().set_params(strength=(1.0, 2.0, 3.0)), "strength must be"),
    ],
)
def test_settings_that_mean_nothing_are_refused(calibrator: LinearScaling, complaint: str) -> None:
    with pytest.raises(GlayersError, match=complaint):
        calibrator.fit(*sample(rows=30))


@pytest.mark.parametrize("settings", [{"n_folds": 1}, {"n_folds": "five"}, {"random_state": -1}])
def test_folds_are_checked_also_where_a_given_strength_needs_none(settings: dict[str, Any]) -> None:
    with pytest.raises(GlayersError, match=next(iter(settings))):
        VectorScaling(strength=1.0, **settings).fit([[2.0, 0.0], [0.0, 2.0]], [0, 1])
