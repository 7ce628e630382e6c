"""The sample data and committed results -> the figures of docs/figures.md, the same bytes every time.

Run: python -m experiments.paper.gallery [--output docs/figures] [--only ks sizes]
"""

import argparse
import csv
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import glayers
from glayers.arrays import Array
from glayers.metrics import rank
from glayers.report import plots

KINDS = ("reliability", "ks", "errors", "classes")


TWO = ("uncalibrated", "shared-g-layers")
RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("docs/figures"))
    parser.add_argument("--only", nargs="+", choices=list(PICTURES), default=list(PICTURES))
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    for name in chosen.only:
        file = chosen.output / f"{name}.png"
        PICTURES[name]().savefig(file, dpi=170, metadata={"Software": None}, pil_kwargs={"optimize": True})
        print(file)


def of_sample(kind: str, names: tuple[str, ...] = TWO, **choices: Any) -> Figure:
    _, test = glayers.datasets.load_fashion_mnist()
    return plots.figure(kind, {name: calibrated(name) for name in names}, test.labels, **choices)


@cache
def calibrated(name: str) -> Array:
    """Probabilities of the test rows, calibrated by one method."""
    calibration, test = glayers.datasets.load_fashion_mnist()
    if name == "uncalibrated":
        return test.probabilities()
    calibrator = glayers.CALIBRATORS[name]()
    if "random_state" in calibrator.get_params():
        calibrator.set_params(random_state=0)
    return calibrator.fit(calibration.logits, calibration.labels).predict_proba(test.logits)


def depths() -> Figure:
    """The paper's recipe at depths 1 to 5 on its own logits, ten classes and hidden layers of 32, over seeds."""
    n_classes, width = 10, 32
    weights = [n_classes**2, *(2 * n_classes * width + hidden * width**2 for hidden in range(4))]
    columns = {f"g_layers_{depth}": {"depth": depth, "weights": size} for depth, size in enumerate(weights, 1)}
    records = [
        columns[row["method"]] | {"ks": float(row["ks_top1_percent"]), "accuracy": float(row["accuracy_percent"])}
        for row in rows_of("reproduce.csv")
        if row["network"] == "DenseNet 40" and row["dataset"] == "CIFAR-10" and row["method"] in columns
    ]
    from experiments.paper.studies.plots import sizes_figure

    return sizes_figure(records)


def starts() -> Figure:
    """Two starts through training at three layers of three units per class."""
    numbers = ("percent", "nll", "ks", "accuracy")
    records = [
        row | {name: float(row[name]) for name in numbers} | {"start": row["start"].replace("glorot", "Glorot")}
        for row in rows_of("starts.csv")
        if row["depth"] == row["units"] == "3"
    ]
    from experiments.paper.studies.plots import training_figure

    return training_figure(records)


def rows_of(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


PICTURES: dict[str, Callable[[], Figure]] = {
    **{kind: partial(of_sample, kind) for kind in KINDS},
    "ks-rank-2": partial(of_sample, "ks", event=rank(2)),
    "methods": partial(of_sample, "methods", ("uncalibrated", "temperature", "vector", "shared-g-layers")),
    "sizes": depths,
    "training": starts,
}

if __name__ == "__main__":
    main()
