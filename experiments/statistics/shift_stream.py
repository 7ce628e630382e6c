"""A stream of batches whose rows shift at a known batch -> how soon `shift_test` says so, and how often it errs before.

Run: python -m experiments.statistics.shift_stream (writes results/shift_stream.csv and .md)

The rows are the sample data. Each stream draws 5,000 rows to calibrate on; the others arrive in batches, without
labels. Every batch is tested on its own, at the level stated.
"""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
from experiments.stamp import write_page

from glayers import TemperatureScaling, shift_test
from glayers.datasets import load_fashion_mnist
from glayers.text_tables import markdown_table

RESULTS = Path(__file__).parents[1] / "results" / "shift_stream.csv"
STREAMS, CALIBRATION = 200, 5_000
FIRST_SHIFTED = 10  # counted from 0, so ten batches come before
BATCHES = 12
LEVELS = (0.95, 0.999)
Rows = tuple[np.ndarray, np.ndarray]
# What happens to the rows of a batch: logits and the probability to keep each row.
SHIFTS: dict[str, Callable[[np.ndarray, np.ndarray, np.random.Generator], Rows]] = {
    "none": lambda z, y, _: (z, np.ones(len(y))),
    "three classes become half as frequent": lambda z, y, _: (z, np.where(y < 3, 0.5, 1.0)),
    "three classes become a fifth as frequent": lambda z, y, _: (z, np.where(y < 3, 0.2, 1.0)),
    "noise of 3 on every logit": lambda z, y, rng: (z + 3 * rng.normal(size=z.shape), np.ones(len(y))),
    "logits shrink by 20 %": lambda z, y, _: (0.8 * z, np.ones(len(y))),
}


def main() -> None:
    found = [stream(name, rows, level) for name in SHIFTS for rows in (100, 250) for level in LEVELS]
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, found[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    cells = [[name.replace("_", " ") for name in found[0]], *([str(value) for value in row.values()] for row in found)]
    about = f"{STREAMS} streams; the shift begins with batch {FIRST_SHIFTED + 1}."
    about += " Made by `python -m experiments.statistics.shift_stream`."
    write_page(RESULTS.with_suffix(".md"), f"# Shift in a stream\n\n{about}\n\n{markdown_table(cells)}\n")


def stream(name: str, rows: int, level: float) -> dict[str, object]:
    """Return how often batches before the shift are flagged, and how often the shift is flagged in time."""
    parts = load_fashion_mnist()
    logits, labels = (np.concatenate([getattr(part, field) for part in parts]) for field in ("logits", "labels"))
    flagged = np.zeros((STREAMS, BATCHES), bool)
    for number in range(STREAMS):
        rng = np.random.default_rng(number)
        order = rng.permutation(len(labels))
        used, rest = order[:CALIBRATION], order[CALIBRATION:]
        fitted = TemperatureScaling().fit(logits[used], labels[used])
        for batch in range(BATCHES):
            z, keep = SHIFTS[name if batch >= FIRST_SHIFTED else "none"](logits[rest], labels[rest], rng)
            # A batch may repeat rows of another batch, but no row twice.
            chosen = rng.choice(len(rest), rows, replace=False, p=keep / keep.sum())
            flagged[number, batch] = shift_test(fitted, z[chosen], level=level).shifted
    before, after = flagged[:, :FIRST_SHIFTED], flagged[:, FIRST_SHIFTED:]
    return {
        "shift": name,
        "rows_in_a_batch": rows,
        "level": level,
        "flagged_before_%": f"{100 * before.mean():.2f}",
        "flagged_in_first_batch_%": f"{100 * after[:, 0].mean():.1f}",
        "flagged_within_two_batches_%": f"{100 * after[:, :2].any(axis=1).mean():.1f}",
    }


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # no options but --help
    main()
