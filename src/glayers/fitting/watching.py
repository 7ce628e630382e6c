"""How a solver is watched: after each iteration it shows where all members are, and is told who goes on."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor


class Sight(NamedTuple):
    """Where all members are, also those that have ended: parameters, loss on training and on held-out rows."""

    iteration: int
    parameters: Tensor
    train: Tensor
    held_out: Tensor


Watcher: TypeAlias = Callable[[Sight], Tensor]


def everyone_goes_on(sight: Sight) -> Tensor:
    """Watch nothing."""
    return torch.ones(len(sight.train), dtype=torch.bool)
