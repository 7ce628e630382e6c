"""No verb replaces a file without --force, destroys its input or leaves an incomplete file."""

import io
import os
from pathlib import Path

import pytest
import typer

from glayers import Predictions, TemperatureScaling
from glayers.cli.arguments import PIPE, read_parts, source_of, write_to_pipe
from glayers.errors import BadFile
from glayers.predictions.contents import Reading
from tests.cli.running import complaint, leftovers, run, usage_error

VERBS = {
    "fit": ["fit", "calibration.npz", "-m", "temperature", "-o"],
    "apply": ["apply", "model.safetensors", "test.npz", "--format", "npz", "-o"],
    "export": ["export", "model.safetensors", "-o"],
    "report": ["report", "both.npz", "--methods", "temperature", "-o"],
    "plot": ["plot", "reliability", "test.npz", "-o"],
}
every_writer = pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)


@every_writer
@pytest.mark.usefixtures("quick_pages")
def test_nothing_is_overwritten_without_force(folder: Path, words: list[str]) -> None:
    there = folder / "there.png"
    there.write_text("precious")
    assert "there.png: already exists; use --force to replace it" in complaint(run(*words, there))
    assert there.read_text() == "precious"
    done = run(*words, there, "--force")
    assert done.exit_code == 0, done.output
    assert there.read_bytes()[:8] != b"precious"
    assert leftovers(folder) == []


@every_writer
def test_an_input_is_never_replaced_not_even_by_force(folder: Path, words: list[str]) -> None:
    given = next(Path(word) for word in words if word.endswith((".npz", ".safetensors")))
    before = given.read_bytes()
    link = folder / "link.png"
    link.symlink_to(folder / given)
    assert "is one of the input files" in complaint(run(*words, link, "--force"))
    assert given.read_bytes() == before


@every_writer
@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("no/such/folder/x.png", "does not exist; create it first"),
        ("folder.png", "is a directory or another special file"),
        ("/dev/full", "is a directory or another special file"),
    ],
)
def test_output_that_cannot_be_written_is_refused_before_the_work(
    folder: Path, words: list[str], where: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TemperatureScaling, "fit_predictions", None)  # a fit would fail
    (folder / "folder.png").mkdir()
    done = run(*words, where, "--force")
    if words[0] == "plot" and where == "/dev/full":
        assert "the ending must be one of .png, .svg, .pdf" in usage_error(done)
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


def test_a_model_does_not_go_into_a_pipe(folder: Path) -> None:
    assert "give the name of a file" in usage_error(run(*VERBS["fit"], "-"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_text_for_a_terminal_has_no_escape_sequences_in_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr("sys.stdout", shown)
    write_to_pipe(b"probability_\x1b[31mred\tlabel\n0.5\t1\n", text=True)
    assert shown.getvalue() == "probability_\\x1b[31mred    label\n0.5    1\n"
    with pytest.raises(typer.BadParameter, match="redirect the output"):
        write_to_pipe(b"PK", text=False)


def test_a_closed_standard_input_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(BadFile, match="standard input is closed"):
        read_parts(source_of([PIPE], Reading()))
