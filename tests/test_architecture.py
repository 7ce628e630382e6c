"""The shape of the house: who may import whom, and what `import glayers` costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import glayers

ROOT = Path(glayers.__file__).parent
LEAVES = {"errors", "arrays", "activations"}
# Each folder, and the folders it may import from besides itself and the leaves.
MAY_IMPORT: dict[str, set[str]] = {
    "predictions": set(),
    "metrics": set(),
    "datasets": {"predictions"},
    "report": {"metrics"},
    "maps": set(),
    "fitting": {"maps"},
}


def imports_of(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name.split(".")[1] for name in found if name.startswith("glayers.")}


@pytest.mark.parametrize("folder", sorted(p.name for p in ROOT.iterdir() if (p / "__init__.py").exists()))
def test_imports_point_one_way(folder: str) -> None:
    for file in (ROOT / folder).rglob("*.py"):
        beyond = imports_of(file) - LEAVES - {folder} - MAY_IMPORT[folder]
        assert not beyond, f"{file.relative_to(ROOT)} imports {beyond}"


def test_the_tests_see_the_installed_package() -> None:
    assert "site-packages" in ROOT.parts


def test_importing_glayers_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'matplotlib', 'pandas', 'polars', 'pyarrow', 'jax'}"
    code = f"import glayers, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_glayers_works_where_the_heavy_libraries_are_missing() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'matplotlib', 'pandas', 'polars', 'pyarrow', 'jax'): sys.modules[name] = None\n"
        "import glayers, glayers.cli\n"
        "parts = glayers.datasets.load_fashion_mnist()\n"
        "print(glayers.metrics.scorecard(parts.test.probabilities(), parts.test.labels).rows)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "10000"
