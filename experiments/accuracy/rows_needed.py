"""Sets of logits -> what `rows_needed` forecasts, and what more rows then bring where the truth is known.

Run: python -m experiments.accuracy.rows_needed --logits DIR

Writes results/rows_needed.csv and .md; lines in the file are kept.

Labels are drawn from the probabilities of vector scaling fitted to all calibration rows of a set, so the expected loss
of any prediction is known. `rows_needed` sees the first n rows of a random order. The truth is the expected loss of a
fit on n rows less that of a fit on 2 n or 4 n rows, on rows after the first 4 n (after 2 n where too few remain).
"""

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
from experiments.stamp import write_page

from glayers import Calibrator, Predictions, rows_needed
from glayers.comparison import unfitted
from glayers.metrics.null_distribution import redrawn_labels
from glayers.text_tables import markdown_table

RESULTS = Path(__file__).parents[1] / "results" / "rows_needed.csv"
ROWS = 500
DRAWS = {"temperature": 8, "vector": 8, "auto": 4, "beta": 4}
LEAST_JUDGES = 500
COLUMNS = ["set", "method", "draw", "times", "gain", "at_most", "truth"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = list(csv.DictReader(RESULTS.open(encoding="utf-8"))) if RESULTS.exists() else []
    done = {tuple(line[name] for name in COLUMNS[:3]) for line in lines}
    sets = {file.stem: np.load(file) for file in sorted(options.logits.glob("*.npz"))}
    for method, draws in DRAWS.items():
        for name, held in sets.items():
            calibration = Predictions(held["logits_val"], held["y_val"])
            for draw in range(draws):
                key = name, method, str(draw)
                if key not in done:
                    found = forecasts_and_truth(calibration, method, draw)
                    lines += [dict(zip(COLUMNS, [*key, *map(str, each)], strict=True)) for each in found]
                    write(lines)
    write(lines)


def forecasts_and_truth(calibration: Predictions, method: str, draw: int) -> list[list[object]]:
    """Return for 2 and 4 times the rows: the forecast, its bound, and the truth."""
    rng = np.random.default_rng(draw)
    order = rng.permutation(len(calibration))
    enough = [times for times in (2, 4) if len(order) - times * ROWS >= LEAST_JUDGES]
    if not enough:
        return []
    truth = new("vector").fit_predictions(calibration).predict_proba(calibration.logits)
    [labels] = next(redrawn_labels(truth, 1, rng))
    drawn = Predictions(calibration.logits, labels.astype(int))
    curve = rows_needed(drawn.take(order[:ROWS]), calibrator=new(method), random_state=draw)
    judges = order[max(enough) * ROWS :]

    def loss(times: int) -> float:
        fitted = new(method).fit_predictions(drawn.take(order[: times * ROWS]))
        p = fitted.predict_proba(drawn.logits[judges])
        return float(-np.vecdot(truth[judges], np.log(np.maximum(p, 1e-300))).mean())

    before = loss(1)
    found: list[list[object]] = []
    for times in enough:
        _, gain, at_most = curve.forecast(times).values()
        found.append([times, *(round(value, 6) for value in (gain, at_most, before - loss(times)))])
    return found


def new(method: str) -> Calibrator:
    return unfitted(method, random_state=0, progress=False)


def write(lines: list[dict[str, str]]) -> None:
    lines.sort(key=lambda line: [line[name] for name in COLUMNS[:4]])
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(lines)
    cells = [["method", "times", "sets", "fits", "below the bound %", "mean forecast", "mean truth", "mean bound"]]
    for method in DRAWS:
        for times in ("2", "4"):
            cells += summary([line for line in lines if (line["method"], line["times"]) == (method, times)])
    text = f"""# What more rows bring: forecasts and truth

Made by `python -m experiments.accuracy.rows_needed --logits DIR`. Labels are drawn from known probabilities: those of
vector scaling fitted to all calibration rows of a set. From {ROWS} rows, `rows_needed` forecasts by how much the NLL
falls with 2 and 4 times the rows, and by how much at most; 95 % of the truths should lie below the bound. The truth is
the fall of the expected NLL between one fit on n rows and one on more rows.

{markdown_table(cells)}
"""
    write_page(RESULTS.with_suffix(".md"), text)


def summary(lines: list[dict[str, str]]) -> list[list[str]]:
    if not lines:
        return []
    gain, at_most, truth = (np.array([float(line[name]) for line in lines]) for name in ("gain", "at_most", "truth"))
    sets = len({line["set"] for line in lines})
    numbers = [f"{value.mean():.4f}" for value in (gain, truth, at_most)]
    within = f"{100 * np.mean(truth <= at_most):.0f}"
    return [[lines[0]["method"], lines[0]["times"], str(sets), str(len(lines)), within, *numbers]]


if __name__ == "__main__":
    main()
