"""The bytes of a file <-> contents, one reader and one writer per format.

Nothing is unpickled, and every size is checked before the data are read. A `.npy` file is mapped, so that some of its
rows can be read at a time.

Two kinds of `.jsonl` lines are read, with a log-probability for each choice of a language model: the sample logs of
lm-evaluation-harness (`samples_*.jsonl`), and plain ones with the keys of an `.npz` in the singular. Questions may have
different numbers of choices: missing ones are impossible.

Tables have one column per class. Text is read by the standard library: pyarrow takes 150 MB on the disk, and its errors
name no line and no column.
"""

import csv
import io
import itertools
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.lib import format as npy_format

from glayers.arrays import Array, to_numbers
from glayers.errors import BadFile, listed, shown
from glayers.files import DAMAGED, check_size, errors_as_bad_file, file_path, open_regular
from glayers.predictions.contents import KEYS, SCORES, Contents, Reading, keys_of_fields, keys_of_part

_TEXT_FACTOR = 8  # bytes of memory for a byte of text: a cell of ten characters takes 67 as a Python object
_LINE_KEYS = {key: name for key, name in KEYS.items() if name != "class_names"} | {"answer": "labels"}
_HARNESS = "filtered_resps"  # the key that only logs of the harness have
_LFS_POINTER = b"version https://git-lfs"
_EACH_CLASS = "_<class>"
_PREFIXES = {"logit": "logits", "probability": "probabilities", "prob": "probabilities", "p": "probabilities"}
_COLUMN_KEYS = {f"{prefix}{_EACH_CLASS}": name for prefix, name in _PREFIXES.items()}
_COLUMN_KEYS |= {word: name for word, name in KEYS.items() if name not in (*SCORES, "class_names")}
_TRUE_OR_FALSE = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def open_file(path: Path, reading: Reading) -> Iterator[Contents]:
    """Return the contents of a file, at once or in chunks, read by its ending."""
    ending = path.suffix.lower()
    with open_regular(path) as stream:
        beginning = stream.read(len(_LFS_POINTER))
    if ending not in FORMATS:
        raise BadFile(f"unknown ending {path.suffix!r}; it must be one of {listed(sorted(FORMATS))}")
    if not beginning:
        raise BadFile("is empty; fetch it or write it again")
    if beginning == _LFS_POINTER:
        raise BadFile("is a Git LFS pointer, not the file itself; fetch the file with `git lfs pull`")
    if ending != ".npy" and (reading.labels is not None or reading.inputs is not None):
        raise BadFile(f"labels and inputs are for .npy files; those of a {ending} file follow from its keys or columns")
    if ending not in (".npz", ".json") and reading.part is not None:
        raise BadFile(f"part is for .npz and .json files; a {ending} file has one part, so leave it out")
    read, _ = FORMATS[ending]
    return read(path, reading)


def to_bytes(contents: Contents, ending: str) -> bytes:
    """Return the bytes of a file of this ending.

    >>> rows = Contents(probabilities=np.array([[0.75, 0.25]]), labels=np.array([1]))
    >>> to_bytes(rows, ".csv").splitlines()
    [b'probability_0,probability_1,label', b'0.75,0.25,1']
    """
    _, write = FORMATS[ending]
    stream = io.BytesIO()
    try:
        write(stream, contents)
    except UnicodeEncodeError as error:
        raise BadFile(f"holds text that UTF-8 cannot hold ({error.reason}); write .npz or .json") from error
    return stream.getvalue()


def contents_of(values: Mapping[str, object], others: Mapping[str, Any] | None = None) -> Contents:
    """Return contents from the arrays or lists of each field."""
    fields: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(value, np.ndarray | list):
            raise BadFile(f"{name} must be a list; got {shown(value)}")
        if name == "class_names":
            fields[name] = tuple(map(str, value))
        elif isinstance(value, np.ndarray):
            fields[name] = value
        elif name == "groups":
            fields[name] = _groups(value)
        else:
            fields[name] = numbers_of(name, value)
    sizes = {name: value.shape[:1] for name, value in fields.items() if isinstance(value, np.ndarray)}
    if len(set(sizes.values())) > 1:
        counts = {name: sum(size) for name, size in sizes.items()}
        raise BadFile(f"its arrays have different numbers of rows: {counts}; save rows of one kind")
    return Contents(**fields, others=others or {})


