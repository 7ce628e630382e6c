"""The parts of a page -> its text, with one script and one style inside and a policy that allows nothing else.

The policy names script and style by their hashes: whatever a class name smuggles in, no browser runs it.
"""

import base64
import hashlib
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from glayers.report.html.numbers import script_json, unbroken

_STYLES = ("page.css", "tables.css", "figures.css", "print.css")
# One after the other in one scope: each uses what those before it define.
_SCRIPTS = ("words", "drawing", "panel", "reliability", "ks", "forest", "map", "matrix", "main")


def render(data: dict[str, Any], **parts: Any) -> str:
    """Return the page: `data` for its script, `parts` for its template."""
    environment = Environment(
        loader=PackageLoader("glayers.report.html", "assets/html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=unbroken,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = "\n".join(_asset("css", name) for name in _STYLES)
    script = '(() => {\n"use strict";\n' + "\n".join(_asset("js", f"{name}.js") for name in _SCRIPTS) + "\n})();"
    return environment.get_template("page.html.j2").render(
        style=Markup(style),  # noqa: S704  # our own file
        script=Markup(script),  # noqa: S704  # our own files
        data=Markup(script_json(data)),  # noqa: S704  # in which every < is escaped
        policy=_policy(style, script),
        **parts,
    )


def _asset(folder: str, name: str) -> str:
    return (files("glayers.report.html") / "assets" / folder / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Allow this script, this style, an empty icon, and nothing from anywhere."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        f"base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
