"""Every figure looks as it did when somebody last looked at it.

After a change that is meant to be seen: `GLAYERS_REDRAW=1 pytest tests/report/test_plots_golden.py`, look at what
changed in tests/report/golden, and commit it.
"""

import os
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from tests.report.plots_cases import CASES
from tests.strategies import Numbers

GOLDEN = Path(__file__).parent / "golden"
DPI = 45  # shapes, colours and places are seen at this size; letters are only guessed
TOLERANCE = 0.012  # root of the mean squared difference of channels from 0 to 1; a band left out makes 0.017
# Letters are drawn by the FreeType inside matplotlib, the same on all machines; a new matplotlib may need new images.


def png(figure: Figure) -> bytes:
    stream = BytesIO()
    figure.savefig(stream, dpi=DPI, metadata={"Software": None}, pil_kwargs={"optimize": True})
    return stream.getvalue()


def pixels(image: bytes) -> Numbers:
    return imread(BytesIO(image))[..., :3]


def distance(left: Numbers, right: Numbers) -> float:
    return float(np.sqrt(np.mean((left - right) ** 2)))


@pytest.mark.parametrize("name", CASES)
def test_a_figure_looks_as_it_did(name: str, tmp_path: Path) -> None:
    # Drawn anew: a layout with a colour bar moves a little when it is drawn a second time.
    file, image = GOLDEN / f"{name}.png", png(CASES[name]())
    if os.environ.get("GLAYERS_REDRAW"):
        file.write_bytes(image)
    (tmp_path / file.name).write_bytes(image)
    now, then = pixels(image), pixels(file.read_bytes())
    assert now.shape == then.shape
    assert distance(now, then) < TOLERANCE, f"drawn: {tmp_path / file.name}, expected: {file}"


def test_there_is_no_golden_image_without_its_figure() -> None:
    assert {file.stem for file in GOLDEN.glob("*.png")} == set(CASES)
    assert sum(file.stat().st_size for file in GOLDEN.glob("*.png")) < 1_000_000


def test_the_tolerance_sees_a_changed_curve_and_a_missing_band() -> None:
    figure = CASES["ks"]()
    before = pixels(png(figure))
    line = figure.axes[0].lines[1]
    line.set_ydata(np.asarray(line.get_ydata()) * 0.9)
    assert distance(pixels(png(figure)), before) > TOLERANCE
    figure = CASES["reliability-smooth"]()
    before = pixels(png(figure))
    figure.axes[0].collections[0].remove()
    assert distance(pixels(png(figure)), before) > TOLERANCE
