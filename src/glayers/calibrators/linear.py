"""Logits and labels -> a linear map of log-probabilities: one scale and one shift per class, or a full matrix.

All families start from temperature scaling. A penalty holds them there, cross-validation chooses its strength, and
they fall back to temperature scaling where it does not improve the held-out loss. They are fitted by Newton's method
in NumPy; none needs torch.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from glayers.activations import log_softmax
from glayers.arrays import Array, Floats, row_blocks
from glayers.calibrators.base import Calibrator, Fitted, Method, drawn_seed
from glayers.calibrators.temperature import tempered
from glayers.checks import check_choice, one_or_several
from glayers.errors import GlayersError, shown
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.floor import fit_floor
from glayers.fitting.folds import assign_folds, fold_weights
from glayers.fitting.newton import NOTHING_LEFT, LinearProblem
from glayers.fitting.penalty_path import Average, Path, Prior, Trial, counted_rows, is_few
from glayers.fitting.temperature import InverseTemperature, fit_inverse_temperature
from glayers.maps import Centre, Chain, Dense, Diagonal, Floor, LogSoftmax, Reference, Scale
from glayers.predictions import Predictions

# With more classes, matrix products in float64 take minutes.
_SINGLE_PRECISION_CLASSES = 500
# Up to this many rows x coefficients 5 folds take a second or two; above, 3 folds are used.
_SMALL = 2e7
# An infinite strength becomes this number: no coefficient moves, and nothing overflows.
_STRONGEST = 1e9
_KULL = "Kull et al., NeurIPS 2019"


class LinearFamily(NamedTuple):
    """A linear family: its name, the steps to log-probabilities, and the penalty on its coefficients.

    `units` are the strengths of the prior itself, in the units of the setting `strength`. `between` are steps between
    the floor and the coefficients. `factor` turns differences of its log-probabilities into calibrated ones.
    """

    name: str
    prefix: Chain
    prior: Prior
    units: tuple[float, ...] = (1.0,)
    between: Chain = Chain(())
    factor: float = 1.0

    def setting(self, multiples: tuple[float, ...]) -> float | tuple[float, ...]:
        """Return multiples of the prior in the units of the setting."""
        strengths = tuple(multiple * unit for multiple, unit in zip(multiples, self.units, strict=True))
        return strengths[0] if len(strengths) == 1 else strengths

    def map(self, coefficients: Array, floor: Floor) -> Chain:
        """Return the map with these coefficients."""
        weight, bias = coefficients[:-1].astype(np.float64), coefficients[-1].astype(np.float64)
        last = Chain((Diagonal(weight[0], bias) if len(weight) == 1 else Dense(weight, bias),))
        return self.prefix + Chain((replace(floor, branch=self.between + last),))


class LinearAverage(NamedTuple):
    """Penalties averaged by evidence: which form of the family, the average, its map, and any trouble on the way.

    `factor` is the inverse temperature it starts from, and `floor` keeps very unlikely classes away.
    """

    form: int
    average: Average
    map: Chain
    reason: str
    factor: float
    floor: Floor


@dataclass(eq=False, repr=False)
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

    strength_: ClassVar[float | tuple[float, ...]]
    cv_results_: ClassVar[dict[str, Array] | None]

    strength: float | tuple[float, float] | None = None
    _: KW_ONLY
    loss: Literal["log", "brier"] = "log"
    n_folds: int | None = None
    random_state: int | None = 0

    @abstractmethod
    def _families(self, n_classes: int, n_rows: float, factor: float) -> tuple[LinearFamily, ...]:
        """Return the families. Cross-validation picks one; with a given strength, the first is used."""

    def _fit(self, given: Predictions) -> Fitted:
        found = fit_inverse_temperature(given.logits, given.labels, given.weights)
        weights = np.ones(len(given)) if given.weights is None else given.weights
        families = self._families(given.n_classes, counted_rows(weights), found.factor)
        families = families[: 1 if self.strength is not None else None]
        floors = [
            fit_floor(each.prefix(given.logits.astype(np.float64)), each.factor, given.weights) for each in families
        ]
        paths = [self._path(given, weights, *each) for each in zip(families, floors, strict=True)]
        if self.strength is not None:
            best, falls_back, out_of_fold, cv_results, how = 0, False, None, None, "given"
            multiples, start = _multiples(self.strength, families[0].units), paths[0].start
        else:
            searches = [self._search(given, *each) for each in zip(families, paths, strict=True)]
            best = int(np.argmin([loss for _, loss, _, _ in searches]))
            chosen, loss, out_of_fold, cv_results = searches[best]
            multiples, start = chosen.multiples, np.mean(chosen.folds, axis=0, dtype=paths[best].start.dtype)
            of_temperature = cv_results["temperature_loss"][0]
            falls_back = not loss < of_temperature
            how = "chosen by cross-validation"
        family = families[best]
        fitted = paths[best].fit(tuple(min(multiple, _STRONGEST) for multiple in multiples), start)
        reason = f"strength {' and '.join(f'{each:.3g}' for each in np.atleast_1d(family.setting(multiples)))}, {how}"
        if falls_back:
            reason = f"falls back to temperature scaling: held-out loss {loss:.6g} against {of_temperature:.6g}"
        elif not fitted.converged and fitted.value < NOTHING_LEFT:
            reason = f"every row is fitted perfectly: the map would grow without end, increase the strength; {reason}"
        elif not fitted.converged:
            reason = f"no convergence in {fitted.iterations} Newton steps, increase the strength; {reason}"
        notes = [f"{family.name}: {reason}"] if falls_back or not fitted.converged else []
        if found.reason:
            notes.append(f"{family.name}, starting from temperature scaling: {found.reason}")
        fallback = Chain((Reference(), Scale(np.asarray(found.factor))))
        return Fitted(
            fallback if falls_back else family.map(fitted.point, floors[best]),
            family.name,
            converged=fitted.converged or falls_back,
            reason=reason,
            iterations=fitted.iterations,
            n_parameters=1 if falls_back else start.size,
            out_of_fold=out_of_fold,
            notes=tuple(notes),
            attributes={"strength_": family.setting(multiples), "cv_results_": cv_results},
        )

    def average(self, given: Predictions) -> "LinearAverage":
        """Fit several strengths of the penalty and average them by their evidence.

        The form of more evidence is taken, such as centred logits or log-probabilities. With few rows, it is the form
        of more evidence at the prior's own strength.
        """
        paths, found, floor = self._split_paths(given, None)
        if len(paths) > 1 and paths[0][-1].few:
            paths = [max(paths, key=lambda each: each[-1].evidence())]
        averages = [path.average() for *_, path in paths]
        average, (form, family, _) = max(zip(averages, paths, strict=True), key=lambda each: each[0].evidence)
        return LinearAverage(form, average, family.map(average.point, floor), found.reason, found.factor, floor)

    def average_without(self, given: Predictions, whole: "LinearAverage") -> Chain:
        """Return the map for these rows, given the average for these and more."""
        [(_, family, path)], _, floor = self._split_paths(given, whole)
        return family.map(path.average_without(whole.average).point, floor)

    def _split_paths(
        self, given: Predictions, whole: "LinearAverage | None"
    ) -> tuple[list[tuple[int, LinearFamily, Path]], InverseTemperature, Floor]:
        """Return the path of each form, or of the one of `whole`; two parts of the coefficients have own strengths."""
        start = None if whole is None else whole.factor
        found = fit_inverse_temperature(given.logits, given.labels, given.weights, start)
        weights = np.ones(len(given)) if given.weights is None else given.weights
        n_rows = counted_rows(weights)
        single = not is_few(n_rows)  # with many rows, rounding is far below the errors of estimates
        families = list(enumerate(self._families(given.n_classes, n_rows, found.factor)))
        if whole is None:
            prefix, factor = families[0][1].prefix, families[0][1].factor
            floor = fit_floor(prefix(given.logits.astype(np.float64)), factor, given.weights)
        else:
            floor, families = whole.floor, [families[whole.form]]
        paths = [
            (place, family, self._path(given, weights, family._replace(prior=_split(family.prior)), floor, single))
            for place, family in families
        ]
        return paths, found, floor

    def _path(
        self, given: Predictions, weights: Floats, family: LinearFamily, floor: Floor, single: bool = False
    ) -> Path:
        dtype = np.float32 if single or given.n_classes >= _SINGLE_PRECISION_CLASSES else np.float64
        anchor, held = family.prior.anchor, np.zeros_like(family.prior.anchor)
        # A matrix has a column of ones, which belongs to the intercept.
        inputs = np.ones((len(given), given.n_classes + (len(anchor) > 2)), dtype)
        lowered = None
        for rows in row_blocks(len(given), given.n_classes):
            raised, by = floor.split(family.prefix(given.logits[rows].astype(np.float64)))
            inputs[rows, : given.n_classes] = family.between(raised)
            if by.any():
                lowered = np.zeros((len(given), given.n_classes), dtype) if lowered is None else lowered
                lowered[rows] = by
        # Classes without a label are held at their start at any strength: the loss alone would send them to 0.
        held[:, given.label_counts() == 0] = 2.0 * given.n_classes
        normalised, loss = weights / weights.sum(), smooth_loss(self.loss)
        problem = LinearProblem(inputs, given.labels, normalised, loss, np.zeros_like(anchor), anchor, lowered)
        return Path(problem, family.prior._replace(held=held), weights, given.groups)

    def _search(
        self, given: Predictions, family: LinearFamily, path: Path
    ) -> tuple[Trial, float, Floats, dict[str, Array]]:
        """Return the best trial of cross-validation, its loss, its out-of-fold log-probabilities and all results."""
        seed = drawn_seed(self.random_state)
        usual = 5 if len(given) * path.start.size <= _SMALL else 3
        folds = assign_folds(len(given), given.groups, usual if self.n_folds is None else self.n_folds, seed)
        chosen, trials = path.search(folds, fold_weights(folds, given.weights)[0])
        # Every fold starts from the same temperature, so the comparison shows only what the family adds to it.
        at_start = path.problem.logits(path.start)
        plain = path.problem.loss.rows(at_start, given.labels)
        temperature_loss = path.mean(plain)
        if not path.mean(chosen.losses) < temperature_loss:  # the trial near the prior is no better: take the best one
            chosen = min(trials, key=lambda trial: path.mean(trial.losses))
        chosen_loss, out_of_fold = path.mean(chosen.losses), log_softmax(at_start).astype(np.float64)
        if chosen_loss < temperature_loss:
            for fold, coefficients in enumerate(chosen.folds):
                mine = folds == fold
                out_of_fold[mine] = log_softmax(path.problem.take(mine).logits(coefficients))
        cv_results = {
            "strength": np.array([family.setting(trial.multiples) for trial in trials]),
            "held_out_loss": np.array([path.mean(trial.losses) for trial in trials]),
            "gain_error": np.array([path.gain(plain, trial.losses)[1] for trial in trials]),
            "temperature_loss": np.full(len(trials), temperature_loss),
        }
        return chosen, chosen_loss, out_of_fold, cv_results


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
    >>> shift = VectorScaling().fit(z, labels).map_.steps[-1].branch.steps[-1].shift
    >>> round(float(shift[0] - shift[2]), 1)
    2.0
    """

    methods = (Method("vector", "One scale and one shift per class", "nothing", "Guo et al., ICML 2017"),)

    def _families(self, n_classes: int, n_rows: float, factor: float) -> tuple[LinearFamily, ...]:  # noqa: ARG002
        start = np.stack([np.ones(n_classes), np.zeros(n_classes)])
        prior = Prior((np.full_like(start, 2.0 * n_classes),), start)
        plain = tempered(factor)
        centred = LinearFamily("vector scaling", plain, prior, between=Chain((Centre(np.ones(())),)))
        # For two classes the centred form is Platt scaling. For more, either may be better: centred often for few.
        return (centred,) if n_classes == 2 else (centred, centred._replace(between=Chain(())))


