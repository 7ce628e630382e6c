"""Words typed at a prompt -> one function each, and what it found on the screen or in a file.

`main` is the program; every verb is a function of its own name. Heavy libraries are imported inside these functions, so
that `glayers --help` answers at once.

Exit status: 0 for success, 1 for input that cannot be used or output that cannot be written, 2 for a command line that
cannot be parsed, 3 where a condition of `score` fails, 70 for a bug, 130 when interrupted, 141 when the reader of the
output is gone, 143 when terminated.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from glayers import __version__
from glayers.cli.acting import card, decide, estimate, threshold, watch
from glayers.cli.arguments import add_verb, flag, one_line_per_error, show
from glayers.cli.models import adapt, apply, export, fit, info, methods
from glayers.cli.scoring import compare, demo, report, rows, score

__all__ = ["app", "main"]

app = typer.Typer(
    epilog="`glayers COMMAND --help` shows examples. `glayers demo` runs on sample data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
_VERBS: list[Callable[..., None]] = [fit, apply, adapt, export, score, rows, compare, report, threshold, decide]
_VERBS += [estimate, watch, card, info, methods, demo]
for _verb in _VERBS:
    add_verb(app, _verb)


def _version(wanted: bool) -> None:
    if wanted:
        show(__version__)
        raise typer.Exit


_VERSION = flag("--version", callback=_version, is_eager=True, text="Print the version.")


@app.callback()
def options(version: Annotated[bool, _VERSION] = False) -> None:
    """Calibrate the probabilities of a trained classifier, and measure how good they are."""


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, _terminated)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell, as in `glayers score test.npz >&-`
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # open until the program ends
    try:
        with one_line_per_error():  # verbs handle their own errors; help and version do not
            app()
    except typer.Exit as stop:
        sys.exit(stop.exit_code)


def _terminated(*_: object) -> NoReturn:
    sys.exit(143)  # 128 + SIGTERM; as an exception, so that writers remove unfinished files
