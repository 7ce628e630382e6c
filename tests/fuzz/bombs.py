"""Small files made by hand to take minutes or gigabytes: each is refused at once, or read within the limits."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from glayers import BadFile, read_predictions

LONG = "x" * 130_000
TOO_LARGE = "is too large"


def long_group_in_text() -> bytes:
    return b"logit_a,logit_b,label,group\n1,2,0," + LONG.encode() + b"\n" + b"1,2,0,b\n" * 16_000


def packed_zeros() -> bytes:
    """Return a small archive with 160 MB of logits in it."""
    rows, stream = 10_000_000, io.BytesIO()
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows}, 2), }}".encode().ljust(117) + b"\n"
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("logits.npy", "w") as member:
        member.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        for _ in range(rows * 16 // 2**20):
            member.write(bytes(2**20))
        member.write(bytes(rows * 16 % 2**20))
    return stream.getvalue()


def many_equal_rows() -> bytes:
    """Return a Parquet file of some kB with 10 million equal rows: 80 MB per column."""
    block = {"logit_a": np.ones(10**6), "logit_b": np.zeros(10**6), "label": np.zeros(10**6, np.int64)}
    table, stream = pyarrow.table(block), io.BytesIO()
    with pyarrow.parquet.ParquetWriter(stream, table.schema) as writer:
        for _ in range(10):
            writer.write_table(table)
    return stream.getvalue()


def one_long_name(rows: int = 50_000) -> bytes:
    """Return a Parquet file in which all rows belong to one group with a name of 130 kB: 6.5 GB if every row had it."""
    names = pyarrow.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [LONG])
    columns: dict[str, Any] = {
        "logit_a": np.full(rows, 2.0),
        "logit_b": np.zeros(rows),
        "label": np.zeros(rows, np.int64),
    }
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns | {"group": names}), stream)
    return stream.getvalue()


# The name of a file, its bytes, and what the error says; None if the file is read.
FILES: dict[str, tuple[str, Callable[[], bytes], str | None]] = {
    "one long group": ("a.csv", long_group_in_text, None),
    "empty lists": ("a.json", lambda: b'{"logits": [' + b"[]," * 2_000_000 + b"[]]}", "no labels"),
    "text among numbers": (
        "a.json",
        lambda: json.dumps({"logits": [[0.0, 1.0]] * 20_000, "labels": [0] * 19_999 + [LONG]}).encode(),
        "labels of row 19999 has",
    ),
    "zeros in an archive": ("a.npz", packed_zeros, TOO_LARGE),
    "equal rows in Parquet": ("a.parquet", many_equal_rows, TOO_LARGE),
    "one long name in Parquet": ("a.parquet", one_long_name, None),
}


def check_file(name: str, folder: Path) -> None:
    """Read one file of `FILES`."""
    ending, make, said = FILES[name]
    path = folder / ending
    path.write_bytes(make())
    assert path.stat().st_size < 10**7
    if said is None:
        assert len(read_predictions(path)) > 10**4
    else:
        check_refused(lambda: read_predictions(path), said)


def check_refused(call: Callable[[], Any], said: str) -> None:
    try:
        call()
    except BadFile as error:
        if said not in str(error) or len(str(error)) > 1_000:
            raise AssertionError(f"expected {said!r}") from error
        return
    raise AssertionError("was not refused")


BOMBS = [*FILES]


def check_bomb(number: int, folder: Path) -> str:
    """Set off one of `BOMBS`."""
    check_file(BOMBS[number], folder)
    return "handled"
