"""What verbs share: their options, the predictions that they read, and the files that they write."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glayers.arrays import Array
from glayers.cli.runtime import flag, show_note
from glayers.errors import BadFile, listed
from glayers.files import EXISTS, write_whole
from glayers.metrics import Event, StreamingScorecard, label, one_of, positive, rank, top, within_top
from glayers.metrics.streaming import RowSample, row_places
from glayers.predictions import Predictions
from glayers.predictions.contents import Contents, Reading, Rows
from glayers.predictions.predictions import map_inputs, two_classes
from glayers.predictions.source import Chunks, Source

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator


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


PREDICTIONS = "Predictions and labels: .npz, .npy, .csv, .tsv, .parquet, .json or .jsonl."
MANY = "Also directories, patterns such as 'logits/*.parquet', and several files."
_METHODS = "Names from `glayers methods`, separated by commas, or all; default: those of the guide."
_EVENTS = "top, rank:2, within-top:5, label:cat, one-of:cat,dog, positive or positive:ill"
_PART = "The rows of keys such as logits_NAME, of an .npz or .json file."
_SETTING = "A setting of the method, such as time_budget=60 or keep_accuracy=true; may be repeated."
_FAIL_IF = 'Exit with 3 if it holds, such as "ks > 0.02" or "ks > 2 %".'
_PROMETHEUS = "Also write the numbers as a Prometheus text file, for the collector of a node exporter."
Model = Annotated[Path, file_argument("MODEL", "A file from `glayers fit`.")]
Calibration = Annotated[Path, file_argument("CAL", f"Rows to fit on. {PREDICTIONS}")]
Test = Annotated[Path, file_argument("TEST", "Rows to score, which were not fitted on.")]
Labels = Annotated[Path | None, file_option("FILE", "Labels (.npy) of .npy predictions.")]
Probabilities = Annotated[bool, flag("--probabilities", text="The .npy file holds probabilities, not logits.")]
Part = Annotated[str | None, typer.Option(metavar="NAME", help=_PART)]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=_SETTING)]
EventName = Annotated[str, typer.Option("--event", metavar="EVENT", help=f"The event: {_EVENTS}.")]
Level = Annotated[float, probability("Level of the tests: 0.95 fails 1 of 20 good batches.")]
FailIf = Annotated[list[str] | None, typer.Option("--fail-if", metavar="CONDITION", help=_FAIL_IF)]
Prometheus = Annotated[Path | None, typer.Option(metavar="FILE", help=_PROMETHEUS)]
Force = Annotated[bool, flag("--force", "-f", text="Replace a file that already exists.")]
Quiet = Annotated[bool, flag("--quiet", "-q", text="Hide notes and progress, but not errors.")]
AsJson = Annotated[bool, flag("--json", text="Print JSON; infinite numbers are written as null.")]
Page = Annotated[Path, output_option("PAGE", "Where to write the HTML report.")]
Method = Annotated[str, typer.Option("--method", "-m", metavar="NAME", help="A name from `glayers methods`.")]
Methods = Annotated[str | None, typer.Option(metavar="A,B,C", help=_METHODS)]
# NumPy's older generators, which scikit-learn uses, take no larger seed.
Seed = Annotated[int, typer.Option(metavar="N", min=0, max=2**32 - 1, help="Random seed; same seed, same result.")]


def reading_of(labels: Labels = None, part: Part = None, probabilities: Probabilities = False) -> Reading:
    """Return how to read files, as these options say."""
    return Reading(labels, part, "probabilities" if probabilities else None)


READING: Any = reading_of


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
    makers: dict[str, Callable[[Any], Event]] = {"rank": rank, "within-top": within_top}
    makers |= {"label": label, "positive": positive}
    named = {"top": top, "positive": positive()}
    if text in named:
        return named[text]
    if kind == "one-of" and classes:
        return one_of(classes)
    if kind in makers and len(classes) == 1 and (kind in ("label", "positive") or isinstance(classes[0], int)):
        return makers[kind](classes[0])
    raise typer.BadParameter(f"unknown event {text!r}; use {_EVENTS}")


def number_of(text: str) -> float:
    """Return a number or a percentage.

    >>> number_of("95 %"), number_of("0.9")
    (0.95, 0.9)
    """
    try:
        number = float(text.removesuffix("%"))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a number or a percentage; write 0.95 or 95%") from error
    return number / 100 if text.endswith("%") else number


def method_with_settings(name: str, settings: list[str] | None, seed: int, progress: bool | None) -> "Calibrator":
    """Return an unfitted calibrator by name, with the settings that options give it: JSON, or text."""
    from glayers.calibrators import METHODS
    from glayers.comparison import unfitted

    known_name(name, METHODS, "method")
    calibrator = unfitted(name, random_state=seed, progress=progress)
    for setting in settings or ():
        key, sign, text = (word.strip() for word in setting.partition("="))
        if not sign:
            raise typer.BadParameter(f"cannot read the setting {setting!r}; write such as 'time_budget=60'")
        known_name(key, calibrator.get_params(False), f"setting of {name}")
        value: Any = {"True": True, "False": False, "None": None}.get(text, text)
        with suppress(ValueError):
            value = json.loads(text)
        calibrator.set_params(**{key: value})
    return calibrator


def calibrator_of_classes(path: Path) -> "Calibrator":
    """Read a calibrator, and refuse one of several labels or of groups."""
    from glayers.calibrators import Calibrator, load

    calibrator = load(path)
    if not isinstance(calibrator, Calibrator):
        raise BadFile(f"{path}: holds the calibrators of several labels or of groups, which this command cannot use")
    return calibrator


def read_rows(file: Path, reading: Reading, needs_labels: bool = True) -> Rows:
    """Return all rows of one file."""
    source = Source.of([file], reading, needs_labels=needs_labels, warn=needs_labels)
    return source.checked(source.contents())


def read_sample(file: Path, reading: Reading, seed: int, quiet: bool) -> tuple[Rows, str]:
    """Return rows to fit on, all rows of one file or of many files a random sample, and what they were given as."""
    source = Source.of([file], reading)
    return sample_of(source, source.contents(), seed, quiet)


def sample_of(source: Source, contents: Contents | None, seed: int, quiet: bool) -> tuple[Rows, str]:
    """Return the rows of one file, which has been read, or a random sample of many files, enough for every method."""
    if contents is not None:
        return source.checked(contents), contents.inputs
    from glayers.calibrators.auto import enough_rows

    kind, sample, _ = collect(source, {}, enough_rows, random_state=seed, progress=progress_of(quiet))
    rows = sample.result()
    if len(rows) < sample.n_seen and not quiet:
        show_note(f"note: {len(rows):,} of {sample.n_seen:,} rows, drawn at random, are used")
    return rows, kind["inputs"]


def collect(
    source: Source,
    versions: Mapping[str, "Calibrator | None"],
    sample_size: Callable[[int], int],
    event: Event = top,
    random_state: int = 0,
    progress: bool | None = False,
) -> tuple[dict[str, Any], RowSample, dict[str, StreamingScorecard]]:
    """Return, after one pass over the files, what they hold, a random sample, and the scores of all rows by version.

    A version is a calibrator to apply, or None for the rows as they are. `sample_size` says how many rows to draw,
    given the number of classes.
    """

    def collect_file(file: int, chunks: Chunks) -> tuple[dict[str, Any], Any, Any]:
        kind: dict[str, Any] = {}
        sample: Any = None
        sums = {name: StreamingScorecard("logits", event=event) for name in versions}
        for contents, rows in chunks:
            if not kind:
                kind = _kind_of(contents, rows)
                sample = RowSample(sample_size(kind["classes"]), random_state)
            sample.update(rows, row_places(sample.n_seen, len(rows), file))
            if contents.labelled:
                for name, calibrator in versions.items():
                    sums[name].update(rows if calibrator is None else calibrator.apply(rows))
        return kind, sample, sums

    results = source.map(collect_file, progress)
    kind, sample, sums = next(results)
    for path, (other_kind, other_sample, other_sums) in zip(source.files[1:], results, strict=True):
        different = [name for name, value in kind.items() if other_kind[name] != value]
        if different:
            raise BadFile(f"{path}: differs from {source.files[0]} in {' and '.join(different)}; handle them apart")
        sample.merge(other_sample)
        for name, scores in sums.items():
            scores.merge(other_sums[name])
    return kind, sample, sums


def _kind_of(contents: Contents, rows: Rows) -> dict[str, Any]:
    """Return what rows that are handled together must have in common."""
    kind = {"inputs": contents.inputs, "labels": contents.labelled, "classes": 1, "class names": None}
    if isinstance(rows, Predictions):
        kind |= {"classes": rows.n_classes, "class names": rows.class_names}
    return kind


def inputs_of(calibrator: "Calibrator", rows: Rows) -> Array:
    """Return what a calibrator takes of rows whose labels are not known."""
    return map_inputs(calibrator.inputs, two_classes(calibrator.inputs, rows))


def progress_of(quiet: bool) -> bool | None:
    """Return whether to show progress: at a terminal, or not at all."""
    return False if quiet else None


def check_output(path: Path, force: bool, *inputs: str | os.PathLike[str] | None) -> None:
    """Refuse a path that cannot be written: before any long work begins, and again after it.

    A file is replaced only with `force`, and an input never.
    """
    folder = Path(os.path.realpath(path)).parent
    read = [file for file in inputs if file is not None and Path(file).exists()]
    if path.exists() and any(map(path.samefile, read)):
        problem = "is one of the input files; write to another file"
    elif path.exists() and not path.is_file():
        problem = "is a directory or another special file; choose another name"
    elif os.path.lexists(path) and not force:
        problem = EXISTS
    elif not folder.is_dir():
        problem = f"the folder {folder} does not exist; create it first"
    elif not os.access(folder, os.W_OK):
        problem = f"no permission to write to the folder {folder}; choose another"
    else:
        return
    raise BadFile(f"{path}: {problem}")


def write_prometheus(path: Path | None, numbers: Mapping[str, Any], what: str) -> None:
    """Write the numbers of a result for Prometheus, if a file is named."""
    if path is not None:
        check_output(path, force=True)
        write_whole(path, prometheus_text(numbers, what).encode())


def prometheus_text(numbers: Mapping[str, Any], what: str) -> str:
    r"""Return the numbers of a result in the text format of Prometheus; names of nested results become labels.

    >>> print(prometheus_text({"alarm": False, "log_wealth": {"class 1": 0.5}}, "watch"), end="")
    glayers_watch_alarm 0.0
    glayers_watch_log_wealth{name="class 1"} 0.5
    """
    lines = []
    for key, value in numbers.items():
        nested = value if isinstance(value, dict) else {"": value}
        for name, number in nested.items():
            if isinstance(number, bool | int | float):
                escaped = str(name).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
                label = f'{{name="{escaped}"}}' if isinstance(value, dict) else ""
                lines.append(f"glayers_{what}_{key}{label} {float(number)!r}")
    return "\n".join(lines) + "\n"


def end_with(failures: Iterable[str]) -> None:
    """Say what failed, and end with status 3 if anything did."""
    found = list(failures)
    for failure in found:
        show_note(f"failed: {failure}")
    if found:
        raise typer.Exit(3)
