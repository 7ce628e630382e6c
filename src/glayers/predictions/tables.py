"""Tables with one column per class <-> contents, by the names of the columns; `.csv` and `.tsv` files.

A table has one part, the whole file. `parquet.py` reads and writes tables in another format. Text is read by the
standard library: pyarrow takes 150 MB on the disk, and its errors name no line and no column.
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
    Chunks,
    Contents,
    Parts,
    Portion,
    Reading,
    cells_of,
    keys_by_part,
    listed,
    only_part,
)

_EACH_CLASS = "_<class>"
COLUMN_KEYS = {f"logit{_EACH_CLASS}": (WHOLE_FILE, "logits")}
COLUMN_KEYS |= {f"{prefix}{_EACH_CLASS}": (WHOLE_FILE, "probabilities") for prefix in ("probability", "prob", "p")}
COLUMN_KEYS |= {
    word: (WHOLE_FILE, field)
    for field in ("confidence", "correct", "labels", "predicted", "weights", "counts", "groups")
    for word in FIELD_WORDS[field]
}
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_CELL = 64  # bytes of memory that a cell of text takes besides its characters
_FORMULA = re.compile("'*[=+@-]")  # how a cell begins that spreadsheets would execute, or that we have escaped
_TRUE_OR_FALSE = dict.fromkeys(("true", "True", "TRUE"), 1.0) | dict.fromkeys(("false", "False", "FALSE"), 0.0)


@dataclass(frozen=True)
class Columns:
    """Columns by name, each an array of numbers or of text; `place` says how a reader of the file would find a row."""

    cells: Mapping[str, Array]
    place: Callable[[int], str]

    def numbers(
        self,
        column: str,
        good: Callable[[Array], Array] = np.isfinite,
        words: Mapping[str, float] | None = None,
        expected: str = "a finite number",
    ) -> Array:
        """Return a column as numbers, for which words may stand, or raise an error that names the first bad cell."""
        cells = self.cells[column]
        values = cells
        if cells.dtype == object:
            values = np.array([_number(cell, words or {}) for cell in cells], np.float64)
        bad = np.flatnonzero(~good(values))
        if bad.size:
            where = f"{self.place(bad[0])}, column {column!r}"
            raise BadFile(f"{where} has {str(cells[bad[0]])[:40]!r}; expected {expected}: fix or remove that row")
        return values


def _number(cell: str, words: Mapping[str, float]) -> float | None:
    """Parse a word or a number, if it is one; 1_0, which Python accepts, is more likely a typing error than ten."""
    for word in (cell, cell.strip()):
        if word in words:
            return words[word]
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _is_whole(values: Array) -> Any:
    return np.isfinite(values) & (values == np.floor(values))


def _is_logit(values: Array) -> Any:
    return values < np.inf  # -inf marks an impossible class


def _is_zero_or_one(values: Array) -> Any:
    return (values == 0) | (values == 1)


def contents_of_table(table: Columns, others: Mapping[str, Any] | None = None) -> Contents:
    """Return scores, labels, weights and groups by the names of the columns."""
    keys = list(dict.fromkeys(map(key_of_column, table.cells)))
    key_of = keys_by_part(keys, COLUMN_KEYS)[WHOLE_FILE]
    fields: dict[str, Any] = {}
    classes: tuple[str, ...] = ()
    for field, key in key_of.items():  # scores come first
        if field in SCORES:
            columns, classes = score_columns(list(table.cells), key)
            rule = (_is_logit, None, "a finite number or -inf") if field == "logits" else ()
            fields[field] = np.stack([table.numbers(column, *rule) for column in columns], axis=1)
            fields["class_names"] = classes or None
        elif field == "labels":
            number_of = {name: float(number) for number, name in enumerate(classes)}
            expected = f"a class number or one of the classes {listed(classes)}"
            fields[field] = table.numbers(key, _is_whole, number_of, expected)
        elif field == "correct":
            fields[field] = table.numbers(key, _is_zero_or_one, _TRUE_OR_FALSE, "true or false, or 1 or 0") == 1
        elif field == "groups":
            fields[field] = table.cells[key]
        else:
            fields[field] = table.numbers(key)
    return Contents(**fields, others=others or {})


def is_known(column: str) -> bool:
    """Return whether a column has a meaning here, or would have one as a key of another format."""
    return key_of_column(column) in COLUMN_KEYS or column in ARCHIVE_KEYS


def key_of_column(column: str) -> str:
    """Return the key that a column belongs to: its own name, or such as logit_<class> for the score of one class."""
    key = column.partition("_")[0] + _EACH_CLASS
    return key if key in COLUMN_KEYS else column


def score_columns(names: Sequence[str], key: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the columns of the scores in the order of the classes, and the names of the classes if they have any.

    Whole numbers must be exactly 0..k-1, or label 2 could mean two things.
    """
    columns = [name for name in names if key_of_column(name) == key]
    prefix = key.removesuffix(_EACH_CLASS)
    classes = tuple(column.removeprefix(prefix).removeprefix("_") for column in columns)
    numbered = [name for name in classes if _is_class_number(name)]
    if len(columns) == 1:  # a binary model with one score, which has no name for class 0
        if numbered not in ([], ["1"]):
            raise BadFile(
                f"the column {columns[0]!r} stands alone, and a single score is read as that of class 1; "
                f"name it {prefix}_1, or give both {prefix}_0 and {prefix}_1"
            )
        return columns, ()
    if "" in classes:
        raise BadFile(f"the column {prefix!r} stands beside {columns[1]!r} and names no class; rename or remove it")
    if not numbered:
        return columns, classes
    if set(classes) != {str(number) for number in range(len(classes))}:
        raise BadFile(
            f"the class number {numbered[0]} in column {prefix}_{numbered[0]} is not one of a full set: "
            f"number the classes 0..{len(classes) - 1}, or name all of them with words"
        )
    return [f"{prefix}_{number}" for number in range(len(classes))], ()  # label 2 must mean column logit_2


