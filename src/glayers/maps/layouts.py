"""A step's name -> its class, its arrays and their shapes: what a map in a file may consist of, and nothing else.

An axis is a word: `in` is the number of logits that come in, `branches` that of the chains a step holds, any other word
a size of the step's own, the same wherever the word stands in it. `in-1` is one less, a number is itself.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from glayers.maps.keep_order import KeepOrder
from glayers.maps.mixture import TemperedMixture
from glayers.maps.order_preserving import General, Invariant, SharedCurve
from glayers.maps.shared import Shared
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
    """An array of a step: its axes, as words, and the range of its entries."""

    axes: str = ""
    low: float = -math.inf
    high: float = math.inf


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


def _shares(axes: str = "") -> Numbers:
    """Between 0 and 1, give or take the rounding of whoever found them."""
    return Numbers(axes, low=-1e-9, high=1 + 1e-9)


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
        Layout(Blend, {"share": _shares()}, inner="branch"),
        Layout(Centre, {"share": Numbers()}),
        Layout(Dense, {"weight": Numbers("in out"), "bias": Numbers("out")}, out="out"),
        Layout(Diagonal, {"scale": Numbers("in"), "shift": Numbers("in")}),
        Layout(Dropout),
        Layout(EachClass, {"knots": Numbers("in knots"), "values": Numbers("in knots", low=FLOOR, high=1.0)}),
        Layout(General, _GAPS),
        Layout(Invariant, _GAPS),
        Layout(KeepOrder, {"slope": Numbers(low=0.0)}, completes=True, inner="branch"),
        Layout(LogSoftmax),
        Layout(OneVersusRest, {name: Numbers("in") for name in ("power", "rest_power", "shift")}),
        Layout(Reference, completes=True),
        Layout(Relu),
        Layout(Scale, {"factor": Numbers()}),
        Layout(
            Shared,
            {
                "weight": Numbers("6 5"),
                "centre": Numbers("4"),
                "spread": Numbers("4", low=_POSITIVE),
                "depth": Numbers(low=1.0),
            },
        ),
        Layout(
            SharedCurve,
            {
                "factor": Numbers(),
                "knots": Numbers("knots"),
                "widths": Numbers("knots", low=_POSITIVE),
                "log_slopes": Numbers("knots+1"),
            },
        ),
        Layout(Stack, {"shares": _shares("branches")}, completes=True, inner="branches"),
        Layout(TemperedMixture, {"shares": _shares("3"), "factor": Numbers()}),
        Layout(TopClass, {"knots": Numbers("knots"), "values": Numbers("knots", low=FLOOR, high=1.0 - FLOOR)}),
    )
}
