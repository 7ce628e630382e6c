"""`score`: every metric of saved predictions, with tests, intervals and conditions; `rows`: what more rows bring.

A condition that holds, and a question that the rows cannot answer, end the program with status 3.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from glayers.cli import arguments as arg
from glayers.cli.multi_label import apply_to_labels, label_scores, with_labels
from glayers.cli.runtime import flag, show, show_json, show_record, suitable_threads, title
from glayers.errors import BadPredictions, listed
from glayers.metrics import METRICS, Event, Intervals, Scorecard, calibration_test, ks_test, scorecard, top
from glayers.metrics import intervals as intervals_of
from glayers.predictions.contents import WHOLE_FILE, Reading, Rows
from glayers.predictions.source import Chunk, Executor, Source
from glayers.report.words import confidence_sentence, ks_sentence
from glayers.text_tables import terminal_table

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator

# What `score` prints: one number per question. --all adds the others.
_SHOWN = ("accuracy", "confidence", "nll", "brier", "ks", "ece")
_SHOWN_OF_CONFIDENCES = ("accuracy", "confidence", "confidence_nll", "confidence_brier", "ks", "ece")
_MODEL = "A file from `glayers fit`: score before and after it."
_MISCALIBRATED = "Exit with 3 unless the calibration test passes."
_SHIFTED = "Exit with 3 unless the rows look like MODEL's calibration rows."
_UNCALIBRATED = "uncalibrated"
_CALIBRATED = "calibrated"
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt
}  # fmt: skip
_CONDITION = re.compile(r"\s*([A-Za-z0-9_]+)\s*(>=|<=|>|<)\s*([-+]?\d*\.?\d+(?:[eE][-+]?\d+)?\s*%?)\s*")


class Condition(NamedTuple):
    """A metric, a sign and a number, such as ks > 0.02."""

    metric: str
    sign: str
    limit: float

    @classmethod
    def of(cls, text: str) -> "Condition":
        """Return the condition that an option states; refuse a limit that no score can pass.

        >>> Condition.of("KS > 2 %")
        Condition(metric='ks', sign='>', limit=0.02)
        """
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise typer.BadParameter(
                f"cannot read the condition {text!r}; write a metric, a sign and a number, such as 'ks > 0.02'"
            )
        name, sign, number = found.groups()
        limit = arg.number_of(number)
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

    def failures(self, scores: Mapping[str, float]) -> Iterator[str]:
        """Yield what is wrong, if anything is. A score that is not a number is wrong too."""
        if self.metric not in scores:
            raise BadPredictions(f"these rows have no {self.metric}; they have {listed(scores)}")
        value = scores[self.metric]
        if math.isnan(value) or _SIGNS[self.sign](value, self.limit):
            yield f"{self.metric} = {value:.4g} {self.sign} {self.limit:g}"


@dataclass
class _Scores:
    """What to ask about rows, and what was found: numbers for programs, sentences and scores for people, failures."""

    event: Event
    level: float
    seed: int
    progress: bool | None
    n_resamples: int  # 0 for no intervals
    conditions: list[Condition]
    fail_if_miscalibrated: bool
    fail_if_shifted: bool
    numbers: dict[str, Any] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)
    cards: dict[str, Scorecard] = field(default_factory=dict)
    intervals: dict[str, Intervals] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def read(self, source: Source, calibrator: "Calibrator | None") -> None:
        """Score the parts of a small file in memory."""
        is_alone = calibrator is None  # a calibrator has its own floor of probabilities, and takes new rows
        for part, chunk in arg.read_parts(source, needs_labels=is_alone, warn=is_alone).items():
            self._add(part, chunk, calibrator)

    def read_in_chunks(self, source: Source, calibrator: "Calibrator | None", executor: Executor) -> None:
        """Score all rows in one pass; tests and intervals, which need rows in memory, see a random subset."""
        from glayers.many_rows import Pass, rows_to_test

        plan = Pass(_versions(calibrator), {"event": self.event}, rows_to_test, self.seed)
        found = plan.over(source.tasks(needs_labels=calibrator is None), executor)
        rows = found.sample.result()
        if len(rows) < found.sample.n_seen:
            self.numbers["tested_rows"] = len(rows)
            what = "Tests and intervals" if self.n_resamples else "Tests"
            self.sentences.append(f"{what} of {len(rows):,} rows, drawn at random from {found.sample.n_seen:,}:")
        chunk = replace(source.first(), rows=rows, labelled=bool(found.labelled))
        self._add(WHOLE_FILE, chunk, calibrator, found.sums)

    def _add(self, part: str, chunk: Chunk, calibrator: "Calibrator | None", sums: Any = None) -> None:
        """Score and test the rows of one part; `sums` are the streamed scores of more rows than these."""
        if chunk.labelled:
            for version, applied in _versions(calibrator).items():
                rows = chunk.rows if applied is None else applied.apply(chunk.rows)
                card = scorecard(rows, event=self.event) if sums is None else sums[version].result()
                self._add_rows(_joined(part, version), rows, card)
                if sums is not None:
                    self.numbers[_joined(part, version)]["error_bounds"] = sums[version].error_bounds()
        if calibrator is not None:
            self._add_shift(part, chunk, calibrator)

    def _add_rows(self, name: str, rows: Rows, card: Scorecard) -> None:
        """Test rows for calibration: by all tests, and by KS alone; levels near 1 need more draws."""
        n_draws = None if self.level <= 0.95 else math.ceil(round(4 / (1 - self.level), 6)) - 1
        drawn: dict[str, Any] = {"random_state": self.seed, "progress": self.progress}
        event = None if self.event == top else self.event
        test = calibration_test(rows, event=event, level=self.level, n_resamples=n_draws, **drawn)
        of_ks = ks_test(rows, event=self.event, level=self.level)
        self.cards[name] = card
        self.numbers[name] = {**card.to_dict(), "calibration_test": test.to_dict(), "ks_test": vars(of_ks)}
        for sentence in (str(test), confidence_sentence(test, card), ks_sentence(of_ks)):
            self.sentences.append(_prefix(name) + sentence)
        if self.n_resamples:
            found = intervals_of(rows, event=self.event, n_resamples=self.n_resamples, level=0.95, **drawn)
            self.intervals[name] = found
            self.numbers[name]["intervals"] = found.to_dict()
        if name.endswith(_UNCALIBRATED):  # conditions are about the calibrated rows
            return
        failures = [failure for condition in self.conditions for failure in condition.failures(card)]
        if self.fail_if_miscalibrated and test.verdict != "calibrated":
            failures.append(str(test))
        self.failures += [_prefix(name) + failure for failure in failures]

    def _add_shift(self, part: str, chunk: Chunk, calibrator: "Calibrator") -> None:
        """Compare rows with those that a calibrator was fitted on; labels, if there are any, are compared too."""
        from glayers.shift import shift_test

        if chunk.labelled:
            shift = shift_test(calibrator, chunk.rows, level=self.level)
        else:
            values = arg.inputs_of(calibrator, chunk.rows)
            shift = shift_test(calibrator, values, groups=chunk.rows.groups, level=self.level)
        sentence = f"{_prefix(part)}{shift}"
        self.sentences.append(sentence)
        self.numbers[_joined(part, "shift")] = shift.to_dict()
        if self.fail_if_shifted and (shift.shifted or math.isnan(shift.p_value)):
            self.failures.append(sentence)


def score(
    files: Annotated[list[Path], arg.file_argument("FILE...", f"{arg.PREDICTIONS} {arg.MANY}")],
    model: Annotated[Path | None, arg.file_option("MODEL", _MODEL)] = None,
    reading: Reading = arg.READING,
    event: arg.EventName = "top",
    intervals: Annotated[bool, flag("--intervals", text="Add 95 % bootstrap intervals; takes a while.")] = False,
    resamples: Annotated[int, typer.Option(metavar="N", min=2, help="Bootstrap resamples for --intervals.")] = 1000,
    every: Annotated[bool, flag("--all", text="Print every metric, not only six.")] = False,
    level: arg.Level = 0.95,
    fail_if: arg.FailIf = None,
    fail_if_miscalibrated: Annotated[bool, flag("--fail-if-miscalibrated", text=_MISCALIBRATED)] = False,
    fail_if_shifted: Annotated[bool, flag("--fail-if-shifted", text=_SHIFTED)] = False,
    several_labels: arg.SeveralLabels = False,
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
    n_resamples = resamples if intervals else 0
    asked = arg.event_of(event)
    fails = (conditions, fail_if_miscalibrated, fail_if_shifted)
    scores = _Scores(asked, level, seed, arg.progress_of(quiet), n_resamples, *fails)
    name = f"{len(files):,} files" if len(files) > 1 else arg.name_of(files[0])
    if several_labels:
        if any(fails) or intervals or asked != top or dask:
            raise typer.BadParameter("--several-labels prints scores of each label; leave the other options out")
        _score_labels(arg.source_of(files, reading), name, model, as_json)
        return
    if fail_if_shifted and model is None:
        raise typer.BadParameter("--fail-if-shifted needs --model, which remembers its calibration rows")
    calibrator = None if model is None else arg.calibrator_of_classes(model)
    source = arg.source_of(files, reading, calibrator)
    if dask is None and source.is_small:
        scores.read(source, calibrator)
    else:
        with arg.executor_of(dask, quiet, "scoring") as executor:
            scores.read_in_chunks(source, calibrator, executor)
    if not scores.cards and (conditions or fail_if_miscalibrated or intervals):
        raise BadPredictions(
            "these rows have no labels, so they cannot be scored, only tested for shift: leave out --fail-if, "
            "--fail-if-miscalibrated and --intervals"
        )
    if as_json:
        show_json(scores.numbers)
    else:
        show(title(name), *scores.sentences)
        if scores.cards:
            show("", _table(scores.cards, every))
        for version, found in scores.intervals.items():
            show("", title(version), *str(found).splitlines())
    arg.end_with(scores.failures)


def _score_labels(source: Source, name: str, model: Path | None, as_json: bool) -> None:
    """Print the scores of each label of one file, with a model before and after calibration."""
    from glayers.calibrators import MultiLabelCalibrator, load

    contents = arg.only_or("test", arg.read_contents(source, with_labels))
    cards = {name: label_scores(contents)}
    if model is not None:
        fitted = load(model)
        if not isinstance(fitted, MultiLabelCalibrator):
            raise BadPredictions(f"{model}: was not fitted with --several-labels")
        calibrated = apply_to_labels(fitted, contents, logits=True)
        cards = {_UNCALIBRATED: cards[name], _CALIBRATED: label_scores(calibrated)}
    if as_json:
        numbers = {version: card.to_dict() for version, card in cards.items()}
        show_json(numbers.get(name, numbers))
        return
    for version, card in cards.items():
        show(title(version), *str(card).splitlines())


def _versions(calibrator: "Calibrator | None") -> dict[str, "Calibrator | None"]:
    """Return what to apply before rows are scored, by name."""
    if calibrator is None:
        return {"": None}
    return {_UNCALIBRATED: None, _CALIBRATED: calibrator}


def _joined(part: str, name: str) -> str:
    """Return the name of a result of one part; a file without parts needs no name for it."""
    if part == WHOLE_FILE:
        return name or part
    return f"{part}, {name}" if name else part


def _prefix(name: str) -> str:
    """Return what stands before a sentence about one part."""
    return "" if name == WHOLE_FILE else f"{name}: "


def _table(cards: dict[str, Scorecard], every: bool) -> Any:
    """Return a table with a column per name."""
    cells = [["", *cards]]
    columns = []
    for card in cards.values():
        shown: Iterable[str] = _SHOWN if "nll" in card else _SHOWN_OF_CONFIDENCES
        columns.append(card.printed(card if every else shown).items())
    for line in zip(*columns, strict=True):
        label = " / ".join(dict.fromkeys(name for name, _ in line))  # "top 3 / top 5" if numbers of classes differ
        cells.append([label, *(value for _, value in line)])
    return terminal_table(cells)


def rows(
    calibration: arg.Calibration,
    method: arg.Method = "auto",
    settings: arg.Settings = None,
    reading: Reading = arg.READING,
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

    calibrator = arg.method_with_settings(method, settings, seed, progress=False)
    sample = arg.read_sample(calibration, reading, "calibration", seed, quiet)
    calibrator.set_params(inputs=sample.inputs)
    options: dict[str, Any] = {"random_state": seed, "progress": arg.progress_of(quiet)}
    with suitable_threads([method], sample.rows):
        forecast = rows_needed(sample.rows, calibrator=calibrator, **options)
    show_record(forecast, as_json, f"{method} on {forecast.rows:,} rows from {arg.name_of(calibration)}")
