"""Simulated models whose errors are known -> how often intervals and upper bounds of calibration errors cover them.

Writes experiments/results/upper_bounds.csv and the same as Markdown. True probabilities are softmax(z), and the model
predicts softmax(sharpness * z). With confident noise, the model is sure and one label in a hundred is drawn at random.
The true errors come from many rows, with true probabilities in the place of labels. About two minutes on one core.
"""

import argparse
import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from experiments.stamp import write_page

from glayers.activations import softmax
from glayers.metrics import METRICS, intervals
from glayers.metrics.events import Scored

RESULTS = Path(__file__).parents[1] / "results" / "upper_bounds.csv"
ERRORS = ["ks", "kuiper", "ece", "smooth_ece", "mean_top_ks"]
CLASSWISE = ["classwise_ks", "classwise_ece"]  # up to 10 classes
SLOW, FEW = "smooth_ece", 20  # takes 70 times as long as KS, so that few repetitions have it
SCALES = {2: 2.0, 10: 3.0, 100: 4.0}  # of the true logits
LEVELS = np.array([0.6, 0.7, 0.8, 0.9])
N_RESAMPLES, COPIES = 200, 5
COLUMNS = ["model", "classes", "rows", "sharpness", "metric", "true_value", "repetitions", "bounds"]
COLUMNS += ["bounds_that_cover", "two_sided", "two_sided_that_cover", "mean_value", "mean_upper_end", "covered"]


class Cell(NamedTuple):
    """Which model, how many classes and rows, how overconfident, and how often its rows are drawn."""

    model: str
    classes: int
    rows: int
    sharpness: float
    repetitions: int


CELLS = [
    Cell("plain", 2, 500, 1.0, 60),
    Cell("plain", 2, 500, 1.15, 100),
    Cell("plain", 2, 500, 1.5, 100),
    Cell("plain", 2, 2_000, 1.15, 60),
    Cell("plain", 10, 500, 1.0, 60),
    Cell("plain", 10, 500, 1.15, 100),
    Cell("plain", 10, 500, 1.4, 100),
    Cell("plain", 10, 2_000, 1.05, 40),
    Cell("plain", 100, 500, 1.1, 40),
    Cell("sure", 10, 2_000, 1.2, 60),
    Cell("confident noise", 10, 2_000, 1.0, 60),
    Cell("confident noise", 2, 2_000, 1.0, 60),
    Cell("four scores", 2, 500, 1.05, 60),
    Cell("four scores", 2, 2_000, 1.1, 60),
    Cell("groups of 5 copies", 2, 2_000, 1.15, 60),
    Cell("groups of 5 copies", 10, 1_000, 1.15, 60),
]


def main() -> None:
    lines = []
    for cell in CELLS:
        lines += measure(cell)
        print(*cell, flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
    table = [
        "| " + " | ".join(words) + " |"
        for words in ([name.replace("_", " ") for name in COLUMNS], ["---"] * len(COLUMNS))
    ]
    table += ["| " + " | ".join(map(str, line)) + " |" for line in lines]
    text = "Made by `python -m experiments.statistics.upper_bounds`. Intervals and bounds are meant to cover 95 %. "
    text += (
        f"With {N_RESAMPLES} resamples each. `bounds` counts the samples with an upper bound, `two sided` those with "
    )
    text += "two ends and no star, and `covered` is the share of all samples with a right bound or interval.\n\n"
    write_page(RESULTS.with_suffix(".md"), text + "\n".join(table) + "\n")


def measure(cell: Cell) -> list[list[object]]:
    """Return one line per metric."""
    metrics = ERRORS + CLASSWISE if cell.classes <= 10 else ERRORS
    truth = true_errors(cell, metrics)
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in metrics}
    for seed in range(cell.repetitions):
        rng = np.random.default_rng(seed)
        _, model, labels, groups = draw(rng, cell, cell.rows)
        names = [name for name in metrics if name != SLOW or seed < FEW]
        both = intervals(
            model, labels, groups=groups, metrics=names, n_resamples=N_RESAMPLES, random_state=seed, progress=False
        )
        for name, interval in both.items():
            covered = interval.low <= truth[name] <= interval.high
            two_sided = not interval.one_sided and not interval.unreliable
            found[name].append((bool(interval.one_sided), two_sided, interval.value, interval.high, covered))
    lines: list[list[object]] = []
    for name, rows in found.items():
        bounded, two_sided, value, high, covered = np.transpose(rows)
        counts = [int(each.sum()) for each in (bounded, bounded * covered, two_sided, two_sided * covered)]
        means = [f"{value.mean():.4f}", f"{high.mean():.4f}", f"{covered.mean():.3f}"]
        lines.append([*cell[:4], name, f"{truth[name]:.4f}", len(rows), *counts, *means])
    return lines


def draw(
    rng: np.random.Generator, cell: Cell, n_rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Return true probabilities, those of the model, labels, and groups if there are any."""
    n_drawn = n_rows // COPIES if "copies" in cell.model else n_rows
    z = SCALES[cell.classes] * rng.normal(size=(n_drawn, cell.classes))
    if cell.model in ("sure", "confident noise"):
        z[np.arange(n_drawn), rng.integers(0, cell.classes, n_drawn)] += 9
    if cell.model == "four scores":
        first = rng.choice(LEVELS, n_drawn)
        z = np.column_stack([np.log(first), np.log(1 - first)])
    truth = softmax(z)
    model = softmax(cell.sharpness * z)
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    if cell.model == "confident noise":
        truth = 0.99 * truth + 0.01 / cell.classes
        noise = rng.integers(0, cell.classes, n_drawn)
        labels = np.where(rng.random(n_drawn) < 0.01, noise, labels)
    if n_drawn == n_rows:
        return truth, model, labels, None
    return (*(each.repeat(COPIES, axis=0) for each in (truth, model, labels)), np.arange(n_rows) // COPIES)


def true_errors(cell: Cell, metrics: list[str]) -> dict[str, float]:
    """Return the errors of many rows whose outcomes are their true probabilities."""
    n_rows = max(100_000, 600_000 // cell.classes)
    truth, model, _, _ = draw(np.random.default_rng(1_000_000), cell, n_rows)
    by_class = [Scored(model[:, c], truth[:, c]) for c in range(cell.classes)]
    order = np.argsort(-model, axis=1, kind="stable")[:, :10]
    ranked = np.take_along_axis(model, order, axis=1)
    right = np.take_along_axis(truth, order, axis=1)
    by_rank = [Scored(ranked[:, r], right[:, r]) for r in range(order.shape[1])]
    events = {"event": by_rank[:1], "ranks": by_rank, "classes": by_class}
    found = {}
    for name in metrics:
        metric = METRICS[name]
        found[name] = float(np.mean([metric.score(event) for event in events[metric.about]]))
    return found


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # no options but --help
    main()
