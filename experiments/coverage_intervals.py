"""Simulated models whose errors are known -> how often 95 percent intervals cover them: results/coverage_intervals.csv.

True probabilities are softmax(z); the model predicts softmax(sharpness * z), which is calibrated at sharpness 1. The
large-sample value of every metric comes from many rows with the true probabilities in place of labels. The rules that
call an interval unreliable were chosen on some cells and are checked on others (`kept_aside`). A finished cell is
written at once and skipped in later runs; `--share 1/2` runs every second cell, so that two processes can share them.
"""

import argparse
import csv
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from glayers import Confidences
from glayers.metrics import METRICS, Interval, ece, ks, rms_calibration_error, smooth_ece
from glayers.metrics.bootstrap import Bootstrap
from glayers.metrics.events import check_rows

RESULTS = Path(__file__).parent / "results" / "coverage_intervals.csv"
SCALES = {2: 2.0, 3: 2.5, 10: 3.0, 100: 4.0, 1000: 5.0}  # of the true logits: accuracies from 83 to 53 percent
MARGINS = {2: 7.2, 10: 9.4, 100: 11.8}  # of the right class of sure models: 99.8 percent accuracy
DEPENDENCE = 0.3  # correlation of the logits, and of the luck, of two rows of a group
CHEAP = ("accuracy", "top_5_accuracy", "confidence", "nll", "brier_sum", "ks", "ece", "debiased_ece")
DEAR = ("smooth_ece", "mean_top_ks", "rms_calibration_error")  # in fewer repetitions
LEVEL, N_RESAMPLES, RANKS = 0.95, 200, 10


class Cell(NamedTuple):
    """Which model, how many classes and rows, how overconfident, and whether the rules were chosen without it."""

    model: str
    classes: int
    rows: int
    sharpness: float
    kept_aside: bool

    @property
    def repetitions(self) -> int:
        """How often to draw the rows: the fraction 0.95 is known to 0.9 or 1.3 percent."""
        return 600 if self.rows <= 1000 and self.classes <= 10 else 300

    @property
    def dear_repetitions(self) -> int:
        """How often to compute the metrics that take most of the time; not where their intervals are never trusted."""
        slow = self.rows > 2000 or self.classes > 10
        return 0 if slow or self.sharpness == 1 or self.model == "sure" else 150


def made(model: str, *cells: tuple[int, int, float]) -> list[Cell]:
    return [Cell(model, *cell, False) for cell in cells]


def aside(model: str, *cells: tuple[int, int, float]) -> list[Cell]:
    return [Cell(model, *cell, True) for cell in cells]


CELLS = [
    *made("plain", (10, 500, 1), (10, 500, 1.2), (10, 500, 1.5), (2, 2000, 1.1), (2, 2000, 1.2), (10, 2000, 1.1)),
    *aside("plain", (2, 500, 1), (2, 500, 1.3), (3, 1000, 1.15), (10, 1000, 1.15), (10, 2000, 1.5), (10, 5000, 1)),
    *aside("plain", (10, 50, 1.2), (10, 1000, 0.7), (100, 500, 1.2), (100, 2000, 1.1), (1000, 500, 1.2)),
    *made("sure", (10, 50, 1), (10, 200, 1), (10, 1000, 1), (2, 200, 1.2)),
    *aside(
        "sure", (2, 50, 1), (2, 500, 1), (2, 5000, 1), (10, 500, 1.5), (10, 2000, 1.3), (100, 200, 1), (10, 5000, 1)
    ),
    *made("8 groups", (10, 400, 1)),
    *aside("8 groups", (2, 200, 1.2)),
    *aside("20 groups", (3, 400, 1.5), (10, 1000, 1)),
    *made("300 uneven groups", (10, 1000, 1)),
    *aside("200 uneven groups", (3, 1000, 1), (10, 1000, 1.5)),
    *made("weights", (10, 500, 1)),
    *aside("weights", (3, 500, 1), (10, 1000, 1.3)),
    *made("ties", (10, 1000, 1.1)),
    *aside("ties", (2, 1000, 1), (3, 500, 1.3)),
    *made("long tails", (10, 500, 1.5)),
    *aside("long tails", (2, 500, 1.2), (10, 200, 1), (100, 500, 1.2)),
]


