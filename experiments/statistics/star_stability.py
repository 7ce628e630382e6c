"""Two shared sets of logits, resampled -> how often the stars of `compare` change: results/star_stability.csv and .md.

Methods are fitted once. Test rows are drawn with replacement, and `compare` stars every method that is not
significantly worse than the best on the drawn rows. A single star would go to the best method alone. About five minutes
on one thread.

    python -m experiments.statistics.star_stability --logits DIR
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from experiments.logit_files import read_both
from experiments.stamp import write_page

from glayers import Predictions, compare
from glayers.comparison import Comparison
from glayers.metrics import scorecard

RESULTS = Path(__file__).parents[1] / "results" / "star_stability.csv"
SETS = ("cifar10_resnet110", "cifar100_resnet110")
METHODS = ["temperature", "vector", "isotonic", "dirichlet"]
RESAMPLES, ROWS = 30, 5_000
COLUMNS = ["set", "metric", "resamples", "single_star_moves", "starred_set_changes", "best_keeps_its_star"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, help="folder of the shared sets")
    folder = parser.parse_args().logits
    lines = [line for name in SETS for line in measure(name, folder)]
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
    head: list[object] = [name.replace("_", " ") for name in COLUMNS]
    dashes: list[object] = ["---"] * len(head)
    table = ["| " + " | ".join(map(str, line)) + " |" for line in [head, dashes, *lines]]
    text = "Made by `python -m experiments.statistics.star_stability --logits DIR`. Numbers of resamples in which the "
    text += f"stars of {', '.join(METHODS)} and no calibration differ from those of all rows. A single star would go "
    text += f"to the best method alone. {ROWS:,} test rows, drawn with replacement.\n\n"
    write_page(RESULTS.with_suffix(".md"), text + "\n".join(table) + "\n")
    print(text + "\n".join(table))


def measure(name: str, folder: Path) -> list[list[object]]:
    """Return one line per metric of a set."""
    calibration, test = read_both(folder / f"{name}.npz")
    rng = np.random.default_rng(0)
    test = test.take(rng.permutation(len(test))[:ROWS])
    whole = compare(calibration, test, METHODS, progress=False)
    drawn = [stars(whole, test.take(rng.integers(0, len(test), len(test)))) for _ in range(RESAMPLES)]
    lines: list[list[object]] = []
    for metric, starred in whole.best.items():
        found = [best[metric] for best in drawn]
        moves = sum(best[0] != starred[0] for best in found)
        changes = sum(set(best) != set(starred) for best in found)
        keeps = sum(starred[0] in best for best in found)
        lines.append([name, metric, RESAMPLES, moves, changes, keeps])
    return lines


def stars(whole: Comparison, rows: Predictions) -> dict[str, list[str]]:
    """Return the starred methods of each metric on other rows, the best first."""
    cards = {"uncalibrated": scorecard(rows)}
    cards |= {name: scorecard(calibrator.apply(rows)) for name, calibrator in whole.calibrators.items()}
    return Comparison(rows, whole.calibrators, cards, {}, whole.random_state).best


if __name__ == "__main__":
    main()
