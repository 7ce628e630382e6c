"""Worlds with a known truth -> how often `glayers.threshold` breaks its promise, and how much it answers.

Writes experiments/results/thresholds.csv and the same as Markdown. The logits of a row are normal, the labels follow
their softmax, and the model is overconfident by a factor of 1.3. The naive threshold is the lowest at which the
accuracy of the rows themselves reaches the target.

With --mapie, only the columns of MAPIE are made (pip install mapie, used here only). It does the same job if "the
answer is right" is its class 1: its BinaryClassificationController keeps the precision above the target.
"""

import argparse
import csv
import warnings
from collections.abc import Callable
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
MAPIE_COLUMNS = ["broken_mapie", "coverage_mapie"]
MAPIE_DRAWS = 100  # each takes it up to 0.1 s
Find = Callable[[Confidences, float], float | None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mapie", action="store_true", help="keep all columns but those of MAPIE")
    only_mapie = parser.parse_args().mapie
    known = {}
    with RESULTS.open(newline="", encoding="utf-8") as file:
        for entry in csv.DictReader(file):
            known[entry["classes"], entry["rows"], entry["target"]] = entry
    lines = []
    for classes in CLASSES:
        confidence, true = population(classes)
        order = np.argsort(-confidence)
        curve = confidence[order], np.cumsum(true[order]) / np.arange(1, POPULATION + 1)
        for rows in SIZES:
            for target in TARGETS:
                world = confidence, true, curve, rows, target
                names = [str(classes), str(rows), str(target)]
                old = known.get((names[0], names[1], names[2]), {})
                if only_mapie:
                    line = [old[name] for name in COLUMNS] + cell(*world, of_mapie, MAPIE_DRAWS)
                else:
                    line = [*names, *cell(*world, ours, DRAWS), *cell(*world, naive, DRAWS), possible(curve, target)]
                    line += [old.get(name, "") for name in MAPIE_COLUMNS]
                lines.append(line)
                print(*line, flush=True)
    columns = COLUMNS + MAPIE_COLUMNS
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *lines])
    heads = [name.replace("_", " ") for name in columns]
    text = (
        f"Made by `python -m experiments.statistics.thresholds`. {DRAWS:,} draws per line; the promise may be broken "
        f"in {100 * (1 - LEVEL):g} % of draws. MAPIE's BinaryClassificationController, on the first {MAPIE_DRAWS} "
        f"draws, has its default settings: 100 thresholds from 0 to 0.99, and the procedure of Bonferroni and Holm.\n\n"
    )
    write_page(RESULTS.with_suffix(".md"), text + markdown_table([heads, *lines]) + "\n")


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
    confidence: np.ndarray,
    true: np.ndarray,
    curve: tuple[np.ndarray, np.ndarray],
    rows: int,
    target: float,
    find: Find,
    draws: int,
) -> list[str]:
    """Return the share of broken promises and the mean coverage of one way to find thresholds."""
    broken = 0
    covered = 0.0
    for seed in range(draws):
        rng = np.random.default_rng([seed, rows])
        drawn = rng.integers(POPULATION, size=rows)
        found = find(Confidences(confidence[drawn], rng.uniform(size=rows) < true[drawn]), target)
        if found is not None:
            answered = np.searchsorted(-curve[0], -found, side="right")
            broken += int(answered > 0 and curve[1][answered - 1] < target)
            covered += answered / POPULATION
    return [f"{broken / draws:.3f}", f"{covered / draws:.3f}"]


def possible(curve: tuple[np.ndarray, np.ndarray], target: float) -> str:
    """Return the largest coverage with this accuracy."""
    good = np.flatnonzero(curve[1] >= target)
    share = (good[-1] + 1) / POPULATION if good.size else 0.0
    return f"{share:.3f}"


def ours(sample: Confidences, target: float) -> float | None:
    return threshold(sample, accuracy=target, level=LEVEL).confidence


def naive(sample: Confidences, target: float) -> float | None:
    """Return the lowest confidence above which the rows themselves are accurate enough."""
    order = np.argsort(-sample.confidence)
    accuracy = np.cumsum(sample.correct[order]) / np.arange(1, len(order) + 1)
    good = np.flatnonzero(accuracy >= target)
    return float(sample.confidence[order][good[-1]]) if good.size else None


def of_mapie(sample: Confidences, target: float) -> float | None:
    """Return the lowest confidence at which MAPIE promises that answers above it are right often enough."""
    from mapie.risk_control import BinaryClassificationController

    def both_classes(confidence: Any) -> Any:
        return np.column_stack([1 - confidence[:, 0], confidence[:, 0]])

    controller = BinaryClassificationController(both_classes, "precision", target, confidence_level=LEVEL)
    with warnings.catch_warnings(action="ignore"):  # of draws without a threshold
        controller.calibrate(sample.confidence[:, None], sample.correct.astype(int))
    found: float | None = controller.best_predict_param
    return found


if __name__ == "__main__":
    main()
