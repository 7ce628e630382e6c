"""The reference of the site names everything public, and each docstring has its sections."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import BaseEstimator

PAGES = (Path(__file__).parent.parent / "docs" / "reference").glob("*.md")
# The data on these pages, and the names in their tables, which have a page each
ENTRY = re.compile(r"^(?:\.\. py:data:: |   )(glayers\.\S+)$", re.MULTILINE)
NAMES = [name for page in PAGES for name in ENTRY.findall(page.read_text("utf-8"))]
LISTED = set(NAMES)
ROOMS = ["glayers", "glayers.metrics", "glayers.datasets", "glayers.bridges.torch"]
ROOMS += ["glayers.report.plots", "glayers.report.curves"]


def thing(name: str) -> object:
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)


def test_no_object_has_two_pages() -> None:
    assert sorted(LISTED) == sorted(NAMES)


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_in_the_reference(room: str) -> None:
    shown = re.sub(r"((plots|curves)\.).*", r"\2", room)  # their rooms are private
    names = dir(import_module(room)) if room == "glayers" else import_module(room).__all__
    public = [name for name in names if not inspect.ismodule(thing(f"{room}.{name}"))]
    assert [name for name in public if name != "__version__" and f"{shown}.{name}" not in LISTED] == []


def test_every_docstring_of_the_reference_has_its_sections() -> None:
    missing = {}
    for name in LISTED:
        one: Any = thing(name)
        if inspect.isfunction(one):
            wanted = ["Parameters"] * bool(inspect.signature(one).parameters) + ["Examples"]
            wanted += ["(Returns|Yields)"] * (inspect.signature(one).return_annotation not in (None, "None"))
        elif inspect.isclass(one) and issubclass(one, BaseEstimator) and not inspect.isabstract(one):
            wanted = ["Parameters", "Examples"]
        else:
            wanted = []
        text = inspect.getdoc(one) or ""
        missing[name] = [heading for heading in wanted if not re.search(rf"^{heading}\n-+$", text, re.MULTILINE)]
    assert {name: headings for name, headings in missing.items() if headings} == {}
