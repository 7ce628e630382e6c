"""Writing a file whole: the new one or the old one is there, whatever happens, and nothing beside it."""

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glayers.errors import BadFile
from glayers.files import write_whole


def test_the_bytes_arrive_and_nothing_else(tmp_path: Path) -> None:
    for data in (b"", b"first", bytes(range(256)) * 1000, b"shorter"):
        write_whole(tmp_path / "a", data)
        assert (tmp_path / "a").read_bytes() == data
        assert [file.name for file in tmp_path.iterdir()] == ["a"]


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*arguments: Any, **named: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("there_before", [True, False])
@pytest.mark.parametrize("moment", ["fsync", "replace", "open"])
@pytest.mark.parametrize(
    ("happening", "said"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES)), "Permission denied"),
        (KeyboardInterrupt("stop"), "stop"),
        (MemoryError("no more"), "no more"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_any_error_leaves_the_old_file_and_no_temporary_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    happening: BaseException,
    said: str,
    there_before: bool,
) -> None:
    path = tmp_path / "a"
    if there_before:
        path.write_bytes(b"old")
    place = os if moment == "fsync" else Path
    expected = BadFile if isinstance(happening, OSError) else type(happening)
    with monkeypatch.context() as patch:
        patch.setattr(place, moment, failing(happening))
        with pytest.raises(expected, match=said):
            write_whole(path, b"new")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == ({"a": b"old"} if there_before else {})


def test_an_error_names_the_file_the_reason_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"missing/a: the folder .*missing does not exist"):
        write_whole(tmp_path / "missing" / "a", b"")
    with pytest.raises(BadFile, match="is a directory, a pipe or a device"):
        write_whole(tmp_path, b"")
    assert list(tmp_path.iterdir()) == []


def test_pipes_and_folders_are_not_replaced(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(BadFile, match=rf"^{path}: is a directory, a pipe or a device; choose another name"):
            write_whole(path, b"new")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link", "pipe"]


def test_names_that_no_file_can_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"a\\x00b'.*the character NUL"):
        write_whole(tmp_path / "a\0b", b"")
    with pytest.raises(BadFile, match="is a directory"):
        write_whole(Path("/"), b"")
    assert list(tmp_path.iterdir()) == []


def test_a_link_keeps_pointing_where_it_did(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "a", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_permissions_are_those_of_the_file_before_or_of_any_new_file(tmp_path: Path) -> None:
    plain, kept = tmp_path / "plain", tmp_path / "kept"
    plain.touch()
    write_whole(tmp_path / "a", b"")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    kept.touch(mode=0o640)
    kept.chmod(0o640)
    write_whole(kept, b"new")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640


def test_a_long_name_and_a_name_without_a_folder_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_whole(Path("a" * 250), b"x")
    assert (tmp_path / ("a" * 250)).read_bytes() == b"x"


def test_a_concurrent_reader_never_sees_a_partial_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    versions = {bytes([number]) * 200_000 for number in range(2)}
    write_whole(path, min(versions))
    seen: set[bytes] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(10):
        for version in sorted(versions):
            write_whole(path, version)
    done.set()
    reader.join()
    assert seen <= versions


def test_a_name_that_is_too_long_is_an_error_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="cannot be written"):
        write_whole(tmp_path / ("a" * 300), b"new")
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(BadFile, match="does not exist"):
        write_whole(tmp_path / "file" / "a", b"new")
