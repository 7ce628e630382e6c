"""No verb replaces a file without --force, destroys its input or leaves an incomplete file."""

import os
from pathlib import Path

import pytest

from glayers import Predictions, TemperatureScaling
from tests.cli.running import complaint, leftovers, run, usage_error

VERBS = {
    "fit": ["fit", "calibration.npz", "-m", "temperature", "-o"],
    "apply": ["apply", "model.safetensors", "test.npz", "-o"],
    "export": ["export", "model.safetensors", "-o"],
    "report": ["report", "calibration.npz", "test.npz", "--methods", "temperature", "-o"],
}


def named(words: list[str], name: str) -> str:
    """Return a name with the ending that a verb asks for."""
    return name.replace(".png", ".npz") if words[0] == "apply" else name


every_writer = pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)


@every_writer
@pytest.mark.usefixtures("quick_pages")
def test_nothing_is_overwritten_without_force(folder: Path, words: list[str]) -> None:
    there = folder / named(words, "there.png")
    there.write_text("precious")
    assert f"{there.name}: already exists; use --force to replace it" in complaint(run(*words, there))
    assert there.read_text() == "precious"
    done = run(*words, there, "--force")
    assert done.exit_code == 0, done.output
    assert there.read_bytes()[:8] != b"precious"
    assert leftovers(folder) == []


@every_writer
def test_an_input_is_never_replaced_not_even_by_force(folder: Path, words: list[str]) -> None:
    given = next(Path(word) for word in words if word.endswith((".npz", ".safetensors")))
    before = given.read_bytes()
    link = folder / named(words, "link.png")
    link.symlink_to(folder / given)
    assert "is one of the input files" in complaint(run(*words, link, "--force"))
    assert given.read_bytes() == before


@every_writer
@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("no/such/folder/x.png", "does not exist; create it first"),
        ("folder.png", "is a directory, a pipe or a device"),
        ("/dev/full", "is a directory, a pipe or a device"),
    ],
)
def test_output_that_cannot_be_written_is_refused_before_the_work(
    folder: Path, words: list[str], where: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TemperatureScaling, "fit_predictions", None)  # a fit would fail
    (folder / named(words, "folder.png")).mkdir()
    done = run(*words, named(words, where), "--force")
    if words[0] == "apply" and where == "/dev/full":
        assert "ending" in usage_error(done)
    else:
        assert said in complaint(done)


def test_a_folder_without_write_permission_is_refused_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # the tests may run as root
    assert "no permission to write to the folder" in complaint(run(*VERBS["fit"], "x.safetensors"))


def test_a_disk_that_fills_up_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    line = complaint(run(*VERBS["apply"], "x.npz"))
    assert "x.npz: cannot be written (No space left on device)" in line
    assert not (folder / "x.npz").exists()
    assert leftovers(folder) == []


def test_a_file_that_appears_while_fitting_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = TemperatureScaling.fit_predictions

    def meanwhile(self: TemperatureScaling, rows: Predictions) -> TemperatureScaling:
        Path("x.safetensors").write_text("precious")
        return fit(self, rows)

    monkeypatch.setattr(TemperatureScaling, "fit_predictions", meanwhile)
    assert "already exists" in complaint(run(*VERBS["fit"], "x.safetensors"))
    assert Path("x.safetensors").read_text() == "precious"
