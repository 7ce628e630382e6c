"""`score`, `compare`, `report` and `demo`: how good predictions are, and calibrated ones; `rows`: what more rows bring.

A condition that holds, and a question that the rows cannot answer, end the program with status 3.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glayers.checks import check_class_names, check_label_matrix
from glayers.cli import arguments as arg
from glayers.cli.arguments import flag, run_facts, show, show_json, show_note, show_record, title
from glayers.datasets import load_fashion_mnist
from glayers.errors import BadFile, BadPredictions, GlayersError, listed
from glayers.files import errors_as_bad_file, open_regular
from glayers.metrics import METRICS, Event, Metric, Scorecard, StreamingScorecard, calibration_test, ks_test, top
from glayers.metrics import intervals as intervals_of
from glayers.metrics.scorecard import LabelScorecards, card_of, rows_to_score, score_labels
from glayers.predictions import Predictions
from glayers.predictions.contents import Contents, Reading, Rows
from glayers.predictions.source import CHUNK_ENTRIES, Source
from glayers.report.verdict import class_gaps, confidence_sentence, findings, ks_sentence, verdict
from glayers.text_tables import terminal_table

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator
    from glayers.comparison import Comparison

# What `score` prints: one number per question. --all adds the others.
_SHOWN = ("accuracy", "confidence", "nll", "brier", "ks", "ece")
_SHOWN_OF_CONFIDENCES = ("accuracy", "confidence", "confidence_nll", "confidence_brier", "ks", "ece")
_DEMO = "Fashion-MNIST sample (glayers demo)"
_MODEL = "A file from `glayers fit`: score before and after this calibration."
_MISCALIBRATED = "Exit with 3 unless the calibration test passes."
_SHIFTED = "Exit with 3 unless the rows look like the calibration rows of MODEL."
_ESTIMATE = "The output of `glayers estimate --json` for these rows: say how good this estimate was."
_TESTED_ROWS = 25_000  # of the random sample for tests
_AS_THEY_ARE = "all"
_UNCALIBRATED = "uncalibrated"
_CALIBRATED = "calibrated"
_PREFIXES = {_AS_THEY_ARE: "", _UNCALIBRATED: "uncalibrated: ", _CALIBRATED: "calibrated: "}  # of sentences
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt
}  # fmt: skip
_CONDITION = re.compile(r"\s*([A-Za-z0-9_]+)\s*(>=|<=|>|<)\s*([-+]?\d*\.?\d+(?:[eE][-+]?\d+)?\s*%?)\s*")


def condition_of(text: str, metrics: Mapping[str, Metric] = METRICS) -> tuple[str, str, float]:
    """Return the metric, the sign and the number that an option states; refuse a limit that no score can pass.

    >>> condition_of("KS > 2 %")
    ('ks', '>', 0.02)
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise typer.BadParameter(
            f"cannot read the condition {text!r}; write a metric, a sign and a number, such as 'ks > 0.02'"
        )
    name, sign, number = found.groups()
    limit = arg.number_of(number)
    metric = metrics[arg.known_name(name.lower(), metrics, "metric")]
    never = {">": metric.highest, "<": metric.lowest}.get(sign)
    if not metric.lowest <= limit <= metric.highest or limit == never:
        hint = ""
        if metric.unit == "percent" and 1 <= limit <= 100:  # most often a percent sign is missing
            hint = f"; did you mean '{metric.name} {sign} {limit:g} %'?"
        raise typer.BadParameter(
            f"{metric.name} is always between {metric.lowest:g} and {metric.highest:g}, so it cannot be compared "
            f"with {limit:g}{hint}"
        )
    return metric.name, sign, limit


def failures_of(conditions: Iterable[tuple[str, str, float]], scores: Mapping[str, float]) -> list[str]:
    """Return what is wrong, if anything is. A score that is not a number is wrong too."""
    failures = []
    for metric, sign, limit in conditions:
        if metric not in scores:
            raise BadPredictions(f"these rows have no {metric}; they have {listed(scores)}")
        value = scores[metric]
        if math.isnan(value) or _SIGNS[sign](value, limit):
            failures.append(f"{metric} = {value:.4g} {sign} {limit:g}")
    return failures


