"""What verbs share: their options, the predictions that they read, what they print, and one line for each error.

File names and class names come from strangers, so nothing is printed before `one_line` has escaped it: a terminal must
not obey them.
"""

import contextlib
import errno
import functools
import inspect
import io
import json
import logging
import os
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from glayers import __version__
from glayers.arrays import Array
from glayers.checks import MAX_SEED
from glayers.errors import BadFile, GlayersError, GlayersWarning, listed
from glayers.files import EXISTS, check_target, write_whole
from glayers.metrics import Event, StreamingScorecard, label, one_of, positive, rank, top, within_top
from glayers.metrics.streaming import RowSample, row_places
from glayers.predictions.contents import Contents, Reading, Rows
from glayers.predictions.predictions import map_inputs, two_classes
from glayers.predictions.source import Chunks, Source
from glayers.text_tables import json_ready

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator


_IN_READING: dict[str, Any] = {"rich_help_panel": "How files are read"}
_IN_OUTPUT: dict[str, Any] = {"rich_help_panel": "Output"}


def flag(*names: str, text: str, **more: Any) -> Any:
    """Return an option without a value."""
    return typer.Option(*names, metavar=" ", help=text, **more)  # or typer would print <bool> beside it


def file_argument(name: str, text: str) -> Any:
    """Return an argument for a file to read; the reader says in one line why it cannot read it, so typer need not."""
    return typer.Argument(metavar=name, readable=False, help=text)


def file_option(name: str, text: str, **more: Any) -> Any:
    """Return an option for a file to read."""
    return typer.Option(metavar=name, readable=False, help=text, **more)


def output_option(name: str, text: str) -> Any:
    """Return the option that names the file to write."""
    return typer.Option("--output", "-o", metavar=name, help=text, **_IN_OUTPUT)


def probability(text: str) -> Any:
    """Return an option for the level of a test or an interval."""
    return typer.Option(metavar="P", min=0.5, max=0.9999, help=text)


