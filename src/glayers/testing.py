"""A calibrator -> whether it keeps the laws of all calibrators; our own tests of every method call the same code."""

import copy
import tempfile
import warnings
from collections.abc import Collection
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Bools, Floats, Ints
from glayers.calibrators import Calibrator, calibrator_of, load
from glayers.calibrators.estimator import clone
from glayers.errors import GlayersError, GlayersWarning, listed
from glayers.predictions import Predictions

__all__ = ["LAWS", "Trial", "check_calibrator", "masked_rows", "tilted_rows"]

ROWS = 240
CLASSES = 4
few_rows = partial(warnings.catch_warnings, action="ignore", category=GlayersWarning)  # of which every fit may warn


def tilted_rows(columns: int = CLASSES, rows: int = ROWS) -> tuple[Floats, Ints]:
    """Return logits three times too large, bent and in favour of some classes, and labels in no order.

    Parameters
    ----------
    columns : int, default 4
        The number of logits; 1 is the logit of class 1 of two.
    rows : int, default 240
        The number of rows.

    Returns
    -------
    logits, labels : ndarray

    Examples
    --------
    >>> logits, labels = tilted_rows()
    >>> logits.shape, labels.shape
    ((240, 4), (240,))
    """
    rng = np.random.default_rng(0)
    z = rng.normal(size=(rows, columns)) * 2
    wide = with_reference_class(z)
    labels = (wide + rng.gumbel(size=wide.shape)).argmax(axis=1)
    return 3 * np.sinh(z / 2) + 3 * np.cos(2 * np.arange(columns)), labels


def masked_rows() -> tuple[Floats, Ints, Bools]:
    """Return rows of which two in three lack one class that is not the label, and which class that is.

    In the first row, only the label is possible.

    Returns
    -------
    logits, labels, missing : ndarray

    Examples
    --------
    >>> logits, labels, missing = masked_rows()
    >>> bool(np.isneginf(logits[missing]).all())
    True
    """
    z, labels = tilted_rows()
    rng = np.random.default_rng(3)
    missing = np.zeros(z.shape, dtype=bool)
    missing[np.arange(ROWS), (labels + rng.integers(1, CLASSES, ROWS)) % CLASSES] = rng.random(ROWS) < 2 / 3
    missing[0] = np.arange(CLASSES) != labels[0]
    return np.where(missing, -np.inf, z), labels, missing


class Trial:
    """A calibrator to test: it makes unfitted copies, and fits each kind of rows once."""

    def __init__(self, calibrator: Calibrator, tolerance: float = 1e-6) -> None:
        self.calibrator = calibrator
        self.tolerance = tolerance  # of two fits to rows that differ by a constant
        self.fitted = cache(self._fitted)

    def fit(self, *rows: Any) -> Calibrator:
        """Return a new copy, fitted on rows of which it may warn: there are few."""
        unfitted = clone(self.calibrator)
        with few_rows():
            fitted = unfitted.fit(*rows)
        _require(fitted is unfitted, "fit does not return the calibrator")
        return fitted

    def _fitted(self, columns: int = CLASSES) -> Calibrator:
        return self.fit(*tilted_rows(columns))


def probabilities_sum_to_1(trial: Trial) -> None:
    """Rows sum to 1 and stay finite, whatever the size and the type of the logits."""
    rng = np.random.default_rng(1)
    for columns in (1, 2, CLASSES):
        calibrator = trial.fitted(columns)
        for size in (1e-4, 1.0, 1e4):
            for dtype in (np.float16, np.float32, np.float64):
                z = rng.choice([-size, size, size / 3], size=(50, columns)).astype(dtype)
                p = calibrator.predict_proba(z)
                assert_array_equal(p.shape, (50, max(2, columns)))
                _require(np.isfinite(calibrator.transform(z)).all(), f"logits of size {size} become infinite")
                _require((p >= 0).all(), "a probability is negative")
                assert_allclose(p.sum(axis=1), 1.0, atol=1e-6)


def losses_are_those_of_the_predictions(trial: Trial) -> None:
    """`diagnostics_` have the mean log loss of the calibration rows before and after."""
    z, labels = tilted_rows()
    facts = trial.fitted().diagnostics_
    for p, said in ((softmax(z), facts.loss_before), (trial.fitted().predict_proba(z), facts.loss_after)):
        assert_allclose(said, -np.log(p[np.arange(ROWS), labels]).mean(), rtol=1e-9)


