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
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from glayers.calibrators import AutoCalibrator
from glayers.errors import BadFile
from glayers.files import write_whole
from glayers.metrics import METRICS
from glayers.predictions import Confidences, Predictions
from glayers.report import shortened
from glayers.report.findings import LEVEL, banners
from glayers.report.html.measuring import MENU, Measurements, measure
from glayers.report.html.tables import advise, difference_tables, method_lines, summarise

if TYPE_CHECKING:
    from glayers.comparison import Comparison

# Joined into one file each: of the scripts, what figures need, then one file per figure, then what starts the page.
_FIRST = ("page.css", "tables.css", "figures.css", "words.js", "drawing.js", "panel.js", "tables.js")
_LAST = ("print.css", "main.js")
# Terms by the words of the tables; every metric says what it is in its own words too (`glayers.metrics.METRICS`).
GLOSSARY = {
    "accuracy": "The fraction of rows whose most probable class is the label.",
    "confidence": "The probability of the most probable class; here its mean over the rows.",
    "gap": "Mean confidence minus accuracy. Above zero the model is overconfident, below zero underconfident.",
    "KS": "Sort the rows by confidence and add up confidence minus correct: the largest sum, as a fraction of the "
    "rows. Zero for a perfectly calibrated model; it needs no bins.",
    "KS test": "Whether a calibrated model would show a KS error as large as this one on so many rows.",
    "p": "How often a calibrated model (or two equal methods) would show a result at least as extreme by chance.",
    "NLL": "Negative log-likelihood: the mean of minus the log of the probability given to the label. Rewards accuracy "
    "and calibration together.",
    "Brier": "The mean squared difference between the probabilities and the label.",
    "ECE": "Expected calibration error: the mean gap between confidence and accuracy over bins of confidence.",
    "smooth ECE": "Expected calibration error without bins: the gap is smoothed over the confidence.",
    "interval": "A range that contains the true value in 95 % of samples; from bootstrap resamples of the rows.",
    "band": "Where the observed frequencies of a calibrated model lie in 95 % of samples.",
    "significant": "Too large for chance: at most 5 % of calibrated models, or of equal methods, would show it.",
    "top class": "The class with the highest probability.",
    "rank 2": "The class with the second highest probability.",
}
_MATRIX = 30  # classes per side: smaller cells are hard to point at
_PACKAGES = ("glayers", "numpy", "scipy", "scikit-learn", "torch", "jinja2")
_DIGITS, _DECIMALS = 4, 6  # of a number in the page's data: 97.09 %, and 0.0001 % at the least
# Inside <script> an HTML parser looks for these alone; JSON reads them back from their codes.
_ESCAPED = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
_BEFORE_SIGN = re.compile(r"(?<=\d) (?=%)|(?<=\bp) (?=[=<] )|(?<=\bp [=<]) (?=\d)")
_MINUS = re.compile(r"(?:(?<=[\s(])|^)-(?=\d)")


