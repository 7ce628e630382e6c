import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAM = Path(sys.executable).with_name("glayers")


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(300, 4)) * 3, rng.integers(0, 4, 300)
    path = tmp_path / "model.npz"
    np.savez(path, logits_val=logits[:100], y_val=labels[:100], logits_test=logits[100:], y_test=labels[100:])
    return path


def test_score_prints_a_column_for_each_part(saved: Path) -> None:
    done = run("score", saved)
    assert done.returncode == 0
    header = done.stdout.splitlines()[1].split()
    assert header == ["calibration", "test"]
    assert "overconfident: says" in done.stdout


def test_score_as_json_is_the_scorecard(saved: Path) -> None:
    done = run("score", saved, "--part", "test", "--json")
    card = json.loads(done.stdout)
    assert list(card) == ["test"]
    assert card["test"]["rows"] == 200


@pytest.mark.parametrize(
    "make",
    [
        lambda _: None,
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n"),
        lambda path: np.savez(path, logits=np.full((3, 2), np.nan), labels=[0, 1, 1]),
        lambda path: np.savez(path, logits=np.zeros((3, 2)), labels=[0, 1]),
        lambda path: np.savez(path, logits=np.zeros((3, 2)), labels=[0, 1, 7]),
    ],
    ids=["missing", "directory", "empty", "git-lfs", "nan", "shapes", "labels"],
)
def test_bad_input_is_one_line_and_a_status_of_one(make: object, tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    assert callable(make)
    make(path)
    done = run("score", path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("glayers: ")
    assert "bad.npz" in done.stderr


def test_warnings_are_notes(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", probabilities=[[1.0, 0.0], [0.5, 0.5]], labels=[0, 1])
    done = run("score", tmp_path / "p.npz")
    assert done.returncode == 0
    assert done.stderr.startswith("note: 1 of 4 probabilities are exactly 0")


def test_the_demo_shows_overconfident_sample_data() -> None:
    done = run("demo")
    assert done.returncode == 0
    assert "test: overconfident: says" in done.stdout


def test_the_version_is_the_package_version() -> None:
    import glayers

    assert run("--version").stdout.strip() == glayers.__version__


def test_no_command_is_a_usage_error() -> None:
    done = run()
    assert done.returncode == 2
    assert "score" in done.stdout + done.stderr
