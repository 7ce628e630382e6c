"""Markdown pages of the repository -> the site: `make docs` (docs/design/0012-site.md).

Sphinx reads the repository itself, so every link between its pages works unchanged on the site. A list of links on the
front page of a section is also the navigation of that section.
"""

import re
import shutil
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = PROJECT["name"]
release = version = PROJECT["version"]
author = PROJECT["authors"][0]["name"]
project_copyright = author
html_title = project

root_doc = "docs/index"
include_patterns = ["docs/**", "*.md", "benchmarks/**/*.md", "examples/**/README.md", "examples/README.md"]
include_patterns += ["experiments/*.md", "experiments/**/*.md", "src/glayers/maps/README.md"]
exclude_patterns = ["**/node_modules", "build", ".venv"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]

# Markdown
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]
copybutton_exclude = ".linenos, .gp, .go"  # neither prompts nor output

# The reference
autodoc_default_options = {
    "member-order": "bysource",
    # What scikit-learn adds to every estimator
    "exclude-members": "get_metadata_routing, get_params, set_params, set_fit_request, set_predict_request, "
    "set_predict_proba_request, set_score_request, set_transform_request",
}
autodoc_typehints = "none"  # the signature of a public function has none that its text does not give
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]
default_role = "py:obj"
add_module_names = False
python_maximum_signature_line_length = 100

# The theme: nothing is fetched from the network.
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": project},
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"docs/index": []}

LINKED_PAGE = re.compile(r"^[-|] .*?\[([^]]+)\]\(([^)#\s]+\.md)\)", re.MULTILINE)
REPORT = ROOT / "build" / "report.html"
LIVE_REPORT = """
<p><a class="button" href="live-report.html">Open this report in full</a></p>
<iframe class="report" src="live-report.html" title="A live report" loading="lazy"></iframe>
"""


def add_navigation(app: Sphinx, page: str, text: list[str]) -> None:
    """Append a hidden table of contents to the front page of the site and of each section: the pages that it lists."""
    if page.endswith("/index"):
        pages = [f"{title} <{path}>" for title, path in LINKED_PAGE.findall(text[0])]
        text[0] = text[0].replace("<!-- live report -->", LIVE_REPORT if REPORT.exists() else "")
        text[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"
    elif page.endswith("README") or page.startswith(
        ("benchmarks/", "experiments/")
    ):  # reached by links, not by the navigation
        title = "" if re.match("# ", text[0]) else f"# Results: {Path(page).name.replace('_', ' ')}\n\n"
        text[0] = f"---\norphan: true\n---\n\n{title}{text[0]}"


def add_files(app: Sphinx, failed: Exception | None) -> None:
    """Add the live report, and a first page that leads to the one in docs/."""
    if failed is None:
        site = Path(app.outdir)
        (site / "index.html").write_text(
            '<meta http-equiv="refresh" content="0; url=docs/index.html">\n', encoding="utf-8"
        )
        if REPORT.exists():
            shutil.copy(REPORT, site / "docs" / "live-report.html")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_files)
