"""Worlds with a known truth -> how often `glayers.threshold` breaks its promise, and how much it answers.

Writes experiments/results/thresholds.csv and the same as Markdown. The logits of a row are normal, the labels follow
their softmax, and the model is overconfident by a factor of 1.3. The naive threshold is the lowest at which the
accuracy of the rows themselves reaches the target.
"""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from experiments.stamp import write_page

from glayers import Confidences, threshold
from glayers.activations import softmax
from glayers.text_tables import markdown_table

RESULTS = Path(__file__).parents[1] / "results" / "thresholds.csv"
DRAWS, LEVEL, OVERCONFIDENCE, POPULATION = 1_000, 0.9, 1.3, 400_000
CLASSES = {2: 2.0, 10: 3.0, 100: 4.0}  # number of classes -> standard deviation of the logits
SIZES = (100, 1_000, 10_000)
TARGETS = (0.9, 0.95, 0.99)
COLUMNS = ["classes", "rows", "target", "broken", "coverage", "broken_naive", "coverage_naive", "possible_coverage"]


def main() -> None:
    lines: list[list[Any]] = []
    for classes in CLASSES:
        confidence, true = population(classes)
        order = np.argsort(-confidence)
        curve = confidence[order], np.cumsum(true[order]) / np.arange(1, POPULATION + 1)
        for rows in SIZES:
            for target in TARGETS:
                lines.append([classes, rows, target, *cell(confidence, true, curve, rows, target)])
                print(*lines[-1], flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
    heads = [name.replace("_", " ") for name in COLUMNS]
    table = markdown_table([heads, *([str(cell) for cell in line] for line in lines)])
    text = (
        f"Made by `python -m experiments.statistics.thresholds`. {DRAWS:,} draws per line; the promise may be broken "
        f"in {100 * (1 - LEVEL):g} % of draws.\n\n"
    )
    write_page(RESULTS.with_suffix(".md"), text + table + "\n")


def population(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the confidence of the model, and the probability that its answer is right."""
    rng = np.random.default_rng(classes)
    confidence = np.empty(POPULATION)
    true = np.empty(POPULATION)
    for first in range(0, POPULATION, 20_000):
        part = slice(first, first + 20_000)
        z = CLASSES[classes] * rng.normal(size=(20_000, classes))
        confidence[part] = softmax(OVERCONFIDENCE * z).max(axis=1)
        true[part] = softmax(z).max(axis=1)
    return confidence, true


def cell(
    confidence: np.ndarray, true: np.ndarray, curve: tuple[np.ndarray, np.ndarray], rows: int, target: float
) -> list[str]:
    """Return the share of broken promises and the mean coverage, ours, naive, and the best possible."""
    broken, covered = np.zeros(2), np.zeros(2)
    for seed in range(DRAWS):
        rng = np.random.default_rng([seed, rows])
        drawn = rng.integers(POPULATION, size=rows)
        sample = Confidences(confidence[drawn], rng.uniform(size=rows) < true[drawn])
        for method, found in enumerate(
            (threshold(sample, accuracy=target, level=LEVEL).confidence, naive(sample, target))
        ):
            if found is not None:
                answered = np.searchsorted(-curve[0], -found, side="right")
                broken[method] += answered > 0 and curve[1][answered - 1] < target
                covered[method] += answered / POPULATION
    good = np.flatnonzero(curve[1] >= target)
    possible = (good[-1] + 1) / POPULATION if good.size else 0.0
    numbers = [broken[0] / DRAWS, covered[0] / DRAWS, broken[1] / DRAWS, covered[1] / DRAWS, possible]
    return [f"{number:.3f}" for number in numbers]


def naive(sample: Confidences, target: float) -> float | None:
    """Return the lowest confidence above which the rows themselves are accurate enough."""
    order = np.argsort(-sample.confidence)
    accuracy = np.cumsum(sample.correct[order]) / np.arange(1, len(order) + 1)
    good = np.flatnonzero(accuracy >= target)
    return float(sample.confidence[order][good[-1]]) if good.size else None


if __name__ == "__main__":
    main()