class _Scores:
    """What to ask about rows; and what was found: by version, scores and tests; numbers for programs; and sentences."""

    def __init__(self, metrics: Collection[str], event: Event, level: float, n_resamples: int, seed: int) -> None:
        self.metrics = metrics
        self.event = event
        self.level = level
        self.n_resamples = n_resamples  # 0 for no intervals
        self.seed = seed
        self.cards: dict[str, Scorecard] = {}
        self.tests: dict[str, Any] = {}
        self.intervals: dict[str, Any] = {}
        self.shift: Any = None
        self.numbers: dict[str, Any] = {}
        self.sentences: list[str] = []

    def add(self, source: Source, calibrator: "Calibrator | None") -> None:
        """Score and test the rows of one file or of many files."""
        versions: dict[str, Any] = {_AS_THEY_ARE: None}
        if calibrator is not None:
            versions = {_UNCALIBRATED: None, _CALIBRATED: calibrator}
        kind, rows, n_rows, sums = arg.collect(source, versions, _tested_rows, self.event, self.seed)
        if len(rows) < n_rows:
            self.numbers["tested_rows"] = len(rows)
            self.sentences.append(f"Tests and intervals of {len(rows):,} rows, drawn at random from {n_rows:,}:")
        for name, applied in versions.items():
            if kind["labels"]:
                after = rows if applied is None else applied.apply(rows)
                self._test(name, after, sums.get(name), {"calibrator": applied, "before": rows})
        if calibrator is not None:
            self._test_shift(rows, calibrator, kind["labels"])

    def _test(self, name: str, rows: Rows, sums: StreamingScorecard | None, fit: dict[str, Any]) -> None:
        """Test rows for calibration: by all tests, and by KS alone; levels near 1 need more draws."""
        if sums is None:
            card = card_of(rows_to_score(rows, event=self.event), self.metrics)
        else:
            card = sums.result(self.metrics)
        n_draws = None
        if self.level > 0.95:
            n_draws = math.ceil(round(4 / (1 - self.level), 6)) - 1
        event = None if self.event == top else self.event
        drawn: dict[str, Any] = {"n_resamples": n_draws, "random_state": self.seed}
        test = calibration_test(rows, event=event, level=self.level, **drawn, **fit)
        of_ks = ks_test(rows, event=self.event, level=self.level, n_resamples=max(1000, test.n_resamples))
        self.cards[name] = card
        self.tests[name] = test
        self.numbers[name] = {**card.to_dict(), "calibration_test": test.to_dict(), "ks_test": vars(of_ks)}
        sentences = [str(test), confidence_sentence(test, card)]
        if of_ks.rejected == ("ks" in test.rejecting):  # alone it may reject where the tests together do not
            sentences.append(ks_sentence(of_ks))
        self.sentences += [_PREFIXES[name] + sentence for sentence in sentences]
        if self.n_resamples:
            drawn["n_resamples"] = self.n_resamples
            self.intervals[name] = intervals_of(rows, event=self.event, level=0.95, **drawn)
            self.numbers[name]["intervals"] = self.intervals[name].to_dict()

    def _test_shift(self, rows: Rows, calibrator: "Calibrator", labelled: bool) -> None:
        """Compare rows with those that a calibrator was fitted on; labels, if there are any, are compared too."""
        from glayers.shift import shift_test

        values: Any = rows
        groups = None
        if not labelled:
            values = arg.inputs_of(calibrator, rows)
            groups = rows.groups
        self.shift = shift_test(calibrator, values, groups=groups, level=self.level)
        self.numbers["shift"] = self.shift.to_dict()
        self.sentences.append(str(self.shift))

    def compare(self, estimate: Path) -> None:
        """Say how good an estimate was that was made before the labels were known."""
        from glayers.decisions.estimate import Range

        with errors_as_bad_file(estimate), open_regular(estimate) as stream:
            estimated = json.load(stream)
            try:
                ranges = {name: Range(**estimated[name]) for name in ("accuracy", "auroc")}
                list(map(str, ranges.values()))
            except (KeyError, TypeError, ValueError) as error:
                raise BadFile("is not what `glayers estimate --json` writes") from error
        *_, observed = self.cards.values()
        for name, found in ranges.items():
            self.sentences.append(f"{METRICS[name].label}: {found.against(observed[name])}")
        self.numbers["estimated"] = {name: vars(found) for name, found in ranges.items()}

    def failures(self, conditions: list[Any], miscalibrated: bool, shifted: bool) -> Iterator[str]:
        """Yield what is wrong with the rows, calibrated if there is a model."""
        for name, card in self.cards.items():
            if name == _UNCALIBRATED:
                continue
            for failure in failures_of(conditions, card):
                yield _PREFIXES[name] + failure
            if miscalibrated and not self.tests[name].verdict.startswith(("calibrated", "as calibrated")):
                yield f"{_PREFIXES[name]}{self.tests[name]}"
        if shifted and (self.shift.shifted or math.isnan(self.shift.p_value)):
            yield str(self.shift)


