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

_KEPT = ("own", "context", "knots", "spread", "means")  # of the basis, in files


@dataclass(frozen=True, eq=False)
class Posterior:
    """A Gaussian distribution of coefficients, and how rows become their features."""

    factor: float  # the inverse temperature before the features
    floor: Floor
    basis: Basis
    point: Floats
    curvature: Curvature
    wide: Curvature  # with a weaker prior, for intervals

    def design(self, logits: Array) -> Design:
        """Return rows as features."""
        log_p = log_softmax(with_reference_class(logits.astype(np.float64)) * self.factor)
        raised, lowered = self.floor.split(log_p)
        return design_of(self.basis, log_softmax(raised), np.zeros(len(raised), np.int64), None, lowered)

    def log_odds_errors(self, logits: Array) -> Floats:
        """Return the standard deviation of the log-odds of each class, (n, classes)."""
        return in_row_blocks(self._errors, logits)

    def _errors(self, logits: Array) -> Floats:
        """The log-odds of class c move by the change of its score less the mean change of the others."""
        design = self.design(logits)
        p = np.asarray(softmax((design.base + design.scores(self.point)).astype(np.float64)))
        others = np.maximum(1 - p, 1e-9)
        variances = np.zeros_like(p)
        of_shared = np.zeros_like(p)
        for part, spread in zip(design.parts, design.split(self.wide.variances()), strict=True):
            if isinstance(part, SharedPart):
                of_shared = part.variances(p, self.wide.block)
            else:
                variances += part.variances(spread)
        weighted = p**2 * variances
        of_others = weighted.sum(axis=1, keepdims=True) - weighted
        return np.sqrt(variances + (of_others + of_shared) / others**2)

    def changes(self, logits: Array, n_draws: int, rng: np.random.Generator) -> Iterator[Floats]:
        """Yield what draws of the coefficients change in the scores of rows, (n, classes)."""
        design = self.design(logits)
        for _ in range(n_draws):
            drawn = self.curvature.draw(rng)
            yield np.concatenate([block.scores(drawn) for _, block in design.blocks])

    def arrays(self) -> dict[str, Floats]:
        """Return what a file keeps."""
        basis = {name: getattr(self.basis, name) for name in _KEPT}
        return basis | {
            "parts": np.array([name in self.basis.names for name in PARTS], np.float64),
            "scales": np.array([self.factor, self.floor.depth, self.floor.reach, self.basis.inputs == "centred"]),
            "point": self.point,
            "block": self.curvature.block,
            "diagonal": self.curvature.diagonal,
            "wide_block": self.wide.block,
            "wide_diagonal": self.wide.diagonal,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> "Posterior":
        """Return the posterior of a file."""
        names = [name for name, used in zip(PARTS, arrays["parts"], strict=True) if used]
        factor, depth, reach, centred = arrays["scales"]
        basis = plain_basis(arrays["own"].shape[1], names, "centred" if centred else "log")
        kept: dict[str, Any] = {name: arrays[name] for name in _KEPT}
        basis = basis._replace(**kept)
        floor = Floor(np.asarray(depth), np.asarray(reach), (Chain(()),))
        curvature = Curvature(arrays["block"], arrays["diagonal"])
        wide = Curvature(arrays["wide_block"], arrays["wide_diagonal"])
        return cls(float(factor), floor, basis, arrays["point"], curvature, wide)
