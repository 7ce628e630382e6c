"""`.parquet` files with one column per class <-> contents, whole or some rows at a time."""

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.files import DAMAGED, MemoryBudget, unfinished_file
from glayers.predictions.contents import WHOLE_FILE, Contents, Parts, Portion, Reading
from glayers.predictions.tables import COLUMN_KEYS, Columns, columns_of, contents_of_table, key_of_column, known_names

_WRITE_BYTES = 2**20  # that are written to the disk at a time
_READ_BYTES = 2**16  # of each column that are read from the disk at a time


def read_parquet(path: Path, reading: Reading, portion: Portion) -> Parts:
    """Read a Parquet file, loading only the columns that have a meaning here, or all of them."""
    return {WHOLE_FILE: _chunks(path, reading, portion)}


def _chunks(path: Path, reading: Reading, portion: Portion) -> Iterator[Contents]:
    """Yield the rows of a file at once, or some at a time, however long its row groups are.

    One thread reads: the columns are so short that several threads take more time.
    """
    pyarrow, parquet = needs_pyarrow("reading")
    with _arrow_errors(pyarrow):
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow  # once: each access converts all columns
            metadata = file.metadata
        known = dict(zip(schema.names, known_names(schema.names, reading.columns), strict=True))
        read = [name for name in schema.names if key_of_column(known[name]) in COLUMN_KEYS]
        text = [name for name in read if _is_text(schema.field(name))]
        _refuse_packed_text(metadata, {*text})
        wanted = schema.names if reading.others else read
        # Text is read as numbers and a list of different names, so that a long name is in memory once.
        options = {"metadata": metadata, "read_dictionary": text, "buffer_size": _READ_BYTES, "pre_buffer": False}
        with parquet.ParquetFile(path, **options) as file:
            first_row = 0 if portion.rows is None else portion.rows.start
            for own_table in _tables(file, wanted, {*text}, portion):
                table = own_table.rename_columns([known[name] for name in wanted])
                yield contents_of_table(_columns(table, list(known.values()), first_row, reading.others))
                first_row += len(table)


def _tables(file: Any, wanted: list[str], text: set[str], portion: Portion) -> Iterator[Any]:
    """Yield tables of the wanted columns."""
    import pyarrow

    if portion.chunk_entries is None:
        _check_size(file.metadata, wanted, text, portion.budget)
        yield file.read(columns=wanted, use_threads=False)
        return
    if file.metadata.num_rows == 0:
        raise BadFile("has no rows; remove the file")
    groups = None
    if portion.rows is not None:
        groups = [group for group, start in enumerate(group_starts(file.metadata)) if start in portion.rows]
    step = portion.rows_at_once(len(wanted))
    for batch in file.iter_batches(step, row_groups=groups, columns=wanted, use_threads=False):
        yield pyarrow.Table.from_batches([batch])


def group_starts(metadata: Any) -> list[int]:
    """Return the first row of each row group."""
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    starts: list[int] = np.cumsum([0, *sizes])[:-1].tolist()
    return starts


def read_metadata(path: Path) -> Any:
    """Return what the last bytes of a Parquet file say about it."""
    pyarrow, parquet = needs_pyarrow("reading")
    with _arrow_errors(pyarrow):
        return parquet.read_metadata(path)


@contextmanager
def _arrow_errors(pyarrow: Any) -> Iterator[None]:
    try:
        yield
    except pyarrow.ArrowException as error:
        if isinstance(error, MemoryError):
            raise
        raise BadFile(f"cannot be read as Parquet ({error}); {DAMAGED}") from error


def _columns(table: Any, names: list[str], first_row: int, others: bool) -> Columns:
    def cells(name: str) -> Array:
        # As a block where that is possible, since pyarrow's other ways to NumPy import pandas.
        block = _side_by_side(table, [name])
        return _column_without_gaps(table, name, first_row) if block is None else block[:, 0]

    def place(row: int) -> str:
        return f"row {first_row + row}"

    return Columns(names, cells, place, partial(_side_by_side, table), table.column if others else None)


def _side_by_side(table: Any, names: list[str]) -> Array | None:
    """Return columns of one type of numbers without gaps as one array, or None."""
    columns = table.select(names)
    kind, *others = {field.type for field in columns.schema}
    if others or not _is_number(kind) or any(column.null_count for column in columns.columns):
        return None
    batches = columns.combine_chunks().to_batches()
    return np.asarray(batches[0].to_tensor(row_major=True).to_numpy()) if batches else None


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind))


