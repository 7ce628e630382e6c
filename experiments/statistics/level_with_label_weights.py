"""Calibrated models with weights that are a function of the label -> how often tests reject them at 5 percent.

Writes results/level_with_label_weights.csv and .md. Of 1,000 rows, 1, 2 or 5 percent are positive on average, and
have 5 or 30 times the weight of the others, as in a case-control study or with class-balanced weights. The model is
calibrated for the weighted rows. In some cells the weights have another factor, which is log-normal and does not depend
on the label. Lines in the file are kept. Fifteen minutes on one thread.
"""

import argparse
import csv
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from experiments.stamp import write_page
from scipy.special import expit, logit

from glayers.metrics import calibration_test, ece_test, ks_test, label

RESULTS = Path(__file__).parents[1] / "results" / "level_with_label_weights.csv"
ROWS, REPETITIONS, DRAWS = 1_000, 400, 79
TESTS: dict[str, Callable[..., Any]] = {
    "KS": ks_test,
    "KS, class 1": partial(ks_test, event=label(1)),
    "ECE": ece_test,
    "calibration_test": partial(calibration_test, progress=False),
}


def main() -> None:
    with RESULTS.open(newline="", encoding="utf-8") as file:
        lines: list[list[Any]] = list(csv.reader(file))
    done = [line[:3] for line in lines]
    for rate, weight, spread in product((0.01, 0.02, 0.05), (5.0, 30.0), (0.0, 1.0)):
        if [str(rate), str(weight), str(spread)] in done:
            continue
        lines.append([rate, weight, spread, *rejections(rate, weight, spread)])
        print(*lines[-1], flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)
    write_page(RESULTS.with_suffix(".md"), markdown(lines))


def rejections(rate: float, weight: float, spread: float) -> list[int]:
    """Return how often each test rejects; the logarithm of the other factor has this standard deviation."""
    rng = np.random.default_rng(0)
    rejected = dict.fromkeys(TESTS, 0)
    for seed in range(REPETITIONS):
        log_odds = rng.normal(logit(rate), 1.0, ROWS)  # among the rows
        labels = (rng.random(ROWS) < expit(log_odds)).astype(np.int64)
        positive = expit(log_odds + np.log(weight))
        p = np.column_stack([1 - positive, positive])
        weights = np.where(labels == 1, weight, 1.0)
        if spread:
            weights *= np.exp(spread * rng.normal(size=ROWS))
        for name, test in TESTS.items():
            found = test(p, labels, sample_weight=weights, n_resamples=DRAWS, random_state=seed)
            rejected[name] += found.rejected
    return list(rejected.values())


def markdown(lines: list[list[Any]]) -> str:
    text = [
        f"Calibrated models rejected at 5 percent, in percent of {REPETITIONS}; the standard error is 1.1:\n",
        f"| positives | weight | spread of another factor | {' | '.join(TESTS)} |",
        f"| ---: | ---: | ---: | {' | '.join(['---:'] * len(TESTS))} |",
    ]
    for rate, weight, spread, *rejected in lines[1:]:
        shares = [f"{100 * int(number) / REPETITIONS:.1f}" for number in rejected]
        text.append(f"| {100 * float(rate):g} % | {float(weight):g} | {float(spread):g} | {' | '.join(shares)} |")
    return "\n".join([*text, ""])


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # no options but --help
    main()
