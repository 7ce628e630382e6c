"""The program in the shell: exit status, signals, closed pipes, full disks, help and start."""

import itertools
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import glayers
from glayers.cli import app, main
from tests.cli.conftest import overconfident
from tests.cli.running import VERBS, complaint, leftovers, run, run_program, run_programs, usage_error


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['glayers', '--help']\n"
        "from glayers.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'sklearn', 'scipy', 'matplotlib', 'pandas', 'pyarrow', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for word in ("fit", "apply", "export", "score", "compare", "report", "methods", "demo"):
        assert f"│ {word} " in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_eighty_columns_and_each_example_one_line(verb: str) -> None:
    lines = run(verb, "--help").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    _, _, examples = "\n".join(line.rstrip() for line in lines).partition("Examples:\n")
    assert examples
    assert all(line.startswith("   $ glayers ") or "|" in line for line in examples.splitlines() if line)


def test_the_version_is_the_package_version() -> None:
    assert run("--version").stdout.strip() == glayers.__version__


def test_no_command_is_a_usage_error() -> None:
    done = run()
    assert done.exit_code == 2
    assert "score" in done.output
    assert "No such command 'scoer'" in usage_error(run("scoer"))
    assert "Missing option '--output'" in usage_error(run("fit", "a.npz"))


def test_shell_completion_knows_verbs() -> None:
    asked = {"_GLAYERS_COMPLETE": "complete_bash", "COMP_WORDS": "glayers me", "COMP_CWORD": "1"}
    done = CliRunner(env=asked).invoke(app, [], prog_name="glayers")
    assert done.stdout.split() == ["methods"]


def test_an_output_that_is_full_closed_early_or_closed_from_the_start_is_no_bug(folder: Path) -> None:
    full = [["methods"], ["score", "--help"], ["--version"], ["info", "model.safetensors", "--json"]]
    closed = [["methods"], ["methods", "--json"]]  # as by head
    outputs = {"full disk": full, "closed pipe": closed, "closed": closed[:1]}
    done = run_programs(folder, *([output, *words] for output, commands in outputs.items() for words in commands))
    assert done[:4] == 4 * [(1, "glayers: cannot write the output: [Errno 28] No space left on device\n")]
    assert done[4:] == [(141, ""), (141, ""), (0, "")]


def test_an_interrupt_is_one_line_and_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)  # in the middle of writing
    done = run("apply", "model.safetensors", "test.npz", "-o", "x.npz")
    assert done.exit_code == 130
    assert done.stderr == "glayers: interrupted; no unfinished file was written\n"
    assert not Path("x.npz").exists()
    assert leftovers(folder) == []


@pytest.mark.parametrize(
    "name", ["two\nlines", "\x1b[31mred", "right\u202eleft", os.fsdecode(b"no text \xff"), "[bold]x"]
)
def test_file_names_cannot_control_the_terminal(folder: Path, name: str) -> None:
    path = Path("test.npz").rename(f"{name}.npz")
    good, said = run("score", path), complaint(run("score", f"{name}.txt"))
    plain = f"{name}.npz".encode("unicode_escape").decode()
    assert good.exit_code == 0
    assert good.stdout.splitlines()[0] == plain
    assert plain.removesuffix(".npz") in said
    assert (good.stdout + said).replace("\n", "").isprintable()


def test_a_file_name_that_is_not_text_is_printed_escaped(folder: Path) -> None:
    assert "no text \\udcff.txt: there is no such file" in complaint(
        run_program("score", os.fsdecode(b"no text \xff.txt"))
    )


def test_class_names_cannot_control_the_terminal(folder: Path) -> None:
    logits, labels = overconfident(30, 5)
    np.savez("odd.npz", logits=logits, labels=labels, class_names=np.array(["\x1b[2J", "[red]b", "c\rd", "\u202e"]))
    said = complaint(run("apply", "model.safetensors", "odd.npz", "-o", "x.npz"))
    assert "\\x1b[2J, [red]b, c\\rd, \\u202e" in said
    assert said.isprintable()


def test_the_installed_script_is_this_function() -> None:
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="glayers")
    assert script.value == "glayers.cli:main"
    assert script.load() is main


def test_the_module_runs_as_the_program_does() -> None:
    done = subprocess.run([sys.executable, "-m", "glayers", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == glayers.__version__


@pytest.mark.parametrize("verb", VERBS)
def test_paragraphs_of_the_help_are_filled(verb: str) -> None:
    text = run(verb, "--help").stdout.partition("╭")[0]
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        for line, after in itertools.pairwise(lines):
            assert len(f"{line} {after.split()[0]}") > 76, line  # the next word would not have fitted


def test_verbose_says_what_is_read_fitted_and_written(folder: Path) -> None:
    words = ["fit", "calibration.npz", "-o", "v.safetensors", "-m", "temperature"]
    quiet = run(*words).stderr
    assert "read " not in quiet
    said = run(*words, "--force", "--verbose").stderr.splitlines()
    assert said[0].startswith("glayers.predictions.source: read calibration.npz: ")
    assert any(line.startswith("glayers.calibrators.base: fitted temperature scaling on ") for line in said)
    assert said[-1].startswith("glayers.files: wrote v.safetensors: ")
    assert "read " not in run(*words, "--force").stderr  # the setting ends with the command


def test_programs_get_the_same_through_logging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "glayers"):
        glayers.TemperatureScaling().fit([[1.0, 0.0], [0.0, 2.0], [0.5, 0.0]], [0, 1, 1])
    (message,) = caplog.messages
    assert message.startswith("fitted temperature scaling on 3 rows in ")
