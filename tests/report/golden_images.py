"""Figures -> small images, compared with those that somebody looked at.

After a change that is meant to be seen, run the tests with GLAYERS_REDRAW=1, look at the images that changed, and
commit them.
"""

import os
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imread

from tests.strategies import Numbers

DPI = 45  # shapes, colours and places are visible at this size; letters are not legible
TOLERANCE = 0.012  # root of the mean squared difference of channels from 0 to 1; a band left out makes 0.017
# Letters are drawn by the FreeType inside matplotlib, the same on all machines; a new matplotlib may need new images.


def png(figure: Figure) -> bytes:
    figure.set_dpi(DPI)  # so that what is measured later is what was drawn here
    stream = BytesIO()
    figure.savefig(stream, dpi=DPI, metadata={"Software": None}, pil_kwargs={"optimize": True})
    return stream.getvalue()


def pixels(image: bytes) -> Numbers:
    return imread(BytesIO(image))[..., :3]


def distance(left: Numbers, right: Numbers) -> float:
    return float(np.sqrt(np.mean((left - right) ** 2)))


def check_looks_as_before(figure: Figure, golden: Path, folder: Path) -> None:
    """Compare with the golden image; the one drawn now is kept in the folder."""
    image = png(figure)
    if os.environ.get("GLAYERS_REDRAW"):
        golden.write_bytes(image)
    (folder / golden.name).write_bytes(image)
    now, then = pixels(image), pixels(golden.read_bytes())
    assert now.shape == then.shape
    assert distance(now, then) < TOLERANCE, f"drawn: {folder / golden.name}, expected: {golden}"


def check_text_stays_inside(figure: Figure) -> None:
    """Check that no title, label, text or legend of a drawn figure is cut off at its edge."""
    width, height = figure.get_size_inches() * figure.get_dpi()
    least = 1 / 3  # of a pixel
    texts = [text for each in figure.axes for text in (each.title, each.xaxis.label, each.yaxis.label, *each.texts)]
    for text in [*texts, *(text for legend in figure.legends for text in legend.get_texts())]:
        if text.get_visible() and text.get_text():
            box = text.get_window_extent()
            assert box.x0 >= -least, text
            assert box.x1 <= width + least, text
            assert box.y0 >= -least, text
            assert box.y1 <= height + least, text
