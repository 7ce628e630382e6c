"""Every figure looks as it did when somebody last looked at it, and none of its text is cut off."""

from pathlib import Path

import numpy as np
import pytest

from tests.report.golden_images import TOLERANCE, check_looks_as_before, check_text_stays_inside, distance, pixels, png
from tests.report.plots_cases import CASES

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", CASES)
def test_a_figure_looks_as_before_and_its_text_stays_inside(name: str, tmp_path: Path) -> None:
    figure = CASES[name]()
    check_looks_as_before(figure, GOLDEN / f"{name}.png", tmp_path)
    check_text_stays_inside(figure)


def test_every_golden_image_has_its_figure() -> None:
    assert {file.stem for file in GOLDEN.glob("*.png")} == set(CASES)
    assert sum(file.stat().st_size for file in GOLDEN.glob("*.png")) < 1_000_000


def test_the_tolerance_notices_a_changed_curve_and_a_missing_band() -> None:
    figure = CASES["ks"]()
    line = figure.axes[0].lines[1]
    line.set_ydata(np.asarray(line.get_ydata()) * 0.9)
    assert distance(pixels(png(figure)), pixels((GOLDEN / "ks.png").read_bytes())) > TOLERANCE
    figure = CASES["reliability-smooth"]()
    figure.axes[0].collections[0].remove()
    assert distance(pixels(png(figure)), pixels((GOLDEN / "reliability-smooth.png").read_bytes())) > TOLERANCE
