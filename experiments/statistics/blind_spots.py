"""Simulated models with one error each -> which tests of `calibration_test` see it: results/blind_spots.csv.

The model predicts softmax(z) with independent Gaussian logits z. Labels are drawn from these probabilities, or from
probabilities that differ in one way. Every cell has sets of predictions with ten draws of labels each. A finished cell
is written at once and skipped in later runs; the first cells had more repetitions, as the csv says. A quarter of an
hour on one core.
"""

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from experiments.stamp import write_page

from glayers.metrics import calibration_test

RESULTS = Path(__file__).parents[1] / "results" / "blind_spots.csv"
TESTS = {
    "ks": "KS, confidence",
    "ece": "ECE, confidence",
    "rank_2_ks": "KS, second class",
    "classwise_ks": "KS, all classes",
    "together": "all four together",
}
SCALES = {  # of the logits: the blunt models are right in 83, 66 and 56 percent of rows, the sharp ones in 92 to 95
    "blunt": {2: 2.0, 10: 3.0, 100: 4.0},
    "sharp": {2: 8.0, 10: 14.0, 100: 24.0},
}
LEVEL = 0.05
DRAWS = 99  # (DRAWS + 1) * LEVEL is whole, so that the test can have exactly this level
LABELS = 10  # draws of labels for each set of predictions
ROWS = {200: 400, 1_000: 200, 5_000: 100}  # repetitions by number of rows, for calibrated models
POWER_ROWS, POWER_REPETITIONS = 2_000, 100
LARGE = 100_000  # probabilities, from where on there are half as many repetitions


class Cell(NamedTuple):
    """An error by name, the number of classes and rows, and the kind of model."""

    error: str
    classes: int
    rows: int
    model: str


MORE = {Cell("none", 2, 5_000, "sharp"): 500}  # of its first 100 repetitions, KS rejected 14


