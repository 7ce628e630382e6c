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
from tests.files import write_anew

needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="forks processes, and limits them")
# Each command runs in a fork of one process: a signal arrives where a function is called, or files may not grow.
FORKING = """
import gc, json, os, pathlib, resource, signal, sys, time
import glayers.calibrators, pyarrow.parquet
from glayers.cli import app, main, models
from typer.testing import CliRunner
CliRunner().invoke(app, ["methods"])  # imports once what every child would import
owners = {"os": os, "Path": pathlib.Path, "models": models}
gc.freeze()  # or every child would visit all objects when it ends
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background would ignore
for owner, name, sent, *words in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        if name == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        else:
            original, calls = getattr(owners[owner], name), []
            def kill(*given, **named):
                calls.append(None)
                if owner == "models" and len(calls) < 3:  # of three files, the last is interrupted
                    return original(*given, **named)
                os.kill(os.getpid(), signal.Signals[sent])
                time.sleep(1)  # another thread may receive the signal, a little later
            setattr(owners[owner], name, kill)
        sys.argv = ["glayers", *words]
        main()
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
APPLY = ("apply", "model.safetensors", "test.npz", "-o")
ENDINGS = (".npz", ".csv", ".parquet", ".jsonl")


@pytest.mark.thorough
@needs_fork
def test_a_signal_at_any_step_and_a_full_disk_leave_the_old_file_or_none(folder: Path) -> None:
    Path("many").mkdir()
    for number in range(3):
        shutil.copy("test.npz", f"many/{number}.npz")
    there = ["old.npz", "full.npz", "full.parquet"]
    for name in there:
        Path(name).write_text("precious")
    many = ["apply", "model.safetensors", "many", "-o", "out"]
    commands: list[list[str]] = []
    for sent in ("SIGINT", "SIGTERM"):
        commands += [[*step, sent, *APPLY, "new.npz"] for step in (("os", "fsync"), ("os", "link"))]
        steps = (("os", "fsync"), ("Path", "chmod"), ("Path", "replace"))
        commands += [[*step, sent, *APPLY, "old.npz", "--force"] for step in steps]
        commands.append(["models", "write_parquet", sent, *many])
    commands += [["", "limit", "", *APPLY, f"full{ending}", "--force"] for ending in ENDINGS]
    commands.append(["", "limit", "", *many])
    program = [sys.executable, "-c", FORKING, json.dumps(commands)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    found = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("status")]
    assert found == 6 * [130] + 6 * [143] + 5 * [1]
    own = [line for line in done.stderr.splitlines() if "cannot be written" in line]
    assert all("File too large" in line for line in own)
    assert len(own) == 5
    assert [Path(name).read_text() for name in there] == ["precious"] * 3
    made = ("new.npz", "full.csv", "full.jsonl", "out")
    assert [name for name in made if Path(name).exists()] == []
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
    logits = rng.normal(size=(30, 3))
    labels = rng.integers(0, 3, 30)
    made = Contents(logits=logits, labels=labels, groups=groups)
    data = to_bytes(made, ending)
    path = tmp_path / f"a{ending}"
    found = []
    for place in range(0, len(data), 5):
        write_anew(path, data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        found.append(_reads(lambda: read_predictions(path)))
    assert found.count("refused") > 100
    whole = [rows for rows in found if rows != "refused"]
    for rows in whole:  # names, as that of the groups, and times in headers have no checksum
        assert np.array_equal(rows.logits, made.scores)
        assert rows.labels.tolist() == labels.tolist()


def _reads(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except BadFile:
        return "refused"
