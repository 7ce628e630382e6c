"""`score`, `apply` and reading rows to fit, for directories, globs, several files and files of any size.

Rows are read in chunks, so memory does not grow with their number. `apply` writes a directory of Parquet files, one per
chunk, each complete or not at all. When it is started again, it leaves out what is there already.
"""

import contextlib
import glob
import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import typer

from glayers.arrays import available_threads
from glayers.cli import arguments as arg
from glayers.cli import monitoring
from glayers.cli.runtime import show_note
from glayers.errors import BadFile
from glayers.files import errors_as_bad_file, write_whole
from glayers.loading import load
from glayers.metrics import Event, Intervals, Scorecard, StreamingScorecard, calibration_test, ks_test, top
from glayers.metrics.row_draws import RowSample, row_places
from glayers.predictions import Confidences, Predictions
from glayers.predictions.chunks import Chunk, Source, Unfinished, files_of
from glayers.predictions.contents import WHOLE_FILE, Contents
from glayers.predictions.formats import WRITERS, Inputs, read_to_fit
from glayers.predictions.parquet import parquet_rows, write_parquet
from glayers.progress import progress_bar

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator
    from glayers.comparison import Comparison

Reading: TypeAlias = tuple[Path | None, str | None, bool, str | None]  # labels, part, probabilities, columns
_LARGE = 2**30  # bytes of a file that is not read whole
_ENTRIES = 2**22  # scores in a chunk: 16 MB in float32
_CALIBRATED_ENTRIES = 2**19  # of them that `apply` calibrates at once: 4 MB in float64
_TESTED_ENTRIES, _TESTED_ROWS = 2**22, 25_000  # of the random subset for tests
_MANIFEST = "_glayers.json"
_Pass: TypeAlias = tuple[dict[str, StreamingScorecard], RowSample, bool]  # sums, a subset, whether there are labels
_Result = TypeVar("_Result")
_Calibrated: TypeAlias = Callable[[Predictions | Confidences, bool], Contents]


def is_large(paths: list[Path]) -> bool:
    """Return whether rows are to be read in chunks: of several files, a directory, a glob, or one large file."""
    only = paths[0]
    if len(paths) > 1 or only.is_dir():
        return True
    return only.stat().st_size > _LARGE if only.is_file() else not only.exists() and glob.has_magic(str(only))


class Settings(NamedTuple):
    """What `score` measures, and how: no resamples mean no intervals."""

    event: Event
    n_resamples: int
    level: float
    seed: int
    shown: bool | None
    cluster: str | None = None  # the address of a Dask scheduler


@dataclass
class Scores:
    """What `score` found, by name: parts of a file, or uncalibrated and calibrated rows."""

    cards: dict[str, Scorecard] = field(default_factory=dict)
    bounds: dict[str, dict[str, float]] = field(default_factory=dict)
    intervals: dict[str, Intervals] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    ks_tests: dict[str, Any] = field(default_factory=dict)
    shifts: dict[str, Any] = field(default_factory=dict)
    n_rows: int = 0
    tested_rows: int | None = None  # if tests saw a subset

    def test(self, name: str, rows: Any, settings: Settings) -> None:
        """Test rows for calibration."""
        whole = None if settings.event == top else settings.event
        draws = monitoring.draws_for(settings.level)
        how: dict[str, Any] = {"random_state": settings.seed, "progress": settings.shown, "n_resamples": draws}
        self.answers[name] = calibration_test(rows, event=whole, level=settings.level, **how)
        self.ks_tests[name] = ks_test(rows, event=settings.event, level=settings.level)


def score_files(files: list[Path], model: Path | None, reading: Reading, settings: Settings) -> Scores:
    """Score all rows in one pass; tests, which need rows in memory, see a random subset."""
    calibrator = None if model is None else load(model)
    source = source_of(files, *reading, calibrator)
    names = [WHOLE_FILE] if calibrator is None else [monitoring.UNCALIBRATED, "calibrated"]
    on_cluster = settings.cluster is not None
    sums, sample, labelled = (_pass_on_cluster if on_cluster else _one_pass)(source, calibrator, names, settings)
    tested = sample.result()
    found = Scores(n_rows=sample.n_seen, tested_rows=len(tested) if len(tested) < sample.n_seen else None)
    rows = {names[0]: tested} | ({} if calibrator is None else {"calibrated": calibrator.apply(tested)})
    for name in names if labelled else ():
        found.cards[name], found.bounds[name] = sums[name].result(), sums[name].error_bounds()
        found.test(name, rows[name], settings)
        if settings.n_resamples:
            found.intervals[name] = sums[name].intervals()
    if calibrator is not None:
        found.shifts[WHOLE_FILE] = monitoring.shift_of(calibrator, tested, labelled, settings.level)
    return found


