"""Bytes -> a file, written atomically: a reader finds the old file or the new one, never a part of it."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from glayers.errors import BadFile, GlayersError, shown

_LOGGER = logging.getLogger(__name__)
DAMAGED = "the file is cut short or damaged: fetch it or write it again"
EXISTS = "already exists; use --force to replace it, or choose another name"
MAX_BYTES = 2**33  # 8 GiB, about a million rows of a thousand classes
LIMIT = "GLAYERS_MAX_BYTES"  # the environment variable that changes it


def check_size(n_bytes: int) -> None:
    """Refuse contents that would take more memory than the limit; a reader asks before it unpacks them."""
    variable = os.environ.get(LIMIT, "")
    if variable and not variable.isdecimal():
        raise GlayersError(f"the variable {LIMIT} must be a number of bytes; got {variable[:40]!r}")
    limit = int(variable[:30] or MAX_BYTES)
    if n_bytes > limit:
        raise BadFile(
            f"is too large: its contents would take more than {limit:,} bytes of memory. "
            f"If you trust the file, raise the limit by the environment variable {LIMIT}"
        )


def file_path(name: object) -> Path:
    """Return the path of a file, or raise an error if this is no name.

    >>> file_path("a.npz").suffix
    '.npz'
    """
    path = os.fspath(name) if isinstance(name, str | os.PathLike) else None
    if not isinstance(path, str):
        raise BadFile(f"the name of a file must be text or a path; got {shown(name)}")
    return Path(path)


def check_target(path: Path) -> None:
    """Refuse a place where no file can be written, symbolic links followed."""
    target = Path(os.path.realpath(path))
    folder = target.parent
    if target.exists() and not target.is_file():
        problem = "is a directory, a pipe or a device; choose another name"
    elif not folder.is_dir():
        problem = f"the folder {folder} does not exist; create it first"
    elif not os.access(folder, os.W_OK):
        problem = f"no permission to write to the folder {folder}; choose another"
    else:
        return
    raise BadFile(f"{path}: {problem}")


def write_whole(path: Path, data: bytes, *, force: bool = True) -> None:
    """Write a file atomically; an error leaves the old file as it was, and no temporary file.

    The bytes are written in the same folder, flushed to disk, and renamed. Symbolic links are followed, and the new
    file has the permissions of the one it replaces. Without `force`, a file that exists by then is not replaced.
    """
    if "\0" in str(path):
        raise BadFile(f"{str(path)!r}: file names cannot contain the character NUL; remove it")
    target = Path(os.path.realpath(path))
    with unfinished_name(path) as unfinished:
        check_target(path)
        with unfinished.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if force or not _linked(unfinished, target):
            if target.exists():
                unfinished.chmod(target.stat().st_mode)
            unfinished.replace(target)
    _LOGGER.info("wrote %s: %s bytes", path, f"{len(data):,}")


@contextmanager
def unfinished_name(path: Path) -> Iterator[Path]:
    """Yield a name for a file or folder that will be renamed to `path`; what still has it at the end is removed.

    The name is fixed before anything is written, so that an interrupt at any time can remove it.
    """
    unfinished = Path(os.path.realpath(path)).parent / f".{os.urandom(8).hex()}.unfinished"
    try:
        yield unfinished
    except OSError as error:
        raise BadFile(
            f"{path}: cannot be written ({error.strerror or error}); any existing file is unchanged. "
            f"Check that the disk is not full"
        ) from error
    finally:
        if os.path.lexists(unfinished):  # false where the folder cannot be read; Path would raise
            if unfinished.is_dir():
                shutil.rmtree(unfinished, ignore_errors=True)
            else:
                unfinished.unlink(missing_ok=True)


def _linked(unfinished: Path, target: Path) -> bool:
    """Give a file a second name, unless another writer has taken it; return whether the file system has such links."""
    try:
        os.link(unfinished, target)
    except FileExistsError as error:
        raise BadFile(f"{target}: {EXISTS}") from error
    except OSError:
        return False
    return True


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, or raise an error that says why it cannot be read."""
    try:
        if not path.exists():
            raise BadFile("there is no such file; check the path")
        if not path.is_file():
            raise BadFile("is a directory or not a regular file; give one file")
        return path.open("rb")
    except OSError as error:  # the system refuses; later errors are about what the file holds
        raise BadFile(f"cannot be opened ({error.strerror}); check its name and your right to read it") from error


def locked(path: Path) -> TextIO:
    """Return an open file beside this one: only one program at a time has it, and others wait until it is closed."""
    if os.name == "nt":
        raise BadFile("this system has no file locks; use Watch.load, update and save instead")
    import fcntl

    try:
        lock = Path(f"{os.path.realpath(path)}.lock").open("a")  # noqa: SIM115  # closed by the caller
    except (OSError, ValueError) as error:
        raise BadFile(f"{path}.lock: cannot be written ({error}); check the folder") from error
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


@contextmanager
def errors_as_bad_file(name: object, way_out: str = "") -> Iterator[None]:
    """Turn any error into a `BadFile` whose one line names the file and ends with a way out; not KeyboardInterrupt."""
    try:
        yield
    except GlayersError as error:
        raise BadFile(f"{name}: {_one_line(error)}{way_out}") from error
    except MemoryError as error:
        raise BadFile(f"{name}: is too large for the memory of this machine; read fewer rows at a time") from error
    except UnicodeDecodeError as error:
        where = f"{error.reason} at byte {error.start}"
        raise BadFile(f"{name}: is not UTF-8 text ({where}); save it as UTF-8{way_out}") from error
    except Exception as error:  # damaged bytes make NumPy, zipfile, csv, pyarrow and JSON raise almost anything
        what = f"{type(error).__name__}: {_one_line(error)}"
        raise BadFile(f"{name}: cannot be read ({what}); {DAMAGED}{way_out}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:600]
