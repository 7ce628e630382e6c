"""Sets of logits -> how often the intervals of `rows_needed` hold what more rows then brought.

Run: python -m experiments.accuracy.rows_needed --logits DIR

Writes results/rows_needed.csv and .md; lines in the file are kept.

Only calibration rows are used. `rows_needed` sees the first n rows of a random order. The truth is the loss of a fit on
n rows less that of a fit on 2 n or 4 n rows, on all rows after the first 4 n (after 2 n where too few remain). The
prior of the exponent was chosen with the draws 0 to 3 of 500 rows; the tables show them apart from others. The last
columns are the interval for an exponent of 1 +- 0.1 that never changes.
"""

import argparse
import csv
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
from experiments.stamp import write_page

from glayers import Calibrator, Predictions, learning_curve, metrics, rows_needed
from glayers.comparison import unfitted
from glayers.text_tables import markdown_table

RESULTS = Path(__file__).parents[1] / "results" / "rows_needed.csv"
SIZES = {"temperature": (250, 500, 1_000), "vector": (250, 500, 1_000), "auto": (500,)}
CHOSEN_WITH = (0, 1, 2, 3)  # draws of 500 rows, with which the prior of the exponent was chosen
DRAWS, LEAST_JUDGES = (*CHOSEN_WITH, 100, 101), 500
COLUMNS = ["set", "method", "rows", "draw", "times", "gain", "lower", "upper", "truth", "lower_1", "upper_1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = list(csv.DictReader(RESULTS.open(encoding="utf-8"))) if RESULTS.exists() else []
    done = {tuple(line[name] for name in COLUMNS[:4]) for line in lines}
    sets = {file.stem: np.load(file) for file in sorted(options.logits.glob("*.npz"))}
    rows_of = {name: Predictions(held["logits_val"], held["y_val"]) for name, held in sets.items()}
    for method, sizes in SIZES.items():
        for draw in DRAWS:
            for rows in sizes if draw not in CHOSEN_WITH else (500,):
                for name, calibration in rows_of.items():
                    key = name, method, str(rows), str(draw)
                    if key not in done:
                        found = forecasts_and_truth(calibration, method, rows, draw)
                        lines += [dict(zip(COLUMNS, [*key, *map(str, each)], strict=True)) for each in found]
                        write(lines)
            print(f"{method}, draw {draw}: {len(lines)} lines", flush=True)
    write(lines)


def forecasts_and_truth(calibration: Predictions, method: str, rows: int, draw: int) -> list[list[float]]:
    """Return for 2 and 4 times the rows: the forecast, its interval, and the truth."""
    order = np.random.default_rng(draw).permutation(len(calibration))
    enough = [times for times in (2, 4) if len(order) - times * rows >= LEAST_JUDGES]
    if not enough:
        return []
    extrapolate = learning_curve._possible_falls
    with mock.patch.object(learning_curve, "_possible_falls", side_effect=extrapolate) as called:
        curve = rows_needed(calibration.take(order[:rows]), calibrator=new(method), times=enough, random_state=draw)
    with mock.patch.multiple(learning_curve, _EXPONENT=1.0, _SPREAD=0.1, _CHANGE=0.1):
        fixed = np.quantile(extrapolate(*called.call_args.args), [0.05, 0.95], axis=1).T
    judges = calibration.take(order[max(enough) * rows :])

    def loss(times: int) -> float:
        return metrics.nll(new(method).fit_predictions(calibration.take(order[: times * rows])).apply(judges))

    before = loss(1)
    return [
        [times, *(round(float(value), 6) for value in (*found[1:], before - loss(times), *ends))]
        for times, found, ends in zip(enough, curve.forecasts, fixed, strict=True)
    ]


def new(method: str) -> Calibrator:
    return unfitted(method, random_state=0, progress=False)


def write(lines: list[dict[str, str]]) -> None:
    lines.sort(key=lambda line: (line["set"], line["method"], int(line["rows"]), int(line["draw"]), line["times"]))
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(lines)
    heading = [
        "method",
        "rows",
        "draws",
        "times",
        "forecasts",
        "in the interval %",
        "below %",
        "above %",
        "median width",
    ]
    heading += ["mean forecast", "mean truth", "mean absolute error", "in the interval for an exponent of 1, %"]
    cells = [heading]
    for method, sizes in SIZES.items():
        for rows in sizes:
            for times in (2, 4):
                cells += summary(method, rows, times, lines)
    text = f"""# What more rows bring: forecasts and truth

Made by `python -m experiments.accuracy.rows_needed --logits DIR`. From n calibration rows, `rows_needed` forecasts by
how much the NLL falls with 2 n and 4 n rows. The intervals are meant to hold 90 % of the truths; "below" and "above"
say where the other truths lie. The truth is that of one fit on n and one on more rows, measured on other calibration
rows. "chosen with" are the draws with which the prior of the exponent was chosen.

{markdown_table(cells)}

## Truths above the interval, by set

{markdown_table(misses(lines))}
"""
    write_page(RESULTS.with_suffix(".md"), text)


def summary(method: str, rows: int, times: int, lines: list[dict[str, str]]) -> list[list[str]]:
    key, found = (method, str(rows), str(times)), []
    for kind in ("chosen with", "others"):
        chosen = [
            line
            for line in lines
            if (line["method"], line["rows"], line["times"]) == key
            and (int(line["draw"]) in CHOSEN_WITH) == (kind == "chosen with")
        ]
        if not chosen:
            continue
        gain, lower, upper, truth, *fixed = (np.array([float(line[name]) for line in chosen]) for name in COLUMNS[5:])
        shares = [((lower <= truth) & (truth <= upper)).mean(), (truth < lower).mean(), (truth > upper).mean()]
        numbers = [np.median(upper - lower), gain.mean(), truth.mean(), np.abs(gain - truth).mean()]
        shown = [*(f"{100 * share:.0f}" for share in shares), *(f"{number:.4f}" for number in numbers)]
        held = 100 * ((fixed[0] <= truth) & (truth <= fixed[1])).mean()
        found.append([method, f"{rows:,}", kind, str(times), str(len(chosen)), *shown, f"{held:.0f}"])
    return found


def misses(lines: list[dict[str, str]]) -> list[list[str]]:
    found: list[list[str]] = [["set", *SIZES]]
    for name in dict.fromkeys(line["set"] for line in lines):
        cells = []
        for method in SIZES:
            own = [line for line in lines if (line["set"], line["method"]) == (name, method)]
            above = sum(float(line["truth"]) > float(line["upper"]) for line in own)
            cells.append(f"{above} of {len(own)}")
        found.append([name, *cells])
    return found


if __name__ == "__main__":
    main()
