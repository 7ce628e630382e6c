"""`score`: predictions with labels -> every metric, its uncertainty, and a verdict in a sentence."""

from typing import Annotated, Any

import typer

from glayers.cli.arguments import AsJson, Labels, Part, Predicted, Quiet, Seed, name_of, source
from glayers.cli.runtime import FLAG, show, show_json, title, verb
from glayers.metrics.old import Intervals, Scorecard, intervals_from_logits, ks_test
from glayers.metrics.old.scorecard import score_checked_logits
from glayers.metrics.old.verdicts import CalibrationTest
from glayers.predictions import Predictions, read_parts, read_predictions
from glayers.predictions.contents import WHOLE_FILE
from glayers.report.tables import interval_table, score_table, tested, verdict


@verb(
    "glayers score model.npz",
    "glayers score logits.npy --labels labels.npy --json",
    "glayers score test.csv --intervals",
    "cat test.csv | glayers score -",
)
def score(
    file: Predicted,
    labels: Labels = None,
    part: Part = None,
    intervals: Annotated[
        bool, typer.Option("--intervals", metavar=FLAG, help="Add 95 % bootstrap intervals; takes a while.")
    ] = False,
    resamples: Annotated[int, typer.Option(metavar="N", min=2, help="Bootstrap resamples for --intervals.")] = 1000,
    seed: Seed = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Print accuracy, proper scores and calibration errors of saved predictions, and test them for calibration."""
    given = source(file)
    parts = read_parts(given, labels) if part is None else {part: read_predictions(given, part, labels)}
    cards = {name: score_predictions(each) for name, each in parts.items()}
    tests = {name: calibration_test(each) for name, each in parts.items()}
    found = {name: _intervals(each, resamples, seed, quiet) for name, each in parts.items()} if intervals else {}
    if as_json:
        show_json({name: _for_json(card, tests[name], found.get(name)) for name, card in cards.items()})
        return
    show(title(name_of(file)))
    if found:
        show(*(table for name, each in found.items() for table in (interval_table(each, name), "")))
    else:
        show(score_table(cards), "")
    for name, card in cards.items():
        who = "" if name == WHOLE_FILE else f"{name}: "
        show(f"{who}{verdict(card)}", f"{who}{tested(tests[name])}")


def score_predictions(predictions: Predictions) -> Scorecard:
    """Score rows that were checked when they were read."""
    return score_checked_logits(predictions.logits, predictions.labels, predictions.weights)


def calibration_test(predictions: Predictions) -> CalibrationTest:
    """Test the confidence of the top class; rows of one group move together, which only resampling can follow."""
    return ks_test(
        predictions.probabilities(),
        predictions.labels,
        predictions.weights,
        predictions.groups,
        method="asymptotic" if predictions.groups is None else "resampling",
    )


def _intervals(predictions: Predictions, resamples: int, seed: int, quiet: bool) -> Intervals:
    return intervals_from_logits(
        predictions.logits,
        predictions.labels,
        predictions.weights,
        predictions.groups,
        n_resamples=resamples,
        random_state=seed,
        progress=False if quiet else None,
    )


def _for_json(card: Scorecard, test: CalibrationTest, found: Intervals | None) -> dict[str, Any]:
    facts = {name: getattr(test, name) for name in ("p_value", "bound", "expected", "level")}
    return {**card.to_dict(), "ks_test": facts, **({} if found is None else {"intervals": found.to_dict()})}
