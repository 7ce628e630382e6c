"""`.parquet` files with one column per class <-> contents, whole or some rows at a time."""

import io
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.files import DAMAGED, Room, unfinished_file
from glayers.predictions.contents import Contents
from glayers.predictions.tables import (
    COLUMN_KEYS,
    NO_COLUMNS,
    Columns,
    ColumnsOf,
    columns_of,
    contents_of_table,
    key_of_column,
    own_names,
)

_WRITTEN = 2**20  # bytes that are written to the disk at a time
_BUFFER = 2**16  # bytes of each column that are read from the disk at a time


def read_parquet(path: Path, room: Room, columns: ColumnsOf = NO_COLUMNS) -> dict[str, Contents]:
    """Read a Parquet file, loading only the columns that have a meaning here."""
    pyarrow, parquet = needs_pyarrow("reading")
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow  # once: each access converts all columns
            names = list(schema.names)
            own = own_names(names, columns)
            wanted = [name for name in names if key_of_column(name) in COLUMN_KEYS or name in own.values()]
            text = [name for name in wanted if is_text_column(pyarrow, schema.field(name))]
            refuse_packed_text(file.metadata, {*text})
            _check_parquet_size(file.metadata, {*wanted}, {*text}, room)
        # Text is read as numbers and a list of different names, so that a long name is in memory once.
        with parquet.ParquetFile(path, read_dictionary=text) as file:
            table = file.read(columns=wanted, use_threads=False)
        return contents_of_table(Columns(names, partial(column_without_gaps, table), "row {}".format).renamed(own))
    except pyarrow.ArrowException as error:
        if isinstance(error, MemoryError):
            raise
        raise BadFile(f"cannot be read as Parquet ({error}); {DAMAGED}") from error


