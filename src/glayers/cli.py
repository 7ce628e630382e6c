"""The command line: verbs that each call one function.

Exit status: 0 when all went well, 1 for input we cannot use, 2 for a command line we cannot read.
"""

import json
import math
import os
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from glayers import __version__
from glayers.datasets import load_fashion_mnist
from glayers.errors import GlayersError, GlayersWarning
from glayers.metrics import Scorecard
from glayers.metrics.scorecard import score_checked_logits
from glayers.predictions import Predictions, read_parts, read_predictions
from glayers.report.tables import score_table, verdict

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator

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
    # readable=False: the reader itself says, in one line, why it cannot read a file.
    file: Annotated[
        Path,
        typer.Argument(readable=False, help="Predictions: .npz, .npy, .csv, .tsv, .parquet, or a pickle of logits."),
    ],
    labels: Annotated[
        Path | None, typer.Option(readable=False, help="Labels (.npy), when FILE is logits (.npy).")
    ] = None,
    part: Annotated[str | None, typer.Option(help="Only this part of a file with two: calibration or test.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs; null is infinity.")] = False,
) -> None:
    """Print accuracy, proper scores and calibration errors of saved predictions.

    Examples: `glayers score model.npz`, `glayers score logits.npy --labels labels.npy --json`
    """
    parts = read_parts(file, labels) if part is None else {part: read_predictions(file, part, labels)}
    cards = {name: _score(predictions) for name, predictions in parts.items()}
    if as_json:
        numbers = {name: _for_json(card) for name, card in cards.items()}
        sys.stdout.write(json.dumps(numbers, indent=2, allow_nan=False) + "\n")
        sys.stdout.flush()
    else:
        _show(file.name, cards)


@app.command()
def demo() -> None:
    """Calibrate the sample predictions that come with the package, and show what that does to their test rows."""
    calibration, test = load_fashion_mnist()
    cards = {"uncalibrated": _score(test)}
    for name, calibrator in _demo_calibrators().items():
        calibrated = calibrator.fit(calibration.logits, calibration.labels).transform(test.logits)
        cards[name] = _score(Predictions(calibrated, test.labels))
    _show("10,000 test rows of a small network on Fashion-MNIST, calibrated on 5,000 others", cards)


def main() -> None:
    """Run the command line; a complaint of ours becomes one line, never a traceback."""
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, GlayersWarning):
            errors.print(f"note: {_one_line(str(message))}", markup=False)
        else:
            usual(message, category, *place, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", GlayersWarning)
        warnings.showwarning = show
        try:
            app()
        except GlayersError as error:
            errors.print(f"glayers: {_one_line(str(error))}", markup=False)
            sys.exit(1)
        except OSError as error:  # reading complains by itself: only writing comes here
            _forget_output()
            errors.print(f"glayers: cannot write the output: {_one_line(str(error))}", markup=False)
            sys.exit(1)


def _demo_calibrators() -> "dict[str, Calibrator]":
    from glayers.calibrators import GLayers, TemperatureScaling

    simple: dict[str, Calibrator] = {"temperature": TemperatureScaling()}
    if find_spec("torch") is None:
        warnings.warn('GLayers needs torch: pip install "glayers[fit]"', GlayersWarning, stacklevel=2)
        return simple
    return simple | {"g-layers": GLayers(random_state=0)}


def _score(predictions: Predictions) -> Scorecard:
    return score_checked_logits(predictions.logits, predictions.labels, predictions.weights)


def _show(title: str, cards: dict[str, Scorecard]) -> None:
    console = Console(highlight=False)
    console.print(_one_line(title), style="bold", markup=False)
    console.print(score_table(cards))
    for name, card in cards.items():
        console.print(f"\n{name}: {verdict(card)}", markup=False)


def _for_json(card: Scorecard) -> dict[str, float | None]:
    """Return the numbers of a scorecard; JSON has no infinity."""
    return {name: value if math.isfinite(value) else None for name, value in card.to_dict().items()}


def _one_line(text: str) -> str:
    r"""Write line breaks, escape sequences and bytes that are no text as Python would: a terminal must not obey them.

    >>> _one_line("two\nlines")
    'two\\nlines'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _forget_output() -> None:
    """Send what is still buffered nowhere, or Python would try to write it once more and complain itself."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
