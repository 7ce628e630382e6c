"""Simulated models whose errors are known -> how often 95 percent intervals cover them: results/coverage_intervals.csv.

True probabilities are softmax(z) with independent Gaussian logits z; the model predicts softmax(sharpness * z), which
is calibrated at sharpness 1. The large-sample value of every metric comes from a million rows with the true
probabilities in place of labels, so that only rows are random. A finished cell is written at once and skipped in later
runs.
"""

import argparse
import csv
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from glayers import Confidences
from glayers.metrics import METRICS, Interval, ece, ks, mce, rms_calibration_error, smooth_ece
from glayers.metrics.bootstrap import Bootstrap
from glayers.metrics.events import check_rows

RESULTS = Path(__file__).parent / "results" / "coverage_intervals.csv"
SCALES = {2: 2.0, 10: 3.0, 100: 4.0}  # of the true logits: accuracies of 83, 66 and 56 percent
SHARPNESS = {"calibrated": 1.0, "slightly overconfident": 1.1, "overconfident": 1.5}
REPETITIONS = {500: 1000, 2_000: 1000, 20_000: 400}  # the fraction 0.95 is known to 0.7 and 1.1 percent
# These take most of the time; their coverage is off by far more than the noise of fewer repetitions.
DEAR = {"smooth_ece", "mean_top_ks", "classwise_ks", "classwise_ece"}
DEAR_REPETITIONS = {500: 200, 2_000: 200, 20_000: 50}
LEVEL, N_RESAMPLES, RANKS = 0.95, 200, 10


class Cell(NamedTuple):
    """The numbers of classes and rows, and the model."""

    classes: int
    rows: int
    model: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="only write the table from the csv")
    if not parser.parse_args().table:
        fill()
    RESULTS.with_suffix(".md").write_text(markdown(), encoding="utf-8")
    print(RESULTS.with_suffix(".md").read_text(encoding="utf-8"))


def cells() -> list[Cell]:
    plain = [Cell(c, n, model) for model in ("calibrated", "overconfident") for c in SCALES for n in REPETITIONS]
    return plain + [Cell(c, 2_000, "slightly overconfident") for c in SCALES]