def _is_text(field: Any) -> bool:
    """Return whether a column holds text; refuse columns that hold neither text nor numbers, before reading them."""
    from pyarrow import types

    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if str(kind) in ("string", "large_string", "binary", "large_binary"):
        return True
    if not (_is_number(kind) or types.is_boolean(kind) or types.is_null(kind)):
        raise BadFile(f"column {field.name[:80]!r} holds {str(kind)[:80]}; expected numbers or text: cast it")
    return False


def _check_size(metadata: Any, wanted: list[str], text: set[str], budget: MemoryBudget) -> None:
    """Count the memory that columns will take, before anything is unpacked: a few bytes may stand for many rows."""
    budget.spend(2 * 8 * metadata.num_rows * len(wanted))  # the columns, and the array made of them
    for column in _column_chunks(metadata, text):
        budget.spend(column.total_uncompressed_size)


def _refuse_packed_text(metadata: Any, text: set[str]) -> None:
    """Refuse an encoding of text by which a few bytes stand for much memory: each name may repeat the one before it."""
    for column in _column_chunks(metadata, text):
        if "DELTA_BYTE_ARRAY" in column.encodings:
            raise BadFile(
                f"column {column.path_in_schema[:80]!r} has the encoding DELTA_BYTE_ARRAY, which is not read "
                f"here; write the file again with the default encoding"
            )


def _column_chunks(metadata: Any, names: set[str]) -> Iterator[Any]:
    if not names:
        return
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in names:
                yield column


def _column_without_gaps(table: Any, name: str, first: int) -> Array:
    """Return a column of a Parquet file, refusing gaps, which pyarrow would turn into NaN or None."""
    column = table[name]
    if column.null_count:
        row = first + column.is_null().to_pylist().index(True)
        raise BadFile(f"row {row}, column {name!r} is missing; fill in or remove that row")
    if not hasattr(column.type, "value_type"):
        return np.asarray(column.to_numpy())
    whole = column.unify_dictionaries().combine_chunks()
    names = np.empty(len(whole.dictionary), object)
    names[:] = whole.dictionary.to_pylist()
    return names[whole.indices.to_numpy(zero_copy_only=False)]


def parquet_bytes(parts: Mapping[str, Contents]) -> bytes:
    """Return the columns as Parquet."""
    _, parquet = needs_pyarrow("writing")
    stream = io.BytesIO()
    parquet.write_table(_table_of(parts), stream)
    return stream.getvalue()


@contextmanager
def parquet_writer(path: Path) -> Iterator[Callable[[Contents], None]]:
    """Yield a function that adds rows to a Parquet file, which appears complete or not at all.

    Scores hardly get smaller by compression, and it would take most of the time. So do dictionaries and statistics.
    """
    pyarrow, parquet = needs_pyarrow("writing")
    writers: list[Any] = []
    # Arrow opens the file again: through Python, every piece of a column would be a call.
    with unfinished_file(path) as stream, pyarrow.output_stream(stream.name, buffer_size=_WRITE_BYTES) as output:

        def write(contents: Contents) -> None:
            table = _table_of({WHOLE_FILE: contents})
            if not writers:
                text = [field.name for field in table.schema if not _is_number(field.type)]
                options = {"compression": "none", "write_statistics": False, "store_schema": False}
                writers.append(parquet.ParquetWriter(output, table.schema, use_dictionary=text or False, **options))
            writers[0].write_table(table.cast(writers[0].schema))

        try:
            yield write
        finally:
            for writer in writers:
                writer.close()


def _table_of(parts: Mapping[str, Contents]) -> Any:
    """Return the columns as a table of Arrow; numbers keep their type, and are not copied."""
    import pyarrow

    arrays = {}
    for name, values in columns_of(parts).items():
        if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
            kind = pyarrow.from_numpy_dtype(values.dtype)
            data = pyarrow.py_buffer(np.ascontiguousarray(values))
            arrays[name] = pyarrow.Array.from_buffers(kind, len(values), [None, data])
        elif isinstance(values, np.ndarray | list):
            arrays[name] = _text_column(list(values))
        else:
            arrays[name] = values  # a column of another Parquet file
    return pyarrow.table(arrays)


def _text_column(values: list[Any]) -> Any:
    import pyarrow

    try:
        return pyarrow.array(values)
    except UnicodeEncodeError as error:
        raise BadFile(f"holds text that UTF-8 cannot hold ({error.reason}); write .npz or .json") from error
    except pyarrow.ArrowException:
        return pyarrow.array([str(value) for value in values])  # nested or mixed values of another format


def needs_pyarrow(doing: str) -> tuple[Any, Any]:
    """Return pyarrow and its module for Parquet, or name the extra to install."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BadFile(f'{doing} .parquet needs pyarrow: pip install "glayers[parquet]"') from error
    return pyarrow, parquet