class Sample(NamedTuple):
    """True probabilities, those of the model, labels, weights and groups."""

    truth: np.ndarray
    model: np.ndarray
    labels: np.ndarray
    weights: np.ndarray | None
    groups: np.ndarray | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="only write the table from the csv")
    parser.add_argument("--share", default="1/1", help="which cells to run, such as 1/2 and 2/2")
    args = parser.parse_args()
    if not args.table:
        first, step = map(int, args.share.split("/"))
        fill(CELLS[first - 1 :: step])
    RESULTS.with_suffix(".md").write_text(markdown(), encoding="utf-8")
    print(RESULTS.with_suffix(".md").read_text(encoding="utf-8"))


def fill(cells: list[Cell]) -> None:
    for cell in cells:
        if any(row["cell"] == name_of(cell) for row in read()):
            continue
        began = time.process_time()
        rows = cover(cell)
        new = not RESULTS.exists()
        with RESULTS.open("a", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            if new:
                table.writeheader()
            table.writerows(rows)
        print(f"{name_of(cell)}: {time.process_time() - began:.0f} s", flush=True)


def name_of(cell: Cell) -> str:
    return f"{cell.model}, {cell.classes} classes, {cell.rows} rows, sharpness {cell.sharpness:g}"


def draw(rng: np.random.Generator, cell: Cell, n: int, *, independent: bool = False) -> Sample:
    """Rows of a cell; groups change how rows depend on each other and nothing else, so a large sample needs none."""
    classes, groups, weights = cell.classes, None, None
    z, luck = rng.standard_normal((n, classes)), rng.random(n)
    if cell.model.endswith("groups") and not independent:
        groups = groups_of(cell, n)
        n_groups, own = groups[-1] + 1, np.sqrt(1 - DEPENDENCE)
        z = own * z + np.sqrt(DEPENDENCE) * rng.standard_normal((n_groups, classes))[groups]
        luck = ndtr(own * rng.standard_normal(n) + np.sqrt(DEPENDENCE) * rng.standard_normal(n_groups)[groups])
    if cell.model == "sure":
        z[np.arange(n), rng.integers(0, classes, n)] += MARGINS[classes]
    elif cell.model == "ties":
        z = SCALES[classes] * np.round(z)
    elif cell.model == "long tails":  # of the logits, and of the class frequencies
        z = SCALES[classes] / 1.5 * rng.standard_t(3, (n, classes)) - np.log(np.arange(1, classes + 1))
    else:
        z = SCALES[classes] * z
    if cell.model == "weights":  # higher for hard rows
        ordered = np.sort(z, axis=1)
        weights = np.exp(0.8 * rng.standard_normal(n) - 0.5 * (ordered[:, -1] - ordered[:, -2]) / SCALES[classes])
    truth = softmax(z)
    labels = np.minimum((truth.cumsum(axis=1) < luck[:, None]).sum(axis=1), classes - 1)
    return Sample(truth, softmax(cell.sharpness * z), labels, weights, groups)


def groups_of(cell: Cell, n: int) -> np.ndarray:
    """Groups of equal size, or of sizes 1, 1/2, 1/3, ... of the largest."""
    n_groups = int(cell.model.split()[0])
    shares = 1 / np.arange(1, n_groups + 1) if "uneven" in cell.model else np.ones(n_groups)
    return np.searchsorted(np.cumsum(shares / shares.sum()), (np.arange(n) + 0.5) / n).astype(np.int64)


def softmax(z: np.ndarray) -> np.ndarray:
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def large_sample(cell: Cell) -> dict[str, float]:
    rng = np.random.default_rng(2**31)
    ranks, step = min(RANKS, cell.classes), 500_000 // cell.classes
    parts = []
    for _ in range(min(40, 300_000 // step)):
        q, p, _, weights, _ = draw(rng, cell, step, independent=True)
        order = np.argsort(-p, axis=1, kind="stable")[:, :ranks]
        top = [np.take_along_axis(table, order, axis=1) for table in (p, q)]
        loss, score = -(q * np.log(np.maximum(p, 1e-300))).sum(axis=1), (p * p - 2 * p * q).sum(axis=1) + 1
        parts.append((*top, np.stack([loss, score], axis=1), np.ones(step) if weights is None else weights))
    scores, chances, losses, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
    shares = weights / weights.sum()
    events = [both_ways(scores[:, r], chances[:, r], weights) for r in range(ranks)]
    return {
        "accuracy": float(shares @ chances[:, 0]),
        "top_5_accuracy": float(shares @ chances[:, :5].sum(axis=1)),
        "confidence": float(shares @ scores[:, 0]),
        **dict(zip(("nll", "brier_sum"), (shares @ losses).tolist(), strict=True)),
        "ks": ks(events[0]),
        "mean_top_ks": float(np.mean([ks(event) for event in events])),
        "ece": ece(events[0]),
        "debiased_ece": ece(events[0], binning="equal_mass"),  # there is no bias to remove in a large sample
        "smooth_ece": smooth_ece(events[0]),
        "rms_calibration_error": rms_calibration_error(events[0]),
    }


def both_ways(scores: np.ndarray, chances: np.ndarray, weights: np.ndarray) -> Confidences:
    """Every row as a hit and as a miss, weighted by the chance of each: the result of infinitely many labels."""
    happened = np.repeat([True, False], len(scores))
    halves = np.concatenate([weights * chances, weights * (1 - chances)])
    return Confidences(np.tile(scores, 2), happened, weights=halves)


def cover(cell: Cell) -> list[dict[str, object]]:
    truth = large_sample(cell)
    found: dict[str, list[Interval]] = {}
    for repetition in range(cell.repetitions):
        seed = [cell.classes, cell.rows, round(100 * cell.sharpness), sum(cell.model.encode()), repetition]
        _, p, labels, weights, groups = draw(np.random.default_rng(seed), cell, cell.rows)
        bootstrap = Bootstrap(N_RESAMPLES, LEVEL, random_state=repetition, progress=False)
        names = CHEAP + DEAR if repetition < cell.dear_repetitions else CHEAP
        columns = bootstrap.columns(check_rows(p, labels, weights, groups), [METRICS[m] for m in names], "resampling")
        for name, drawn in columns.items():
            found.setdefault(name, []).append(drawn.interval(LEVEL))
    known = {"cell": name_of(cell), "kept_aside": "yes" if cell.kept_aside else ""}
    return [known | {"metric": name} | summary(some, truth[name]) for name, some in found.items()]


def summary(intervals: list[Interval], truth: float) -> dict[str, object]:
    rounding = 1e-12  # a zero may be computed as slightly positive
    covers = np.array([i.low - rounding <= truth <= i.high + rounding for i in intervals])
    trusted = np.array([not i.unreliable for i in intervals])
    return {
        "large_sample": f"{truth:.6f}",
        "mean_value": f"{np.mean([i.value for i in intervals]):.6f}",
        "repetitions": len(intervals),
        "coverage": f"{covers.mean():.4f}",
        "trusted": f"{trusted.mean():.4f}",
        "silent_misses": f"{(trusted & ~covers).mean():.4f}",
    }


def read() -> list[dict[str, str]]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def markdown() -> str:
    """Return one table per kind of metric, cells kept aside last."""
    rows = {(row["cell"], row["metric"]): row for row in read()}
    metrics = [name for name in METRICS if name in CHEAP + DEAR]
    parts = [
        f"Each entry: percent of {100 * LEVEL:g} % intervals that cover / percent that miss and are not called "
        f"unreliable. {N_RESAMPLES} resamples. The second number should be at most {100 - 100 * LEVEL:g}.\n"
    ]
    for title, kept in (("Cells on which the rules were chosen", False), ("Cells kept aside", True)):
        lines = [f"**{title}**\n", "| cell | " + " | ".join(metrics) + " |", "|---|" + "---:|" * len(metrics)]
        for cell in CELLS:
            if cell.kept_aside == kept:
                entries = [printed(rows.get((name_of(cell), metric))) for metric in metrics]
                lines.append(f"| {name_of(cell)} | " + " | ".join(entries) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def printed(row: dict[str, str] | None) -> str:
    return "" if row is None else f"{100 * float(row['coverage']):.0f} / {100 * float(row['silent_misses']):.1f}"


if __name__ == "__main__":
    main()
