"""Every figure, small, of known models: one overconfident, one calibrated, four classes."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from matplotlib.figure import Figure

from glayers.metrics import rank
from glayers.report import plots
from glayers.report.figures import FIGURES
from tests.metrics.simulation import sample
from tests.strategies import Numbers


@cache
def methods(n: int = 600, k: int = 4, seed: int = 7) -> tuple[dict[str, Numbers], Numbers]:
    """The same rows by a model twice as sure as it should be, and by a calibrated one."""
    sure, labels = sample(seed, n, k, sharpness=2.2)
    calibrated, _ = sample(seed, n, k)
    return {"uncalibrated": sure, "calibrated": calibrated}, labels


def drawn(name: str, alone: bool = False, **choices: Any) -> Figure:
    given, labels = methods()
    shown = {"uncalibrated": given["uncalibrated"]} if alone else given
    return plots.figure(name, shown, labels, **choices)


def _many_classes() -> Figure:
    given, labels = methods(n=3000, k=30)
    return plots.figure("classes", given, labels, dark=True)


CASES: dict[str, Callable[[], Figure]] = {
    **{name: partial(drawn, name, n_resamples=99) for name in FIGURES},
    "reliability-dark": partial(drawn, "reliability", alone=True, dark=True),
    "ks-ranks": partial(drawn, "ks", event=[rank(1), rank(2)]),
    "ks-column": partial(drawn, "ks", width=3.3),
    "classes-many-dark": _many_classes,
}
