"""Tables with one column per class <-> contents, by the names of the columns; `.csv` and `.tsv` files.

A table has one part, the whole file. `parquet.py` reads and writes tables in another format.
"""

import csv
import gzip
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.files import MemoryBudget
from glayers.predictions.contents import (
    ARCHIVE_KEYS,
    FIELD_WORDS,
    SCORES,
    WHOLE_FILE,
    Contents,
    Parts,
    Portion,
    Reading,
    cells_of,
    group_ids,
    keys_by_part,
    listed,
    missing_message,
)

_EACH_CLASS = "_<class>"
COLUMN_KEYS = {f"logit{_EACH_CLASS}": (WHOLE_FILE, "logits")}
COLUMN_KEYS |= {f"{prefix}{_EACH_CLASS}": (WHOLE_FILE, "probabilities") for prefix in ("probability", "prob", "p")}
COLUMN_KEYS |= {
    word: (WHOLE_FILE, field)
    for field in ("confidence", "correct", "labels", "predicted", "weights", "counts", "groups")
    for word in FIELD_WORDS[field]
}
_DELIMITERS = {".csv": (",", "commas"), ".tsv": ("\t", "tabs")}
_CELL = 64  # bytes of memory that a cell of text takes besides its characters
_FORMULA = re.compile("'*[=+@-]")  # how a cell begins that spreadsheets would execute, or that we have escaped
_TRUE_OR_FALSE = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


@dataclass(frozen=True)
class Columns:
    """Named columns in the file's order: lists of text, or the arrays of a Parquet file.

    `place` says how a reader of the file would find a row. `block` returns several columns at once, or None if that is
    not possible. `unread` returns the cells of a column that means nothing here.
    """

    names: Sequence[str]
    cells: Callable[[str], list[str] | Array]
    place: Callable[[int], str]
    block: Callable[[list[str]], Array | None] = lambda _: None
    unread: Callable[[str], Any] | None = None

    def numbers(self, column: str, logits: bool = False) -> Array:
        """Return a column as finite numbers, or -inf in logits, or raise an error that names the first bad cell."""
        cells = self.cells(column)
        values: Any = cells
        if isinstance(cells, list):
            values = np.array([_number(cell) for cell in cells], np.float64)
        if values.dtype.kind not in "biuf":
            kind = type(cells[0]).__name__ if values.dtype == object else str(values.dtype)
            raise BadFile(f"column {column!r} holds {kind}; expected numbers: cast it")
        good = np.isfinite(values)
        if logits:
            good |= np.isneginf(values)
        bad = np.flatnonzero(~good)
        if not bad.size:
            return np.asarray(values)
        cell = str(cells[bad[0]])
        expected = "a finite number or -inf" if logits else "a finite number"
        raise self.bad_cell(column, bad[0], cell, "a number" if _number(cell) is None else expected)

    def scores(self, columns: list[str], logits: bool) -> Array:
        """Return several columns of finite numbers side by side, or raise an error that names the first bad cell."""
        block = self.block(columns)
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
        values = self.cells(column)
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
            return values
        cells = [cell if cell in number_of else cell.strip() for cell in map(str, values)]
        odd = [row for row, cell in enumerate(cells) if not _is_whole(cell)]
        if not odd:
            return np.array([_number(cell) for cell in cells])
        for row in (*odd, *range(len(cells))):
            if cells[row] not in number_of:
                expected = "a class number" if classes is None else f"one of the classes {listed(classes)}"
                raise self.bad_cell(column, row, cells[row], expected)
        return np.array([number_of[cell] for cell in cells])

    def correct(self, column: str) -> Array:
        """Return a column of true or false as booleans."""
        cells = [cell.strip().lower() for cell in map(str, self.cells(column))]
        for row, cell in enumerate(cells):
            if cell not in _TRUE_OR_FALSE:
                raise self.bad_cell(column, row, cell, "true or false, or 1 or 0")
        return np.array([_TRUE_OR_FALSE[cell] for cell in cells])

    def bad_cell(self, column: str, row: int, cell: str, expected: str) -> BadFile:
        """Return the error about one cell."""
        where = f"{self.place(row)}, column {column!r}"
        return BadFile(f"{where} has {cell[:40]!r}; expected {expected}: fix or remove that row")


