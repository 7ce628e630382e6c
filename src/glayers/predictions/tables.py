"""Tables with one column per class <-> contents, by the names of the columns; `.csv` and `.tsv` files.

A table has one part, the whole file. `parquet.py` reads and writes tables in another format. Text is read by the
standard library: pyarrow takes 150 MB on the disk, and its errors name no line and no column.
"""

import csv
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.files import check_size
from glayers.predictions.array_files import TEXT_FACTOR
from glayers.predictions.contents import (
    ARCHIVE_KEYS,
    KEYS,
    SCORES,
    WHOLE_FILE,
    Chunks,
    Contents,
    Parts,
    Portion,
    cells_of,
    keys_by_part,
    listed,
    object_array,
    only_part,
)

_EACH_CLASS = "_<class>"
_PREFIXES = {"logit": "logits", "probability": "probabilities", "prob": "probabilities", "p": "probabilities"}
COLUMN_KEYS = {f"{prefix}{_EACH_CLASS}": (WHOLE_FILE, field) for prefix, field in _PREFIXES.items()}
COLUMN_KEYS |= {word: place for word, place in KEYS.items() if place[1] not in (*SCORES, "class_names")}
_FIELDS = {field for _, field in COLUMN_KEYS.values()} - {"predicted"}  # of the option `columns`
_FORMULA = re.compile("'*[=+@-]")  # how a cell begins that spreadsheets would execute, or that we have escaped
_TRUE_OR_FALSE = dict.fromkeys(("true", "True", "TRUE"), 1.0) | dict.fromkeys(("false", "False", "FALSE"), 0.0)


def contents_of_table(
    columns: Mapping[str, Array], place: Callable[[int], str], others: Mapping[str, Any] | None = None
) -> Contents:
    """Return the fields that the names of the columns say, of numbers or text; `place` says where a row stands."""
    keys = list(dict.fromkeys(map(key_of_column, columns)))
    fields: dict[str, Any] = {}
    words: dict[str, Mapping[str, float]] = {"correct": _TRUE_OR_FALSE}
    for field, key in keys_by_part(keys, COLUMN_KEYS)[WHOLE_FILE].items():  # scores come first
        if field in SCORES:
            names, classes = _score_columns(list(columns), key)
            fields[field] = np.stack([_numbers(columns[name], name, place, {}) for name in names], axis=1)
            fields["class_names"] = classes or None
            words["labels"] = {name: float(number) for number, name in enumerate(classes)}
        elif field == "groups":
            fields[field] = columns[key]
        else:
            fields[field] = _numbers(columns[key], key, place, words.get(field, {}))
    return Contents(**fields, others=others or {})


def _numbers(cells: Array, column: str, place: Callable[[int], str], words: Mapping[str, float]) -> Array:
    """Return a column as numbers, for which words may stand, or raise an error that names the first bad cell."""
    if cells.dtype != object:
        return cells
    numbers = np.array([_number(cell, words) for cell in cells], np.float64)
    bad = np.flatnonzero(np.isnan(numbers))
    if bad.size:
        where = f"{place(bad[0])}, column {column!r}"
        expected = f"a number or one of {listed(words)}" if words else "a number"
        raise BadFile(f"{where} has {cells[bad[0]][:40]!r}; expected {expected}: fix or remove that row")
    return numbers


def _number(cell: str, words: Mapping[str, float]) -> float:
    """Parse a word or a number, else return NaN; 1_0, which Python accepts, is more likely an error than ten."""
    word = cell.strip()
    if word in words:
        return words[word]
    try:
        return np.nan if "_" in cell else float(cell)
    except ValueError:
        return np.nan


def is_known(column: str) -> bool:
    """Return whether a column has a meaning here, or would have one as a key of another format."""
    return key_of_column(column) in COLUMN_KEYS or column in ARCHIVE_KEYS


def key_of_column(column: str) -> str:
    """Return the key that a column belongs to: its own name, or such as logit_<class> for the score of one class."""
    prefix = column.partition("_")[0]
    return prefix + _EACH_CLASS if prefix in _PREFIXES else column