PREDICTIONS = "Predictions and labels: .npz, .npy, .csv, .tsv, .parquet, .json or .jsonl."
MANY = "Also directories, patterns such as 'logits/*.parquet', and several files."
_METHODS = "Names from `glayers methods`, separated by commas, or all; default: those of the guide."
_EVENTS = "top, rank:2, within-top:5, label:cat, one-of:cat,dog, positive or positive:ill"
_PROBABILITIES = "The .npy file holds probabilities, not logits."
_PART = "The rows of keys such as logits_NAME, of an .npz or .json file."
_OPTIONS = "The options of all questions in a log of a language model with top_logprobs."
_STATED = "What stated confidences mean: percent, or words such as likely=0.7,sure=0.95."
_IGNORE_GROUPS = "Ignore the group column: take rows as independent."
_VERBOSE = "Say which files are read and written, and how each fit went."
_SETTING = "A setting of the method, such as time_budget=60 or keep_accuracy=true; may be repeated."
_FAIL_IF = 'Exit with status 3 if it holds, such as "ks > 0.02" or "ks > 2 %"; may be repeated.'
_PROMETHEUS = "Also write the numbers as a Prometheus text file, for the collector of a node exporter."
_REPORTED = (GlayersError, ModuleNotFoundError, MemoryError)  # errors with a reason that the user can act on
Model = Annotated[Path, file_argument("MODEL", "A file from `glayers fit`.")]
Calibration = Annotated[Path, file_argument("CAL", f"Rows to fit on. {PREDICTIONS}")]
Test = Annotated[Path, file_argument("TEST", "Rows to score, which were not fitted on.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=_SETTING)]
EventName = Annotated[str, typer.Option("--event", metavar="EVENT", help=f"What to measure: {_EVENTS}.")]
Level = Annotated[float, probability("Level of the tests: at 0.95, a calibrated model fails 5 % of the time.")]
FailIf = Annotated[list[str] | None, typer.Option("--fail-if", metavar="CONDITION", help=_FAIL_IF)]
Prometheus = Annotated[Path | None, typer.Option(metavar="FILE", help=_PROMETHEUS, **_IN_OUTPUT)]
Force = Annotated[bool, flag("--force", "-f", text="Replace a file that already exists.", **_IN_OUTPUT)]
AsJson = Annotated[bool, flag("--json", text="Print JSON; infinite numbers are written as null.", **_IN_OUTPUT)]
Page = Annotated[Path, output_option("PAGE", "Where to write the HTML report.")]
Method = Annotated[str, typer.Option("--method", "-m", metavar="NAME", help="A name from `glayers methods`.")]
Methods = Annotated[str | None, typer.Option(metavar="A,B,C", help=_METHODS)]
Seed = Annotated[int, typer.Option(metavar="N", max=MAX_SEED, min=0, help="Random seed; same seed, same result.")]


def reading_of(
    labels: Annotated[Path | None, file_option("FILE", "Labels (.npy) of .npy predictions.", **_IN_READING)] = None,
    part: Annotated[str | None, typer.Option(metavar="NAME", help=_PART, **_IN_READING)] = None,
    probabilities: Annotated[bool, flag("--probabilities", text=_PROBABILITIES, **_IN_READING)] = False,
    options: Annotated[str | None, typer.Option(metavar="A,B,C", help=_OPTIONS, **_IN_READING)] = None,
    stated: Annotated[str | None, typer.Option("--stated", metavar="HOW", help=_STATED, **_IN_READING)] = None,
    ignore_groups: Annotated[bool, flag("--ignore-groups", text=_IGNORE_GROUPS, **_IN_READING)] = False,
) -> Reading:
    """Return how to read files, as these options say."""
    words = None if options is None else options.split(",")
    meaning = None if stated is None else _stated_as(stated)
    inputs: Any = "probabilities" if probabilities else None
    return Reading(labels, part, inputs, words, meaning, ignore_groups=ignore_groups)


def _stated_as(text: str) -> Any:
    """Return what stated confidences mean.

    >>> _stated_as("likely=70%,sure=0.95")
    {'likely': 0.7, 'sure': 0.95}
    """
    if text == "percent":
        return text
    numbers = {}
    for pair in text.split(","):
        word, sign, number = pair.partition("=")
        if not sign:
            raise typer.BadParameter(f"cannot read --stated {text!r}; write percent, or such as likely=0.7,sure=0.95")
        numbers[word.strip()] = number_of(number.strip())
    return numbers


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
    from glayers.calibrators import CALIBRATORS  # imported late, so that --help stays fast

    if names is None:
        return None
    wanted = CALIBRATORS if names == "all" else names.replace(" ", "").split(",")
    return [known_name(name, CALIBRATORS, "method") for name in dict.fromkeys(wanted)]


def event_of(text: str) -> Event:
    """Return the event that an option names; classes are given by number or by name.

    >>> event_of("within-top:5").name, event_of("label:cat").name
    ('within top 5', 'class cat')
    """
    plain = {"top": top, "positive": positive()}
    if text in plain:
        return plain[text]
    kind, _, detail = text.partition(":")
    classes = [int(word) if word.isdecimal() else word for word in detail.split(",") if word]
    makers: dict[str, Callable[[Any], Event]] = {"label": label, "positive": positive}
    if all(isinstance(each, int) for each in classes):
        makers |= {"rank": rank, "within-top": within_top}
    if kind == "one-of" and classes:
        return one_of(classes)
    if kind in makers and len(classes) == 1:
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


def method_with_settings(name: str, settings: list[str] | None, **given: Any) -> "Calibrator":
    """Return an unfitted calibrator by name, with the settings that options give it: JSON, or text."""
    from glayers.calibrators import CALIBRATORS
    from glayers.comparison import unfitted

    known_name(name, CALIBRATORS, "method")
    calibrator = unfitted(name, **given)
    for setting in settings or ():
        key, sign, text = (word.strip() for word in setting.partition("="))
        if not sign:
            raise typer.BadParameter(f"cannot read the setting {setting!r}; write such as 'time_budget=60'")
        known_name(key, calibrator.get_params(False), f"setting of {name}")
        value: Any = {"True": True, "False": False, "None": None}.get(text, text)
        with contextlib.suppress(ValueError):
            value = json.loads(text)
        calibrator.set_params(**{key: value})
    return calibrator


def calibrator_of_classes(path: Path) -> "Calibrator":
    """Read a calibrator, and refuse one of several labels or of groups."""
    from glayers.calibrators import Calibrator, load

    calibrator = load(path)
    if not isinstance(calibrator, Calibrator):
        raise BadFile(f"{path}: was fitted by group or on several labels, which this command cannot use; fit without")
    return calibrator


def calibrator_of_rows(path: Path, contents: Contents | None) -> Any:
    """Read a calibrator of any kind, to be applied to these rows."""
    from glayers.calibrators import MultiLabelCalibrator, load

    calibrator = load(path)
    if isinstance(calibrator, MultiLabelCalibrator) and contents is not None:
        if contents.inputs != calibrator.inputs:
            raise BadFile(f"holds {contents.inputs}, but the model was fitted on {calibrator.inputs}")
        if contents.labelled and not contents.has_several_labels:
            raise BadFile("the model was fitted on several labels: give a matrix of 0 and 1 as labels")
    return calibrator


def read_rows(file: Path, reading: Reading, needs_labels: bool = True) -> Rows:
    """Return all rows of one file."""
    return Source.of([file], reading, needs_labels=needs_labels, warn=needs_labels).checked()


def read_sample(source: Source, seed: int) -> tuple[Rows, str]:
    """Return rows to fit on and what they were given as: all rows of one file, or a random sample of many files."""
    from glayers.calibrators.auto import enough_rows

    kind, rows, n_seen, _ = collect(source, {}, enough_rows, random_state=seed)
    if len(rows) < n_seen:
        show_note(f"note: {len(rows):,} of {n_seen:,} rows, drawn at random, are used")
    return rows, kind["inputs"]


def collect(
    source: Source,
    versions: Mapping[str, Callable[[Rows], Rows]],
    sample_size: Callable[[int], int],
    event: Event = top,
    random_state: int = 0,
) -> tuple[dict[str, Any], Rows, int, dict[str, StreamingScorecard]]:
    """Return what the files hold, rows, how many there are in all, and the scores of all of them by version.

    Of many files, or a large one, the rows are a random sample: `sample_size` says how many, given the number of
    classes. The scores come from the same pass. A version is what becomes of the rows.
    A small file is read whole, and its rows are not scored here.
    """
    if source.contents is not None:
        rows = source.checked()
        return _kind_of(source.contents, rows), rows, len(rows), {}

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
                for name, version in versions.items():
                    sums[name].update(version(rows))
        return kind, sample, sums

    results = source.map(collect_file)
    kind, sample, sums = next(results)
    for path, (other_kind, other_sample, other_sums) in zip(source.files[1:], results, strict=True):
        different = [name for name, value in kind.items() if other_kind[name] != value]
        if different:
            raise BadFile(f"{path}: differs from {source.files[0]} in {' and '.join(different)}; handle them apart")
        sample.merge(other_sample)
        for name, scores in sums.items():
            scores.merge(other_sums[name])
    return kind, sample.result(), sample.n_seen, sums


def _kind_of(contents: Contents, rows: Any) -> dict[str, Any]:
    """Return what all files that are handled together must have in common."""
    classes = {"classes": getattr(rows, "n_classes", 1), "class names": getattr(rows, "class_names", None)}
    columns = {"weights": rows.weights is not None, "groups": rows.groups is not None}
    return {"inputs": contents.inputs, "labels": contents.labelled, **classes, **columns}


def inputs_of(calibrator: "Calibrator", rows: Rows) -> Array:
    """Return what a calibrator takes of rows whose labels are not known."""
    return map_inputs(calibrator.inputs, two_classes(calibrator.inputs, rows))


def check_output(path: Path, force: bool, *inputs: str | os.PathLike[str] | None) -> None:
    """Refuse a path that cannot be written: before any long work begins, and again after it.

    A file is replaced only with `force`, and an input never.
    """
    check_target(path)
    read = [file for file in inputs if file is not None and Path(file).exists()]
    if path.exists() and any(map(path.samefile, read)):
        raise BadFile(f"{path}: is one of the input files; write to another file")
    if os.path.lexists(path) and not force:
        raise BadFile(f"{path}: {EXISTS}")


def _check_prometheus(path: Path | None) -> None:
    """Refuse a file for Prometheus that cannot be written, or that holds something else."""
    if path is not None:
        check_output(path, force=True)
        if path.exists() and not path.read_bytes().startswith(b"glayers_"):
            raise BadFile(f"{path}: holds something else than numbers of glayers; write to another file")


def write_prometheus(path: Path | None, numbers: Mapping[str, Any], what: str) -> None:
    """Write the numbers of a result for Prometheus, if a file is named."""
    if path is not None:
        write_whole(path, prometheus_text(numbers, what).encode())


@contextlib.contextmanager
def _refusal_written(path: Path | None, verb: str) -> Iterator[None]:
    """Write that a command was refused, if it ends with an error: a collector must not read numbers of older rows."""
    try:
        yield
    except _REPORTED:
        write_prometheus(path, {"refused": True}, verb)
        raise


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
            if isinstance(number, int | float):
                escaped = str(name).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
                label = f'{{name="{escaped}"}}' if isinstance(value, dict) else ""
                lines.append(f"glayers_{what}_{key}{label} {float(number)!r}")
    return "\n".join(lines) + "\n"


def end_with(failures: list[str]) -> None:
    """Say what failed, and end with status 3 if anything did."""
    for failure in failures:
        show_note(f"failed: {failure}")
    if failures:
        raise typer.Exit(3)


def add_verb(app: typer.Typer, function: Callable[..., None]) -> None:
    """Add a function to the program. A parameter `reading` stands for the options of `reading_of`.

    The examples of the docstring end its help.
    """
    of_reading = inspect.signature(reading_of).parameters
    options = dict(inspect.signature(function).parameters)
    reads = options.pop("reading", None) is not None
    if reads:
        options |= of_reading
    options |= inspect.signature(_notes).parameters

    @functools.wraps(function)
    def run(verbose: bool, **given: Any) -> None:
        facts = run_facts(**given) if given.get("as_json") else None
        with _notes(verbose), one_line_per_error(facts):
            _check_prometheus(given.get("prometheus"))
            if reads:
                given["reading"] = reading_of(**{name: given.pop(name) for name in of_reading})
            with _refusal_written(given.get("prometheus"), function.__name__):
                function(**given)

    keywords = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options.values()]
    vars(run)["__signature__"] = inspect.Signature(keywords)  # read by typer
    run.__annotations__ = {option.name: option.annotation for option in keywords}
    text, _, examples = (inspect.getdoc(function) or "").partition("\n\nExamples\n--------\n")
    run.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))  # typer keeps line ends
    # It begins with an empty line, or typer would remove the indentation of the examples.
    app.command(epilog=f"\nExamples:\n{textwrap.indent(examples, '  ')}")(run)


