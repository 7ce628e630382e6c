"""What verbs share: their options, the predictions that they read, and the files that they write."""

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from glayers.arrays import Array
from glayers.cli.runtime import flag, one_line, show_note
from glayers.errors import BadFile, listed
from glayers.files import errors_as_bad_file
from glayers.metrics import Event, label, one_of, rank, top, within_top
from glayers.predictions.contents import Reading, Rows, one_part
from glayers.predictions.formats import read_as
from glayers.predictions.predictions import map_inputs, two_classes
from glayers.predictions.source import Chunk, Executor, Source, Threads, checked_chunk

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator

_Part = TypeVar("_Part")
PIPE = Path("-")


def file_argument(name: str, text: str) -> Any:
    """Return an argument for a file to read; the reader says in one line why it cannot read it, so typer need not."""
    return typer.Argument(metavar=name, readable=False, help=text)


def file_option(name: str, text: str) -> Any:
    """Return an option for a file to read."""
    return typer.Option(metavar=name, readable=False, help=text)


def output_option(name: str, text: str) -> Any:
    """Return the option that names the file to write."""
    return typer.Option("--output", "-o", metavar=name, help=text)


def probability(text: str) -> Any:
    """Return an option for the level of a test or an interval."""
    return typer.Option(metavar="P", min=0.5, max=0.9999, help=text)


PREDICTIONS = "Predictions and labels: .npz, .npy, .csv, .tsv, .parquet, .json or .jsonl; - is standard input."
MANY = "Also directories, patterns such as 'logits/*.parquet', and several files."
_METHODS = "Names from `glayers methods`, separated by commas, or all; default: those of the guide."
_EVENTS = "top, rank:2, within-top:5, label:cat or one-of:cat,dog"
_PROBABILITIES = "FILE holds probabilities, whatever their name says; a .npy file has no name for them."
_COLUMNS = "For tables with other headers: the column of each field; the star stands for the class."
_DASK = "Run on a Dask cluster, such as tcp://host:8786. All workers must see the files."
_SETTING = "A setting of the method, such as time_budget=60 or keep_accuracy=true; may be repeated."
_FAIL_IF = 'Exit with 3 if it holds, such as "ks > 0.02" or "ks > 2 %".'
Model = Annotated[Path, file_argument("MODEL", "A file from `glayers fit`.")]
Calibration = Annotated[Path, file_argument("CAL", f"Rows to fit on. {PREDICTIONS}")]
Test = Annotated[Path | None, file_argument("TEST", "Rows to score; not needed if CAL has both parts.")]
Labels = Annotated[Path | None, file_option("FILE", "Labels (.npy) of .npy predictions.")]
Probabilities = Annotated[bool, flag("--probabilities", text=_PROBABILITIES)]
Part = Annotated[str | None, typer.Option(metavar="NAME", help="Only this part of a file: calibration or test.")]
Columns = Annotated[str | None, typer.Option(metavar="logits=c*,labels=y", help=_COLUMNS)]
Dask = Annotated[str | None, typer.Option("--dask", metavar="ADDRESS", help=_DASK)]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=_SETTING)]
EventName = Annotated[str, typer.Option("--event", metavar="EVENT", help=f"The event: {_EVENTS}.")]
Level = Annotated[float, probability("Level of the tests: 0.95 fails 1 of 20 good batches.")]
FailIf = Annotated[list[str] | None, typer.Option("--fail-if", metavar="CONDITION", help=_FAIL_IF)]
Force = Annotated[bool, flag("--force", "-f", text="Replace a file that already exists.")]
Quiet = Annotated[bool, flag("--quiet", "-q", text="Hide notes and progress, but not errors.")]
AsJson = Annotated[bool, flag("--json", text="Print JSON; infinite numbers are written as null.")]
Page = Annotated[Path, output_option("PAGE", "Where to write the HTML report.")]
Method = Annotated[
    str, typer.Option("--method", "-m", metavar="NAME", help="One of those that `glayers methods` lists.")
]
Methods = Annotated[str | None, typer.Option(metavar="A,B,C", help=_METHODS)]
# NumPy's older generators, which scikit-learn uses, take no larger seed.
Seed = Annotated[int, typer.Option(metavar="N", min=0, max=2**32 - 1, help="Random seed; same seed, same result.")]
SeveralLabels = Annotated[bool, flag("--several-labels", text="Rows may have several labels: a matrix of 0 and 1.")]


def reading_of(
    labels: Labels = None, part: Part = None, probabilities: Probabilities = False, columns: Columns = None
) -> Reading:
    """Return how to read files, as these options say."""
    fields = pairs_of(columns.split(",") if columns else (), "columns", "logits=c*,labels=y")
    return Reading(labels, part, "probabilities" if probabilities else None, fields)


