"""Logits and labels -> a linear map of log-probabilities: one scale and one shift per class, or a full matrix.

All families start from temperature scaling. A penalty holds them there, cross-validation chooses its strength, and
they fall back to temperature scaling where it does not improve the held-out loss. They are fitted by Newton's method
in NumPy; none needs torch.
"""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from glayers.activations import log_softmax
from glayers.arrays import Array, Floats
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.errors import GlayersError
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.folds import assign_folds, fold_weights
from glayers.fitting.newton import DiagonalRows, LinearProblem, LinearRows, MatrixRows
from glayers.fitting.penalty_path import Path, Prior, Trial, counted_rows, ones_appended
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Centre, Chain, Dense, Diagonal, LogSoftmax, Reference, Scale
from glayers.predictions import Predictions

# With more classes, matrix products in float64 take minutes.
_SINGLE_PRECISION_CLASSES = 500
# Up to this many rows x coefficients 5 folds take a second or two; above, 3 folds are used.
_SMALL = 2e7
# An infinite strength becomes this number: no coefficient moves, and nothing overflows.
_STRONGEST = 1e9


class LinearFamily(NamedTuple):
    """A linear family: its name, the steps before its coefficients, how these act, and the penalty.

    `units` are the strengths of the prior itself, in the units of the setting `strength`.
    """

    name: str
    prefix: Chain
    rows: type[LinearRows]
    prior: Prior
    units: tuple[float, ...] = (1.0,)

    def setting(self, multiples: tuple[float, ...]) -> float | tuple[float, ...]:
        """Return multiples of the prior in the units of the setting."""
        strengths = tuple(multiple * unit for multiple, unit in zip(multiples, self.units, strict=True))
        return strengths[0] if len(strengths) == 1 else strengths


class CrossValidation(NamedTuple):
    """The result of cross-validation for one family: the best trial, and its loss beside that of temperature."""

    family: LinearFamily
    path: Path
    chosen: Trial
    chosen_loss: float
    temperature_loss: float
    out_of_fold: Floats
    cv_results: dict[str, Array]


