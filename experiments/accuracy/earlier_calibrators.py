"""Pairs of sets of logits -> what the calibrator of one network brings to another one with few calibration rows.

Writes experiments/results/earlier_calibrators.csv and the same as Markdown. DIR holds .npz files with logits_val,
y_val, logits_test, y_test. The earlier calibrator is fitted to all calibration rows of one set, and `auto` to the first
rows of a random order of those of another set, without and with `prior=`. Both leave out g-layers. No test row of a
pair is a calibration row of the other set.
"""

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
from experiments.logit_files import read_both
from experiments.stamp import write_page

from glayers import AutoCalibrator, Predictions, metrics

RESULTS = Path(__file__).parents[1] / "results" / "earlier_calibrators.csv"
SIZES, DRAWS = (100, 250, 500), 5
COLUMNS = ["kind", "set", "prior", "rows", "nll_without", "nll_with", "weight_of_the_prior"]
# Same data and the same kind of training, the same data with another kind of training, and nothing in common.
PAIRS = (
    ("related", "cifar100_resnet110", "cifar100_densenet121"),
    ("related", "cifar100_densenet121", "cifar100_resnet110"),
    ("related", "cifar100_vgg16", "cifar100_resnet20"),
    ("related", "cifar10_resnet50_focal", "cifar10_resnet110"),
    ("same data", "cifar100_vgg16", "cifar100_densenet121"),
    ("same data", "cifar100_resnet20", "cifar100_resnet110"),
    ("same data", "cifar10_resnet20", "cifar10_resnet110"),
    ("unrelated", "emotion6_llama2_13b", "mmbench6_qwen_vl"),
    ("unrelated", "mmbench6_qwen_vl", "emotion6_llama2_13b"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    folder = parser.parse_args().logits
    lines = []
    for kind, name, other in PAIRS:
        earlier = quiet(read_both(folder / f"{other}.npz")[0])
        calibration, test = read_both(folder / f"{name}.npz")
        for size in SIZES:
            found = [one(calibration, test, size, draw, earlier) for draw in range(DRAWS)]
            lines.append([kind, name, other, size, *(f"{number:.4f}" for number in np.mean(found, axis=0))])
            print(*lines[-1], flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
    write_page(RESULTS.with_suffix(".md"), as_markdown(lines))


def quiet(rows: Predictions, earlier: AutoCalibrator | None = None) -> AutoCalibrator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoCalibrator(time_budget=0, progress=False, prior=earlier).fit_predictions(rows)


def one(calibration: Predictions, test: Predictions, size: int, draw: int, earlier: AutoCalibrator) -> list[float]:
    """Return the test NLL without and with the earlier calibrator, and its weight."""
    rows = calibration.take(np.random.default_rng(draw).permutation(len(calibration))[:size])
    fits = [quiet(rows), quiet(rows, earlier)]
    losses = [metrics.nll(Predictions(each.transform(test.logits), test.labels)) for each in fits]
    return [*losses, fits[1].mixture_weights_.get("prior 1", 0.0)]


def as_markdown(lines: list[list[object]]) -> str:
    made = "Made by `python -m experiments.accuracy.earlier_calibrators --logits DIR`."
    about = f"{made} Test NLL, means over five draws of rows."
    means = []
    for kind in dict.fromkeys(line[0] for line in lines):
        for size in SIZES:
            own = np.array([line[4:6] for line in lines if line[0] == kind and line[3] == size], dtype=float).mean(
                axis=0
            )
            means.append(f"| {kind} | {size} | {own[0]:.4f} | {own[1]:.4f} |")
    table = ["| " + " | ".join(map(str, line)) + " |" for line in lines]
    first = ["| kind | rows | without | with the earlier calibrator |", "|---|---:|---:|---:|", *means]
    second = ["| " + " | ".join(name.replace("_", " ") for name in COLUMNS) + " |", "|---|---|---|---:|---:|---:|---:|"]
    return "\n".join([about, "", *first, "", *second, *table]) + "\n"


if __name__ == "__main__":
    main()
