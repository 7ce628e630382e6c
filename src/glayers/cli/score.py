"""`score`: predictions with labels -> every metric, its uncertainty, and a verdict in a sentence."""

from pathlib import Path
from typing import Annotated

import typer

from glayers.cli import arguments as arg
from glayers.cli.runtime import show, show_json, title, verb
from glayers.metrics import intervals as intervals_of
from glayers.metrics import ks_test, scorecard
from glayers.predictions.contents import WHOLE_FILE
from glayers.predictions.formats import read_any
from glayers.report.tables import confidence_sentence, interval_table, ks_test_sentence, score_table


@verb(
    "glayers score model.npz",
    "glayers score logits.npy --labels labels.npy --json",
    "glayers score test.csv --intervals",
    "glayers score test.npz --event within-top:2",
    "cat test.csv | glayers score -",
)
def score(
    file: Annotated[Path, arg.file_argument("FILE", arg.PREDICTIONS)],
    labels: arg.Labels = None,
    part: arg.Part = None,
    event: arg.EventName = "top",
    intervals: Annotated[bool, arg.flag("--intervals", text="Add 95 % bootstrap intervals; takes a while.")] = False,
    resamples: Annotated[int, typer.Option(metavar="N", min=2, help="Bootstrap resamples for --intervals.")] = 1000,
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Print accuracy, proper scores and calibration errors of saved predictions, and test them for calibration.

    A file may hold confidence and correct in place of predictions and labels.
    """
    chosen = arg.event_of(event)
    parts = arg.read_wanted(read_any, file, labels, part)
    cards = {name: scorecard(each, event=chosen) for name, each in parts.items()}
    tests, found = {}, {}
    for name, each in parts.items():
        # Rows of one group depend on each other, which only resampling can follow.
        tests[name] = ks_test(each, event=chosen, method="asymptotic" if each.groups is None else "resampling")
        if intervals:
            shown = False if quiet else None
            found[name] = intervals_of(each, event=chosen, n_resamples=resamples, random_state=seed, progress=shown)
    if as_json:
        ends = {name: {"intervals": each.to_dict()} for name, each in found.items()}
        show_json({n: {**card.to_dict(), "ks_test": vars(tests[n]), **ends.get(n, {})} for n, card in cards.items()})
        return
    show(title(arg.name_of(file)))
    show(*([interval_table(each, name) for name, each in found.items()] or [score_table(cards)]), "")
    for name, card in cards.items():
        who = "" if name == WHOLE_FILE else f"{name}: "
        show(f"{who}{confidence_sentence(card)}", f"{who}{ks_test_sentence(tests[name])}")
