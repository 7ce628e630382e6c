"""What verbs share: their options, the predictions that they read, and the files that they write."""

import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from glayers.cli.method_notes import METHODS
from glayers.cli.runtime import FLAG, one_line
from glayers.errors import BadFile
from glayers.files import write_whole
from glayers.predictions import Predictions, read_parts, read_predictions
from glayers.predictions.contents import listed
from glayers.predictions.formats import Source

PIPE = Path("-")


def complete_method(incomplete: str) -> list[tuple[str, str]]:
    """Return the methods that begin so, with their descriptions."""
    return [(name, note.is_a) for name, note in METHODS.items() if name.startswith(incomplete)]


def complete_methods(incomplete: str) -> list[str]:
    """Complete the last name of a list with commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in METHODS if name.startswith(last)]


def known_name(name: str, known: Collection[str], what: str, listed_where: str) -> str:
    """Return the name if it is known; otherwise suggest the nearest one, or say where they are listed."""
    if name in known:
        return name
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"`{listed_where}` lists them."
    raise typer.BadParameter(f"unknown {what} {name!r}; {hint}")


def known_method(name: str) -> str:
    """Return the name of a method if it is known."""
    return known_name(name, METHODS, "method", "glayers methods")


def method_names(names: str) -> list[str]:
    """Return the names in a list with commas; "all" stands for every method.

    >>> method_names("temperature, vector")
    ['temperature', 'vector']
    """
    if names == "all":
        return list(METHODS)
    wanted = [known_method(name.strip()) for name in names.split(",") if name.strip()]
    if not wanted:
        raise typer.BadParameter("--methods names no method; leave it out for the seven strongest")
    return list(dict.fromkeys(wanted))


# readable=False throughout: the reader itself says in one line why it cannot read a file.
_FORMATS = ".npz, .npy, .csv, .tsv, .parquet, .json or a pickle of logits"
PREDICTIONS = f"Predictions and their labels: {_FORMATS}; - reads a pipe."
Predicted = Annotated[Path, typer.Argument(metavar="FILE", readable=False, help=PREDICTIONS)]
Calibration = Annotated[Path, typer.Argument(metavar="CAL", readable=False, help=f"Rows to fit on. {PREDICTIONS}")]
Test = Annotated[
    Path | None,
    typer.Argument(metavar="TEST", readable=False, help="Rows to score; not needed if CAL has both parts."),
]
Labels = Annotated[
    Path | None, typer.Option(metavar="FILE", readable=False, help="Labels (.npy), if the predictions are a .npy file.")
]
Part = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only this part of a file with two: calibration or test.")
]
Force = Annotated[bool, typer.Option("--force", "-f", metavar=FLAG, help="Replace a file that already exists.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", metavar=FLAG, help="No notes, no progress; errors are still shown.")
]
AsJson = Annotated[bool, typer.Option("--json", metavar=FLAG, help="Print JSON for programs; null is infinity.")]
Page = Annotated[Path, typer.Option("--output", "-o", metavar="PAGE", help="Where to write the HTML report.")]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        "-m",
        metavar="NAME",
        callback=known_method,
        autocompletion=complete_method,
        help="One of `glayers methods`.",
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        autocompletion=complete_methods,
        help="Names from `glayers methods`, separated by commas, or all; by default the seven strongest.",
    ),
]
Seed = Annotated[
    int,
    # NumPy's older generators, which scikit-learn uses, take no larger seed.
    typer.Option(metavar="N", min=0, max=2**32 - 1, help="Seed of everything random: same seed, same result."),
]


def source(path: Path) -> Source:
    """Return what readers read: the path, or standard input for -."""
    if path != PIPE:
        return path
    if sys.stdin is None or sys.stdin.closed:
        raise BadFile("standard input is closed; give a file, or pipe predictions in")
    return sys.stdin.buffer


def name_of(path: Path) -> str:
    """Return the name of a file for messages."""
    return "standard input" if path == PIPE else path.name


def read_part(path: Path, labels: Path | None, part: str | None, preferred: str) -> Predictions:
    """Read the part asked for; otherwise the only part, or the preferred one of two."""
    if part is not None:
        return read_predictions(source(path), part, labels)
    parts = read_parts(source(path), labels)
    return parts[preferred] if len(parts) > 1 else next(iter(parts.values()))


def read_calibration_and_test(calibration: Path, test: Path | None) -> tuple[Predictions, Predictions]:
    """Read the rows to fit on and the rows to score, from two files or from one file with both parts."""
    if test is None:
        parts = read_parts(source(calibration))
        if set(parts) != {"calibration", "test"}:
            raise BadFile(
                f"{name_of(calibration)}: has no parts calibration and test, but {listed(parts)}; "
                f"give the test rows as a second file"
            )
        return parts["calibration"], parts["test"]
    if calibration == test == PIPE:
        raise typer.BadParameter("only one of two files can come from a pipe; pipe one file with both parts instead")
    return read_part(calibration, None, None, "calibration"), read_part(test, None, None, "test")


@dataclass(frozen=True)
class Output:
    """A file to write. It replaces another file only with `force`, and never an input."""

    path: Path
    force: bool
    inputs: tuple[Path | None, ...] = ()

    def check(self) -> None:
        """Refuse a path that cannot be written, before any long work begins."""
        if self.path == PIPE:
            raise typer.BadParameter("-o - is for the predictions of `glayers apply`; give the name of a file")
        folder = Path(os.path.realpath(self.path)).parent
        exists = self.path.exists()
        if exists and any(given is not None and given.exists() and self.path.samefile(given) for given in self.inputs):
            problem = "is one of the input files; write to another file"
        elif self.path.is_dir():
            problem = "is a directory; give the name of a file in it"
        elif exists and not self.path.is_file():
            problem = "is not a regular file; choose another name"
        elif os.path.lexists(self.path) and not self.force:
            problem = "already exists; use --force to replace it, or choose another name"
        elif not folder.is_dir():
            problem = f"the folder {folder} does not exist; create it first"
        elif not os.access(folder, os.W_OK):
            problem = f"no permission to write to the folder {folder}; choose another"
        else:
            return
        raise BadFile(f"{self.path}: {problem}")

    def write(self, data: bytes) -> None:
        """Write the file in one step, after a second check: much may have happened during a long fit."""
        self.check()
        write_whole(self.path, data)


def write_to_pipe(data: bytes, *, text: bool) -> None:
    """Write to standard output: unchanged bytes to a program, text without escape sequences to a terminal."""
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(data)
    elif text:
        sys.stdout.writelines(one_line(line.replace("\t", "    ")) + "\n" for line in data.decode().splitlines())
    else:
        raise typer.BadParameter("a terminal cannot show this format; redirect the output, or choose --format csv")
    sys.stdout.flush()
