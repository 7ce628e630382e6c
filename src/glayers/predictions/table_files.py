"""`.csv`, `.tsv` and `.parquet` files -> tables; a table file has one part, the whole file."""

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.predictions.contents import WHOLE_FILE, Contents, listed
from glayers.predictions.raw_arrays import DAMAGED
from glayers.predictions.tables import Table, TextTable, contents_of, is_known


def read_csv(path: Path) -> dict[str, Contents]:
    """Read a comma-separated file."""
    return _read_text(path, ",")


def read_tsv(path: Path) -> dict[str, Contents]:
    """Read a tab-separated file."""
    return _read_text(path, "\t")


def read_parquet(path: Path) -> dict[str, Contents]:
    """Read a Parquet file."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BadFile('reading .parquet needs pyarrow: pip install "glayers[parquet]"') from error
    try:
        with parquet.ParquetFile(path) as file:
            names = list(file.schema_arrow.names)
            table = file.read(columns=[name for name in names if is_known(name)])
            return {WHOLE_FILE: contents_of(_ArrowTable(names, table))}
    except pyarrow.ArrowException as error:
        raise BadFile(f"cannot be read as Parquet ({error}); {DAMAGED}") from error


@final
class _ArrowTable(Table):
    """A pyarrow table, whose columns know their types; columns of no meaning here are not read."""

    def __init__(self, names: Sequence[str], table: Any) -> None:
        self._names, self._table = names, table

    @property
    def names(self) -> Sequence[str]:
        """The columns, in the file's order."""
        return self._names

    def numbers(self, column: str) -> Array:
        """Return a column in its own precision."""
        values: Array = np.asarray(self._full(column).to_numpy())
        if values.dtype.kind not in "biuf":
            raise BadFile(f"column {column!r} holds {self._table[column].type}; expected numbers: cast it")
        return values

    def texts(self, column: str) -> list[str]:
        """Return a column as Python would write it."""
        return [str(value) for value in self._full(column).to_pylist()]

    def groups(self, column: str) -> Array:
        """Return a column as numbers or text, whichever it is."""
        groups: Array = np.array(self._full(column).to_pylist())
        if groups.dtype.kind not in "biufUS":
            raise BadFile(f"column {column!r} holds {self._table[column].type}; expected numbers or text: cast it")
        return groups

    def place(self, row: int) -> str:
        """Say where a row stands, counted from 0."""
        return f"row {row}"

    def _full(self, column: str) -> Any:
        """Return a column without gaps, which pyarrow would turn into NaN or None."""
        values = self._table[column]
        if values.null_count:
            row = values.is_null().to_pylist().index(True)
            raise BadFile(f"row {row}, column {column!r} is missing; fill in or remove that row")
        return values


def _read_text(path: Path, delimiter: str) -> dict[str, Contents]:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter=delimiter, strict=True)
            names = [name.strip() for name in next(reader, [])]
            rows, lines = [], []
            for row in reader:
                if row and len(row) != len(names):
                    raise BadFile(
                        f"line {reader.line_num} has {len(row)} cells, but the header has {len(names)}; "
                        f"mend that line, or write the file again"
                    )
                if row:
                    rows.append(row)
                    lines.append(reader.line_num)
    except UnicodeDecodeError as error:
        raise BadFile(f"is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
    if not rows:
        raise BadFile(f"has no rows under its header: {listed(names)}; write one line a row of predictions")
    if len(names) == 1:
        between = {",": "commas", "\t": "tabs"}[delimiter]
        raise BadFile(f"has one column, {names[0][:80]!r}; put {between} between the columns")
    return {WHOLE_FILE: contents_of(TextTable(names, rows, lines))}