def reading_of_tables(probabilities: Probabilities = False, columns: Columns = None) -> Reading:
    """Return how to read two files; labels and parts would be those of one of them."""
    return reading_of(probabilities=probabilities, columns=columns)


READING: Any = reading_of
READING_OF_TWO: Any = reading_of_tables


def known_name(name: str, known: Collection[str], what: str) -> str:
    """Return the name if it is known; otherwise suggest the nearest one, or list them."""
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {listed(known)}"
        raise typer.BadParameter(f"unknown {what} {name!r}; {hint}")
    return name


def method_names(names: str | None) -> list[str] | None:
    """Return the names in a list with commas; "all" stands for every method, None for the default ones.

    >>> method_names("temperature, vector")
    ['temperature', 'vector']
    """
    from glayers.calibrators import METHODS  # imported late, so that --help stays fast

    if names is None:
        return None
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if names == "all":
        wanted = list(METHODS)
    if not wanted:
        raise typer.BadParameter("no method is named; see `glayers methods`")
    return [known_name(name, METHODS, "method") for name in dict.fromkeys(wanted)]


def event_of(text: str) -> Event:
    """Return the event that an option names; classes are given by number or by name.

    >>> event_of("within-top:5").name, event_of("label:cat").name
    ('within top 5', 'class cat')
    """
    kind, _, detail = text.partition(":")
    classes = [int(word) if word.isdigit() else word for word in detail.split(",") if word]
    makers: dict[str, Callable[[Any], Event]] = {"rank": rank, "within-top": within_top, "label": label}
    if text == "top":
        return top
    if kind == "one-of" and classes:
        return one_of(classes)
    if kind in makers and len(classes) == 1 and (kind == "label" or isinstance(classes[0], int)):
        return makers[kind](classes[0])
    raise typer.BadParameter(f"unknown event {text!r}; use {_EVENTS}")


def pairs_of(texts: Iterable[str], what: str, example: str) -> dict[str, str]:
    """Return the values that options give to names.

    >>> pairs_of(["logits=c*", " labels=y"], "columns", "logits=c*,labels=y")
    {'logits': 'c*', 'labels': 'y'}
    """
    pairs = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise typer.BadParameter(f"cannot read the {what} {text!r}; write such as {example!r}")
        pairs[name.strip()] = value.strip()
    return pairs


def number_of(text: str) -> float:
    """Return a number or a percentage.

    >>> number_of("95 %"), number_of("0.9")
    (0.95, 0.9)
    """
    if text.endswith("%"):
        return float(text.removesuffix("%")) / 100
    return float(text)


def method_with_settings(name: str, settings: list[str] | None, seed: int, progress: bool | None) -> "Calibrator":
    """Return an unfitted calibrator by name, with the settings that options give it: JSON, or text."""
    from glayers.calibrators import METHODS
    from glayers.comparison import unfitted

    known_name(name, METHODS, "method")
    calibrator = unfitted(name, random_state=seed, progress=progress)
    for setting, text in pairs_of(settings or (), "setting", "time_budget=60").items():
        known_name(setting, calibrator.get_params(False), f"setting of {name}")
        value: Any = {"True": True, "False": False, "None": None}.get(text, text)
        with suppress(ValueError):
            value = json.loads(text)
        calibrator.set_params(**{setting: value})
    return calibrator


def calibrator_of_classes(path: Path) -> "Calibrator":
    """Read a calibrator, and refuse one of several labels or of groups."""
    from glayers.calibrators import Calibrator, load

    calibrator = load(path)
    if not isinstance(calibrator, Calibrator):
        raise BadFile(f"{path}: holds the calibrators of several labels or of groups, which this command cannot use")
    return calibrator


def name_of(path: Path) -> str:
    """Return the name of a file for messages."""
    return "standard input" if path == PIPE else path.name


def source_of(paths: Sequence[Path], reading: Reading, calibrator: Any = None) -> Source:
    """Return the files to read. A .npy file does not say what it holds, but the inputs of a calibrator do."""
    source = Source.of(paths, reading)
    if reading.labels is not None and len(source.files) > 1:
        raise typer.BadParameter("--labels is for one .npy file; put logits and labels of several into .npz files")
    if getattr(calibrator, "inputs", "") == "probabilities" and source.files[0].suffix.lower() == ".npy":
        return replace(source, reading=replace(reading, inputs="probabilities"))
    return source


