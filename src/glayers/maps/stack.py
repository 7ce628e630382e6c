"""Logits -> the logarithm of a mixture of whole maps, each with its share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Floats, row_blocks
from glayers.maps.chain import Chain
from glayers.maps.steps import Step


@dataclass(frozen=True)
class Stack(Step):
    """log(w_0 softmax(branch_0(z)) + w_1 softmax(branch_1(z)) + ...), for shares w that sum to 1."""

    shares: Any
    branches: tuple[Chain, ...]

    def __call__(self, logits: Any) -> Any:
        """Add the branches up on the log scale, where no probability is too small to count."""
        xp = array_namespace(logits)
        log_shares = _log(self.shares)
        first, *others = (
            log_shares[place] + log_softmax(with_reference_class(branch(logits)))
            for place, branch in enumerate(self.branches)
        )
        for other in others:
            first = xp.logaddexp(first, other)
        return first

    def parameters(self) -> dict[str, Any]:
        """Return the shares, and each branch's parameters by their names there."""
        return {"shares": self.shares} | {
            f"branches.{place}.{name}": value
            for place, branch in enumerate(self.branches)
            for name, value in branch.parameters().items()
        }

    def with_parameters(self, parameters: dict[str, Any]) -> Self:
        """Return the same step with other shares and other branches."""
        branches = tuple(
            branch.with_parameters({name: parameters[f"branches.{place}.{name}"] for name in branch.parameters()})
            for place, branch in enumerate(self.branches)
        )
        return replace(self, shares=parameters["shares"], branches=branches)


def mixed(shares: Floats, parts: Sequence[Floats]) -> Floats:
    """Return the logarithm of a mixture, given log-probabilities (n, classes) of each part, block by block.

    >>> mixed(np.array([0.5, 0.5]), [np.log([[0.2, 0.8]]), np.log([[0.4, 0.6]])]).round(3).tolist()
    [[-1.204, -0.357]]
    """
    result = np.empty_like(parts[0])
    for rows in row_blocks(*result.shape):
        result[rows] = np.logaddexp.reduce([s + part[rows] for s, part in zip(_log(shares), parts, strict=True)])
    return result


def _log(shares: Any) -> Any:
    """Logarithm of shares; one of 0, or below by a rounding error, is minus infinity: that part leaves no trace."""
    xp = array_namespace(shares)
    smallest = float(xp.finfo(shares.dtype).smallest_normal)
    return xp.where(shares >= smallest, xp.log(xp.clip(shares, min=smallest)), -xp.inf)
