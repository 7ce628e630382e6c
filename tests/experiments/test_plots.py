"""Figures of the experiments: metrics over seeds, against size and through training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.paper.studies.plots import seed_curves, sizes_figure, training_figure
from matplotlib.figure import Figure

from glayers.errors import GlayersError
from tests.report.golden_images import check_looks_as_before, check_text_stays_inside

GOLDEN = Path(__file__).parent / "golden"


def sizes() -> list[dict[str, Any]]:
    """Three seeds of depths 1 to 3 at three widths."""
    rng = np.random.default_rng(0)
    return [
        {"depth": depth, "weights": 100 * depth * width, "ks": 1.5 - 0.2 * depth + 0.1 * rng.normal(), "accuracy": 92.0}
        for depth in (1, 2, 3)
        for width in (2, 3, 4)
        for _ in range(3)
    ]


def training() -> list[dict[str, Any]]:
    """Two starts on two sets, two seeds."""
    return [
        {"start": start, "set": part, "percent": percent, "nll": nll, "ks": 10 * nll, "accuracy": 95 - 10 * nll}
        for start, far in (("transparent", 0.1), ("Glorot", 2.0))
        for part, worse in (("calibration", 0.0), ("test", 0.1))
        for seed in (0, 1)
        for percent in range(0, 101, 10)
        for nll in [0.3 + worse + far * np.exp(-percent / 20) + 0.02 * seed]
    ]


CASES: dict[str, Callable[[], Figure]] = {
    "sizes": lambda: sizes_figure(sizes()),
    "training": lambda: training_figure(training()),
}


@pytest.mark.parametrize("name", CASES)
def test_a_figure_looks_as_before_and_its_text_stays_inside(name: str, tmp_path: Path) -> None:
    figure = CASES[name]()
    check_looks_as_before(figure, GOLDEN / f"{name}.png", tmp_path)
    check_text_stays_inside(figure)


def test_bars_for_seeds_reach_from_the_lowest_to_the_highest() -> None:
    curve = next(found for found in seed_curves(sizes(), "ks", x="weights", by=["depth"]) if found.name == (2,))
    runs = [record["ks"] for record in sizes() if record["depth"] == 2 and record["weights"] == 400]
    assert (curve.x[0], curve.low[0], curve.high[0]) == (400, min(runs), max(runs))
    assert curve.mean[0] == pytest.approx(sum(runs) / 3)


def test_equal_seeds_have_a_bar_of_no_length() -> None:
    same = [{"depth": 1, "weights": 100, "ks": 92.41, "accuracy": 92.41}] * 3  # their mean is above all of them
    assert np.mean([92.41] * 3) > 92.41
    assert len(sizes_figure(same).axes) == 2


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], "records are empty"),
        ([{"depth": 1, "weights": 5}], "record 0 has no ks; it has depth, weights"),
        ([{"depth": 1, "weights": 5, "ks": "3"}], "record 0: ks must be a number; got '3'"),
    ],
)
def test_records_that_lack_something_are_refused_by_name(records: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(GlayersError, match=said):
        sizes_figure(records)