def _tested_rows(n_classes: int) -> int:
    """Return how many rows of many are tested: they have to fit into memory."""
    return min(_TESTED_ROWS, CHUNK_ENTRIES // n_classes)


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
    estimate: Annotated[Path | None, arg.file_option("ESTIMATE", _ESTIMATE)] = None,
    prometheus: arg.Prometheus = None,
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
) -> None:
    """Print accuracy, proper scores and calibration errors of saved predictions, and test them for calibration.

    Instead of predictions and labels, a file may have the columns confidence and correct. With --model, scores are
    shown before and after calibration, --fail-if is about the calibrated predictions, and the rows are compared with
    those that the model was fitted on. Without labels, there is only this comparison. If labels are a matrix of 0 and
    1, each label is scored.

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
    conditions = [condition_of(text) for text in fail_if or ()]
    name = f"{len(files):,} files" if len(files) > 1 else files[0].name
    if fail_if_shifted and model is None:
        raise typer.BadParameter("--fail-if-shifted needs --model, which remembers its calibration rows")
    if estimate is not None and (model is None or event != "top"):
        raise typer.BadParameter("--estimate is about what a model answers: give --model, and leave --event out")
    needs_labels = model is None or bool(conditions) or fail_if_miscalibrated or intervals or estimate is not None
    source = Source.of(files, reading, needs_labels=needs_labels, warn=model is None)
    if source.contents is not None and source.contents.has_several_labels:
        asked = [*conditions, fail_if_miscalibrated, fail_if_shifted, intervals, event != "top", estimate, prometheus]
        if any(asked):
            raise typer.BadParameter("rows with several labels get scores of each label; leave the other options out")
        _score_labels(source.contents, name, model, as_json)
        return
    calibrator = None if model is None else arg.calibrator_of_classes(model)
    n_resamples = resamples if intervals else 0
    asks_for_others = every or conditions or as_json or estimate is not None or prometheus is not None
    metrics = METRICS if asks_for_others else {*_SHOWN, *_SHOWN_OF_CONFIDENCES}
    scores = _Scores(metrics, arg.event_of(event), level, n_resamples, seed)
    scores.add(source, calibrator)
    if estimate is not None:
        scores.compare(estimate)
    failed = list(scores.failures(conditions, fail_if_miscalibrated, fail_if_shifted))
    by_metric: dict[str, dict[str, float]] = {"failed": {"conditions": len(failed)}}
    for version, card in scores.cards.items():
        for metric, value in card.items():
            by_metric.setdefault(metric, {})[version] = value
    arg.write_prometheus(prometheus, by_metric, "score")  # first: an error prints JSON of its own
    if as_json:
        verdicts = [test.verdict for test in scores.tests.values()]
        facts = {"verdict": verdicts[-1] if verdicts else None, "conditions": fail_if or [], "failed": failed}
        show_json({**scores.numbers, **facts, **run_facts(files=files, model=model)})
    else:
        show(title(name), *scores.sentences)
        if scores.cards:
            show("", _table(scores.cards, every))
        for version, found in scores.intervals.items():
            show("", title(version), *str(found).splitlines())
    arg.end_with(failed)


def _score_labels(contents: Contents, name: str, model: Path | None, as_json: bool) -> None:
    """Print the scores of each label, with a model before and after calibration."""
    from glayers.calibrators import load
    from glayers.cli.models import calibrated_labels

    cards = {name: _label_scores(contents)}
    if model is not None:
        calibrated = calibrated_labels(load(model), contents)
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
    columns = [make(contents.scores[:, [c]], labels[:, c], contents.weights) for c in range(labels.shape[1])]
    return score_labels(columns, check_class_names(contents.class_names, len(columns)))


def _table(cards: dict[str, Scorecard], every: bool) -> Any:
    """Return a table with a column per version."""
    shown: Collection[str] = _SHOWN
    if "nll" not in next(iter(cards.values())):
        shown = _SHOWN_OF_CONFIDENCES
    if every:
        shown = METRICS
    columns = [card.printed([name for name in card if name in shown]) for card in cards.values()]
    lines = [[label, *(column[label] for column in columns)] for label in columns[0]]
    return terminal_table([["", *cards], *lines])


def rows(
    calibration: arg.Calibration,
    method: arg.Method = "auto",
    settings: arg.Settings = None,
    reading: Reading = arg.READING,
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
) -> None:
    """Estimate what more labelled rows would bring, from the held-out and training loss of those given.

    It fits the method six times. The intervals say how far the NLL of new rows would fall with twice and with four
    times the rows.

    Examples
    --------
    $ glayers rows calibration.npz --method temperature
    $ glayers rows calibration.npz -m vector --set strength=0.1 --json
    """
    from glayers.gap import rows_needed

    calibrator = arg.method_with_settings(method, settings, random_state=seed, progress=False)
    sample, inputs = arg.read_sample(Source.of([calibration], reading), seed)
    forecast = rows_needed(sample, calibrator=calibrator.set_params(inputs=inputs), random_state=seed)
    show_record(forecast, as_json, f"{method} on {forecast.rows:,} rows from {calibration.name}")


def compare(
    calibration: arg.Calibration,
    test: arg.Test,
    methods: arg.Methods = None,
    differences: Annotated[bool, flag("--differences", text="Add differences of methods with intervals.")] = False,
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
) -> None:
    """Fit several methods on calibration rows; score them and the uncalibrated model on test rows.

    Examples
    --------
    $ glayers compare calibration.npz test.npz
    $ glayers compare calibration.csv test.csv --methods temperature,vector
    """
    comparison, learned = _compared(calibration, test, methods, seed)
    between = comparison.differences(random_state=seed) if differences else None
    if as_json:
        numbers: dict[str, Any] = {
            "methods": comparison.to_dict(),
            "calibration_tests": {method: found.to_dict() for method, found in comparison.calibration_tests.items()},
            "notes": comparison.remarks(),
            "failed": comparison.failed,
            "findings": [finding._asdict() for finding in findings(comparison, learned)],
        }
        if between is not None:
            numbers["differences"] = between.to_dicts()
        show_json(numbers)
        return
    _show_comparison(comparison, learned, test.name)
    if between is not None:
        show("", *str(between).splitlines())


def report(
    calibration: arg.Calibration,
    test: arg.Test,
    output: arg.Page = Path("report.html"),
    methods: arg.Methods = None,
    seed: arg.Seed = 0,
    force: arg.Force = False,
) -> None:
    """Compare methods and write the HTML report: one file with a summary, tables and interactive figures.

    Examples
    --------
    $ glayers report calibration.npz test.npz
    $ glayers report calibration.npz test.npz -o both.html --methods vector
    """
    arg.check_output(output, force, calibration, test)
    comparison, learned = _compared(calibration, test, methods, seed)
    _write_page(comparison, learned, test.name, output, force)


def demo(output: arg.Page = Path("report.html"), seed: arg.Seed = 0, force: arg.Force = False) -> None:
    """Compare seven methods (five without torch) on the sample data of the package, and write a report.

    Examples
    --------
    $ glayers demo
    $ glayers demo --output first-look.html
    """
    arg.check_output(output, force)
    calibration, test = load_fashion_mnist()
    comparison = _fitted(calibration, test, None, "logits", seed)
    _write_page(comparison, calibration, _DEMO, output.resolve(), force)


def _compared(calibration: Path, test: Path, methods: str | None, seed: int) -> tuple["Comparison", Rows]:
    """Read two files, and compare methods; return also the rows that they were fitted on."""
    names = arg.method_names(methods)
    learned, inputs = arg.read_sample(Source.of([calibration], Reading()), seed)
    tested, _ = arg.read_sample(Source.of([test], Reading()), seed)
    return _fitted(learned, tested, names, inputs, seed), learned


def _fitted(calibration: Rows, test: Rows, methods: list[str] | None, inputs: str, seed: int) -> "Comparison":
    from glayers.comparison import compare as compare_methods

    found = compare_methods(calibration, test, methods, inputs=inputs, random_state=seed)
    if not found.calibrators:
        reasons = "; ".join(f"{method}: {why}" for method, why in found.failed.items())
        raise GlayersError(f"no method could be fitted; {reasons}")
    return found


def _show_comparison(comparison: "Comparison", learned: Rows, name: str) -> None:
    """Print a table, what the tests found, and problems."""
    from glayers.comparison import STARRED  # on first use: it imports every calibrator

    n_scored = next(iter(comparison.scorecards.values())).rows  # on a cluster, more than `test` holds
    show(title(f"{name}: fitted on {len(learned):,} rows, scored on {n_scored:,}"))
    show(terminal_table(comparison.cells(), STARRED), "")
    for method, test in comparison.calibration_tests.items():
        card = comparison.scorecards[method]
        show(f"{method}: {test}", f"{method}: {confidence_sentence(test, card)}")
        said = verdict(test, card, class_gaps(comparison.rows(method)))
        if said.sentence != test.finding and not test.rejected:  # single classes are off
            show(f"{method}: {said.sentence}")
    for finding in findings(comparison, learned):
        show(f"attention: {finding.subject}: {finding.found}. {finding.advice}.")
    for line in comparison.remarks():
        show_note(f"note: {line}")


def _write_page(comparison: "Comparison", learned: Rows, name: str, output: Path, force: bool) -> None:
    """Print the comparison, and write its page."""
    _show_comparison(comparison, learned, name)
    seed = comparison.random_state
    comparison.to_html(output, calibration=learned, title=name, force=force, random_state=seed)
    show("", f"wrote {output}: open it in a browser")
