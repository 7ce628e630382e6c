"""Lines of results -> a csv in the order of the paper, and back; and the results printed in the paper."""

import csv
import io
from pathlib import Path
from typing import NamedTuple, TypeAlias

from experiments.paper.reproduction.collection import SOURCES
from experiments.paper.reproduction.methods import METHODS, METRICS, Cell, Found

from glayers.files import write_whole

PAPER = Path(__file__).parents[1] / "paper_results.csv"
COLUMNS = ("dataset", "network", "method", "seed", "calibration_rows", "test_rows", *METRICS, *Found._fields, "note")


class Key(NamedTuple):
    """The fit of a line."""

    dataset: str
    network: str
    method: str
    seed: int


Cells: TypeAlias = dict[Key, Cell]
# The results printed in the paper, by dataset, network, method and metric.
Figures: TypeAlias = dict[tuple[str, str, str, str], float]


def read_cells(results: Path) -> Cells:
    """Return the lines of the file, or none if there is no file yet."""
    if not results.exists():
        return {}
    with results.open(encoding="utf-8", newline="") as file:
        return {
            Key(cell["dataset"], cell["network"], cell["method"], int(cell["seed"])): cell
            for cell in csv.DictReader(file)
        }


def write_cells(results: Path, cells: Cells) -> None:
    """Write all lines again, so that the file does not depend on the order of fits or on interruptions."""
    sets, methods = [source[:2] for source in SOURCES], list(METHODS)
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    for key in sorted(cells, key=lambda key: (sets.index(key[:2]), methods.index(key.method), key.seed)):
        table.writerow(cells[key])
    results.parent.mkdir(parents=True, exist_ok=True)
    write_whole(results, text.getvalue().encode())


def read_figures() -> Figures:
    """Return every number of the paper's tables."""
    with PAPER.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {(r["dataset"], r["network"], r["method"], r["metric"]): float(r["value"]) for r in rows}
