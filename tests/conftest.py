"""What all tests share: one thread, no deadlines, and `--light`, which skips tests that import heavy libraries."""

import gc
import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

# `make check` leaves these out: importing one takes seconds, and so does most of what tests do with it.
HEAVY = {"torch", "jax", "transformers", "lightning", "selenium"}

# A busy machine must not fail a test, so no example has a deadline.
settings.register_profile("glayers", deadline=None)
settings.load_profile("glayers")


class SkipInstead(MetaPathFinder, Loader):
    """Importing a heavy library skips the test that asked for it, also where glayers imports it on the way."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname in HEAVY:
            return ModuleSpec(fullname, self)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        pytest.skip(f"needs {spec.name}, which --light leaves out", allow_module_level=True)

    def exec_module(self, module: ModuleType) -> None:
        """Never reached."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--light", action="store_true", help="skip every test that imports one of: " + " ".join(HEAVY))


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--light"):
        sys.meta_path.insert(0, SkipInstead())


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the draws of `calibration_test`, for tests of what surrounds it; p-values are at least 0.005."""
    monkeypatch.setattr("glayers.metrics.calibration_tests._DRAWS", 199)


@pytest.fixture(autouse=True)
def only_our_names() -> Iterator[None]:
    """Forget the calibrators and metrics that a page, a doctest or a test registers."""
    from glayers.calibrators import CALIBRATORS
    from glayers.metrics import METRICS

    registries: tuple[Any, ...] = (CALIBRATORS, METRICS)
    before = [dict(registry._values) for registry in registries]
    yield
    for registry, values in zip(registries, before, strict=True):
        registry._values = values


@pytest.fixture(autouse=True, scope="session")
def one_thread(pytestconfig: pytest.Config) -> Iterator[None]:
    """Small fits run fastest on one thread, and with others at work on the same cores by far."""
    if pytestconfig.getoption("--light") or find_spec("torch") is None:
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pytest_collection_finish() -> None:
    """Leave what imports and collection made out of all later garbage collections: it is never garbage."""
    gc.collect()
    gc.freeze()
