"""Every figure looks as it did when somebody last looked at it, and none of its text is cut off."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.report.golden_images import TOLERANCE, check_looks_as_before, check_text_stays_inside, distance, pixels, png
from tests.report.plots_cases import CASES

GOLDEN = Path(__file__).parent / "golden"


def lower_the_curve(figure: Figure) -> None:
    line = figure.axes[0].lines[1]
    line.set_ydata(np.asarray(line.get_ydata()) * 0.9)


def remove_patches(figure: Figure) -> None:
    for patch in figure.axes[0].patches[-10:]:
        patch.remove()


CHANGES: dict[str, Callable[[Figure], None]] = {
    "ks": lower_the_curve,
    "reliability": remove_patches,
}


@pytest.mark.parametrize("name", CASES)
def test_a_figure_looks_as_before_and_its_text_stays_inside(name: str, tmp_path: Path) -> None:
    figure = CASES[name]()
    check_looks_as_before(figure, GOLDEN / f"{name}.png", tmp_path)
    check_text_stays_inside(figure)
    if name in CHANGES:  # the tolerance notices a changed curve and a missing band
        CHANGES[name](figure)
        assert distance(pixels(png(figure)), pixels((tmp_path / f"{name}.png").read_bytes())) > TOLERANCE


def test_every_golden_image_has_its_figure() -> None:
    assert {file.stem for file in GOLDEN.glob("*.png")} == set(CASES)
    assert sum(file.stat().st_size for file in GOLDEN.glob("*.png")) < 1_000_000