def parquet_chunks(path: Path, columns: ColumnsOf, cells_at_once: int) -> Iterator[tuple[int, Columns]]:
    """Read a Parquet file some rows at a time, however long its row groups are; yield their number and columns.

    One thread reads: the columns are so short that several threads take more time, and others convert the columns.
    """
    pyarrow, parquet = needs_pyarrow("reading")
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow  # once: each access converts all columns
            names = list(schema.names)
            own = own_names(names, columns)
            wanted = [name for name in names if key_of_column(name) in COLUMN_KEYS or name in own.values()]
            text = [name for name in wanted if is_text_column(pyarrow, schema.field(name))]
            refuse_packed_text(file.metadata, {*text})
            first, metadata = 0, file.metadata
        if metadata.num_rows == 0:
            raise BadFile("has no rows; remove the file")
        step = max(1, cells_at_once // max(1, len(wanted)))
        how = {"metadata": metadata, "read_dictionary": text, "buffer_size": _BUFFER, "pre_buffer": False}
        with parquet.ParquetFile(path, **how) as file:
            for batch in file.iter_batches(step, columns=wanted, use_threads=False):
                first += len(batch)
                yield len(batch), _columns(pyarrow, batch, names, first - len(batch)).renamed(own)
                del batch  # only the caller keeps it while the next one is read
    except pyarrow.ArrowException as error:
        if isinstance(error, MemoryError):
            raise
        raise BadFile(f"cannot be read as Parquet ({error}); {DAMAGED}") from error


def _columns(pyarrow: Any, batch: Any, names: list[str], first: int) -> Columns:
    block = partial(_side_by_side, pyarrow, batch)
    return Columns(names, partial(_cells, pyarrow, batch, first), partial(_place, first), block)


def _place(first: int, row: int) -> str:
    return f"row {first + row}"


def parquet_rows(path: Path) -> int:
    """Return the number of rows of a Parquet file, from its last bytes."""
    pyarrow, parquet = needs_pyarrow("reading")
    try:
        return int(parquet.read_metadata(path).num_rows)
    except pyarrow.ArrowException as error:
        raise BadFile(f"{path}: is damaged; use --force to write all parts again") from error


def _cells(pyarrow: Any, batch: Any, first: int, name: str) -> Array:
    """Return one column; as a block where that is possible, since pyarrow's other ways to NumPy import pandas."""
    block = _side_by_side(pyarrow, batch, [name])
    return column_without_gaps(pyarrow.Table.from_batches([batch]), name, first) if block is None else block[:, 0]


def _side_by_side(pyarrow: Any, batch: Any, names: list[str]) -> Array | None:
    """Return columns of one type of numbers without gaps as one array, or None."""
    several = batch.select(names)
    kind, *others = {field.type for field in several.schema}
    is_number = pyarrow.types.is_floating(kind) or pyarrow.types.is_integer(kind)
    if others or not is_number or any(c.null_count for c in several.columns):
        return None
    return np.asarray(several.to_tensor(row_major=True).to_numpy())


def is_text_column(pyarrow: Any, field: Any) -> bool:
    """Return whether a column holds text; refuse columns that hold neither text nor numbers, before reading them."""
    kind = field.type.value_type if pyarrow.types.is_dictionary(field.type) else field.type
    checks = pyarrow.types
    if any(
        is_text(kind)
        for is_text in (checks.is_string, checks.is_large_string, checks.is_binary, checks.is_large_binary)
    ):
        return True
    if not any(fits(kind) for fits in (checks.is_boolean, checks.is_integer, checks.is_floating, checks.is_null)):
        raise BadFile(f"column {field.name[:80]!r} holds {str(kind)[:80]}; expected numbers or text: cast it")
    return False


def _check_parquet_size(metadata: Any, wanted: set[str], text: set[str], room: Room) -> None:
    """Count the memory that columns will take, before anything is unpacked: a few bytes may stand for many rows."""
    room.take(2 * 8 * metadata.num_rows * len(wanted))  # the columns, and the array made of them
    for column in _column_chunks(metadata, text):
        room.take(column.total_uncompressed_size)


def refuse_packed_text(metadata: Any, text: set[str]) -> None:
    """Refuse an encoding of text by which a few bytes stand for much memory: each name may repeat the one before it."""
    for column in _column_chunks(metadata, text):
        if "DELTA_BYTE_ARRAY" in column.encodings:
            raise BadFile(
                f"column {column.path_in_schema[:80]!r} has the encoding DELTA_BYTE_ARRAY, which is not read "
                f"here; write the file again with the default encoding"
            )


def _column_chunks(metadata: Any, names: set[str]) -> Iterator[Any]:
    for group in map(metadata.row_group, range(metadata.num_row_groups) if names else ()):
        yield from (c for c in map(group.column, range(group.num_columns)) if c.path_in_schema in names)


def parquet_bytes(parts: Mapping[str, Contents]) -> bytes:
    """Return the columns as Parquet."""
    pyarrow, parquet = needs_pyarrow("writing")
    stream, columns = io.BytesIO(), columns_of(parts)
    groups = next(iter(parts.values())).groups
    if groups is not None and groups.dtype.kind == "u":
        columns["group"] = groups  # pyarrow takes a list of whole numbers for signed ones
    try:
        parquet.write_table(pyarrow.table(columns), stream)
    except UnicodeEncodeError as error:
        raise BadFile(f"holds text that UTF-8 cannot hold ({error.reason}); write .npz or .json") from error
    return stream.getvalue()


def write_parquet(contents: Contents, path: Path) -> None:
    """Write one Parquet file, which appears complete or not at all; numbers keep their type.

    Scores hardly get smaller by compression, and it would take most of the time. So do dictionaries and statistics.
    """
    pyarrow, parquet = needs_pyarrow("writing")
    arrays, fields, text = [], [], []
    for name, values in columns_of({"all": contents}, arrays=True).items():
        if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
            kind, data = pyarrow.from_numpy_dtype(values.dtype), pyarrow.py_buffer(np.ascontiguousarray(values))
            arrays.append(pyarrow.Array.from_buffers(kind, len(values), [None, data]))  # without a copy
        else:
            arrays.append(pyarrow.array(values))
            text.append(name)
        fields.append(pyarrow.field(name, arrays[-1].type, nullable=False))
    table = pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields))
    how = {"use_dictionary": text or False, "compression": "none", "write_statistics": False, "store_schema": False}
    # Arrow opens the file again: through Python, every piece of a column would be a call.
    with unfinished_file(path) as stream, pyarrow.output_stream(stream.name, buffer_size=_WRITTEN) as output:
        parquet.write_table(table, output, write_batch_size=max(1, len(contents)), **how)


def needs_pyarrow(doing: str) -> tuple[Any, Any]:
    """Return pyarrow and its module for Parquet, or name the extra to install."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BadFile(f'{doing} .parquet needs pyarrow: pip install "glayers[parquet]"') from error
    return pyarrow, parquet


def column_without_gaps(table: Any, column: str, first: int = 0) -> Array:
    """Return a column of a Parquet file, refusing gaps, which pyarrow would turn into NaN or None."""
    values = table[column]
    if values.null_count:
        row = first + values.is_null().to_pylist().index(True)
        raise BadFile(f"row {row}, column {column!r} is missing; fill in or remove that row")
    if not hasattr(values.type, "value_type"):
        return np.asarray(values.to_numpy())
    whole = values.unify_dictionaries().combine_chunks()
    names = np.empty(len(whole.dictionary), object)
    names[:] = whole.dictionary.to_pylist()
    return names[whole.indices.to_numpy(zero_copy_only=False)]
