"""Pieces of work -> a bar for people who wait at a terminal, and nothing for everybody else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def waiting_bar(progress: bool | None, what: str, total: int) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each of `total` pieces of work; None shows the bar where somebody can see it."""
    if not (sys.stderr.isatty() if progress is None else progress):
        yield lambda: None
        return
    from rich.console import Console  # only where it is shown: it takes as long to import as all of glayers
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
