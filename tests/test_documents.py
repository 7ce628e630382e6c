"""The README and the guides are true: their Python blocks run, their links lead somewhere, their tables are complete.

Each page is one session. `tests/cli/test_examples.py` runs the `console` blocks, and all of some pages.
"""

import csv
import os
import re
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.bench import read, short
from docs.outputs import with_outputs, write_sample
from experiments.paper.gallery import draw_page

from glayers import datasets, metrics
from glayers.calibrators import CALIBRATORS, auto
from glayers.comparison import DEFAULT_METHODS
from tests.cli.running import run
from tests.cli.test_examples import PAGES, WRITES_ITS_FILES, blocks, name_of
from tests.report.golden_images import TOLERANCE, distance, pixels

ROOT = Path(__file__).parent.parent
TEXTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").rglob("*.md")])
STARTS = sorted((ROOT / "docs" / "start").glob("[!i]*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
GALLERY = ROOT / "docs" / "figures.md"
LINKED_PAGE = re.compile(r"^[-|] .*?\[([^]]+)\]\(([^)#\s]+\.md)\)", re.MULTILINE)  # as in docs/conf.py
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:<img src|srcset)=\"([^\"]+)\"")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_draws: None) -> Path:
    """An empty folder, and fewer rows, draws and families of `auto`: every block of a page runs, and quickly."""
    monkeypatch.setattr(auto, "find_spec", lambda _: None)  # g-layers have a page of their own
    few = datasets.CalibrationAndTest(*(part.take(np.arange(600)) for part in datasets.load_fashion_mnist()))
    monkeypatch.setattr(datasets, "load_fashion_mnist", lambda: few)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.thorough
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page, "python") and page not in {GALLERY, *WRITES_ITS_FILES, *STARTS}],
    ids=name_of,
)
def test_python_blocks_run(page: Path, workplace: Path) -> None:
    session: dict[str, Any] = {}
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), session)


def test_outputs_and_pictures_stand_below_the_code_that_makes_them(tmp_path: Path) -> None:
    first = "```python\nx = 2\n```"
    second = "```python\nprint(x)\nopen('a.svg', 'w').close()\n```"
    shown = with_outputs(f"{first}\n\n{second}\n\nThe end.\n", tmp_path, "/made")
    below = "```text\n2\n```\n\n![What the code above draws](/made/a.svg)"
    assert shown == f"{first}\n\n{second}\n\n{below}\n\nThe end.\n"


def test_a_command_that_fails_stops_the_site(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"missing\.npz"):
        with_outputs("```console\n$ glayers score missing.npz\n```\n", tmp_path, "/made")


@pytest.mark.thorough
@pytest.mark.parametrize("page", STARTS, ids=name_of)
def test_every_start_page_shows_what_it_prints_and_a_picture(
    page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_here(command: list[str], **_: Any) -> Any:  # starting the program six times takes seconds
        done = run(*command[3:])
        return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)

    monkeypatch.setattr("docs.outputs.subprocess.run", run_here)
    write_sample(workplace)
    written = page.read_text(encoding="utf-8")
    shown = with_outputs(written, workplace, "/made")
    if blocks(page, "python"):
        assert len(re.findall("^```text", shown, re.MULTILINE)) > len(re.findall("^```text", written, re.MULTILINE))
    else:
        assert len(shown.splitlines()) > len(written.splitlines()) + 10
    assert re.search(r"^!\[.+\]\(.+\)$", shown, re.MULTILINE)


@pytest.mark.thorough
def test_the_pictures_of_the_gallery_are_what_its_code_draws(tmp_path: Path) -> None:
    draw_page(tmp_path)
    drawn = sorted(path.name for path in tmp_path.iterdir())
    named = set(re.findall(r"figures/([\w-]+\.png)", GALLERY.read_text(encoding="utf-8")))
    assert set(drawn) == named - {"sizes.png", "training.png"}  # of the experiments
    for name in drawn:
        now, then = (pixels((folder / name).read_bytes()) for folder in (tmp_path, ROOT / "docs" / "figures"))
        assert now.shape == then.shape
        assert distance(now, then) < TOLERANCE, name


