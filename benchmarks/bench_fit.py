"""Fit times of g-layers with their whole selection, as ratios to probmetrics' SMS in the same run.

Run it with `make bench-fit`; `--check` exits with 1 where a ratio misses its limit. Logits are simulated: calibrated
ones, made overconfident class by class, so that there is something to learn.
"""

import argparse
import resource
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch

from glayers import GLayers
from glayers.calibrators import default_recipe
from glayers.errors import GlayersWarning
from glayers.fitting.adam import descend
from glayers.fitting.watching import Sight

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
        sms = best_time(lambda z=logits, y=labels: fit_sms(z, y), settings.repeats)
        ours = best_time(lambda z=logits, y=labels: GLayers(random_state=0).fit(z, y), settings.repeats)
        missed |= ours / sms > SLOWEST
        print(f"| {settings.rows:,} x {classes} | {sms:.3f} | {ours:.3f} | {ours / sms:.1f} | {SLOWEST:g} |", flush=True)
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
    """Logits that were calibrated, then stretched more for some classes than for others."""
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
    call()  # compiles what compiles
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def batching(logits: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Time the batched run of the default recipe, then each of its members alone for as many epochs as it had there."""
    runs: list[tuple[tuple, dict[int, int], float]] = []

    def watched(objective, start, rates, schedule, watcher, measure, seed):  # type: ignore[no-untyped-def]
        lasted = dict.fromkeys(range(len(start)), 0)

        def watch(sight: Sight) -> torch.Tensor:
            for member in torch.nonzero(goes_on["last"])[:, 0].tolist():
                lasted[member] = sight.iteration
            goes_on["last"] = watcher(sight)
            return goes_on["last"]

        goes_on = {"last": torch.ones(len(start), dtype=torch.bool)}
        began = time.perf_counter()
        ended = descend(objective, start, rates, schedule, watch, measure, seed)
        runs.append(((objective, start, rates, schedule, measure, seed), lasted, time.perf_counter() - began))
        return ended

    original, default_recipe.descend = default_recipe.descend, watched
    try:
        for _ in range(3):
            GLayers(random_state=0).fit(logits, labels)
    finally:
        default_recipe.descend = original
    (objective, start, rates, schedule, measure, seed), lasted, _ = runs[-1]
    began = time.perf_counter()
    for member, epochs in lasted.items():
        one = torch.tensor([member])

        def until(sight: Sight, epochs: int = epochs) -> torch.Tensor:
            return torch.tensor([sight.iteration < epochs])

        descend(objective.of(one), start[one], rates[one], schedule, until, measure, seed)
    return min(seconds for _, _, seconds in runs), time.perf_counter() - began


if __name__ == "__main__":
    warnings.simplefilter("ignore", GlayersWarning)
    sys.exit(main())
