"""A stream of bytes, such as a pipe -> a file for a while, with the ending that its first bytes ask for.

Files say what they are by their names; a pipe has none, so that here, the format is told by the contents.
"""

import gzip
import shutil
import tempfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from glayers.errors import BadFile

# The first bytes of what is not text; "(" begins the oldest pickles, and no header of a table.
_BEGINNINGS = {
    b"PK\x03\x04": ".npz",
    b"\x93NUMPY": ".npy",
    b"PAR1": ".parquet",
    b"\x80": ".pkl",
    b"(": ".pkl",
    b"{": ".json",
    b"[": ".json",
}
_ZIPPED = b"\x1f\x8b"
_LOOKED_AT = 65_536  # a header of a thousand long class names


@contextmanager
def spooled(stream: IO[bytes]) -> Iterator[Path]:
    """Copy a stream to a file that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="glayers-") as folder:
        yield _copied(stream, Path(folder))


def ending_of(beginning: bytes) -> str:
    r"""Return the ending that a file with these first bytes should have; text is a table, with tabs or with commas.

    >>> ending_of(b"\x93NUMPY\x01"), ending_of(b"logit_a\tlogit_b\tlabel\n"), ending_of(b' {"logits": [[')
    ('.npy', '.tsv', '.json')
    """
    if beginning.startswith(_ZIPPED):
        return f"{ending_of(_unzipped(beginning))}.gz"
    told = beginning.removeprefix(BOM_UTF8).lstrip()
    known = (ending for magic, ending in _BEGINNINGS.items() if told.startswith(magic))
    header = beginning.split(b"\n", 1)[0]
    return next(known, ".tsv" if b"\t" in header else ".csv")


def _copied(stream: IO[bytes], folder: Path) -> Path:
    try:
        beginning = stream.read(_LOOKED_AT)
        path = folder / f"stream{ending_of(beginning)}"
        with path.open("wb") as copy:
            copy.write(beginning)
            shutil.copyfileobj(stream, copy)
    except OSError as error:
        raise BadFile(
            f"standard input: cannot be kept for reading ({error.strerror or error}); "
            f"check that {folder.parent} has room, or set TMPDIR to a folder that has"
        ) from error
    return path


def _unzipped(beginning: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(beginning, _LOOKED_AT)
    except (zlib.error, gzip.BadGzipFile):
        return b""
