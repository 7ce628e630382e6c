"""Sets of logits -> how often the intervals of `rows_needed` hold what more rows then brought.

Run: python experiments/rows_needed.py --logits DIR (writes results/rows_needed.csv and .md; lines in the file are kept)

Only calibration rows are used. `rows_needed` sees the first n rows of a random order. The truth is the loss of a fit on
n rows less that of a fit on 2 n or 4 n rows, on all rows after the first 4 n (after 2 n where too few remain). The
prior of the exponent was chosen with the draws 0 to 3 at 500 rows; the draws here are others. The last columns are the
interval for an exponent of 1 +- 0.1 that never changes.
"""

import argparse
import csv
import warnings
from pathlib import Path
from unittest import mock

import numpy as np

from glayers import Calibrator, Predictions, learning_curve, metrics, rows_needed
from glayers.comparison import unfitted
from glayers.text_tables import markdown_table

RESULTS = Path(__file__).parent / "results" / "rows_needed.csv"
SIZES = {"temperature": (250, 500, 1_000), "vector": (250, 500, 1_000), "auto": (250, 500)}
DRAWS, LEAST_JUDGES = (100, 101, 102), 500
COLUMNS = ["set", "method", "rows", "draw", "times", "gain", "lower", "upper", "truth", "lower_1", "upper_1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = list(csv.DictReader(RESULTS.open(encoding="utf-8"))) if RESULTS.exists() else []
    done = {tuple(line[name] for name in COLUMNS[:4]) for line in lines}
    for draw in DRAWS:
        for file in sorted(options.logits.glob("*.npz")):
            held = np.load(file)
            calibration = Predictions(held["logits_val"], held["y_val"])
            for method, sizes in SIZES.items():
                for rows in sizes:
                    if (file.stem, method, str(rows), str(draw)) not in done:
                        lines += [
                            dict(zip(COLUMNS, [file.stem, method, str(rows), str(draw), *map(str, each)], strict=True))
                            for each in forecasts_and_truth(calibration, method, rows, draw)
                        ]
            write(lines)
            print(f"draw {draw}, {file.stem}: {len(lines)} lines", flush=True)


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
    heading = ["method", "rows", "times", "forecasts", "in the interval %", "below %", "above %"]
    cells = [
        [
            *heading,
            "median width",
            "mean forecast",
            "mean truth",
            "mean absolute error",
            "in the interval % for an exponent of 1",
        ]
    ]
    for method, sizes in SIZES.items():
        for rows in sizes:
            for times in (2, 4):
                cells += summary(method, rows, times, lines)
    text = f"""# What more rows bring: forecasts and truth

Made by `python experiments/rows_needed.py --logits DIR`. From n calibration rows, `rows_needed` forecasts by how much
the NLL falls with 2 n and 4 n rows. The intervals are meant to hold 90 % of the truths; "below" and "above" say where
the other truths lie. The truth is that of one fit on n and one on more rows, measured on other calibration rows.

{markdown_table(cells)}

## Truths above the interval, by set

{markdown_table(misses(lines))}
"""
    RESULTS.with_suffix(".md").write_text(text, encoding="utf-8")


def summary(method: str, rows: int, times: int, lines: list[dict[str, str]]) -> list[list[str]]:
    chosen = [
        line for line in lines if (line["method"], line["rows"], line["times"]) == (method, str(rows), str(times))
    ]
    if not chosen:
        return []
    gain, lower, upper, truth, lower_1, upper_1 = (
        np.array([float(line[name]) for line in chosen]) for name in COLUMNS[5:]
    )
    shares = [((lower <= truth) & (truth <= upper)).mean(), (truth < lower).mean(), (truth > upper).mean()]
    numbers = [np.median(upper - lower), gain.mean(), truth.mean(), np.abs(gain - truth).mean()]
    first = [method, f"{rows:,}", str(times), str(len(chosen))]
    cells = [*(f"{100 * share:.0f}" for share in shares), *(f"{number:.4f}" for number in numbers)]
    return [[*first, *cells, f"{100 * ((lower_1 <= truth) & (truth <= upper_1)).mean():.0f}"]]


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
