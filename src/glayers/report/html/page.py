"""A comparison -> one HTML file: measured, put into words, tables and figures, and written in one step.

The page holds one script and one style. Its content security policy names both by their hashes and forbids everything
else, so no browser runs what a class name might smuggle in.
"""

import base64
import dataclasses
import hashlib
import json
import math
import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from glayers.calibrators import AutoCalibrator
from glayers.errors import BadFile
from glayers.files import write_whole
from glayers.metrics import METRICS, PairedDifferences
from glayers.predictions import Predictions
from glayers.report import shortened
from glayers.report.html.data_checks import calibration_counts, data_checks
from glayers.report.html.measuring import LEVEL, SHOWN_METRICS, Compared, Measurements, class_names, measure
from glayers.report.html.summary import summarise
from glayers.report.html.tables import DIFFERENCE_METRICS, class_lines, difference_tables, method_lines

_STYLES = ("page.css", "tables.css", "figures.css", "print.css")
# Joined into one script: these files first, then one file per figure, then main.js, which starts it.
_FIRST_SCRIPTS, _LAST_SCRIPT = ("words.js", "drawing.js", "panel.js"), "main.js"
_MATRIX = 30  # classes per side: smaller cells are hard to point at
_PACKAGES = ("glayers", "numpy", "scipy", "scikit-learn", "torch", "jinja2")
_DIGITS = 5  # of a number in the page's data
# Inside <script> an HTML parser looks for these alone; JSON reads them back from their codes.
_ESCAPED = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
_BEFORE_SIGN = re.compile(r"(?<=\d) (?=%)|(?<=\bp) (?=[=<] )|(?<=\bp [=<]) (?=\d)")


def write_report(
    comparison: Compared,
    path: str | os.PathLike[str],
    *,
    calibration: Predictions | None = None,
    n_resamples: int = 1000,
    random_state: int = 0,
    title: str | None = None,
    force: bool = False,
) -> None:
    """Write a comparison as one HTML file that needs no other file and no network.

    Parameters
    ----------
    comparison
        What `glayers.compare` returned.
    path
        The file to write.
    calibration
        The rows the methods were fitted on; with them, the page also tests for shift between the two sets.
    n_resamples
        The number of bootstrap resamples for intervals and differences.
    random_state
        Seed of the resamples.
    title
        The heading of the page.
    force
        Whether to replace an existing file.

    Raises
    ------
    BadFile
        If the file exists and `force` is False, or if it cannot be written.

    Examples
    --------
    >>> import glayers
    >>> calibration, test = glayers.datasets.load_fashion_mnist()
    >>> found = glayers.compare(calibration, test, ["temperature"])
    >>> write_report(found, "report.html", calibration=calibration)  # doctest: +SKIP
    """
    target = Path(path)
    _refuse_early(target, force)
    text = report_html(
        comparison, calibration=calibration, n_resamples=n_resamples, random_state=random_state, title=title
    )
    # A class name may hold a lone surrogate, which has no encoding.
    write_whole(target, text.encode("utf-8", errors="replace"))


def report_html(
    comparison: Compared,
    *,
    calibration: Predictions | None = None,
    n_resamples: int = 1000,
    random_state: int = 0,
    title: str | None = None,
) -> str:
    """Return the page of `write_report` as text."""
    found, fitted = measure(comparison, n_resamples, random_state), comparison.calibrators
    differences = None
    if len(found.methods) > 1:
        differences = comparison.differences(DIFFERENCE_METRICS, n_resamples=n_resamples, random_state=random_state)
    names = class_names(comparison)
    summary = summarise(comparison, found, differences)
    shown = [found.methods[name] for name in dict.fromkeys([found.before.name, summary.method]) if name]
    counts = calibration_counts(comparison, calibration)
    return _render(
        _data(found, differences, names, summary.method),
        comparison=comparison,
        title="Calibration report" if title is None else title,
        n_classes=comparison.test.n_classes,
        summary=summary,
        level=LEVEL,
        headings=[METRICS[metric].short_label for metric in SHOWN_METRICS],
        methods=method_lines(found),
        difference_headings=[METRICS[metric].short_label for metric in DIFFERENCE_METRICS],
        difference_tables=difference_tables(found, differences),
        class_methods=[method.name for method in shown],
        class_lines=class_lines(found, shown, names, counts),
        has_calibration_counts=counts is not None,
        selections={name: c.selection_ for name, c in fitted.items() if isinstance(c, AutoCalibrator)},
        checks=data_checks(comparison, calibration),
        seeds={name: seed for name, c in fitted.items() if (seed := getattr(c, "random_state", None)) is not None},
        random_state=random_state,
        n_resamples=n_resamples,
        versions=versions(),
    )