def rows_do_not_depend_on_each_other(trial: Trial) -> None:
    """The probabilities of a row are the same alone and in any order of the rows."""
    z, _ = tilted_rows()
    order = np.random.default_rng(0).permutation(ROWS)
    p = trial.fitted().predict_proba(z)
    assert_allclose(trial.fitted().predict_proba(z[order]), p[order], atol=1e-12)
    assert_allclose(trial.fitted().predict_proba(z[:1]), p[:1], atol=1e-12)


def a_constant_per_row_changes_nothing(trial: Trial) -> None:
    """Softmax does not see a constant that is added to all logits of a row, and neither does a fit."""
    z, labels = tilted_rows()
    moved = z + np.random.default_rng(1).normal(size=(ROWS, 1)) * 50
    found = trial.fit(moved, labels).predict_proba(moved)
    assert_allclose(found, trial.fitted().predict_proba(z), atol=trial.tolerance)


def ways_to_a_prediction_agree(trial: Trial) -> None:
    """`predict_proba` is the softmax of `transform`, and `predict` its highest class."""
    for columns in (1, CLASSES):
        z, _ = tilted_rows(columns)
        calibrator = trial.fitted(columns)
        p = calibrator.predict_proba(z)
        assert_allclose(softmax(calibrator.transform(z)), p, rtol=1e-13)
        assert_array_equal(calibrator.predict(z), p.argmax(axis=1))
        assert_array_equal(calibrator.classes_, np.arange(max(2, columns)))


def a_fit_repeats_and_leaves_its_input_alone(trial: Trial) -> None:
    """The same settings and rows give the same bytes; `fit` returns itself and changes neither settings nor rows."""
    z, labels = tilted_rows()
    weights = np.linspace(0.5, 2.0, ROWS)
    given = [z, labels, weights]
    kept = copy.deepcopy(given)
    one = trial.fit(*given)
    other = Trial(one).fit(*given)
    _require(repr(other) == repr(one) == repr(trial.calibrator), "a fit changes the settings")
    for now, before in zip(given, kept, strict=True):
        assert_array_equal(now, before)
    assert_array_equal(other.predict_proba(z), one.predict_proba(z))


def the_ranking_is_kept_if_promised(trial: Trial) -> None:
    """A method that says it keeps the ranking never changes the order of the classes in a row."""
    kind = type(trial.calibrator)
    if all(method.keeps == "nothing" for method in kind.methods):
        return
    z, _ = tilted_rows()
    order = np.argsort(z, axis=1)
    ranked = np.take_along_axis(trial.fitted().transform(z), order, axis=1)
    _require((np.diff(ranked, axis=1) >= 0).all(), "the order of the classes changes")


def a_fit_sets_nothing_itself(trial: Trial) -> None:
    """`_fit` returns what it found, and sets no attribute: other calibrators build on it."""
    unfitted = clone(trial.calibrator)
    before = set(vars(unfitted))
    unfitted._fit(Predictions(*tilted_rows()))
    changed = sorted(set(vars(unfitted)) - before)
    _require(not changed, f"_fit changes the calibrator: {', '.join(changed)}")


def a_common_factor_of_weights_changes_nothing(trial: Trial) -> None:
    """Weights are relative: weights of 8 in all rows are no weights."""
    z, labels = tilted_rows()
    p = trial.fit(z, labels, np.full(ROWS, 8.0)).predict_proba(z)
    assert_allclose(p, trial.fitted().predict_proba(z), atol=1e-9)


def a_class_without_rows_keeps_a_small_probability(trial: Trial) -> None:
    """A class that no calibration row has keeps a probability that is small, but not 0."""
    z, labels = tilted_rows(CLASSES + 1)
    z[:, 3] -= 8.0  # the network expects few, so methods that only trust it have little to say too
    seen = labels != 3
    calibrator = trial.fit(z[seen], labels[seen])
    _require(calibrator.diagnostics_.classes_never_seen == (3,), "diagnostics_ do not name the class without rows")
    p = calibrator.predict_proba(z)
    _require((p[:, 3] > 0).all(), "a class without calibration rows has a probability of 0")
    _require(p[:, 3].mean() < 0.1, "a class without calibration rows has a large probability")


def an_impossible_class_has_probability_0(trial: Trial) -> None:
    """A logit of -inf marks a class that a row cannot have, in fits and predictions."""
    z, labels, missing = masked_rows()
    for calibrator in (trial.fitted(), trial.fit(z, labels)):
        p = calibrator.predict_proba(z)
        assert_array_equal(p[missing], 0.0)
        _require((p[~missing] > 0).all(), "a possible class has a probability of 0")
        assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
        whole = ~missing.any(axis=1)
        # Only rounding differs: rows without such a class may be computed in a shorter way.
        assert_allclose(p[whole], calibrator.predict_proba(tilted_rows()[0])[whole], rtol=1e-13)


