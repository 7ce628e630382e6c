"""`score`: every metric of saved predictions, with tests, intervals and conditions; `rows`: what more rows bring.

A condition that holds, and a question that the rows cannot answer, end the program with status 3.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from glayers.cli import arguments as arg
from glayers.cli import multi_label
from glayers.cli.runtime import flag, show, show_json, suitable_threads, title, verb
from glayers.errors import BadPredictions
from glayers.metrics import METRICS, Event, Intervals, OmnibusTest, Scorecard, calibration_test, ks_test, scorecard, top
from glayers.metrics import intervals as intervals_of
from glayers.predictions.contents import WHOLE_FILE, Reading, Rows, listed
from glayers.predictions.source import Chunk, Executor, Source
from glayers.report.words import confidence_sentence, ks_sentence
from glayers.text_tables import terminal_table

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator
    from glayers.shift import ShiftTest

# What `score` prints: one number per question. --all adds the others.
_SHOWN = ("accuracy", "confidence", "nll", "brier", "ks", "ece")
_SHOWN_OF_CONFIDENCES = ("accuracy", "confidence", "confidence_nll", "confidence_brier", "ks", "ece")
_UNCALIBRATED = "uncalibrated"
_CALIBRATED = "calibrated"
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt
}  # fmt: skip
_CONDITION = re.compile(r"\s*([A-Za-z0-9_]+)\s*(>=|<=|>|<)\s*([-+]?\d*\.?\d+(?:[eE][-+]?\d+)?)\s*(%?)\s*")

_Model = Annotated[
    Path | None,
    typer.Option(metavar="MODEL", readable=False, help="A file from `glayers fit`: score before and after it."),
]
_FailIfMiscalibrated = Annotated[
    bool, flag("--fail-if-miscalibrated", text="Exit with 3 unless the calibration test passes.")
]
_FailIfShifted = Annotated[
    bool, flag("--fail-if-shifted", text="Exit with 3 unless the rows look like MODEL's calibration rows.")
]


@dataclass(frozen=True)
class Condition:
    """A metric, a sign and a number, such as ks > 0.02."""

    metric: str
    sign: str
    limit: float

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the condition that an option states; refuse a limit that no score can pass.

        >>> Condition.of("KS > 2 %")
        Condition(metric='ks', sign='>', limit=0.02)
        """
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise typer.BadParameter(
                f"cannot read the condition {text!r}; write a metric, a sign and a number, such as 'ks > 0.02'"
            )
        name, sign, number, percent = found.groups()
        limit = float(number) / (100 if percent else 1)
        metric = METRICS[arg.known_name(name.lower(), METRICS, "metric")]
        never = {">": metric.highest, "<": metric.lowest}.get(sign)
        if not metric.lowest <= limit <= metric.highest or limit == never:
            hint = ""
            if metric.unit == "percent" and 1 <= limit <= 100:  # most often a percent sign is missing
                hint = f"; did you mean '{metric.name} {sign} {limit:g} %'?"
            raise typer.BadParameter(
                f"{metric.name} is always between {metric.lowest:g} and {metric.highest:g}, so it cannot be compared "
                f"with {limit:g}{hint}"
            )
        return cls(metric.name, sign, limit)

    def failure(self, scores: Mapping[str, float]) -> str | None:
        """Return what is wrong, or None. A score that is not a number is wrong too."""
        if self.metric not in scores:
            raise BadPredictions(f"these rows have no {self.metric}; they have {listed(scores)}")
        value = scores[self.metric]
        if math.isnan(value) or _SIGNS[self.sign](value, self.limit):
            return f"{self.metric} = {value:.4g} {self.sign} {self.limit:g}"
        return None


