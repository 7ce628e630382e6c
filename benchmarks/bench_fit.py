"""Fit times of g-layers with their whole selection, as ratios to probmetrics' SMS in the same run.

Run it with `make bench-fit`; `--check` exits with 1 where a ratio misses its limit. Logits are simulated: calibrated
logits, made overconfident by a different factor per class.
"""

import argparse
import resource
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from glayers import GLayers
from glayers.fitting.adam import OnEpoch, descend
from glayers.fitting.objective import Objective

SLOWEST = 10.0  # times SMS
LEAST_BATCHING_GAIN = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a ratio misses its limit")
    settings = parser.parse_args()
    warnings.simplefilter("ignore")
    missed = False
    print(f"{torch.get_num_threads()} threads, best of {settings.repeats}\n")
    print("| rows x classes | SMS s | GLayers s | ratio | limit |\n|---|---|---|---|---|")
    for classes in (10, 100):
        logits, labels = sample(settings.rows, classes)
        sms = best_time(partial(fit_sms, logits, labels), settings.repeats)
        ours = best_time(partial(GLayers(random_state=0).fit, logits, labels), settings.repeats)
        missed |= ours / sms > SLOWEST
        print(
            f"| {settings.rows:,} x {classes} | {sms:.3f} | {ours:.3f} | {ours / sms:.1f} | {SLOWEST:g} |", flush=True
        )
    logits, labels = sample(settings.rows, 10)
    batched, alone = batching(logits, labels)
    missed |= alone / batched < LEAST_BATCHING_GAIN
    print(
        f"\nSelection at {settings.rows:,} x 10, batched: {batched:.2f} s; the same fits for the same epochs, "
        f"one after another: {alone:.2f} s, {alone / batched:.1f} times as long (at least {LEAST_BATCHING_GAIN:g})"
    )
    print(f"Peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    return int(missed and settings.check)


def sample(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated logits, scaled more for some classes than for others."""
    rng = np.random.default_rng(0)
    logits = 2.5 * rng.standard_normal((rows, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return (logits * rng.uniform(1.2, 2.0, classes) + rng.normal(size=classes)).astype(np.float32), labels


def fit_sms(logits: np.ndarray, labels: np.ndarray) -> None:
    from probmetrics.calibrators import SMSCalibrator

    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    SMSCalibrator().fit(powers / powers.sum(axis=1, keepdims=True), labels)


def best_time(call: Callable[[], object], repeats: int) -> float:
    call()  # compiles the peer's functions
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


class Run(NamedTuple):
    """One batched run: its input, the number of epochs of each member, and its time."""

    objective: Objective
    rates: np.ndarray
    settings: dict[str, Any]
    lasted: dict[int, int]
    seconds: float


def batching(logits: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Time the batched run of the default recipe, then each of its members alone for the same number of epochs."""
    runs: list[Run] = []

    def timed(objective: Objective, rates: np.ndarray, on_epoch: OnEpoch, **settings: Any) -> Tensor:
        lasted = dict.fromkeys(range(len(rates)), 0)
        continues = np.ones(len(rates), dtype=bool)

        def recorded(epoch: int, *found: np.ndarray) -> np.ndarray:
            lasted.update(dict.fromkeys(np.flatnonzero(continues).tolist(), epoch))
            continues[:] = on_epoch(epoch, *found)
            return continues

        began = time.perf_counter()
        ended = descend(objective, rates, recorded, **settings)
        runs.append(Run(objective, rates, settings, lasted, time.perf_counter() - began))
        return ended

    with mock.patch("glayers.fitting.adam.descend", timed):
        for _ in range(3):
            GLayers(random_state=0).fit(logits, labels)
    run = runs[-1]
    began = time.perf_counter()
    for member, epochs in run.lasted.items():

        def until(epoch: int, *_: np.ndarray, epochs: int = epochs) -> np.ndarray:
            return np.array([epoch < epochs])

        descend(run.objective.of(torch.tensor([member])), run.rates[[member]], until, **run.settings)
    return min(run.seconds for run in runs), time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
