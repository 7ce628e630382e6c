"""Text -> the terminal, which must not obey what a file name or a class name tells it."""

import contextlib
import errno
import io
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, final

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.text import Text


def show(*lines: RenderableType) -> None:
    """Print tables and sentences for people; plain strings are taken as they are, without markup.

    A terminal breaks sentences between words; a program finds each on one line.
    """
    console = _Screen(highlight=False)
    for line in lines:
        if isinstance(line, str):
            console.print(one_line(line), markup=False, soft_wrap=not console.is_terminal)
        else:
            console.print(line)


def page(markdown: str) -> RenderableType:
    """Return Markdown as a terminal shows it; what is piped stays Markdown."""
    return Markdown(markdown) if Console().is_terminal else Text(markdown)


def title(text: str) -> Text:
    """Return a heading."""
    return Text(one_line(text), style="bold")


def tell(text: str) -> None:
    """Print one line to standard error, whatever is in the text."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(one_line(text), markup=False)


def show_json(numbers: Mapping[str, Any]) -> None:
    """Print JSON for programs; it has no infinity, so null stands for it."""
    sys.stdout.write(json.dumps(_finite(numbers), indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


def one_line(text: str) -> str:
    r"""Write line breaks, escape sequences and bytes that are no text as Python would: a terminal must not obey them.

    >>> one_line("two\nlines")
    'two\\nlines'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextlib.contextmanager
def waiting_for(what: str, quiet: bool) -> Iterator[None]:
    """Show that work without a bar of its own goes on, where somebody can see it."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(one_line(what)):
        yield


def forget_output() -> None:
    """Send what is still buffered nowhere, or Python would try to write it once more and complain itself."""
    with contextlib.suppress(io.UnsupportedOperation):  # no real output, as in tests
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@final
class _Screen(Console):
    """A console that says when nobody reads on, where rich itself would end the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "nobody reads the output any more")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
