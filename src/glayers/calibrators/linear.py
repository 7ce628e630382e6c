"""Logits and labels -> a linear map of log-probabilities: a scale and a shift a class, or a full matrix.

All start from temperature scaling, held there by a penalty whose strength held-out rows may change, and go back to it
where they gain nothing. Fitted by Newton's method in NumPy: none needs torch.
"""

from collections.abc import Iterable
from typing import Literal

import numpy as np

from glayers.calibrators.linear_base import Family, LinearScaling
from glayers.errors import GlayersError
from glayers.fitting.newton import DiagonalRows, MatrixRows
from glayers.fitting.penalty_path import Prior
from glayers.maps import Centre, Chain, LogSoftmax, Reference, Scale


class VectorScaling(LinearScaling):
    """One scale and one shift for each class. Guo et al., ICML 2017. With two classes it is Platt scaling.

    Each is held at temperature scaling with strength k / n, times `strength`: 0 for the unpenalised fit of the paper.
    If None, cross-validation chooses it, and whether centred logits or log-probabilities are scaled.

    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + [1.0, 0.0, -1.0] + rng.gumbel(size=z.shape)).argmax(axis=1)  # the first class is underrated
    >>> shift = VectorScaling().fit(z, labels).map_.steps[-1].shift
    >>> round(float(shift[0] - shift[2]), 1)
    2.0
    """

    def __init__(
        self,
        strength: float | None = None,
        *,
        loss: Literal["log", "brier"] = "log",
        n_folds: int | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.strength = strength
        self.loss = loss
        self.n_folds = n_folds
        self.random_state = random_state

    def _families(self, n_classes: int, factor: float) -> tuple[Family, ...]:
        start = np.stack([np.ones(n_classes), np.zeros(n_classes)])
        prior = Prior((np.full_like(start, 2.0 * n_classes),), start)
        plain = Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax()))
        centred = Family("vector scaling", plain + Chain((Centre(np.ones(())),)), DiagonalRows, prior)
        # Centred, two classes give Platt scaling. Of more, either form may be better: few classes like it, many do not.
        return (centred,) if n_classes == 2 else (centred, centred._replace(prefix=plain))

    def _multiples(self, n_classes: int, n_rows: float) -> tuple[float, ...] | None:  # noqa: ARG002
        return None if self.strength is None else (strength_of(self.strength),)

    def _strength(self, multiples: tuple[float, ...], n_classes: int, n_rows: float) -> float:  # noqa: ARG002
        return multiples[0]


class MatrixScaling(LinearScaling):
    """A full matrix and an intercept: every class may borrow from every other.

    `penalty="structured"` holds diagonal and intercept at temperature scaling with strength k / n and the many entries
    off the diagonal with k (k - 1) / n, all times `strength`. Berta et al., "Structured matrix scaling", 2025.
    `penalty="odir"` adds lambda times the mean square off the diagonal and mu times that of the intercept; `strength`
    is (lambda, mu), or one number for both. Kull et al., NeurIPS 2019. None leaves it to cross-validation, 0 is none.
    """

    def __init__(
        self,
        penalty: Literal["structured", "odir"] = "structured",
        strength: float | tuple[float, float] | None = None,
        *,
        loss: Literal["log", "brier"] = "log",
        n_folds: int | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.penalty = penalty
        self.strength = strength
        self.loss = loss
        self.n_folds = n_folds
        self.random_state = random_state

    def _families(self, n_classes: int, factor: float) -> tuple[Family, ...]:
        if self.penalty not in ("structured", "odir"):
            raise GlayersError(f"penalty must be 'structured' or 'odir'; got {self.penalty!r}")
        prefix = Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax()))
        prior = structured_prior(n_classes) if self.penalty == "structured" else odir_prior(n_classes, 1.0)
        return (Family(f"matrix scaling, {self.penalty}", prefix, MatrixRows, prior),)

    def _multiples(self, n_classes: int, n_rows: float) -> tuple[float, ...] | None:
        if self.strength is None:
            return None
        if self.penalty == "odir":
            return odir_multiples(self.strength, n_classes, n_rows)
        return (strength_of(self.strength),)

    def _strength(self, multiples: tuple[float, ...], n_classes: int, n_rows: float) -> float | tuple[float, float]:
        return multiples[0] if self.penalty == "structured" else odir_strengths(multiples, n_classes, n_rows)


