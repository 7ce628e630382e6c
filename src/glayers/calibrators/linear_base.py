"""What the linear families share: temperature first, strengths by cross-validation, one fit, and the way back."""

import time
import warnings
from abc import abstractmethod
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from glayers.activations import log_softmax
from glayers.arrays import Array, Floats, Ints
from glayers.calibrators.base import Calibrator, apply_map
from glayers.errors import GlayersWarning
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.diagnostics import Diagnostics, label_facts
from glayers.fitting.folds import assign_folds, fold_weights
from glayers.fitting.newton import DiagonalRows, LinearProblem, LinearRows
from glayers.fitting.penalty_path import Path, Prior, Trial, counted_rows, ones_appended
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Chain, Dense, Diagonal, Reference, Scale, Step
from glayers.predictions import Predictions

# From here on a matrix product in float64 costs minutes.
_SINGLE_PRECISION_CLASSES = 500
# Up to this many rows x coefficients, 5 folds take a second or two; 3 beyond.
_SMALL = 2e7
# As good as infinite, and still a number.
_STRONGEST = 1e9


class Family(NamedTuple):
    """A linear family: its name, the steps before its coefficients, how these act, and what holds them."""

    name: str
    prefix: Chain
    rows: type[LinearRows]
    prior: Prior


class _Search(NamedTuple):
    """What cross-validation found: the trial to trust, all of them, and the loss of temperature scaling beside them."""

    chosen: Trial
    trials: list[Trial]
    temperature_loss: float
    chosen_loss: float
    out_of_fold: Floats
    cv_results: dict[str, Array]


