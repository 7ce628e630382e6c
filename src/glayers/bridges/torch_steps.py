"""A chain of steps -> a torch module that computes the same lines, with buffers in place of arrays.

A step's `__call__` only reads its fields, so it runs on a module whose buffers and submodules have the names of the
fields. `torch.export`, `torch.compile` and `torch.jit.trace` know modules well, and frozen dataclasses less. The keys
of the state_dict are the names of the arrays in a saved calibrator.
"""

import inspect
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from glayers.maps.steps import Chain, Step, arrays_of


def chain_module(chain: Chain, dtype: torch.dtype) -> nn.Sequential:
    """Return the steps of a chain as modules, one after another.

    >>> from glayers.maps import Chain, Scale
    >>> module = chain_module(Chain((Scale(np.asarray(0.5)),)), torch.float64)
    >>> module(torch.tensor([[2.0, 4.0]])).tolist(), list(module.state_dict())
    ([[1.0, 2.0]], ['0.factor'])
    """
    return nn.Sequential(*(_step_module(step, dtype) for step in chain.steps))


def _step_module(step: Step, dtype: torch.dtype) -> nn.Module:
    module = _class_of(type(step))()
    for field in fields(step):
        value = getattr(step, field.name)
        if field.name in arrays_of(type(step)):
            module.register_buffer(field.name, torch.tensor(np.asarray(value), dtype=dtype))
        elif field.name == "branches":
            module.branches = nn.ModuleList(chain_module(chain, dtype) for chain in step.chains())
        else:
            setattr(module, field.name, value)
    return module


@cache
def _class_of(kind: type[Step]) -> type[nn.Module]:
    """Return the class of modules that compute what this kind of step computes."""
    own = [base for base in reversed(kind.__mro__) if base not in Step.__mro__]
    methods = {name: each for base in own for name, each in vars(base).items() if inspect.isfunction(each)}
    methods = {name: each for name, each in methods.items() if not name.startswith("__")}

    def reduced(module: nn.Module) -> Any:  # pickle finds no class that is made here, so it asks for it again
        return _new, (kind,), module.__dict__

    return type(kind.__name__, (nn.Module,), methods | {"forward": kind.__call__, "__reduce__": reduced})


def _new(kind: type[Step]) -> nn.Module:
    made = _class_of(kind)
    return made.__new__(made)