def fill() -> None:
    done = {(row["classes"], row["rows"], row["model"]) for row in read()}
    for cell in cells():
        if (str(cell.classes), str(cell.rows), cell.model) in done:
            continue
        began = time.perf_counter()
        rows = cover(cell, large_sample(cell.classes, SHARPNESS[cell.model]))
        new = not RESULTS.exists()
        with RESULTS.open("a", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            if new:
                table.writeheader()
            table.writerows(rows)
        print(f"{cell}: {time.perf_counter() - began:.0f} s", flush=True)


def sample(rng: np.random.Generator, n: int, classes: int, sharpness: float) -> tuple[np.ndarray, np.ndarray]:
    """True probabilities, and those of the model."""
    z = SCALES[classes] * rng.standard_normal((n, classes))
    return softmax(z), softmax(sharpness * z)


def softmax(z: np.ndarray) -> np.ndarray:
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def large_sample(classes: int, sharpness: float, n: int = 1_000_000) -> dict[str, float]:
    rng = np.random.default_rng(2**31)
    ranks, step = min(RANKS, classes), 20_000
    means = dict.fromkeys(("accuracy", "top_5_accuracy", "confidence", "nll", "brier_sum"), 0.0)
    scores, chances, one_class = np.empty((ranks, n)), np.empty((ranks, n)), np.empty((2, n))
    for first in range(0, n, step):
        q, p = sample(rng, step, classes, sharpness)
        order = np.argsort(-p, axis=1)[:, :ranks]
        rows = slice(first, first + step)
        scores[:, rows] = np.take_along_axis(p, order, axis=1).T
        chances[:, rows] = np.take_along_axis(q, order, axis=1).T
        one_class[:, rows] = p[:, 0], q[:, 0]  # all classes are alike
        means["nll"] -= float((q * np.log(p)).sum()) / n
        means["brier_sum"] += float((p * p).sum() - 2 * (p * q).sum() + len(p)) / n
    means |= {"accuracy": float(chances[0].mean()), "confidence": float(scores[0].mean())}
    means["top_5_accuracy"] = float(chances[:5].sum(axis=0).mean())
    top, by_class = both_ways(scores[0], chances[0]), both_ways(*one_class)
    return means | {
        "brier": means["brier_sum"] / classes,
        "ks": ks(top),
        "mean_top_ks": float(np.mean([ks(both_ways(scores[r], chances[r])) for r in range(ranks)])),
        "classwise_ks": ks(by_class),
        "ece": ece(top),
        "ece_equal_mass": ece(top, binning="equal_mass"),
        "debiased_ece": ece(top, binning="equal_mass"),  # there is no bias to remove in a large sample
        "smooth_ece": smooth_ece(top),
        "classwise_ece": ece(by_class),
        "mce": mce(top),
        "rms_calibration_error": rms_calibration_error(top),
        "debiased_rms_calibration_error": rms_calibration_error(top, binning="equal_mass"),
    }


def both_ways(scores: np.ndarray, chances: np.ndarray) -> Confidences:
    """Every row as a hit and as a miss, weighted by the chance of each: the result of infinitely many labels."""
    happened = np.repeat([True, False], len(scores))
    return Confidences(np.tile(scores, 2), happened, weights=np.concatenate([chances, 1 - chances]))


def cover(cell: Cell, truth: dict[str, float]) -> list[dict[str, object]]:
    found: dict[tuple[str, str], list[Interval]] = {}
    for repetition in range(REPETITIONS[cell.rows]):
        seed = [cell.classes, cell.rows, round(10 * SHARPNESS[cell.model]), repetition]
        rng = np.random.default_rng(seed)
        q, p = sample(rng, cell.rows, cell.classes, SHARPNESS[cell.model])
        labels = np.minimum((q.cumsum(axis=1) < rng.random((cell.rows, 1))).sum(axis=1), cell.classes - 1)
        bootstrap = Bootstrap(N_RESAMPLES, LEVEL, random_state=repetition, progress=False)
        names = [name for name in METRICS if name not in DEAR or repetition < DEAR_REPETITIONS[cell.rows]]
        columns = bootstrap.columns(check_rows(p, labels), [METRICS[name] for name in names], "resampling")
        for name, bca in columns.items():
            found.setdefault((name, "bca"), []).append(bca.interval(LEVEL))
            percentile = bca._replace(left_out=np.empty(0))
            found.setdefault((name, "percentile"), []).append(percentile.interval(LEVEL))
    return [
        cell._asdict() | {"metric": name, "method": method} | summary(intervals, truth[name])
        for (name, method), intervals in found.items()
    ]


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
        "coverage_trusted": f"{covers[trusted].mean():.4f}" if trusted.any() else "",
    }


def read() -> list[dict[str, str]]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def markdown() -> str:
    """Coverage in percent, BCa and percentile; a star where more than half of the intervals came with a warning."""
    rows = {(r["model"], r["metric"], r["classes"], r["rows"], r["method"]): r for r in read()}
    parts = []
    for model in SHARPNESS:
        held = [cell for cell in cells() if cell.model == model]
        held.sort()
        lines = [
            f"**{model}** (sharpness {SHARPNESS[model]:g}): percent of 95 % intervals that cover, BCa / percentile\n",
            "| metric | " + " | ".join(f"C = {cell.classes}, n = {cell.rows:,}" for cell in held) + " |",
            "|---|" + "---:|" * len(held),
        ]
        for name in METRICS:
            keys = [(model, name, str(cell.classes), str(cell.rows)) for cell in held]
            found = [[rows.get((*key, method)) for method in ("bca", "percentile")] for key in keys]
            lines.append(f"| {name} | " + " | ".join(printed(bca, other) for bca, other in found) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n\n\\* most of these intervals came with a warning (`Interval.unreliable`).\n"


def printed(bca: dict[str, str] | None, percentile: dict[str, str] | None) -> str:
    if bca is None or percentile is None:
        return ""
    star = r" \*" if float(bca["trusted"]) < 0.5 else ""
    return f"{100 * float(bca['coverage']):.1f} / {100 * float(percentile['coverage']):.1f}{star}"


if __name__ == "__main__":
    main()
