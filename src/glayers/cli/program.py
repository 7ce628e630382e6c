"""The program: its verbs, and what happens before and after them.

Exit status: 0 when all went well, 1 for input that cannot be used or output that cannot be written, 2 for a command
line that cannot be read, 70 for a bug, 130 when interrupted, 141 when nobody reads on, 143 when terminated.
"""

import signal
import sys
from typing import Annotated, NoReturn

import typer

from glayers import __version__
from glayers.cli.apply import apply
from glayers.cli.compare import compare, report
from glayers.cli.demo import demo
from glayers.cli.fit import fit
from glayers.cli.methods import methods
from glayers.cli.plot import plot
from glayers.cli.score import score
from glayers.cli.screen import forget_output, show, tell
from glayers.cli.verb import FLAG, INTERRUPTED, UNUSABLE

_TERMINATED = 143  # 128 + SIGTERM

app = typer.Typer(
    help="Make a classifier's probabilities true, and prove that they are.",
    epilog="glayers VERB --help has examples; glayers demo needs no data of yours.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for _verb in (fit, apply, score, compare, report, plot, methods, demo):
    _verb.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        show(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[  # its callback does it all
        bool,
        typer.Option("--version", metavar=FLAG, callback=_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """Make a classifier's probabilities true, and prove that they are."""


def main() -> None:
    """Run the command line; being told to stop leaves nothing unfinished behind."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        app()
    except KeyboardInterrupt:
        tell("glayers: interrupted")
        sys.exit(INTERRUPTED)
    except OSError as error:  # of what verbs do not print themselves: help and version
        forget_output()
        tell(f"glayers: cannot write the output: {error}")
        sys.exit(UNUSABLE)


def _terminated(*_: object) -> NoReturn:
    sys.exit(_TERMINATED)  # as an exception, so that whoever writes a file can clear away
