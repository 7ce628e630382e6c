"""Tables with one column per class <-> contents, by the names of the columns; `.csv` and `.tsv` files.

A table has one part, the whole file. `parquet.py` reads and writes tables in another format.
"""

import csv
import gzip
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.files import Room
from glayers.predictions.contents import FIELD_WORDS, WHOLE_FILE, Contents, contents_by_part, group_ids, listed

ColumnsOf: TypeAlias = Mapping[str, str]  # by field: the name of its column, or a pattern with a star
NO_COLUMNS: ColumnsOf = {}
_EACH_CLASS = "_<class>"
COLUMN_KEYS = {f"logit{_EACH_CLASS}": (WHOLE_FILE, "logits")}
COLUMN_KEYS |= {f"{prefix}{_EACH_CLASS}": (WHOLE_FILE, "probabilities") for prefix in ("probability", "prob", "p")}
COLUMN_KEYS |= {
    word: (WHOLE_FILE, field)
    for field in ("confidence", "correct", "labels", "weights", "counts", "groups")
    for word in FIELD_WORDS[field]
}
_DELIMITERS = {".csv": (",", "commas"), ".tsv": ("\t", "tabs")}
_CELL = 64  # bytes of memory that a cell of text takes besides its characters
_FORMULA = re.compile("'*[=+@-]")  # how a cell begins that spreadsheets would execute, or that we have escaped
_TRUE_OR_FALSE = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


@dataclass(frozen=True)
class Columns:
    """Named columns in the file's order: lists of text, or the arrays of a Parquet file.

    `place` says how a reader of the file would find a row.
    """

    names: Sequence[str]
    cells: Callable[[str], list[str] | Array]
    place: Callable[[int], str]
    block: Callable[[list[str]], Array | None] | None = None  # several columns at once, if that is faster

    def renamed(self, own: Mapping[str, str]) -> "Columns":
        """Return the same columns by the names that the reader knows; `own` is the file's name of each."""
        known = {old: new for new, old in own.items()}
        names = [known.get(name, name) for name in self.names]
        whole = self.block
        block = None if whole is None else lambda several: whole([own.get(n, n) for n in several])
        return Columns(names, lambda n: self.cells(own.get(n, n)), self.place, block)

    def numbers(self, column: str, logits: bool = False) -> Array:
        """Return a column as finite numbers, or -inf in logits, or raise an error that names the first bad cell."""
        cells = self.cells(column)
        values = np.array([_number(cell) for cell in cells], np.float64) if isinstance(cells, list) else cells
        if values.dtype.kind not in "biuf":
            raise BadFile(f"column {column!r} holds {_kind(cells)}; expected numbers: cast it")
        bad = np.flatnonzero(~(np.isfinite(values) | (logits & np.isneginf(values))))
        if bad.size:
            cell, finite = str(cells[bad[0]]), f"a finite number{' or -inf' if logits else ''}"
            raise self.bad_cell(column, bad[0], cell, "a number" if _number(cell) is None else finite)
        return values

    def scores(self, columns: list[str], logits: bool) -> Array:
        """Return several columns of finite numbers side by side, or raise an error that names the first bad cell."""
        block = None if self.block is None else self.block(columns)
        if block is not None and np.isfinite(block).all():
            return block
        return np.stack([self.numbers(column, logits) for column in columns], axis=1)

    def groups(self, column: str) -> Array:
        """Return a column as numbers or text, as the file has it."""
        cells = self.cells(column)
        return group_ids(list(cells)) if isinstance(cells, list) or cells.dtype == object else cells

    def labels(self, column: str, classes: tuple[str, ...] | None) -> Array:
        """Return class numbers, looked up by name if the labels are names."""
        number_of = {name: number for number, name in enumerate(classes or ())}
        given = self.cells(column)
        if isinstance(given, np.ndarray) and given.dtype.kind in "iu":
            return given
        cells = [cell if cell in number_of else cell.strip() for cell in map(str, given)]
        odd = [row for row, cell in enumerate(cells) if not _is_whole(cell)]
        if not odd:
            return np.array([_number(cell) for cell in cells])
        unknown = [row for row in (*odd, *range(len(cells))) if cells[row] not in number_of]
        if unknown:
            expected = "a class number" if classes is None else f"one of the classes {listed(classes)}"
            raise self.bad_cell(column, unknown[0], cells[unknown[0]], expected)
        return np.array([number_of[cell] for cell in cells])

    def correct(self, column: str) -> Array:
        """Return a column of true or false as booleans."""
        cells = [cell.strip().lower() for cell in map(str, self.cells(column))]
        odd = next((row for row, cell in enumerate(cells) if cell not in _TRUE_OR_FALSE), None)
        if odd is not None:
            raise self.bad_cell(column, odd, cells[odd], "true or false, or 1 or 0")
        return np.array([_TRUE_OR_FALSE[cell] for cell in cells])

    def bad_cell(self, column: str, row: int, cell: str, expected: str) -> BadFile:
        """Return the error about one cell."""
        where = f"{self.place(row)}, column {column!r}"
        return BadFile(f"{where} has {cell[:40]!r}; expected {expected}: fix or remove that row")


