"""Measurements -> the figures of the page: for every choice in their menus, the specs of their panels.

A view and a table that several specs share is written once into the page.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Ints
from glayers.errors import listed
from glayers.metrics import METRICS
from glayers.report.figures import (
    EVENT_FIGURES,
    before_after_spec,
    class_gaps_spec,
    class_matrix_spec,
    forest_spec,
    strongest_gap,
)
from glayers.report.findings import LEVEL
from glayers.report.html.measuring import MENU, Measured, Measurements
from glayers.report.spec import HEADINGS, Spec, View
from glayers.report.words import percent, plural, points, shortened, typeset

Tree: TypeAlias = dict[str, Any]  # by choice in the first menu, the second, ...: at last the specs of the panels

_MATRIX = 30  # classes per side: smaller cells are hard to point at
_MOST_CLASSES = 15  # lines of the figure of classes
_NAMED = 3  # classes in a sentence
_DIGITS, _DECIMALS = 4, 6  # of a number in the page's data: 97.09 %, and 0.0001 % at the least
# Inside <script> an HTML parser looks for these alone; JSON reads them back from their codes.
_ESCAPED = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


class PageFigure(NamedTuple):
    """A figure of the page: heading, how to read it, its own menus by their ids, and its panels.

    `shared` are the menus of the whole page that it follows.
    """

    title: str
    caption: str
    shared: tuple[str, ...]
    menus: dict[str, str]
    panels: Callable[[Measurements], Tree]


def page_figures(found: Measurements) -> dict[str, PageFigure]:
    """Return the figures that these measurements have numbers for, by the id of their element."""
    figures = {"hero": _HERO}
    if found.names:
        figures |= {"class-gaps": _CLASS_GAPS, "matrix": _MATRICES}
    if found.differences is not None:
        figures["forest"] = _FOREST
    figures |= event_figures()
    if found.differences is not None:
        figures["map"] = _MAP
    return figures


def event_figures() -> dict[str, PageFigure]:
    """Return the figures of one event."""
    return {
        name: PageFigure(
            figure.title,
            figure.caption,
            ("method", "event"),
            {f"{name}-view": figure.menu},
            partial(_event_panels, name),
        )
        for name, figure in EVENT_FIGURES.items()
    }


def _event_panels(figure: str, found: Measurements) -> Tree:
    return {
        name: {
            event: {view: [method.specs[figure][event][view] for method in methods] for view in views}
            for event, views in methods[0].specs[figure].items()
        }
        for name, methods in found.compared_methods.items()
    }


def page_menus(found: Measurements) -> dict[str, list[dict[str, str]]]:
    """Return the choices of every menu: key, label and, in the menu of events, group."""
    menus = {"method": _choices({name: name for name in found.compared_methods})}
    menus["event"] = [
        {"key": event.name, "label": label, "group": MENU[event.kind]} for event, label in found.events.items()
    ]
    for name, figure in EVENT_FIGURES.items():
        menus[f"{name}-view"] = _choices({key: choice.label for key, choice in figure.choices.items()})
    menus["class-order"] = _choices(_ORDERS)
    menus["metric"] = _choices({name: METRICS[name].short_label for name in found.difference_metrics})
    menus["against"] = _choices({name: name for name in found.methods})
    return menus


def _choices(labels: dict[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "label": label} for key, label in labels.items()]


def _hero_panels(found: Measurements) -> Tree:
    panels = {}
    for name, methods in found.compared_methods.items():
        said = [
            f"{method.name}: says {percent(method.card['confidence'])}, right {percent(method.card['accuracy'])}"
            for method in methods
        ]
        spec = before_after_spec({method.name: method.bins for method in methods})
        panels[name] = [replace(spec, summary=f"{'; '.join(said)}.")]
    return panels


_HERO = PageFigure(
    "Before and after",
    "Each dot is a group of predictions: what the model says, and how often it is right. Larger dots are more rows; "
    "groups of too few rows to tell are left out.",
    ("method",),
    {},
    _hero_panels,
)
_ORDERS = {
    "after": "worst after calibration",
    "before": "worst before calibration",
    "rows": "most test rows",
}


def class_orders(found: Measurements) -> dict[str, Ints]:
    """Return all classes, for each method by how far they are off for certain; and by their number of test rows."""
    orders = {name: class_order(method) for name, method in found.methods.items()}
    if found.before.gaps is not None:
        orders[""] = np.argsort(-found.before.gaps.counts, kind="stable")
    return orders


def class_order(method: Measured) -> Ints:
    """Return the classes of a method, first those whose gap is certainly largest: by the near end of its interval."""
    gaps = method.predicted
    if gaps is None:
        return np.arange(0)
    near = np.nan_to_num(np.maximum(np.maximum(gaps.low, -gaps.high), 0.0))
    worth = near + 1e-6 * np.nan_to_num(np.abs(gaps.gap))  # of equal ends, the larger gap first
    return np.argsort(-worth, kind="stable")


def _class_gap_panels(found: Measurements) -> Tree:
    orders = class_orders(found)
    panels: Tree = {}
    for name, methods in found.compared_methods.items():
        gaps = {method.name: method.predicted for method in methods if method.predicted is not None}
        panels[name] = {}
        by_key = {"after": orders[methods[-1].name], "before": orders[methods[0].name], "rows": orders[""]}
        for key, order in by_key.items():
            known = [c for c in order.tolist() if any(np.isfinite(each.gap[c]) for each in gaps.values())]
            shown = np.array(known[:_MOST_CLASSES])
            spec = class_gaps_spec(gaps, shown, found.names, LEVEL)
            amount = f"All {plural(len(found.names), 'class')}"
            if len(shown) < len(found.names):
                amount = f"{len(shown)} of {plural(len(found.names), 'class')}"
            summary = " ".join(_classes_off(method, found.names) for method in methods)
            panels[name][key] = [replace(spec, title=amount, summary=summary)]
    return panels


def _classes_off(method: Measured, names: list[str]) -> str:
    """Say how many classes are off, and name those with the largest gaps."""
    gaps = method.predicted
    if gaps is None or not gaps.significant(LEVEL).size:
        return f"{method.name}: no class is significantly off."
    off = gaps.significant(LEVEL).tolist()
    named = [f"{names[c]} {points(gaps.gap[c])}" for c in off]
    return f"{method.name}, significantly off: {plural(len(off), 'class')} ({listed(named, _NAMED)})."


_CLASS_GAPS = PageFigure(
    "Classes with the largest gaps",
    "For the rows predicted as each class: mean confidence minus accuracy, with 95 % intervals. The order is by the "
    "near end of the interval: how far a class is off for certain.",
    ("method",),
    {"class-order": "Order"},
    _class_gap_panels,
)


def _matrix_panels(found: Measurements) -> Tree:
    """Return the matrices of the classes that are predicted most."""
    if found.before.matrix is None:
        return {}
    predicted = found.before.matrix.predicted[found.classes]
    largest = np.sort(found.classes[np.argsort(-predicted, kind="stable")[:_MATRIX]])
    names = [found.names[c] for c in largest.tolist()]
    matrices = {name: m.matrix.part(largest) for name, m in found.methods.items() if m.matrix is not None}
    strongest = strongest_gap(list(matrices.values()))
    amount = ""
    if len(largest) < len(found.names):
        amount = f"{len(largest)} of {plural(len(found.names), 'class')}, those predicted most often. "
    specs = {}
    for name, matrix in matrices.items():
        spec = class_matrix_spec(matrix, names, strongest=strongest)
        specs[name] = replace(spec, title=name, summary=amount + spec.summary)
    return {name: [specs[method.name] for method in methods] for name, methods in found.compared_methods.items()}


_MATRICES = PageFigure(
    "Over- and under-prediction by class",
    "For rows with the predicted class on the left: how much the mean probability of the class below exceeds its "
    "frequency. Cells within two standard deviations are left blank.",
    ("method",),
    {},
    _matrix_panels,
)


def _forest_panels(found: Measurements) -> Tree:
    if found.differences is None:
        return {}
    panels: Tree = {}
    for metric in found.difference_metrics:
        panels[metric] = {}
        for against in found.methods:
            others = [name for name in found.methods if name != against]
            spec = forest_spec([found.differences.between(metric, name, against) for name in others])
            title = f"{METRICS[metric].short_label}, method minus {against}"
            panels[metric][against] = [replace(spec, title=title)]
    return panels


_FOREST = PageFigure(
    "Differences between methods",
    "Each method compared with another on the same rows, with 95 % intervals: better on the left, worse on the right.",
    (),
    {"metric": "Metric", "against": "Against"},
    _forest_panels,
)


def _map_panels(found: Measurements) -> Tree:
    """Return the map of the top class, and beside it that of the class in the menu, or of the first."""
    panels: Tree = {}
    for name in found.compared_methods:
        maps = found.methods[name].maps
        panels[name] = {}
        first, *classes = maps.values()
        for event in found.events:
            panels[name][event.name] = [first, *classes[:1]]
            if event.kind == "class":
                panels[name][event.name] = [first, maps[event.name]]
    return panels


_MAP = PageFigure(
    "Calibration map",
    "How calibration changes a probability: the median in each of 20 bins, and the range of the middle 80 % of its "
    "rows. On the diagonal nothing changes.",
    ("method", "event"),
    {},
    _map_panels,
)


class PageData:
    """What the page holds once each: views, texts, tables and specs. A spec is the places of its parts among them."""

    def __init__(self) -> None:
        self.views: dict[View, int] = {}
        self.texts: dict[str, int] = {}
        self.specs: dict[tuple[int | None, ...], int] = {}
        self.tables: list[Mapping[str, Any]] = []
        self._tables: dict[str, int] = {}  # as they are written: numbers that differ in later digits only are equal

    def place(self, spec: Spec) -> int:
        """Return the number of a spec, which is added if it is new."""
        table = self._tables.setdefault(script_json(spec.columns), len(self._tables))
        if table == len(self.tables):
            self.tables.append(spec.columns)
        strip: int | None = None
        if spec.strip is not None:
            strip = self.place(spec.strip)
        texts = [self.texts.setdefault(text, len(self.texts)) for text in (spec.title, typeset(spec.summary))]
        parts = (self.views.setdefault(spec.view, len(self.views)), table, strip, *texts)
        return self.specs.setdefault(parts, len(self.specs))

    def tree(self, panels: Any) -> Any:
        """Return a tree of panels with numbers in the place of specs."""
        if isinstance(panels, dict):
            return {key: self.tree(value) for key, value in panels.items()}
        return [self.place(spec) for spec in panels]


def figure_data(found: Measurements, chosen: str) -> dict[str, Any]:
    """Return what the script of the page draws."""
    data = PageData()
    figures = {
        name: {"menus": [*figure.shared, *figure.menus], "panels": data.tree(figure.panels(found))}
        for name, figure in page_figures(found).items()
    }
    return {
        "chosen": chosen,
        "uncalibrated": found.before.name,
        "menus": page_menus(found),
        "figures": figures,
        "headings": HEADINGS,
        "views": [_view_data(view) for view in data.views],
        "texts": list(data.texts),
        "tables": data.tables,
        "specs": list(data.specs),
        "classes": class_data(found),
    }


def _view_data(view: View) -> dict[str, Any]:
    """Return a view; of its marks, only what they have."""
    marks = [{name: value for name, value in vars(mark).items() if value not in ("", ())} for mark in view.marks]
    return asdict(view) | {"marks": marks}


def class_data(found: Measurements) -> dict[str, Any] | None:
    """Return the columns of the table of all classes, for each method; None for confidences."""
    if found.before.gaps is None:
        return None
    return {
        "level": LEVEL,
        "names": [shortened(name) for name in found.names],
        "rows": found.before.gaps.counts,
        "calibration": found.calibration_counts,
        "orders": class_orders(found),
        "methods": {name: _class_columns(method) for name, method in found.methods.items()},
    }


def _class_columns(method: Measured) -> dict[str, Any]:
    if method.predicted is None or method.gaps is None:
        return {}
    columns = {name: getattr(method.predicted, name) for name in ("gap", "rows", "confidence", "accuracy")}
    significant = method.predicted.p_value <= 1 - LEVEL
    return columns | {"ks": method.gaps.ks, "significant": significant.astype(np.float64)}


def script_json(value: Any) -> str:
    r"""Return JSON that can stand inside a <script>, whatever strings it holds.

    >>> print(script_json(["</script>", np.array([1 / 3, 6157.0, np.nan])]))
    ["\u003c/script\u003e",[0.3333,6157,null]]
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain).translate(_ESCAPED)


def _plain(value: Any) -> list[Any]:
    """Return an array as JSON has it; whole numbers stay exact, and what is not finite is null."""
    return [_rounded(each) for each in value.tolist()]


def _rounded(number: Any) -> Any:
    if isinstance(number, str):
        return number
    if not math.isfinite(number):
        return None
    if number != int(number):
        number = round(float(f"{number:.{_DIGITS}g}"), _DECIMALS)
    if number == int(number):
        number = int(number)
    return number
