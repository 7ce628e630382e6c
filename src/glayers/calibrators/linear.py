"""Logits and labels -> a linear map of log-probabilities: one scale and one shift per class, or a full matrix.

All start from temperature scaling, and a prior holds them there. Its precision comes from the rows
(`fitting/evidence.py`), or from the setting `strength`. None needs torch.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from glayers.calibrators.base import Calibrator, Fitted, Method, weighted_mean
from glayers.calibrators.estimator import drawn_seed
from glayers.calibrators.temperature import tempered
from glayers.checks import check_choice, one_or_several, whole_number
from glayers.errors import GlayersError, shown
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.evidence import USUAL, FittedParts, fit_parts
from glayers.fitting.folds import assign_folds, effective_rows, row_weights
from glayers.fitting.temperature import fit_with_prior
from glayers.predictions import Predictions
from glayers.serving.predictor import apply_map

_UNPENALISED = 1e-4  # the factor on usual precisions that stands for 0: it moves no estimate, and fits converge
_STRONGEST = 1e9  # stands for an infinite strength: no coefficient moves, and nothing overflows
# Multiples of (k (k - 1))^2 / n for lambda and k^2 / n for mu that are tried: from too strong to hardly any.
_ODIR_MULTIPLES = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001)
_KULL = "Kull et al., NeurIPS 2019"


@dataclass(eq=False, repr=False)
class LinearScaling(Calibrator):
    """Base class of the linear families, which a prior holds at temperature scaling.

    Attributes
    ----------
    precisions_ : dict
        The precision of the prior of each part.
    effective_ : dict
        The effective number of coefficients of each part: how many the rows determine.
    out_of_fold_ : ndarray of shape (n_rows, n_classes) or None
        Log-probabilities of every row by fits that had not seen it; precisions and temperature were found with all
        rows. None if `strength` was given.
    """

    precisions_: ClassVar[dict[str, float]]
    effective_: ClassVar[dict[str, float]]
    _parts: ClassVar[tuple[str, ...]] = ("scale", "shift")

    strength: Any = None
    _: KW_ONLY
    loss: Literal["log", "brier"] = "log"
    n_folds: int = 5
    random_state: int | None = 0

    def _fit(self, given: Predictions) -> Fitted:
        rows = smooth_loss(self.loss).rows
        temperature = fit_with_prior(given.logits, given.labels, given.weights)
        error = temperature.relative_error(effective_rows(row_weights(given)))
        n_folds = whole_number(self.n_folds, "n_folds", least=2)
        seed = drawn_seed(self.random_state)
        folds = assign_folds(len(given), given.groups, n_folds, seed) if self.strength is None else None
        settings: dict[str, Any] = {"loss": self.loss, "inputs": self._inputs(), "factor_error": error}
        start = given, temperature.factor, self._parts, folds
        fits = [fit_parts(*start, precisions=precisions, **settings) for precisions in self._precisions(given)]
        if folds is None:
            return self._fitted(fits[0], "strength as given")
        losses = [weighted_mean(rows(found.out_of_fold, given.labels), given) for found in fits]
        best = int(np.argmin(losses))
        plain = tempered(temperature.factor)
        held_out = apply_map(plain, given.logits)
        before = weighted_mean(rows(held_out, given.labels), given)
        if losses[best] < before:
            return self._fitted(fits[best], "precisions by evidence")
        reason = f"falls back to temperature scaling: held-out loss {losses[best]:.6g} against {before:.6g}"
        fitted = self._fitted(fits[best]._replace(converged=True), reason)
        notes = (f"{self.methods[0].name}: {reason}", *fitted.notes)
        return replace(fitted, map=plain, n_parameters=1, out_of_fold=held_out, notes=notes)

    def _precisions(self, given: Predictions) -> list[Mapping[str, float] | None]:  # noqa: ARG002 (for subclasses)
        """Return the precisions to try; None stands for those that the rows determine."""
        if self.strength is None:
            return [None]
        [strength] = _strengths(self.strength, 1)
        return [{name: max(strength, _UNPENALISED) * USUAL[name] for name in self._parts}]

    def _inputs(self) -> str:
        return "centred"

    def _fitted(self, found: FittedParts, reason: str) -> Fitted:
        name = self.methods[0].name
        notes = []
        if not found.converged:
            reason = f"no convergence in {found.iterations} Newton steps, increase the strength; {reason}"
            notes.append(f"{name}: {reason}")
        attributes = {"precisions_": dict(found.precisions), "effective_": dict(found.effective)}
        return Fitted.of_parts(found, f"{name} scaling", reason, notes=tuple(notes), attributes=attributes)


class VectorScaling(LinearScaling):
    """Learn one scale and one shift per class. Guo et al., ICML 2017. With two classes this is Platt scaling.

    Parameters
    ----------
    strength : float, optional
        A factor on the usual precision of the prior; 0 is the unpenalised fit of the paper. If None, the rows determine
        the precision.
    loss : {"log", "brier"}, default "log"
        The loss to minimise.
    n_folds : int, default 5
        The number of folds of the out-of-fold predictions.
    random_state : int or None, default 0
        The seed of the folds.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + [1.0, 0.0, -1.0] + rng.gumbel(size=z.shape)).argmax(axis=1)  # the first class is underrated
    >>> p = VectorScaling().fit(z, labels).predict_proba([[0.0, 0.0, 0.0]])[0]
    >>> round(float(np.log(p[0] / p[2])), 1)
    2.0
    """

    methods = (Method("vector", "One scale and one shift per class", "nothing", "Guo et al., ICML 2017"),)


@dataclass(eq=False, repr=False)
class MatrixScaling(LinearScaling):
    """Learn a full matrix and an intercept, so every class can depend on every other.

    Parameters
    ----------
    strength : float or (lambda, mu), optional
        For "structured", a factor on the usual precision of the prior; for "odir", lambda and mu, or one number for
        both. 0 is no penalty. If None, the rows determine the precision, or cross-validation lambda and mu.
    penalty : {"structured", "odir"}, default "structured"
        "structured" gives scales, shifts and the other entries a prior each, as in Berta et al., "Structured matrix
        scaling", 2025. "odir" penalises the mean square off the diagonal by lambda and that of the intercept by mu.
        Kull et al., NeurIPS 2019. Both act on log-softmax(z / T), with T of temperature scaling; the MS-ODIR of Kull et
        al. acts on the logits z.
    loss : {"log", "brier"}, default "log"
        The loss to minimise.
    n_folds : int, default 5
        The number of folds of the out-of-fold predictions.
    random_state : int or None, default 0
        The seed of the folds.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(5_000, 3)) * 2
    >>> labels = (z[:, [0, 1, 1]] + rng.gumbel(size=z.shape)).argmax(axis=1)  # class 2 looks like class 1
    >>> sorted(MatrixScaling().fit(z, labels).effective_)
    ['matrix', 'scale', 'shift']
    """

    methods = (
        Method("matrix", "Full matrix, structured penalty", "nothing", "Berta et al., 2025"),
        Method("matrix-odir", "Full matrix and intercept, ODIR penalty", "nothing", _KULL, {"penalty": "odir"}),
    )
    _parts = ("scale", "shift", "matrix")

    _: KW_ONLY
    penalty: Literal["structured", "odir"] = "structured"

    def _fit(self, given: Predictions) -> Fitted:
        check_choice(self.penalty, ("structured", "odir"), "penalty")
        return super()._fit(given)

    def _precisions(self, given: Predictions) -> list[Mapping[str, float] | None]:
        """Return, for "odir", lambda times the mean square off the diagonal and mu times that of the intercept."""
        if self.penalty == "structured":
            return super()._precisions(given)
        n_classes = given.n_classes
        n_rows = effective_rows(row_weights(given))
        n_pairs = n_classes * (n_classes - 1)
        unit = np.array([n_pairs**2, n_classes**2]) / n_rows
        strengths = [multiple * unit for multiple in _ODIR_MULTIPLES]
        if self.strength is not None:
            strengths = [np.array(_strengths(self.strength, 2))]
        found: list[Mapping[str, float] | None] = []
        for each in strengths:
            matrix, shift = np.maximum(2 * n_rows * each / [n_pairs, n_classes], _UNPENALISED).tolist()
            found.append({"scale": _UNPENALISED, "matrix": matrix, "shift": shift})
        return found

    def _inputs(self) -> str:
        return "centred" if self.penalty == "structured" else "plain"


class DirichletCalibration(LinearScaling):
    """Learn a full matrix and an intercept on log-probabilities. Kull et al., NeurIPS 2019.

    It acts on log softmax(z / T), with T of temperature scaling, and has the priors of matrix scaling in the place of
    the paper's ODIR penalty. For two classes this is beta calibration without constraints on the signs.

    Parameters
    ----------
    strength : float, optional
        A factor on the usual precision of the prior. If None, the rows determine the precision.
    loss : {"log", "brier"}, default "log"
        The loss to minimise.
    n_folds : int, default 5
        The number of folds of the out-of-fold predictions.
    random_state : int or None, default 0
        The seed of the folds.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)  # z is calibrated, so 3 z is overconfident
    >>> DirichletCalibration(1.0).fit(3 * z, labels).predict_proba([[6.0, 0.0, 0.0]]).round(1).tolist()
    [[0.8, 0.1, 0.1]]
    """

    methods = (Method("dirichlet", "Full matrix on log-probabilities", "nothing", _KULL),)
    _parts = ("scale", "shift", "matrix")

    def _inputs(self) -> str:
        return "log"


def _strengths(strength: Any, count: int) -> tuple[float, ...]:
    """Return one or two strengths, or say what they must be.

    >>> _strengths((0.5, 2.0), 2), _strengths(3.0, 2), _strengths(3.0, 1)
    ((0.5, 2.0), (3.0, 3.0), (3.0,))
    """
    values = one_or_several(strength)
    if len(values) == 1:
        values = values * count
    if len(values) != count:
        wanted = "one number" if count == 1 else "one number or (lambda, mu)"
        raise GlayersError(f"strength must be {wanted}; got {shown(strength)}")
    if not all(value >= 0 for value in values):
        raise GlayersError(f"strength must be a number, 0 or more, or None to have it chosen; got {shown(strength)}")
    return tuple(min(value, _STRONGEST) for value in values)
