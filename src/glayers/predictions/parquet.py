"""`.parquet` files with one column per class <-> contents, whole or some rows at a time."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.files import check_size, unfinished_file
from glayers.predictions.contents import WHOLE_FILE, Chunks, Contents, Parts, Portion, as_text, object_array
from glayers.predictions.tables import COLUMN_KEYS, columns_of, contents_of_table, is_known, key_of_column, known_names

_TEXT = ("string", "large_string", "binary", "large_binary")


def read_parquet(portion: Portion) -> Chunks:
    """Read a Parquet file, loading only the columns that have a meaning here, or all of them.

    One thread reads: the columns are so short that several threads take more time.
    """
    metadata = read_metadata(portion.path)
    if metadata.num_rows == 0:
        raise BadFile("has no rows; remove the file")
    schema = metadata.schema.to_arrow_schema()
    known = dict(zip(schema.names, known_names(schema.names, portion.reading.columns), strict=True))
    read = [name for name in known if key_of_column(known[name]) in COLUMN_KEYS]
    text = [name for name in read if _is_text(schema.field(name))]
    wanted = list(known) if portion.reading.others else read
    _check_memory(metadata, len(wanted), text, portion)
    first_row = portion.rows.start if portion.rows else 0
    # Text is read as numbers and a list of different names, so that a long name is in memory once.
    with needs_pyarrow().parquet.ParquetFile(portion.path, read_dictionary=text, metadata=metadata) as file:
        for table in _tables(file, wanted, portion):
            yield {WHOLE_FILE: _contents(table, known, first_row)}
            first_row += len(table)


def _tables(file: Any, wanted: list[str], portion: Portion) -> Iterator[Any]:
    """Yield tables of the wanted columns, however long the row groups of the file are."""
    if portion.entries is None:
        yield file.read(columns=wanted, use_threads=False)
        return
    groups = None
    if portion.rows is not None:
        groups = [group for group, start in enumerate(group_starts(file.metadata)) if start in portion.rows]
    step = portion.rows_at_once(len(wanted))
    for batch in file.iter_batches(step, row_groups=groups, columns=wanted, use_threads=False):
        yield needs_pyarrow().Table.from_batches([batch])


def group_starts(metadata: Any) -> list[int]:
    """Return the first row of each row group."""
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    starts: list[int] = np.cumsum([0, *sizes])[:-1].tolist()
    return starts


def read_metadata(path: Path) -> Any:
    """Return what the last bytes of a Parquet file say about it."""
    return needs_pyarrow().parquet.read_metadata(path)


def _is_text(field: Any) -> bool:
    """Return whether a column holds text; refuse columns that hold neither text nor numbers, before reading them."""
    types = needs_pyarrow().types
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if str(kind) in _TEXT:
        return True
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)):
        raise BadFile(f"column {field.name[:80]!r} holds {str(kind)[:80]}; expected numbers or text: cast it")
    return False


def _check_memory(metadata: Any, n_columns: int, text: list[str], portion: Portion) -> None:
    """Count the memory that columns will take, before anything is unpacked: a few bytes may stand for many rows."""
    n_bytes = 2 * 8 * metadata.num_rows * n_columns  # the columns, and the array made of them
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name = column.path_in_schema
            if name in text:
                n_bytes += column.total_uncompressed_size
                if "DELTA_BYTE_ARRAY" in column.encodings:  # each name may repeat the one before it
                    raise BadFile(f"column {name[:80]!r} has the encoding DELTA_BYTE_ARRAY; write it with the default")
    if portion.entries is None:
        check_size(n_bytes, portion.limit)


def _contents(table: Any, known: dict[str, str], first_row: int) -> Contents:
    columns = {}
    others = {}
    for name, known_name in known.items():
        columns[known_name] = np.empty(0, object)
        if name in table.column_names:
            if key_of_column(known_name) in COLUMN_KEYS:
                columns[known_name] = _array(table[name], known_name, first_row)
            elif not is_known(known_name):
                others[known_name] = table[name]
    return contents_of_table(columns, lambda row: f"row {first_row + row}", others)


def _array(column: Any, name: str, first_row: int) -> Array:
    """Return a column as numbers or text, refusing gaps, which pyarrow would turn into NaN or None."""
    types = needs_pyarrow().types
    if column.null_count:
        row = first_row + column.is_null().to_pylist().index(True)
        raise BadFile(f"row {row}, column {name!r} is missing; fill in or remove that row")
    if types.is_dictionary(column.type):
        whole = column.unify_dictionaries().combine_chunks()
        return object_array(as_text(whole.dictionary.to_pylist()))[np.from_dlpack(whole.indices)]
    if types.is_boolean(column.type):
        return np.from_dlpack(column.cast("uint8").combine_chunks()) == 1
    return np.from_dlpack(column.combine_chunks())  # without pandas, which to_numpy would import


def parquet_bytes(parts: Parts) -> bytes:
    """Return the columns as Parquet."""
    stream = io.BytesIO()
    needs_pyarrow().parquet.write_table(_table_of(parts), stream)
    return stream.getvalue()


@contextmanager
def parquet_writer(path: Path) -> Iterator[Callable[[Contents], None]]:
    """Yield a function that adds rows to a Parquet file, which appears complete or not at all.

    Scores hardly get smaller by compression, and it would take most of the time. So do dictionaries and statistics.
    """
    pyarrow = needs_pyarrow()
    writers: list[Any] = []
    # Arrow opens the file again, with a buffer of 1 MB: through Python, every piece of a column would be a call.
    with unfinished_file(path) as stream, pyarrow.output_stream(stream.name, buffer_size=2**20) as output:

        def write(contents: Contents) -> None:
            table = _table_of({WHOLE_FILE: contents})
            if not writers:
                text = [field.name for field in table.schema if not pyarrow.types.is_primitive(field.type)]
                options = {"compression": "none", "write_statistics": False, "store_schema": False}
                writers.append(
                    pyarrow.parquet.ParquetWriter(output, table.schema, use_dictionary=text or False, **options)
                )
            writers[0].write_table(table.cast(writers[0].schema))

        try:
            yield write
        finally:
            for writer in writers:
                writer.close()


def _table_of(parts: Parts) -> Any:
    """Return the columns as a table of Arrow."""
    return needs_pyarrow().table({name: _arrow_column(values) for name, values in columns_of(parts).items()})


def _arrow_column(values: Any) -> Any:
    pyarrow = needs_pyarrow()
    if isinstance(values, pyarrow.ChunkedArray):  # of another Parquet file
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":  # not copied, and without importing pandas
        kind = pyarrow.from_numpy_dtype(values.dtype)
        return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(np.ascontiguousarray(values))])
    try:
        return pyarrow.array(list(values))
    except UnicodeEncodeError as error:
        raise BadFile(f"holds text that UTF-8 cannot hold ({error.reason}); write .npz or .json") from error
    except (pyarrow.ArrowException, OverflowError):
        return pyarrow.array([str(value) for value in values])  # nested or mixed values, or very long numbers


def needs_pyarrow() -> Any:
    """Return pyarrow, or name the extra to install."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise BadFile('.parquet needs pyarrow: pip install "glayers[parquet]"') from error
    return pyarrow