@contextlib.contextmanager
def one_line_per_error(facts: dict[str, Any] | None = None) -> Iterator[None]:
    """Turn every error into one line on standard error and an exit status; if facts are given, also into JSON."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt as error:
        raise _stop("interrupted; no unfinished file was written", 130) from error  # 128 + SIGINT
    except BrokenPipeError as error:
        discard_output()
        raise typer.Exit(141) from error  # 128 + SIGPIPE: the reader, such as head, stopped reading
    except _REPORTED as error:
        reason = str(error)
        if isinstance(error, MemoryError):
            reason = "not enough memory; try fewer rows, or float32 instead of float64"
        if facts is not None:
            show_json({"verdict": None, "error": reason, **facts})
        raise _stop(reason, 1) from error
    except OSError as error:  # readers raise errors of their own, so this one comes from the screen or a pipe
        discard_output()
        raise _stop(f"cannot write the output: {error}", 1) from error
    except Exception as error:
        for line in traceback.format_exc().splitlines():
            show_note(line)
        raise _stop("this is a bug in glayers; please report it with the lines above", 70) from error  # EX_SOFTWARE


def run_facts(**given: Any) -> dict[str, Any]:
    """Return what identifies a run in JSON: its files and conditions, the version of the program, and the time.

    >>> list(run_facts(file=Path("new.csv"), model=Path("m.safetensors"), level=0.9))
    ['file', 'model', 'version', 'time']
    """
    facts: dict[str, Any] = {}
    for name, value in given.items():
        if name == "fail_if":
            facts["conditions"] = value or []
        elif isinstance(value, Path):
            facts[name] = str(value)
        elif isinstance(value, list) and all(isinstance(item, Path) for item in value):
            facts[name] = [str(item) for item in value]
    return {**facts, "version": __version__, "time": datetime.now(UTC).isoformat(timespec="seconds")}


def _stop(reason: str, status: int) -> typer.Exit:
    show_note(f"glayers: {reason}")
    return typer.Exit(status)


class _Notes(logging.Handler):
    """Prints what the library logs as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        show_note(f"{record.name}: {record.getMessage()}")


