"""1,000 bootstrap resamples of the whole scorecard on 10,000 x 100, as a ratio to one scorecard in the same run.

Run it with `make bench-intervals`; `--check` exits with 1 where the ratio or the memory is over its limit.
"""

import argparse
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from glayers.metrics import intervals, scorecard

RATIO_LIMIT = 60.0
MEMORY_LIMIT = 500.0  # MB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--resamples", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a limit is passed")
    settings = parser.parse_args()
    probabilities, labels = sample(settings.rows, settings.classes)

    def whole() -> object:
        return intervals(probabilities, labels, n_resamples=settings.resamples, progress=False)

    whole()  # imports on first use are not measured
    # In turns, so that a busy machine slows both.
    turns = [
        [taken(call) for call in (lambda: scorecard(probabilities, labels), whole)] for _ in range(settings.repeats)
    ]
    one, bca = (statistics.median(column) for column in zip(*turns, strict=True))
    memory = peak_memory(whole)
    print(f"{settings.rows:,} x {settings.classes:,}, {settings.resamples:,} resamples, median of {settings.repeats}\n")
    print("| | seconds | scorecards | limit |\n|---|---:|---:|---:|")
    print(f"| one scorecard | {one:.3f} | 1 | |")
    print(f"| intervals | {bca:.2f} | {bca / one:.0f} | {RATIO_LIMIT:g} |")
    print(f"\nPeak memory beyond the data: {memory:.0f} MB (limit {MEMORY_LIMIT:g} MB)")
    over = bca / one > RATIO_LIMIT or memory > MEMORY_LIMIT
    print("Over the limit." if over else "All within their limits.")
    return int(over and settings.check)


def sample(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Softmax of Gaussian logits, as peaked as those of a trained network, with labels drawn from it."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((rows, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True), labels


def taken(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def peak_memory(call: Callable[[], object]) -> float:
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


if __name__ == "__main__":
    sys.exit(main())
