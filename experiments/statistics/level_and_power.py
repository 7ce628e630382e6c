"""Simulated models, calibrated and not -> how often each test rejects them at 5 percent: results/level_and_power.csv.

True probabilities are softmax(z) with independent Gaussian logits z; the model predicts softmax(sharpness * z):
calibrated at 1, its temperature off by a factor of 1.2 at 1.2. Each cell has ten sets of predictions, each with many
draws of labels; with groups, every five rows share one draw. A finished cell is written at once and skipped in later
runs. Five minutes on one thread.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.stamp import write_page

from glayers.metrics import classwise_ks_test, ece_test, ks_test

RESULTS = Path(__file__).parents[1] / "results" / "level_and_power.csv"
COLUMNS = ["test", "classes", "rows", "sharpness", "repetitions", "rejected"]
SCALES = {2: 2.0, 10: 3.0, 100: 4.0}  # of the true logits: accuracies of 83, 66 and 56 percent
ROWS = (500, 2_000, 10_000, 30_000)  # the last are drawn in cells
CALIBRATED, OFF = 1.0, 1.2
LEVEL, WANTED_POWER = 0.05, 0.9
DRAWS = 99  # (DRAWS + 1) * LEVEL is whole, so that the test can have exactly this level; more draws add little power
MODELS = 10
GROUP = 5


class Cell(NamedTuple):
    """The numbers of classes and rows, and the sharpness of the model."""

    classes: int
    rows: int
    sharpness: float


class Sample(NamedTuple):
    """The input of the tests: rows and the settings of the draws."""

    p: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    draws: dict[str, Any]


class Plan(NamedTuple):
    """The p-value of a test, and how often to compute it for calibrated and other models, by number of rows."""

    p_value: Callable[[Sample], float]
    calibrated: dict[int, int]
    off: dict[int, int]
    grouped: bool = False

    def repetitions(self, cell: Cell) -> int:
        """The number of repetitions of a cell, 0 if the plan does not name its number of rows."""
        return (self.calibrated if cell.sharpness == CALIBRATED else self.off).get(cell.rows, 0)


OFTEN = {500: 1000, 2_000: 1000, 10_000: 200, 30_000: 100}  # a rate of 5 percent is known to 0.7, 1.5 and 2.2
SELDOM = {500: 100, 2_000: 50, 10_000: 20}
PLANS = {
    "KS": Plan(lambda s: ks_test(s.p, s.y, **s.draws).p_value, OFTEN, SELDOM),
    "ECE": Plan(lambda s: ece_test(s.p, s.y, **s.draws).p_value, OFTEN, SELDOM),
    "KS of every class, mean": Plan(
        lambda s: classwise_ks_test(s.p, s.y, **s.draws).p_value,
        {500: 300, 2_000: 200, 10_000: 40},
        {500: 100, 2_000: 50},
    ),
    "KS, groups ignored": Plan(lambda s: ks_test(s.p, s.y, **s.draws).p_value, {2_000: 200}, {}, grouped=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="only write the table from the csv")
    parser.add_argument("--only", default="", help="only tests whose names contain this, so that two runs may share")
    arguments = parser.parse_args()
    if not arguments.table:
        fill(arguments.only)
    write_page(RESULTS.with_suffix(".md"), markdown(read()))
    print(RESULTS.with_suffix(".md").read_text(encoding="utf-8"))


def fill(only: str) -> None:
    done = set(read())
    cells = [Cell(k, n, sharpness) for sharpness in (OFF, CALIBRATED) for n in ROWS for k in SCALES]
    for name, plan in PLANS.items():
        for cell in cells if only in name else ():
            repetitions = plan.repetitions(cell)
            if repetitions and (name, cell) not in done:
                began = time.perf_counter()
                rejected = sum(plan.p_value(s) <= LEVEL for s in samples(cell, repetitions, plan.grouped))
                write([name, *cell, repetitions, rejected])
                print(f"{name}, {cell}: {rejected} of {repetitions}, {time.perf_counter() - began:.0f} s", flush=True)


def samples(cell: Cell, repetitions: int, grouped: bool) -> Iterator[Sample]:
    """Yield labels drawn from the truth, and the model's probabilities; the same ones for every test."""
    rng = np.random.default_rng([cell.classes, cell.rows])
    groups = np.arange(cell.rows) // GROUP
    for _ in range(MODELS):
        logits = SCALES[cell.classes] * rng.normal(size=(cell.rows, cell.classes))
        truth, claimed = softmax(logits), softmax(cell.sharpness * logits)
        reached = truth.cumsum(axis=1)
        for _ in range(repetitions // MODELS):
            u = rng.random(cell.rows)
            labels = (reached < (u[groups] if grouped else u)[:, None]).sum(axis=1)
            draws = {"n_resamples": DRAWS, "random_state": int(rng.integers(2**32))}
            yield Sample(claimed, np.minimum(labels, cell.classes - 1), groups, draws)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def write(row: list[object]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, row] if new else [row])


