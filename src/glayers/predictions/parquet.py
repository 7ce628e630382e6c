"""`.parquet` files with one column per class <-> contents, whole or some rows at a time."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.files import DAMAGED, unfinished_file
from glayers.predictions.contents import WHOLE_FILE, Chunks, Contents, Parts, Portion, Reading, as_text
from glayers.predictions.tables import (
    COLUMN_KEYS,
    Columns,
    columns_of,
    contents_of_table,
    is_known,
    key_of_column,
    known_names,
    text_array,
)


def read_parquet(path: Path, reading: Reading, portion: Portion) -> Chunks:
    """Read a Parquet file, loading only the columns that have a meaning here, or all of them.

    One thread reads: the columns are so short that several threads take more time.
    """
    metadata = read_metadata(path)
    _, parquet = needs_pyarrow("reading")
    schema = metadata.schema.to_arrow_schema()
    known = dict(zip(schema.names, known_names(schema.names, reading.columns), strict=True))
    read = [name for name in known if key_of_column(known[name]) in COLUMN_KEYS]
    wanted = list(known) if reading.others else read
    text = [name for name in read if _is_text(schema.field(name))]
    first_row = portion.rows.start if portion.rows else 0
    # Text is read as numbers and a list of different names, so that a long name is in memory once.
    with _arrow_errors(), parquet.ParquetFile(path, read_dictionary=text, metadata=metadata) as file:
        for table in _tables(file, wanted, set(text), portion):
            yield {WHOLE_FILE: _contents(table, known, first_row)}
            first_row += len(table)


def _tables(file: Any, wanted: list[str], text: set[str], portion: Portion) -> Iterator[Any]:
    """Yield tables of the wanted columns, however long the row groups of the file are."""
    import pyarrow

    if file.metadata.num_rows == 0:
        raise BadFile("has no rows; remove the file")
    _check_size(file.metadata, wanted, text, portion)
    if portion.chunk_entries is None:
        yield file.read(columns=wanted, use_threads=False)
        return
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
    _, parquet = needs_pyarrow("reading")
    with _arrow_errors():
        return parquet.read_metadata(path)


@contextmanager
def _arrow_errors() -> Iterator[None]:
    import pyarrow

    try:
        yield
    except pyarrow.ArrowException as error:
        if isinstance(error, MemoryError):
            raise
        raise BadFile(f"cannot be read as Parquet ({error}); {DAMAGED}") from error


def _is_text(field: Any) -> bool:
    """Return whether a column holds text; refuse columns that hold neither text nor numbers, before reading them."""
    from pyarrow import types

    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if str(kind) in ("string", "large_string", "binary", "large_binary"):
        return True
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)):
        raise BadFile(f"column {field.name[:80]!r} holds {str(kind)[:80]}; expected numbers or text: cast it")
    return False


def _check_size(metadata: Any, wanted: list[str], text: set[str], portion: Portion) -> None:
    """Count the memory that columns will take, before anything is unpacked: a few bytes may stand for many rows."""
    is_whole = portion.chunk_entries is None
    if is_whole:
        portion.budget.spend(2 * 8 * metadata.num_rows * len(wanted))  # the columns, and the array made of them
    for group in map(metadata.row_group, range(metadata.num_row_groups if text else 0)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema not in text:
                continue
            if "DELTA_BYTE_ARRAY" in column.encodings:  # each name may repeat the one before it
                raise BadFile(
                    f"column {column.path_in_schema[:80]!r} has the encoding DELTA_BYTE_ARRAY, which is not read "
                    f"here; write the file again with the default encoding"
                )
            if is_whole:
                portion.budget.spend(column.total_uncompressed_size)


def _contents(table: Any, known: dict[str, str], first_row: int) -> Contents:
    columns = {}
    others = {}
    for name, known_name in known.items():
        is_read = name in table.column_names
        if is_read and key_of_column(known_name) in COLUMN_KEYS:
            columns[known_name] = _array(table[name], known_name, first_row)
        else:
            columns[known_name] = np.empty(0, object)
            if is_read and not is_known(known_name):
                others[known_name] = table[name]
    return contents_of_table(Columns(columns, lambda row: f"row {first_row + row}"), others)


def _array(column: Any, name: str, first_row: int) -> Array:
    """Return a column as numbers or text, refusing gaps, which pyarrow would turn into NaN or None."""
    from pyarrow import types

    if column.null_count:
        row = first_row + column.is_null().to_pylist().index(True)
        raise BadFile(f"row {row}, column {name!r} is missing; fill in or remove that row")
    if types.is_dictionary(column.type):
        whole = column.unify_dictionaries().combine_chunks()
        return text_array(as_text(whole.dictionary.to_pylist()))[np.from_dlpack(whole.indices)]
    if types.is_boolean(column.type):
        return np.from_dlpack(column.cast("uint8").combine_chunks()) == 1
    return np.from_dlpack(column.combine_chunks())  # without pandas, which to_numpy would import


def parquet_bytes(parts: Parts) -> bytes:
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
    # Arrow opens the file again, with a buffer of 1 MB: through Python, every piece of a column would be a call.
    with unfinished_file(path) as stream, pyarrow.output_stream(stream.name, buffer_size=2**20) as output:

        def write(contents: Contents) -> None:
            table = _table_of({WHOLE_FILE: contents})
            if not writers:
                text = [field.name for field in table.schema if not pyarrow.types.is_primitive(field.type)]
                options = {"compression": "none", "write_statistics": False, "store_schema": False}
                writers.append(parquet.ParquetWriter(output, table.schema, use_dictionary=text or False, **options))
            writers[0].write_table(table.cast(writers[0].schema))

        try:
            yield write
        finally:
            for writer in writers:
                writer.close()


def _table_of(parts: Parts) -> Any:
    """Return the columns as a table of Arrow."""
    import pyarrow

    return pyarrow.table({name: _arrow_column(values) for name, values in columns_of(parts).items()})


def _arrow_column(values: Any) -> Any:
    import pyarrow

    if isinstance(values, pyarrow.ChunkedArray):  # of another Parquet file
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":  # not copied, and without importing pandas
        kind = pyarrow.from_numpy_dtype(values.dtype)
        return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(np.ascontiguousarray(values))])
    try:
        return pyarrow.array(list(values))
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