class LinearScaling(Calibrator):
    """A linear map of log-probabilities, held at temperature scaling by a penalty.

    Learned: `map_`, `diagnostics_`, `strength_` in the units of the setting, and where cross-validation chose it
    `cv_results_` (one entry a strength) and `out_of_fold_` (log-probabilities of every row by fits that had not seen
    it, but for the temperature they start from); both are None for a strength that was given.
    """

    loss: str
    n_folds: int | None
    random_state: int | None
    strength_: float | tuple[float, float]
    cv_results_: dict[str, Array] | None
    out_of_fold_: Floats | None

    @abstractmethod
    def _families(self, n_classes: int, factor: float) -> tuple[Family, ...]:
        """Return the family, given the inverse temperature; of several held-out rows choose, else the first is it."""

    @abstractmethod
    def _multiples(self, n_classes: int, n_rows: float) -> tuple[float, ...] | None:
        """Return the strengths that were given, as multiples of the prior."""

    @abstractmethod
    def _strength(self, multiples: tuple[float, ...], n_classes: int, n_rows: float) -> float | tuple[float, float]:
        """Return multiples of the prior in the units of the setting."""

    def _fit(self, given: Predictions) -> None:
        began = time.perf_counter()
        found = fit_inverse_temperature(given.logits, given.labels, given.weights)
        families = [_hold_unseen(f, given.label_counts()) for f in self._families(given.n_classes, found.factor)]
        family, path = families[0], self._path(given, families[0])
        n_rows = counted_rows(path.weights)
        multiples, search = self._multiples(given.n_classes, n_rows), None
        if multiples is None:
            family, path, search = self._best(given, families)
            multiples = search.chosen.multiples
        self.strength_ = self._strength(multiples, given.n_classes, n_rows)
        self.cv_results_ = None if search is None else search.cv_results
        self.out_of_fold_ = None if search is None else search.out_of_fold
        start = path.start if search is None else np.mean(search.chosen.folds, axis=0, dtype=path.start.dtype)
        fitted = path.fit(tuple(min(multiple, _STRONGEST) for multiple in multiples), start)
        reason = f"strength {_shown(self.strength_)}, " + ("given" if search is None else "chosen by cross-validation")
        if search is not None and not search.chosen_loss < search.temperature_loss:
            self.map_ = Chain((Reference(), Scale(np.asarray(found.factor))))
            reason = (
                f"out-of-fold loss {search.chosen_loss:.6g}, of temperature scaling {search.temperature_loss:.6g}: "
                f"temperature scaling is returned"
            )
            warnings.warn(f"{family.name}: {reason}", GlayersWarning, stacklevel=3)
        else:
            self.map_ = family.prefix + Chain((_step(family.rows, fitted.coefficients.astype(np.float64)),))
            if not fitted.converged:
                reason = f"no convergence in {fitted.iterations} Newton steps: a larger strength would help; {reason}"
                warnings.warn(f"{family.name}: {reason}", GlayersWarning, stacklevel=3)
        if found.reason:
            warnings.warn(f"{family.name}, starting from temperature: {found.reason}", GlayersWarning, stacklevel=3)
        self._diagnose(given, path, family.name, fitted.converged, reason, fitted.iterations, began)

    def _best(self, given: Predictions, families: list[Family]) -> tuple[Family, Path, _Search]:
        paths = [self._path(given, family) for family in families]
        searches = [self._search(given, path) for path in paths]
        best = int(np.argmin([search.chosen_loss for search in searches]))
        return families[best], paths[best], searches[best]

    def _path(self, given: Predictions, family: Family) -> Path:
        dtype = np.float32 if given.n_classes >= _SINGLE_PRECISION_CLASSES else np.float64
        inputs = family.prefix(given.logits.astype(np.float64)).astype(dtype)
        rows = family.rows(inputs if family.rows is DiagonalRows else ones_appended(inputs))
        shares = np.ones(len(given)) if given.weights is None else given.weights
        problem = LinearProblem(
            rows=rows,
            labels=given.labels,
            shares=shares / shares.sum(),
            loss=smooth_loss(self.loss),
            strengths=np.zeros_like(family.prior.anchor),
            anchor=family.prior.anchor,
        )
        return Path(problem, family.prior, family.prior.anchor.astype(dtype), given.weights, given.groups)

    def _search(self, given: Predictions, path: Path) -> _Search:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        usual = 5 if len(given) * path.start.size <= _SMALL else 3
        n_folds = usual if self.n_folds is None else self.n_folds
        folds = assign_folds(len(given), given.groups, n_folds, seed)
        train, _ = fold_weights(folds, given.weights)
        chosen, trials = path.search(folds, train)
        # The same temperature is under every fold's fit, so what is compared is all that they add to it.
        plain = path.problem.loss.rows(path.problem.rows.forward(path.start), given.labels)
        temperature_loss = path.mean(plain)
        if not path.mean(chosen.losses) < temperature_loss:  # the prior is no better: then the best there is must be
            chosen = min(trials, key=lambda trial: path.mean(trial.losses))
        chosen_loss = path.mean(chosen.losses)
        n_rows = counted_rows(path.weights)
        return _Search(
            chosen,
            trials,
            temperature_loss,
            chosen_loss,
            _out_of_fold(path, chosen, folds) if chosen_loss < temperature_loss else _log_probabilities(path),
            {
                "strength": np.array([self._strength(t.multiples, given.n_classes, n_rows) for t in trials]),
                "held_out_loss": np.array([path.mean(t.losses) for t in trials]),
                "gain_error": np.array([path.gain(plain, t.losses).error for t in trials]),
                "temperature_loss": np.full(len(trials), temperature_loss),
            },
        )

    def _diagnose(
        self, given: Predictions, path: Path, name: str, converged: bool, reason: str, iterations: int, began: float
    ) -> None:
        before, after = (
            path.mean(path.problem.loss.rows(logits, given.labels))
            for logits in (apply_map(Chain(()), given.logits), apply_map(self.map_, given.logits))
        )
        is_temperature = len(self.map_.steps) == 2
        self.diagnostics_ = Diagnostics(
            method=name,
            converged=converged or is_temperature,
            reason=reason,
            iterations=iterations,
            loss_before=before,
            loss_after=after,
            moved=after != before,
            n_parameters=1 if is_temperature else path.start.size,
            seconds=time.perf_counter() - began,
            **label_facts(given),
        )
        if not after < before:
            warnings.warn(
                f"{name} did not lower the loss of the rows it was fitted on: {before:.6g} before, {after:.6g} after",
                GlayersWarning,
                stacklevel=4,
            )


def _hold_unseen(family: Family, label_counts: Ints) -> Family:
    """Hold classes without a label at their start whatever the strength: the loss alone would send them to nothing."""
    held = np.zeros_like(family.prior.anchor)
    held[:, label_counts == 0] = 2.0 * len(label_counts)
    return family._replace(prior=family.prior._replace(held=held))


def _step(rows: type[LinearRows], coefficients: Floats) -> Step:
    if rows is DiagonalRows:
        return Diagonal(coefficients[0].copy(), coefficients[1].copy())
    return Dense(coefficients[:-1].copy(), coefficients[-1].copy())


def _out_of_fold(path: Path, chosen: Trial, folds: Ints) -> Floats:
    result = np.empty((len(folds), path.start.shape[1]))
    for fold, coefficients in enumerate(chosen.folds):
        mine = folds == fold
        result[mine] = log_softmax(path.problem.rows.take(mine).forward(coefficients))
    return result


def _log_probabilities(path: Path) -> Floats:
    return log_softmax(path.problem.rows.forward(path.start)).astype(np.float64)


def _shown(strength: float | tuple[float, float]) -> str:
    if isinstance(strength, tuple):
        return f"({strength[0]:.3g}, {strength[1]:.3g})"
    return f"{strength:.3g}"
