"""Pieces of work -> a progress bar on standard error, for people who wait at a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from glayers.checks import check_switch


@contextmanager
def progress_bar(shown: bool | None, what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each of `total` pieces of work; `shown=None` shows the bar at a terminal only.

    A total of None is unknown.
    """
    if not (sys.stderr.isatty() if shown is None else check_switch(shown, "progress")):
        yield lambda: None
        return
    from rich.console import Console  # imported only when shown: it takes as long to import as all of glayers
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
