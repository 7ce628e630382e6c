"""What a fit knows about its coefficients -> how uncertain each probability is, and probabilities that may be true.

A file keeps it, so that a loaded calibrator still has intervals.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glayers.activations import log_softmax, softmax, with_reference_class
from glayers.arrays import Array, Floats, in_row_blocks
from glayers.fitting.parts import PARTS, Basis, Curvature, Design, SharedPart, design_of, plain_basis
from glayers.maps import Chain, Floor
from glayers.maps.corrections import LOWEST

# Intervals have a prior with this fraction of the precision. With the whole precision, 90 % intervals cover 76 % with
# 100 rows where a matrix is true, because the prior shrinks it.
_WIDER = 0.3
_KEPT = ("own", "context", "knots", "spread", "means")  # of the basis, in files


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is known about the coefficients, and how rows become their features.

    They are Gaussian, given the precision of the prior of each part. This precision is an estimate too: it has a
    chi-square distribution.
    """

    factor: float  # the inverse temperature before the features
    factor_error: float  # its relative standard error; 0 if a shared part accounts for it
    floor: Floor
    basis: Basis
    point: Floats
    information: Curvature  # of the loss, without the prior
    precisions: Floats  # of the prior of each coefficient
    degrees: Floats  # of freedom of the precision of each part

    @classmethod
    def of_factor(cls, factor: float, factor_error: float, n_classes: int) -> "Posterior":
        """Return the posterior of temperature scaling alone: nothing follows the inverse temperature."""
        nothing = Curvature(np.zeros((0, 0)), np.zeros(0))
        deep = np.asarray(float(np.finfo(np.float32).max))  # below every possible class
        floor = Floor(deep, deep, (Chain(()),))
        none = np.zeros(0)
        return cls(factor, factor_error, floor, plain_basis(n_classes, ()), none, nothing, none, none)

    def design(self, logits: Array) -> Design:
        """Return rows as features."""
        raised, lowered = self.floor.split(self._tempered(logits))
        return design_of(self.basis, log_softmax(raised), np.zeros(len(raised), np.int64), None, lowered)

    def _tempered(self, logits: Array) -> Floats:
        return np.asarray(log_softmax(with_reference_class(logits.astype(np.float64)) * self.factor))

    def log_odds_errors(self, logits: Array) -> Floats:
        """Return the standard deviation of the log-odds of each class, (n, classes)."""
        return in_row_blocks(self._errors, logits)

    def _errors(self, logits: Array) -> Floats:
        """The log-odds of class c move by the change of its score less the mean change of the others."""
        design = self.design(logits)
        p = np.asarray(softmax((design.base + design.scores(self.point)).astype(np.float64)))
        others = np.maximum(1 - p, 1e-9)
        variances = np.zeros_like(p)
        # Each is what one standard deviation of independent numbers adds to all scores.
        changes = [self.factor_error * np.maximum(self._tempered(logits), LOWEST)]
        wide = self.information.inverse(_WIDER * self.precisions)
        for part, spread in zip(design.parts, design.split(wide.variances()), strict=True):
            if isinstance(part, SharedPart):
                for direction in np.linalg.cholesky(wide.block).T:
                    changes.append(np.zeros_like(p))
                    part.add_scores(direction.reshape(spread.shape), changes[-1])
            else:
                variances += part.variances(spread)
        of_shared = sum((change - np.vecdot(p, change)[:, None]) ** 2 for change in changes)
        weighted = p**2 * variances
        of_others = weighted.sum(axis=1, keepdims=True) - weighted
        return np.sqrt(variances + (of_others + of_shared) / others**2)

    def changes(self, logits: Array, n_draws: int, rng: np.random.Generator) -> Iterator[Floats]:
        """Yield what draws of the coefficients change in the scores of rows, (n, classes).

        Each draw has precisions of its own: with weaker ones the rows would have moved the coefficients further.
        """
        design = self.design(logits)
        tempered = np.maximum(self._tempered(logits), LOWEST)
        for _ in range(n_draws):
            ratios = rng.chisquare(self.degrees) / self.degrees
            own = self.precisions * ratios[design.owners]
            covariance = self.information.inverse(own)
            drawn = covariance.times((self.precisions - own) * self.point) + covariance.draw(rng)
            change = np.concatenate([block.scores(drawn) for _, block in design.blocks])
            yield change + self.factor_error * rng.standard_normal() * tempered

    @property
    def is_finite(self) -> bool:
        """Whether all its numbers are finite."""
        return all(np.isfinite(array).all() for array in self.arrays().values())

    def arrays(self) -> dict[str, Floats]:
        """Return what a file keeps."""
        return {name: getattr(self.basis, name) for name in _KEPT} | {
            "parts": np.array([name in self.basis.names for name in PARTS], np.float64),
            "factor": np.array([self.factor, self.factor_error]),
            "floor": np.array([self.floor.depth, self.floor.reach]),
            "centred": np.array(float(self.basis.inputs == "centred")),
            "point": self.point,
            "block": self.information.block,
            "diagonal": self.information.diagonal,
            "precisions": self.precisions,
            "degrees": self.degrees,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats], n_classes: int) -> "Posterior":
        """Return the posterior of a file, tried on a few rows; raise ValueError if it does not fit together."""
        if arrays["own"].shape != (2, n_classes):
            raise ValueError(f"it is about another number of classes than {n_classes}")
        names = [name for name, used in zip(PARTS, arrays["parts"], strict=True) if used]
        factor, factor_error = arrays["factor"].tolist()
        depth, reach = arrays["floor"]
        basis = plain_basis(arrays["own"].shape[1], names, "centred" if arrays["centred"] else "log")
        kept: dict[str, Any] = {name: arrays[name] for name in _KEPT}
        basis = basis._replace(**kept)
        floor = Floor(np.asarray(depth), np.asarray(reach), (Chain(()),))
        law = Curvature(arrays["block"], arrays["diagonal"]), arrays["precisions"], arrays["degrees"]
        found = cls(factor, factor_error, floor, basis, arrays["point"], *law)
        kept = found.arrays()
        same = arrays.keys() == kept.keys() and all(arrays[name].shape == kept[name].shape for name in kept)
        if not same or not factor > 0 or not found.is_finite:
            raise ValueError("an array is missing, unknown or not finite")
        rows = np.eye(n_classes)[:5]
        owners = found.design(rows).owners
        if not len(found.point) == len(found.precisions) == owners.size or len(found.degrees) != len(names):
            raise ValueError("coefficients and their precisions do not go together")
        weak = found.information.inverse(1e-6 * found.precisions)  # as weak as draws may be
        np.linalg.cholesky(weak.block)
        if not (np.concatenate([found.precisions, found.degrees, weak.variances()]) > 0).all():
            raise ValueError("precisions and variances must be positive")
        [change] = found.changes(rows, 1, np.random.default_rng(0))
        if not np.isfinite(found.log_odds_errors(rows)).all() or not np.isfinite(change).all():
            raise ValueError("errors of probabilities are not finite")
        return found
