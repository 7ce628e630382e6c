"""Records of fits, one per seed -> figures of metrics against the number of weights and through training.

A record is a mapping, such as a line of a CSV file with its numbers parsed. Fits that differ only in their seed are
repeated records; curves show their mean, and bars or shades reach from the lowest to the highest.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from glayers.arrays import Floats
from glayers.errors import GlayersError
from glayers.metrics import METRICS
from glayers.report.plots import dress, grid, style, tidy

# They only need to differ from each other.
SERIES = ("#0a63b0", "#cf5a00", "#1d2530", "#4e8f5a", "#d06fa8", "#8a1a1a", "#3a22b8")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (2, 1)))
_WIDE = 30  # times the lowest value: beyond this range a linear scale hides the low end


@dataclass(frozen=True, eq=False)
class SeedCurve:
    """A name, and at each x the mean over seeds, the lowest and the highest value."""

    name: tuple[Hashable, ...]
    x: Floats
    mean: Floats
    low: Floats
    high: Floats


def seed_curves(
    records: Iterable[Mapping[str, object]], metric: str, *, x: str, by: Sequence[str]
) -> tuple[SeedCurve, ...]:
    """Return one curve of the metric against x for each combination of the values under `by`.

    >>> runs = [{"depth": 2, "weights": 96, "seed": seed, "ks": ks} for seed, ks in enumerate([0.01, 0.02, 0.03])]
    >>> curve, = seed_curves(runs, "ks", x="weights", by=["depth"])
    >>> curve.name, curve.x.tolist(), curve.mean.round(3).tolist(), curve.high.tolist()
    ((2,), [96.0], [0.02], [0.03])
    """
    found: dict[tuple[Hashable, ...], dict[float, list[float]]] = {}
    for place, record in enumerate(records):
        missing = [name for name in (x, metric, *by) if name not in record]
        if missing:
            raise GlayersError(f"record {place} has no {', '.join(missing)}; it has {', '.join(map(str, record))}")
        name = tuple(_hashable(record[part]) for part in by)
        found.setdefault(name, {}).setdefault(_number(record, x, place), []).append(_number(record, metric, place))
    if not found:
        raise GlayersError("records are empty; give one mapping for each fit")
    return tuple(_curve(name, values) for name, values in found.items())


def sizes_figure(records: Iterable[Mapping[str, object]], *, metrics: tuple[str, ...] = ("ks", "accuracy")) -> Figure:
    """Metrics against the number of weights, one colour per depth.

    A record holds `weights`, `depth` and the metrics, in percent where they are fractions.
    """
    rows = list(records)
    with style():
        figure, panels = grid(len(metrics))
        for panel, metric in zip(panels, metrics, strict=True):
            curves = seed_curves(rows, metric, x="weights", by=["depth"])
            draw_sizes(panel, curves, ylabel=_axis_label(metric))
        return tidy(figure, panels, columns=1)


def training_figure(
    records: Iterable[Mapping[str, object]], *, metrics: tuple[str, ...] = ("nll", "ks", "accuracy")
) -> Figure:
    """Metrics through training, one curve per start and set.

    A record holds `start`, `set`, `percent` (of training, 0 to 100) and the metrics.
    """
    rows = list(records)
    with style():
        figure, panels = grid(len(metrics))
        for panel, metric in zip(panels, metrics, strict=True):
            curves = seed_curves(rows, metric, x="percent", by=["start", "set"])
            draw_training(panel, curves, ylabel=_axis_label(metric))
        return tidy(figure, panels, columns=1)


def draw_sizes(axes: Axes, curves: Sequence[SeedCurve], *, ylabel: str) -> Axes:
    """Draw a metric against the number of weights, one colour and marker per depth, with bars over seeds."""
    for place, found in enumerate(sorted(curves, key=lambda curve: str(curve.name))):
        axes.errorbar(
            found.x,
            found.mean,
            # Rounding may put the mean of equal seeds outside of them.
            yerr=np.maximum(0, [found.mean - found.low, found.high - found.mean]),
            color=SERIES[place % len(SERIES)],
            marker=MARKERS[place % len(MARKERS)],
            linewidth=1.4,
            capsize=3,
            label=" ".join(map(str, found.name)) + (" layer" if found.name == (1,) else " layers"),
        )
    axes.set_xscale("log")
    least, most = (float(end(np.concatenate([found.x for found in curves]))) for end in (np.min, np.max))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if most < _WIDE * least else (1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("weights")
    axes.set_ylabel(ylabel)
    return dress(axes)


def draw_training(axes: Axes, curves: Sequence[SeedCurve], *, ylabel: str) -> Axes:
    """Draw a metric from 0 to 100 percent of training: colours are starts, dashes are sets, shades cover seeds."""
    starts = list(dict.fromkeys(found.name[0] for found in curves))
    sets = list(dict.fromkeys(found.name[1] for found in curves))
    for found in curves:
        colour = SERIES[starts.index(found.name[0]) % len(SERIES)]
        dash = DASHES[sets.index(found.name[1]) % len(DASHES)]
        axes.fill_between(found.x, found.low, found.high, color=colour, alpha=0.2, linewidth=0)
        label = f"{found.name[0]} start, {found.name[1]}"
        axes.plot(found.x, found.mean, color=colour, linestyle=dash, label=label)
    lowest, highest = (end([end(found.mean) for found in curves]) for end in (np.min, np.max))
    if 0 < _WIDE * lowest < highest:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0, 100)
    axes.set_xlabel("training, %")
    axes.set_ylabel(ylabel)
    return dress(axes)


def _curve(name: tuple[Hashable, ...], values: Mapping[float, list[float]]) -> SeedCurve:
    places = sorted(values)
    mean, low, high = (np.array([how(values[place]) for place in places]) for how in (np.mean, np.min, np.max))
    return SeedCurve(name, np.array(places), mean, low, high)


def _number(record: Mapping[str, object], name: str, place: int) -> float:
    value = record[name]
    if not isinstance(value, int | float | np.number):
        raise GlayersError(f"record {place}: {name} must be a number; got {value!r}")
    return float(value)


def _hashable(value: object) -> Hashable:
    return value if isinstance(value, Hashable) else str(value)


def _axis_label(metric: str) -> str:
    known = METRICS[metric]
    return f"{known.short_label}, %" if known.unit == "percent" else known.short_label


def short_count(value: float) -> str:
    """Return a number of weights in about four characters.

    >>> [short_count(n) for n in (7, 250, 10_000, 2_500_000)]
    ['7', '250', '10k', '2.5M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
