"""Sets of logits -> the KS to expect from a calibrator of the right family: results/ks_to_expect.csv and .md.

A calibrated model shows a KS above 0, because test labels are random. A calibrator shows more even with the right
family, because the labels of its fit are random too. To measure how much, temperature scaling, fitted on calibration
rows, serves as the truth of a set: labels of both parts are drawn from it, and a temperature is fitted to the drawn
ones. DIR holds .npz files with logits_val, y_val, logits_test, y_test. Takes a few minutes on one thread.
"""

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
from experiments.logit_files import read_both
from experiments.stamp import write_page

from glayers import GlayersWarning, TemperatureScaling, metrics
from glayers.activations import softmax

RESULTS = Path(__file__).parents[1] / "results" / "ks_to_expect.csv"
COLUMNS = ["set", "calibration_rows", "test_rows", "draw", "truth", "fitted"]
DRAWS = 100
# Class frequencies differ between its test and calibration rows, so no family is right.
SHIFTED = "cifar10_longtail_resnet110"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    warnings.simplefilter("ignore", GlayersWarning)  # classes without rows, which temperature scaling does not need
    rows = []
    for number, file in enumerate(sorted(parser.parse_args().logits.glob("*.npz"))):
        if file.stem != SHIFTED:
            rows += one_set(file, np.random.default_rng(number))
            print(f"{file.stem}: {DRAWS} draws", flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as table:
        csv.writer(table, lineterminator="\n").writerows([COLUMNS, *rows])
    write_page(RESULTS.with_suffix(".md"), markdown(rows))
    print(RESULTS.with_suffix(".md").read_text(encoding="utf-8"))


def one_set(file: Path, rng: np.random.Generator) -> list[list[str]]:
    calibration, test = read_both(file)
    scaled = TemperatureScaling().fit_predictions(calibration)
    logits = [scaled.transform(part.logits).astype(np.float64) for part in (calibration, test)]
    truths = [softmax(each) for each in logits]
    rows = []
    for draw in range(DRAWS):
        fitted_on, scored_on = (labels_of(truth, rng) for truth in truths)
        fitted = TemperatureScaling().fit(logits[0], fitted_on).predict_proba(logits[1])
        shown = [100 * metrics.ks(p, scored_on) for p in (truths[1], fitted)]
        rows.append([file.stem, str(len(calibration)), str(len(test)), str(draw), *(f"{ks:.4f}" for ks in shown)])
    return rows


def labels_of(probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    reached = probabilities.cumsum(axis=1)
    return (reached < rng.random((len(reached), 1)) * reached[:, -1:]).sum(axis=1)


def markdown(rows: list[list[str]]) -> str:
    names = list(dict.fromkeys(row[0] for row in rows))
    shown = np.array([[float(row[4]), float(row[5])] for row in rows]).reshape(len(names), DRAWS, 2)
    (truth, fitted), over_sets = shown.mean(axis=(0, 1)), shown[:, :, 1].mean(axis=0)
    low, high = np.quantile(over_sets, [0.05, 0.95])
    sizes = {row[0]: (row[1], row[2]) for row in rows}
    lines = [
        "Made by `python -m experiments.statistics.ks_to_expect --logits DIR`: KS in percent where temperature scaling "
        f"is the truth, mean of {DRAWS} draws of labels.",
        "",
        f"Mean over {len(names)} sets: {truth:.3f} for the truth itself, {fitted:.3f} for a temperature fitted to "
        f"drawn labels, and from draw to draw between {low:.2f} and {high:.2f} in nine of ten.",
        "",
        "| set | calibration rows | test rows | the truth | fitted |",
        "|---|---:|---:|---:|---:|",
    ]
    means = shown.mean(axis=1)
    for name, (calibrated, scaled) in zip(names, means, strict=True):
        lines.append(f"| {name} | {' | '.join(sizes[name])} | {calibrated:.2f} | {scaled:.2f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