def read_text(path: Path, room: Room, columns: ColumnsOf = NO_COLUMNS) -> dict[str, Contents]:
    """Read a comma- or tab-separated file, perhaps compressed by gzip."""
    return next(text_chunks(path, room, columns))


def text_chunks(
    path: Path, room: Room, columns: ColumnsOf = NO_COLUMNS, cells_at_once: float = math.inf
) -> Iterator[dict[str, Contents]]:
    """Read a comma- or tab-separated file some rows at a time; what a chunk took of the room is given back."""
    name = path.name.lower()
    delimiter, delimiters = _DELIMITERS[Path(name.removesuffix(".gz")).suffix]
    opened = gzip.open if name.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(_lines(stream, room), delimiter=delimiter, strict=True)
            names = [name.strip() for name in next(reader, [])]
            rows, lines, left, found = [], [], room.left, False
            for row in reader:
                if row and len(row) != len(names):
                    place = f"line {reader.line_num}"
                    raise BadFile(f"{place} has {len(row)} cells, but the header has {len(names)}; fix that line")
                if row:
                    room.take(_CELL * len(row))
                    rows.append(row)
                    lines.append(reader.line_num)
                if len(rows) * len(names) >= cells_at_once:
                    yield _text_contents(names, rows, lines, columns, delimiters)
                    rows, lines, room.left, found = [], [], left, True
    except UnicodeDecodeError as error:
        raise BadFile(f"is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
    if rows:
        yield _text_contents(names, rows, lines, columns, delimiters)
    elif not found:
        raise BadFile(f"has no rows under its header: {listed(names)}; write one line per row of predictions")


def _text_contents(
    names: list[str], rows: list[list[str]], lines: list[int], columns: ColumnsOf, delimiters: str
) -> dict[str, Contents]:
    if len(names) == 1:
        raise BadFile(f"has one column, {names[0][:80]!r}; put {delimiters} between the columns")

    def cells(column: str) -> list[str]:
        place = names.index(column)
        return [_unescaped(row[place]) for row in rows]

    table = Columns(names, cells, lambda row: f"line {lines[row]}")
    return contents_of_table(table.renamed(own_names(names, columns)))


def _lines(stream: IO[str], room: Room) -> Iterator[str]:
    """Yield lines, and count their characters; a line may have no end."""
    while line := stream.readline(room.left + 1):
        room.take(len(line))
        yield line


def own_names(names: Sequence[str], columns: ColumnsOf) -> dict[str, str]:
    """Return the file's own name of each column that the reader knows by another name.

    >>> own_names(["c0", "c1", "y"], {"logits": "c*", "labels": "y"})
    {'logit_0': 'c0', 'logit_1': 'c1', 'label': 'y'}
    """
    own: dict[str, str] = {}
    for field, pattern in columns.items():
        if field not in FIELD_WORDS or field == "class_names":
            known = listed(word for word in FIELD_WORDS if word != "class_names")
            raise BadFile(f"unknown field {field!r} of a column; choose from {known}")
        several = field in ("logits", "probabilities")
        star = re.compile(re.escape(pattern).replace(r"\*", "(.*)"))
        found = {name: match for name in names if (match := star.fullmatch(name))}
        if not found or (len(found) > 1 and not several) or pattern.count("*") > 1:
            raise BadFile(
                f"{len(found)} columns match {pattern!r}, given for {field}; the columns are {listed(names)}. "
                f"Name one column, or for logits and probabilities all of them with one star, such as 'c*'"
            )
        word = "probability" if field == "probabilities" else field.removesuffix("s")
        own |= {f"{word}_{match[1]}" if several and "*" in pattern else word: name for name, match in found.items()}
    return own


def text_bytes(parts: Mapping[str, Contents], delimiter: str) -> bytes:
    """Return the columns as text under a header."""
    columns = columns_of(parts)
    odd = next((group for group in map(str, columns.get("group", [])) if not group.isprintable()), None)
    if odd is not None:
        raise BadFile(f"the group {odd[:40]!r} holds characters that a line of text cannot; write .npz or .json")
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(map(_escaped, cells) for cells in columns.values()), strict=True))
    return stream.getvalue().encode()