class DirichletCalibration(LinearScaling):
    """A full matrix and an intercept on log-probabilities, with the ODIR penalty. Kull et al., NeurIPS 2019.

    `strength` is (lambda, mu) or one number for both, left to cross-validation if None. For two classes it is beta
    calibration without its signs fixed.
    """

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

    def _families(self, n_classes: int, factor: float) -> tuple[Family, ...]:
        prefix = Chain((Reference(), LogSoftmax()))
        return (Family("Dirichlet calibration", prefix, MatrixRows, odir_prior(n_classes, factor)),)

    def _multiples(self, n_classes: int, n_rows: float) -> tuple[float, ...] | None:
        return None if self.strength is None else odir_multiples(self.strength, n_classes, n_rows)

    def _strength(self, multiples: tuple[float, ...], n_classes: int, n_rows: float) -> tuple[float, float]:
        return odir_strengths(multiples, n_classes, n_rows)


def structured_prior(n_classes: int) -> Prior:
    """Hold the diagonal and the intercept with k, what is off the diagonal with k (k - 1); penalties are halved."""
    strengths = np.full((n_classes + 1, n_classes), 2.0 * n_classes)
    strengths[:-1][~np.eye(n_classes, dtype=bool)] *= n_classes - 1
    return Prior((strengths,), _identity(n_classes, 1.0))


def odir_prior(n_classes: int, factor: float) -> Prior:
    """Hold what is off the diagonal and the intercept as the structured prior does, the diagonal not at all."""
    off_diagonal, intercept = np.zeros((2, n_classes + 1, n_classes))
    off_diagonal[:-1] = 2.0 * n_classes * (n_classes - 1) * (1 - np.eye(n_classes))
    intercept[-1] = 2.0 * n_classes
    return Prior((off_diagonal, intercept), _identity(n_classes, factor))


def odir_multiples(strength: float | tuple[float, float], n_classes: int, n_rows: float) -> tuple[float, float]:
    """Return (lambda, mu), penalties on means of squares, as multiples of the prior.

    >>> odir_strengths(odir_multiples((0.5, 2.0), 10, 5000), 10, 5000)
    (0.5, 2.0)
    """
    pair = tuple(strength) if isinstance(strength, Iterable) else (strength, strength)
    if len(pair) != 2:
        raise GlayersError(f"strength must be one number or (lambda, mu); got {strength!r}")
    units = _odir_units(n_classes, n_rows)
    return strength_of(pair[0]) / units[0], strength_of(pair[1]) / units[1]


def odir_strengths(multiples: tuple[float, ...], n_classes: int, n_rows: float) -> tuple[float, float]:
    """Return multiples of the prior as (lambda, mu)."""
    units = _odir_units(n_classes, n_rows)
    return multiples[0] * units[0], multiples[1] * units[1]


def strength_of(value: object) -> float:
    """Return a strength that was given, or say what it must be."""
    if isinstance(value, int | float | np.number) and float(value) >= 0:
        return float(value)
    raise GlayersError(f"strength must be a number, 0 or more, or None to have it chosen; got {value!r}")


def _odir_units(n_classes: int, n_rows: float) -> tuple[float, float]:
    """Lambda and mu of the prior itself: k (k - 1) / n a squared entry, times k (k - 1) entries; k / n times k."""
    return (n_classes * (n_classes - 1)) ** 2 / n_rows, n_classes**2 / n_rows


def _identity(n_classes: int, factor: float) -> np.ndarray:
    return np.concatenate([factor * np.eye(n_classes), np.zeros((1, n_classes))])
