"""What a figure shows, apart from how it is drawn: axes, numbers, and marks that name the columns they draw.

matplotlib (`report.plots`) and the script of the page draw the same `Spec`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from glayers.arrays import Array
from glayers.report.words import Unit, shortened, written

Value: TypeAlias = str | float  # the name of a column, or one number for all entries
Kind: TypeAlias = Literal["line", "boxes", "segments", "dots"]

# The heading and the unit of a column of numbers; other columns are text under their own names.
HEADINGS: dict[str, tuple[str, Unit]] = {
    "low": ("from", "percent"),
    "high": ("to", "percent"),
    "count": ("rows", "rows"),
    "confidence": ("predicted", "percent"),
    "accuracy": ("observed", "percent"),
    "fractile": ("fraction of rows", "percent"),
    "cumulative_score": ("predicted, cumulative", "percent"),
    "cumulative_hits": ("observed, cumulative", "percent"),
    "difference": ("gap", "percent"),
    "gap": ("gap in points", "points"),
    "gap_low": ("from", "points"),
    "gap_high": ("to", "points"),
    "threshold": ("confidence above", "percent"),
    "coverage": ("automated", "percent"),
    "promised": ("errors promised", "percent"),
    "actual": ("errors made", "percent"),
    "change": ("difference", "number"),
    "change_low": ("from", "number"),
    "change_high": ("to", "number"),
}


@dataclass(frozen=True)
class Axis:
    """A label and the ends; an end that is None lies where the marks end. `names` stand at the places 0, 1, 2, ...

    Percent and points are written in hundredths.
    """

    label: str = ""
    low: float | None = None
    high: float | None = None
    unit: Unit = "percent"
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mark:
    """One kind of mark in one look, drawn from columns.

    With `label` it stands in the legend. `only` names a column and the value of the entries to draw. The values of each
    kind, in this order:

    - line: x, y
    - boxes: left, bottom, right, top
    - segments: x, y, x of the end, y of the end
    - dots: x, y, and a radius in pixels if it varies
    """

    kind: Kind
    look: str
    values: tuple[Value, ...]
    label: str = ""
    only: tuple[str, str] | None = None


@dataclass(frozen=True, eq=False)
class Spec:
    """One panel: axes, marks and numbers, with a title, a short note, and a sentence that says what is seen.

    Columns are arrays or lists of text; those of one mark are equally long, or hold one entry. `table` names the
    columns of the table of numbers. `height` is that of the panel, as a fraction of its width.
    """

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    columns: Mapping[str, Any]
    table: tuple[str, ...]
    title: str = ""
    note: str = ""
    summary: str = ""
    height: float = 1.0

    def values(self, mark: Mark) -> list[Array]:
        """Return what a mark is drawn from, equally long; empty where nothing is to be drawn.

        >>> mark = Mark("dots", "observed", ("x", 0.5), only=("where", "inside"))
        >>> spec = Spec(Axis(), Axis(), (mark,), {"x": [1.0, 2.0], "where": ["inside", "outside"]}, ("x",))
        >>> spec.values(mark)
        [array([1.]), array([0.5])]
        """
        columns: Mapping[Any, Any] = self.columns
        read = [np.atleast_1d(np.asarray(columns.get(value, value))) for value in mark.values]
        if mark.only is None:
            return list(np.broadcast_arrays(*read))
        column, accepted = mark.only
        drawn = np.asarray(columns[column]) == accepted
        return [np.broadcast_to(value, drawn.shape)[drawn] for value in read]

    def legend(self) -> list[Mark]:
        """Return the marks with a label that draw something."""
        return [mark for mark in self.marks if mark.label and self.values(mark)[0].size]

    def cells(self) -> list[list[str]]:
        """Return the table of numbers as text, with the headings first."""
        known = [HEADINGS.get(name, (name, "text")) for name in self.table]
        columns = []
        for name, (heading, unit) in zip(self.table, known, strict=True):
            columns.append([heading, *(written(value, unit) for value in self.columns[name])])
        return [list(line) for line in zip(*columns, strict=True)]


def names_on_axis(names: Sequence[str]) -> Axis:
    """Return an axis with a name at each place, the first at the top."""
    fitting = tuple(shortened(" ".join(name.split()), 24) for name in names)
    return Axis("", -0.5, len(names) - 0.5, "text", fitting)


def columns_of(record: Any) -> dict[str, Any]:
    """Return the arrays of a record by the names of their fields."""
    return {name: values for name, values in vars(record).items() if isinstance(values, np.ndarray)}
