"""A function -> a verb of the command line: with examples, `--debug`, and one line for whatever goes wrong."""

import functools
import inspect
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from glayers.cli.screen import forget_output, tell
from glayers.errors import GlayersError, GlayersWarning

UNUSABLE = 1  # 2 is typer's own, for a command line that cannot be read
BUG = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
PIPE_CLOSED = 141  # 128 + SIGPIPE: the reader of our output, such as head, had enough

FLAG = " "  # typer would write <bool> beside an option that takes nothing
_DEBUG = inspect.Parameter(
    "debug",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--debug", metavar=FLAG, help="Show the traceback when something goes wrong.")
    ],
)


@dataclass(frozen=True)
class Verb:
    """What `typer` runs, and examples for its help, each a full command line; `more` stands before them."""

    run: Callable[..., None]
    examples: tuple[str, ...]
    more: str

    def add_to(self, app: typer.Typer) -> None:
        """Make it a command."""
        lines = "\n".join(f"  $ {example}" for example in self.examples)
        # Begun with an empty line, or typer would take the indentation of the others for one of all.
        app.command(epilog=f"\n{self.more}Examples:\n{lines}")(self.run)


def verb(*examples: str, more: str = "") -> Callable[[Callable[..., None]], Verb]:
    """Turn a function into a verb; `quiet`, where it takes that, also silences notes."""

    def turned(function: Callable[..., None]) -> Verb:
        @functools.wraps(function)
        def run(*, debug: bool = False, **words: Any) -> None:
            with _complaints(bool(words.get("quiet")), debug):
                function(**words)

        signature = inspect.signature(function)
        given = (each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values())
        vars(run)["__signature__"] = signature.replace(parameters=[*given, _DEBUG])  # what typer reads options from
        run.__annotations__ = {**function.__annotations__, "debug": _DEBUG.annotation}
        return Verb(run, examples, more)

    return turned


@contextmanager
def _complaints(quiet: bool, debug: bool) -> Iterator[None]:
    with _notes(quiet):
        try:
            yield
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt as error:
            raise _stop("interrupted; what was not finished was not written", INTERRUPTED, debug) from error
        except BrokenPipeError as error:
            forget_output()
            raise typer.Exit(PIPE_CLOSED) from error
        except (GlayersError, ModuleNotFoundError) as error:
            raise _stop(str(error), UNUSABLE, debug) from error
        except OSError as error:  # reading complains by itself: only writing to the screen or a pipe comes here
            forget_output()
            raise _stop(f"cannot write the output: {error}", UNUSABLE, debug) from error
        except MemoryError as error:
            raise _stop("not enough memory; try fewer rows, or float32 instead of float64", UNUSABLE, debug) from error
        except Exception as error:
            reason = f"this is a bug, not your fault: {type(error).__name__}: {error}; please report it with --debug"
            raise _stop(reason, BUG, debug) from error


def _stop(reason: str, status: int, debug: bool) -> typer.Exit:
    if debug:
        for line in traceback.format_exc().splitlines():
            tell(line)
    tell(f"glayers: {reason}")
    return typer.Exit(status)


@contextmanager
def _notes(quiet: bool) -> Iterator[None]:
    """Show our own warnings as notes, each once; other libraries' as Python does."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", GlayersWarning)
        usual = warnings.showwarning
        said: set[str] = set()

        def note(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if not issubclass(category, GlayersWarning):
                usual(message, category, *place, **more)
            elif not quiet and str(message) not in said:
                said.add(str(message))
                tell(f"note: {message}")

        warnings.showwarning = note
        yield
