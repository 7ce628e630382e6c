"""Sets of logits and one cost matrix -> what decisions cost with calibrated and with uncalibrated probabilities.

Writes experiments/results/realised_costs.csv and the same as Markdown. DIR holds .npz files with logits_val, y_val,
logits_test, y_test. `auto` is fitted on the first part, and costs are those of the second.

The matrix is the same for every set, chosen before any result was seen: a wrong answer costs 1; to miss class 0, the
one that matters, costs 5; to abstain and ask a person costs 0.2. So a model must know its confidence to tell which
answers are worth a person's time, and the probability of class 0 even where another class is more likely.
"""

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
from experiments.logit_files import read_both
from experiments.stamp import write_page

from glayers import AutoCalibrator, realised_costs
from glayers.text_tables import markdown_table

RESULTS = Path(__file__).parents[1] / "results" / "realised_costs.csv"
MISSED, ABSTAIN = 5.0, 0.2
COLUMNS = ["set", "calibrated", "uncalibrated", "best constant", "saved by calibration", "saved over best constant"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    lines = []
    for file in sorted(parser.parse_args().logits.glob("*.npz")):
        if "longtail" in file.stem:  # whose two parts are not of one kind
            continue
        calibration, test = read_both(file)
        costs = 1 - np.eye(test.n_classes)
        costs[0, 1:] = MISSED
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calibrator = AutoCalibrator(time_budget=0, progress=False).fit_predictions(calibration)
        policies = {"calibrated": calibrator.apply(test), "uncalibrated": test}
        found = realised_costs(policies, costs, abstain=ABSTAIN)
        means = [f"{line['cost'].value:.4f}" for line in found.lines.values()]
        savings = [line["saved by calibrated"] for line in found.lines.values() if len(line) > 1]
        saved = [f"{each.value:.4f} ({each.low:.4f} to {each.high:.4f})" for each in savings]
        lines.append([file.stem, *means, *saved])
        print(*lines[-1], flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as table:
        csv.writer(table, lineterminator="\n").writerows([COLUMNS, *lines])
    head = (
        "Made by `python -m experiments.statistics.realised_costs --logits DIR`. Mean cost per test row, and what "
        f"calibration by `auto` saves, with 95 % intervals. A wrong answer costs 1, to miss class 0 costs {MISSED:g}, "
        f"to abstain costs {ABSTAIN:g}. Where an interval holds 0, calibration saves nothing for certain.\n\n"
    )
    write_page(RESULTS.with_suffix(".md"), head + markdown_table([COLUMNS, *lines]) + "\n")


if __name__ == "__main__":
    main()
