"""The program: its verbs, its exit status, and the list of methods.

Exit status: 0 for success, 1 for input that cannot be used or output that cannot be written, 2 for a command line that
cannot be parsed, 70 for a bug, 130 when interrupted, 141 when the reader of the output is gone, 143 when terminated.
"""

import signal
import sys
from importlib.util import find_spec
from typing import Annotated, NoReturn

import typer
from rich.table import Table

from glayers import __version__
from glayers.cli.arguments import AsJson
from glayers.cli.compare import compare, demo, report
from glayers.cli.fit import apply, fit
from glayers.cli.plot import plot
from glayers.cli.runtime import one_line_per_error, show, show_json, verb
from glayers.cli.score import score


@verb("glayers methods", "glayers methods --json")
def methods(as_json: AsJson = False) -> None:
    """List the methods: what each does, what it never changes, and whether fitting it needs torch."""
    from glayers.calibrators import METHODS

    if as_json:
        show_json({name: {**vars(each), "settings": dict(each.settings)} for name, each in METHODS.items()})
        return
    table = Table("method", "summary", "keeps", box=None, pad_edge=False, header_style="bold")
    for name, each in METHODS.items():
        table.add_row(f"{name} *" if each.torch == "required" else name, each.summary, each.keeps)
    here = "installed" if find_spec("torch") else 'not installed: pip install "glayers[fit]"'
    show(table, "", f"* needs torch to fit ({here}). No method needs torch to predict.")


app = typer.Typer(
    epilog="glayers VERB --help shows examples; glayers demo needs no data of yours.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for _verb in (fit, apply, score, compare, report, plot, methods, demo):
    app.command(epilog=_verb.epilog)(_verb.run)


def _version(wanted: bool) -> None:
    if wanted:
        show(__version__)
        raise typer.Exit


_VERSION = typer.Option("--version", metavar=" ", callback=_version, is_eager=True, help="Print the version.")


@app.callback()
def options(version: Annotated[bool, _VERSION] = False) -> None:
    """Calibrate the probabilities of a trained classifier, and measure how good they are."""


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        with one_line_per_error():  # verbs handle their own errors; help and version do not
            app()
    except typer.Exit as stop:
        sys.exit(stop.exit_code)


def _terminated(*_: object) -> NoReturn:
    sys.exit(143)  # 128 + SIGTERM; as an exception, so that writers remove unfinished files
