"""Small fits run fastest on one thread, and with others at work on the same cores by far."""

import gc
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

# A busy machine must not fail a test, so no example has a deadline.
settings.register_profile("glayers", deadline=None)
settings.load_profile("glayers")


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the draws of `calibration_test`, for tests of what surrounds it; p-values are at least 0.005."""
    monkeypatch.setattr("glayers.metrics.omnibus._DRAWS", 199)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pytest_collection_finish() -> None:
    """Leave what imports and collection made out of all later garbage collections: it is never garbage."""
    gc.collect()
    gc.freeze()