class LinearScaling(Calibrator):
    """Base class of the linear families, which a penalty holds at temperature scaling.

    Attributes
    ----------
    strength_ : float or tuple of float
        The strength of the penalty that was used.
    cv_results_ : dict or None
        One entry per strength that was tried: `strength`, `held_out_loss`, `gain_error` (the standard error of the
        gain over temperature scaling) and `temperature_loss`. None if `strength` was given.
    out_of_fold_ : ndarray of shape (n_rows, n_classes) or None
        Log-probabilities of every row by fits that had not seen it; only the temperature that they start from was
        fitted on all rows. None if `strength` was given.
    """

    strength_: float | tuple[float, ...]
    cv_results_: dict[str, Array] | None

    def __init__(
        self,
        strength: float | tuple[float, float] | None = None,
        *,
        loss: Literal["log", "brier"] = "log",
        n_folds: int | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.strength = strength
        self.loss = loss
        self.n_folds = n_folds
        self.random_state = random_state

    @abstractmethod
    def _families(self, n_classes: int, n_rows: float, factor: float) -> tuple[LinearFamily, ...]:
        """Return the families. Cross-validation picks one; with a given strength, the first is used."""

    def _fit(self, given: Predictions) -> Fitted:
        found = fit_inverse_temperature(given.logits, given.labels, given.weights)
        weights = np.ones(len(given)) if given.weights is None else given.weights
        families = self._families(given.n_classes, counted_rows(weights), found.factor)
        fallback, how, search = "", "given", None
        if self.strength is None:
            searches = [self._search(given, family, self._path(given, weights, family)) for family in families]
            search = min(searches, key=lambda each: each.chosen_loss)
            family, path, multiples = search.family, search.path, search.chosen.multiples
            start, how = np.mean(search.chosen.folds, axis=0, dtype=path.start.dtype), "chosen by cross-validation"
            if not search.chosen_loss < search.temperature_loss:
                fallback = (
                    f"out-of-fold loss {search.chosen_loss:.6g}, of temperature scaling "
                    f"{search.temperature_loss:.6g}: temperature scaling is returned"
                )
        else:
            family, path = families[0], self._path(given, weights, families[0])
            multiples, start = _multiples(self.strength, family.units), path.start
        fitted = path.fit(tuple(min(multiple, _STRONGEST) for multiple in multiples), start)
        strength = family.setting(multiples)
        reason, notes = fallback or f"strength {_shown(strength)}, {how}", []
        if not fallback and not fitted.converged:
            reason = f"no convergence in {fitted.iterations} Newton steps, increase the strength; {reason}"
        if fallback or not fitted.converged:
            notes.append(f"{family.name}: {reason}")
        if found.reason:
            notes.append(f"{family.name}, starting from temperature scaling: {found.reason}")
        return Fitted(
            Chain((Reference(), Scale(np.asarray(found.factor)))) if fallback else _map(family, fitted.point),
            family.name,
            converged=fitted.converged or bool(fallback),
            reason=reason,
            iterations=fitted.iterations,
            n_parameters=1 if fallback else path.start.size,
            out_of_fold=None if search is None else search.out_of_fold,
            notes=tuple(notes),
            attributes={"strength_": strength, "cv_results_": None if search is None else search.cv_results},
        )

    def _path(self, given: Predictions, weights: Floats, family: LinearFamily) -> Path:
        dtype = np.float32 if given.n_classes >= _SINGLE_PRECISION_CLASSES else np.float64
        inputs = family.prefix(given.logits.astype(np.float64)).astype(dtype)
        # Classes without a label are held at their start at any strength: the loss alone would send them to 0.
        anchor, held = family.prior.anchor, np.zeros_like(family.prior.anchor)
        held[:, given.label_counts() == 0] = 2.0 * given.n_classes
        problem = LinearProblem(
            rows=family.rows(inputs if family.rows is DiagonalRows else ones_appended(inputs)),
            labels=given.labels,
            weights=weights / weights.sum(),
            loss=smooth_loss(self.loss),
            strengths=np.zeros_like(anchor),
            anchor=anchor,
        )
        return Path(problem, family.prior._replace(held=held), anchor.astype(dtype), weights, given.groups)

    def _search(self, given: Predictions, family: LinearFamily, path: Path) -> CrossValidation:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        usual = 5 if len(given) * path.start.size <= _SMALL else 3
        folds = assign_folds(len(given), given.groups, usual if self.n_folds is None else self.n_folds, seed)
        chosen, trials = path.search(folds, fold_weights(folds, given.weights)[0])
        # Every fold starts from the same temperature, so the comparison shows only what the family adds to it.
        at_start = path.problem.rows.forward(path.start)
        plain = path.problem.loss.rows(at_start, given.labels)
        temperature_loss = path.mean(plain)
        if not path.mean(chosen.losses) < temperature_loss:  # the trial near the prior is no better: take the best one
            chosen = min(trials, key=lambda trial: path.mean(trial.losses))
        chosen_loss, out_of_fold = path.mean(chosen.losses), log_softmax(at_start).astype(np.float64)
        if chosen_loss < temperature_loss:
            for fold, coefficients in enumerate(chosen.folds):
                mine = folds == fold
                out_of_fold[mine] = log_softmax(path.problem.rows.take(mine).forward(coefficients))
        cv_results = {
            "strength": np.array([family.setting(trial.multiples) for trial in trials]),
            "held_out_loss": np.array([path.mean(trial.losses) for trial in trials]),
            "gain_error": np.array([path.gain(plain, trial.losses)[1] for trial in trials]),
            "temperature_loss": np.full(len(trials), temperature_loss),
        }
        return CrossValidation(family, path, chosen, chosen_loss, temperature_loss, out_of_fold, cv_results)


class VectorScaling(LinearScaling):
    """Learn one scale and one shift per class. Guo et al., ICML 2017. With two classes this is Platt scaling.

    A penalty of strength k / n, for k classes and n rows, holds each coefficient at temperature scaling.

    Parameters
    ----------
    strength : float, optional
        A factor on the penalty; 0 is the unpenalised fit of the paper. If None, cross-validation chooses it, and
        whether centred logits or log-probabilities are scaled.
    loss : {"log", "brier"}, default "log"
        The loss to minimise.
    n_folds : int, optional
        The number of folds; 5 by default, 3 for large problems.
    random_state : int or None, default 0
        The seed of the folds.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + [1.0, 0.0, -1.0] + rng.gumbel(size=z.shape)).argmax(axis=1)  # the first class is underrated
    >>> shift = VectorScaling().fit(z, labels).map_.steps[-1].shift
    >>> round(float(shift[0] - shift[2]), 1)
    2.0
    """

    methods = (
        Method(
            "vector",
            "One scale and one shift per class",
            keeps="nothing",
            reference="Guo et al., On Calibration of Modern Neural Networks, ICML 2017",
        ),
    )

    def _families(self, n_classes: int, n_rows: float, factor: float) -> tuple[LinearFamily, ...]:  # noqa: ARG002
        start = np.stack([np.ones(n_classes), np.zeros(n_classes)])
        prior = Prior((np.full_like(start, 2.0 * n_classes),), start)
        plain = Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax()))
        centred = LinearFamily("vector scaling", plain + Chain((Centre(np.ones(())),)), DiagonalRows, prior)
        # For two classes the centred form is Platt scaling. For more, either may be better: centred often for few.
        return (centred,) if n_classes == 2 else (centred, centred._replace(prefix=plain))


