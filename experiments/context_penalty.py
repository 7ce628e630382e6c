"""Sets of logits -> what a separate penalty on the context gains: results/context_penalty.csv.

Calibration rows alone: halved four times at random, fitted on one half and scored on the other, so that defaults can be
chosen without looking at test rows. Behind each class-wise part the correction is averaged over one penalty for all its
weights, or also over stronger ones for what depends on the row's context, as the library does. DIR holds .npz files
with logits_val, y_val, logits_test, y_test. About ten minutes on one thread.
"""

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np

from glayers import GlayersWarning, Predictions, metrics, read_parts
from glayers.activations import log_softmax
from glayers.calibrators.shared_g_layers import CLASS_PARTS, Task
from glayers.fitting.shared import STRENGTHS, SharedFit, average_over_grid, shared_rows, shared_step
from glayers.serving.predictor import apply_map

RESULTS = Path(__file__).parent / "results" / "context_penalty.csv"
COLUMNS = ["set", "rows", "split", "part", "penalties", "nll", "ks"]
PARTS = ("temperature", "matrix", "g-layers")
KINDS = ("none", "one", "own")
MOST_MATRIX_CLASSES = 30  # as in `auto`
SPLITS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    warnings.simplefilter("ignore", GlayersWarning)  # warnings of a part about classes without rows
    lines = []
    for file in sorted(parser.parse_args().logits.glob("*.npz")):
        calibration = next(iter(read_parts(file).values()))
        for split in range(SPLITS):
            lines += one_split(file.stem, calibration, split)
        print(f"{file.stem}: {SPLITS} splits", flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as table:
        csv.writer(table, lineterminator="\n").writerows([COLUMNS, *lines])
    RESULTS.with_suffix(".md").write_text(markdown(lines), encoding="utf-8")
    print(RESULTS.with_suffix(".md").read_text(encoding="utf-8"))


def one_split(name: str, calibration: Predictions, split: int) -> list[list[str]]:
    order = np.random.default_rng(split).permutation(len(calibration))
    fitted_on, scored_on = (calibration.take(half) for half in np.array_split(order, 2))
    lines = []
    for part in PARTS:
        if part == "matrix" and calibration.n_classes > MOST_MATRIX_CLASSES:
            continue
        made = CLASS_PARTS[part](Task(fitted_on, seed=split))
        plain = log_softmax(apply_map(made.map, scored_on.logits))
        rows = shared_rows(np.asarray(made.out_of_fold), fitted_on.labels)
        found = average_over_grid(rows, np.ones(len(fitted_on)))
        weights = (np.zeros_like(found.theta), of_one_penalty(found), found.theta)
        for kind, theta in zip(KINDS, weights, strict=True):
            moved = shared_step(rows, theta)(plain)
            nll = -float(moved[np.arange(len(moved)), scored_on.labels].mean())
            ks = 100 * metrics.ks(np.exp(moved), scored_on.labels)
            lines.append([name, str(len(fitted_on)), str(split), part, kind, f"{nll:.6f}", f"{ks:.4f}"])
    return lines


def of_one_penalty(found: SharedFit) -> np.ndarray:
    """The average over the first penalties, which treat all weights alike, and over no correction."""
    alike = [*range(len(STRENGTHS)), len(found.chances) - 1]
    return np.asarray(found.chances[alike] @ found.fits[alike] / found.chances[alike].sum())


def markdown(lines: list[list[str]]) -> str:
    text = [
        "Made by `python experiments/context_penalty.py --logits DIR`: halves of calibration rows, fitted on one and "
        f"scored on the other, {SPLITS} splits a set; means over sets, and the difference that a penalty of its own "
        "for the context makes, ± its standard error over sets.",
        "",
        "| | part | sets | no correction | one penalty for all weights | one of its own for the context | difference |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for metric, title, digits in ((5, "NLL", 5), (6, "KS, percent", 3)):
        for part in PARTS:
            mine = [line for line in lines if line[3] == part]
            n_sets = len({line[0] for line in mine})
            by_set = np.array([float(line[metric]) for line in mine]).reshape(n_sets, SPLITS, len(KINDS)).mean(axis=1)
            gained = by_set[:, 2] - by_set[:, 1]
            cells = [title, part, str(n_sets), *(f"{value:.{digits}f}" for value in by_set.mean(axis=0))]
            cells.append(f"{gained.mean():+.{digits}f} ± {gained.std(ddof=1) / n_sets**0.5:.{digits}f}")
            text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    main()
