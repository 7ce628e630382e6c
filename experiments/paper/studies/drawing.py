"""Lines of results -> records with numbers, lines of methods on an Axes, and small files."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from experiments.paper.studies.plots import MARKERS, SERIES, seed_curves
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from PIL import Image

from glayers.files import write_whole
from glayers.metrics import CalibrationTest
from glayers.report.curves import KsCurves
from glayers.report.plots import dress

WORDS = {"ks": "KS, %", "accuracy": "accuracy, %", "nll": "NLL"}
_COLOURS = 64  # of a picture; lines, bands and letters need no more

Record: TypeAlias = dict[str, Any]


def read_records(file: Path) -> list[Record]:
    """Read a csv, numbers as numbers."""
    with file.open(newline="", encoding="utf-8") as stream:
        return [{name: _number(value) for name, value in line.items()} for line in csv.DictReader(stream)]


def where(records: Sequence[Record], **wanted: object) -> list[Record]:
    """Return the records with these values."""
    return [record for record in records if all(record[column] == value for column, value in wanted.items())]


def different(records: Sequence[Mapping[str, Any]], column: str) -> list[Any]:
    """Return the different values of a column, in order."""
    return list(dict.fromkeys(record[column] for record in records))


def named(network: str) -> str:
    """Return the title of a network's panel.

    >>> named("cifar10_residual")
    'CIFAR-10, residual'
    """
    return network.replace("cifar10_", "CIFAR-10, ").replace("fashion_mnist_", "Fashion-MNIST, ")


def ks_curves_of(records: Sequence[Record]) -> KsCurves:
    """Return the curves of a csv with one line per point."""
    columns = ("fractile", "cumulative_score", "cumulative_hits")
    fractile, score, hits = (np.array([record[column] for record in records]) for column in columns)
    ks, bound, p_value = (records[0][column] for column in ("ks", "bound", "p_value"))
    largest = int(np.abs(score - hits).argmax())
    test = CalibrationTest(ks / 100, p_value, bound / 100, expected=np.nan, level=0.95)
    return KsCurves(fractile, score, hits, largest, test)


def draw_cumulative(axes: Axes, found: KsCurves) -> None:
    """Draw cumulative score and cumulative hits, with a bar where they are furthest apart."""
    axes.plot(found.fractile, found.cumulative_score, "--", color=SERIES[0], label="predicted")
    axes.plot(found.fractile, found.cumulative_hits, color=SERIES[1], label="observed")
    ends = (found.cumulative_score[found.where], found.cumulative_hits[found.where])
    axes.plot([found.fractile[found.where]] * 2, ends, color=SERIES[2], label="KS error")
    axes.set_ylabel("cumulative")
    dress(axes)


def draw_methods(
    axes: Axes,
    records: Sequence[Record],
    metric: str,
    x: str,
    methods: Sequence[str],
    *,
    ends: bool = False,
) -> None:
    """Draw one line per method, the mean of its values at each x, with the ends of intervals if wanted."""
    for place, method in enumerate(methods):
        mine = where(records, method=method)
        if not mine:
            continue
        found = seed_curves(mine, metric, x=x, by=[])[0]
        low, high = (seed_curves(mine, f"{metric}_{end}" if ends else metric, x=x, by=[])[0] for end in ("low", "high"))
        bars = [np.maximum(found.mean - low.mean, 0), np.maximum(high.mean - found.mean, 0)]
        # Bars of several methods at one x would hide each other.
        aside = 0.08 * (place - (len(methods) - 1) / 2) if ends else 0.0
        axes.errorbar(
            found.x + aside,
            found.mean,
            yerr=bars if ends else None,
            color=SERIES[place % len(SERIES)],
            marker=MARKERS[place % len(MARKERS)],
            markersize=4,
            linewidth=1.3,
            capsize=2,
            label=method,
        )
    axes.set_xlabel(x)
    axes.set_ylabel(WORDS[metric])
    dress(axes)


def log_scale(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def save_small(figure: Figure, file: Path) -> None:
    """Save as a PNG of few colours, the same bytes every time."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=110, metadata={"Software": None})
    with Image.open(drawn) as picture:
        picture.convert("RGB").quantize(_COLOURS).save(small, "PNG", optimize=True)
    write_whole(file, small.getvalue())


def _number(value: str) -> float | str:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
