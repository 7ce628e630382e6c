"""Import rules, what `import glayers` costs, and how dense the code may be."""

import ast
import functools
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

import pytest

import glayers
import glayers.calibrators

ROOT = Path(glayers.__file__).parent
LEAVES = {"errors", "arrays", "activations", "checks", "files", "progress", "registry", "text_tables"}
# Each folder, and the folders it may import from besides itself and the leaves.
MAY_IMPORT: dict[str, set[str]] = {
    "predictions": set(),
    "metrics": {"predictions"},
    "datasets": {"predictions"},
    "decisions": {"calibrators", "metrics", "predictions", "serving", "shift"},
    "report": {"calibrators", "decisions", "metrics", "predictions", "shift"},
    "maps": set(),
    "fitting": {"maps", "predictions"},
    "serving": {"maps", "predictions"},
    "calibrators": {"fitting", "maps", "predictions", "serving"},
    "bridges": {"calibrators", "comparison", "fitting", "maps", "metrics", "predictions", "report", "serving"},
}
ABOVE_ALL = {"cli"}  # may know everybody; nobody knows it
# A function of more lines does more than one thing. The goal of tokens per line is 10; scikit-learn and equinox have 6.
LINES_OF_A_FUNCTION = 40
LONGER_SO_FAR = {
    "calibrators/auto.py: _fitted",
}
TOKENS_PER_LINE = 10.6
NO_TOKENS = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@functools.cache
def imports_of(source: str) -> set[str]:
    """What code imports of glayers: the first word after it, such as metrics; "*" for the package as a whole.

    Imports under TYPE_CHECKING do not run, and do not count.
    """
    found = set()
    tree = ast.parse(source)
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            found.add("glayers.a relative import")
        elif isinstance(node, ast.ImportFrom) and node.module == "glayers":
            found.update(f"glayers.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update("glayers.*" if alias.name == "glayers" else alias.name for alias in node.names)
    return {name.split(".")[1] for name in found if name.startswith("glayers.")}


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("from glayers.metrics.ks import ks_error", {"metrics"}),
        ("from glayers.metrics import ks", {"metrics"}),
        ("from glayers import metrics, cli as c", {"metrics", "cli"}),
        ("from glayers import Predictions", {"Predictions"}),
        ("import glayers.report.curves as c, numpy", {"report"}),
        ("def f():\n    import glayers", {"*"}),
        ("from ..metrics import ks", {"a relative import"}),
        ("from . import ks", {"a relative import"}),
        ("if TYPE_CHECKING:\n    from glayers.cli import app", set()),
        ("if TYPE_CHECKING or True:\n    from glayers.cli import app", {"cli"}),
        ("from glayers_extra import metrics\nimport numpy.linalg", set()),
    ],
)
def test_every_way_to_import_is_seen(source: str, seen: set[str]) -> None:
    assert imports_of(source) == seen


@pytest.mark.parametrize("folder", sorted({p.name for p in ROOT.iterdir() if (p / "__init__.py").exists()} - ABOVE_ALL))
def test_imports_point_one_way(folder: str) -> None:
    for file in (ROOT / folder).rglob("*.py"):
        beyond = imports_of(file.read_text()) - LEAVES - {folder} - MAY_IMPORT[folder]
        assert not beyond, f"{file.relative_to(ROOT)} imports {beyond}"


def test_only_the_plots_draw_with_matplotlib() -> None:
    for file in ROOT.rglob("*.py"):
        drawn = re.search(r"^(import|from) matplotlib", file.read_text(), re.MULTILINE)
        assert not drawn or file == ROOT / "report" / "plots.py", file


@pytest.mark.parametrize("leaf", sorted(LEAVES))
def test_leaves_import_only_leaves(leaf: str) -> None:
    assert imports_of((ROOT / f"{leaf}.py").read_text()) <= LEAVES - {leaf}


def test_every_module_beside_the_folders_is_a_leaf_or_stands_above_them() -> None:
    above = {"__init__", "__main__", "comparison", "gap", "shift", "testing"}
    assert {file.stem for file in ROOT.glob("*.py")} == LEAVES | above


def without_docstring(node: Documented) -> list[ast.stmt]:
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def lines_and_tokens(source: str) -> tuple[int, int]:
    """Count lines of code and their tokens; docstrings, comments and blank lines are neither."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and len(without_docstring(node)) < len(node.body):
            docstrings |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines: set[int] = set()
    n_tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_TOKENS and token.start[0] not in docstrings:
            lines |= set(range(token.start[0], token.end[0] + 1))
            n_tokens += 1
    return len(lines), n_tokens


def test_lines_and_tokens_are_those_of_code() -> None:
    source = '''"""A module."""\n\n# a comment\ndef f(a):\n    """A function."""\n    return (\n        a\n    )\n'''
    assert lines_and_tokens(source) == (4, 10)  # def f ( a ) :  return ( a )


def test_functions_are_short() -> None:
    long = []
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (body := without_docstring(node)):
                n_lines = (node.end_lineno or 0) - body[0].lineno + 1
                name = f"{file.relative_to(ROOT).as_posix()}: {node.name}"
                if n_lines > LINES_OF_A_FUNCTION and name not in LONGER_SO_FAR:
                    long.append(f"{name} has {n_lines} lines")
    assert long == []


def test_lines_are_not_dense() -> None:
    counts = [lines_and_tokens(file.read_text(encoding="utf-8")) for file in ROOT.rglob("*.py")]
    lines, tokens = (sum(column) for column in zip(*counts, strict=True))
    assert tokens / lines <= TOKENS_PER_LINE, f"{lines:,} lines, {tokens:,} tokens: split dense lines, or delete some"


def test_no_two_classes_share_a_name() -> None:
    trees = (parsed(file) for file in ROOT.rglob("*.py"))
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert not [name for name, count in names.items() if count > 1]


def test_the_tests_see_the_installed_package() -> None:
    assert "site-packages" in ROOT.parts


def test_importing_glayers_imports_nothing_heavy_and_works_without_it() -> None:
    code = (
        "import sys\n"
        "class Missing:\n"  # as an import hook: libraries look into sys.modules, and find no None there in real life
        "    asked = []\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'torch', 'matplotlib', 'pandas', 'polars', 'pyarrow', 'jax'}:\n"
        "            self.asked.append(name)\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import glayers\n"
        "print(Missing.asked, 'sklearn' in sys.modules)\n"
        "import glayers.cli\n"
        "test = glayers.datasets.load_fashion_mnist().test.take(slice(500))\n"
        "print(glayers.metrics.scorecard(test).rows)\n"
        "print(sorted({type(make()).__name__ for make in glayers.CALIBRATORS.values()} - set(dir(glayers))))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[] False", "500", "[]"]


def test_every_name_the_package_offers_is_there_and_calibrators_are_among_them() -> None:
    assert {*glayers.calibrators.__all__, *glayers.__all__} == set(dir(glayers))
    for name in dir(glayers):
        assert getattr(glayers, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Temperature'"):
        _ = glayers.Temperature


def test_every_calibrator_goes_by_a_short_name() -> None:
    classes = {name for name in glayers.calibrators.__all__ if isinstance(getattr(glayers, name), type)}
    assert {type(make()).__name__ for make in glayers.CALIBRATORS.values()} == classes - {
        "Calibrator",
        "Fitted",
        "GroupCalibrator",
        "LabelCurve",
        "Method",
        "MultiLabelCalibrator",
        "OutsideCalibrator",
    }
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in glayers.CALIBRATORS)
