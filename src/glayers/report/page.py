"""A comparison -> one HTML file: measured, put into words, tables and figures, and written in one step.

The page holds one script and one style. Its content security policy names both by their hashes and forbids everything
else, so no browser runs what a class name might smuggle in.
"""

import base64
import hashlib
import json
import os
import re
from dataclasses import asdict
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from glayers.calibrators import AutoCalibrator
from glayers.checks import check_switch
from glayers.errors import BadFile
from glayers.files import file_path, write_whole
from glayers.predictions import Confidences, Predictions
from glayers.report import answers
from glayers.report.answers import measure
from glayers.report.figures import FIGURES
from glayers.text_tables import json_ready, plural

if TYPE_CHECKING:
    from glayers.comparison import Comparison

# Joined into one file each, in this order.
_STYLES = ("page.css", "tables.css", "figures.css", "print.css")
_SCRIPTS = ("drawing.js", "card.js", "main.js")
_BEFORE_SIGN = re.compile(r"(?<=\d) (?=%)|(?<=\bp) (?=[=<\u2264] )|(?<=\bp [=<\u2264]) (?=\d)")
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
        The rows the methods were fitted on; with them, the page also looks for rows that are in both sets.
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
    target = file_path(path)
    if not target.parent.is_dir():  # before the long computation
        raise BadFile(f"{target}: there is no folder {target.parent}; make it first")
    if target.exists() and not check_switch(force, "force"):
        raise BadFile(f"{target}: exists already; pass force=True to replace it, or choose another name")
    found = measure(comparison, n_resamples, random_state, calibration, progress)
    panels = found.panels()
    page = _render(
        {name: [asdict(spec) for spec in specs] for name, specs in panels.items()},
        comparison=found.compared,
        title="Calibration report" if title is None else title,
        found=found,
        says=answers,
        figures=FIGURES,
        panels=panels,
        selections={name: c.selection_ for name, c in comparison.calibrators.items() if isinstance(c, AutoCalibrator)},
        random_state=random_state,
        n_resamples=n_resamples,
        plural=plural,
        version=version("glayers"),
    )
    # A class name may hold a lone surrogate, which has no encoding.
    write_whole(target, page.encode("utf-8", errors="replace"))


def script_json(value: Any) -> str:
    r"""Return JSON that can stand inside a <script>, whatever strings it holds; what is not finite is null.

    >>> print(script_json(["</script>", [0.25, 6157.0, float("nan")]]))
    ["\u003c/script\u003e",[0.25,6157.0,null]]
    """
    text = json.dumps(json_ready(value), separators=(",", ":"))
    # Inside <script> an HTML parser looks for these alone; JSON reads them back from their codes.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _render(data: dict[str, Any], **parts: Any) -> str:
    """Return the page: `data` for its script, `parts` for its template."""
    environment = Environment(
        loader=PackageLoader("glayers.report", "assets/html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_typeset,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = _joined("css", _STYLES)
    script = f'(() => {{\n"use strict";\n{_joined("js", _SCRIPTS)}\n}})();'
    sources = f"script-src {_hash(script)}; style-src {_hash(style)}; img-src data:"
    return environment.get_template("page.html.j2").render(
        style=Markup(style),  # noqa: S704  # our own file
        script=Markup(script),  # noqa: S704  # our own files
        data=Markup(script_json(data)),  # noqa: S704  # in which every < is escaped
        policy=f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'",
        **parts,
    )


def _typeset(text: Any) -> Any:
    """Keep a number and its sign on one line, with the minus of print; Markup, as of code, stays as it is."""
    if type(text) is not str:
        return text
    unbroken = _BEFORE_SIGN.sub("\u00a0", text.replace("p <= ", "p \u2264 ")).replace(" +- ", " \u00b1\u00a0")
    return _MINUS.sub("\N{MINUS SIGN}", unbroken)


def _joined(folder: str, names: tuple[str, ...]) -> str:
    assets = files("glayers.report") / "assets" / folder
    return "\n".join((assets / name).read_text("utf-8") for name in names)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