def _one_pass(source: Source, calibrator: "Calibrator | None", names: list[str], settings: Settings) -> _Pass:
    how: dict[str, Any] = {"n_resamples": settings.n_resamples, "random_state": settings.seed}
    workers = [
        {name: StreamingScorecard("logits", event=settings.event, **how) for name in names}
        for _ in range(available_threads())
    ]

    def add_up(worker: int, unfinished: Unfinished) -> Chunk:
        chunk = unfinished.finish()
        places = row_places(chunk.first_row, len(chunk.rows), chunk.file)
        if chunk.labelled:
            workers[worker][names[0]].update(chunk.rows, row_ids=places)
            if calibrator is not None:
                workers[worker]["calibrated"].update(calibrator.apply(chunk.rows), row_ids=places)
        return chunk

    sample: RowSample | None = None
    labelled = set()
    for chunk in _in_turns(add_up, source, "scoring", settings.shown, needs_labels=calibrator is None):
        if sample is None:
            sample = RowSample(min(_TESTED_ROWS, _TESTED_ENTRIES // _width(chunk)), settings.seed)
        sample.update(chunk.rows, row_places(chunk.first_row, len(chunk.rows), chunk.file))
        labelled.add(chunk.labelled)
        if len(labelled) > 1:
            raise BadFile(f"{source.files[chunk.file]}: some files have labels and others have none; score them apart")
    if sample is None:
        raise BadFile("there are no rows to score")
    for worker in workers[1:]:
        for name, sums in worker.items():
            workers[0][name].merge(sums)
    return workers[0], sample, True in labelled


def _in_turns(
    work: Callable[[int, Unfinished], _Result],
    source: Source,
    what: str,
    shown: bool | None,
    files: Sequence[int] | None = None,
    needs_labels: bool = True,
    waiting: int = 0,
) -> Iterator[_Result]:
    """Yield the results of chunks in order. Threads convert and use some chunks while the next one is read.

    Each thread takes every n-th chunk, so that what it adds up does not depend on which thread is faster. There is one
    thread per core, and some more for work that is `waiting` for the disk.
    """
    from concurrent.futures import Future, ThreadPoolExecutor

    # Arrow would give memory back to the system after each file, and spend a fifth of the time on getting it again.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "-1")
    chosen = range(len(source.files)) if files is None else files
    with contextlib.ExitStack() as stack:
        advance = stack.enter_context(progress_bar(shown, what, len(chosen) if len(chosen) > 1 else None))
        pools = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(available_threads() + waiting)]
        begun: deque[Future[_Result]] = deque()
        for place, unfinished in enumerate(source.unfinished_chunks(chosen, needs_labels)):
            if place and (len(chosen) == 1 or unfinished.number == 0):
                advance()
            worker = place % len(pools)
            begun.append(pools[worker].submit(work, worker, unfinished))
            del unfinished
            if len(begun) >= len(pools):
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


def _pass_on_cluster(source: Source, calibrator: "Calibrator | None", names: list[str], settings: Settings) -> _Pass:
    from glayers.bridges import dask

    rows, width = dask.rows_of_source(source), _width(next(source.chunks()))
    most = min(_TESTED_ROWS, _TESTED_ENTRIES // width)
    first = [None] if calibrator is None else [None, calibrator]
    with dask.connect(str(settings.cluster)) as client:
        how: dict[str, Any] = {"n_resamples": settings.n_resamples, "random_state": settings.seed, "client": client}
        sums = {n: dask.score(rows, each, event=settings.event, **how) for n, each in zip(names, first, strict=True)}
        return sums, dask.sample_of(rows, settings.seed, client, most), True


def apply_files(
    source: Source,
    model: Path,
    output: Path,
    calibrated: _Calibrated,
    options: dict[str, Any],
    force: bool,
    shown: bool | None,
    cluster: str | None = None,
) -> tuple[int, int]:
    """Write calibrated rows, chunk by chunk, and return how many were written now and how many there were before."""
    source = replace(source, entries=source.entries * 3 // 2)  # a column takes some time, however short it is
    folder = _Folder(output, _facts(source, model, options), force)
    files = range(folder.finished, len(source.files))
    finished = sum(parquet_rows(part) for part in folder.finished_parts())
    if cluster is not None:
        from glayers.bridges import dask

        with dask.connect(cluster) as client:
            each = dask.run(_write_parts, files, source, output, calibrated, client=client)
        parts = [part for several in each for part in several]
    else:
        parts = []
        for part in _parts_in_turn(source, files, output, calibrated, shown):
            parts.append(part)
            if part.file > folder.finished:
                folder.finish(part.file)
    folder.finish(len(source.files))
    return sum(part.written for part in parts), finished + sum(part.before for part in parts)


class _Part(NamedTuple):
    """A file that `apply` wrote: the number of its input, and how many rows were written now, or were there before."""

    file: int
    written: int
    before: int


def _write_parts(file: int, source: Source, output: Path, calibrated: _Calibrated) -> list[_Part]:
    return list(_parts_in_turn(source, [file], output, calibrated, shown=False))


def _parts_in_turn(
    source: Source, files: Sequence[int], output: Path, calibrated: _Calibrated, shown: bool | None
) -> Iterator[_Part]:
    """Write the chunks of files that are not there yet."""

    def write(_: int, unfinished: Unfinished) -> _Part:
        file, n_rows = unfinished.file, unfinished.n_rows
        part = output / f"part-{file:05d}-{unfinished.number:05d}.parquet"
        if part.exists():
            return _Part(file, 0, n_rows)
        write_parquet(_by_column(source, unfinished.finish(), calibrated), part)
        return _Part(file, n_rows, 0)

    return _in_turns(write, source, "calibrating", shown, files, needs_labels=False, waiting=1)


def _by_column(source: Source, chunk: Chunk, calibrated: _Calibrated) -> Contents:
    """Calibrate some rows at a time, in the cache. The values of each class lie side by side, as Parquet wants them."""
    made: dict[str, Any] = {}
    step = max(1, _CALIBRATED_ENTRIES // _width(chunk))
    for first in range(0, len(chunk.rows), step):
        with errors_as_bad_file(f"{source.files[chunk.file]}, counted from row {chunk.first_row + first:,}"):
            some = calibrated(chunk.rows.take(slice(first, first + step)), chunk.labelled)
        for name, value in vars(some).items():
            if isinstance(value, np.ndarray):
                shape = (*value.shape[1:], len(chunk.rows))
                made.setdefault(name, np.empty(shape, value.dtype).T)[first : first + step] = value
            else:
                made[name] = value
    return Contents(**made)


def read_to_learn(
    path: Path,
    labels: Path | None,
    part: str | None,
    probabilities: bool,
    columns: str | None,
    seed: int,
    quiet: bool,
    preferred: str = "calibration",
) -> tuple[Predictions | Confidences, str]:
    """Read rows to fit on, and what they hold; of many, a random subset large enough for every method."""
    if not is_large([path]):
        return arg.only_or(preferred, arg.read_wanted(read_to_fit, path, labels, part, probabilities, columns))
    from glayers.calibrators.auto import enough_rows

    source = source_of([path], labels, part, probabilities, columns)
    sample: RowSample | None = None
    for chunk in _in_turns(lambda _, each: each.finish(), source, "reading", False if quiet else None):
        if sample is None:
            sample, kind = RowSample(enough_rows(_width(chunk)), seed), chunk.inputs
        sample.update(chunk.rows, row_places(chunk.first_row, len(chunk.rows), chunk.file))
    if sample is None:
        raise BadFile(f"{path}: there are no rows to fit on")
    rows = sample.result()
    if len(rows) < sample.n_seen and not quiet:
        show_note(f"note: {len(rows):,} of {sample.n_seen:,} rows of {path}, drawn at random, are used")
    return rows, kind


def fit_on_cluster(
    calibrator: "Calibrator", chosen: dict[str, Any], reading: tuple[Any, ...], seed: int, cluster: str
) -> None:
    """Fit a calibrator where the rows are: temperature scaling on all of them, other methods on a random subset."""
    from glayers.bridges import dask

    source = source_of([reading[0]], *reading[1:])
    calibrator.set_params(**{"inputs": next(source.chunks()).inputs, **chosen})
    with dask.connect(cluster) as client:
        dask.fit(calibrator, dask.rows_of_source(source), random_state=seed, client=client)


def compare_on_cluster(
    files: tuple[Path, Path],
    methods: list[str] | None,
    probabilities: bool,
    columns: str | None,
    seed: int,
    cluster: str,
) -> tuple["Comparison", Predictions | Confidences]:
    """Fit each method as a task and score all test rows; return also the random subset to which they were fitted."""
    from glayers.bridges import dask

    sources = [source_of([file], None, None, probabilities, columns) for file in files]
    calibration, test = (dask.rows_of_source(source) for source in sources)
    inputs = next(sources[0].chunks()).inputs
    with dask.connect(cluster) as client:
        learned = dask.sample_of(calibration, seed, client).result()
        return dask.compare(learned, test, methods, inputs=inputs, random_state=seed, client=client), learned


def _facts(source: Source, model: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return what the contents of the output depend on."""
    files = [[str(file), (facts := file.stat()).st_size, facts.st_mtime_ns] for file in source.files]
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    reading = {
        "part": source.part,
        "inputs": source.inputs,
        "columns": dict(source.columns),
        "labels": str(source.labels),
    }
    return {"model": digest, "files": files, "entries": source.entries, **reading, **options}


class _Folder:
    """The directory that `apply` writes, with a record of what it is made from and how many files are finished."""

    def __init__(self, path: Path, facts: dict[str, Any], force: bool) -> None:
        self.path, self.facts, self.finished = path, facts, 0
        if path.suffix.lower() in WRITERS or (path.exists() and not path.is_dir()):
            raise typer.BadParameter(
                f"{path}: many rows are written to a directory of Parquet files; give -o a name without ending"
            )
        for file, *_ in facts["files"]:
            if Path(file).resolve().is_relative_to(path.resolve()):
                raise BadFile(f"{path}: holds the input file {file}; write to another directory")
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise BadFile(f"{path}: cannot be created ({error.strerror}); check the folder above it") from error
        before: dict[str, Any] = {}
        if any(path.iterdir()):
            with contextlib.suppress(OSError, ValueError):
                before = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
            same = before.get("made_from") == json.loads(json.dumps(facts))
            if not same and not (force and before):
                way_out = "use --force to replace them, or choose another directory" if before else "choose another"
                raise BadFile(f"{path}: has files already, and not from this model, input and options; {way_out}")
            if not same or force:
                for part in path.glob("part-*-*.parquet"):
                    part.unlink()
                before = {}
        self.finish(before.get("finished_files", 0))

    def finished_parts(self) -> list[Path]:
        """Return the parts of finished files, which are not read again."""
        return [part for part in self.path.glob("part-*-*.parquet") if int(part.name.split("-")[1]) < self.finished]

    def finish(self, number: int) -> None:
        """Record that this many files are finished."""
        self.finished = number
        record = {"finished_files": number, "complete": number == len(self.facts["files"]), "made_from": self.facts}
        write_whole(self.path / _MANIFEST, json.dumps(record, indent=1).encode())


def source_of(
    paths: list[Path],
    labels: Path | None,
    part: str | None,
    probabilities: bool,
    columns: str | None,
    calibrator: "Calibrator | None" = None,
) -> Source:
    """Return the files that options name, and how to read them."""
    files = files_of(paths)
    if labels is not None and len(files) > 1:
        raise typer.BadParameter("--labels is for one .npy file; put logits and labels of several into .npz files")
    by_model = calibrator is not None and calibrator.inputs == "probabilities" and files[0].suffix.lower() == ".npy"
    inputs: Inputs = "probabilities" if probabilities or by_model else None
    return Source(files, labels, part, inputs, arg.columns_of(columns), _ENTRIES)


def _width(chunk: Chunk) -> int:
    return chunk.rows.n_classes if isinstance(chunk.rows, Predictions) else 1
