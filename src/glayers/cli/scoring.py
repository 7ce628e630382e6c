"""`score`: every metric of saved predictions, with tests, intervals and conditions; `rows`: what more rows bring.

A condition that holds, and a question that the rows cannot answer, end the program with status 3.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from glayers.checks import check_label_matrix
from glayers.cli import arguments as arg
from glayers.cli.runtime import flag, show, show_json, show_record, title
from glayers.errors import BadPredictions, listed
from glayers.metrics import METRICS, Event, Scorecard, StreamingScorecard, calibration_test, ks_test, scorecard, top
from glayers.metrics import intervals as intervals_of
from glayers.metrics.scorecard import LabelScorecards, label_scorecard
from glayers.predictions import Predictions
from glayers.predictions.contents import Contents, Reading, Rows
from glayers.predictions.source import Chunk, Source
from glayers.report.verdict import confidence_sentence
from glayers.report.words import ks_sentence
from glayers.text_tables import terminal_table

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator

# What `score` prints: one number per question. --all adds the others.
_SHOWN = ("accuracy", "confidence", "nll", "brier", "ks", "ece")
_MODEL = "A file from `glayers fit`: score before and after it."
_MISCALIBRATED = "Exit with 3 unless the calibration test passes."
_SHIFTED = "Exit with 3 unless the rows look like MODEL's calibration rows."
_AS_THEY_ARE = "all"
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


class _Scores:
    """What to ask about rows, and what was found: by name, scores, tests and numbers for programs; and sentences."""

    def __init__(self, event: Event, level: float, n_resamples: int, seed: int, progress: bool | None) -> None:
        self.event = event
        self.level = level
        self.n_resamples = n_resamples  # 0 for no intervals
        self.drawn: dict[str, Any] = {"random_state": seed, "progress": progress}
        self.cards: dict[str, Scorecard] = {}
        self.tests: dict[str, Any] = {}
        self.intervals: dict[str, Any] = {}
        self.shift: Any = None
        self.numbers: dict[str, Any] = {}
        self.sentences: list[str] = []

    def add(self, source: Source, contents: Contents | None, calibrator: "Calibrator | None") -> None:
        """Score and test the rows of one file, which has been read, or of many files."""
        versions = _versions(calibrator)
        sums: Any = None
        if contents is not None:
            chunk = source.checked(contents)
        else:
            chunk, sums = self._collect(source, versions)
        if chunk.labelled:
            for name, applied in versions.items():
                rows = chunk.rows if applied is None else applied.apply(chunk.rows)
                if sums is None:
                    self._test(name, rows, scorecard(rows, event=self.event))
                else:
                    self._test(name, rows, sums[name].result())
        if calibrator is not None:
            self._test_shift(chunk, calibrator)

    def _collect(self, source: Source, versions: dict[str, Any]) -> tuple[Chunk, dict[str, StreamingScorecard]]:
        """Read all rows in one pass; tests and intervals, which need rows in memory, see a random subset."""
        from glayers.many_rows import collect, rows_to_test

        kind, sample, sums = collect(source, versions, rows_to_test, self.event, **self.drawn)
        rows = sample.result()
        if len(rows) < sample.n_seen:
            self.numbers["tested_rows"] = len(rows)
            self.sentences.append(f"Tests and intervals of {len(rows):,} rows, drawn at random from {sample.n_seen:,}:")
        return Chunk(rows, kind["inputs"], kind["labels"]), sums

    def _test(self, name: str, rows: Rows, card: Scorecard) -> None:
        """Test rows for calibration: by all tests, and by KS alone; levels near 1 need more draws."""
        n_draws = None if self.level <= 0.95 else math.ceil(round(4 / (1 - self.level), 6)) - 1
        event = None if self.event == top else self.event
        test = calibration_test(rows, event=event, level=self.level, n_resamples=n_draws, **self.drawn)
        of_ks = ks_test(rows, event=self.event, level=self.level)
        self.cards[name] = card
        self.tests[name] = test
        self.numbers[name] = {**card.to_dict(), "calibration_test": test.to_dict(), "ks_test": vars(of_ks)}
        for sentence in (str(test), confidence_sentence(test, card), ks_sentence(of_ks)):
            self.sentences.append(_prefix(name) + sentence)
        if self.n_resamples:
            found = intervals_of(rows, event=self.event, n_resamples=self.n_resamples, level=0.95, **self.drawn)
            self.intervals[name] = found
            self.numbers[name]["intervals"] = found.to_dict()

    def _test_shift(self, chunk: Chunk, calibrator: "Calibrator") -> None:
        """Compare rows with those that a calibrator was fitted on; labels, if there are any, are compared too."""
        from glayers.shift import shift_test

        if chunk.labelled:
            self.shift = shift_test(calibrator, chunk.rows, level=self.level)
        else:
            values = arg.inputs_of(calibrator, chunk.rows)
            self.shift = shift_test(calibrator, values, groups=chunk.rows.groups, level=self.level)
        self.sentences.append(str(self.shift))
        self.numbers["shift"] = self.shift.to_dict()

    def failures(self, conditions: list[Condition], miscalibrated: bool, shifted: bool) -> Iterator[str]:
        """Yield what is wrong with the rows, calibrated if there is a model."""
        for name, card in self.cards.items():
            if name == _UNCALIBRATED:
                continue
            for condition in conditions:
                yield from (_prefix(name) + failure for failure in condition.failures(card))
            if miscalibrated and self.tests[name].verdict != "calibrated":
                yield f"{_prefix(name)}{self.tests[name]}"
        if shifted and (self.shift.shifted or math.isnan(self.shift.p_value)):
            yield str(self.shift)


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
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Print accuracy, proper scores and calibration errors of saved predictions, and test them for calibration.

    Instead of predictions and labels, a file may have the columns confidence and correct. With --model, scores are
    shown before and after calibration, and the rows are compared with those that the model was fitted on; for that
    comparison labels may be missing. The conditions of --fail-if are about the calibrated predictions then. If labels
    are a matrix of 0 and 1, each label is scored.

    Many files, or one larger than 1 GB, are read in chunks. Tests and intervals then see a random subset of the rows.

    Examples
    --------
    $ glayers score both.npz --part test
    $ glayers score logits.npy --labels labels.npy --json
    $ glayers score test.csv --intervals
    $ glayers score test.npz --event within-top:2
    $ glayers score test.npz --model model.safetensors --fail-if "ks > 0.1"
    $ glayers score logits/ --json
    """
    conditions = [Condition.of(text) for text in fail_if or ()]
    name = f"{len(files):,} files" if len(files) > 1 else files[0].name
    if fail_if_shifted and model is None:
        raise typer.BadParameter("--fail-if-shifted needs --model, which remembers its calibration rows")
    needs_labels = model is None or bool(conditions) or fail_if_miscalibrated or intervals
    source = Source.of(files, reading, needs_labels=needs_labels, warn=model is None)
    contents = source.contents()
    if contents is not None and contents.has_several_labels:
        if conditions or fail_if_miscalibrated or fail_if_shifted or intervals or event != "top":
            raise typer.BadParameter("rows with several labels get scores of each label; leave the other options out")
        _score_labels(contents, name, model, as_json)
        return
    calibrator = None if model is None else arg.calibrator_of_classes(model)
    n_resamples = resamples if intervals else 0
    scores = _Scores(arg.event_of(event), level, n_resamples, seed, arg.progress_of(quiet))
    scores.add(source, contents, calibrator)
    if as_json:
        show_json(scores.numbers)
    else:
        _show(name, scores, every)
    arg.end_with(scores.failures(conditions, fail_if_miscalibrated, fail_if_shifted))


