"""Pieces of work -> a progress bar on standard error, for people who wait at a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from glayers.checks import check_switch


@contextmanager
def progress_bar(shown: bool | None, what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Yield a function to call after each of `total` pieces of work; `shown=None` shows the bar at a terminal only.

    The function takes how many pieces are done, one unless told, and new words for what is being done. The bar shows
    the percentage and an estimate of the time left. A total of None is unknown.
    """
    if not (sys.stderr.isatty() if shown is None else check_switch(shown, "progress")):
        yield lambda *_: None
        return
    from rich.console import Console  # imported only when shown: it takes as long to import as all of glayers
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(what), total=total)

        def advance(pieces: int = 1, what: str | None = None) -> None:
            bar.update(task, advance=pieces, description=None if what is None else escape(what))

        yield advance
