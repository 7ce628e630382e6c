"""The bytes of a file <-> contents, one reader and one writer per format.

Nothing is unpickled, and every size is checked before the data are read. A `.npy` file is mapped, so that some of its
rows can be read at a time.

Tables have one column per class. Text is read by the standard library: pyarrow takes 150 MB on the disk, and its errors
name no line and no column.
"""

import csv
import io
import itertools
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.lib import format as npy_format

from glayers.arrays import Array
from glayers.errors import BadFile, listed
from glayers.files import DAMAGED, check_size, errors_as_bad_file, file_path, open_regular
from glayers.predictions.contents import (
    KEYS,
    SCORES,
    Contents,
    Reading,
    contents_of,
    keys_of_fields,
    keys_of_part,
    number_of,
    numbers_or_words,
    object_array,
)
from glayers.predictions.language_models import contents_of_records

_TEXT_FACTOR = 8  # bytes of memory for a byte of text: a cell of ten characters takes 67 as a Python object
_LFS_POINTER = b"version https://git-lfs"
_EACH_CLASS = "_<class>"
_PREFIXES = {"logit": "logits", "probability": "probabilities", "prob": "probabilities", "p": "probabilities"}
_COLUMN_KEYS = {f"{prefix}{_EACH_CLASS}": name for prefix, name in _PREFIXES.items()}
_COLUMN_KEYS |= {word: name for word, name in KEYS.items() if name not in (*SCORES, "class_names")}
_MISSING = ("", "nan", "NaN")  # in the cells of label_<class>, one column for each of several labels


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
    for contents in read(path, reading):
        yield replace(contents, groups=None) if reading.ignore_groups else contents


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
                    raise BadFile(f"{key}.npy: {error}; save plain numbers or text with np.savez") from error
    yield contents_of(arrays, reading)