def read_contents(source: Source, check: Callable[..., _Part]) -> dict[str, _Part]:
    """Return what `check` makes of the parts of a small file, or of the part asked for; - is standard input."""
    file = source.files[0]
    if not source.is_one_file:
        raise BadFile(f"{file.parent}: is a directory or a pattern; give one file in it")
    if file == PIPE and (sys.stdin is None or sys.stdin.closed):
        raise BadFile("standard input is closed; give a file, or pipe predictions in")
    parts = read_as(check, sys.stdin.buffer if file == PIPE else file, source.reading)
    if source.reading.part is None:
        return parts
    with errors_as_bad_file(name_of(file)):
        return {source.reading.part: one_part(parts, source.reading.part)}


def read_parts(source: Source, needs_labels: bool = True, warn: bool = True) -> dict[str, Chunk]:
    """Return the rows of each part of a small file, all at once."""
    return read_contents(source, partial(checked_chunk, needs_labels=needs_labels, warn=warn))


def read_test(file: Path, reading: Reading, calibrator: "Calibrator | None" = None, needs_labels: bool = True) -> Chunk:
    """Return the test part of a file, or its only part; a calibrator itself counts zeros, and needs no warning."""
    source = source_of([file], reading, calibrator)
    return only_or("test", read_parts(source, needs_labels, warn=calibrator is None))


def read_sample(
    path: Path,
    reading: Reading,
    preferred: str,
    seed: int,
    quiet: bool,
    warn: bool = False,  # a calibrator itself counts zeros
    dask: str | None = None,
) -> Chunk:
    """Read rows to fit on; of many, a random sample large enough for every method."""
    source = source_of([path], reading)
    if source.is_small and dask is None:
        return only_or(preferred, read_parts(source, warn=warn))
    from glayers.many_rows import sample_rows

    with executor_of(dask, quiet, "reading") as executor:
        sample = sample_rows(source.tasks(), executor, seed)
    rows = sample.result()
    if len(rows) < sample.n_seen and not quiet:
        show_note(f"note: {len(rows):,} of {sample.n_seen:,} rows of {path}, drawn at random, are used")
    return replace(source.first(), rows=rows, labelled=True)


def only_or(preferred: str, parts: dict[str, _Part]) -> _Part:
    """Return the only part, or the preferred one of two."""
    return parts[preferred] if len(parts) > 1 else next(iter(parts.values()))


def inputs_of(calibrator: "Calibrator", rows: Rows) -> Array:
    """Return what a calibrator takes of rows whose labels are not known."""
    return map_inputs(calibrator.inputs, two_classes(calibrator.inputs, rows))


@contextmanager
def executor_of(cluster: str | None, quiet: bool, what: str) -> Iterator[Executor]:
    """Yield where tasks run: threads, or the Dask cluster at an address."""
    if cluster is None:
        yield Threads(progress_of(quiet), what)
        return
    from glayers.bridges import dask

    with dask.connect(cluster) as client:
        yield dask.Cluster(client)


def progress_of(quiet: bool) -> bool | None:
    """Return whether to show progress: at a terminal, or not at all."""
    return False if quiet else None


def check_output(path: Path, force: bool, *inputs: str | os.PathLike[str] | None) -> None:
    """Refuse a path that cannot be written: before any long work begins, and again after it.

    A file is replaced only with `force`, and an input never.
    """
    if path == PIPE:
        raise typer.BadParameter("-o - is for the predictions of `glayers apply`; give the name of a file")
    folder = Path(os.path.realpath(path)).parent
    read = [file for file in inputs if file is not None and Path(file).exists()]
    if path.exists() and any(map(path.samefile, read)):
        problem = "is one of the input files; write to another file"
    elif path.exists() and not path.is_file():
        problem = "is a directory or another special file; choose another name"
    elif os.path.lexists(path) and not force:
        problem = "already exists; use --force to replace it, or choose another name"
    elif not folder.is_dir():
        problem = f"the folder {folder} does not exist; create it first"
    elif not os.access(folder, os.W_OK):
        problem = f"no permission to write to the folder {folder}; choose another"
    else:
        return
    raise BadFile(f"{path}: {problem}")


def write_to_pipe(data: bytes, *, text: bool) -> None:
    """Write to standard output: unchanged bytes to a program, text without escape sequences to a terminal."""
    if getattr(sys.stdout, "name", "") == os.devnull:  # put there by the program
        raise BadFile("standard output is closed; give the name of a file, or pipe the output to a program")
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(data)
    elif text:
        sys.stdout.writelines(one_line(line.replace("\t", "    ")) + "\n" for line in data.decode().splitlines())
    else:
        raise typer.BadParameter("a terminal cannot show this format; redirect the output, or choose --format csv")
    sys.stdout.flush()


def end_with(failures: Iterable[str]) -> None:
    """Say what failed, and end with status 3 if anything did."""
    found = list(failures)
    for failure in found:
        show_note(f"failed: {failure}")
    if found:
        raise typer.Exit(3)
