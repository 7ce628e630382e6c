"""`score`: every metric of saved predictions, with tests, intervals and conditions; `rows`: what more rows bring."""

from pathlib import Path
from typing import Annotated, Any

import typer

from glayers.cli import arguments as arg
from glayers.cli import many_files, monitoring, multi_label
from glayers.cli.many_files import Scores, Settings
from glayers.cli.runtime import flag, show, show_json, suitable_threads, title, verb
from glayers.errors import BadPredictions
from glayers.metrics import intervals as intervals_of
from glayers.metrics import scorecard, top
from glayers.predictions.formats import read_contents
from glayers.report import tables


@verb
def score(
    files: Annotated[list[Path], arg.file_argument("FILE...", f"{arg.PREDICTIONS} {arg.MANY}")],
    model: monitoring.Model = None,
    labels: arg.Labels = None,
    part: arg.Part = None,
    probabilities: arg.Probabilities = False,
    columns: arg.Columns = None,
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
    chosen, shown = arg.event_of(event), False if quiet else None
    conditions = [monitoring.Condition.of(each) for each in fail_if or ()]
    many, file = dask is not None or many_files.is_large(files), files[0]
    name = f"{len(files):,} files" if len(files) > 1 else arg.name_of(file)
    if several_labels:
        if model or conditions or fail_if_miscalibrated or fail_if_shifted or intervals or chosen != top or many:
            raise typer.BadParameter(
                "--several-labels prints the scores of each label of one file; leave the other options out"
            )
        wanted = arg.only_or("test", arg.read_wanted(read_contents, file, labels, part, probabilities, columns))
        multi_label.show_label_scores(name, wanted, as_json)
        return
    if fail_if_shifted and model is None:
        raise typer.BadParameter("--fail-if-shifted needs --model, which remembers its calibration rows")
    settings = Settings(chosen, resamples if intervals else 0, level, seed, shown, dask)
    reading = (labels, part, probabilities, columns)
    found = many_files.score_files(files, model, reading, settings) if many else _score(file, model, reading, settings)
    if not found.cards and (conditions or fail_if_miscalibrated or intervals):
        raise BadPredictions(
            "these rows have no labels, so they cannot be scored, only tested for shift: leave out --fail-if, "
            "--fail-if-miscalibrated and --intervals"
        )
    if as_json:
        all_found = {n: {**card.to_dict(), **_details(found, n)} for n, card in found.cards.items()}
        shifts = {monitoring.joined(n, "shift"): each.to_dict() for n, each in found.shifts.items()}
        show_json(all_found | shifts | ({} if found.tested_rows is None else {"tested_rows": found.tested_rows}))
    else:
        _show(found, name)
    cards = found.cards
    judged = [name for name in cards if not name.endswith(monitoring.UNCALIBRATED)]
    failures = [(name, each.failure(cards[name])) for name in judged for each in conditions]
    if fail_if_miscalibrated:
        failures += [(name, monitoring.test_failure(found.answers[name])) for name in judged]
    if fail_if_shifted:
        failures += [(name, monitoring.shift_failure(each)) for name, each in found.shifts.items()]
    monitoring.end_with(f"{monitoring.before(name)}{why}" for name, why in failures if why is not None)


def _score(file: Path, model: Path | None, reading: many_files.Reading, settings: Settings) -> Scores:
    """Score the rows of one file in memory."""
    scored, shifts = monitoring.rows_to_score(file, model, reading, settings.level)
    found = Scores(shifts=shifts)
    for name, each in scored.items():
        found.cards[name] = scorecard(each, event=settings.event)
        found.test(name, each, settings)
        if settings.n_resamples:
            how: dict[str, Any] = {"random_state": settings.seed, "progress": settings.shown}
            found.intervals[name] = intervals_of(
                each, event=settings.event, n_resamples=settings.n_resamples, level=0.95, **how
            )
    return found


def _details(found: Scores, name: str) -> dict[str, Any]:
    tests = {"calibration_test": found.answers[name].to_dict(), "ks_test": vars(found.ks_tests[name])}
    ends = {"intervals": found.intervals[name].to_dict()} if name in found.intervals else {}
    return tests | ends | ({"error_bounds": found.bounds[name]} if name in found.bounds else {})


def _show(found: Scores, name: str) -> None:
    show(title(name))
    if found.cards:
        shown_cards = [tables.interval_table(each, name) for name, each in found.intervals.items()]
        show(*(shown_cards or [tables.score_table(found.cards)]), "")
    for bounds in found.bounds.values():
        largest = max((bounds[name] for name in bounds if name.endswith("ks")), default=0.0)
        if largest:
            show(f"KS errors are at most {100 * largest:.2g} points off: scores were sorted into narrow cells.")
    if found.tested_rows is not None:
        show(f"Tests of {found.tested_rows:,} rows, drawn at random from {found.n_rows:,}:")
    for name, card in found.cards.items():
        answers = (str(found.answers[name]), tables.ks_test_sentence(found.ks_tests[name]))
        sentences = (answers[0], tables.confidence_sentence(card), answers[1])
        show(*(f"{monitoring.before(name)}{sentence}" for sentence in sentences))
    for name, each in found.shifts.items():
        show(f"{monitoring.before(name)}{each}")


@verb
def rows(
    calibration: arg.Calibration,
    method: arg.Method = "auto",
    settings: arg.Settings = None,
    labels: arg.Labels = None,
    part: arg.Part = None,
    probabilities: arg.Probabilities = False,
    columns: arg.Columns = None,
    level: Annotated[float, typer.Option(metavar="P", min=0.5, max=0.9999, help="Probability of the intervals.")] = 0.9,
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Estimate what more labelled rows would bring, from fits on eighths, quarters and halves of these.

    It fits the method 14 times. The intervals say how far the NLL of new rows would fall with twice and with four times
    the rows.

    Examples
    --------
    $ glayers rows calibration.npz --method temperature
    $ glayers rows calibration.npz -m vector --set strength=0.1 --json
    """
    from glayers.calibrators import METHODS
    from glayers.comparison import unfitted
    from glayers.learning_curve import rows_needed

    arg.known_name(method, METHODS, "method", "glayers methods")
    calibrator = unfitted(method, random_state=seed, progress=False)
    chosen = arg.settings_of(settings, calibrator.get_params(False))
    given, inputs = many_files.read_to_learn(calibration, labels, part, probabilities, columns, seed, quiet)
    calibrator.set_params(**{"inputs": inputs, **chosen})
    with suitable_threads([method], given):
        found = rows_needed(
            given, calibrator=calibrator, level=level, random_state=seed, progress=False if quiet else None
        )
    if as_json:
        show_json({**found.to_dict(), "method": method})
    else:
        show(title(f"{method} on {found.rows:,} rows from {arg.name_of(calibration)}"), *str(found).splitlines())
