"""Unlucky rows for every calibrator and metric: a fit works or says why not, and predictions are probabilities."""

import contextlib
import warnings
from pathlib import Path

import numpy as np

from glayers import CALIBRATORS, GlayersError, GlayersWarning, Predictions, metrics
from glayers.arrays import Array
from glayers.calibrators.one_versus_rest import TableCalibrator
from tests.contracts.calibrators import FAST
from tests.fuzz.mutations import Random, pick

TORCH = ("auto", "g-layers", "g-layers-paper", "shared-g-layers", "order-invariant")
# In g-layers, little enough that an input takes a moment.
SETTINGS = FAST | {"auto": {"time_budget": 0.0, "n_folds": 2}}


def nasty_logits(random: Random) -> Array:
    rows, columns = int(pick([1, 2, 3, 5, 12, 40], random)), int(pick([1, 2, 3, 4, 7], random))
    z = random.normal(size=(rows, columns))
    match random.integers(14):
        case 0:
            z[:] = pick([0.0, 1.0, -3.0], random)
        case 1:
            z[:, 0] = 5.0
        case 2:
            z *= pick([1e300, 1e100, 1e30, 1e6, 1e4], random)
        case 3:
            z *= pick([1e-320, 1e-308, 1e-100, 1e-20], random)
        case 4:
            z = np.round(z)
        case 5:
            z[random.random(z.shape) < 0.3] = pick([-1e4, 1e4, -1e30, 1e300], random)
        case 6:
            z[:] = z[:1]
        case 7:
            z = z.astype(pick(["f2", "f4", ">f8", "i4"], random))
        case 8:
            z += pick([1e6, 1e15, -1e15], random)
        case 9:
            z = np.where(z > 0, 50.0, -50.0)
        case 10:
            z = np.repeat(z, 2, axis=0)[:rows]
        case 11 if columns > 1:  # one class remains possible in each row
            z[random.random(z.shape) < 0.5] = pick([-np.inf, -100.0, -1e4], random)
            z[:, int(random.integers(columns))] = 0.0
    return z


def nasty_labels(logits: Array, random: Random) -> Array:
    rows, classes = len(logits), max(2, logits.shape[1])
    wide = logits if logits.shape[1] > 1 else np.hstack([0 * logits, logits])
    possible = wide > -np.inf
    match random.integers(5):
        case 0 if possible.all():
            return np.full(rows, random.integers(classes))
        case 1:
            return wide.argmax(axis=1)
        case 2:
            return np.where(possible, wide, np.inf).argmin(axis=1)
    return np.where(possible, random.random(wide.shape), -1.0).argmax(axis=1)


def nasty_weights(rows: int, random: Random) -> Array | None:
    match random.integers(6):
        case 0:
            return random.random(rows)
        case 1:
            return np.where(np.arange(rows) == 0, 1.0, pick([0.0, 1e-300, 1e-12], random))
        case 2:
            return np.full(rows, pick([1e-300, 1e300 / rows, 5e-324 * rows, 1.0], random))
    return None


def check_fit(random: Random, folder: Path) -> str:
    """Fit one calibrator on nasty rows and score what it predicts."""
    name = pick(list(CALIBRATORS), random)
    if name in TORCH and random.random() < 0.7:  # they take far longer than the others
        name = pick([each for each in CALIBRATORS if each not in TORCH], random)
    return check_calibrator(name, random, folder)


def check_calibrator(name: str, random: Random, folder: Path) -> str:
    """Fit a calibrator on nasty rows: whatever went wrong was said, and what it predicts can be scored."""
    logits = nasty_logits(random)
    labels, weights = nasty_labels(logits, random), nasty_weights(len(logits), random)
    groups = random.integers(0, 3, len(logits)) if random.random() < 0.2 else None
    about = f"{name}, {logits.dtype} {logits.shape}, weights {weights is not None}, groups {groups is not None}"
    try:
        with warnings.catch_warnings(record=True, action="always") as issued:
            fitted = CALIBRATORS[name](**SETTINGS.get(name, {})).fit(logits, labels, weights, groups)
    except GlayersError:
        return "refused"
    facts = fitted.diagnostics_
    foreign = [str(each.message) for each in issued if each.category is not GlayersWarning]
    assert not foreign, (about, foreign)
    said = [str(each.message) for each in issued if each.category is GlayersWarning]
    assert facts.converged or said, (about, facts.reason)
    rises = facts.loss_after > facts.loss_before * (1 + 1e-12) + 1e-12
    assert said or not rises or isinstance(fitted, TableCalibrator), (about, facts)
    assert facts.converged or name not in ("platt", "beta"), (about, facts)  # they always have an optimum
    with warnings.catch_warnings(action="ignore"):
        try:
            probabilities = fitted.predict_proba(logits)
            assert np.isfinite(probabilities).all(), about
            np.testing.assert_allclose(probabilities.sum(axis=1), 1, err_msg=about)
            fitted.save(folder / "fitted")
        except GlayersError as error:
            raise AssertionError(f"{about}: fitted, but then: {error}") from error
        with contextlib.suppress(GlayersError):  # tests refuse few groups and some weights
            given = Predictions(logits, labels, weights, groups)
            card = dict(metrics.scorecard(given))
            assert not any(map(np.isnan, card.values())), (about, card)
            for test in (metrics.ks_test, metrics.ece_test):
                found = test(given, n_resamples=19)
                assert found.too_few_groups or 0 <= found.p_value <= 1, about
    return "fitted"
