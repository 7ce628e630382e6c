"""The command line, run inside this process where that is enough, and as a program where it is not."""

import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from typer.testing import CliRunner, Result

from glayers.cli import app

VERBS = [command.callback.__name__ for command in app.registered_commands if command.callback is not None]
PROGRAM = [sys.executable, "-c", "from glayers.cli import main; main()"]  # what the installed script does


def run(*words: object) -> Result:
    """Run a command inside this process."""
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(word) for word in words])


def run_program(*words: object, stdout: int | IO[Any] = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *map(str, words)], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


FORKING = """
import gc, json, os, sys
import glayers.calibrators
from glayers.cli import app, main
from typer.testing import CliRunner
CliRunner().invoke(app, ["methods"])  # imports once what every child would import
gc.freeze()  # or every child would visit all objects when it ends
reader, closed = os.pipe()
os.close(reader)
outputs = {"full disk": os.open("/dev/full", os.O_WRONLY), "closed pipe": closed}
for number, (output, *words) in enumerate(json.loads(sys.argv[2])):
    child = os.fork()
    if not child:
        if output == "closed":  # before the start, as Python finds it
            os.close(1)
            sys.stdout = None
        else:
            os.dup2(outputs[output], 1)
        os.dup2(os.open(f"{sys.argv[1]}/{number}", os.O_WRONLY | os.O_CREAT), 2)
        sys.argv = ["glayers", *words]
        main()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def run_programs(folder: Path, *commands: list[str]) -> list[tuple[int, str]]:
    """Run commands, each after the name of its output, in processes that fork from one; return status and errors."""
    (folder / "errors").mkdir()
    program = [sys.executable, "-c", FORKING, str(folder / "errors"), json.dumps(commands)]
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True)
    errors = [(folder / "errors" / str(number)).read_text() for number in range(len(commands))]
    return list(zip(map(int, done.stdout.split()), errors, strict=True))


def complaint(done: Result | subprocess.CompletedProcess[str], status: int = 1) -> str:
    """Return the one line of an error, after checking that nothing else was printed."""
    code = done.exit_code if isinstance(done, Result) else done.returncode
    assert code == status, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("glayers: ")
    return lines[0]


def usage_error(done: Result) -> str:
    """Return the message of a usage error, without the box around it."""
    assert done.exit_code == 2
    assert done.stdout == ""
    return " ".join("".join(c for c in done.stderr if c not in "│─╭╮╰╯").split())


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))