def _escaped(cell: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would execute as a formula; numbers stay numbers.

    >>> _escaped("=1+1"), _escaped("-2"), _escaped(-2), _escaped("cat")
    ("'=1+1", '-2', -2, 'cat')
    """
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) and _number(cell) is None else cell


def _unescaped(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) else cell


def contents_of_table(table: Columns) -> dict[str, Contents]:
    """Return the one part of a table."""
    twice = [name for name, count in Counter(table.names).items() if count > 1]
    if twice:
        raise BadFile(f"the column {twice[0]!r} is there twice; rename or remove one")
    return contents_by_part(dict.fromkeys(map(key_of_column, table.names)), COLUMN_KEYS, partial(_read_fields, table))


def key_of_column(column: str) -> str:
    """Return the key that a column belongs to: its own name, or such as logit_<class> for the score of one class."""
    key = column.partition("_")[0] + _EACH_CLASS
    return key if key in COLUMN_KEYS else column


def _read_fields(table: Columns, key_of: dict[str, str]) -> dict[str, Any]:
    """Read scores, labels, weights and groups by the names of the columns."""
    readers: dict[str, Callable[[str], Array]] = {"correct": table.correct, "groups": table.groups}
    readers |= dict.fromkeys(("confidence", "weights", "counts"), table.numbers)
    values: dict[str, Any] = {field: readers[field](key) for field, key in key_of.items() if field in readers}
    for field in key_of.keys() & {"logits", "probabilities"}:
        columns, classes = score_columns(table.names, key_of[field])
        values[field] = table.scores(columns, field == "logits")
        values["class_names"] = classes
        if "labels" in key_of:
            values["labels"] = table.labels(key_of["labels"], classes)
    return values


def score_columns(names: Sequence[str], key: str) -> tuple[list[str], tuple[str, ...] | None]:
    """Return the columns of the scores in the order of the classes, and the names of the classes if they have any.

    Whole numbers must be exactly 0..k-1, or label 2 could mean two things.
    """
    columns, prefix = [name for name in names if key_of_column(name) == key], key.removesuffix(_EACH_CLASS)
    classes = tuple(column.removeprefix(prefix).removeprefix("_") for column in columns)
    if len(columns) == 1:  # a binary model with one score, which has no name for class 0
        if _is_whole(classes[0]) and classes[0] != "1":
            raise BadFile(
                f"the column {columns[0]!r} stands alone, and a single score is read as that of class 1; "
                f"name it {prefix}_1, or give both {prefix}_0 and {prefix}_1"
            )
        return columns, None
    if "" in classes:
        raise BadFile(f"the column {prefix!r} stands beside {columns[1]!r} and names no class; rename or remove it")
    numbered = [name for name in classes if _is_whole(name)]
    if not numbered:
        return columns, classes
    if set(classes) != {str(number) for number in range(len(classes))}:
        raise BadFile(
            f"the class number {numbered[0]} in column {prefix}_{numbered[0]} is not one of a full set: "
            f"number the classes 0..{len(classes) - 1}, or name all of them with words"
        )
    return [f"{prefix}_{number}" for number in range(len(classes))], None  # label 2 must mean column logit_2


def _kind(cells: list[str] | Array) -> str:
    """Return what a column holds, in words."""
    return type(cells[0]).__name__ if isinstance(cells, list) or cells.dtype == object else str(cells.dtype)


def _number(cell: str) -> float | None:
    """Parse a number, if it is one; 1_0, which Python accepts, is more likely a typing error than ten."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _is_whole(cell: str) -> bool:
    number = _number(cell)
    return number is not None and number.is_integer()


def columns_of(parts: Mapping[str, Contents], arrays: bool = False) -> dict[str, Any]:
    """Return the columns that the reader expects, as lists or arrays; labels are names if columns are."""
    if len(parts) != 1:
        raise BadFile(f"a table holds one part, not {listed(parts)}; choose one of them, or write .npz or .json")
    contents = next(iter(parts.values()))
    columns: dict[str, Any] = {}
    names: Sequence[str | int] = ()
    for field, values in vars(contents).items():
        name = "probability" if field == "probabilities" else field.removesuffix("s")
        if not isinstance(values, np.ndarray):
            continue
        if values.ndim == 2:
            several = values.shape[1] > 1
            names = (_names_for_columns(contents.class_names) if several else None) or range(max(2, values.shape[1]))
            # A single score is that of class 1, and its column names no class 0.
            shown = names if several else names[1:]
            columns |= {f"{name}_{each}": values[:, number] for number, each in enumerate(shown)}
        elif field == "labels" and not isinstance(names, range):
            columns[name] = [names[number] for number in values]
        else:
            columns[name] = values
    return (
        columns
        if arrays
        else {name: values.tolist() if isinstance(values, np.ndarray) else values for name, values in columns.items()}
    )


def _names_for_columns(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return class names if columns can carry them: the reader takes numbers for class numbers and strips spaces."""
    fit = names is not None and all(
        name != "" and name.isprintable() and name == name.strip() and _number(name) is None for name in names
    )
    return names if fit else None


TEXT_READERS = dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), read_text)
TEXT_WRITERS: dict[str, Callable[[Mapping[str, Contents]], bytes]] = {
    ending: partial(text_bytes, delimiter=delimiter) for ending, (delimiter, _) in _DELIMITERS.items()
}
