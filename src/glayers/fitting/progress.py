"""A watcher -> the same watcher with a bar beside it, for people who wait at a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def progress_bar(shown: bool, what: str, total: int) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each of `total` pieces of work; the bar goes to standard error and vanishes."""
    with Progress(console=Console(stderr=True), transient=True, disable=not shown) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)