@contextlib.contextmanager
def _notes(verbose: Annotated[bool, flag("--verbose", "-v", text=_VERBOSE, **_IN_OUTPUT)] = False) -> Iterator[None]:
    """Print each of our own warnings once, as a note, and, if asked to, what the library logs about files and fits."""
    logger = logging.getLogger("glayers")
    handler = _Notes()
    level = logger.level
    if verbose:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    with warnings.catch_warnings():
        warnings.simplefilter("always", GlayersWarning)
        usual = warnings.showwarning
        show_once = functools.cache(show_note)

        def show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, GlayersWarning):
                show_once(f"note: {message}")
            else:
                usual(message, category, *place, **more)

        warnings.showwarning = show_warning
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)


def show(*lines: RenderableType) -> None:
    """Print tables and sentences; a plain string is printed as it is, without markup.

    A terminal breaks sentences between words; a program reads each on one line.
    """
    has_edge = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = _Screen(highlight=False, width=None if has_edge else 10_000)  # wider than any table
    for line in lines:
        if isinstance(line, str):
            console.print(one_line(line), markup=False, soft_wrap=not console.is_terminal)
        else:
            console.print(line)


def show_note(text: str) -> None:
    """Print one line to standard error."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(one_line(text), markup=False)


def show_json(numbers: Mapping[str, Any]) -> None:
    """Print JSON, which has no infinity: null stands for it."""
    sys.stdout.write(json.dumps(json_ready(numbers), indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


def show_record(record: Any, as_json: bool, heading: str = "", **facts: Any) -> None:
    """Print a record as JSON, with facts about the run, or as it prints itself, below a heading."""
    if as_json:
        show_json({**record.to_dict(), **facts})
        return
    if heading:
        show(title(heading))
    show(*str(record).splitlines())


def title(text: str, style: str = "bold") -> Text:
    """Return a heading, or a verdict in its colour."""
    return Text(one_line(text), style=style)


def one_line(text: str) -> str:
    r"""Escape line breaks, escape sequences and bytes that are not text, as Python writes them in a string.

    >>> one_line("two\nlines")
    'two\\nlines'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def discard_output() -> None:
    """Discard what is still buffered; otherwise Python would try to write it at exit and print an error of its own."""
    with contextlib.suppress(io.UnsupportedOperation):  # tests have no real output
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@final
class _Screen(Console):
    """A console that raises an error when its reader is gone, where rich itself would end the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "the reader of the output is gone")
