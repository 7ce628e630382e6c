"""Every figure, small, of known models: one overconfident, one calibrated, four classes."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from matplotlib.figure import Figure

from glayers.decisions.watch import Watch
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


def drawn(name: str, **choices: Any) -> Figure:
    given, labels = methods()
    return plots.figure(name, given, labels, **choices)


def wealth() -> Figure:
    """Ten calibrated batches, then ten of an overconfident model."""
    given, labels = methods()
    seen = Watch(accuracy=0.5)
    for night in range(20):
        rows = slice(30 * night, 30 * night + 30)
        p = given["calibrated" if night < 10 else "uncalibrated"][rows]
        seen.update(p, labels[rows], name=str(night))
    return plots.watch_figure(seen)


CASES: dict[str, Callable[[], Figure]] = {
    **{name: partial(drawn, name) for name in FIGURES},
    "ks-rank-2": partial(drawn, "ks", event=rank(2)),
    "wealth": wealth,
    "reliability-column": partial(drawn, "reliability", width=3.3),
}
