"""The command line: verbs that each call one function.

Exit status: 0 when all went well, 1 for input we cannot use, 2 for a command line we cannot read.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from glayers import __version__
from glayers.datasets import load_fashion_mnist
from glayers.errors import GlayersError, GlayersWarning
from glayers.metrics import Scorecard, scorecard_from_logits
from glayers.predictions import Predictions, read_parts, read_predictions
from glayers.report.tables import score_table, verdict

app = typer.Typer(
    help="Make a classifier's probabilities true, and prove that they are.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        Console().print(__version__, highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Make a classifier's probabilities true, and prove that they are."""


@app.command()
def score(
    file: Annotated[Path, typer.Argument(help="Predictions: .npz, .npy, .csv, .tsv, .parquet, or a pickle of logits.")],
    labels: Annotated[Path | None, typer.Option(help="Labels (.npy), when FILE is logits (.npy).")] = None,
    part: Annotated[str | None, typer.Option(help="Only this part of a file with two: calibration or test.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Print accuracy, proper scores and calibration errors of saved predictions.

    Examples: `glayers score model.npz`, `glayers score logits.npy --labels labels.npy --json`
    """
    parts = read_parts(file, labels) if part is None else {part: read_predictions(file, part, labels)}
    cards = {name: _score(predictions) for name, predictions in parts.items()}
    if as_json:
        sys.stdout.write(json.dumps({name: card.to_dict() for name, card in cards.items()}, indent=2) + "\n")
    else:
        _show(file.name, cards)


@app.command()
def demo() -> None:
    """Score the sample predictions that come with the package."""
    _show("A small network on Fashion-MNIST", {n: _score(p) for n, p in load_fashion_mnist()._asdict().items()})


def main() -> None:
    """Run the command line; a complaint of ours becomes one line, never a traceback."""
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    with warnings.catch_warnings():
        warnings.simplefilter("always", GlayersWarning)
        warnings.showwarning = lambda message, *_args, **_kwargs: errors.print(f"note: {message}", markup=False)
        try:
            app()
        except GlayersError as error:
            errors.print(f"glayers: {error}", markup=False)
            sys.exit(1)


def _score(predictions: Predictions) -> Scorecard:
    return scorecard_from_logits(predictions.logits, predictions.labels, predictions.weights)


def _show(title: str, cards: dict[str, Scorecard]) -> None:
    console = Console(highlight=False)
    console.print(title, style="bold", markup=False)
    console.print(score_table(cards))
    for name, card in cards.items():
        console.print(f"\n{name}: {verdict(card)}", markup=False)
