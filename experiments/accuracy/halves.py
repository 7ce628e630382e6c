"""Sets of logits -> the loss of a method on calibration rows that it was not fitted on, beside an earlier run.

    python -m experiments.accuracy.halves --logits DIR --into new.csv --against old.csv

Each draw fits the first rows of a random order of the calibration rows, at most half of them, and scores the rest. No
test row is read, so that choices can be made by these losses. Two simulated sets are added. Every fit is a line of the
CSV file; fits that the file has are not repeated. With `--against`, the table shows what changed since another file was
written, by an earlier version of the code, with the standard error over sets and draws.
"""

import argparse
import csv
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.simulation import gaussian_mixture

from glayers import CALIBRATORS, Predictions, metrics, read_predictions
from glayers.text_tables import markdown_table

DRAWS = {100: 4, 250: 3, 1_000: 2, 2_500: 2}  # of each number of rows
SIMULATED = {"simulated_10": (5_000, 10), "simulated_100": (10_000, 100)}  # rows and classes
SCORES = ("nll", "brier", "ks")
COLUMNS = ("set", "rows", "draw", *SCORES, "seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--settings", type=json.loads, default={}, help='as JSON: {"time_budget": 0}')
    parser.add_argument("--rows", type=int, nargs="+", default=list(DRAWS))
    parser.add_argument("--into", type=Path, required=True, metavar="FILE")
    parser.add_argument("--against", type=Path, metavar="FILE")
    options = parser.parse_args()
    found = read(options.into) if options.into.exists() else {}
    for name, given in sets_of_rows(options.logits).items():
        for size in options.rows:
            for draw in range(DRAWS[size]):
                if (name, size, draw) not in found:
                    found[name, size, draw] = one_fit(options.method, options.settings, given, size, draw)
        write(found, options.into)
    print(markdown_table(table(found, read(options.against) if options.against else {})))


def sets_of_rows(folder: Path) -> dict[str, Predictions]:
    """Return the calibration rows of all sets, and simulated rows."""
    sets = {file.stem: read_predictions(file, "val") for file in sorted(folder.glob("*.npz"))}
    for name, (rows, classes) in SIMULATED.items():
        made = gaussian_mixture(rows, classes, seed=11)
        sets[name] = Predictions(made.logits, made.labels)
    return sets


def one_fit(method: str, settings: dict[str, Any], given: Predictions, size: int, draw: int) -> list[float]:
    """Return the scores of one fit on rows that it has not seen, and its processor time."""
    order = np.random.default_rng(draw).permutation(len(given))
    size = min(size, len(given) // 2)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = CALIBRATORS[method](**settings).fit_predictions(given.take(order[:size]))
    seconds = time.process_time() - began
    rest = fitted.apply(given.take(order[size:]))
    return [*(float(getattr(metrics, score)(rest)) for score in SCORES), seconds]


def table(found: dict[Any, list[float]], earlier: dict[Any, list[float]]) -> list[list[str]]:
    """Return a line for each number of rows: means over sets and draws, and what changed."""
    lines = [["rows", *SCORES, "seconds", "change of NLL", "change of Brier", "change of KS", "highest of a set"]]
    for size in sorted({size for _, size, _ in found}):
        keys = [key for key in found if key[1] == size]
        now = np.array([found[key] for key in keys])
        line = [f"{size:,}", *(f"{value:.4f}" for value in now.mean(axis=0))]
        if all(key in earlier for key in keys):
            change = now - [earlier[key] for key in keys]
            errors = change.std(axis=0, ddof=1) / np.sqrt(len(keys))
            line += [
                f"{value:+.4f} ± {error:.4f}" for value, error in zip(change[:, :3].mean(axis=0), errors, strict=False)
            ]
            line.append(highest(keys, change[:, 0]))
        lines.append(line + [""] * (len(lines[0]) - len(line)))
    return lines


def highest(keys: list[Any], change: np.ndarray) -> str:
    """Return the set whose loss rose most, with the standard error over its draws."""
    of_set: dict[str, list[float]] = {}
    for (name, _, _), value in zip(keys, change, strict=True):
        of_set.setdefault(name, []).append(value)
    name, values = max(of_set.items(), key=lambda item: np.mean(item[1]))
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{name} {np.mean(values):+.4f} ± {error:.4f}"


def read(path: Path) -> dict[Any, list[float]]:
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    return {
        (line["set"], int(line["rows"]), int(line["draw"])): [float(line[name]) for name in COLUMNS[3:]]
        for line in lines
    }


def write(found: dict[Any, list[float]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(COLUMNS)
        lines.writerows([*key, *(f"{value:.6g}" for value in values)] for key, values in found.items())


if __name__ == "__main__":
    main()