class MatrixScaling(LinearScaling):
    """Learn a full matrix and an intercept, so every class can depend on every other.

    Parameters
    ----------
    penalty : {"structured", "odir"}, default "structured"
        "structured" holds the diagonal and the intercept at temperature scaling with strength k / n, and the entries
        off the diagonal with k (k - 1) / n. Berta et al., "Structured matrix scaling", 2025. "odir" penalises the mean
        square off the diagonal by lambda and that of the intercept by mu. Kull et al., NeurIPS 2019.
    strength : float or (lambda, mu), optional
        For "structured", a factor on the penalty; for "odir", lambda and mu, or one number for both. 0 is no penalty.
        If None, cross-validation chooses it.
    loss : {"log", "brier"}, default "log"
        The loss to minimise.
    n_folds : int, optional
        The number of folds; 5 by default, 3 for large problems.
    random_state : int or None, default 0
        The seed of the folds.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(5_000, 3)) * 2
    >>> labels = (z[:, [0, 1, 1]] + rng.gumbel(size=z.shape)).argmax(axis=1)  # class 2 looks like class 1
    >>> MatrixScaling().fit(z, labels).map_.steps[-1].weight.shape
    (3, 3)
    """

    methods = (
        Method(
            "matrix",
            "Full matrix and intercept, structured penalty",
            keeps="nothing",
            reference="Berta et al., Structured Matrix Scaling, 2025",
        ),
        Method(
            "matrix-odir",
            "Full matrix and intercept, ODIR penalty",
            keeps="nothing",
            reference="Kull et al., Beyond Temperature Scaling, NeurIPS 2019",
            settings={"penalty": "odir"},
        ),
    )

    def __init__(
        self,
        penalty: Literal["structured", "odir"] = "structured",
        strength: float | tuple[float, float] | None = None,
        *,
        loss: Literal["log", "brier"] = "log",
        n_folds: int | None = None,
        random_state: int | None = 0,
    ) -> None:
        super().__init__(strength, loss=loss, n_folds=n_folds, random_state=random_state)
        self.penalty = penalty

    def _families(self, n_classes: int, n_rows: float, factor: float) -> tuple[LinearFamily, ...]:
        if self.penalty not in ("structured", "odir"):
            raise GlayersError(f"penalty must be 'structured' or 'odir'; got {self.penalty!r}")
        prefix = Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax()))
        name = f"matrix scaling, {self.penalty}"
        if self.penalty == "odir":
            return (_odir_family(name, prefix, n_classes, n_rows, 1.0),)
        strengths = np.full((n_classes + 1, n_classes), 2.0 * n_classes)
        strengths[:-1][~np.eye(n_classes, dtype=bool)] *= n_classes - 1
        return (LinearFamily(name, prefix, MatrixRows, Prior((strengths,), _identity(n_classes, 1.0))),)