def _refuse_early(target: Path, force: bool) -> None:
    """Refuse before the long computation what writing would refuse after it."""
    if target.is_dir():
        raise BadFile(f"{target}: is a directory; give the name of a file in it")
    if not target.parent.is_dir():
        raise BadFile(f"{target}: there is no folder {target.parent}; make it first")
    if target.exists() and not force:
        raise BadFile(f"{target}: exists already; pass force=True to replace it, or choose another name")


def _data(found: Measurements, differences: PairedDifferences | None, names: list[str], chosen: str) -> dict[str, Any]:
    """Return what the figures are drawn from."""
    pairs = [] if differences is None else differences.differences
    return {
        "methods": list(found.methods),
        "chosen": chosen,
        "level": LEVEL,
        "events": [{"key": c.event.name, "group": c.group, "label": c.label} for c in found.choices],
        "curves": {name: method.events for name, method in found.methods.items()},
        "maps": {name: method.maps for name, method in found.methods.items()},
        "differences": [way.to_dict() for pair in pairs for way in (pair, pair.reversed())],
        "metrics": {
            name: {"label": m.short_label, "percent": m.unit == "percent", "digits": m.digits}
            for name, m in ((name, METRICS[name]) for name in DIFFERENCE_METRICS)
        },
        "matrix": _matrix_data(found, names),
    }


def _matrix_data(found: Measurements, names: list[str]) -> dict[str, Any]:
    """Return the class matrices of all methods for the classes that are predicted most."""
    predicted = found.before.matrix.predicted[found.classes]
    chosen = np.sort(found.classes[np.argsort(-predicted, kind="stable")[:_MATRIX]])
    square = np.ix_(chosen, chosen)
    return {
        "names": [shortened(names[c], most=24) for c in chosen.tolist()],
        "of": len(names),
        "methods": {
            name: {
                "predicted": method.matrix.predicted[chosen],
                "gap": method.matrix.gap[square],
                "deviation": method.matrix.deviation[square],
            }
            for name, method in found.methods.items()
        },
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that numbers depend on."""
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # torch is optional
            found[package] = "not installed"
    return found


def _render(data: dict[str, Any], **parts: Any) -> str:
    """Return the page: `data` for its script, `parts` for its template."""
    environment = Environment(
        loader=PackageLoader("glayers.report.html", "assets/html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_unbroken,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = "\n".join(_asset("css", name) for name in _STYLES)
    script = '(() => {\n"use strict";\n' + "\n".join(_asset("js", name) for name in _scripts()) + "\n})();"
    return environment.get_template("page.html.j2").render(
        style=Markup(style),  # noqa: S704  # our own file
        script=Markup(script),  # noqa: S704  # our own files
        data=Markup(script_json(data)),  # noqa: S704  # in which every < is escaped
        policy=(
            f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
            f"base-uri 'none'; form-action 'none'"
        ),
        **parts,
    )


def script_json(value: Any) -> str:
    r"""Return JSON that can stand inside a <script>, whatever strings it holds.

    >>> print(script_json(["</script>", np.array([1 / 3, 6157.0, np.nan])]))
    ["\u003c/script\u003e",[0.33333,6157,null]]
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain).translate(_ESCAPED)


def _plain(value: Any) -> Any:
    """Return a dataclass or an array as JSON has them; whole numbers stay exact, and what is not finite is null."""
    if not isinstance(value, np.ndarray):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if value.ndim > 1:
        return list(value)
    rounded = (n if n.is_integer() else float(f"{n:.{_DIGITS}g}") for n in value.tolist())
    return [(int(n) if n.is_integer() else n) if math.isfinite(n) else None for n in rounded]


def _unbroken(text: Any) -> Any:
    """Keep a number and its sign on one line; Markup is our own and stays as it is."""
    return _BEFORE_SIGN.sub("\u00a0", text) if type(text) is str else text


def _scripts() -> list[str]:
    known = {file.name for file in (files("glayers.report.html") / "assets" / "js").iterdir()}
    return [*_FIRST_SCRIPTS, *sorted(known - {*_FIRST_SCRIPTS, _LAST_SCRIPT}), _LAST_SCRIPT]


def _asset(folder: str, name: str) -> str:
    return (files("glayers.report.html") / "assets" / folder / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
