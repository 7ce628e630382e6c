"""`score`: every metric of saved predictions, with tests, intervals and conditions; `rows`: what more rows bring."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glayers.cli import arguments as arg
from glayers.cli import monitoring, multi_label
from glayers.cli.runtime import flag, show, show_json, suitable_threads, title, verb
from glayers.errors import BadPredictions
from glayers.metrics import Event, Intervals, OmnibusTest, Scorecard, calibration_test, ks_test, scorecard, top
from glayers.metrics import intervals as intervals_of
from glayers.predictions.contents import WHOLE_FILE, Reading, Rows
from glayers.predictions.source import Executor, Source
from glayers.report import tables

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator

_CALIBRATED = "calibrated"


@dataclass(frozen=True)
class Settings:
    """What `score` measures, and how: no resamples mean no intervals."""

    event: Event
    n_resamples: int
    level: float
    seed: int
    progress: bool | None

    def tests(self, rows: Rows) -> tuple[OmnibusTest, Any]:
        """Test rows for calibration: by all tests, and by KS alone."""
        calibration = calibration_test(
            rows,
            event=None if self.event == top else self.event,
            level=self.level,
            n_resamples=monitoring.draws_for(self.level),
            random_state=self.seed,
            progress=self.progress,
        )
        return calibration, ks_test(rows, event=self.event, level=self.level)

    def intervals(self, rows: Rows) -> Intervals | None:
        """Return bootstrap intervals, if they are asked for."""
        if not self.n_resamples:
            return None
        options: dict[str, Any] = {"n_resamples": self.n_resamples, "random_state": self.seed}
        return intervals_of(rows, event=self.event, level=0.95, progress=self.progress, **options)


@dataclass(frozen=True)
class Score:
    """What `score` found about some rows."""

    card: Scorecard
    calibration_test: OmnibusTest
    ks_test: Any
    intervals: Intervals | None
    error_bounds: dict[str, float] | None = None  # of streamed scores

    def to_dict(self) -> dict[str, Any]:
        """Return every number, ready for JSON."""
        numbers: dict[str, Any] = dict(self.card.to_dict())
        numbers["calibration_test"] = self.calibration_test.to_dict()
        numbers["ks_test"] = vars(self.ks_test)
        if self.intervals is not None:
            numbers["intervals"] = self.intervals.to_dict()
        if self.error_bounds is not None:
            numbers["error_bounds"] = self.error_bounds
        return numbers


@dataclass
class Scores:
    """What `score` found, by name: parts of a file, or uncalibrated and calibrated rows."""

    by_name: dict[str, Score] = field(default_factory=dict)
    shifts: dict[str, Any] = field(default_factory=dict)
    n_rows: int = 0
    tested_rows: int | None = None  # if tests saw a random subset

    def to_dict(self) -> dict[str, Any]:
        """Return every number, ready for JSON."""
        numbers: dict[str, Any] = {name: score.to_dict() for name, score in self.by_name.items()}
        numbers |= {monitoring.part_label(part, "shift"): shift.to_dict() for part, shift in self.shifts.items()}
        if self.tested_rows is not None:
            numbers["tested_rows"] = self.tested_rows
        return numbers


@verb
def score(
    files: Annotated[list[Path], arg.file_argument("FILE...", f"{arg.PREDICTIONS} {arg.MANY}")],
    model: monitoring.Model = None,
    reading: Reading = arg.READING,
    event: arg.EventName = "top",
    intervals: Annotated[bool, flag("--intervals", text="Add 95 % bootstrap intervals; takes a while.")] = False,
    resamples: Annotated[int, typer.Option(metavar="N", min=2, help="Bootstrap resamples for --intervals.")] = 1000,
    level: monitoring.Level = 0.95,
    fail_if: monitoring.FailIf = None,
    fail_if_miscalibrated: monitoring.FailIfMiscalibrated = False,
    fail_if_shifted: monitoring.FailIfShifted = False,
    several_labels: multi_label.SeveralLabels = False,
    seed: arg.Seed = 0,
    dask: arg.Dask = None,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Print accuracy, proper scores and calibration errors of saved predictions, and test them for calibration.

    Instead of predictions and labels, a file may have the columns confidence and correct. With --model, scores are
    shown before and after calibration, and the rows are compared with those that the model was fitted on; for that
    comparison labels may be missing. The conditions of --fail-if are about the calibrated predictions then.

    Many files, or one larger than 1 GB, are read in chunks. Tests then see a random subset of the rows.

    Examples
    --------
    $ glayers score model.npz
    $ glayers score logits.npy --labels labels.npy --json
    $ glayers score test.csv --intervals
    $ glayers score test.npz --event within-top:2
    $ glayers score test.npz --model model.safetensors --fail-if "ks > 0.1"
    $ glayers score logits/ --json
    $ cat test.csv | glayers score -
    """
    conditions = [monitoring.Condition.of(text) for text in fail_if or ()]
    settings = Settings(arg.event_of(event), resamples if intervals else 0, level, seed, arg.progress_of(quiet))
    name = f"{len(files):,} files" if len(files) > 1 else arg.name_of(files[0])
    if several_labels:
        others = [model, conditions, fail_if_miscalibrated, fail_if_shifted, intervals, settings.event != top]
        _score_labels(arg.source_of(files, reading), name, as_json, alone=not any(others) and dask is None)
        return
    if fail_if_shifted and model is None:
        raise typer.BadParameter("--fail-if-shifted needs --model, which remembers its calibration rows")
    calibrator = None
    source = arg.source_of(files, reading)
    if model is not None:
        from glayers.calibrators import load  # which refuses calibrators of several labels and of groups

        calibrator = load(model)
        source = arg.source_of(files, reading, calibrator.inputs)
    if dask is None and source.is_small:
        scores = _score_at_once(source, calibrator, settings)
    else:
        with arg.executor_of(dask, quiet, "scoring") as executor:
            scores = _score_in_chunks(source, calibrator, settings, executor)
    if not scores.by_name and (conditions or fail_if_miscalibrated or intervals):
        raise BadPredictions(
            "these rows have no labels, so they cannot be scored, only tested for shift: leave out --fail-if, "
            "--fail-if-miscalibrated and --intervals"
        )
    if as_json:
        show_json(scores.to_dict())
    else:
        _show(scores, name)
    monitoring.end_with(_failures(scores, conditions, fail_if_miscalibrated, fail_if_shifted))


