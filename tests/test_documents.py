"""Every code block of the README and the guides runs: Python in one session a page, `console` blocks line by line."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files the pages speak of."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(200, 4)), rng.integers(0, 4, 200)
    np.savez(tmp_path / "model.npz", logits=logits, labels=labels)
    np.save(tmp_path / "logits.npy", logits)
    np.save(tmp_path / "labels.npy", labels)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, workplace: Path) -> None:
    session: dict[str, Any] = {}
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), session)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_glayers_commands_run(page: Path, workplace: Path) -> None:
    program = Path(sys.executable).with_name("glayers")
    for code in blocks(page, "console"):
        for line in code.splitlines():
            if line.startswith("$ glayers"):
                words = shlex.split(line.removeprefix("$ glayers"), comments=True)
                done = subprocess.run([program, *words], capture_output=True, text=True, env=os.environ, check=False)
                assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_the_readme_has_something_to_run() -> None:
    readme = ROOT / "README.md"
    assert blocks(readme, "python")
    assert any("$ glayers" in code for code in blocks(readme, "console"))
    assert shutil.which("make")
