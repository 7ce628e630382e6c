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
from glayers.predictions.tables import COLUMN_KEYS, Columns, columns_of, contents_of_table, key_of_column, own_names

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
        names = list(schema.names)
        own = own_names(names, reading.columns)
        known = [name for name in names if key_of_column(name) in COLUMN_KEYS or name in own.values()]
        text = [name for name in known if _is_text(pyarrow, schema.field(name))]
        _refuse_packed_text(metadata, {*text})
        wanted = names if reading.others else known
        # Text is read as numbers and a list of different names, so that a long name is in memory once.
        options = {"metadata": metadata, "read_dictionary": text, "buffer_size": _READ_BYTES, "pre_buffer": False}
        with parquet.ParquetFile(path, **options) as file:
            first = _first_row(portion)
            for table in _tables(file, wanted, {*text}, portion):
                columns = _columns(table, names, first)
                if reading.others:
                    columns = Columns(names, columns.cells, columns.place, columns.block, table.column)
                yield contents_of_table(columns.renamed(own))
                first += len(table)


def _first_row(portion: Portion) -> int:
    return 0 if portion.rows is None else portion.rows.start


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
        starts = group_starts(file.metadata)
        groups = [group for group, start in enumerate(starts) if start in portion.rows]
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


def _columns(table: Any, names: list[str], first: int) -> Columns:
    return Columns(
        names,
        cells=partial(_cells, table, first),
        place=lambda row: f"row {first + row}",
        block=partial(_side_by_side, table),
    )


def _cells(table: Any, first: int, name: str) -> Array:
    """Return one column; as a block where that is possible, since pyarrow's other ways to NumPy import pandas."""
    block = _side_by_side(table, [name])
    return _column_without_gaps(table, name, first) if block is None else block[:, 0]


def _side_by_side(table: Any, names: list[str]) -> Array | None:
    """Return columns of one type of numbers without gaps as one array, or None."""
    import pyarrow

    columns = table.select(names)
    kind, *others = {field.type for field in columns.schema}
    is_number = pyarrow.types.is_floating(kind) or pyarrow.types.is_integer(kind)
    if others or not is_number or any(column.null_count for column in columns.columns):
        return None
    batches = columns.combine_chunks().to_batches()
    if not batches:
        return None
    return np.asarray(batches[0].to_tensor(row_major=True).to_numpy())


def _is_text(pyarrow: Any, field: Any) -> bool:
    """Return whether a column holds text; refuse columns that hold neither text nor numbers, before reading them."""
    types = pyarrow.types
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if any(is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_binary)):
        return True
    if types.is_large_binary(kind):
        return True
    if not any(is_kind(kind) for is_kind in (types.is_boolean, types.is_integer, types.is_floating, types.is_null)):
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
                text = [field.name for field in table.schema if not _is_plain_number(pyarrow, field.type)]
                options = {"compression": "none", "write_statistics": False, "store_schema": False}
                writers.append(parquet.ParquetWriter(output, table.schema, use_dictionary=text or False, **options))
            writers[0].write_table(table.cast(writers[0].schema))

        try:
            yield write
        finally:
            for writer in writers:
                writer.close()


def _is_plain_number(pyarrow: Any, kind: Any) -> bool:
    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind))


def _table_of(parts: Mapping[str, Contents]) -> Any:
    """Return the columns as a table of Arrow; numbers keep their type, and are not copied."""
    import pyarrow

    arrays = {}
    for name, values in columns_of(parts).items():
        if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
            kind = pyarrow.from_numpy_dtype(values.dtype)
            data = pyarrow.py_buffer(np.ascontiguousarray(values))
            arrays[name] = pyarrow.Array.from_buffers(kind, len(values), [None, data])
        elif isinstance(values, np.ndarray):
            arrays[name] = _text_column(values.tolist())
        else:
            arrays[name] = _text_column(values) if isinstance(values, list) else values
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