def contents_of_table(table: Columns) -> Contents:
    """Return scores, labels, weights and groups by the names of the columns, and the other columns if they are read."""
    twice = [name for name, count in Counter(table.names).items() if count > 1]
    if twice:
        raise BadFile(f"the column {twice[0]!r} is there twice; rename or remove one")
    keys = list(dict.fromkeys(map(key_of_column, table.names)))
    key_of = keys_by_part(keys, COLUMN_KEYS)[WHOLE_FILE]
    fields: dict[str, Any] = {"no_labels": missing_message(WHOLE_FILE, keys, COLUMN_KEYS, "labels")}
    classes = None
    for field in key_of.keys() & set(SCORES):
        columns, classes = score_columns(table.names, key_of[field])
        fields[field] = table.scores(columns, field == "logits")
        fields["class_names"] = classes
    readers: dict[str, Callable[[str], Array]] = {
        "labels": partial(table.labels, classes=classes),
        "correct": table.correct,
        "groups": table.groups,
    }
    for field in key_of.keys() - set(SCORES):
        fields[field] = readers.get(field, table.numbers)(key_of[field])
    if table.unread is not None:
        fields["others"] = {name: table.unread(name) for name in table.names if not is_known(name)}
    return Contents(**fields)


def is_known(column: str) -> bool:
    """Return whether a column has a meaning here, or would have one as a key of another format."""
    return key_of_column(column) in COLUMN_KEYS or column in ARCHIVE_KEYS


def key_of_column(column: str) -> str:
    """Return the key that a column belongs to: its own name, or such as logit_<class> for the score of one class."""
    key = column.partition("_")[0] + _EACH_CLASS
    return key if key in COLUMN_KEYS else column


def score_columns(names: Sequence[str], key: str) -> tuple[list[str], tuple[str, ...] | None]:
    """Return the columns of the scores in the order of the classes, and the names of the classes if they have any.

    Whole numbers must be exactly 0..k-1, or label 2 could mean two things.
    """
    columns = [name for name in names if key_of_column(name) == key]
    prefix = key.removesuffix(_EACH_CLASS)
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


def known_names(names: Sequence[str], columns: Mapping[str, str]) -> list[str]:
    """Return the names by which the reader knows the columns of a file, of which `columns` says what some mean.

    >>> known_names(["c0", "c1", "y", "date"], {"logits": "c*", "labels": "y"})
    ['logit_0', 'logit_1', 'label', 'date']
    """
    known = {name: name for name in names}
    fields = [field for field in FIELD_WORDS if field not in ("class_names", "predicted")]
    for field, pattern in columns.items():
        if field not in fields:
            raise BadFile(f"unknown field {field!r} of a column; choose from {listed(fields)}")
        per_class = field in SCORES
        star = re.compile(re.escape(pattern).replace(r"\*", "(.*)"))
        matches = {name: match for name in names if (match := star.fullmatch(name))}
        if not matches or (len(matches) > 1 and not per_class) or pattern.count("*") > 1:
            raise BadFile(
                f"{len(matches)} columns match {pattern!r}, given for {field}; the columns are {listed(names)}. "
                f"Name one column, or for logits and probabilities all of them with one star, such as 'c*'"
            )
        for name, match in matches.items():
            known[name] = _column_name(field)
            if per_class and "*" in pattern:
                known[name] += f"_{match[1]}"
    return [known[name] for name in names]


def _column_name(field: str) -> str:
    return "probability" if field == "probabilities" else field.removesuffix("s")


