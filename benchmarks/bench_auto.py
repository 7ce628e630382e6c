"""Seconds and peak memory of `AutoCalibrator` with everything it does, at two sizes.

`--check` exits with 1 where a limit is missed: 60 s at 5,000 x 100, 300 s at 25,000 x 1,000, 4 GB.
"""

import argparse
import resource
import time

import numpy as np

from glayers import AutoCalibrator

SIZES = {(5_000, 100): 60.0, (25_000, 1_000): 300.0}
MOST_GIGABYTES = 4.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a limit is missed")
    checked, missed = parser.parse_args().check, False
    print("| rows | classes | s | CPU s | peak GB so far | limit, s |\n|---|---|---|---|---|---|")
    for (rows, classes), limit in SIZES.items():
        logits, labels = simulate(rows, classes)
        began, worked = time.perf_counter(), time.process_time()
        fitted = AutoCalibrator().fit(logits, labels)
        seconds, busy = time.perf_counter() - began, time.process_time() - worked
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        missed |= seconds > limit or peak > MOST_GIGABYTES
        print(f"| {rows:,} | {classes:,} | {seconds:.1f} | {busy:.1f} | {peak:.2f} | {limit:.0f} |", flush=True)
        print(f"\n{fitted.selection_}\n", flush=True)
    return int(missed and checked)


def simulate(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a mostly correct network that is overconfident by a factor of 2 and biased towards some classes."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, rows)
    logits = rng.normal(size=(rows, classes))
    logits[np.arange(rows), labels] += rng.normal(3.5, 1, rows)
    return (2 * logits + rng.normal(size=classes) / 2).astype(np.float32), labels


if __name__ == "__main__":
    raise SystemExit(main())
