"""Seeds -> an example page for each kind of data: `python -m tests.report.example_pages FOLDER` writes all of them.

The pages are made, not committed: each change of the page would change all of them.
"""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from glayers import Confidences, Predictions, VectorScaling, compare
from tests.report.html_comparisons import page_of, sampled_rows

MANY = ("10", "1000")  # with as many methods as are compared by default: these pages are as large as pages get


def confidences() -> tuple[Confidences, Confidences]:
    rng = np.random.default_rng(0)
    said = rng.uniform(0.2, 1.0, 1_200)
    rows = Confidences(said, rng.random(1_200) < said**2)
    return rows.take(np.arange(600)), rows.take(np.arange(600, 1_200))


def classes(number: int, rows: int) -> tuple[Predictions, Predictions]:
    names = [f"{'wine' if c % 7 else 'a class with a rather long name'} {c}" for c in range(number)]
    first, second = (sampled_rows(rows, seed, classes=number, names=names) for seed in (1, 2))
    return first, second


KINDS: dict[str, Callable[[], tuple[Predictions, Predictions] | tuple[Confidences, Confidences]]] = {
    "confidences": confidences,
    "2": lambda: classes(2, 600),
    "6": lambda: classes(6, 600),
    "10": lambda: classes(10, 600),
    "100": lambda: classes(100, 500),
    "200": lambda: classes(200, 500),
    "1000": lambda: classes(1_000, 80),
}


@cache
def example_page(kind: str) -> str:
    """The page of one kind: confidences, or a number of classes."""
    calibration, test = KINDS[kind]()
    if isinstance(calibration, Confidences):
        found = compare(calibration, test, ["platt", "beta"])
    else:
        # Quick ones with different numbers: a page holds equal numbers once.
        methods = {f"method {place}": VectorScaling(10.0**place) for place in range(1, 8 if kind in MANY else 3)}
        found = compare(calibration, test, methods)
    return page_of(found, calibration=calibration, n_resamples=20, title=f"Example: {kind}")


if __name__ == "__main__":
    for each in KINDS:
        Path(sys.argv[1], f"{each}.html").write_text(example_page(each), encoding="utf-8")