def _score_labels(source: Source, name: str, as_json: bool, alone: bool) -> None:
    if not alone or not source.is_small:
        raise typer.BadParameter(
            "--several-labels prints the scores of each label of one file; leave the other options out"
        )
    multi_label.show_label_scores(name, arg.only_or("test", multi_label.read_label_rows(source)), as_json)


def _score_at_once(source: Source, calibrator: "Calibrator | None", settings: Settings) -> Scores:
    """Score the rows of one file in memory."""
    scores = Scores()
    if calibrator is None:
        rows_by_name = {part: chunk.rows for part, chunk in arg.read_parts(source).items()}
    else:
        rows_by_name = {}
        for part, chunk in arg.read_for(calibrator, source).items():
            scores.shifts[part] = monitoring.shift_of(calibrator, chunk, settings.level)
            if chunk.labelled:
                rows_by_name[monitoring.part_label(part, monitoring.UNCALIBRATED)] = chunk.rows
                rows_by_name[monitoring.part_label(part, _CALIBRATED)] = calibrator.apply(chunk.rows)
    for name, rows in rows_by_name.items():
        card = scorecard(rows, event=settings.event)
        scores.by_name[name] = Score(card, *settings.tests(rows), settings.intervals(rows))
    return scores


def _score_in_chunks(source: Source, calibrator: "Calibrator | None", settings: Settings, executor: Executor) -> Scores:
    """Score all rows in one pass; tests, which need rows in memory, see a random subset."""
    from glayers.many_rows import Pass, rows_to_test

    calibrators: dict[str, Calibrator | None] = {WHOLE_FILE: None}
    if calibrator is not None:
        calibrators = {monitoring.UNCALIBRATED: None, _CALIBRATED: calibrator}
    streaming = {"event": settings.event, "n_resamples": settings.n_resamples, "random_state": settings.seed}
    plan = Pass(calibrators, streaming, rows_to_test, settings.seed)
    collected = plan.over(source.tasks(needs_labels=calibrator is None), executor)
    if collected.sample is None:
        raise BadPredictions("there are no rows to score")
    tested = collected.sample.result()
    scores = Scores(n_rows=collected.sample.n_seen)
    if len(tested) < scores.n_rows:
        scores.tested_rows = len(tested)
    if collected.labelled:
        for name, sums in collected.sums.items():
            rows = _applied(calibrators[name], tested)
            ends = sums.intervals() if settings.n_resamples else None
            scores.by_name[name] = Score(sums.result(), *settings.tests(rows), ends, sums.error_bounds())
    if calibrator is not None:
        sampled = replace(source.first(), rows=tested, labelled=bool(collected.labelled))
        scores.shifts[WHOLE_FILE] = monitoring.shift_of(calibrator, sampled, settings.level)
    return scores


