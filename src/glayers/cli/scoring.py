"""`score`, `compare`, `report` and `demo`: how good predictions are, and calibrated ones; `rows`: what more rows bring.

A condition that holds, and a question that the rows cannot answer, end the program with status 3.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from glayers.cli import arguments as arg
from glayers.cli.arguments import flag, run_facts, show, show_json, show_note, show_record, title
from glayers.datasets import load_fashion_mnist
from glayers.errors import BadFile, BadPredictions, GlayersError, listed
from glayers.files import errors_as_bad_file, open_regular
from glayers.metrics import (
    METRICS,
    Event,
    Metric,
    OmnibusTest,
    Scorecard,
    StreamingScorecard,
    calibration_test,
    top,
)
from glayers.metrics import intervals as intervals_of
from glayers.metrics.scorecard import card_of, rows_to_score, scorecard
from glayers.metrics.several_labels import label_scorecards, label_tests
from glayers.predictions import MultiLabelPredictions
from glayers.predictions.contents import Reading, Rows
from glayers.predictions.source import CHUNK_ENTRIES, Source
from glayers.report.curves import PredictedGaps
from glayers.report.verdict import class_gaps, findings, ks_sentence, verdict
from glayers.text_tables import aligned_table, p_text, plural

if TYPE_CHECKING:
    from glayers.comparison import Comparison

# What `score` prints: one number per question. --all adds the others.
_SHOWN = ("accuracy", "confidence", "nll", "brier", "ks", "ece")
_SHOWN_OF_CONFIDENCES = ("accuracy", "confidence", "confidence_nll", "confidence_brier", "ks", "ece")
_DEMO = "Fashion-MNIST sample (glayers demo)"
_RESAMPLES = "Number of bootstrap resamples (default 1000); implies --intervals."
_MODEL = "A file from `glayers fit`: score before and after this calibration."
_MISCALIBRATED = "Exit with status 3 unless the calibration test passes."
_SHIFTED = "Exit with status 3 unless the rows look like the calibration rows of MODEL."
_ESTIMATE = "The output of `glayers estimate --json` for these rows: say how good this estimate was."
_TESTED_ROWS = 25_000  # of the random sample for tests
_AS_THEY_ARE = "all"
_UNCALIBRATED = "uncalibrated"
_CALIBRATED = "calibrated"
_LABELS_OFF = "some labels are not calibrated"
_COLOURS = {"good": "bold green", "fair": "bold yellow", "bad": "bold red"}  # of verdicts
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


@dataclass(frozen=True)
class _Asked:
    """What to ask about rows; n_resamples = 0 asks for no intervals."""

    metrics: Collection[str]
    event: Event
    level: float
    n_resamples: int
    seed: int


@dataclass(frozen=True)
class _Found:
    """What was found about one version of the rows, such as calibrated: for programs, and for people."""

    card: Scorecard
    test: OmnibusTest
    verdict: str  # of several labels, that of the worst
    numbers: dict[str, Any]
    sentences: list[str | Text]
    tables: dict[str, Any]  # by heading


def _found(name: str, rows: Rows, sums: StreamingScorecard | None, asked: _Asked, **fit: Any) -> _Found:
    """Score rows and test them for calibration; `sums` are scores of more rows than these."""
    checked = rows_to_score(rows, event=asked.event)
    card = card_of(checked, asked.metrics) if sums is None else sums.result(asked.metrics)
    event = None if asked.event == top else asked.event
    test = calibration_test(rows, event=event, level=asked.level, random_state=asked.seed, **fit)
    of_ks = test.tests["ks"]
    numbers = {**card.to_dict(), "calibration_test": test.to_dict(), "ks_test": vars(of_ks)}
    sentences = _verdict_lines(_prefix(name), test, card, class_gaps(checked))
    if of_ks.rejected == ("ks" in test.rejecting):  # alone it may reject where the tests together do not
        sentences.append(_prefix(name) + ks_sentence(of_ks))
    tables: dict[str, Any] = {}
    verdict_of_all: str = test.verdict
    if isinstance(rows, MultiLabelPredictions):
        cards = tables[f"labels: {name}"] = label_scorecards(rows)
        tests = label_tests(rows, level=asked.level, random_state=asked.seed)
        numbers["labels"] = cards.to_dict()
        numbers["label_tests"] = {label: test.to_dict() for label, test in tests.items()}
        wrong = [f"{label} ({p_text(test.p_value)})" for label, test in tests.items() if test.rejected]
        if wrong:
            verdict_of_all = "not calibrated"
        count = f"{len(wrong)} of {plural(len(tests), 'label')} not calibrated"
        sentences.append(_prefix(name) + ": ".join([count, *filter(None, [", ".join(wrong)])]))
    if asked.n_resamples:
        found = intervals_of(rows, event=asked.event, n_resamples=asked.n_resamples, random_state=asked.seed)
        tables[name] = found
        numbers["intervals"] = found.to_dict()
    return _Found(card, test, verdict_of_all, numbers, sentences, tables)


@dataclass(frozen=True)
class _Scores:
    """What was found about the rows of one file or of many, for programs and for people."""

    versions: dict[str, _Found]  # the last one is calibrated, if there is a model
    shift: Any
    numbers: dict[str, Any]
    sentences: list[str | Text]

    @classmethod
    def of(cls, source: Source, model: Path | None, asked: _Asked) -> "_Scores":
        """Score and test rows, before and after calibration if there is a model; compare them with those of the fit."""
        calibrator: Any = None
        versions: dict[str, Callable[[Rows], Rows]] = {_AS_THEY_ARE: _unchanged}
        if model is not None:
            calibrator = arg.calibrator_of_rows(model, source.contents)
            reading, last = needed_groups(calibrator, source.reading)
            source = replace(source, reading=reading)
            versions = {_UNCALIBRATED: last, _CALIBRATED: lambda rows: last(calibrator.apply(rows))}
        kind, rows, n_rows, sums = arg.collect(source, versions, _tested_rows, asked.event, asked.seed)
        scores = cls({}, None, {}, [])
        if len(rows) < n_rows:
            scores.numbers["tested_rows"] = len(rows)
            tested = plural(len(rows), "row")
            scores.sentences.append(f"Tests and intervals of {tested}, drawn at random from {n_rows:,}:")
        for name, version in versions.items() if kind["labels"] else ():
            fit = {"calibrator": calibrator, "before": rows} if name == _CALIBRATED else {}
            found = _found(name, version(rows), sums.get(name), asked, **fit)
            scores.versions[name] = found
            scores.numbers[name] = found.numbers
            scores.sentences.extend(found.sentences)
        if calibrator is None:
            return scores
        shift = _shift(last(rows), calibrator, kind["labels"], asked.level)
        scores.numbers["shift"] = shift.to_dict()
        scores.sentences.append(str(shift))
        return replace(scores, shift=shift)

    def show(self, more: Iterable[str], every: bool) -> None:
        """Print sentences and tables."""
        show(*self.sentences, *more)
        if self.versions:
            show("", *_table({name: found.card for name, found in self.versions.items()}, every))
        for found in self.versions.values():
            for heading, table in found.tables.items():
                show("", title(heading), *str(table).splitlines())

    def failures(self, conditions: list[Any], miscalibrated: bool, shifted: bool) -> Iterator[str]:
        """Yield what is wrong with the rows, calibrated if there is a model."""
        for name, found in list(self.versions.items())[-1:]:
            for failure in failures_of(conditions, found.card):
                yield _prefix(name) + failure
            if miscalibrated and not found.verdict.startswith(("calibrated", "as calibrated")):
                yield _prefix(name) + (str(found.test) if found.verdict == found.test.verdict else _LABELS_OFF)
        if shifted and (self.shift.shifted or math.isnan(self.shift.p_value)):
            yield str(self.shift)


def _unchanged(rows: Rows) -> Rows:
    return rows


def needed_groups(calibrator: Any, reading: Reading) -> tuple[Reading, Callable[[Rows], Rows]]:
    """Return how to read rows for a calibrator, and what becomes of them after it.

    One that was fitted by group needs the groups that are ignored afterwards.
    """
    if hasattr(calibrator, "common_") and reading.ignore_groups:
        return replace(reading, ignore_groups=False), _without_groups
    return reading, _unchanged


def _without_groups(rows: Rows) -> Rows:
    """Return rows as independent ones, whose groups only say which correction they get."""
    return rows._trusted(**vars(rows) | {"groups": None})


def _shift(rows: Rows, calibrator: Any, labelled: bool, level: float) -> Any:
    """Compare rows with those that a calibrator was fitted on; labels, if there are any, are compared too."""
    from glayers.shift import shift_test

    calibrator = getattr(calibrator, "common_", calibrator)  # of a calibrator by group
    if labelled:
        return shift_test(calibrator, rows, level=level)
    return shift_test(calibrator, arg.inputs_of(calibrator, rows), groups=rows.groups, level=level)


def _estimated(path: Path) -> dict[str, Any]:
    """Return what was estimated before the labels were known."""
    from glayers.decisions.estimate import Range

    with errors_as_bad_file(path), open_regular(path) as stream:
        estimated = json.load(stream)
        if isinstance(estimated, dict) and "error" in estimated:
            raise BadFile(f"holds no estimate, because `glayers estimate` ended with an error: {estimated['error']}")
        try:
            ranges = {name: Range(**estimated[name]) for name in ("accuracy", "auroc")}
            list(map(str, ranges.values()))
        except (KeyError, TypeError, ValueError) as error:
            raise BadFile("is not what `glayers estimate --json` writes") from error
    return ranges


def _prefix(version: str) -> str:
    """Return what begins the sentences about a version of the rows."""
    return "" if version == _AS_THEY_ARE else f"{version}: "


def _verdict_lines(prefix: str, test: OmnibusTest, card: Scorecard, gaps: PredictedGaps | None) -> list[str | Text]:
    """Return the verdict in its colour, and what the tests found if they say more."""
    said = verdict(test, card, gaps)
    if said.sentence == test.finding:
        return [title(f"{prefix}{test}", _COLOURS[said.tone])]
    return [title(prefix + said.sentence, _COLOURS[said.tone]), f"{prefix}{test}"]


def _tested_rows(n_classes: int) -> int:
    """Return how many rows of many are tested: they have to fit into memory."""
    return min(_TESTED_ROWS, CHUNK_ENTRIES // n_classes)


def score(
    files: Annotated[list[Path], arg.file_argument("FILE...", f"{arg.PREDICTIONS} {arg.MANY}")],
    model: Annotated[Path | None, arg.file_option("MODEL", _MODEL)] = None,
    reading: Reading = arg.READING,
    event: arg.EventName = "top",
    intervals: Annotated[bool, flag("--intervals", text="Add 95 % bootstrap intervals; takes a while.")] = False,
    resamples: Annotated[int | None, typer.Option(metavar="N", min=2, help=_RESAMPLES)] = None,
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
    1, all pairs of a row and a label are scored together, and each label by itself.

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
    n_resamples = resamples or (1000 if intervals else 0)
    name = f"{len(files):,} files" if len(files) > 1 else files[0].name
    if fail_if_shifted and model is None:
        raise typer.BadParameter("--fail-if-shifted needs --model, which remembers its calibration rows")
    if estimate is not None and (model is None or event != "top"):
        raise typer.BadParameter("--estimate is about what a model answers: give --model, and leave --event out")
    needs_labels = model is None or bool(conditions) or fail_if_miscalibrated or n_resamples > 0 or estimate is not None
    if files[0].suffix == ".safetensors":
        raise typer.BadParameter("this is a calibrator, not predictions: glayers score FILE --model model.safetensors")
    source = Source.of(files, reading, needs_labels=needs_labels, warn=model is None)
    asks_for_others = every or conditions or as_json or estimate is not None or prometheus is not None
    metrics = METRICS if asks_for_others else {*_SHOWN, *_SHOWN_OF_CONFIDENCES}
    scores = _Scores.of(source, model, _Asked(metrics, arg.event_of(event), level, n_resamples, seed))
    estimated = {} if estimate is None else _estimated(estimate)
    failed = list(scores.failures(conditions, fail_if_miscalibrated, fail_if_shifted))
    cards = {version: found.card for version, found in scores.versions.items()}
    numbers: dict[str, Any] = {"failed": {"conditions": len(failed)}}
    for metric in metrics:
        numbers[metric] = {version: card[metric] for version, card in cards.items() if metric in card}
    arg.write_prometheus(prometheus, numbers, "score")  # first: an error prints JSON of its own
    if as_json:
        verdicts = [None, *(found.verdict for found in scores.versions.values())]
        facts: dict[str, Any] = {"verdict": verdicts[-1], "conditions": fail_if or [], "failed": failed}
        if estimate is not None:
            facts["estimated"] = {metric: vars(found) for metric, found in estimated.items()}
        show_json({**scores.numbers, **facts, **run_facts(files=files, model=model)})
    else:
        show(title(name))
        against = {metric: found.against(cards[_CALIBRATED][metric]) for metric, found in estimated.items()}
        scores.show([f"{METRICS[metric].label}: {text}" for metric, text in against.items()], every)
    arg.end_with(failed)


def _table(cards: dict[str, Scorecard], every: bool) -> list[str]:
    """Return the lines of a table with a column per version."""
    shown: Collection[str] = METRICS
    if not every:
        shown = _SHOWN if "nll" in next(iter(cards.values())) else _SHOWN_OF_CONFIDENCES
    columns = [card.printed([name for name in card if name in shown]) for card in cards.values()]
    lines = [[label, *(column[label] for column in columns)] for label in columns[0]]
    return aligned_table([["", *cards], *lines]).splitlines()


def rows(
    calibration: arg.Calibration,
    method: arg.Method = "auto",
    settings: arg.Settings = None,
    reading: Reading = arg.READING,
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
) -> None:
    """Estimate how far the NLL of new rows would fall with twice and with four times as many labelled rows.

    The estimate compares the held-out and the training loss of the rows given, for which it fits the method six times.

    Examples
    --------
    $ glayers rows calibration.npz --method temperature
    $ glayers rows calibration.npz -m vector --set strength=0.1 --json
    """
    from glayers.gap import rows_needed

    calibrator = arg.method_with_settings(method, settings, random_state=seed, progress=False)
    sample, inputs = arg.read_sample(Source.of([calibration], reading), seed)
    forecast = rows_needed(sample, calibrator=calibrator.set_params(inputs=inputs), random_state=seed)
    show_record(forecast, as_json, f"{method} on {plural(forecast.rows, 'row')} from {calibration.name}")


def compare(
    calibration: arg.Calibration,
    test: arg.Test,
    methods: arg.Methods = None,
    reading: Reading = arg.READING,
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
    comparison, learned = _compared(calibration, test, methods, reading, seed)
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
        numbers["recommended"] = comparison.recommended
        numbers["verdict"] = comparison.calibration_tests[comparison.recommended].verdict
        show_json(numbers | run_facts(calibration=calibration, test=test))
        return
    _show_comparison(comparison, learned, test.name)
    if between is not None:
        show("", *str(between).splitlines())


def report(
    calibration: Annotated[Path, arg.file_argument("CAL", f"Rows to fit on; alone, rows to test. {arg.PREDICTIONS}")],
    test: Annotated[Path | None, arg.file_argument("[TEST]", "Rows to score, which were not fitted on.")] = None,
    output: arg.Page = Path("report.html"),
    methods: arg.Methods = None,
    reading: Reading = arg.READING,
    seed: arg.Seed = 0,
    force: arg.Force = False,
) -> None:
    """Compare methods and write the HTML report: one file with a summary, tables and interactive figures.

    Of one file, the report says whether the model is calibrated, and nothing is fitted.

    Examples
    --------
    $ glayers report calibration.npz test.npz
    $ glayers report test.npz -o audit.html
    $ glayers report calibration.npz test.npz -o both.html --methods vector
    """
    arg.check_output(output, force, calibration, test, reading.labels)
    comparison, learned = _compared(calibration, test, methods, reading, seed)
    _write_page(comparison, learned, (test or calibration).name, output, force)


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


def _compared(
    calibration: Path, test: Path | None, methods: str | None, reading: Reading, seed: int
) -> tuple["Comparison", Rows | None]:
    """Read two files, and compare methods; return also the rows that they were fitted on. Of one file, fit nothing."""
    from glayers.comparison import UNCALIBRATED, Comparison

    names = arg.method_names(methods)
    learned, inputs = arg.read_sample(Source.of([calibration], reading), seed)
    if test is None:
        return Comparison(learned, {}, {UNCALIBRATED: scorecard(learned)}, {}, seed), None
    if reading.labels is not None:
        raise typer.BadParameter("--labels is for one .npy file; put logits and labels of each set into an .npz file")
    tested, _ = arg.read_sample(Source.of([test], reading), seed)
    return _fitted(learned, tested, names, inputs, seed), learned


def _fitted(calibration: Rows, test: Rows, methods: list[str] | None, inputs: str, seed: int) -> "Comparison":
    from glayers.comparison import compare as compare_methods

    found = compare_methods(calibration, test, methods, inputs=inputs, random_state=seed)
    if not found.calibrators:
        reasons = "; ".join(f"{method}: {why}" for method, why in found.failed.items())
        raise GlayersError(f"no method could be fitted; {reasons}")
    return found


def _show_comparison(comparison: "Comparison", learned: Rows | None, name: str) -> None:
    """Print a table, what the tests found, and problems."""
    from glayers.comparison import STARRED  # on first use: it imports every calibrator

    cells = comparison.cells()  # its progress bar ends before anything is printed
    n_scored = next(iter(comparison.scorecards.values())).rows  # on a cluster, more than `test` holds
    fitted = "" if learned is None else f"fitted on {plural(len(learned), 'row')}, "
    show(title(f"{name}: {fitted}scored on {n_scored:,}"))
    for method, test in comparison.calibration_tests.items():
        gaps = class_gaps(comparison.rows(method))
        show(*_verdict_lines(f"{method}: ", test, comparison.scorecards[method], gaps))
    starred = [STARRED] if comparison.best else []
    show("", *aligned_table(cells).splitlines(), *starred, "")
    for finding in findings(comparison, learned):
        show(f"attention: {finding.subject}: {finding.found}. {finding.advice}".strip())
    for line in comparison.remarks():
        show_note(f"note: {line}")


def _write_page(comparison: "Comparison", learned: Rows | None, name: str, output: Path, force: bool) -> None:
    """Print the comparison, and write its page."""
    _show_comparison(comparison, learned, name)
    seed = comparison.random_state
    comparison.to_html(output, calibration=learned, title=name, force=force, random_state=seed)
    show(f"wrote {output}: open it in a browser")