def read_npy(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read the one array of a `.npy` file as logits or probabilities, and the labels of another file."""
    arrays: dict[str, Array] = {reading.inputs or "logits": _array(path, reading)}
    if reading.labels is not None:
        labels = file_path(reading.labels)
        with errors_as_bad_file(labels):
            if labels.suffix.lower() != ".npy":
                raise BadFile("labels= must be a .npy file; save the labels with np.save")
            arrays["labels"] = _array(labels, reading)
    yield contents_of(arrays, reading)


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
    """Read a JSON object with the keys of an `.npz` and lists as arrays, or a log of Inspect or lighteval."""
    stored = json.loads(_text_of(path))
    records = stored.get("samples") if isinstance(stored, dict) else stored
    if isinstance(records, list) and all(isinstance(record, dict) for record in records):
        yield contents_of_records(((f"sample {place}", record) for place, record in enumerate(records)), reading)
        return
    if not isinstance(stored, dict):
        raise BadFile(f"holds a {type(stored).__name__}; expected an object of lists, such as logits and labels")
    keys = keys_of_part(sorted(stored), reading.part)
    yield contents_of({name: stored[key] for name, key in keys.items()}, reading)


def _text_of(path: Path) -> bytes:
    """Return the bytes of a text file, unless their numbers would take too much memory."""
    check_size(_TEXT_FACTOR * path.stat().st_size)
    return path.read_bytes()


def read_json_lines(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read a log of one JSON object per line."""
    lines = enumerate(_text_of(path).splitlines(), 1)
    yield contents_of_records(((f"line {number}", line) for number, line in lines if line.strip()), reading)


def write_npz(stream: io.BytesIO, contents: Contents) -> None:
    """Write a NumPy archive."""
    arrays: dict[str, Any] = {key: _as_array(values) for key, values in _by_key(contents).items()}
    np.savez_compressed(stream, **arrays)


def write_json(stream: io.BytesIO, contents: Contents) -> None:
    """Write a JSON object with the keys of an `.npz`, arrays as lists."""
    lists = {key: cells_of(values) for key, values in _by_key(contents).items()}
    stream.write(json.dumps(lists, default=str).encode() + b"\n")


def write_json_lines(stream: io.BytesIO, contents: Contents) -> None:
    """Write one JSON object per row, with the scores of all classes as a list."""
    columns = _by_column(contents, contents.class_names or ())
    if contents.class_names:
        columns["class_names"] = [list(contents.class_names)] * len(contents)
    for row in zip(*map(cells_of, columns.values()), strict=True):
        line = dict(zip(columns, row, strict=True))
        stream.write(json.dumps(line, default=str).encode() + b"\n")


def _by_key(contents: Contents) -> dict[str, Any]:
    """Return values by the keys that the reader knows."""
    names = {} if contents.class_names is None else {"class_names": list(contents.class_names)}
    return {**contents.arrays(), **contents.others, **names}


def _by_column(contents: Contents, names: Sequence[str]) -> dict[str, Any]:
    """Return values by row: the other columns first, then those that the reader knows, labels by name if there are."""
    columns: dict[str, Any] = dict(contents.others)
    for field, values in contents.arrays().items():
        if values.ndim == 2:
            columns[field] = values
        elif names and field in ("labels", "predicted"):
            columns[field.removesuffix("s")] = [names[number] for number in values]
        else:
            columns[field.removesuffix("s")] = values
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
        self.presence: list[str] = []  # one column for each of several labels, in which cells may be missing
        for name in keys.keys() & set(SCORES):
            self.of_field[name], self.classes = _score_columns(names, keys[name])
            n_scores = len(self.of_field[name])
            self.presence = [f"label_{label}" for label in self.classes or range(n_scores)]
            if n_scores > 1 and "labels" not in keys and set(self.presence) <= set(names):
                self.of_field["labels"] = self.presence
        self.known = list(itertools.chain(*self.of_field.values()))
        # A column whose name is a key of another format would be taken for that field when it is read again.
        self.others = [name for name in names if _key_of_column(name) not in _COLUMN_KEYS and name not in KEYS]

    def contents(
        self, cells: Mapping[str, Array], place: Callable[[int], str], others: dict[str, Any], reading: Reading
    ) -> Contents:
        """Return the fields, given the numbers or text of each column; `place` says where a row stands."""

        def cell(field: str, row: int) -> str:
            return f"{place(row)}, column {self.of_field[field][0]!r}"

        values: dict[str, Any] = {}
        for name, columns in self.of_field.items():
            if name not in SCORES and len(columns) == 1:
                values[name] = cells[columns[0]]
                continue
            missing = () if name in SCORES else _MISSING
            values[name] = np.stack([_numbers(cells[column], column, place, missing) for column in columns], axis=1)
        if len(self.classes) == 1 and "labels" in values:
            values["labels"] = self._of_two_classes(values["labels"])
        if len(self.classes) > 1:
            values["class_names"] = list(self.classes)
        return contents_of(values, reading, others, cell, self.others)

    def _of_two_classes(self, labels: Array) -> Array:
        """Name class 0 by the first label that is not the name of the column; until then, write class 1 as a number."""
        if labels.dtype != object:
            return labels
        (positive,) = self.classes
        words = [str(label).strip() for label in labels]
        for word in words:
            if word not in (positive, *_MISSING) and np.isnan(number_of(word, {})):
                self.classes = (word, positive)
                return labels
        return object_array(["1" if word == positive else word for word in words])


def _numbers(cells: Array, column: str, place: Callable[[int], str], missing: Collection[str]) -> Array:
    """Return the cells of one column as numbers, NaN for those that may be missing."""
    if cells.dtype != object:
        return cells
    known = np.flatnonzero([cell.strip() not in missing for cell in cells])
    numbers = np.full(len(cells), np.nan)
    numbers[known] = numbers_or_words(cells[known], {}, lambda row: f"{place(int(known[row]))}, column {column!r}")
    return numbers


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
    numbered = [name for name in classes if number_of(name, {}) % 1 == 0]
    if len(columns) == 1:  # a binary model with one score, whose labels name class 0
        if numbered not in ([], ["1"]):
            raise BadFile(f"column {columns[0]!r} stands alone: name it {prefix}_1, or give both classes a column")
        return columns, () if numbered else tuple(filter(None, classes))
    if "" in classes:
        raise BadFile(f"the column {prefix!r} stands beside {columns[1]!r} and names no class; rename or remove it")
    if not numbered:
        return columns, tuple(classes)
    in_order = list(map(str, range(len(classes))))
    if set(classes) != set(in_order):
        raise BadFile(
            f"class number {numbered[0]} of {prefix}: number the classes 0..{len(classes) - 1}, or name all of them"
        )
    return [f"{prefix}_{number}" for number in in_order], ()  # label 2 must mean column logit_2


def read_csv(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read a comma- or tab-separated file."""
    if reading.entries is None:
        check_size(_TEXT_FACTOR * path.stat().st_size)
    with path.open(encoding="utf-8-sig", newline="") as stream:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        beginning = stream.readline(csv.field_size_limit()).strip()
        if delimiter not in beginning and set(beginning) & set(",;\t| "):
            raise BadFile(f"put commas, in .tsv tabs, between columns, and write 0.5, not 0,5; got {beginning[:80]!r}")
        stream.seek(0)
        reader = csv.reader(stream, delimiter=delimiter, strict=True)
        header = [name.strip() for name in next(reader, [])]
        columns = _Columns(header)
        step = reading.rows_at_once(len(header))
        rows = _numbered_rows(reader, len(header))
        lines: tuple[int, ...] = ()
        while chunk := list(itertools.islice(rows, step)):
            lines, cells = zip(*chunk, strict=True)
            by_name = dict(zip(header, map(list, zip(*cells, strict=True)), strict=True))
            values = {name: object_array(by_name[name]) for name in columns.known}
            others = {name: by_name[name] for name in columns.others if reading.others}
            yield columns.contents(values, lambda row: f"line {lines[row]}", others, reading)  # noqa: B023  # used at once
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
    if "model_response" in schema.names:
        yield contents_of_records(_records_of_rows(path, metadata), reading)
        return
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
            values = {}
            for name in columns.known:
                column = table[name]
                if name in columns.presence and name not in text and column.null_count:
                    column = column.cast("float64").fill_null(float("nan"))
                values[name] = _column_array(column, name, first_row)
            kept = {name: table[name] for name in others}
            yield columns.contents(values, lambda row: f"row {first_row + row}", kept, reading)  # noqa: B023  # used at once
            first_row += len(table)


def _records_of_rows(path: Path, metadata: Any) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a log whose columns hold objects, such as the details of lighteval."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    check_size(_TEXT_FACTOR * sum(group.total_byte_size for group in groups))
    with needs_pyarrow().parquet.ParquetFile(path, metadata=metadata, page_checksum_verification=True) as file:
        for row, record in enumerate(file.read(use_threads=False).to_pylist()):
            yield f"row {row}", record


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
        row = first_row + column.is_null().index(True).as_py()
        raise BadFile(f"row {row}, column {name!r} is missing; fill in or remove that row")
    if types.is_dictionary(column.type):
        whole = column.unify_dictionaries().combine_chunks()
        return object_array(whole.dictionary.cast("large_string").to_pylist())[np.from_dlpack(whole.indices)]
    if types.is_boolean(column.type):
        return np.from_dlpack(column.cast("uint8").combine_chunks()) == 1
    return np.from_dlpack(column.combine_chunks())  # without pandas, which to_numpy would import


def _as_table(contents: Contents) -> dict[str, Any]:
    """Return values by column, with one column for the scores of each class."""
    names = contents.class_names or ()
    if contents.scores[:1].size == 1 or not all(map(_names_a_column, names)):
        names = ()
    columns: dict[str, Any] = {}
    for name, values in _by_column(contents, names).items():
        if not (isinstance(values, np.ndarray) and values.ndim == 2):
            columns[name] = values
            continue
        classes: Sequence[Any] = names or range(values.shape[1])
        if len(classes) == 1:  # a single score is that of class 1
            classes = [1]
        prefix = {"logits": "logit", "probabilities": "probability", "labels": "label"}[name]
        for number, label in enumerate(classes):
            columns[f"{prefix}_{label}"] = values[:, number]
    return columns


def _names_a_column(name: str) -> bool:
    """Return whether a column can carry a class name: the reader takes numbers for class numbers and strips spaces."""
    return name != "" and name.isprintable() and name == name.strip() and np.isnan(number_of(name, {}))


def write_text(stream: io.BytesIO, contents: Contents, delimiter: str = ",") -> None:
    """Write the columns as text under a header."""
    columns = {name: map(_text, cells_of(values)) for name, values in _as_table(contents).items()}
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
    columns = map(_as_table, parts)
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
    ".npy": (read_npy, lambda stream, contents: np.save(stream, contents.scores)),  # no place for labels
    ".json": (read_json, write_json),
    ".jsonl": (read_json_lines, write_json_lines),
    ".parquet": (read_parquet, lambda stream, contents: write_parquet(stream, [contents])),
    ".csv": (read_csv, write_text),
    ".tsv": (read_csv, partial(write_text, delimiter="\t")),
}
