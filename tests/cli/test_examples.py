"""Every command of the README, the guides and `--help` runs as written."""

import doctest
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glayers.calibrators import auto
from glayers.datasets import CalibrationAndTest, load_fashion_mnist
from glayers.metrics import calibration_tests
from glayers.metrics.null_distribution import redraw
from tests.cli.running import VERBS, run

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
# The Python blocks of these pages write what their commands read, so that they run here and not in `test_documents`.
WRITES_ITS_FILES = {
    ROOT / "docs" / "how-to" / f"{name}.md"
    for name in ("use-language-models", "other-inputs", "several-labels", "groups", "use-scikit-learn", "monitoring")
}
pytestmark = pytest.mark.thorough
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands_of_page(page: Path) -> list[tuple[str, str]]:
    """Each line after a dollar, with the output below it."""
    parts = [part for block in blocks(page, "console") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(line, shown) for line, _, shown in (part.partition("\n") for part in parts)]


def commands_of_help(verb: str) -> list[str]:
    lines = [line.strip() for line in run(verb, "--help").stdout.splitlines()]
    return [line[2:] for line in lines if line.startswith("$ ")]


def same(shown: str, printed: str) -> bool:
    """Whether the page shows what was printed; three dots stand for anything, such as seconds."""
    return doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)


def few_rows() -> CalibrationAndTest:
    return CalibrationAndTest(*(part.take(np.arange(90)) for part in load_fashion_mnist()))


@pytest.fixture
def workplace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of small files, with small sample data; quick methods and families stand for the strongest."""
    monkeypatch.setattr(auto, "find_spec", lambda _: None)  # g-layers have a page of their own
    monkeypatch.setattr("glayers.cli.scoring.load_fashion_mnist", few_rows)
    monkeypatch.setattr("glayers.comparison.DEFAULT_METHODS", ("temperature", "vector"))
    return folder


def follow(line: str) -> str:
    """Run one line, and return what it prints."""
    quick = line.replace("--level 0.999", "--level 0.99")  # which needs a tenth of the draws
    program, *words = shlex.split(quick, comments=True)
    if program == "cat":
        return Path(words[0]).read_text(encoding="utf-8")
    assert program == "glayers", line
    output = None
    if words[-2:-1] == [">"]:
        *words, _, output = words
    for place, word in enumerate(words):  # remove the output of an earlier example
        if word in ("-o", "--output", "--report"):
            _remove(Path(words[place + 1]))
    done = run(*words)
    # A limit or a promise for the sample data, which these few rows exceed or cannot keep; an alarm.
    passing = (0, 3) if "--fail-if" in words or words[0] in ("threshold", "watch") else (0,)
    assert done.exit_code in passing, f"{line}\n{done.output}"
    if output is None:
        return done.stdout
    Path(output).write_text(done.stdout, encoding="utf-8")
    return ""


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


@pytest.mark.usefixtures("workplace", "quick_pages")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if commands_of_page(page) and page.name != "command-line.md"], ids=name_of
)
def test_commands_of_a_page_run_one_after_the_other(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glayers.datasets.load_fashion_mnist", few_rows)
    if page in WRITES_ITS_FILES:
        exec(compile("\n".join(blocks(page, "python")), str(page), "exec"), {})
    for line, shown in commands_of_page(page):
        printed = follow(line)
        assert not shown.strip() or same(shown, printed), f"$ {line}\n{printed}"


@pytest.mark.usefixtures("workplace", "quick_pages")
def test_the_page_of_the_command_line_shows_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "reference" / "command-line.md"
    found: dict[tuple[bytes, int], Any] = {}

    def once(rows: Any, statistics: Any, *settings: Any) -> Any:
        if len(statistics) == 1 or len(settings) > 3:  # may be of any event, or are from other probabilities
            return redraw(rows, statistics, *settings)
        key = rows.probabilities.tobytes(), len(statistics)  # several commands test the same rows
        return found[key] if key in found else found.setdefault(key, redraw(rows, statistics, *settings))

    monkeypatch.setattr(calibration_tests, "redraw", once)
    monkeypatch.setattr(calibration_tests, "_DRAWS", 999)  # as the page shows, of all rows
    monkeypatch.setattr("glayers.datasets.load_fashion_mnist", load_fashion_mnist)
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), {})  # which writes the sample data to files
    for line, shown in commands_of_page(page):
        printed = follow(line)
        assert same(shown, printed), f"$ {line}\n{printed}"


@pytest.mark.usefixtures("workplace", "quick_pages")
@pytest.mark.parametrize("verb", VERBS)
def test_examples_of_the_help_run(verb: str) -> None:
    examples = commands_of_help(verb)
    assert examples
    for line in examples:
        follow(line)


def test_every_verb_is_on_the_page_of_the_command_line() -> None:
    shown = " ".join(line for line, _ in commands_of_page(ROOT / "docs" / "reference" / "command-line.md"))
    assert [verb for verb in VERBS if f"glayers {verb}" not in shown] == []


def test_every_status_is_on_the_page_of_the_command_line() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert [status for status in (0, 1, 2, 3, 70, 130, 141, 143) if f"| {status} |" not in page] == []
