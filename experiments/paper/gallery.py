"""The code of docs/figures.md, and committed results -> the figures of that page.

Run: python -m experiments.paper.gallery [--output docs/figures] [--only sizes training]
"""

import argparse
import contextlib
import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

PAGE = Path(__file__).parents[2] / "docs" / "figures.md"
RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("docs/figures"))
    parser.add_argument("--only", nargs="+", choices=["page", *PICTURES], default=["page", *PICTURES])
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    for name in chosen.only:
        if name == "page":
            draw_page(chosen.output)
        else:
            file = chosen.output / f"{name}.png"
            PICTURES[name]().savefig(file, dpi=170, metadata={"Software": None}, pil_kwargs={"optimize": True})


def draw_page(folder: Path) -> None:
    """Run the code of the page, which saves its figures in the folder."""
    session: dict[str, Any] = {}
    with contextlib.chdir(folder):
        for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            exec(compile(code, str(PAGE), "exec"), session)  # noqa: S102  # code of our own page


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


PICTURES: dict[str, Callable[[], Figure]] = {"sizes": depths, "training": starts}

if __name__ == "__main__":
    main()
