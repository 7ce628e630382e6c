"""Streams of a year -> how often `glayers.watch` raises an alarm, beside a calibration test every day.

Writes experiments/results/watching.csv and the same as Markdown. A stream has 365 batches of 100 rows and five
classes. Overconfidence is stated in points: mean confidence minus accuracy. The daily test is `ks_test` at the same
level, whose alarm is its first rejection.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
from experiments.stamp import write_page

from glayers.activations import softmax
from glayers.decisions.watch import Watch
from glayers.metrics import ks_test
from glayers.text_tables import markdown_table

RESULTS = Path(__file__).parents[1] / "results" / "watching.csv"
ALPHA, BATCHES, ROWS, CLASSES, SPREAD = 0.05, 365, 100, 5, 2.0
SHIFT = np.array([0.7, 0, 0, 0, 0])
# name -> factor of the logits, shift of the true logits, streams, streams with a daily test
WORLDS = {
    "calibrated": (1.0, 0.0, 2_000, 100),
    "overconfident by 2 points": (1.08, 0.0, 200, 20),
    "overconfident by 5 points": (1.21, 0.0, 200, 20),
    "overconfident by 10 points": (1.5, 0.0, 200, 20),
    "class shift: odds of class 0 doubled": (1.0, 1.0, 200, 20),
}
COLUMNS = [
    "world",
    "streams",
    "alarms",
    "median_days",
    "daily_test_streams",
    "daily_test_alarms",
    "daily_test_median_days",
]


def main() -> None:
    lines: list[list[Any]] = []
    for world, (factor, shift, streams, tested) in WORLDS.items():
        points = overconfidence(factor)
        days = [days_until_alarm(factor, shift, seed) for seed in range(streams)]
        daily = [days_until_rejection(factor, shift, seed) for seed in range(tested)]
        lines.append([world, streams, *summary(days), tested, *summary(daily)])
        print(*lines[-1], f"({points:.1f} points)", flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
    heads = [name.replace("_", " ") for name in COLUMNS]
    table = markdown_table([heads, *([str(cell) for cell in line] for line in lines)])
    text = (
        f"Made by `python -m experiments.statistics.watching`. {BATCHES} batches of {ROWS} rows per stream; "
        f"alarms and tests at {100 * ALPHA:g} %. Alarms are shares of streams; days: medians over streams with one.\n\n"
    )
    write_page(RESULTS.with_suffix(".md"), text + table + "\n")


def batches(factor: float, shift: float, seed: int) -> "list[tuple[np.ndarray, np.ndarray]]":
    """Return probabilities and labels of every day."""
    rng = np.random.default_rng(seed)
    z = SPREAD * rng.normal(size=(BATCHES * ROWS, CLASSES))
    labels = (z + shift * SHIFT + rng.gumbel(size=z.shape)).argmax(axis=1)
    p = softmax(factor * z)
    return [(p[i : i + ROWS], labels[i : i + ROWS]) for i in range(0, len(p), ROWS)]


def overconfidence(factor: float) -> float:
    """Return mean confidence minus accuracy in points."""
    z = SPREAD * np.random.default_rng(0).normal(size=(200_000, CLASSES))
    return 100 * float((softmax(factor * z).max(axis=1) - softmax(z).max(axis=1)).mean())


def days_until_alarm(factor: float, shift: float, seed: int) -> float:
    watch = Watch(ALPHA)
    for day, (p, labels) in enumerate(batches(factor, shift, seed), start=1):
        watch.update(p, labels)
        if watch.alarm:
            return day
    return np.inf


def days_until_rejection(factor: float, shift: float, seed: int) -> float:
    for day, (p, labels) in enumerate(batches(factor, shift, seed), start=1):
        if ks_test(p, labels).p_value < ALPHA:
            return day
    return np.inf


def summary(days: list[float]) -> list[str]:
    """Return the share of streams with an alarm, and the median day of these alarms."""
    ended = np.array([day for day in days if np.isfinite(day)])
    return [f"{len(ended) / len(days):.3f}", f"{np.median(ended):.0f}" if ended.size else ""]


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # no options but --help
    main()
