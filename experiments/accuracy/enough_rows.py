"""Rows to learn from -> the loss of `AutoCalibrator` on new rows, which shows from which size on it no longer moves.

    OMP_NUM_THREADS=1 python -m experiments.accuracy.enough_rows --classes 10

Rows come from `benchmarks/simulation.py`, whose best possible loss is known. The rows of smaller sizes are the first of
those of larger ones. Results go to `experiments/results/enough_rows.csv`, one line per number of classes and rows.
"""

import argparse
import csv
import time
import warnings
from pathlib import Path
from unittest import mock

from benchmarks.simulation import gaussian_mixture

from glayers import AutoCalibrator
from glayers.calibrators import auto
from glayers.metrics import ks, nll
from glayers.predictions import Predictions

RESULTS = Path(__file__).parents[1] / "results" / "enough_rows.csv"
SIZES = (6_250, 12_500, 25_000, 50_000, 100_000, 200_000)
COLUMNS = ("classes", "rows", "nll", "above_oracle", "ks", "cpu_seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="+", default=[10])
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES)
    parser.add_argument("--results", type=Path, default=RESULTS)
    settings = parser.parse_args()
    warnings.simplefilter("ignore")
    new = not settings.results.exists()
    with settings.results.open("a", newline="") as file, mock.patch.object(auto, "_ENOUGH_ROWS", 10**9):
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(COLUMNS)
        for classes in settings.classes:
            test = gaussian_mixture(200_000, classes, seed=1)
            oracle = test.oracle_losses.mean()
            for rows in settings.rows:
                logits, labels, _ = gaussian_mixture(rows, classes)
                began = time.process_time()
                fitted = AutoCalibrator(time_budget=1e6).fit(logits, labels)
                seconds = time.process_time() - began
                found = fitted.apply(Predictions(test.logits, test.labels))
                loss = nll(found)
                numbers = f"{loss:.6f}", f"{loss - oracle:.6f}", f"{ks(found):.6f}", f"{seconds:.1f}"
                writer.writerow([classes, rows, *numbers])
                file.flush()


if __name__ == "__main__":
    main()
