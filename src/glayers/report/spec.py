"""What a figure shows, apart from how it is drawn: axes, and marks that name the columns they draw.

matplotlib (`report.plots`) and the script of the page draw the same `Spec`. A `View` holds no numbers, so that the page
holds it once for all methods; the numbers are in the columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from glayers.arrays import Array
from glayers.report.words import shortened

Value: TypeAlias = str | float  # the name of a column, or one number or text for all entries
# "x" and "y": the name at this place of the axis.
Unit: TypeAlias = Literal["percent", "points", "number", "rows", "text", "x", "y"]
Kind: TypeAlias = Literal["line", "boxes", "segments", "dots", "cells", "words"]

# The heading and the unit of a column, wherever it is shown; other columns are text under their own names.
HEADINGS: dict[str, tuple[str, Unit]] = {
    "low": ("from", "percent"),
    "high": ("to", "percent"),
    "count": ("rows", "rows"),
    "confidence": ("predicted", "percent"),
    "accuracy": ("observed", "percent"),
    "band_low": ("band from", "percent"),
    "band_high": ("band to", "percent"),
    "fractile": ("fraction of rows", "percent"),
    "cumulative_score": ("predicted, cumulative", "percent"),
    "cumulative_hits": ("observed, cumulative", "percent"),
    "difference": ("gap", "percent"),
    "row": ("predicted class", "y"),
    "column": ("label", "x"),
    "gap": ("gap in points", "points"),
    "gap_low": ("from", "points"),
    "gap_high": ("to", "points"),
    "deviations": ("standard deviations", "number"),
}


@dataclass(frozen=True)
class Axis:
    """A label and the ends; an end that is None lies where the marks end. `names` stand at the places 0, 1, 2, ...

    Percent and points are written in hundredths. `turned` puts the low end at the right or at the top.
    """

    label: str = ""
    low: float | None = None
    high: float | None = None
    unit: Unit = "percent"
    names: tuple[str, ...] = ()
    turned: bool = False
    log: bool = False


@dataclass(frozen=True)
class Mark:
    """One kind of mark in one look, drawn from columns.

    With `label` it stands in the legend. `only` names a column and the values of the entries to draw. The values of
    each kind, in this order:

    - line: x, y
    - boxes: left, bottom, right, top
    - segments: x, y, x of the end, y of the end
    - dots: x, y, and a radius in pixels if it varies
    - cells: column, row, and a strength from -1 (under) to 1 (over)
    - words: x, y, text, and the side that stands at x: start, middle or end
    """

    kind: Kind
    look: str
    values: tuple[Value, ...]
    label: str = ""
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """Axes, marks, and what a reader is told.

    Attributes
    ----------
    point
        The columns x and y of the points that can be read.
    table
        The columns of the table of numbers, and of what is said of a point; `HEADINGS` has their words.
    nearest
        How much the distances along x and y count when the nearest point is looked for.
    height
        Of the panel, as a fraction of its width; of a strip, of the height of the panel above it.
    """

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    point: tuple[str, str] = ("", "")
    table: tuple[str, ...] = ()
    nearest: tuple[float, float] = (1.0, 0.0)
    height: float = 0.8


@dataclass(frozen=True, eq=False)
class Spec:
    """A view and its numbers, with a title, a short note, a sentence that says what is seen, and a strip below.

    Columns are arrays or lists of text; those of one mark are equally long, or hold one entry.
    """

    view: View
    columns: Mapping[str, Any]
    note: str = ""
    summary: str = ""
    title: str = ""
    strip: "Spec | None" = None

    def values(self, mark: Mark) -> list[Array]:
        """Return what a mark is drawn from, equally long; empty where nothing is to be drawn.

        >>> view = View(Axis(), Axis(), (Mark("dots", "observed", ("x", 0.5), only=("where", "inside")),))
        >>> Spec(view, {"x": [1.0, 2.0], "where": ["inside", "outside"]}).values(view.marks[0])
        [array([1.]), array([0.5])]
        """
        columns: Mapping[Any, Any] = self.columns
        read = [np.atleast_1d(np.asarray(columns.get(value, value))) for value in mark.values]
        if not mark.only:
            return list(np.broadcast_arrays(*read))
        column, *accepted = mark.only
        drawn = np.isin(np.asarray(columns[column]), accepted)
        return [np.broadcast_to(value, drawn.shape)[drawn] for value in read]


def diagonal(label: str) -> Mark:
    """Return the line of equal x and y."""
    return Mark("segments", "ideal", (0.0, 0.0, 1.0, 1.0), label)


def names_on_axis(names: Sequence[str], label: str = "") -> Axis:
    """Return an axis with a name at each place, the first at the top or at the left."""
    fitting = tuple(shortened(" ".join(name.split()), 24) for name in names)
    return Axis(label, -0.5, len(names) - 0.5, "text", fitting)


def columns_of(record: Any) -> dict[str, Any]:
    """Return the arrays of a record by the names of their fields."""
    return {name: values for name, values in vars(record).items() if isinstance(values, np.ndarray)}
