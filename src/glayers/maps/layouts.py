"""A step's name -> its class, its arrays and their shapes: what a map in a file may consist of, and nothing else.

An axis is a word: `in` is the number of logits that come in, `branches` that of the chains a step holds, any other word
a size of the step's own, the same wherever the word stands in it. `in-1` is one less, a number is itself.
Which numbers a fit learns is said here too, for whoever counts them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from glayers.maps.chain import Chain
from glayers.maps.keep_order import KeepOrder
from glayers.maps.mixture import TemperedMixture
from glayers.maps.order_preserving import General, Invariant, SharedCurve
from glayers.maps.shared import N_CONTEXT, N_SHAPES, Shared
from glayers.maps.stack import Stack
from glayers.maps.steps import (
    Blend,
    Centre,
    Dense,
    Diagonal,
    Dropout,
    LogSoftmax,
    Reference,
    Relu,
    Scale,
    Step,
)
from glayers.maps.tables import FLOOR, EachClass, OneVersusRest, TopClass

_POSITIVE = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Numbers:
    """An array of a step: its axes, as words, the range of its entries, and how many of these a fit learns."""

    axes: str = ""
    low: float = -math.inf
    high: float = math.inf
    learned: Literal["all", "all but one", "none"] = "all"


@dataclass(frozen=True)
class Layout:
    """What a step consists of: arrays by name, and perhaps chains of its own.

    As many logits come out as `out` says; a step that `completes` gives a lone one its reference class, and does so to
    what its branches make.
    """

    step: type[Step]
    arrays: Mapping[str, Numbers] = field(default_factory=dict)
    out: str = "in"
    completes: bool = False
    inner: Literal["", "branch", "branches"] = ""


def n_learned(chain: Chain) -> int:
    """How many numbers a fit learns: of several members those of one; no constants, no scales, no reference points.

    >>> from glayers.maps import Scale
    >>> shared = Shared(np.zeros((6, 5)), np.zeros(4), np.ones(4), np.asarray(10.0))
    >>> n_learned(Chain((Scale.identity(), shared))), Chain((Scale.identity(), shared)).n_parameters
    (31, 40)
    """
    return sum(map(_learned_in, chain.steps))


def _learned_in(step: Step) -> int:
    layout = LAYOUTS.get(type(step).__name__)
    if layout is None:  # a q of one's own: nothing is known of it but its parameters
        return sum(int(np.size(value)) for value in step.parameters().values())
    inner = getattr(step, layout.inner) if layout.inner else ()
    held = sum(map(n_learned, (inner,) if isinstance(inner, Chain) else inner))
    return held + sum(_learned_of(numbers, getattr(step, name)) for name, numbers in layout.arrays.items())


def _learned_of(numbers: Numbers, array: Any) -> int:
    own = np.shape(array)[np.ndim(array) - len(numbers.axes.split()) :]  # what comes before counts members
    size = math.prod(own)
    return {"all": size, "all but one": size - 1, "none": 0}[numbers.learned]


def _share() -> Numbers:
    """Between 0 and 1, give or take the rounding of whoever found it."""
    return Numbers(low=-1e-9, high=1 + 1e-9)


def _shares(axes: str) -> Numbers:
    """As above; they sum to 1, so that the last one follows from the others."""
    return Numbers(axes, low=-1e-9, high=1 + 1e-9, learned="all but one")


_GAPS = {
    "factor": Numbers(),
    "weight_in": Numbers("in hidden"),
    "bias_in": Numbers("hidden"),
    "weight_out": Numbers("hidden in-1"),
    "bias_out": Numbers("in-1"),
}
LAYOUTS: dict[str, Layout] = {
    layout.step.__name__: layout
    for layout in (
        Layout(Blend, {"share": _share()}, inner="branch"),
        Layout(Centre, {"share": Numbers(learned="none")}),
        Layout(Dense, {"weight": Numbers("in out"), "bias": Numbers("out")}, out="out"),
        Layout(Diagonal, {"scale": Numbers("in"), "shift": Numbers("in")}),
        Layout(Dropout),
        Layout(EachClass, {"knots": Numbers("in knots"), "values": Numbers("in knots", low=FLOOR, high=1.0)}),
        Layout(General, _GAPS),
        Layout(Invariant, _GAPS),
        Layout(KeepOrder, {"slope": Numbers(low=0.0, learned="none")}, completes=True, inner="branch"),
        Layout(LogSoftmax),
        Layout(OneVersusRest, {name: Numbers("in") for name in ("power", "rest_power", "shift")}),
        Layout(Reference, completes=True),
        Layout(Relu),
        Layout(Scale, {"factor": Numbers()}),
        Layout(
            Shared,
            {
                "weight": Numbers(f"{N_SHAPES} {N_CONTEXT}"),
                "centre": Numbers(f"{N_CONTEXT - 1}", learned="none"),
                "spread": Numbers(f"{N_CONTEXT - 1}", low=_POSITIVE, learned="none"),
                "depth": Numbers(low=1.0, learned="none"),
            },
        ),
        Layout(
            SharedCurve,
            {
                "factor": Numbers(),
                "knots": Numbers("knots", learned="none"),
                "widths": Numbers("knots", low=_POSITIVE, learned="none"),
                "log_slopes": Numbers("knots+1"),
            },
        ),
        Layout(Stack, {"shares": _shares("branches")}, completes=True, inner="branches"),
        Layout(TemperedMixture, {"shares": _shares("3"), "factor": Numbers()}),
        Layout(TopClass, {"knots": Numbers("knots"), "values": Numbers("knots", low=FLOOR, high=1.0 - FLOOR)}),
    )
}
