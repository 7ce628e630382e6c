"""Sets of logits -> the test NLL of `auto` and its strongest peers when fitted on 100 to 2,000 calibration rows.

Writes experiments/results/few_rows.csv and the same as Markdown. DIR holds .npz files with logits_val, y_val,
logits_test, y_test. Each of five draws takes the first rows of another random order of the calibration rows, the same
for all methods. Peers: SVS and SMS of probmetrics, in float64. A fit in the file is not repeated: delete its lines, or
the file, to repeat it.
"""

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
from experiments.logit_files import read_both
from experiments.stamp import write_page
from probmetrics.calibrators import SMSCalibrator, SVSCalibrator
from scipy import stats

from glayers import CALIBRATORS, Predictions, metrics
from glayers.activations import softmax

RESULTS = Path(__file__).parents[1] / "results" / "few_rows.csv"
SIZES, DRAWS = (100, 250, 500, 1_000, 2_000), 5
PEERS = {"SVS": SVSCalibrator, "SMS": SMSCalibrator}
METHODS = ("temperature", *PEERS, "auto")
COLUMNS = ["set", "rows", "draw", "method", "nll"]
TIED = 0.002  # a method this close to the best counts as best
WORSE = 0.001  # more than this above temperature scaling counts as worse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    parser.add_argument("--methods", default=",".join(METHODS), help="fit only these, such as auto")
    options = parser.parse_args()
    rows = list(csv.DictReader(RESULTS.open(encoding="utf-8"))) if RESULTS.exists() else []
    done = {tuple(row[key] for key in COLUMNS[:4]) for row in rows}
    sets = {file.stem: read_both(file) for file in sorted(options.logits.glob("*.npz"))}
    for draw in range(DRAWS):
        for size in SIZES:
            for name, (calibration, test) in sets.items():
                for method in options.methods.split(","):
                    key = name, str(size), str(draw), method
                    if key not in done:
                        found = one_fit(method, calibration, test, size, draw)
                        rows.append(dict(zip(COLUMNS, [*key, f"{found:.5f}"], strict=True)))
            write_csv(rows)
            print(f"draw {draw}, {size} rows: {len(rows)} lines", flush=True)
    text = as_markdown(rows)
    write_page(RESULTS.with_suffix(".md"), text)
    print(text)


def one_fit(method: str, calibration: Predictions, test: Predictions, size: int, draw: int) -> float:
    """Return the test NLL of one fit."""
    drawn = calibration.take(np.random.default_rng(draw).permutation(len(calibration))[:size])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method not in PEERS:
            logits = CALIBRATORS[method]().fit_predictions(drawn).transform(test.logits)
            return metrics.nll(Predictions(logits, test.labels))
        rows, new = (softmax(part.logits.astype(np.float64)) for part in (drawn, test))  # peers take probabilities
        said = PEERS[method]().fit(rows, drawn.labels).predict_proba(new)
    return metrics.nll(Predictions.from_probabilities(said, test.labels, floor=float(np.finfo(np.float64).tiny)))


def write_csv(rows: list[dict[str, str]]) -> None:
    rows.sort(key=lambda row: (row["set"], int(row["rows"]), int(row["draw"]), METHODS.index(row["method"])))
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def as_markdown(rows: list[dict[str, str]]) -> str:
    value = {(row["set"], int(row["rows"]), int(row["draw"]), row["method"]): float(row["nll"]) for row in rows}
    sets = list(dict.fromkeys(row["set"] for row in rows))
    lines = [
        "Made by `make table-few-rows LOGITS=DIR`. Test NLL of methods fitted on few calibration rows, over several "
        "draws of the rows. Plus or minus: half of a 95 % interval for the mean over draws, by Student's t.",
        "",
        f"## Mean over {len(sets)} sets",
        "",
        "| rows | draws | "
        + " | ".join(METHODS)
        + f" | `auto` best or within {TIED} | `auto` above temperature by more than {WORSE} |",
        "|---:|---:|" + "---:|" * len(METHODS) + "---|---|",
    ]
    details = []
    for size in SIZES:
        draws = [d for d in range(DRAWS) if all((s, size, d, m) in value for s in sets for m in METHODS)]
        if not draws:
            continue
        nll = np.array(
            [[[value[s, size, d, m] for m in METHODS] for d in draws] for s in sets]
        )  # (sets, draws, methods)
        means = nll.mean(axis=1)
        tied = int((means[:, -1] <= means.min(axis=1) + TIED).sum())
        worse = [name for name, mean in zip(sets, means, strict=True) if mean[-1] > mean[0] + WORSE]
        cells = [str(len(draws)), *(interval(nll[..., m].mean(axis=0)) for m in range(len(METHODS)))]
        cells += [f"{tied} of {len(sets)}", ", ".join(worse) or "none"]
        lines.append(f"| {size:,} | " + " | ".join(cells) + " |")
        details += ["", f"## {size:,} rows", "", "| set | " + " | ".join(METHODS) + " | `auto` less temperature |"]
        details.append("|---|" + "---:|" * (len(METHODS) + 1))
        for name, mean, each in zip(sets, means, nll, strict=True):
            cells = [*(f"{number:.4f}" for number in mean), interval(each[:, -1] - each[:, 0])]
            details.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, *details]) + "\n"


def interval(values: np.ndarray) -> str:
    if len(values) == 1:
        return f"{values[0]:.4f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.4f} ± {half:.4f}"


if __name__ == "__main__":
    main()
