"""Every figure, small, of known models: one overconfident, one calibrated, four classes."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from matplotlib.figure import Figure

from glayers.metrics import PairedDifferences, paired_differences
from glayers.report import plots
from tests.metrics.simulation import sample
from tests.strategies import Numbers


@cache
def methods(n: int = 600, k: int = 4, seed: int = 7) -> tuple[dict[str, Numbers], Numbers]:
    """The same rows by a model twice as sure as it should be, and by a calibrated one."""
    sure, labels = sample(seed, n, k, sharpness=2.2)
    calibrated, _ = sample(seed, n, k)
    return {"uncalibrated": sure, "calibrated": calibrated}, labels


@cache
def differences() -> PairedDifferences:
    """Three methods by two metrics."""
    given, labels = methods()
    half_way = (given["uncalibrated"] + given["calibrated"]) / 2
    return paired_differences(given | {"half way": half_way}, labels, metrics=["nll", "ks"], n_resamples=99)


def _of_predictions(name: str, alone: bool = False, **choices: Any) -> Figure:
    given, labels = methods()
    shown = {"uncalibrated": given["uncalibrated"]} if alone else given
    return plots.FIGURES[name](shown, labels, **choices)


def _many_classes() -> Figure:
    given, labels = methods(n=3000, k=30)
    return plots.class_figure(given, labels, dark=True)


SMALL: dict[str, dict[str, Any]] = {
    "differences": {"n_resamples": 99},
    "ks-ranks": {"r": 2},
    **{name: {"r": 2, "alone": True} for name in ("ks-within", "ks-classes")},
}
CASES: dict[str, Callable[[], Figure]] = {
    **{name: partial(_of_predictions, name, **SMALL.get(name, {})) for name in plots.FIGURES},
    "reliability-dark": partial(_of_predictions, "reliability", alone=True, dark=True),
    "ks-dark": partial(_of_predictions, "ks", alone=True, dark=True),
    "ks-gap-ranks": partial(_of_predictions, "ks-ranks", kind="ks-gap", r=2),
    "classes-many-dark": _many_classes,
    "forest": lambda: plots.forest_figure(differences()),
}
