"""Seeds -> small comparisons that a report can be made of, with labels sampled from a known model."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from glayers import Predictions, compare
from glayers.comparison import Comparison
from glayers.report.page import write_report

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "<b>bold</b> & 'quoted'",
    '"; alert(2) //',
    "naïve ✓ \u2028 {{ 7 * 7 }}",
)


class Compared(NamedTuple):
    """Both sets of rows, and what was fitted on the one and scored on the other."""

    calibration: Predictions
    test: Predictions
    found: Comparison


def sampled_rows(
    n: int, seed: int, *, sharpened: float = 3.0, classes: int = 4, names: Iterable[str] | None = None
) -> Predictions:
    """Rows whose labels are drawn from softmax(z), and a model that says softmax(sharpened * z)."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Predictions(sharpened * z, labels, class_names=names)


@cache
def overconfident() -> Compared:
    """A model three times too sure, which temperature scaling can correct exactly; its names are hostile."""
    calibration, test = sampled_rows(900, 1, names=HOSTILE), sampled_rows(1_100, 2, names=HOSTILE)
    return Compared(calibration, test, compare(calibration, test, ["temperature", "vector"]))


def page_of(found: Comparison, **settings: Any) -> str:
    """The text of the page that `write_report` writes."""
    with TemporaryDirectory() as folder:
        target = Path(folder) / "report.html"
        write_report(found, target, **settings)
        return target.read_text(encoding="utf-8")


@cache
def overconfident_page() -> str:
    """The page of that comparison."""
    given = overconfident()
    return page_of(given.found, calibration=given.calibration, n_resamples=100)


@cache
def small() -> Comparison:
    """Few rows and one method, where the numbers do not matter."""
    return compare(sampled_rows(200, 1), sampled_rows(200, 2), ["temperature"])
