"""The program in the shell: exit status, signals, closed pipes, full disks, help and start."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import glayers
from glayers.cli import app, main
from tests.cli.conftest import overconfident
from tests.cli.running import PROGRAM, VERBS, complaint, leftovers, run, run_program, run_programs, usage_error


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['glayers', '--help']\n"
        "from glayers.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'sklearn', 'scipy', 'matplotlib', 'pandas', 'pyarrow', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for word in ("fit", "apply", "export", "score", "compare", "report", "plot", "methods", "demo"):
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


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("glayers fit x.npz --method temp", ["temperature"]),
        ("glayers compare x.npz --methods temperature,vec", ["temperature,vector"]),
        ("glayers plot rel", ["reliability"]),
        ("glayers apply m x -o y --format p", ["parquet"]),
        ("glayers me", ["methods"]),
    ],
)
def test_shell_completion_knows_verbs_methods_figures_and_formats(line: str, ends: list[str]) -> None:
    asked = {"_GLAYERS_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = CliRunner(env=asked).invoke(app, [], prog_name="glayers")
    assert done.stdout.split() == ends


def test_an_output_that_is_full_closed_early_or_closed_from_the_start_is_no_bug(folder: Path) -> None:
    full = [["methods"], ["score", "--help"], ["--version"], ["info", "model.safetensors", "--json"]]
    closed = [["methods"], ["methods", "--json"], ["apply", "model.safetensors", "test.npz", "-o", "-"]]  # as by head
    outputs = {"full disk": full, "closed pipe": closed, "closed": [closed[0], closed[2]]}
    done = run_programs(folder, *([output, *words] for output, commands in outputs.items() for words in commands))
    assert done[:4] == 4 * [(1, "glayers: cannot write the output: [Errno 28] No space left on device\n")]
    assert done[4:7] == 3 * [(141, "")]
    assert done[7] == (0, "")
    assert done[8][0] == 1
    assert done[8][1].startswith("glayers: standard output is closed; give the name of a file")


def test_an_interrupt_is_one_line_and_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)  # in the middle of writing
    done = run("apply", "model.safetensors", "test.npz", "-o", "x.npz")
    assert done.exit_code == 130
    assert done.stderr == "glayers: interrupted; no unfinished file was written\n"
    assert not Path("x.npz").exists()
    assert leftovers(folder) == []


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_a_pipe_is_awaited_ends_the_program(folder: Path, sent: signal.Signals, status: int) -> None:
    held = folder / "kept"
    held.mkdir()
    running = subprocess.Popen(
        [*PROGRAM, "score", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(held)},
    )
    assert running.stdin is not None
    running.stdin.write(200_000 * b"0")  # more than a pipe holds, so that part of it is copied
    running.stdin.flush()
    while running.poll() is None and not any(file.stat().st_size for file in held.glob("*/*")):
        time.sleep(0.02)
    running.send_signal(sent)
    said = running.communicate(timeout=60)[1].decode()
    assert running.returncode == status
    assert said.count("\n") == (1 if sent == signal.SIGINT else 0)
    assert "Traceback" not in said
    assert list(held.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["two\nlines", "\x1b[31mred", "right\u202eleft", os.fsdecode(b"no text \xff"), "[bold]x"]
)
def test_file_names_cannot_control_the_terminal(folder: Path, name: str) -> None:
    path = Path("both.npz").rename(f"{name}.npz")
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
