"""Simulated models whose errors are known -> how often 95 percent intervals cover them: results/coverage_intervals.csv.

True probabilities are softmax(z); the model predicts softmax(sharpness * z), which is calibrated at sharpness 1. The
large-sample value of every metric comes from many rows with the true probabilities in place of labels. The rules that
call an interval unreliable were made from some cells (`MADE_FROM`) and are checked on others (`HELD_OUT`), which were
drawn up after the rules were final. Only the latter are run unless `--part` says otherwise. The last cells (`PAIRS`)
compare two models with errors of equal size, so that the true difference is 0. A finished cell is written at once and
skipped in later runs; `--share 1/2` runs every second cell, so that two processes can share them. Five minutes on one
thread.
"""

import argparse
import csv
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from experiments.stamp import write_page
from scipy.special import ndtr

from glayers import Confidences
from glayers.metrics import METRICS, Interval, ece, ks, smooth_ece
from glayers.metrics.bootstrap import Bootstrap
from glayers.metrics.events import check_rows

RESULTS = Path(__file__).parents[1] / "results" / "coverage_intervals.csv"
SCALES = {2: 2.0, 3: 2.5, 4: 2.6, 5: 2.7, 10: 3.0, 20: 3.3, 50: 3.7, 100: 4.0, 1000: 5.0}  # of the true logits
MARGINS = {2: 7.2, 5: 8.6, 10: 9.4, 100: 11.8, 1000: 14.1}  # of one class of sure models: 99.8 percent accuracy
DEPENDENCE = 0.3  # correlation of the logits, and of the luck, of two rows of a group
CHEAP = ("accuracy", "top_5_accuracy", "confidence", "nll", "brier_sum", "ks", "ece")
DEAR = ("smooth_ece", "mean_top_ks")  # in fewer repetitions
CLASSWISE = {"classwise_ks": ks, "classwise_ece": ece}  # in as few, up to 10 classes
LEVEL, N_RESAMPLES, RANKS = 0.95, 200, 10
COLUMNS = ["cell", "part", "metric", "large_sample", "mean_value", "repetitions", "covered", "flagged", "unflagged"]
COLUMNS += ["unflagged_covered", "p_value_agrees", "covered_by_bca"]  # the last two of pairs
NOISE = 0.4  # of the logits of each model of a pair, relative to their scale
FEWEST = 20  # unflagged intervals that tell something about their coverage