@dataclass(frozen=True)
class Score:
    """What `score` found about some rows; `error_bounds` are those of streamed scores."""

    card: Scorecard
    calibration_test: OmnibusTest
    ks_test: Any
    intervals: Intervals | None
    error_bounds: dict[str, float] | None = None

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
    """What `score` measures, and what it found by name: of parts of a file, or of uncalibrated and calibrated rows."""

    event: Event
    n_resamples: int  # 0 for no intervals
    level: float
    seed: int
    progress: bool | None
    by_name: dict[str, Score] = field(default_factory=dict)
    shifts: dict[str, "ShiftTest"] = field(default_factory=dict)
    n_rows: int = 0
    tested_rows: int | None = None  # if tests saw a random subset

    def add(self, name: str, rows: Rows) -> None:
        """Score rows in memory."""
        self.add_test(name, rows, scorecard(rows, event=self.event))

    def add_test(self, name: str, rows: Rows, card: Scorecard, bounds: dict[str, float] | None = None) -> None:
        """Test rows for calibration: by all tests, and by KS alone; levels near 1 need more draws."""
        ends = None
        if self.n_resamples:
            options: dict[str, Any] = {"n_resamples": self.n_resamples, "random_state": self.seed, "level": 0.95}
            ends = intervals_of(rows, event=self.event, progress=self.progress, **options)
        calibration = calibration_test(
            rows,
            event=None if self.event == top else self.event,
            level=self.level,
            n_resamples=None if self.level <= 0.95 else math.ceil(round(4 / (1 - self.level), 6)) - 1,
            random_state=self.seed,
            progress=self.progress,
        )
        tested = ks_test(rows, event=self.event, level=self.level)
        self.by_name[name] = Score(card, calibration, tested, ends, bounds)

    def add_shift(self, part: str, calibrator: "Calibrator", chunk: Chunk) -> None:
        """Compare rows with those that a calibrator was fitted on; labels, if there are any, are compared too."""
        from glayers.predictions.predictions import map_inputs, two_classes
        from glayers.shift import shift_test

        if chunk.labelled:
            self.shifts[part] = shift_test(calibrator, chunk.rows, level=self.level)
        else:
            rows = two_classes(calibrator.inputs, chunk.rows)
            values = map_inputs(calibrator.inputs, rows)
            self.shifts[part] = shift_test(calibrator, values, groups=rows.groups, level=self.level)

    def to_dict(self) -> dict[str, Any]:
        """Return every number, ready for JSON."""
        numbers: dict[str, Any] = {name: score.to_dict() for name, score in self.by_name.items()}
        for part, shift in self.shifts.items():
            numbers[_name_of_part(part, "shift")] = shift.to_dict()
        if self.tested_rows is not None:
            numbers["tested_rows"] = self.tested_rows
        return numbers

    def failures(self, conditions: list[Condition], miscalibrated: bool, shifted: bool) -> Iterator[str]:
        """Yield why the rows do not pass; conditions are about the calibrated ones if there are any."""
        for name, score in self.by_name.items():
            if name.endswith(_UNCALIBRATED):
                continue
            reasons = [condition.failure(score.card) for condition in conditions]
            if miscalibrated and score.calibration_test.verdict != "calibrated":
                reasons.append(str(score.calibration_test))
            yield from (f"{_prefix(name)}{reason}" for reason in reasons if reason is not None)
        for part, shift in self.shifts.items():
            if shifted and (shift.shifted or math.isnan(shift.p_value)):
                yield f"{_prefix(part)}{shift}"