def _is_class_number(name: str) -> bool:
    number = _number(name, {})
    return number is not None and number.is_integer()


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
        star = re.compile(re.escape(pattern).replace(r"\*", "(.*)"))
        matches = [match for match in map(star.fullmatch, names) if match]
        if not matches or (len(matches) > 1 and field not in SCORES) or pattern.count("*") > 1:
            raise BadFile(
                f"{len(matches)} columns match {pattern!r}, given for {field}; the columns are {listed(names)}. "
                f"Name one column, or for logits and probabilities all of them with one star, such as 'c*'"
            )
        for match in matches:
            classes = match.groups() if field in SCORES else ()
            known[match[0]] = "_".join([_column_name(field), *classes])
    found = [known[name] for name in names]
    twice = [name for name, count in Counter(found).items() if count > 1]
    if twice:
        raise BadFile(f"the column {twice[0]!r} is there twice; rename or remove one")
    return found


def _column_name(field: str) -> str:
    return "probability" if field == "probabilities" else field.removesuffix("s")


def read_text(path: Path, reading: Reading, portion: Portion) -> Chunks:
    """Read a comma- or tab-separated file, perhaps compressed by gzip."""
    name = path.name.lower()
    ending = Path(name.removesuffix(".gz")).suffix
    opened = gzip.open if name.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(_lines(stream, portion.budget), delimiter=_DELIMITERS[ending], strict=True)
            yield from _text_chunks(reader, reading, portion)
    except UnicodeDecodeError as error:
        raise BadFile(f"is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error


def _text_chunks(reader: Any, reading: Reading, portion: Portion) -> Chunks:
    header = [name.strip() for name in next(reader, [])]
    if len(header) == 1:
        raise BadFile(f"has one column, {header[0][:80]!r}; put commas, or in .tsv tabs, between the columns")
    names = known_names(header, reading.columns)
    lines = _numbered_rows(reader, len(header), portion.budget)
    left = portion.budget.left
    is_empty = True
    while chunk := list(itertools.islice(lines, portion.rows_at_once(len(header)))):
        yield {WHOLE_FILE: _text_contents(names, chunk, reading.others)}
        portion.budget.left = left  # a chunk gives back what it took
        is_empty = False
    if is_empty:
        raise BadFile(f"has no rows under its header: {listed(header)}; write one line per row of predictions")


def _lines(stream: IO[str], budget: MemoryBudget) -> Iterator[str]:
    """Yield lines, and count their characters; a line may have no end."""
    while line := stream.readline(budget.left + 1):
        budget.spend(len(line))
        yield line


def _numbered_rows(reader: Any, n_cells: int, budget: MemoryBudget) -> Iterator[tuple[int, list[str]]]:
    """Yield rows with the numbers of their lines, after checking that they have all cells."""
    for row in reader:
        if row and len(row) != n_cells:
            raise BadFile(f"line {reader.line_num} has {len(row)} cells, but the header has {n_cells}; fix that line")
        if row:
            budget.spend(_CELL * n_cells)
            yield reader.line_num, row


def _text_contents(names: list[str], chunk: list[tuple[int, list[str]]], others: bool) -> Contents:
    columns = {}
    for place, name in enumerate(names):
        if is_known(name) or others:
            columns[name] = text_array([_unescaped(row[place]) for _, row in chunk])
        else:
            columns[name] = np.empty(0, object)
    unknown = {name: cells for name, cells in columns.items() if others and not is_known(name)}
    return contents_of_table(Columns(columns, lambda row: f"line {chunk[row][0]}"), unknown)


def text_array(cells: Sequence[Any]) -> Array:
    """Return text as objects: an array of text would have every row as long as the longest."""
    array = np.empty(len(cells), object)
    array[:] = cells
    return array


def columns_of(parts: Parts) -> dict[str, Any]:
    """Return the columns to write: the other ones first, then those that the reader expects."""
    contents = only_part(parts)
    columns: dict[str, Any] = dict(contents.others)
    names: Sequence[str] = ()
    if contents.scores.shape[1:] > (1,):
        names = _names_for_columns(contents.class_names or ())
    for field, values in contents.arrays().items():
        if values.ndim == 2:
            columns |= _score_columns(field, values, names)
        elif field in ("labels", "predicted") and names:
            columns[_column_name(field)] = [names[number] for number in values]
        else:
            columns[_column_name(field)] = values
    return columns


def _score_columns(field: str, scores: Array, names: Sequence[str]) -> dict[str, Array]:
    """Return one column per class; a single score is that of class 1, and its column names no class 0."""
    n_columns = scores.shape[1]
    classes: Sequence[Any] = names or range(n_columns)
    if n_columns == 1:
        classes = [1]
    return {f"{_column_name(field)}_{name}": scores[:, number] for number, name in enumerate(classes)}


def _names_for_columns(names: Sequence[str]) -> Sequence[str]:
    """Return class names if columns can carry them: the reader takes numbers for class numbers and strips spaces."""
    for name in names:
        if name == "" or not name.isprintable() or name != name.strip() or _number(name, {}) is not None:
            return ()
    return names


def text_bytes(parts: Parts, delimiter: str) -> bytes:
    """Return the columns as text under a header."""
    columns = {name: cells_of(values) for name, values in columns_of(parts).items()}
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(map(_escaped, cells) for cells in columns.values()), strict=True))
    try:
        return stream.getvalue().encode()
    except UnicodeEncodeError as error:
        raise BadFile(f"holds text that UTF-8 cannot hold ({error.reason}); write .npz or .json") from error


def _escaped(cell: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would execute as a formula; numbers stay numbers.

    >>> _escaped("=1+1"), _escaped("-2"), _escaped(-2), _escaped({"a": 1})
    ("'=1+1", '-2', -2, '{"a": 1}')
    """
    if isinstance(cell, dict | list):  # of another format
        return json.dumps(cell, default=str)
    if not isinstance(cell, str):
        return cell
    if _FORMULA.match(cell) and _number(cell, {}) is None:
        cell = f"'{cell}"
    return cell.replace("\r\n", "\n").replace("\r", "\n")  # which csv would leave without quotes


def _unescaped(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) else cell


def gzipped_bytes(parts: Parts, delimiter: str) -> bytes:
    """Return the columns as compressed text."""
    return gzip.compress(text_bytes(parts, delimiter), mtime=0)


TEXT_WRITERS: dict[str, Callable[[Parts], bytes]] = {
    ".csv": partial(text_bytes, delimiter=","),
    ".csv.gz": partial(gzipped_bytes, delimiter=","),
    ".tsv": partial(text_bytes, delimiter="\t"),
    ".tsv.gz": partial(gzipped_bytes, delimiter="\t"),
}