def write_report(
    comparison: "Comparison",
    path: str | os.PathLike[str],
    *,
    calibration: Predictions | Confidences | None = None,
    n_resamples: int = 1000,
    random_state: int = 0,
    title: str | None = None,
    force: bool = False,
    progress: bool | None = None,
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
    progress
        Whether to show a progress bar; None shows it at a terminal.

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
    found = measure(comparison, n_resamples, random_state, calibration, progress)
    summary = summarise(found)
    fitted = comparison.calibrators
    page = _render(
        _data(found, summary.method),
        comparison=comparison,
        title="Calibration report" if title is None else title,
        n_classes=len(found.names),
        summary=summary,
        level=LEVEL,
        headings=[METRICS[metric].short_label for metric in found.shown_metrics],
        methods=method_lines(found),
        difference_headings=[METRICS[metric].short_label for metric in found.difference_metrics],
        difference_tables=difference_tables(found),
        advice=advise(found),
        n_curves=len(found.classes),
        selections={name: c.selection_ for name, c in fitted.items() if isinstance(c, AutoCalibrator)},
        checks=found.checks,
        banners=banners(found.checks),
        seeds={name: seed for name, c in fitted.items() if (seed := getattr(c, "random_state", None)) is not None},
        random_state=random_state,
        n_resamples=n_resamples,
        versions=versions(),
    )
    # A class name may hold a lone surrogate, which has no encoding.
    write_whole(target, page.encode("utf-8", errors="replace"))


def _refuse_early(target: Path, force: bool) -> None:
    """Refuse before the long computation what writing would refuse after it."""
    if target.is_dir():
        raise BadFile(f"{target}: is a directory; give the name of a file in it")
    if not target.parent.is_dir():
        raise BadFile(f"{target}: there is no folder {target.parent}; make it first")
    if target.exists() and not force:
        raise BadFile(f"{target}: exists already; pass force=True to replace it, or choose another name")


def _data(found: Measurements, chosen: str) -> dict[str, Any]:
    """Return what the figures are drawn from."""
    pairs = [] if found.differences is None else found.differences.differences
    return {
        "methods": list(found.methods),
        "chosen": chosen,
        "level": LEVEL,
        "events": [{"key": e.name, "group": MENU[e.kind], "label": label} for e, label in found.events.items()],
        "curves": {name: method.events for name, method in found.methods.items()},
        "maps": {name: method.maps for name, method in found.methods.items()},
        "differences": [way.to_dict() for pair in pairs for way in (pair, pair.reversed())],
        "metrics": {
            name: {"label": m.short_label, "percent": m.unit == "percent", "digits": m.digits, "better": m.better}
            for name, m in ((name, METRICS[name]) for name in found.difference_metrics)
        },
        "matrix": _matrices(found),
        "classes": _classes(found),
    }


def _classes(found: Measurements) -> dict[str, Any] | None:
    """Return confidence and accuracy of every class where it is predicted; None for confidences."""
    if found.before.gaps is None:
        return None
    known = [(name, m.predicted, m.gaps) for name, m in found.methods.items()]
    counts = found.calibration_counts
    return {
        "names": [shortened(name) for name in found.names],
        "rows": found.before.gaps.counts,
        "calibration": None if counts is None else counts.astype(np.float64),
        "methods": {name: _plain(predicted) | {"ks": gaps.ks} for name, predicted, gaps in known if gaps is not None},
    }


def _matrices(found: Measurements) -> dict[str, Any] | None:
    """Return the class matrices of the classes that are predicted most; None for confidences."""
    if found.before.matrix is None:
        return None
    predicted = found.before.matrix.predicted[found.classes]
    largest = np.sort(found.classes[np.argsort(-predicted, kind="stable")[:_MATRIX]])
    return {
        "names": [shortened(found.names[c], most=24) for c in largest.tolist()],
        "of": len(found.names),
        "methods": {name: m.matrix.part(largest) for name, m in found.methods.items() if m.matrix is not None},
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
    environment.globals["GLOSSARY"] = GLOSSARY
    style = _joined("css")
    script = f'(() => {{\n"use strict";\n{_joined("js")}\n}})();'
    sources = f"script-src {_hash(script)}; style-src {_hash(style)}; img-src data:"
    return environment.get_template("page.html.j2").render(
        style=Markup(style),  # noqa: S704  # our own file
        script=Markup(script),  # noqa: S704  # our own files
        data=Markup(script_json(data)),  # noqa: S704  # in which every < is escaped
        policy=f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'",
        **parts,
    )


def script_json(value: Any) -> str:
    r"""Return JSON that can stand inside a <script>, whatever strings it holds.

    >>> print(script_json(["</script>", np.array([1 / 3, 6157.0, np.nan])]))
    ["\u003c/script\u003e",[0.3333,6157,null]]
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain).translate(_ESCAPED)


def _plain(value: Any) -> Any:
    """Return a dataclass or an array as JSON has them; whole numbers stay exact, and what is not finite is null."""
    if not isinstance(value, np.ndarray):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if value.ndim > 1:
        return list(value)
    rounded = (n if n.is_integer() else round(float(f"{n:.{_DIGITS}g}"), _DECIMALS) for n in value.tolist())
    return [(int(n) if n.is_integer() else n) if math.isfinite(n) else None for n in rounded]


def _unbroken(text: Any) -> Any:
    """Keep a number and its sign on one line, and print a minus as a minus; Markup, as of code, stays as it is."""
    if type(text) is not str:
        return text
    return _MINUS.sub("\u2212", _BEFORE_SIGN.sub("\u00a0", text)).replace(" +- ", " \u00b1\u00a0")


def _joined(folder: str) -> str:
    assets = files("glayers.report.html") / "assets" / folder
    texts = {file.name: file.read_text("utf-8") for file in assets.iterdir()}
    figures = sorted(texts.keys() - {*_FIRST, *_LAST})
    return "\n".join(texts[name] for name in (*_FIRST, *figures, *_LAST) if name in texts)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
