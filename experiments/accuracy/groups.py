"""Rows of several networks, as groups -> what one correction per group brings, when groups differ and when they do not.

Run: python -m experiments.accuracy.groups --logits DIR (writes results/groups.md)

The groups are four networks with the same classes, a real difference between groups. As a control, the same rows get
groups at random. Only calibration rows are used: some to fit, the others to measure. The calibrators are temperature
scaling for all rows, `GroupCalibrator` with a correction by vector scaling, and vector scaling for each group alone.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from experiments.stamp import write_page
from scipy import stats

from glayers import GroupCalibrator, TemperatureScaling, VectorScaling, metrics
from glayers.text_tables import markdown_table

RESULTS = Path(__file__).parents[1] / "results" / "groups.md"
NETWORKS = {
    "10 classes": ("cifar10_densenet40_paper", "cifar10_resnet110", "cifar10_resnet20", "cifar10_resnet50_focal"),
    "100 classes": ("cifar100_densenet121", "cifar100_resnet110", "cifar100_resnet20", "cifar100_vgg16"),
}
SIZES, DRAWS, MEASURED = (100, 400, 1_600), 5, 2_000  # rows per group to fit and to measure
METHODS = ("temperature for all", "GroupCalibrator", "vector for each group")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    cells = [["networks", "groups", "rows per group", *METHODS, "GroupCalibrator less temperature"]]
    for name, sets in NETWORKS.items():
        held = [np.load(options.logits / f"{each}.npz") for each in sets]
        for kind in ("networks", "random"):
            for rows in SIZES:
                found = np.array([losses(held, kind == "networks", rows, draw) for draw in range(DRAWS)])
                numbers = [f"{value:.4f}" for value in found.mean(axis=0)]
                cells.append([name, kind, f"{rows:,}", *numbers, interval(found[:, 1] - found[:, 0])])
                print(cells[-1], flush=True)
    text = f"""# One correction per group

Made by `python -m experiments.accuracy.groups --logits DIR`. Mean NLL over {DRAWS} draws on {4 * MEASURED:,}
calibration rows that the fits have not seen. Plus or minus: half of a 95 % interval for the mean over draws, by
Student's t. Groups are four networks, or random groups of the same rows.

{markdown_table(cells, 2)}
"""
    write_page(RESULTS, text)


def losses(held: list[Any], differ: bool, rows: int, draw: int) -> list[float]:
    """Return the NLL of the three methods."""
    rng = np.random.default_rng(draw)
    orders = [rng.permutation(len(each["y_val"]))[: rows + MEASURED] for each in held]
    logits = np.concatenate([each["logits_val"][order] for each, order in zip(held, orders, strict=True)])
    labels = np.concatenate([each["y_val"][order] for each, order in zip(held, orders, strict=True)])
    fit = np.concatenate([np.arange(len(order)) < rows for order in orders])
    groups = np.repeat(np.arange(len(held)), [len(order) for order in orders])
    if not differ:
        groups = rng.integers(len(held), size=len(groups))
    both = GroupCalibrator(TemperatureScaling(), VectorScaling(strength=1.0)).fit(logits[fit], labels[fit], groups[fit])
    alone = np.empty((len(labels), logits.shape[1]))
    for group in np.unique(groups):
        own = groups == group
        alone[own] = VectorScaling(strength=1.0).fit(logits[own & fit], labels[own & fit]).predict_proba(logits[own])
    made = (both.common_.predict_proba(logits), both.predict_proba(logits, groups), alone)
    return [metrics.nll(np.clip(p, 1e-300, None)[~fit], labels[~fit]) for p in made]


def interval(values: np.ndarray) -> str:
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.4f} ± {half:.4f}"


if __name__ == "__main__":
    main()