@verb
def score(
    files: Annotated[list[Path], arg.file_argument("FILE...", f"{arg.PREDICTIONS} {arg.MANY}")],
    model: _Model = None,
    reading: Reading = arg.READING,
    event: arg.EventName = "top",
    intervals: Annotated[bool, flag("--intervals", text="Add 95 % bootstrap intervals; takes a while.")] = False,
    resamples: Annotated[int, typer.Option(metavar="N", min=2, help="Bootstrap resamples for --intervals.")] = 1000,
    every: Annotated[bool, flag("--all", text="Print every metric, not only six.")] = False,
    level: arg.Level = 0.95,
    fail_if: arg.FailIf = None,
    fail_if_miscalibrated: _FailIfMiscalibrated = False,
    fail_if_shifted: _FailIfShifted = False,
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

    Many files, or one larger than 1 GB, are read in chunks. Tests and intervals then see a random subset of the rows.

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
    conditions = [Condition.of(text) for text in fail_if or ()]
    scores = Scores(arg.event_of(event), resamples if intervals else 0, level, seed, arg.progress_of(quiet))
    name = f"{len(files):,} files" if len(files) > 1 else arg.name_of(files[0])
    if several_labels:
        others = [conditions, fail_if_miscalibrated, fail_if_shifted, intervals, scores.event != top, dask]
        if any(others):
            raise typer.BadParameter("--several-labels prints scores of each label; leave the other options out")
        _score_labels(files, reading, name, model, as_json)
        return
    if fail_if_shifted and model is None:
        raise typer.BadParameter("--fail-if-shifted needs --model, which remembers its calibration rows")
    calibrator = None
    source = arg.source_of(files, reading)
    if model is not None:
        calibrator = arg.calibrator_of_classes(model)
        source = arg.source_of(files, reading, calibrator.inputs)
    if dask is None and source.is_small:
        _score_at_once(source, calibrator, scores)
    else:
        with arg.executor_of(dask, quiet, "scoring") as executor:
            _score_in_chunks(source, calibrator, scores, executor)
    if not scores.by_name and (conditions or fail_if_miscalibrated or intervals):
        raise BadPredictions(
            "these rows have no labels, so they cannot be scored, only tested for shift: leave out --fail-if, "
            "--fail-if-miscalibrated and --intervals"
        )
    if as_json:
        show_json(scores.to_dict())
    else:
        _show(scores, name, every)
    arg.end_with(scores.failures(conditions, fail_if_miscalibrated, fail_if_shifted))


def _score_labels(files: list[Path], reading: Reading, name: str, model: Path | None, as_json: bool) -> None:
    """Print the scores of each label of one file, with a model before and after calibration."""
    from glayers.calibrators import MultiLabelCalibrator, load

    source = arg.source_of(files, reading)
    if not source.is_one_file:
        raise typer.BadParameter("--several-labels prints the scores of each label of one file; give one file")
    contents = arg.only_or("test", multi_label.read_labels(source))
    scores = {name: multi_label.label_scores(contents)}
    if model is not None:
        fitted = load(model)
        if not isinstance(fitted, MultiLabelCalibrator):
            raise BadPredictions(f"{model}: was not fitted with --several-labels")
        calibrated = multi_label.apply_to_labels(fitted, contents, logits=True)
        scores = {_UNCALIBRATED: scores[name], _CALIBRATED: multi_label.label_scores(calibrated)}
    if as_json:
        by_name = {each: card.to_dict() for each, card in scores.items()}
        show_json(by_name[name] if model is None else by_name)
        return
    for each, card in scores.items():
        show(title(each), *str(card).splitlines())


def _score_at_once(source: Source, calibrator: "Calibrator | None", scores: Scores) -> None:
    """Score the rows of one file in memory; a calibrator has its own floor of probabilities, and warns of none."""
    for part, chunk in arg.read_parts(source, calibrator is None, calibrator is None).items():
        if calibrator is None:
            scores.add(part, chunk.rows)
            continue
        scores.add_shift(part, calibrator, chunk)
        if chunk.labelled:
            scores.add(_name_of_part(part, _UNCALIBRATED), chunk.rows)
            scores.add(_name_of_part(part, _CALIBRATED), calibrator.apply(chunk.rows))


def _score_in_chunks(source: Source, calibrator: "Calibrator | None", scores: Scores, executor: Executor) -> None:
    """Score all rows in one pass; tests and intervals, which need rows in memory, see a random subset."""
    from glayers.many_rows import Pass, rows_to_test

    calibrators: dict[str, Calibrator | None] = {WHOLE_FILE: None}
    if calibrator is not None:
        calibrators = {_UNCALIBRATED: None, _CALIBRATED: calibrator}
    plan = Pass(calibrators, {"event": scores.event}, rows_to_test, scores.seed)
    found = plan.over(source.tasks(needs_labels=calibrator is None), executor)
    tested = found.sample.result()
    scores.n_rows = found.sample.n_seen
    if len(tested) < scores.n_rows:
        scores.tested_rows = len(tested)
    if found.labelled:
        for name, sums in found.sums.items():
            applied = calibrators[name]
            rows = tested if applied is None else applied.apply(tested)
            scores.add_test(name, rows, sums.result(), sums.error_bounds())
    if calibrator is not None:
        sampled = replace(source.first(), rows=tested, labelled=bool(found.labelled))
        scores.add_shift(WHOLE_FILE, calibrator, sampled)


def _name_of_part(part: str, name: str) -> str:
    """Return the name of a result of one part; a file without parts needs no name for it."""
    return name if part == WHOLE_FILE else f"{part}, {name}"


def _prefix(name: str) -> str:
    """Return what stands before a sentence about one part."""
    return "" if name == WHOLE_FILE else f"{name}: "


def _show(scores: Scores, name: str, every: bool) -> None:
    """Print what the tests found, then numbers."""
    show(title(name))
    if scores.tested_rows is not None:
        show(f"Tests of {scores.tested_rows:,} rows, drawn at random from {scores.n_rows:,}:")
    for name, score in scores.by_name.items():
        prefix = _prefix(name)
        show(
            f"{prefix}{score.calibration_test}",
            f"{prefix}{confidence_sentence(score.calibration_test, score.card)}",
            f"{prefix}{ks_sentence(score.ks_test)}",
        )
    for part, shift in scores.shifts.items():
        show(f"{_prefix(part)}{shift}")
    if scores.by_name:
        show("", *_tables(scores, every))
    for score in scores.by_name.values():
        bounds = score.error_bounds or {}
        largest = max((bounds[metric] for metric in bounds if metric.endswith("ks")), default=0.0)
        if largest:
            show(f"KS errors are at most {100 * largest:.2g} points off: scores were sorted into narrow cells.")


def _tables(scores: Scores, every: bool) -> list[Any]:
    """Return a table of intervals per name, and one with a column per name unless the intervals are of all rows."""
    found = {name: score.intervals for name, score in scores.by_name.items() if score.intervals is not None}
    tables: list[Any] = []
    for name, intervals in found.items():
        headings = ("", name, f"{100 * intervals.level:g} % interval")
        tables.append(terminal_table([headings, *(line[:3] for line in intervals.printed())], intervals.footnote()))
    if found and scores.tested_rows is None:
        return tables
    if found:
        tables.insert(0, f"Intervals of {scores.tested_rows:,} rows, drawn at random from {scores.n_rows:,}:")
        tables += ["", f"Scores of all {scores.n_rows:,} rows:"]
    cells = [["", *scores.by_name]]
    printed = [score.card.printed(_shown(score.card, every)).items() for score in scores.by_name.values()]
    for line in zip(*printed, strict=True):
        label = " / ".join(dict.fromkeys(name for name, _ in line))  # "top 3 / top 5" if numbers of classes differ
        cells.append([label, *(value for _, value in line)])
    return [*tables, terminal_table(cells)]


def _shown(card: Scorecard, every: bool) -> list[str]:
    """Return the metrics to print."""
    if every:
        return list(card)
    return [name for name in (_SHOWN if "nll" in card else _SHOWN_OF_CONFIDENCES) if name in card]


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
