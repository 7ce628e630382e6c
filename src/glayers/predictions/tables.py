"""Tables with one column a class -> logits, labels and class names, by the names of the columns."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import final

import numpy as np

from glayers.arrays import Array, Floats
from glayers.errors import BadFile
from glayers.predictions.contents import FIELD_WORDS, Contents, field_of, listed

SCORE_PREFIXES = {"logits": ("logit",), "probabilities": ("probability", "prob", "p")}


class Table(ABC):
    """Named columns of equal length."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The columns, in the file's order."""

    @abstractmethod
    def numbers(self, column: str) -> Array:
        """Return a column as numbers, or say which cell is none."""

    @abstractmethod
    def texts(self, column: str) -> list[str]:
        """Return a column as it is written."""

    @abstractmethod
    def groups(self, column: str) -> Array:
        """Return a column as numbers or text, whichever it is."""

    @abstractmethod
    def place(self, row: int) -> str:
        """Say where a row stands, in the words of the file's reader."""


@final
class TextTable(Table):
    """Rows of text cells, each with the line it ended on."""

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[str]], lines: Sequence[int]) -> None:
        self._names, self._rows, self._lines = names, rows, lines
        self._index = {name: index for index, name in enumerate(names)}

    @property
    def names(self) -> Sequence[str]:
        """The columns, in the file's order."""
        return self._names

    def numbers(self, column: str) -> Floats:
        """Return a column as float64."""
        cells = self.texts(column)
        try:
            return np.array([_number(cell) for cell in cells])
        except ValueError:
            row = next(row for row, cell in enumerate(cells) if not _is_number(cell))
            raise _bad_cell(self, column, row, cells[row], "a number") from None

    def texts(self, column: str) -> list[str]:
        """Return a column as it is written."""
        index = self._index[column]
        return [row[index] for row in self._rows]

    def groups(self, column: str) -> Array:
        """Return a column as text."""
        return np.array(self.texts(column))

    def place(self, row: int) -> str:
        """Say where a row stands, in the words of the file's reader."""
        return f"line {self._lines[row]}"


def contents_of(table: Table) -> Contents:
    """Read scores, labels, weights and groups by the names of the columns."""
    twice = [name for name, count in Counter(table.names).items() if count > 1]
    if twice:
        raise BadFile(f"the column {twice[0]!r} is there twice; rename or remove one")
    field, prefix, columns = _score_columns(table.names)
    classes = _classes(columns, prefix)
    if classes is not None and all(_is_whole(name) for name in classes):
        columns = [f"{prefix}_{number}" for number in range(len(classes))]  # label 2 must mean column logit_2
        classes = None
    scores = np.stack([_finite(table, column) for column in columns], axis=1)
    extras = {name: _column_for(table.names, name) for name in ("labels", "weights", "groups")}
    words = FIELD_WORDS["labels"]
    return Contents(
        labels=None if extras["labels"] is None else _labels(table, extras["labels"], classes),
        logits=scores if field == "logits" else None,
        probabilities=scores if field == "probabilities" else None,
        weights=None if extras["weights"] is None else _finite(table, extras["weights"]),
        groups=None if extras["groups"] is None else table.groups(extras["groups"]),
        class_names=classes,
        no_labels=f"no label column: found {listed(table.names)}; expected one of {listed(words)}",
    )


def is_known(column: str) -> bool:
    """Whether a column of this name would be read."""
    prefixes = (prefix for spellings in SCORE_PREFIXES.values() for prefix in spellings)
    return field_of(column) is not None or any(_with_prefix([column], prefix) for prefix in prefixes)


def _score_columns(names: Sequence[str]) -> tuple[str, str, list[str]]:
    """Return the field, the prefix and the columns of the scores; logits win over probabilities."""
    for field, prefixes in SCORE_PREFIXES.items():
        found = {prefix: _with_prefix(names, prefix) for prefix in prefixes}
        found = {prefix: columns for prefix, columns in found.items() if columns}
        if len(found) > 1:
            raise BadFile(f"the columns {listed(c[0] for c in found.values())} all say {field}; keep one spelling")
        for prefix, columns in found.items():
            return field, prefix, columns
    raise BadFile(
        f"no column of logits or probabilities: found {listed(names)}; expected a header with "
        f"logit_<class> or probability_<class> for each class, and label"
    )


def _with_prefix(names: Sequence[str], prefix: str) -> list[str]:
    return [name for name in names if name == prefix or name.startswith(f"{prefix}_")]


def _classes(columns: Sequence[str], prefix: str) -> tuple[str, ...] | None:
    """Class names by column; whole numbers must be exactly 0..k-1, or label 2 could mean two things."""
    if len(columns) == 1:  # a binary model with one score, which has no name for class 0
        _refuse_other_than_class_1(columns[0], prefix)
        return None
    classes = tuple(column.removeprefix(prefix).removeprefix("_") for column in columns)
    if "" in classes:
        raise BadFile(f"the column {prefix!r} stands beside {columns[1]!r} and names no class; rename or remove it")
    numbered = [name for name in classes if _is_whole(name)]
    if numbered and set(classes) != {str(number) for number in range(len(classes))}:
        raise BadFile(
            f"the class number {numbered[0]} in column {prefix}_{numbered[0]} is not one of a full set: "
            f"number the classes 0..{len(classes) - 1}, or name all of them with words"
        )
    return classes


def _refuse_other_than_class_1(column: str, prefix: str) -> None:
    name = column.removeprefix(prefix).removeprefix("_")
    if _is_whole(name) and name != "1":
        raise BadFile(
            f"the column {column!r} stands alone, and one score is read as that of class 1; "
            f"name it {prefix}_1, or give both {prefix}_0 and {prefix}_1"
        )


def _column_for(names: Sequence[str], field: str) -> str | None:
    found = [name for name in names if field_of(name) == field]
    if len(found) > 1:
        raise BadFile(f"both columns {found[0]!r} and {found[1]!r} are {field}; keep one of them")
    return found[0] if found else None


def _labels(table: Table, column: str, classes: tuple[str, ...] | None) -> Array:
    """Class numbers, or the numbers of class names where the labels are names."""
    number_of = {name: number for number, name in enumerate(classes or ())}
    cells = [cell if cell in number_of else cell.strip() for cell in table.texts(column)]
    odd = [row for row, cell in enumerate(cells) if not _is_whole(cell)]
    if not odd:
        return np.array([_number(cell) for cell in cells])
    if classes is None:
        raise _bad_cell(table, column, odd[0], cells[odd[0]], "a class number")
    unknown = [row for row in (*odd, *range(len(cells))) if cells[row] not in number_of]
    if unknown:
        raise _bad_cell(table, column, unknown[0], cells[unknown[0]], f"one of the classes {listed(classes)}")
    return np.array([number_of[cell] for cell in cells])


def _finite(table: Table, column: str) -> Array:
    values = table.numbers(column)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise _bad_cell(table, column, int(bad[0]), str(values[bad[0]]), "a finite number")
    return values


def _bad_cell(table: Table, column: str, row: int, cell: str, expected: str) -> BadFile:
    return BadFile(
        f"{table.place(row)}, column {column!r} has {cell[:40]!r}; expected {expected}: mend or drop that row"
    )


def _number(cell: str) -> float:
    """Read a number as files write them: Python's own 1_0 is more likely a slip than ten."""
    if "_" in cell:
        raise ValueError(cell)
    return float(cell)


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def _is_whole(cell: str) -> bool:
    return _is_number(cell) and _number(cell).is_integer()