class DirichletCalibration(LinearScaling):
    """Learn a full matrix and an intercept on log-probabilities, with the ODIR penalty. Kull et al., NeurIPS 2019.

    For two classes this is beta calibration without constraints on the signs.

    Parameters
    ----------
    strength : float or (lambda, mu), optional
        The penalties on the mean square off the diagonal and of the intercept, or one number for both. If None,
        cross-validation chooses them.
    loss : {"log", "brier"}, default "log"
        The loss to minimise.
    n_folds : int, optional
        The number of folds; 5 by default, 3 for large problems.
    random_state : int or None, default 0
        The seed of the folds.
    """

    methods = (
        Method(
            "dirichlet",
            "ODIR matrix on unscaled log-probabilities",
            keeps="nothing",
            reference="Kull et al., Beyond Temperature Scaling, NeurIPS 2019",
        ),
    )

    def _families(self, n_classes: int, n_rows: float, factor: float) -> tuple[LinearFamily, ...]:
        prefix = Chain((Reference(), LogSoftmax()))
        return (_odir_family("Dirichlet calibration", prefix, n_classes, n_rows, factor),)


def _odir_family(name: str, prefix: Chain, n_classes: int, n_rows: float, factor: float) -> LinearFamily:
    """Penalise entries off the diagonal and the intercept as the structured prior does, the diagonal not at all.

    Lambda and mu of that prior are k (k - 1) / n per squared entry times k (k - 1) entries, and k / n times k.
    """
    off_diagonal, intercept = np.zeros((2, n_classes + 1, n_classes))
    off_diagonal[:-1] = 2.0 * n_classes * (n_classes - 1) * (1 - np.eye(n_classes))
    intercept[-1] = 2.0 * n_classes
    units = (n_classes * (n_classes - 1)) ** 2 / n_rows, n_classes**2 / n_rows
    return LinearFamily(name, prefix, MatrixRows, Prior((off_diagonal, intercept), _identity(n_classes, factor)), units)


def _multiples(strength: Any, units: tuple[float, ...]) -> tuple[float, ...]:
    """Return a strength that was given as multiples of the prior, or say what it must be.

    >>> _multiples((0.5, 2.0), (1.0, 4.0)), _multiples(3.0, (1.0,))
    ((0.5, 0.5), (3.0,))
    """
    pair = tuple(strength) if len(units) == 2 and isinstance(strength, Iterable) else (strength,) * len(units)
    if len(pair) != len(units):
        raise GlayersError(f"strength must be one number or (lambda, mu); got {strength!r}")
    for value in pair:
        if not isinstance(value, int | float | np.number) or not float(value) >= 0:
            raise GlayersError(f"strength must be a number, 0 or more, or None to have it chosen; got {value!r}")
    return tuple(float(value) / unit for value, unit in zip(pair, units, strict=True))


def _map(family: LinearFamily, coefficients: Array) -> Chain:
    """Return the family's steps, the last one with the coefficients that were found."""
    numbers = coefficients.astype(np.float64)
    if family.rows is DiagonalRows:
        return family.prefix + Chain((Diagonal(numbers[0].copy(), numbers[1].copy()),))
    return family.prefix + Chain((Dense(numbers[:-1].copy(), numbers[-1].copy()),))


def _identity(n_classes: int, factor: float) -> Floats:
    return np.concatenate([factor * np.eye(n_classes), np.zeros((1, n_classes))])


def _shown(strength: float | tuple[float, ...]) -> str:
    return f"({', '.join(f'{each:.3g}' for each in strength)})" if isinstance(strength, tuple) else f"{strength:.3g}"
