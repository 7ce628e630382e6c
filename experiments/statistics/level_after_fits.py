"""Simulated truths -> how often calibrators are called worse than their calibration rows allow.

Writes experiments/results/level_after_fits.csv and the same as Markdown. Logits are normal, and rows are centred, so
that no truth depends on what softmax forgets. The truth is a temperature, one scale and one shift per class ("per
class"), in addition a matrix ("matrix"), or in the place of the matrix bends that no linear map can learn ("bent"). A
calibrator whose family holds the truth should be rejected in at most 5 % of the draws, although tests of perfect
calibration reject it much more often. About an hour on one core.

    python -m experiments.statistics.level_after_fits
"""

import csv
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from experiments.stamp import write_page

from glayers import AutoCalibrator, MatrixScaling, Predictions, TemperatureScaling, VectorScaling
from glayers.calibrators.base import Calibrator
from glayers.metrics import calibration_test

RESULTS = Path(__file__).parents[1] / "results" / "level_after_fits.csv"
CLASSES, TEST_ROWS = 10, 5_000
DRAWS = {True: 400, False: 100}  # where the family holds the truth, and where it does not
RESAMPLES = 79  # the fewest with which four tests together have a level of exactly 5 %
METHODS: dict[str, Callable[[], Calibrator]] = {
    "temperature": TemperatureScaling,
    "vector": VectorScaling,
    "matrix": MatrixScaling,
    "auto": lambda: AutoCalibrator(time_budget=0, progress=False),
}
HELD = {"temperature": "temperature", "vector": "per class", "matrix": "matrix", "auto": "matrix"}
NOT_HELD = [("temperature", "per class"), ("vector", "matrix"), ("vector", "bent"), ("matrix", "bent")]
# Truth, method, calibration rows, and whether the family holds the truth.
CELLS = [(truth, method, n_rows, True) for method, truth in HELD.items() for n_rows in (100, 500, 2_000, 5_000)]
CELLS += [(truth, method, n_rows, False) for method, truth in NOT_HELD for n_rows in (500, 5_000, 20_000)]
COLUMNS = ["truth", "method", "calibration_rows", "family_holds_truth", "draws", "not_perfect", "worse_than_allowed"]


def main() -> None:
    lines = []
    for cell in CELLS:
        lines.append([*cell, DRAWS[cell[3]], *measure(*cell)])
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


def measure(truth: str, method: str, n_rows: int, held: bool) -> list[str]:
    """Return the percent of draws with either verdict."""
    found = [one(truth, method, n_rows, draw) for draw in range(DRAWS[held])]
    return [f"{share:.1f}" for share in 100 * np.mean(found, axis=0)]


def one(truth: str, method: str, n_rows: int, draw: int) -> tuple[bool, bool]:
    """Return whether one fit is found not to be perfect, and to be worse than allowed."""
    rng = np.random.default_rng(draw)
    function = true_function(truth, rng)
    calibration, test = (rows_of(function, n, rng) for n in (n_rows, TEST_ROWS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = METHODS[method]().fit_predictions(calibration)
    after = fitted.apply(test)
    found = calibration_test(
        after, calibrator=fitted, before=test, n_resamples=RESAMPLES, random_state=draw, progress=False
    )
    return found.rejected, found.verdict == "not calibrated"


def true_function(truth: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrix, the shifts, and the strength of bends."""
    if truth == "temperature":
        return rng.uniform(0.6, 1.4) * np.eye(CLASSES), np.zeros(CLASSES), np.zeros(CLASSES)
    matrix = np.diag(rng.uniform(0.6, 1.4, CLASSES))
    if truth == "matrix":
        matrix += rng.normal(size=(CLASSES, CLASSES)) / 10
    bends = np.full(CLASSES, 0.7 if truth == "bent" else 0.0)
    return matrix, rng.normal(size=CLASSES) / 2, bends


def rows_of(function: tuple[np.ndarray, np.ndarray, np.ndarray], n_rows: int, rng: np.random.Generator) -> Predictions:
    """Return overconfident logits with labels of the true model."""
    matrix, shifts, bends = function
    z = 2 * rng.normal(size=(n_rows, CLASSES))
    z -= z.mean(axis=1, keepdims=True)
    scores = z @ matrix + shifts + bends * np.abs(z)
    labels = (scores + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Predictions(1.5 * z, labels)


if __name__ == "__main__":
    main()
