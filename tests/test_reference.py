"""The reference of the site names everything public."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

PAGES = (Path(__file__).parent.parent / "docs" / "reference").glob("*.md")
LISTED = {name for page in PAGES for name in re.findall(r"^\.\. [\w:]+:: (\S+)", page.read_text("utf-8"), re.MULTILINE)}
ROOMS = ["glayers", "glayers.metrics", "glayers.datasets", "glayers.bridges.torch", "glayers.bridges.dask"]
ROOMS += [f"glayers.report.plots.{room}" for room in ("reliability", "ks", "classes", "comparison", "style")]
ROOMS += [f"glayers.report.curves.{room}" for room in ("events", "classes")]


def thing(name: str) -> object:
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_in_the_reference(room: str) -> None:
    shown = re.sub(r"((plots|curves)\.).*", r"\2", room)  # their rooms are private
    public = [name for name in import_module(room).__all__ if not inspect.ismodule(thing(f"{room}.{name}"))]
    assert [name for name in public if name != "__version__" and f"{shown}.{name}" not in LISTED] == []