def title_of(page: Path) -> str:
    found = re.search(r"^# (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def test_no_two_pages_share_a_title() -> None:
    titles = [title for title in map(title_of, TEXTS) if title]
    assert sorted(titles) == sorted(set(titles))


def test_the_navigation_names_each_page_by_its_title() -> None:
    other = []
    for page in (ROOT / "docs").rglob("index.md"):
        for title, path in LINKED_PAGE.findall(page.read_text(encoding="utf-8")):
            if title_of(page.parent / path) != title:
                other.append(f"{page.relative_to(ROOT)}: {title}")
    assert other == []


def test_no_block_of_python_needs_scrolling() -> None:
    long = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in (ROOT / "docs").rglob("*.md")
        for code in blocks(page, "python")
        for line in code.splitlines()
        if len(line) > 88
    ]
    assert long == []


def anchors(page: Path) -> set[str]:
    """Names of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    broken = []
    for page in TEXTS:
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for target in (a or b for a, b in LINK.findall(text)):
            path, _, heading = target.partition("#")
            there = page.parent / path if path else page
            if "://" not in target and not (there.exists() and (not heading or heading in anchors(there))):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_pages_and_scripts_that_pages_and_experiments_name_are_there() -> None:
    missing = set()
    for file in [*TEXTS, *(ROOT / "experiments").rglob("*.py")]:
        text = file.read_text(encoding="utf-8")
        named = re.findall(r"(?<![\w/])((?:docs|experiments|benchmarks)/[\w/-]+\.(?:md|py|csv))\b", text)
        named += [f"{name.replace('.', '/')}.py" for name in re.findall(r"python\s+-m (experiments[.\w]+)\b", text)]
        missing |= {f"{file.relative_to(ROOT)}: {name}" for name in named if not (ROOT / name).exists()}
    assert missing == set()


def table(heading: list[str], lines: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heading, ["---"] * len(heading), *lines])


def methods_table() -> str:
    """The methods as their classes describe them."""
    return table(
        ["name", "what it is", "changes predictions", "torch to fit", "reference"],
        [
            [f"`{m.name}`", m.summary, "no" if m.keeps == "ranking" else "yes", m.torch, m.reference]
            for m in CALIBRATORS.values()
        ],
    )


def metrics_table() -> str:
    """The metrics of the scorecard as their records describe them."""
    return table(
        ["key", "label", "better", "reference"],
        [[f"`{m.name}`", m.label, m.better or "neither", m.reference] for m in metrics.METRICS.values()],
    )


def peers_table() -> str:
    """The means of `experiments/results/methods.csv` over the sets without class shift."""
    with (ROOT / "experiments" / "results" / "methods.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["set"] != "cifar10_longtail_resnet110"]
    lines = []
    for method, shown in PEERS.items():
        own = [row for row in rows if row["method"] == method]
        nll, ks, accuracy = (statistics.fmean(float(row[name]) for row in own) for name in ("nll", "ks", "accuracy"))
        lines.append([shown, f"{nll:.3f}", f"{ks:.2f}", f"{accuracy:.1f}"])
    return table(["mean of 12 sets", "NLL", "KS, percent", "accuracy, percent"], lines)


def speed_table() -> str:
    """The medians of `benchmarks/results/fits.csv`."""
    return short(read(ROOT / "benchmarks" / "results" / "fits.csv"))


def speed_sentence() -> str:
    """The medians of one size in `benchmarks/results/fits.csv`."""
    runs = [run for run in read(ROOT / "benchmarks" / "results" / "fits.csv") if run["size"] == "5000x100"]

    def seconds(method: str) -> str:
        return f"{statistics.median(run['cpu_seconds'] for run in runs if run['method'] == method):.2g} s"

    return (
        f"On 5,000 rows of 100 classes, `auto` takes {seconds('glayers auto')} of processor time, structured matrix\n"
        f"scaling of probmetrics {seconds('probmetrics SMS')}, our temperature scaling {seconds('glayers temperature')}"
        f" and that of scikit-learn {seconds('scikit-learn temperature')}\n"
        "([all sizes and methods](benchmarks/results/fits.md), [missed speed targets](benchmarks/results/goals.md))."
    )


def few_rows_table() -> str:
    """The means of `experiments/results/few_rows.csv` over sets and draws."""
    with (ROOT / "experiments" / "results" / "few_rows.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = []
    for size in sorted({int(row["rows"]) for row in rows}):
        means = [
            statistics.fmean(float(row["nll"]) for row in rows if row["method"] == name and int(row["rows"]) == size)
            for name in ("temperature", "SVS", "SMS", "auto")
        ]
        lines.append([f"{size:,}", *(f"{mean:.3f}" for mean in means)])
    return table(["calibration rows", "temperature", "SVS", "SMS", "`auto`"], lines)


def depths_table() -> str:
    """The NLL of `experiments/results/many_classes.csv` by depth, for both searches."""
    with (ROOT / "experiments" / "results" / "many_classes.csv").open(encoding="utf-8", newline="") as file:
        found = {(row["set"], row["method"]): f"{float(row['nll']):.3f}" for row in csv.DictReader(file)}
    lines = []
    for name in dict.fromkeys(name for name, method in found if method == "g, 3 layers (as 1)"):
        for search, ending in (("three layers", ""), ("one layer", " (as 1)")):
            deeper = [found.get((name, f"g, {depth} layers{ending}"), "-") for depth in range(2, 6)]
            if set(deeper) != {"-"}:
                lines.append([name, search, found[name, "temperature"], found[name, "g, 1 layer"], *deeper])
    return table(["set", "settings of", "temperature", "1 layer", "2", "3", "4", "5"], lines)


PEERS = {
    "uncalibrated": "no calibration",
    "temperature": "temperature scaling",
    "probmetrics SVS": "probmetrics, structured vector scaling",
    "probmetrics SMS": "probmetrics, structured matrix scaling",
    "g-layers": "glayers, `g-layers`",
    "auto": "**glayers, `auto`**",
}

# A page, the comment that surrounds its table, and what the table must be: `python -m tests.test_documents` writes it.
GENERATED = {
    "methods": (ROOT / "docs" / "reference" / "calibrators.md", methods_table),
    "few-rows": (ROOT / "docs" / "how-to" / "choosing.md", few_rows_table),
    "metrics": (ROOT / "docs" / "reference" / "definitions.md", metrics_table),
    "peers": (ROOT / "README.md", peers_table),
    "speed": (ROOT / "README.md", speed_sentence),
    "fits": (ROOT / "docs" / "how-to" / "big-data.md", speed_table),
    "depths": (ROOT / "docs" / "project" / "paper.md", depths_table),
}


def with_table(name: str) -> str:
    """The page with the table it should have."""
    page, made = GENERATED[name]
    begin, end = f"<!-- {name}: python -m tests.test_documents -->", f"<!-- end of {name} -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    return f"{before}{begin}\n\n{made()}\n\n{end}{rest.partition(end)[2]}"


def test_the_readme_names_the_commands_for_a_clone() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "`make demo`" in text
    assert "`make test`" in text


def test_tables_come_from_the_registries_and_from_results() -> None:
    old = [name for name, (page, _) in GENERATED.items() if page.read_text(encoding="utf-8") != with_table(name)]
    assert old == [], "run `python -m tests.test_documents`"


def script(page: Path) -> str:
    """The lines of a start page as a script."""
    commands = [line.removeprefix("$ ") for code in blocks(page, "console") for line in code.splitlines()]
    if commands:
        return f"# The commands of docs/start/{page.name}\nset -e\n" + "\n".join(commands) + "\n"
    code = [
        block + "\n" * bool(re.search(r"^def .*\n( .*\n|\n)*\Z", block, re.MULTILINE))
        for block in blocks(page, "python")
    ]
    return f'"""The lines of docs/start/{page.name}."""\n\n' + "\n".join(code)


def script_of(page: Path) -> Path:
    ending = ".sh" if blocks(page, "console") else ".py"
    return ROOT / "examples" / f"{page.stem.replace('-', '_')}{ending}"


def test_every_start_page_is_a_script_in_examples() -> None:
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for page in STARTS:
        assert script_of(page).read_text(encoding="utf-8") == script(page)
        assert script_of(page).name in listed


def test_the_guide_to_metrics_lists_exactly_the_public_functions() -> None:
    page = (ROOT / "docs" / "reference" / "definitions.md").read_text(encoding="utf-8")
    listed = [
        name
        for row in re.findall(r"^\| [^|]*\? \| (.*) \|$", page, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert sorted(listed) == sorted(name for name in metrics.__all__ if name.islower())


PLAIN = {
    "accuracy",
    "mean_confidence",
    "scorecard",
    "top",
    "rank",
    "within_top",
    "label",
    "one_of",
    "positive",
    "register",
}  # nobody's invention


def test_every_metric_names_its_source_in_its_docstring_or_in_that_of_the_one_it_refers_to() -> None:
    without = []
    for name in sorted({name for name in metrics.__all__ if name.islower()} - PLAIN):
        own = getattr(metrics, name).__doc__
        others = [getattr(metrics, other).__doc__ for other in re.findall(r"`(\w+)`", own) if other in metrics.__all__]
        if not any(re.search(r"\b(19|20)\d\d\b", text or "") for text in (own, *others)):
            without.append(name)
    assert without == []


def test_the_readme_says_how_many_methods_the_demo_compares() -> None:
    words = ("five", "six", "seven", "eight", "nine")
    assert f"compares {words[len(DEFAULT_METHODS) - 5]} methods" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_architecture_names_every_module_and_no_other() -> None:
    source, folder, named = ROOT / "src" / "glayers", "", set()
    rooms = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Packages")[2]
    for line in rooms.partition("## Rules")[0].splitlines():
        if line.startswith("### "):
            room = re.match(r"### `(\w+/)`", line)
            folder = room[1] if room else ""
        elif line.startswith("|"):
            named |= {folder + name for name in re.findall(r"`([\w/]+\.py)`", line.split("|")[1])}
    modules = {file.relative_to(source).as_posix() for file in source.rglob("*.py")}
    own = {name for name in modules if not name.endswith("__init__.py")}
    assert own <= named <= modules


def test_every_experiment_is_listed() -> None:
    listed = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")
    assert [file.name for file in (ROOT / "experiments").glob("*/*.py") if f"`{file.name}`" not in listed] == []


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A copy of what make looks at, with everything built a moment after it was written."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt", "README.md", "src/glayers/a.py", "src/glayers/b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".venv").mkdir()
    for path in tmp_path.rglob("*"):
        os.utime(path, (1_000, 1_000))
    for second, target in enumerate(("dependencies", "package")):
        (tmp_path / ".venv" / target).touch()
        os.utime(tmp_path / ".venv" / target, (2_000 + second, 2_000 + second))
    return tmp_path


def would_run(folder: Path) -> list[str]:
    done = subprocess.run(
        ["make", "-n", ".venv/package"], cwd=folder, capture_output=True, text=True, check=True, env=os.environ
    )
    return [line for line in done.stdout.splitlines() if "pip install" in line]


def test_a_source_file_that_is_gone_makes_the_package_anew(built: Path) -> None:
    assert would_run(built) == []
    (built / "src" / "glayers" / "b.py").unlink()
    assert len(would_run(built)) == 1


def test_no_step_of_make_fetches_a_build_tool_it_already_has(built: Path) -> None:
    (built / "pyproject.toml").touch()
    build_tool, dependencies, package = would_run(built)
    assert "hatchling" in build_tool
    assert "--no-build-isolation" in dependencies
    assert "--no-build-isolation" in package


if __name__ == "__main__":
    for name, (page, _) in GENERATED.items():
        page.write_text(with_table(name), encoding="utf-8")
    for page in STARTS:
        script_of(page).write_text(script(page), encoding="utf-8")