class Split(NamedTuple):
    """Predictions (n, k) in parts: the top class, its probability, and the shares of the others in the rest."""

    top: np.ndarray
    confidence: np.ndarray
    others: np.ndarray

    def joined(self, confidence: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return probabilities with another confidence and other shares."""
        others = others.copy()
        rows = np.arange(len(others))
        others[rows, self.top] = 0.0
        result = others * ((1 - confidence) / others.sum(axis=1))[:, None]
        result[rows, self.top] = confidence
        return result


def alternating(given: Split) -> np.ndarray:
    """Sort by confidence: from tenth to tenth, the top class is right 8 points too often or too seldom."""
    tenth = np.argsort(np.argsort(given.confidence)) * 10 // len(given.top)
    return given.joined(np.clip(given.confidence + 0.08 * (-1.0) ** tenth, 0.01, 0.99), given.others)


def flatter_below(given: Split) -> np.ndarray:
    """The confidence is right, and the probabilities of the other classes differ less than the model says."""
    return given.joined(given.confidence, given.others**0.6)


def shifted_below(given: Split) -> np.ndarray:
    """The confidence is right; of the other classes, those with an even number have twice the odds."""
    return given.joined(given.confidence, given.others * np.where(np.arange(given.others.shape[1]) % 2, 1.0, 2.0))


def opposite_classes(given: Split) -> np.ndarray:
    """The top class is right 10 points too often if its number is even, and 10 points too seldom if it is odd."""
    return given.joined(np.clip(given.confidence + 0.1 * (-1.0) ** given.top, 0.01, 0.99), given.others)


ERRORS: dict[str, Callable[[Split], np.ndarray]] = {
    "none": lambda given: given.joined(given.confidence, given.others),
    "alternating over- and underconfidence": alternating,
    "below the top: flatter": flatter_below,
    "below the top: even classes": shifted_below,
    "opposite errors of classes": opposite_classes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="only write the table from the csv")
    parser.add_argument("--only", default="", help="only errors whose names contain this, so that two runs may share")
    parser.add_argument("--model", choices=SCALES, help="only this kind of model")
    arguments = parser.parse_args()
    if not arguments.table:
        cells = [Cell("none", k, n, model) for model in SCALES for n in ROWS for k in (2, 10, 100)]
        cells += [Cell(e, k, POWER_ROWS, model) for e in ERRORS if e != "none" for model in SCALES for k in (10, 100)]
        cells.sort(key=lambda cell: cell.rows * cell.classes)  # quick ones first
        fill([c for c in cells if arguments.only in c.error and arguments.model in (None, c.model)])
    write_page(RESULTS.with_suffix(".md"), markdown(read()))
    print(RESULTS.with_suffix(".md").read_text(encoding="utf-8"))


def fill(cells: list[Cell]) -> None:
    done = read()
    for cell in cells:
        if cell not in done:
            began = time.perf_counter()
            repetitions = ROWS[cell.rows] if cell.error == "none" else POWER_REPETITIONS
            repetitions //= 2 if cell.rows * cell.classes >= LARGE else 1
            repetitions = MORE.get(cell, repetitions)
            rejected = count(cell, repetitions)
            write([*cell, repetitions, *(rejected.get(test, "") for test in TESTS)])
            print(f"{cell}: {rejected} of {repetitions}, {time.perf_counter() - began:.0f} s", flush=True)


def count(cell: Cell, repetitions: int) -> dict[str, int]:
    """Return how often each test alone and all together reject the model."""
    rng = np.random.default_rng([cell.classes, cell.rows])
    rejected: dict[str, int] = {}
    for _ in range(repetitions // LABELS):
        claimed = softmax(SCALES[cell.model][cell.classes] * rng.normal(size=(cell.rows, cell.classes)))
        reached = ERRORS[cell.error](split(claimed)).cumsum(axis=1)
        for _ in range(LABELS):
            labels = (reached < rng.random((cell.rows, 1))).sum(axis=1)
            seed = int(rng.integers(2**32))
            found = calibration_test(
                claimed, np.minimum(labels, cell.classes - 1), n_resamples=DRAWS, random_state=seed, progress=False
            )
            results = {name: test.p_value <= LEVEL for name, test in found.tests.items()} | {"together": found.rejected}
            rejected = {name: rejected.get(name, 0) + int(result) for name, result in results.items()}
    return rejected


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def split(claimed: np.ndarray) -> Split:
    top = claimed.argmax(axis=1)
    others = np.maximum(claimed, 1e-300)  # of a very sharp model, the rest may have rounded to 0
    return Split(top, claimed[np.arange(len(top)), top], others)


def write(row: list[object]) -> None:
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        heading = [*Cell._fields, "repetitions", *TESTS]
        csv.writer(file, lineterminator="\n").writerows([heading, row] if new else [row])


def read() -> dict[Cell, dict[str, str]]:
    """The line of each finished cell, in the order of the errors."""
    if not RESULTS.exists():
        return {}
    with RESULTS.open(encoding="utf-8") as file:
        found = {Cell(r["error"], int(r["classes"]), int(r["rows"]), r["model"]): r for r in csv.DictReader(file)}
    return dict(sorted(found.items(), key=lambda item: (list(ERRORS).index(item[0].error), item[0][1:])))


def markdown(found: dict[Cell, dict[str, str]]) -> str:
    """Rejections in percent, with their standard errors."""
    calibrated = {cell: line for cell, line in found.items() if cell.error == "none"}
    total = [sum(int(line[name]) for line in calibrated.values()) for name in ("together", "repetitions")]
    return "\n".join(
        [
            "Calibrated models rejected at 5 percent, in percent:\n",
            *table(calibrated),
            f"\nAll cells, all four together: {total[0]} of {total[1]:,}, {shown(*total)} percent.",
            "\nModels with one error rejected at 5 percent, in percent:\n",
            *table({cell: line for cell, line in found.items() if cell.error != "none"}),
            "",
        ]
    )


def table(lines: dict[Cell, dict[str, str]]) -> list[str]:
    result = [f"| error | classes | rows | model | {' | '.join(TESTS.values())} |", f"|---|---:|---:|---|{'---:|' * 5}"]
    for cell, line in lines.items():
        shares = [shown(int(line[test]), int(line["repetitions"])) if line[test] else "" for test in TESTS]
        result.append(f"| {cell.error} | {cell.classes} | {cell.rows:,} | {cell.model} | {' | '.join(shares)} |")
    return result


def shown(rejected: int, of: int) -> str:
    share = rejected / max(of, 1)
    return f"{100 * share:.1f} ± {100 * np.sqrt(share * (1 - share) / max(of, 1)):.1f}"


if __name__ == "__main__":
    main()
