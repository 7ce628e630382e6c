"""Sets of logits -> how often the intervals of `rows_needed` hold what more rows then brought.

Run: python -m experiments.accuracy.rows_needed --logits DIR

Writes results/rows_needed.csv and .md; lines in the file are kept.

Only calibration rows are used. `rows_needed` sees the first n rows of a random order. The truth is the loss of a fit on
n rows less that of a fit on 2 n or 4 n rows, on all rows after the first 4 n (after 2 n where too few remain).
Forecasts are of expected losses, so they are compared with the mean over draws.
"""

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
from experiments.stamp import write_page

from glayers import Calibrator, Predictions, metrics, rows_needed
from glayers.comparison import unfitted
from glayers.text_tables import markdown_table

RESULTS = Path(__file__).parents[1] / "results" / "rows_needed.csv"
ROWS = 500
DRAWS = {"temperature": 4, "vector": 4, "auto": 1}
LEAST_JUDGES = 500
COLUMNS = ["set", "method", "draw", "times", "gain", "lower", "upper", "sentence", "truth"]


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
    """Return for 2 and 4 times the rows: the forecast, its interval, what it says in words, and the truth."""
    order = np.random.default_rng(draw).permutation(len(calibration))
    enough = [times for times in (2, 4) if len(order) - times * ROWS >= LEAST_JUDGES]
    if not enough:
        return []
    curve = rows_needed(calibration.take(order[:ROWS]), calibrator=new(method), random_state=draw)
    judges = calibration.take(order[max(enough) * ROWS :])

    def loss(times: int) -> float:
        return metrics.nll(new(method).fit_predictions(calibration.take(order[: times * ROWS])).apply(judges))

    before = loss(1)
    said = next(word for word in ("cannot tell", "hardly", "about") if word in curve.sentence())
    return [
        [
            times,
            *(round(value, 6) for value in list(curve.forecast(times).values())[1:]),
            said,
            round(before - loss(times), 6),
        ]
        for times in enough
    ]


def new(method: str) -> Calibrator:
    return unfitted(method, random_state=0, progress=False)


def write(lines: list[dict[str, str]]) -> None:
    lines.sort(key=lambda line: [line[name] for name in COLUMNS[:4]])
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(lines)
    cells = [["method", "times", "sets", "in the interval %", "below %", "above %", "mean forecast", "mean truth"]]
    cells[0] += ["mean width", "cannot tell %"]
    for method in DRAWS:
        for times in ("2", "4"):
            cells += summary([line for line in lines if (line["method"], line["times"]) == (method, times)])
    text = f"""# What more rows bring: forecasts and truth

Made by `python -m experiments.accuracy.rows_needed --logits DIR`. From {ROWS} calibration rows, `rows_needed` forecasts
by how much the expected NLL falls with 2 and 4 times the rows. The truth is that of one fit on n and one on more rows,
measured on other calibration rows. Forecasts, intervals and truths are means over the draws of a set
({", ".join(f"{method}: {draws}" for method, draws in DRAWS.items())}); the intervals should hold 90 % of the truths.

{markdown_table(cells)}
"""
    write_page(RESULTS.with_suffix(".md"), text)


def summary(lines: list[dict[str, str]]) -> list[list[str]]:
    names = list(dict.fromkeys(line["set"] for line in lines))
    if not names:
        return []
    means = []
    for name in names:
        own = [line for line in lines if line["set"] == name]
        means.append([np.mean([float(line[column]) for line in own]) for column in ("gain", "lower", "upper", "truth")])
    gain, lower, upper, truth = np.array(means).T
    shares = [((lower <= truth) & (truth <= upper)).mean(), (truth < lower).mean(), (truth > upper).mean()]
    unsure = np.mean([line["sentence"] == "cannot tell" for line in lines])
    numbers = [f"{value.mean():.4f}" for value in (gain, truth, upper - lower)]
    cells = [lines[0]["method"], lines[0]["times"], str(len(names)), *(f"{100 * share:.0f}" for share in shares)]
    return [[*cells, *numbers, f"{100 * unsure:.0f}"]]


if __name__ == "__main__":
    main()