def _show(name: str, scores: _Scores, every: bool) -> None:
    show(title(name), *scores.sentences)
    if scores.cards:
        show("", _table(scores.cards, every))
    for version, found in scores.intervals.items():
        show("", title(version), *str(found).splitlines())


def _score_labels(contents: Contents, name: str, model: Path | None, as_json: bool) -> None:
    """Print the scores of each label, with a model before and after calibration."""
    from glayers.calibrators import load
    from glayers.cli.models import calibrated_labels

    cards = {name: _label_scores(contents)}
    if model is not None:
        calibrated = calibrated_labels(load(model), contents, logits=True)
        cards = {_UNCALIBRATED: cards[name], _CALIBRATED: _label_scores(calibrated)}
    if as_json:
        numbers = {version: card.to_dict() for version, card in cards.items()}
        show_json(numbers.get(name, numbers))
        return
    for version, card in cards.items():
        show(title(version), *str(card).splitlines())


def _label_scores(contents: Contents) -> LabelScorecards:
    labels = check_label_matrix(contents.labels, contents.scores.shape)
    make = Predictions if contents.inputs == "logits" else Predictions.from_probabilities
    cards = {}
    for number, name in enumerate(contents.class_names or range(labels.shape[1])):
        cards[str(name)] = label_scorecard(make(contents.scores[:, [number]], labels[:, number], contents.weights))
    return LabelScorecards(cards)


def _versions(calibrator: "Calibrator | None") -> dict[str, "Calibrator | None"]:
    """Return what to apply before rows are scored, by name."""
    if calibrator is None:
        return {_AS_THEY_ARE: None}
    return {_UNCALIBRATED: None, _CALIBRATED: calibrator}


def _prefix(name: str) -> str:
    """Return what stands before a sentence about one version of the rows."""
    return "" if name == _AS_THEY_ARE else f"{name}: "


def _table(cards: dict[str, Scorecard], every: bool) -> Any:
    """Return a table with a column per version."""
    cells = [["", *cards]]
    columns = []
    for card in cards.values():
        shown = [name for name in card if every or name in _SHOWN]
        columns.append(card.printed(shown))
    cells += [[label, *(column[label] for column in columns)] for label in columns[0]]
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
    from glayers.gap import rows_needed

    calibrator = arg.method_with_settings(method, settings, seed, progress=False)
    sample = arg.read_sample(calibration, reading, seed, quiet)
    calibrator.set_params(inputs=sample.inputs)
    options: dict[str, Any] = {"random_state": seed, "progress": arg.progress_of(quiet)}
    forecast = rows_needed(sample.rows, calibrator=calibrator, **options)
    show_record(forecast, as_json, f"{method} on {forecast.rows:,} rows from {calibration.name}")