def read() -> dict[tuple[str, Cell], tuple[int, int]]:
    """How often each test of each cell was repeated, and how often it rejected."""
    if not RESULTS.exists():
        return {}
    with RESULTS.open(encoding="utf-8") as file:
        return {
            (row["test"], Cell(int(row["classes"]), int(row["rows"]), float(row["sharpness"]))): (
                int(row["repetitions"]),
                int(row["rejected"]),
            )
            for row in csv.DictReader(file)
        }


def markdown(found: dict[tuple[str, Cell], tuple[int, int]]) -> str:
    """Rejections in percent, with their standard errors."""
    shares = {key: (rejected / repetitions, repetitions) for key, (repetitions, rejected) in found.items()}
    level = {key: share for key, share in shares.items() if key[1].sharpness == CALIBRATED}
    power = {key: share for key, share in shares.items() if key[1].sharpness == OFF}
    fair = {key: share for key, share in level.items() if not key[0].endswith("ignored")}
    strange = [said(key, share) for key, share in fair.items() if abs(share[0] - LEVEL) > 3 * error_of(share[1])]
    weak = [said(key, share) for key, share in power.items() if key[1].rows == 10_000 and share[0] <= WANTED_POWER]
    return "\n".join(
        [
            "Calibrated models rejected at 5 percent, in percent:\n",
            *table(level),
            f"\nWithin three standard errors of 5: {len(fair) - len(strange)} of {len(fair)}. "
            f"Outside: {'; '.join(strange) or 'none'}. Each test drew {DRAWS} times.",
            "\nModels with a temperature off by 1.2 rejected at 5 percent, in percent:\n",
            *table(power),
            f"\nNot above 90 at 10,000 rows: {'; '.join(weak) or 'none'}.\n",
        ]
    )


def table(shares: dict[tuple[str, Cell], tuple[float, int]]) -> list[str]:
    columns = sorted({(key[1].classes, key[1].rows) for key in shares})
    lines = [
        "| test | " + " | ".join(f"{k} classes, {n:,} rows" for k, n in columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for name in PLANS:
        mine = {(key[1].classes, key[1].rows): share for key, share in shares.items() if key[0] == name}
        if mine:
            lines.append(f"| {name} | " + " | ".join(shown(mine.get(column)) for column in columns) + " |")
    return lines


def error_of(repetitions: int) -> float:
    """The standard error of a rate of 5 percent."""
    return float(np.sqrt(LEVEL * (1 - LEVEL) / repetitions))


def shown(share: tuple[float, int] | None) -> str:
    if share is None:
        return ""
    return f"{100 * share[0]:.1f} ± {100 * np.sqrt(share[0] * (1 - share[0]) / share[1]):.1f}"


def said(key: tuple[str, Cell], share: tuple[float, int]) -> str:
    return f"{key[0]} at {key[1].classes} classes and {key[1].rows:,} rows, {shown(share)}"


if __name__ == "__main__":
    main()