def numbers_of(name: str, values: list[Any]) -> Array:
    """Return a list of numbers, or of lists of them, as an array."""
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise BadFile(f"{name} must be real numbers, in rows of equal length ({str(error)[:200]})") from error


def _groups(names: list[Any]) -> Array:
    """Return names and whole numbers, which may be long, as objects, and other numbers as numbers."""
    if not all(isinstance(name, str | int | float) for name in names):
        raise BadFile(f"groups must be a list of numbers or text; got {shown(names)}")
    array = object_array(names)
    return to_numbers(array, "groups") if float in map(type, names) else array


def object_array(values: list[Any]) -> Array:
    """Return text as an array of objects: an array of text would have every row as long as the longest."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def cells_of(values: Any) -> list[Any]:
    """Return a column as Python objects, whether it is a list, an array or a column of Parquet."""
    if isinstance(values, list):
        return values
    cells: list[Any] = values.tolist() if isinstance(values, np.ndarray) else values.to_pylist()
    return cells


def read_npz(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read a NumPy archive."""
    with zipfile.ZipFile(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        keys = keys_of_part(sorted(members), reading.part)
        check_size(sum(members[key].file_size for key in keys.values()))
        arrays = {}
        for name, key in keys.items():
            with archive.open(members[key]) as stream:
                try:
                    arrays[name] = _cleaned(npy_format.read_array(stream, allow_pickle=False))
                except ValueError as error:
                    member = members[key].filename
                    raise BadFile(f"{member}: {error}; save plain numbers or text with np.savez") from error
    yield contents_of(arrays)


def read_npy(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read the one array of a `.npy` file as logits or probabilities, and the labels of another file."""
    arrays: dict[str, Array] = {reading.inputs or "logits": _array(path, reading)}
    if reading.labels is not None:
        labels = file_path(reading.labels)
        with errors_as_bad_file(labels):
            if labels.suffix.lower() != ".npy":
                raise BadFile("labels= must be a .npy file; save the labels with np.save")
            arrays["labels"] = _array(labels, reading)
    yield contents_of(arrays)


def _array(path: Path, reading: Reading) -> Array:
    """Return the array of a `.npy` file; if it is read in chunks, from the disk only where it is used."""
    open_regular(path).close()
    array: np.memmap[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.offset + array.nbytes != path.stat().st_size:
        raise BadFile(f"has more bytes than its array of shape {array.shape} and {array.dtype}; {DAMAGED}")
    if reading.entries is not None:
        return array
    check_size(array.nbytes)
    return _cleaned(np.array(array))


def _cleaned(array: Array) -> Array:
    """Return an array in this machine's byte order, with values that exist: a file may hold any bytes."""
    kind = array.dtype.kind
    if kind not in "biufUS" or array.dtype.itemsize == 0:
        raise BadFile(f"holds an array of {str(array.dtype)[:80]}; save plain numbers, or text for names and groups")
    if kind == "b":
        return np.not_equal(array.view(np.uint8), 0)  # NumPy trusts that a boolean's byte is 0 or 1
    if kind == "S":
        check_size(4 * array.nbytes)
        return np.strings.decode(array, "utf-8", "backslashreplace")
    if kind == "U":
        array.tolist()  # an error if a character does not exist
    if array.dtype == np.longdouble:
        return array.astype(np.float64)  # no other format holds more digits
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def read_json(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read a JSON object with the keys of an `.npz` and lists as arrays."""
    stored = json.loads(_text_of(path))
    if not isinstance(stored, dict):
        raise BadFile(f"holds a {type(stored).__name__}; expected an object of lists, such as logits and labels")
    keys = keys_of_part(sorted(stored), reading.part)
    yield contents_of({name: stored[key] for name, key in keys.items()})


def _text_of(path: Path) -> bytes:
    """Return the bytes of a text file, unless their numbers would take too much memory."""
    check_size(_TEXT_FACTOR * path.stat().st_size)
    return path.read_bytes()


def read_json_lines(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read a log of one JSON object per line."""
    records: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(_text_of(path).splitlines(), 1):
        if not line.strip():
            continue
        with errors_as_bad_file(f"line {number}"):
            record = json.loads(line)
            row = _row(record)
            if rows and rows[0].keys() != row.keys():
                raise BadFile(f"has {listed(sorted(row))}, but earlier lines have {listed(sorted(rows[0]))}")
        if records and _HARNESS in record and record.get("filter") != records[0].get("filter"):
            continue  # a harness writes every question once for each filter; the first filter is read
        records.append(record)
        rows.append(row)
    if not rows:
        raise BadFile("holds no line with logprobs and label, or with confidence and correct")
    fields: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    for name, padding in (("logits", -np.inf), ("probabilities", 0.0)):
        if name in fields:
            fields[name] = _padded(fields[name], padding)
    others: dict[str, list[Any]] = {}
    if reading.others:
        keys = dict.fromkeys(key for record in records for key in record)
        unknown = [key for key in keys if key not in {*_LINE_KEYS, "class_names", _HARNESS}]
        others = {key: [record.get(key) for record in records] for key in unknown}
    yield contents_of(fields, others)


def _padded(rows: list[Array], padding: float) -> Array:
    """Return rows of different lengths as an array, the longest one's width."""
    widest = max(map(len, rows))
    check_size(8 * widest * len(rows))
    scores = np.full((len(rows), widest), padding)
    for row, choices in zip(scores, rows, strict=True):
        row[: len(choices)] = choices
    return scores


def _row(record: Any) -> dict[str, Any]:
    """Return the fields of one line."""
    if not isinstance(record, dict):
        raise BadFile(f"must be a JSON object; got {shown(record)}")
    if _HARNESS in record:
        return _harness_row(record)
    row = {name: record[key] for name, key in keys_of_fields(record, _LINE_KEYS).items()}
    for field in row.keys() & set(SCORES):
        row[field] = _scores(field, row[field])
        if "labels" in row:
            row["labels"] = _place(row["labels"], len(row[field]), record.get("choices"))
    return row


def _harness_row(record: dict[str, Any]) -> dict[str, Any]:
    """Return log-likelihoods of the choices, the correct one, and the document as group."""
    answers = record[_HARNESS]
    are_pairs = isinstance(answers, list) and all(isinstance(answer, list) and len(answer) == 2 for answer in answers)
    if not are_pairs or len(answers) < 2:
        raise BadFile("holds generated text, not log-likelihoods of choices; write confidence and correct instead")
    scores = _scores(_HARNESS, [score for score, _ in answers])
    requested = [[*_values(request), None, None][1] for request in _values(record.get("arguments"))]
    label = _place(record.get("target"), len(scores), requested)
    best = np.flatnonzero(scores == scores.max())
    accuracy = record.get("acc")
    if len(best) == 1 and isinstance(accuracy, int | float) and (best[0] == label) != (accuracy == 1):
        found = f"acc is {accuracy:g}, but choice {best[0]} has the highest log-likelihood and the target is {label}"
        raise BadFile(f"{found}: this task scores in another way; write lines with logprobs and label instead")
    row = {"logits": scores, "labels": label}
    for key in ("doc_id", "doc_hash"):
        if record.get(key) is not None:
            row["groups"] = record[key]
    return row


def _scores(name: str, values: Any) -> Array:
    """Return a number for each choice; a harness writes them as text."""
    is_list = isinstance(values, list) and bool(values) and bool not in map(type, values)
    scores = numbers_of(name, values) if is_list else np.empty(0)
    if scores.ndim != 1 or not scores.size:
        raise BadFile(f"{name} must be a list of numbers, one for each choice; got {shown(values)}")
    return scores


def _values(arguments: object) -> list[Any]:
    """Return a list of arguments, which newer logs write as an object."""
    if isinstance(arguments, dict):
        return list(arguments.values())
    return arguments if isinstance(arguments, list) else []


def _place(target: object, n_choices: int, texts: object) -> int:
    """Return the number of the correct choice, given by its number, its text or its letter."""
    place = target
    if isinstance(target, str):
        place = _place_of_text(target.strip(), _values(texts))
    if type(place) is not int or not 0 <= place < n_choices:
        raise BadFile(f"the answer {shown(target)} is not one of the {n_choices} choices, by number, letter or text")
    return place


def _place_of_text(word: str, texts: list[Any]) -> int:
    """Return the number of the choice with this text, number or letter; -1 if there is none."""
    same = [number for number, text in enumerate(texts) if str(text).strip() == word]
    if len(same) == 1:
        return same[0]
    if word.isdecimal():
        return int(word)
    letter = word.strip("().:").upper()
    return ord(letter) - ord("A") if len(letter) == 1 else -1


def write_npz(stream: io.BytesIO, contents: Contents) -> None:
    """Write a NumPy archive."""
    arrays: dict[str, Any] = {key: _as_array(values) for key, values in _columns(contents).items()}
    np.savez_compressed(stream, **arrays)


def write_npy(stream: io.BytesIO, contents: Contents) -> None:
    """Write the scores as one array: there is no place for labels."""
    np.save(stream, contents.scores)


def write_json(stream: io.BytesIO, contents: Contents) -> None:
    """Write a JSON object with the keys of an `.npz`, arrays as lists."""
    lists = {key: cells_of(values) for key, values in _columns(contents).items()}
    stream.write(json.dumps(lists, default=str).encode() + b"\n")


def write_json_lines(stream: io.BytesIO, contents: Contents) -> None:
    """Write one JSON object per row, with the scores of all classes as a list."""
    columns: dict[str, Any] = dict(contents.others)
    for field, values in contents.arrays().items():
        columns[field if values.ndim == 2 else _column_name(field)] = values
    for row in zip(*map(cells_of, columns.values()), strict=True):
        line = dict(zip(columns, row, strict=True))
        stream.write(json.dumps(line, default=str).encode() + b"\n")


def _columns(contents: Contents) -> dict[str, Any]:
    """Return values by the keys that the reader knows."""
    columns: dict[str, Any] = {**contents.arrays(), **contents.others}
    if contents.class_names is not None:
        columns["class_names"] = list(contents.class_names)
    return columns


def _as_array(values: Any) -> Array:
    """Return a column as numbers or text."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    cells = cells_of(values)
    if all(type(cell) is float or (type(cell) is int and abs(cell) < 2**63) for cell in cells):
        return np.array(cells)
    return np.array(list(map(str, cells)))


class _Columns:
    """What the columns of a table mean: those of each field, the names of the classes, and the other columns."""

    def __init__(self, names: Sequence[str]) -> None:
        for name, times in Counter(names).items():
            if times > 1:
                raise BadFile(f"the column {name[:80]!r} is there twice; rename or remove one")
        keys = keys_of_fields(dict.fromkeys(map(_key_of_column, names)), _COLUMN_KEYS)
        self.of_field = {name: [key] for name, key in keys.items()}
        self.classes: tuple[str, ...] = ()
        for name in keys.keys() & set(SCORES):
            self.of_field[name], self.classes = _score_columns(names, keys[name])
        self.known = list(itertools.chain(*self.of_field.values()))
        # A column whose name is a key of another format would be taken for that field when it is read again.
        self.others = [name for name in names if _key_of_column(name) not in _COLUMN_KEYS and name not in KEYS]

    def contents(self, values: Mapping[str, Array], place: Callable[[int], str], others: dict[str, Any]) -> Contents:
        """Return the fields, given the numbers or text of each column; `place` says where a row stands."""
        numbers_of_classes = {name: float(number) for number, name in enumerate(self.classes)}
        words: dict[str, Mapping[str, float]] = {"correct": _TRUE_OR_FALSE, "labels": numbers_of_classes}
        fields: dict[str, Any] = {"class_names": self.classes or None}
        for name, columns in self.of_field.items():
            if name == "groups":
                fields[name] = values[columns[0]]
                continue
            numbers = [_numbers(values[column], column, place, words.get(name, {})) for column in columns]
            fields[name] = np.stack(numbers, axis=1) if name in SCORES else numbers[0]
        return Contents(**fields, others=others)


def _key_of_column(column: str) -> str:
    """Return the key that a column belongs to: its own name, or such as logit_<class> for the score of one class."""
    prefix = column.partition("_")[0]
    return prefix + _EACH_CLASS if prefix in _PREFIXES else column


def _score_columns(names: Sequence[str], key: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the columns of the scores in the order of the classes, and the names of the classes if they have any.

    Whole numbers must be exactly 0..k-1, or label 2 could mean two things.
    """
    columns = [name for name in names if _key_of_column(name) == key]
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


def _numbers(cells: Array, column: str, place: Callable[[int], str], words: Mapping[str, float]) -> Array:
    """Return a column as numbers, for which words may stand, or raise an error that names the first bad cell."""
    if cells.dtype != object:
        return cells
    numbers = np.array([_number(cell, words) for cell in cells], np.float64)
    bad = np.flatnonzero(np.isnan(numbers))
    if bad.size:
        expected = f"a number or one of {listed(words)}" if words else "a number"
        where = f"{place(bad[0])}, column {column!r}"
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


def read_csv(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read a comma- or tab-separated file."""
    if reading.entries is None:
        check_size(_TEXT_FACTOR * path.stat().st_size)
    with path.open(encoding="utf-8-sig", newline="") as stream:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        reader = csv.reader(stream, delimiter=delimiter, strict=True)
        header = [name.strip() for name in next(reader, [])]
        if len(header) == 1 and not header[0].isidentifier():  # such as logit_1
            raise BadFile(f"has one column, {header[0][:80]!r}; put commas, or in .tsv tabs, between the columns")
        columns = _Columns(header)
        step = reading.rows_at_once(len(header))
        rows = _numbered_rows(reader, len(header))
        lines: tuple[int, ...] = ()
        while chunk := list(itertools.islice(rows, step)):
            lines, cells = zip(*chunk, strict=True)
            by_name = dict(zip(header, map(list, zip(*cells, strict=True)), strict=True))
            values = {name: object_array(by_name[name]) for name in columns.known}
            others = {name: by_name[name] for name in columns.others if reading.others}
            yield columns.contents(values, lambda row: f"line {lines[row]}", others)  # noqa: B023  # used at once
        if not lines:
            raise BadFile(f"has no rows under its header: {listed(header)}; write one line per row of predictions")


def _numbered_rows(reader: Any, n_cells: int) -> Iterator[tuple[int, list[str]]]:
    """Yield rows with the numbers of their lines, after checking that they have all cells."""
    for row in filter(None, reader):
        if len(row) != n_cells:
            raise BadFile(f"line {reader.line_num} has {len(row)} cells, but the header has {n_cells}; fix that line")
        yield reader.line_num, row


def read_parquet(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read a Parquet file, loading only the columns that have a meaning here, or all of them.

    One thread reads: the columns are so short that several threads take more time.
    """
    pyarrow = needs_pyarrow()
    metadata = pyarrow.parquet.read_metadata(path)
    if metadata.num_rows == 0:
        raise BadFile("has no rows; remove the file")
    schema = metadata.schema.to_arrow_schema()
    columns = _Columns(schema.names)
    others = columns.others if reading.others else []
    wanted = columns.known + others
    # Text is read as numbers and a list of different names, so that a long name is in memory once.
    text = [name for name in columns.known if _is_text(schema.field(name))]
    options = {"read_dictionary": text, "metadata": metadata, "page_checksum_verification": True}
    first_row = 0
    with pyarrow.parquet.ParquetFile(path, **options) as file:
        _check_memory(file, wanted, reading)
        if reading.entries is None:
            tables = iter([file.read(columns=wanted, use_threads=False)])
        else:  # however long the row groups of the file are
            batches = file.iter_batches(reading.rows_at_once(len(wanted)), columns=wanted, use_threads=False)
            tables = (pyarrow.Table.from_batches([batch]) for batch in batches)
        for table in tables:
            values = {name: _column_array(table[name], name, first_row) for name in columns.known}
            kept = {name: table[name] for name in others}
            yield columns.contents(values, lambda row: f"row {first_row + row}", kept)  # noqa: B023  # used at once
            first_row += len(table)


def _is_text(field: Any) -> bool:
    """Return whether a column holds text; refuse columns that hold neither text nor numbers, before reading them."""
    types = needs_pyarrow().types
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if str(kind) in ("string", "large_string", "binary", "large_binary"):
        return True
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)):
        raise BadFile(f"column {field.name[:80]!r} holds {str(kind)[:80]}; expected numbers or text: cast it")
    return False


def _check_memory(file: Any, wanted: list[str], reading: Reading) -> None:
    """Count the memory that columns will take, before anything is unpacked: a few bytes may stand for many rows."""
    n_rows = 0
    n_bytes = 2 * 8 * file.metadata.num_rows * len(wanted)  # the columns, and the array made of them
    leaves = map(file.schema.column, range(len(file.schema)))
    text = [number for number, leaf in enumerate(leaves) if leaf.name in wanted and leaf.physical_type == "BYTE_ARRAY"]
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        n_bytes += group.total_byte_size
        n_rows += group.num_rows
        if text:  # damaged: an error when a row is read, but `group.column` would end the program
            next(file.iter_batches(1, [number], wanted, use_threads=False), None)
        if any("DELTA_BYTE_ARRAY" in group.column(leaf).encodings for leaf in text):  # each may repeat the one before
            raise BadFile("has text with the encoding DELTA_BYTE_ARRAY; write it with the default")
    if n_rows != file.metadata.num_rows:
        raise BadFile(f"has {n_rows} or {file.metadata.num_rows} rows; {DAMAGED}")
    if reading.entries is None:
        check_size(n_bytes)


def _column_array(column: Any, name: str, first_row: int) -> Array:
    """Return a column as numbers or text, refusing gaps, which pyarrow would turn into NaN or None."""
    types = needs_pyarrow().types
    if column.null_count:
        row = first_row + column.is_null().to_pylist().index(True)
        raise BadFile(f"row {row}, column {name!r} is missing; fill in or remove that row")
    if types.is_dictionary(column.type):
        whole = column.unify_dictionaries().combine_chunks()
        return object_array(whole.dictionary.cast("large_string").to_pylist())[np.from_dlpack(whole.indices)]
    if types.is_boolean(column.type):
        return np.from_dlpack(column.cast("uint8").combine_chunks()) == 1
    return np.from_dlpack(column.combine_chunks())  # without pandas, which to_numpy would import


def _columns_to_write(contents: Contents) -> dict[str, Any]:
    """Return the columns to write: the other ones first, then those that the reader expects."""
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


def _column_name(field: str) -> str:
    return "probability" if field == "probabilities" else field.removesuffix("s")


def _names_a_column(name: str) -> bool:
    """Return whether a column can carry a class name: the reader takes numbers for class numbers and strips spaces."""
    return name != "" and name.isprintable() and name == name.strip() and np.isnan(_number(name, {}))


def write_text(stream: io.BytesIO, contents: Contents, delimiter: str = ",") -> None:
    """Write the columns as text under a header."""
    columns = {name: map(_text, cells_of(values)) for name, values in _columns_to_write(contents).items()}
    lines = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(lines, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    lines.detach()


def _text(cell: Any) -> Any:
    """Return what to write for a cell of any format."""
    if isinstance(cell, dict | list):
        return json.dumps(cell, default=str)
    if isinstance(cell, str):
        return cell.replace("\r", "\n")  # which csv would leave without quotes
    return cell


def write_parquet(where: Path | io.BytesIO, parts: Iterable[Contents]) -> int:
    """Write rows that come in parts to one Parquet file, and return their number.

    Scores hardly get smaller by compression, and it would take most of the time. So do dictionaries and statistics.
    """
    pyarrow = needs_pyarrow()
    columns = map(_columns_to_write, parts)
    tables = (pyarrow.table({name: _arrow_column(values) for name, values in some.items()}) for some in columns)
    first = next(tables)
    text = [field.name for field in first.schema if not pyarrow.types.is_primitive(field.type)]
    options = {"compression": "none", "write_statistics": False, "store_schema": False, "write_page_checksum": True}
    n_rows = 0
    with pyarrow.parquet.ParquetWriter(where, first.schema, use_dictionary=text or False, **options) as writer:
        for table in itertools.chain([first], tables):
            writer.write_table(table.cast(first.schema))
            n_rows += len(table)
    return n_rows


def _arrow_column(values: Any) -> Any:
    pyarrow = needs_pyarrow()
    if isinstance(values, pyarrow.ChunkedArray):  # of another Parquet file
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":  # not copied, and without importing pandas
        kind = pyarrow.from_numpy_dtype(values.dtype)
        return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(np.ascontiguousarray(values))])
    try:
        return pyarrow.array(list(values))
    except (pyarrow.ArrowException, OverflowError):
        return pyarrow.array([str(value) for value in values])  # nested or mixed values, or very long numbers


def needs_pyarrow() -> Any:
    """Return pyarrow, or name the extra to install."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise BadFile('.parquet needs pyarrow: pip install "glayers[parquet]"') from error
    return pyarrow


# How to read and to write a file with this ending.
_Reader: TypeAlias = Callable[[Path, Reading], Iterator[Contents]]
_Writer: TypeAlias = Callable[[io.BytesIO, Contents], Any]
FORMATS: Mapping[str, tuple[_Reader, _Writer]] = {
    ".npz": (read_npz, write_npz),
    ".npy": (read_npy, write_npy),
    ".json": (read_json, write_json),
    ".jsonl": (read_json_lines, write_json_lines),
    ".parquet": (read_parquet, lambda stream, contents: write_parquet(stream, [contents])),
    ".csv": (read_csv, write_text),
    ".tsv": (read_csv, partial(write_text, delimiter="\t")),
}
