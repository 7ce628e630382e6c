"""Markdown pages of the repository -> the site: `make docs` (docs/design/0012-site.md).

Sphinx reads the repository itself, so every link between its pages works unchanged on
the site. A list of links on the front page of a section is also its navigation.
"""

import re
import shutil
import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))
from outputs import with_outputs, write_sample

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]

project = PROJECT["name"]
release = version = PROJECT["version"]
author = PROJECT["authors"][0]["name"]
project_copyright = author
html_title = project

root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "*.md",
    "benchmarks/**/*.md",
    "examples/**/README.md",
    "examples/README.md",
]
include_patterns += [
    "experiments/*.md",
    "experiments/**/*.md",
    "src/glayers/maps/README.md",
]
exclude_patterns = [
    "docs/_templates",
    "**/node_modules",
    "build",
    ".venv",
    "README.md",
]  # the front page of the site is docs/index.md
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]

# Markdown
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block", "html_image"]
copybutton_exclude = ".linenos, .gp, .go"  # neither prompts nor output

# The reference: a page per object, written from docs/_templates/autosummary
templates_path = [str(ROOT / "docs/_templates")]
REFERENCE = "".join(
    page.read_text("utf-8") for page in (ROOT / "docs/reference").glob("*.md")
)
CLASSES = re.findall(r"^   (glayers\.\S*\b[A-Z]\w*)$", REFERENCE, re.MULTILINE)
# Where capitals do not count, `Scorecard` would overwrite `scorecard`.
autosummary_filename_map = {name: f"{name}-class" for name in CLASSES}
autodoc_default_options = {
    "member-order": "bysource",
    # What scikit-learn adds to every estimator
    "exclude-members": "get_metadata_routing, get_params, set_params, set_fit_request, "
    "set_predict_request, set_predict_proba_request, set_score_request, "
    "set_transform_request",
}
autodoc_typehints = (
    "none"  # the signature of a public function has none that its text does not give
)
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
    "secondary_sidebar_items": {"**": ["page-toc"], "docs/index": []},
}
html_sidebars = {"docs/index": [], "docs/figures": []}

LINKED_PAGE = re.compile(r"^[-|] .*?\[([^]]+)\]\(([^)#\s]+\.md)\)", re.MULTILINE)
LOOKS = re.compile(
    r"^<!-- (cards|buttons|thumbnails) -->$", re.MULTILINE
)  # of the list or paragraph below
SHOWS_OUTPUT = re.compile(r"docs/(index|start/(?!index).*)")
REPORT = ROOT / "build" / "report.html"
OUTPUTS = ROOT / "build" / "outputs"
LIVE_REPORT = """
<iframe class="report" src="live-report.html" title="A live report"></iframe>
<p><a class="button" href="live-report.html">Open this report in full</a></p>
"""


def prepare(app: Sphinx, page: str, text: list[str]) -> None:
    """Add to a page what stands in no file: navigation, outputs, pictures and looks."""
    if page.endswith("/index"):
        text[0] = text[0].replace(
            "<!-- live report -->", LIVE_REPORT if REPORT.exists() else ""
        )
        text[0] += navigation(page, text[0])
    elif page.endswith("README") or page.startswith(
        ("benchmarks/", "experiments/")
    ):  # reached by links, not by the navigation
        title = (
            ""
            if re.match("# ", text[0])
            else f"# Results: {Path(page).name.replace('_', ' ')}\n\n"
        )
        text[0] = f"---\norphan: true\n---\n\n{title}{text[0]}"
    if SHOWS_OUTPUT.fullmatch(page):
        folder = OUTPUTS / page
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_sample(folder)
        text[0] = with_outputs(text[0], folder, f"/{folder.relative_to(ROOT)}")
    text[0] = LOOKS.sub(r"{.\1}", text[0])


def navigation(page: str, text: str) -> str:
    """Return a hidden table of contents: the pages that a section's front page lists.

    A page in the folder of another section belongs to the navigation there.
    """
    own = (ROOT / page).parent
    listed = [
        (title, (own / path).resolve()) for title, path in LINKED_PAGE.findall(text)
    ]
    foreign = {
        path
        for _, path in listed
        if path.parent != own and (path.parent / "index.md").exists()
    }
    pages = [
        f"{title} </{path.relative_to(ROOT)}>"
        for title, path in listed
        if is_home(path) or path not in foreign
    ]
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def is_home(path: Path) -> bool:
    """Whether a file is the front page of a section, or the gallery."""
    return path.name == "index.md" or path.parent.name == "docs"


def add_files(app: Sphinx, failed: Exception | None) -> None:
    """Add the live report, and a first page that leads to the one in docs/."""
    if failed is None:
        site = Path(app.outdir)
        (site / "index.html").write_text(
            '<meta http-equiv="refresh" content="0; url=docs/index.html">\n',
            encoding="utf-8",
        )
        if REPORT.exists():
            shutil.copy(REPORT, site / "docs" / "live-report.html")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", prepare)
    app.connect("build-finished", add_files)