def adapting_multiplies_the_odds(trial: Trial) -> None:
    """`adapt` multiplies the odds of each class by its new over its old frequency."""
    for columns in (1, CLASSES):
        calibrator = trial.fitted(columns)
        z, _ = tilted_rows(columns)
        with few_rows():
            adapted = calibrator.adapt(frequencies=np.arange(1.0, len(calibrator.classes_) + 1))
        odds = calibrator.predict_proba(z) * adapted.adaptation_.ratio
        assert_allclose(adapted.predict_proba(z), odds / odds.sum(axis=1, keepdims=True), atol=1e-12)


def a_file_gives_the_same_calibrator(trial: Trial) -> None:
    """`load` gives the calibrator that was saved, with the same bytes; or `save` refuses, in words."""
    for columns in (1, CLASSES):
        saved = trial.fitted(columns)
        z, _ = tilted_rows(columns)
        with tempfile.TemporaryDirectory() as folder:
            one = Path(folder) / "one.safetensors"
            other = Path(folder) / "other.safetensors"
            try:
                saved.save(one)
            except GlayersError:
                return
            loaded = load(one)
            loaded.save(other)
            _require(one.read_bytes() == other.read_bytes(), "a loaded calibrator is saved with other bytes")
        _require(type(loaded) is type(saved) and repr(loaded) == repr(saved), "a file changes the settings")
        for predict in ("predict_proba", "transform", "predict"):
            assert_array_equal(getattr(loaded, predict)(z), getattr(saved, predict)(z))
        facts = "n_features_in_", "class_names_", "versions_", "classes_", *saved._kept
        for learned in facts:
            same = repr(getattr(loaded, learned)) == repr(getattr(saved, learned))
            _require(same, f"a file does not keep {learned}")
        _require(loaded.diagnostics_ == replace(saved.diagnostics_, seconds=None), "a file changes diagnostics_")


def predictions_are_fitted_as_their_parts(trial: Trial) -> None:
    """`fit_predictions` fits as `fit` does, and keeps the names of the classes."""
    z, labels = tilted_rows()
    whole = clone(trial.calibrator)
    with few_rows():
        whole.fit_predictions(Predictions(z, labels, class_names="wxyz"))
    assert_array_equal(whole.predict_proba(z), trial.fitted().predict_proba(z))
    _require(whole.class_names_ == tuple("wxyz"), "the names of the classes are lost")


LAWS = {
    law.__name__: law
    for law in (
        probabilities_sum_to_1,
        losses_are_those_of_the_predictions,
        rows_do_not_depend_on_each_other,
        a_constant_per_row_changes_nothing,
        ways_to_a_prediction_agree,
        a_fit_repeats_and_leaves_its_input_alone,
        the_ranking_is_kept_if_promised,
        a_fit_sets_nothing_itself,
        a_common_factor_of_weights_changes_nothing,
        a_class_without_rows_keeps_a_small_probability,
        an_impossible_class_has_probability_0,
        adapting_multiplies_the_odds,
        a_file_gives_the_same_calibrator,
        predictions_are_fitted_as_their_parts,
    )
}


def check_calibrator(calibrator: Any, *, excluded: Collection[str] = ()) -> None:
    """Check that a calibrator of your own keeps the contract of all calibrators.

    It fits about fifteen copies on 240 rows of four classes, so give it settings that fit quickly.

    Parameters
    ----------
    calibrator : Calibrator, str or object
        What `compare` takes: a calibrator, the name of a registered one, or any object with `fit` and `predict_proba`.
    excluded : collection of str
        Names from `glayers.testing.LAWS` that this method cannot keep, such as
        "a_class_without_rows_keeps_a_small_probability".

    Raises
    ------
    AssertionError
        If it breaks a law; the message names each and says how.

    Examples
    --------
    >>> from glayers import VectorScaling
    >>> check_calibrator(VectorScaling(strength=0.1))
    """
    unknown = set(excluded) - LAWS.keys()
    if unknown:
        raise GlayersError(f"no laws are called {listed(sorted(unknown))}; there are {', '.join(LAWS)}")
    trial = Trial(calibrator_of(calibrator))
    broken = []
    for name, law in LAWS.items():
        if name in excluded:
            continue
        try:
            law(trial)
        except Exception as problem:  # a fit of somebody else may raise anything
            broken.append(f"{name}: {type(problem).__name__}: {' '.join(str(problem).split())[:300]}")
    if broken:
        raise AssertionError("\n".join(broken))


def _require(holds: bool | np.bool_, complaint: str) -> None:
    if not holds:
        raise AssertionError(complaint)
