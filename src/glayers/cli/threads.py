"""How much there is to fit, and by what -> as many threads as are worth waking for it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec

from glayers.cli.method_notes import METHODS
from glayers.predictions import Predictions

# Logits: from here on threads gain something; below they wait for each other, on a busy machine for most of the time.
_MANY = 1_000_000


@contextmanager
def enough_threads(methods: Iterable[str], *parts: Predictions) -> Iterator[None]:
    """Work on one thread where there is little to multiply, else on as many as the libraries choose."""
    if max(part.logits.size for part in parts) >= _MANY:
        yield
        return
    from threadpoolctl import threadpool_limits

    if find_spec("torch") is not None and any(METHODS[name].torch != "no" for name in methods):
        import_module("torch")  # only pools that are there already can be limited
    with threadpool_limits(limits=1):
        yield
