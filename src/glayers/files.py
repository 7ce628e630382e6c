"""Bytes -> a file, written atomically: a reader finds the old file or the new one, never a part of it."""

import os
import secrets
from pathlib import Path

from glayers.errors import BadFile


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically; an error leaves the old file as it was, and no temporary file.

    The bytes are written to a temporary file in the same folder, flushed to disk, and renamed. Symbolic links are
    followed, and the new file has the permissions of the one it replaces.
    """
    if "\0" in str(path):
        raise BadFile(f"{str(path)!r}: file names cannot contain the character NUL; remove it")
    target = Path(os.path.realpath(path))
    # The name is fixed before the file exists, so that an interrupt at any time can remove it.
    unfinished = target.parent / f".{secrets.token_hex(8)}.unfinished"
    try:
        if target.is_dir():
            raise BadFile(f"{path}: is a directory; give the name of a file in it")
        if target.exists() and not target.is_file():
            raise BadFile(f"{path}: is a pipe or a device, not a regular file; give another name")
        _write(unfinished, data)
        if target.exists():
            unfinished.chmod(target.stat().st_mode)
        unfinished.replace(target)
    except OSError as error:
        raise BadFile(
            f"{path}: cannot be written ({error.strerror or error}); any existing file is unchanged. "
            f"Check that the folder exists, that you may write to it, and that the disk is not full"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
