"""The paper's DenseNet 40 rows -> its own recipe at depths 1 to 5, over seeds, beside the figures it printed.

Writes experiments/results/paper_depths.csv, and from it a Markdown table. FILE is the published set; without it only
the table is made anew.
Learning rate and weight decay come from the search at 3 layers and are used again at 2, 4 and 5, as in the paper; one
layer has its own search.
"""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np

from glayers import GLayers, Predictions, metrics, read_parts

RESULTS = Path(__file__).parent / "results" / "paper_depths.csv"
# From the paper's tables, DenseNet 40 on CIFAR-10: uncalibrated, then 1 to 5 layers; percent, Brier times 100.
PAPER = {
    "KS": (5.493, 0.911, 1.026, 0.669, 1.679, 1.377),
    "ECE": (5.500, 1.101, 1.037, 0.825, 1.729, 1.547),
    "Brier": (1.274, 1.099, 1.098, 1.102, 1.113, 1.121),
    "accuracy": (92.4, 92.6, 92.4, 92.4, 92.3, 92.3),
}
METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "KS": lambda p, y: 100 * metrics.ks_error(p, y),
    "ECE": lambda p, y: 100 * metrics.ece(p, y),
    "Brier": lambda p, y: 100 * metrics.brier(p, y),
    "accuracy": lambda p, y: 100 * metrics.accuracy(p, y),
    "NLL": metrics.nll,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, metavar="FILE")
    parser.add_argument("--seeds", type=int, default=5)
    settings = parser.parse_args()
    if settings.logits is not None:
        calibration, test = read_parts(settings.logits).values()
        rows: list[dict[str, float]] = [{"layers": 0, "seed": 0, **scores(test.probabilities(), test)}]
        for seed in range(settings.seeds):
            rows += one_seed(seed, calibration, test)
        RESULTS.parent.mkdir(exist_ok=True)
        with RESULTS.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
    RESULTS.with_suffix(".md").write_text(markdown(), encoding="utf-8")
    print(RESULTS.with_suffix(".md").read_text(encoding="utf-8"))


def one_seed(seed: int, calibration: Predictions, test: Predictions) -> list[dict[str, float]]:
    fitted = {depth: paper(depth, seed).fit(calibration.logits, calibration.labels) for depth in (1, 3)}
    found = fitted[3].cv_results_
    best = int(np.argmin(found["held_out_loss"]))
    rate, decay = float(found["learning_rate"][best]), float(found["weight_decay"][best])
    for depth in (2, 4, 5):
        fitted[depth] = paper(depth, seed, rate, decay).fit(calibration.logits, calibration.labels)
    rows = [
        {"layers": depth, "seed": seed, **scores(g.predict_proba(test.logits), test)}
        for depth, g in sorted(fitted.items())
    ]
    print(f"seed {seed}: rate {rate:g}, decay {decay:g}, KS {[round(row['KS'], 3) for row in rows]}", flush=True)
    return rows


def paper(depth: int, seed: int, rate: float | None = None, decay: float | None = None) -> GLayers:
    return GLayers(depth, 3, recipe="paper", learning_rate=rate, weight_decay=decay, random_state=seed)


def scores(probabilities: np.ndarray, test: Predictions) -> dict[str, float]:
    return {name: round(float(metric(probabilities, test.labels)), 4) for name, metric in METRICS.items()}


def markdown() -> str:
    """Ours over seeds, mean and standard deviation, with the paper's figure in brackets."""
    with RESULTS.open(encoding="utf-8") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    lines = ["| layers | " + " | ".join(METRICS) + " |", "|---|" + "---:|" * len(METRICS)]
    for depth in range(6):
        mine = [row for row in rows if row["layers"] == depth]
        cells = [
            spread([row[name] for row in mine]) + (f" ({PAPER[name][depth]:g})" if name in PAPER else "")
            for name in METRICS
        ]
        lines.append(f"| {depth or 'none'} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
