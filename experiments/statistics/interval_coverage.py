"""Worlds with a known truth -> how often 90 % intervals for single probabilities hold the true probability.

Writes experiments/results/interval_coverage.csv and the same as Markdown. Rows have five classes. The true logits are
those of the network, or one scale and one shift per class, a matrix, or a bend of them; the network is overconfident by
a factor of 1.5. Coverage is that of the predicted class, and of all classes with a probability of more than 1 %.
"""

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
from experiments.stamp import write_page

from glayers import AutoCalibrator
from glayers.activations import softmax

RESULTS = Path(__file__).parents[1] / "results" / "interval_coverage.csv"
CLASSES, LEVEL, TEST_ROWS = 5, 0.9, 500
SIZES = {100: 20, 1_000: 20, 10_000: 5}  # calibration rows -> repetitions
COLUMNS = ["truth", "rows", "coverage_of_the_predicted_class", "coverage_of_all_classes", "mean_half_width"]


def main() -> None:
    lines = []
    for truth in TRUTHS:
        for rows, repetitions in SIZES.items():
            found = np.mean([one(truth, rows, seed) for seed in range(repetitions)], axis=0)
            lines.append([truth, rows, *(f"{number:.3f}" for number in found)])
            print(*lines[-1], flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
    table = ["| " + " | ".join(words) + " |" for words in ([name.replace("_", " ") for name in COLUMNS], ["---"] * 5)]
    table += ["| " + " | ".join(map(str, line)) + " |" for line in lines]
    text = "Made by `python -m experiments.statistics.interval_coverage`. Intervals are meant to cover 90 %.\n\n"
    write_page(RESULTS.with_suffix(".md"), text + "\n".join(table) + "\n")


def world(truth: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return logits of the network, labels, and the true probabilities."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(rows, CLASSES))
    z -= z.mean(axis=1, keepdims=True)
    true = TRUTHS[truth](z)
    labels = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    return 1.5 * z, labels, softmax(true)


def one(truth: str, rows: int, seed: int) -> tuple[float, float, float]:
    """Return the coverage of the predicted class, that of all classes, and the mean half width of the former."""
    z, labels, _ = world(truth, rows, seed)
    new, _, p_true = world(truth, TEST_ROWS, 1_000 + seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        auto = AutoCalibrator(time_budget=0, progress=False).fit(z, labels)
    low, high = auto.predict_interval(new, LEVEL)
    p = auto.predict_proba(new)
    inside = (low <= p_true) & (p_true <= high)
    top = np.arange(len(p)), p.argmax(axis=1)
    return float(inside[top].mean()), float(inside[p > 0.01].mean()), float((high - low)[top].mean() / 2)


_fixed = np.random.default_rng(0)
_scale, _shift = 1 + 0.3 * _fixed.normal(size=CLASSES), 0.5 * _fixed.normal(size=CLASSES)
_matrix = np.eye(CLASSES) + 0.2 * _fixed.normal(size=(CLASSES, CLASSES))
TRUTHS = {
    "calibrated up to a temperature": lambda z: z,
    "scale and shift": lambda z: z * _scale + _shift,
    "matrix": lambda z: z @ _matrix,
    "bend": lambda z: np.sign(z) * np.abs(z) ** 1.3 / 1.3,
}


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # no options but --help
    main()
