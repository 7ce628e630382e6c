"""What surrounds every verb: printing, progress, one line and an exit status for each error.

File names and class names come from strangers, so nothing is printed before `one_line` has escaped it: a terminal must
not obey them.
"""

import contextlib
import errno
import functools
import inspect
import io
import json
import os
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, final

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from glayers import __version__
from glayers.errors import GlayersError, GlayersWarning
from glayers.text_tables import json_ready


def flag(*names: str, text: str, **more: Any) -> Any:
    """Return an option without a value."""
    return typer.Option(*names, metavar=" ", help=text, **more)  # or typer would print <bool> beside it


def add_verb(app: typer.Typer, function: Callable[..., None], more: str = "") -> None:
    """Add a function to the program, with `--debug`; its option `quiet`, if any, also silences notes.

    A parameter whose default is a function stands for the options of that function, which makes one value of them.
    `more` and the examples of the docstring end its help.
    """
    options: list[inspect.Parameter] = []
    groups = {}
    for parameter in inspect.signature(function).parameters.values():
        if inspect.isfunction(parameter.default):
            groups[parameter.name] = parameter.default
            options += inspect.signature(parameter.default).parameters.values()
        else:
            options.append(parameter)
    debug_flag = Annotated[bool, flag("--debug", text="Show the traceback of an error.")]
    kind = inspect.Parameter.KEYWORD_ONLY
    options.append(inspect.Parameter("debug", kind, default=False, annotation=debug_flag))

    @functools.wraps(function)
    def run(*, debug: bool = False, **given: Any) -> None:
        facts = run_facts(**given) if given.get("as_json") else None
        with _notes(bool(given.get("quiet"))), one_line_per_error(debug, facts):
            for name, make in groups.items():
                given[name] = make(**{option: given.pop(option) for option in inspect.signature(make).parameters})
            function(**given)

    vars(run)["__signature__"] = inspect.Signature([option.replace(kind=kind) for option in options])  # read by typer
    run.__annotations__ = {option.name: option.annotation for option in options}
    run.__doc__, _, examples = (inspect.getdoc(function) or "").partition("\n\nExamples\n--------\n")
    # It begins with an empty line, or typer would remove the indentation of the examples.
    app.command(epilog=f"\n{more}Examples:\n{textwrap.indent(examples, '  ')}")(run)


@contextlib.contextmanager
def one_line_per_error(debug: bool = False, facts: dict[str, Any] | None = None) -> Iterator[None]:
    """Turn every error into one line on standard error and an exit status; if facts are given, also into JSON."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt as error:
        raise _stop("interrupted; no unfinished file was written", 130, debug) from error  # 128 + SIGINT
    except BrokenPipeError as error:
        discard_output()
        raise typer.Exit(141) from error  # 128 + SIGPIPE: the reader, such as head, stopped reading
    except (GlayersError, ModuleNotFoundError) as error:
        if facts is not None:
            show_json({"verdict": None, "error": str(error), **facts})
        raise _stop(str(error), 1, debug) from error
    except OSError as error:  # readers raise errors of their own, so this one comes from the screen or a pipe
        discard_output()
        raise _stop(f"cannot write the output: {error}", 1, debug) from error
    except MemoryError as error:
        raise _stop("not enough memory; try fewer rows, or float32 instead of float64", 1, debug) from error
    except Exception as error:
        reason = f"this is a bug in glayers: {type(error).__name__}: {error}; please report it with what --debug shows"
        raise _stop(reason, 70, debug) from error  # EX_SOFTWARE of sysexits.h


def run_facts(**given: Any) -> dict[str, Any]:
    """Return what identifies a run in JSON: the files that were given, the version of the program, and the time.

    >>> list(run_facts(file=Path("new.csv"), model=Path("m.safetensors"), level=0.9))
    ['file', 'model', 'version', 'time']
    """
    facts: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, Path):
            facts[name] = str(value)
        elif isinstance(value, list) and all(isinstance(item, Path) for item in value):
            facts[name] = [str(item) for item in value]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {**facts, "version": __version__, "time": now}


def _stop(reason: str, status: int, debug: bool) -> typer.Exit:
    if debug:
        for line in traceback.format_exc().splitlines():
            show_note(line)
    show_note(f"glayers: {reason}")
    return typer.Exit(status)


@contextlib.contextmanager
def _notes(quiet: bool) -> Iterator[None]:
    """Print each of our own warnings once, as a note; warnings of other libraries as Python does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "always", GlayersWarning)
        usual, show_once = warnings.showwarning, functools.cache(show_note)

        def show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, GlayersWarning):
                show_once(f"note: {message}")
            else:
                usual(message, category, *place, **more)

        warnings.showwarning = show_warning
        yield


def show(*lines: RenderableType) -> None:
    """Print tables and sentences; a plain string is printed as it is, without markup.

    A terminal breaks sentences between words; a program reads each on one line.
    """
    has_edge = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = _Screen(highlight=False, width=None if has_edge else 10_000)  # wider than any table
    for line in lines:
        if isinstance(line, str):
            console.print(one_line(line), markup=False, soft_wrap=not console.is_terminal)
        else:
            console.print(line)


def show_note(text: str) -> None:
    """Print one line to standard error."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(one_line(text), markup=False)


def show_json(numbers: Mapping[str, Any]) -> None:
    """Print JSON, which has no infinity: null stands for it."""
    sys.stdout.write(json.dumps(json_ready(numbers), indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


def show_record(record: Any, as_json: bool, heading: str = "", **facts: Any) -> None:
    """Print a record as JSON, with facts about the run, or as it prints itself, below a heading."""
    if as_json:
        show_json({**record.to_dict(), **facts})
        return
    if heading:
        show(title(heading))
    show(*str(record).splitlines())


def title(text: str) -> Text:
    """Return a heading."""
    return Text(one_line(text), style="bold")


def one_line(text: str) -> str:
    r"""Escape line breaks, escape sequences and bytes that are not text, as Python writes them in a string.

    >>> one_line("two\nlines")
    'two\\nlines'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def discard_output() -> None:
    """Discard what is still buffered; otherwise Python would try to write it at exit and print an error of its own."""
    with contextlib.suppress(io.UnsupportedOperation):  # tests have no real output
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@final
class _Screen(Console):
    """A console that raises an error when its reader is gone, where rich itself would end the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "the reader of the output is gone")
