"""Simulated models whose calibration gap is known -> what `calibration_gap` finds: results/gap_simulation.csv and .md.

The model predicts softmax(m) with Gaussian logits m, each row centred, so that its probabilities determine m. Labels
are drawn from softmax(T(m)): the truth is a function of the prediction, so T is the best possible g. The gap is the
mean divergence of the two, measured on a million rows. A line is one run, with its own labels and logits; runs in the
file are not repeated. Takes forty minutes on one thread, mostly for AutoCalibrator; `--times 2` doubles the runs.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from experiments.stamp import write_page

from glayers import TemperatureScaling, VectorScaling, calibration_gap
from glayers.activations import log_softmax
from glayers.calibrators import Calibrator, OrderPreserving

RESULTS = Path(__file__).parents[1] / "results" / "gap_simulation.csv"
SCALE = 2.0  # of the logits
LARGE, AT_ONCE = 1_000_000, 100_000
CALIBRATED = "calibrated"
LEVEL = 0.05


def by_class(logits: np.ndarray) -> np.ndarray:
    """One scale and one shift per class."""
    k = logits.shape[1]
    return logits * np.linspace(0.8, 1.1, k) + np.linspace(-0.3, 0.3, k)


# From the prediction to the truth. Squashed: the model predicts 2 asinh(0.8 z) for z.
TRUTHS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    CALIBRATED: lambda m: m,
    "temperature 1.3 off": lambda m: m / 1.3,
    "shifted and scaled by class": by_class,
    "squashed": lambda m: 2 * np.sinh(m / 2) / 1.6,
}
AUTO, LIGHT = "auto", "light"
TITLES = {AUTO: "AutoCalibrator, the default", LIGHT: "A light g of a family that holds the truth, or nearly"}
# A family that contains the truth, far cheaper than all families together.
LIGHT_G: dict[str, Callable[[], Calibrator]] = {
    CALIBRATED: TemperatureScaling,
    "temperature 1.3 off": TemperatureScaling,
    "shifted and scaled by class": VectorScaling,
    "squashed": OrderPreserving,
}


class Cell(NamedTuple):
    """The g, the model, and the numbers of classes and rows."""

    g: str
    model: str
    classes: int
    rows: int


class Run(NamedTuple):
    """One run of a cell: its true gaps, and the estimates."""

    g: str
    model: str
    classes: int
    rows: int
    run: int
    log_gap: float
    log_found: float
    log_error: float
    log_p: float
    log_cost: float

    @property
    def cell(self) -> Cell:
        """The cell of this run."""
        return Cell(*self[:4])


# Each run makes five fits. They take 7 to 50 s with auto, and a tenth of that or less with the light methods.
RUNS = {
    Cell(LIGHT, model, k, n): 60 if LIGHT_G[model] is TemperatureScaling else {2_000: 10, 10_000: 3}[n]
    for k in (2, 3, 10)
    for n in (2_000, 10_000)
    for model in TRUTHS
} | {
    Cell(AUTO, model, k, n): runs
    for (k, n), runs in {
        (2, 2_000): 10,
        (3, 2_000): 10,
        (10, 2_000): 4,
        (2, 10_000): 3,
        (3, 10_000): 3,
        (10, 10_000): 1,
    }.items()
    for model in TRUTHS
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1, help="as many times the runs of every cell")
    parser.add_argument("--table", action="store_true", help="only write the table from the csv")
    settings = parser.parse_args()
    if not settings.table:
        fill(settings.times)
    write_page(RESULTS.with_suffix(".md"), markdown(sorted(read(), key=order)))
    print(RESULTS.with_suffix(".md").read_text(encoding="utf-8"))


def fill(times: int) -> None:
    """Go round the cells, so that all have about as many runs whenever it stops."""
    done = {(found.cell, found.run) for found in read()}
    for run in range(times * max(RUNS.values())):
        for cell, runs in RUNS.items():
            if run < times * runs and (cell, run) not in done:
                began = time.perf_counter()
                found = one_run(cell, run)
                write(found)
                seconds = time.perf_counter() - began
                print(f"{cell}, {run}: {found.log_found:.4f} of {found.log_gap:.4f}, {seconds:.0f} s", flush=True)


def one_run(cell: Cell, run: int) -> Run:
    rng = np.random.default_rng([list(TRUTHS).index(cell.model), cell.classes, cell.rows, run])
    logits = centred(rng, cell.rows, cell.classes)
    labels = (TRUTHS[cell.model](logits) + rng.gumbel(size=logits.shape)).argmax(axis=1)
    found = calibration_gap(logits, labels, calibrator=LIGHT_G[cell.model]() if cell.g == LIGHT else None)
    truth = true_gap(cell.model, cell.classes)
    return Run(*cell, run, truth, found.calibration, found.standard_error, found.p_value, found.cost)


@cache
def true_gap(model: str, classes: int) -> float:
    """The mean divergence of truth and prediction."""
    rng = np.random.default_rng(classes)
    total = 0.0
    for _ in range(LARGE // AT_ONCE):
        logits = centred(rng, AT_ONCE, classes)
        said, true = log_softmax(logits), log_softmax(TRUTHS[model](logits))
        total += (np.exp(true) * (true - said)).sum()
    return float(total / LARGE)


def centred(rng: np.random.Generator, rows: int, classes: int) -> np.ndarray:
    logits = SCALE * rng.normal(size=(rows, classes))
    return logits - logits.mean(axis=1, keepdims=True)


def write(found: Run) -> None:
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        line = [f"{value:.6g}" if isinstance(value, float) else value for value in found]
        csv.writer(file, lineterminator="\n").writerows([Run._fields, line] if new else [line])


def read() -> list[Run]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(encoding="utf-8") as file:
        return [
            Run(
                row["g"],
                row["model"],
                *(int(row[name]) for name in Run._fields[2:5]),
                *(float(row[name]) for name in Run._fields[5:]),
            )
            for row in csv.DictReader(file)
        ]


def order(found: Run) -> tuple[object, ...]:
    return found.g, list(TRUTHS).index(found.model), found.classes, found.rows


def markdown(runs: list[Run]) -> str:
    lines = ["Made by `python -m experiments.statistics.gap_simulation`.", "", *(sentence(runs, g) for g in TITLES)]
    for g, title in TITLES.items():
        lines += ["", f"## {title}", "", *table([run for run in runs if run.g == g])]
    return "\n".join(lines) + "\n"


def sentence(runs: list[Run], g: str) -> str:
    """Count over all cells of a g how often the claims hold."""
    mine = [run for run in runs if run.g == g]
    off, right = ([run for run in mine if (run.model == CALIBRATED) is same] for same in (False, True))
    return (
        f"- {g}: within two standard errors of the true gap in {shares(off, within_log)} of the runs with a gap "
        f"({len(off)} runs), and for calibrated models in {shares(right, within_log)} ({len(right)}); of calibrated "
        f"models {shares(right, lambda run: run.log_p < LEVEL)} significant at 5 percent; of the others "
        f"{shares(off, lambda run: run.log_p < LEVEL)}. The paired error alone would cover "
        f"{shares(off, within_paired)}, and of calibrated models {shares(right, within_paired)}."
    )


def table(runs: list[Run]) -> list[str]:
    lines = [
        "| model | classes | rows | runs | true gap | found, mean | its deviation | standard error, mean "
        "| cost, mean | within 2 | p < 0.05 |",
        "|---|" + "---:|" * 10,
    ]
    for cell, its in groupby(runs, key=lambda run: run.cell):
        here = list(its)
        found = [run.log_found for run in here]
        numbers = [here[0].log_gap, np.mean(found), np.std(found)]
        numbers += [np.mean([run.log_error for run in here]), np.mean([run.log_cost for run in here])]
        counted = [within_log, lambda run: run.log_p < LEVEL]
        cells = [cell.model, f"{cell.classes}", f"{cell.rows:,}", f"{len(here)}", *(f"{x:.4f}" for x in numbers)]
        cells += [shares(here, test) for test in counted]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def within_log(run: Run) -> bool:
    return abs(run.log_found - run.log_gap) <= 2 * run.log_error


def within_paired(run: Run) -> bool:
    """Whether the standard error of the paired difference alone would cover the true gap."""
    paired = max(0.0, run.log_error**2 - run.log_cost**2 - (4 / run.rows) ** 2) ** 0.5
    return abs(run.log_found - run.log_gap) <= 2 * paired + 1e-7  # the file has six digits


def shares(runs: Iterable[Run], test: Callable[[Run], bool]) -> str:
    passed = [test(run) for run in runs]
    return f"{100 * np.mean(passed):.0f} %" if passed else "-"


if __name__ == "__main__":
    main()