@dataclass(eq=False, repr=False)
class MatrixScaling(LinearScaling):
    """Learn a full matrix and an intercept, so every class can depend on every other.

    Parameters
    ----------
    strength : float or (lambda, mu), optional
        For "structured", a factor on the penalty; for "odir", lambda and mu, or one number for both. 0 is no penalty.
        If None, cross-validation chooses it.
    penalty : {"structured", "odir"}, default "structured"
        "structured" holds the diagonal and the intercept at temperature scaling with strength k / n, and the entries
        off the diagonal with k (k - 1) / n. Berta et al., "Structured matrix scaling", 2025. "odir" penalises the mean
        square off the diagonal by lambda and that of the intercept by mu. Kull et al., NeurIPS 2019. Both act on
        log-softmax(z / T), with T of temperature scaling; the MS-ODIR of Kull et al. acts on the logits z.
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
    >>> MatrixScaling().fit(z, labels).map_.steps[-1].branch.steps[-1].weight.shape
    (3, 3)
    """

    methods = (
        Method("matrix", "Full matrix, structured penalty", "nothing", "Berta et al., 2025"),
        Method("matrix-odir", "Full matrix and intercept, ODIR penalty", "nothing", _KULL, {"penalty": "odir"}),
    )

    _: KW_ONLY
    penalty: Literal["structured", "odir"] = "structured"

    def _families(self, n_classes: int, n_rows: float, factor: float) -> tuple[LinearFamily, ...]:
        check_choice(self.penalty, ("structured", "odir"), "penalty")
        prefix, name = tempered(factor), f"matrix scaling, {self.penalty}"
        if self.penalty == "odir":
            return (_odir_family(name, prefix, n_classes, n_rows, 1.0),)
        strengths = np.full((n_classes + 1, n_classes), 2.0 * n_classes)
        strengths[:-1][~np.eye(n_classes, dtype=bool)] *= n_classes - 1
        return (LinearFamily(name, prefix, Prior((strengths,), _identity(n_classes, 1.0))),)


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

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)  # z is calibrated, so 3 z is overconfident
    >>> DirichletCalibration(strength=0.01).fit(3 * z, labels).predict_proba([[6.0, 0.0, 0.0]]).round(1).tolist()
    [[0.8, 0.1, 0.1]]
    """

    methods = (Method("dirichlet", "ODIR matrix on unscaled log-probabilities", "nothing", _KULL),)

    def _families(self, n_classes: int, n_rows: float, factor: float) -> tuple[LinearFamily, ...]:
        prefix = Chain((Reference(), LogSoftmax()))
        return (_odir_family("Dirichlet calibration", prefix, n_classes, n_rows, factor)._replace(factor=factor),)


def _odir_family(name: str, prefix: Chain, n_classes: int, n_rows: float, factor: float) -> LinearFamily:
    """Penalise entries off the diagonal and the intercept as the structured prior does, the diagonal not at all.

    Lambda and mu of that prior are k (k - 1) / n per squared entry times k (k - 1) entries, and k / n times k.
    """
    off_diagonal, intercept = np.zeros((2, n_classes + 1, n_classes))
    off_diagonal[:-1] = 2.0 * n_classes * (n_classes - 1) * (1 - np.eye(n_classes))
    intercept[-1] = 2.0 * n_classes
    units = (n_classes * (n_classes - 1)) ** 2 / n_rows, n_classes**2 / n_rows
    return LinearFamily(name, prefix, Prior((off_diagonal, intercept), _identity(n_classes, factor)), units)


def _multiples(strength: Any, units: tuple[float, ...]) -> tuple[float, ...]:
    """Return a strength that was given as multiples of the prior, or say what it must be.

    >>> _multiples((0.5, 2.0), (1.0, 4.0)), _multiples(3.0, (1.0,))
    ((0.5, 0.5), (3.0,))
    """
    given = one_or_several(strength)
    pair = given * len(units) if len(given) == 1 else given
    if len(pair) != len(units):
        raise GlayersError(f"strength must be one number{' or (lambda, mu)' * (len(units) > 1)}; got {shown(strength)}")
    if not all(value >= 0 for value in pair):
        raise GlayersError(f"strength must be a number, 0 or more, or None to have it chosen; got {shown(strength)}")
    return tuple(value / unit for value, unit in zip(pair, units, strict=True))


def _split(prior: Prior) -> Prior:
    """Split a prior in two parts: scales and shifts of a vector; entries off the diagonal of a matrix, and the others.

    >>> [part.tolist() for part in _split(Prior((np.full((2, 3), 6.0),), np.zeros((2, 3)))).parts]
    [[[6.0, 6.0, 6.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0], [6.0, 6.0, 6.0]]]
    """
    whole, first = prior.parts[0], np.zeros_like(prior.parts[0])
    if len(whole) == 2:
        first[0] = 1
    else:
        first[:-1] = 1 - np.eye(len(whole) - 1)
    return prior._replace(parts=(whole * first, whole * (1 - first)))


def _identity(n_classes: int, factor: float) -> Floats:
    return np.concatenate([factor * np.eye(n_classes), np.zeros((1, n_classes))])
