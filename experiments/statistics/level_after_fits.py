"""Simulated truths -> how often calibrators are called worse than their calibration rows allow.

Writes experiments/results/level_after_fits.csv and the same as Markdown. Logits are normal, and the truth is one scale
and one shift per class ("per class"), in addition a matrix ("matrix"), or bends that vector scaling cannot learn
("bent"). A calibrator whose family holds the truth should be rejected in at most 5 % of the draws, although tests of
perfect calibration reject it much more often. About five minutes on one core.

    python -m experiments.statistics.level_after_fits
"""

import csv
import warnings
from pathlib import Path

import numpy as np
from experiments.stamp import write_page

from glayers import AutoCalibrator, Predictions, VectorScaling
from glayers.metrics import calibration_test

RESULTS = Path(__file__).parents[1] / "results" / "level_after_fits.csv"
CLASSES, TEST_ROWS, DRAWS = 10, 5_000, 60
# Truth, method, calibration rows, and whether the family holds the truth.
CELLS = [
    ("per class", "vector", 500, True),
    ("per class", "vector", 5_000, True),
    ("per class", "auto", 2_000, True),
    ("matrix", "auto", 2_000, True),
    ("matrix", "vector", 5_000, False),
    ("bent", "vector", 5_000, False),
]
COLUMNS = ["truth", "method", "calibration_rows", "family_holds_truth", "draws", "not_perfect", "worse_than_allowed"]


def main() -> None:
    lines = []
    for cell in CELLS:
        lines.append([*cell, DRAWS, *measure(*cell[:3])])
        print(*lines[-1], flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
    table = ["| " + " | ".join(name.replace("_", " ") for name in COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    table += ["| " + " | ".join(map(str, line)) + " |" for line in lines]
    text = (
        "Made by `python -m experiments.statistics.level_after_fits`: percent of draws in which the calibration test "
    )
    text += f"of {TEST_ROWS:,} test rows finds that a calibrator is not perfect, and that it is worse than its "
    text += "calibration rows allow. `auto` is fitted without g-layers.\n\n"
    write_page(RESULTS.with_suffix(".md"), text + "\n".join(table) + "\n")


def measure(truth: str, method: str, n_rows: int) -> list[str]:
    """Return the percent of draws with either verdict."""
    not_perfect = 0
    worse = 0
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        function = true_function(truth, rng)
        calibration, test = (rows_of(function, n, rng) for n in (n_rows, TEST_ROWS))
        calibrator = VectorScaling() if method == "vector" else AutoCalibrator(time_budget=0, progress=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = calibrator.fit_predictions(calibration)
        found = calibration_test(
            fitted.apply(test), calibrator=fitted, before=test, n_resamples=199, random_state=draw, progress=False
        )
        not_perfect += found.rejected
        worse += found.verdict == "not calibrated"
    return [f"{100 * count / DRAWS:.0f}" for count in (not_perfect, worse)]


def true_function(truth: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrix, the shifts, and the strength of bends."""
    matrix = np.diag(rng.uniform(0.6, 1.4, CLASSES))
    if truth == "matrix":
        matrix += rng.normal(size=(CLASSES, CLASSES)) / 10
    bends = np.full(CLASSES, 0.7 if truth == "bent" else 0.0)
    return matrix, rng.normal(size=CLASSES) / 2, bends


def rows_of(function: tuple[np.ndarray, np.ndarray, np.ndarray], n_rows: int, rng: np.random.Generator) -> Predictions:
    """Return overconfident logits with labels of the true model."""
    matrix, shifts, bends = function
    z = 2 * rng.normal(size=(n_rows, CLASSES))
    scores = z @ matrix + shifts + bends * np.abs(z)
    labels = (scores + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Predictions(1.5 * z, labels)


if __name__ == "__main__":
    main()
