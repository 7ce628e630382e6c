"""Bytes -> a file that is there in full or not at all: whoever looks finds the old one or the new one, never a part."""

import os
import secrets
from pathlib import Path

from glayers.errors import BadFile


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in one step; whatever goes wrong before leaves what was there, and nothing beside it.

    The bytes go to a file of another name in the same folder, reach the disk, and then take the name. A link is
    followed, and a file that is replaced hands its permissions on.
    """
    if "\0" in str(path):
        raise BadFile(f"{str(path)!r}: no name of a file holds the character NUL; leave it out")
    target = Path(os.path.realpath(path))
    # Named before it exists: an interrupt at any moment knows what to clear away.
    unfinished = target.parent / f".{secrets.token_hex(8)}.unfinished"
    try:
        if target.is_dir():
            raise BadFile(f"{path}: is a directory; give the name of a file in it")
        if target.exists() and not target.is_file():
            raise BadFile(f"{path}: is a pipe, a device or the like, and no file to replace; give another name")
        _write(unfinished, data)
        if target.exists():
            unfinished.chmod(target.stat().st_mode)
        unfinished.replace(target)
    except OSError as error:
        raise BadFile(
            f"{path}: cannot be written ({error.strerror or error}); what was there before, if anything, still is. "
            f"Check that the folder exists, that you may write to it and that it has room"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