def _applied(calibrator: "Calibrator | None", rows: Rows) -> Rows:
    return rows if calibrator is None else calibrator.apply(rows)


def _failures(
    scores: Scores, conditions: list[monitoring.Condition], miscalibrated: bool, shifted: bool
) -> Iterator[str]:
    """Yield why the rows do not pass; conditions are about the calibrated ones if there are any."""
    for name, score in scores.by_name.items():
        if name.endswith(monitoring.UNCALIBRATED):
            continue
        reasons = [condition.failure(score.card) for condition in conditions]
        if miscalibrated:
            reasons.append(monitoring.test_failure(score.calibration_test))
        for reason in reasons:
            if reason is not None:
                yield f"{monitoring.prefix_of(name)}{reason}"
    if shifted:
        for part, shift in scores.shifts.items():
            reason = monitoring.shift_failure(shift)
            if reason is not None:
                yield f"{monitoring.prefix_of(part)}{reason}"


def _show(scores: Scores, name: str) -> None:
    show(title(name))
    if scores.by_name:
        interval_tables = [
            tables.interval_table(score.intervals, name)
            for name, score in scores.by_name.items()
            if score.intervals is not None
        ]
        cards = {name: score.card for name, score in scores.by_name.items()}
        show(*(interval_tables or [tables.score_table(cards)]), "")
    for score in scores.by_name.values():
        bounds = score.error_bounds or {}
        largest = max((bounds[metric] for metric in bounds if metric.endswith("ks")), default=0.0)
        if largest:
            show(f"KS errors are at most {100 * largest:.2g} points off: scores were sorted into narrow cells.")
    if scores.tested_rows is not None:
        show(f"Tests of {scores.tested_rows:,} rows, drawn at random from {scores.n_rows:,}:")
    for name, score in scores.by_name.items():
        prefix = monitoring.prefix_of(name)
        show(
            f"{prefix}{score.calibration_test}",
            f"{prefix}{tables.confidence_sentence(score.card)}",
            f"{prefix}{tables.ks_test_sentence(score.ks_test)}",
        )
    for part, shift in scores.shifts.items():
        show(f"{monitoring.prefix_of(part)}{shift}")


@verb
def rows(
    calibration: arg.Calibration,
    method: arg.Method = "auto",
    settings: arg.Settings = None,
    reading: Reading = arg.READING,
    level: Annotated[float, typer.Option(metavar="P", min=0.5, max=0.9999, help="Probability of the intervals.")] = 0.9,
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Estimate what more labelled rows would bring, from held-out and training loss of these.

    It fits the method six times. The intervals say how far the NLL of new rows would fall with twice and with four
    times the rows.

    Examples
    --------
    $ glayers rows calibration.npz --method temperature
    $ glayers rows calibration.npz -m vector --set strength=0.1 --json
    """
    from glayers.learning_curve import rows_needed

    calibrator, chosen = arg.method_with_settings(method, settings, seed, progress=False)
    sample = arg.read_sample(calibration, reading, "calibration", seed, quiet)
    calibrator.set_params(**{"inputs": sample.inputs, **chosen})
    with suitable_threads([method], sample.rows):
        forecast = rows_needed(
            sample.rows, calibrator=calibrator, level=level, random_state=seed, progress=arg.progress_of(quiet)
        )
    if as_json:
        show_json({**forecast.to_dict(), "method": method})
    else:
        show(title(f"{method} on {forecast.rows:,} rows from {arg.name_of(calibration)}"), *str(forecast).splitlines())