def _score_columns(names: Sequence[str], key: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the columns of the scores in the order of the classes, and the names of the classes if they have any.

    Whole numbers must be exactly 0..k-1, or label 2 could mean two things.
    """
    columns = [name for name in names if key_of_column(name) == key]
    prefix = key.removesuffix(_EACH_CLASS)
    classes = [column.removeprefix(prefix).removeprefix("_") for column in columns]
    numbered = [name for name in classes if _number(name, {}) % 1 == 0]
    if len(columns) == 1:  # a binary model with one score, which has no name for class 0
        if numbered not in ([], ["1"]):
            raise BadFile(f"column {columns[0]!r} stands alone: name it {prefix}_1, or give both classes a column")
        return columns, ()
    if "" in classes:
        raise BadFile(f"the column {prefix!r} stands beside {columns[1]!r} and names no class; rename or remove it")
    if not numbered:
        return columns, tuple(classes)
    in_order = [str(number) for number in range(len(classes))]
    if set(classes) != set(in_order):
        advice = f"number the classes 0..{len(classes) - 1}, or name all of them with words"
        raise BadFile(f"the class number {numbered[0]} of {prefix} is not one of a full set: {advice}")
    return [f"{prefix}_{number}" for number in in_order], ()  # label 2 must mean column logit_2


def known_names(names: Sequence[str], columns: Mapping[str, str]) -> list[str]:
    """Return the names by which the reader knows the columns of a file, of which `columns` says what some mean.

    >>> known_names(["c0", "c1", "y", "date"], {"logits": "c*", "labels": "y"})
    ['logit_0', 'logit_1', 'label', 'date']
    """
    known = {name: name for name in names}
    for field, pattern in columns.items():
        if field not in _FIELDS:
            raise BadFile(f"unknown field {field!r} of a column; choose from {listed(sorted(_FIELDS))}")
        star = re.compile(re.escape(pattern).replace(r"\*", "(.*)"))
        matches = [match for match in map(star.fullmatch, names) if match]
        if not matches or (len(matches) > 1 and field not in SCORES) or pattern.count("*") > 1:
            advice = "name one column, or for logits and probabilities all of them with one star, such as 'c*'"
            raise BadFile(f"{len(matches)} columns match {pattern!r} for {field}, of {listed(names)}; {advice}")
        for match in matches:
            classes = match.groups() if field in SCORES else ()
            known[match[0]] = "_".join([_column_name(field), *classes])
    found = [known[name] for name in names]
    name, times = Counter(found).most_common(1)[0] if found else ("", 0)
    if times > 1:
        raise BadFile(f"the column {name!r} is there twice; rename or remove one")
    return found


def _column_name(field: str) -> str:
    return "probability" if field == "probabilities" else field.removesuffix("s")


def read_table(portion: Portion) -> Chunks:
    """Read a comma- or tab-separated file."""
    path = portion.path
    if portion.entries is None:
        check_size(TEXT_FACTOR * path.stat().st_size, portion.limit)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream, delimiter=delimiter, strict=True)
        header = [name.strip() for name in next(reader, [])]
        if len(header) == 1:
            raise BadFile(f"has one column, {header[0][:80]!r}; put commas, or in .tsv tabs, between the columns")
        names = known_names(header, portion.reading.columns)
        lines = _numbered_rows(reader, len(header))
        is_empty = True
        while chunk := list(itertools.islice(lines, portion.rows_at_once(len(header)))):
            yield {WHOLE_FILE: _text_contents(names, chunk, portion.reading.others)}
            is_empty = False
    if is_empty:
        raise BadFile(f"has no rows under its header: {listed(header)}; write one line per row of predictions")


def _numbered_rows(reader: Any, n_cells: int) -> Iterator[tuple[int, list[str]]]:
    """Yield rows with the numbers of their lines, after checking that they have all cells."""
    for row in reader:
        if row and len(row) != n_cells:
            raise BadFile(f"line {reader.line_num} has {len(row)} cells, but the header has {n_cells}; fix that line")
        if row:
            yield reader.line_num, row


def _text_contents(names: list[str], chunk: list[tuple[int, list[str]]], with_others: bool) -> Contents:
    columns = {}
    others = {}
    for place, name in enumerate(names):
        columns[name] = np.empty(0, object)
        if is_known(name):
            columns[name] = object_array([_unescaped(row[place]) for _, row in chunk])
        elif with_others:
            others[name] = [_unescaped(row[place]) for _, row in chunk]
    return contents_of_table(columns, lambda row: f"line {chunk[row][0]}", others)


def columns_of(parts: Parts) -> dict[str, Any]:
    """Return the columns to write: the other ones first, then those that the reader expects."""
    contents = only_part(parts)
    columns: dict[str, Any] = dict(contents.others)
    n_scores = contents.scores[:1].size
    names: Sequence[str] = ()
    if n_scores > 1 and all(map(_names_a_column, contents.class_names or ())):
        names = contents.class_names or ()
    for field, values in contents.arrays().items():
        if values.ndim == 2:
            classes: Sequence[Any] = names or range(values.shape[1])
            if n_scores == 1:  # a single score is that of class 1
                classes = [1]
            for number, name in enumerate(classes):
                columns[f"{_column_name(field)}_{name}"] = values[:, number]
        elif field in ("labels", "predicted") and names:
            columns[_column_name(field)] = [names[number] for number in values]
        else:
            columns[_column_name(field)] = values
    return columns


def _names_a_column(name: str) -> bool:
    """Return whether a column can carry a class name: the reader takes numbers for class numbers and strips spaces."""
    return name != "" and name.isprintable() and name == name.strip() and np.isnan(_number(name, {}))


def text_bytes(parts: Parts, delimiter: str = ",") -> bytes:
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
    if _FORMULA.match(cell) and np.isnan(_number(cell, {})):
        cell = f"'{cell}"
    return cell.replace("\r", "\n")  # which csv would leave without quotes


def _unescaped(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) else cell