class Cell(NamedTuple):
    """Which model, how many classes and rows, how overconfident, and what the cell is for."""

    model: str
    classes: int
    rows: int
    sharpness: float
    part: str

    @property
    def repetitions(self) -> int:
        """How often to draw the rows: the fraction 0.95 is known to 1.5 percent in most held-out cells."""
        if self.rows > 5000 or self.classes == 1000:
            return 40
        return 200 if self.part != "made from" and self.rows <= 2000 and self.classes <= 20 else 60

    @property
    def metrics(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The metrics of every repetition, and those that take most of the time, in a third of the repetitions."""
        if self.classes == 1000 or self.rows > 5000:
            return CHEAP, ()
        return CHEAP, (*DEAR, *CLASSWISE) if self.classes <= 10 else DEAR


Plan: TypeAlias = list[tuple[str, list[tuple[int, int, float]]]]  # models, with classes, rows and sharpness


MADE_FROM: Plan = [
    ("plain", [(10, 500, 1), (10, 500, 1.2), (10, 500, 1.5), (2, 2000, 1.1), (2, 2000, 1.2), (10, 2000, 1.1)]),
    ("plain", [(2, 500, 1), (2, 500, 1.3), (3, 1000, 1.15), (10, 1000, 1.15), (10, 2000, 1.5), (10, 5000, 1)]),
    ("plain", [(10, 50, 1.2), (10, 1000, 0.7), (100, 500, 1.2), (100, 2000, 1.1), (1000, 500, 1.2)]),
    ("sure", [(10, 50, 1), (10, 200, 1), (10, 1000, 1), (2, 200, 1.2), (2, 50, 1), (2, 500, 1), (2, 5000, 1)]),
    ("sure", [(10, 500, 1.5), (10, 2000, 1.3), (100, 200, 1), (10, 5000, 1)]),
    ("8 groups", [(10, 400, 1), (2, 200, 1.2)]),
    ("20 groups", [(3, 400, 1.5), (10, 1000, 1)]),
    ("300 uneven groups", [(10, 1000, 1)]),
    ("200 uneven groups", [(3, 1000, 1), (10, 1000, 1.5)]),
    ("weights", [(10, 500, 1), (3, 500, 1), (10, 1000, 1.3)]),
    ("ties", [(10, 1000, 1.1), (2, 1000, 1), (3, 500, 1.3)]),
    ("long tails", [(10, 500, 1.5), (2, 500, 1.2), (10, 200, 1), (100, 500, 1.2)]),
]
HELD_OUT: Plan = [
    ("plain", [(4, 300, 1), (4, 800, 1.25), (20, 1500, 1.08), (20, 1500, 1.3), (5, 3000, 1.05), (5, 700, 0.8)]),
    ("plain", [(5, 100, 1.4), (50, 1000, 1.15), (10, 20000, 1.05)]),
    ("sure", [(5, 50, 1), (5, 200, 1), (5, 1000, 1), (5, 5000, 1), (5, 1500, 1.15)]),
    ("sure", [(1000, 50, 1), (1000, 200, 1), (1000, 1000, 1)]),
    ("10 groups", [(5, 500, 1.1)]),
    ("40 groups", [(10, 800, 1.25)]),
    ("100 uneven groups", [(5, 800, 1.2)]),
    ("weights", [(5, 800, 1.2), (4, 1500, 1.08)]),
    ("ties", [(5, 700, 1.2), (4, 1500, 1.08)]),
    ("long tails", [(20, 800, 1.15), (5, 1500, 1.3)]),
]
PAIRS: Plan = [("pair", [(3, 300, 1), (10, 500, 1), (10, 500, 1.5), (5, 2000, 1.2)])]
PARTS = {"made from": MADE_FROM, "held out": HELD_OUT, "pairs": PAIRS}
CELLS = [Cell(model, *cell, part) for part, plan in PARTS.items() for model, some in plan for cell in some]


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
    parser.add_argument("--part", choices=PARTS, nargs="+", help="held out and pairs if left out")
    parser.add_argument("--share", default="1/1", help="which cells to run, such as 1/2 and 2/2")
    args = parser.parse_args()
    if not args.table:
        first, step = map(int, args.share.split("/"))
        fill([cell for cell in CELLS if cell.part in (args.part or ("held out", "pairs"))][first - 1 :: step])
    write_page(RESULTS.with_suffix(".md"), markdown())
    print(RESULTS.with_suffix(".md").read_text(encoding="utf-8"))


def fill(cells: list[Cell]) -> None:
    for cell in cells:
        if any(row["cell"] == name_of(cell) for row in read()):
            continue
        began = time.process_time()
        rows = [
            {"cell": name_of(cell), "part": cell.part, **row}
            for row in (compare if cell.part == "pairs" else cover)(cell)
        ]
        new = not RESULTS.exists()
        with RESULTS.open("a", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
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
    by_class = {name: error for name, error in CLASSWISE.items() if name in cell.metrics[1]}
    parts = []
    for _ in range(min(40, max(300_000, 60 * cell.rows) // step)):
        q, p, _, weights, _ = draw(rng, cell, step, independent=True)
        order = np.argsort(-p, axis=1, kind="stable")[:, :ranks]
        top = [np.take_along_axis(table, order, axis=1) for table in (p, q)]
        loss, score = -(q * np.log(np.maximum(p, 1e-300))).sum(axis=1), (p * p - 2 * p * q).sum(axis=1) + 1
        every = [table if by_class else table[:, :0] for table in (p, q)]
        parts.append((*top, *every, np.stack([loss, score], axis=1), np.ones(step) if weights is None else weights))
    scores, chances, p, q, losses, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
    shares = weights / weights.sum()
    events = [both_ways(scores[:, r], chances[:, r], weights) for r in range(ranks)]
    classes = [both_ways(p[:, c], q[:, c], weights) for c in range(p.shape[1])]
    return {
        "accuracy": float(shares @ chances[:, 0]),
        "top_5_accuracy": float(shares @ chances[:, :5].sum(axis=1)),
        "confidence": float(shares @ scores[:, 0]),
        **dict(zip(("nll", "brier_sum"), (shares @ losses).tolist(), strict=True)),
        "ks": ks(events[0]),
        "mean_top_ks": float(np.mean([ks(event) for event in events])),
        "ece": ece(events[0]),
        "smooth_ece": smooth_ece(events[0]),
        **{name: float(np.mean([error(each) for each in classes])) for name, error in by_class.items()},
    }


def both_ways(scores: np.ndarray, chances: np.ndarray, weights: np.ndarray) -> Confidences:
    """Every row as a hit and as a miss, weighted by the chance of each: the result of infinitely many labels."""
    happened = np.repeat([True, False], len(scores))
    halves = np.concatenate([weights * chances, weights * (1 - chances)])
    return Confidences(np.tile(scores, 2), happened, weights=halves)


def seed_of(cell: Cell, repetition: int) -> list[int]:
    return [cell.classes, cell.rows, round(100 * cell.sharpness), sum(cell.model.encode()), repetition]


def cover(cell: Cell) -> list[dict[str, object]]:
    truth = large_sample(cell)
    found: dict[str, list[Interval]] = {}
    cheap, dear = cell.metrics
    for repetition in range(cell.repetitions):
        _, p, labels, weights, groups = draw(np.random.default_rng(seed_of(cell, repetition)), cell, cell.rows)
        bootstrap = Bootstrap(N_RESAMPLES, LEVEL, random_state=repetition, progress=False)
        names = cheap + dear if 3 * repetition < cell.repetitions else cheap
        columns = bootstrap.columns(check_rows(p, labels, weights, groups), [METRICS[m] for m in names], "resampling")
        for name, drawn in columns.items():
            found.setdefault(name, []).append(drawn.interval(LEVEL))
    return [{"metric": name, **summary(some, truth[name])} for name, some in found.items()]


def compare(cell: Cell) -> list[dict[str, object]]:
    """Differences of two models with independent errors of the same size, by the same resamples."""
    found: dict[str, list[tuple[Interval, bool, Interval]]] = {}
    scale = SCALES[cell.classes]
    for repetition in range(cell.repetitions):
        rng = np.random.default_rng(seed_of(cell, repetition))
        z = scale * rng.standard_normal((cell.rows, cell.classes))
        labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        bootstrap = Bootstrap(N_RESAMPLES, LEVEL, random_state=repetition, progress=False)
        names = [METRICS[m] for m in ("accuracy", "nll", "ks", "ece")]
        one, two = (
            bootstrap.columns(
                check_rows(softmax(cell.sharpness * (z + NOISE * scale * rng.standard_normal(z.shape))), labels),
                names,
                "",
            )
            for _ in range(2)
        )
        for name in one:
            difference = two[name].minus(one[name])
            bca = replace(difference, left_out=two[name].left_out - one[name].left_out).interval(LEVEL)
            interval = difference.interval(LEVEL)
            agrees = (difference.p_value() <= 1 - LEVEL) == (not interval.low <= 0 <= interval.high)
            found.setdefault(name, []).append((interval, agrees, bca))
    return [
        {
            "metric": name,
            **summary([interval for interval, _, _ in some], 0.0),
            "p_value_agrees": f"{np.mean([agrees for _, agrees, _ in some]):.4f}",
            "covered_by_bca": f"{np.mean([bca.low <= 0 <= bca.high for _, _, bca in some]):.4f}",
        }
        for name, some in found.items()
    ]


def summary(intervals: list[Interval], truth: float) -> dict[str, object]:
    rounding = 1e-12  # a zero may be computed as slightly positive
    covers = np.array([i.low - rounding <= truth <= i.high + rounding for i in intervals])
    unflagged = np.array([not i.unreliable and not i.one_sided for i in intervals])
    return {
        "large_sample": f"{truth:.6f}",
        "mean_value": f"{np.mean([i.value for i in intervals]):.6f}",
        "repetitions": len(intervals),
        "covered": f"{covers.mean():.4f}",
        "flagged": f"{1 - unflagged.mean():.4f}",
        "unflagged": int(unflagged.sum()),
        "unflagged_covered": f"{covers[unflagged].mean():.4f}" if unflagged.any() else "",
    }


def read() -> list[dict[str, str]]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def markdown() -> str:
    """Return one table per part, and the entries whose unflagged intervals cover too seldom."""
    rows = {(row["cell"], row["metric"]): row for row in read()}
    metrics = [name for name in METRICS if name in (*CHEAP, *DEAR, *CLASSWISE)]
    parts = [
        f"Each entry: percent of {100 * LEVEL:g} % intervals that cover / percent flagged as unreliable / percent of "
        f"the unflagged ones that cover (left out below {FEWEST} intervals). {N_RESAMPLES} resamples.\n"
    ]
    titles = {
        "made from": "Cells that the rules were made from",
        "held out": "Cells that are held out",
        "pairs": "Differences of two models with errors of equal size",
    }
    for part, title in titles.items():
        some = [cell for cell in CELLS if cell.part == part and (name_of(cell), "accuracy") in rows]
        if not some:
            continue
        shown = [m for m in metrics if any((name_of(cell), m) in rows for cell in some)]
        lines = [f"**{title}**\n", "| cell | " + " | ".join(shown) + " |", "|---|" + "---:|" * len(shown)]
        for cell in some:
            entries = [printed(rows.get((name_of(cell), metric))) for metric in shown]
            lines.append(f"| {name_of(cell)} | " + " | ".join(entries) + " |")
        parts.append("\n".join(lines) + "\n")
        parts.append(pooled([row for row in rows.values() if row["part"] == part], shown))
    pairs = [row for row in rows.values() if row["part"] == "pairs"]
    for metric in dict.fromkeys(row["metric"] for row in pairs):
        some_rows = [row for row in pairs if row["metric"] == metric]
        agree, bca = (np.array([float(r[n]) for r in some_rows]) for n in ("p_value_agrees", "covered_by_bca"))
        excluded = " to ".join(f"{100 - 100 * share:.1f}" for share in (bca.max(), bca.min()))
        parts.append(
            f"{metric}: p-value and interval agree in {100 * agree.mean():g} % of samples; BCa intervals would exclude "
            f"0 in {excluded} %, depending on the cell.\n"
        )
    return "\n".join(parts)


def pooled(rows: list[dict[str, str]], metrics: list[str]) -> str:
    """All cells together by metric, and the entries below 90 percent by more than sampling error."""
    lines = ["| metric | intervals | covered | flagged | unflagged that cover |", "|---|---:|---:|---:|---:|"]
    for metric in metrics:
        some = [row for row in rows if row["metric"] == metric]
        n = np.array([int(row["repetitions"]) for row in some])
        free = np.array([int(row["unflagged"]) for row in some])
        covered = np.array([float(row["covered"]) for row in some]) @ n / n.sum()
        right = sum(int(row["unflagged"]) * float(row["unflagged_covered"] or 0) for row in some)
        share = f"{100 * right / free.sum():.1f}" if free.sum() else ""
        lines.append(
            f"| {metric} | {n.sum():,} | {100 * covered:.1f} | {100 - 100 * free.sum() / n.sum():.1f} | {share} |"
        )
    low = [
        f"{row['metric']} of {row['cell']} ({100 * float(row['unflagged_covered']):.0f} % of {row['unflagged']})"
        for row in rows
        if is_low(row)
    ]
    silent = max(rows, key=silent_misses)
    most = f"{100 * silent_misses(silent):.1f} %, {silent['metric']} of {silent['cell']}"
    found = (
        f"Most intervals that miss and are not flagged, of all intervals: {most}. Below 90 % of at least {FEWEST} "
        f"unflagged intervals: {'; '.join(low) or 'none'}.\n"
    )
    return "\n".join([*lines, "", found])


def silent_misses(row: dict[str, str]) -> float:
    """The share of all intervals that miss and are not flagged."""
    return int(row["unflagged"]) * (1 - float(row["unflagged_covered"] or 1)) / int(row["repetitions"])


def is_low(row: dict[str, str]) -> bool:
    return int(row["unflagged"]) >= FEWEST and float(row["unflagged_covered"]) < 0.9


def printed(row: dict[str, str] | None) -> str:
    if row is None:
        return ""
    unflagged = f"{100 * float(row['unflagged_covered']):.0f}" if int(row["unflagged"]) >= FEWEST else "-"
    return f"{100 * float(row['covered']):.0f} / {100 * float(row['flagged']):.0f} / {unflagged}"


if __name__ == "__main__":
    main()