def _number(cell: str) -> float | None:
    """Parse a number, if it is one; 1_0, which Python accepts, is more likely a typing error than ten."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _is_whole(cell: str) -> bool:
    number = _number(cell)
    return number is not None and number.is_integer()


def read_text(path: Path, reading: Reading, portion: Portion) -> Parts:
    """Read a comma- or tab-separated file, perhaps compressed by gzip."""
    return {WHOLE_FILE: _text_chunks(path, reading, portion)}


def _text_chunks(path: Path, reading: Reading, portion: Portion) -> Iterator[Contents]:
    name = path.name.lower()
    delimiter, delimiters = _DELIMITERS[Path(name.removesuffix(".gz")).suffix]
    opened = gzip.open if name.endswith(".gz") else open
    budget = portion.budget
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(_lines(stream, budget), delimiter=delimiter, strict=True)
            header = [name.strip() for name in next(reader, [])]
            if len(header) == 1:
                raise BadFile(f"has one column, {header[0][:80]!r}; put {delimiters} between the columns")
            names = known_names(header, reading.columns)
            lines = _numbered_rows(reader, len(header), budget)
            step = portion.rows_at_once(len(header))
            left = budget.left
            is_empty = True
            while chunk := list(itertools.islice(lines, step)):
                yield _text_contents(names, chunk, reading.others)
                budget.left = left  # a chunk gives back what it took
                is_empty = False
    except UnicodeDecodeError as error:
        raise BadFile(f"is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
    if is_empty:
        raise BadFile(f"has no rows under its header: {listed(header)}; write one line per row of predictions")


def _numbered_rows(reader: Any, n_cells: int, budget: MemoryBudget) -> Iterator[tuple[int, list[str]]]:
    """Yield rows with the numbers of their lines, after checking that they have all cells."""
    for row in reader:
        if row and len(row) != n_cells:
            place = f"line {reader.line_num}"
            raise BadFile(f"{place} has {len(row)} cells, but the header has {n_cells}; fix that line")
        if row:
            budget.spend(_CELL * n_cells)
            yield reader.line_num, row


def _text_contents(names: list[str], chunk: list[tuple[int, list[str]]], others: bool) -> Contents:
    def cells(column: str) -> list[str]:
        place = names.index(column)
        return [_unescaped(row[place]) for _, row in chunk]

    def place_of(row: int) -> str:
        return f"line {chunk[row][0]}"

    return contents_of_table(Columns(names, cells, place_of, unread=cells if others else None))


def _lines(stream: IO[str], budget: MemoryBudget) -> Iterator[str]:
    """Yield lines, and count their characters; a line may have no end."""
    while line := stream.readline(budget.left + 1):
        budget.spend(len(line))
        yield line


def columns_of(parts: Mapping[str, Contents]) -> dict[str, Any]:
    """Return the columns to write: the other ones first, then those that the reader expects."""
    if len(parts) != 1:
        raise BadFile(f"a table holds one part, not {listed(parts)}; choose one of them, or write .npz or .json")
    (contents,) = parts.values()
    columns: dict[str, Any] = dict(contents.others)
    names = None
    if contents.scores.ndim == 2 and contents.scores.shape[1] > 1:
        names = _names_for_columns(contents.class_names)
    for field, values in vars(contents).items():
        if not isinstance(values, np.ndarray):
            continue
        if values.ndim == 2:
            columns |= _score_columns(field, values, names)
        elif field in ("labels", "predicted") and names is not None:
            columns[_column_name(field)] = [names[number] for number in values]
        else:
            columns[_column_name(field)] = values
    return columns


def _score_columns(field: str, scores: Array, names: tuple[str, ...] | None) -> dict[str, Array]:
    """Return one column per class; a single score is that of class 1, and its column names no class 0."""
    n_columns = scores.shape[1]
    classes = ["1"] if n_columns == 1 else names or [str(number) for number in range(n_columns)]
    return {f"{_column_name(field)}_{name}": scores[:, number] for number, name in enumerate(classes)}


def _names_for_columns(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return class names if columns can carry them: the reader takes numbers for class numbers and strips spaces."""
    for name in names or ():
        if name == "" or not name.isprintable() or name != name.strip() or _number(name) is not None:
            return None
    return names


def text_bytes(parts: Mapping[str, Contents], delimiter: str) -> bytes:
    """Return the columns as text under a header."""
    columns = {name: cells_of(values) for name, values in columns_of(parts).items()}
    for group in map(str, columns.get("group", [])):
        if not group.isprintable():
            raise BadFile(f"the group {group[:40]!r} holds characters that a line of text cannot; write .npz or .json")
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(map(_escaped, cells) for cells in columns.values()), strict=True))
    return stream.getvalue().encode()


def _escaped(cell: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would execute as a formula; numbers stay numbers.

    >>> _escaped("=1+1"), _escaped("-2"), _escaped(-2), _escaped({"a": 1})
    ("'=1+1", '-2', -2, '{"a": 1}')
    """
    if isinstance(cell, dict | list):  # of another format
        return json.dumps(cell, default=str)
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) and _number(cell) is None else cell


def _unescaped(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) else cell


def gzipped_bytes(parts: Mapping[str, Contents], delimiter: str) -> bytes:
    """Return the columns as compressed text."""
    return gzip.compress(text_bytes(parts, delimiter), mtime=0)


TEXT_WRITERS: dict[str, Callable[[Mapping[str, Contents]], bytes]] = {
    ".csv": partial(text_bytes, delimiter=","),
    ".csv.gz": partial(gzipped_bytes, delimiter=","),
    ".tsv": partial(text_bytes, delimiter="\t"),
    ".tsv.gz": partial(gzipped_bytes, delimiter="\t"),
}
