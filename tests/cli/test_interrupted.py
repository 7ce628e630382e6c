"""`apply` when a signal, a full disk, a second writer or damaged bytes come in between: nothing lost, nothing half."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glayers import read_predictions
from glayers.cli import models
from glayers.errors import BadFile
from glayers.predictions.contents import Contents
from glayers.predictions.formats import to_bytes, write_parquet
from tests.cli.running import complaint, leftovers, run

needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="forks processes, and limits them")
# Each command runs in a fork of one process: a signal arrives where a function is called, or files may not grow.
FORKING = """
import json, os, pathlib, resource, signal, sys
import glayers.calibrators, pyarrow.parquet
from glayers.cli import main
for owner, name, sent, *words in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        if name == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        else:
            kill = lambda *_, **__: os.kill(os.getpid(), signal.Signals[sent])
            setattr({"os": os, "Path": pathlib.Path}[owner], name, kill)
        sys.argv = ["glayers", *words]
        main()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
APPLY = ("apply", "model.safetensors", "test.npz", "-o")


def statuses(commands: list[list[str]]) -> tuple[list[int], list[str]]:
    """Return exit status and errors of commands, each after what happens to it."""
    program = [sys.executable, "-c", FORKING, json.dumps(commands)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    return list(map(int, done.stdout.split())), done.stderr.splitlines()


@needs_fork
def test_a_signal_at_any_step_of_writing_leaves_the_old_file_or_none(folder: Path) -> None:
    Path("old.npz").write_text("precious")
    commands: list[list[str]] = []
    for sent in ("SIGINT", "SIGTERM"):
        commands += [[*step, sent, *APPLY, "new.npz"] for step in (("os", "fsync"), ("os", "link"))]
        steps = (("os", "fsync"), ("Path", "chmod"), ("Path", "replace"))
        commands += [[*step, sent, *APPLY, "old.npz", "--force"] for step in steps]
    found, _ = statuses(commands)
    assert found == 5 * [130] + 5 * [143]
    assert not Path("new.npz").exists()
    assert Path("old.npz").read_text() == "precious"
    assert leftovers(folder) == []


@needs_fork
@pytest.mark.thorough
def test_a_full_disk_leaves_the_old_file_or_none(folder: Path) -> None:
    Path("many").mkdir()
    for number in range(3):
        shutil.copy("test.npz", f"many/{number}.npz")
    outputs = [f"x{ending}" for ending in (".npz", ".csv", ".parquet", ".jsonl")]
    for name in outputs[::2]:
        Path(name).write_text("precious")
    commands = [["", "limit", "", *APPLY, name, "--force"] for name in outputs]
    commands.append(["", "limit", "", "apply", "model.safetensors", "many", "-o", "out"])
    found, said = statuses(commands)
    assert found == 5 * [1]
    own = [line for line in said if line.startswith("glayers:")]  # coverage cannot write either, and says so
    assert all("cannot be written" in line and "File too large" in line for line in own)
    assert len(own) == 5
    assert [Path(name).exists() for name in (*outputs, "out")] == [True, False, True, False, False]
    assert all(Path(name).read_text() == "precious" for name in outputs[::2])
    assert leftovers(folder) == []


@pytest.mark.parametrize("force", [False, True])
def test_of_two_writers_the_second_is_refused_or_wins_by_force(
    folder: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    sync = os.fsync

    def meanwhile(file: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        assert run("apply", "model.safetensors", "new.csv", "-o", "x.npz").exit_code == 0

    monkeypatch.setattr(os, "fsync", meanwhile)
    done = run(*APPLY, "x.npz", *["--force"] * force)
    with np.load("x.npz") as stored:
        assert ("labels" in stored) is force  # which new.csv does not have
    if not force:
        assert "x.npz: already exists; use --force" in complaint(done)
    assert done.exit_code == (0 if force else 1)
    assert leftovers(folder) == []


def test_without_links_a_file_system_still_takes_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    assert run(*APPLY, "x.npz").exit_code == 0
    assert len(read_predictions("x.npz")) == 150
    assert leftovers(folder) == []


def test_of_two_writers_of_a_directory_the_second_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("many").mkdir()
    shutil.copy("test.npz", "many/0.npz")

    def meanwhile(*arguments: Any) -> int:
        Path("out").mkdir()
        Path("out/part-00000.parquet").write_text("precious")
        return write_parquet(*arguments)

    monkeypatch.setattr(models, "write_parquet", meanwhile)
    assert "out: cannot be written" in complaint(run("apply", "model.safetensors", "many", "-o", "out"))
    assert [path.read_text() for path in Path("out").iterdir()] == ["precious"]
    assert leftovers(folder) == []


@pytest.mark.parametrize("ending", [".parquet", ".npz"])
def test_damaged_bytes_are_found_by_checksums(ending: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    groups = np.array(["a", "b", "c"] * 10)  # text, whose encoding is looked up
    made = Contents(logits=rng.normal(size=(30, 3)), labels=rng.integers(0, 3, 30), groups=groups)
    data = to_bytes(made, ending)
    path = tmp_path / f"a{ending}"
    found = []
    for place in range(0, len(data), 5):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        found.append(_reads(lambda: read_predictions(path)))
    assert found.count("refused") > 100
    whole = [rows for rows in found if rows != "refused"]
    assert all(
        np.array_equal(rows.logits, made.scores) for rows in whole
    )  # names, as that of the groups, and times in headers have no checksum


def _reads(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except BadFile:
        return "refused"
