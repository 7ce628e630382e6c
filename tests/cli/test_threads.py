"""Small fits run on one thread, large ones on all."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from glayers import Predictions
from glayers.cli import runtime
from glayers.cli.runtime import suitable_threads

SMALL = Predictions(2 * np.eye(3)[[2, 0, 1, 1]], [2, 0, 1, 0])


def awake() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info()]


@pytest.mark.parametrize("methods", [["temperature"], ["g-layers", "auto"]])
def test_a_small_fit_uses_one_thread_and_restores_the_number_afterwards(methods: list[str]) -> None:
    with threadpool_limits(limits=2):
        before = awake()
        with suitable_threads(methods, SMALL):
            assert set(awake()) == {1}
        assert awake()[: len(before)] == before


def test_the_larger_part_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_MANY_LOGITS", 30)
    large = Predictions(2 * np.eye(3)[np.arange(20) * 7 % 3], np.arange(20) % 3)
    with threadpool_limits(limits=2):
        before = awake()
        with suitable_threads(["temperature"], SMALL, large):
            assert awake() == before
