"""What is published: the sdist holds what its tests read, its description stands alone, every extra has a use."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BASE = ROOT / ".venv" / "serving"
FOR_DEVELOPERS = {"adapters", "dev", "docs", "bench", "all"}


WORKFLOWS = {file.stem: file.read_text(encoding="utf-8") for file in (ROOT / ".github" / "workflows").glob("*.yml")}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Every file of the sdist by its path inside it."""
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        files = {each.name: packed.extractfile(each) for each in packed.getmembers() if each.isfile()}
        return {name.partition("/")[2]: stream.read() for name, stream in files.items() if stream is not None}


def test_the_sdist_holds_every_file_that_its_tests_read(sdist: dict[str, bytes]) -> None:
    folders = [ROOT / name for name in (".github", "src", "tests", "docs", "experiments", "benchmarks")]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    files += [ROOT / "Makefile", ROOT / "constraints.txt", *ROOT.glob("*.md")]
    made = {"__pycache__", ".hypothesis", "generated"}  # by Python, by hypothesis, and by the site's reference
    wanted = {str(file.relative_to(ROOT)) for file in files if not made & set(file.parts)}
    assert wanted - set(sdist) == set()


def test_the_wheel_is_small_and_has_what_it_needs(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size <= 1_000_000
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "glayers/py.typed" in names
    assert any(name.startswith("glayers/datasets/") and name.endswith(".npz") for name in names)
    assert {name.partition("/")[0] for name in names} == {"glayers", f"glayers-{PROJECT['version']}.dist-info"}


def test_the_version_is_the_same_everywhere() -> None:
    version = PROJECT["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    newest = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n## ")[2]
    assert newest.startswith(f"{version},")


def test_the_description_has_no_link_that_works_only_in_the_repository(sdist: dict[str, bytes]) -> None:
    description = sdist["PKG-INFO"].decode().partition("\n\n")[2]
    assert description.startswith("# glayers")
    targets = re.findall(r"\]\(([^)]*)\)", description)
    assert targets
    assert [each for each in targets if not each.startswith("https://")] == []


def test_the_project_has_addresses() -> None:
    assert all(address.startswith("https://") for address in PROJECT["urls"].values())


@pytest.mark.parametrize("extra", sorted(set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS))
def test_the_package_imports_what_an_extra_installs(extra: str) -> None:
    code = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py"))
    for requirement in PROJECT["optional-dependencies"][extra]:
        library = re.split(r"[^\w-]", requirement)[0].replace("scikit-learn", "sklearn").replace("-", "_")
        assert re.search(rf"^ *(import|from) {library}\b", code, re.MULTILINE), f"nothing imports {library}"


def test_all_installs_every_extra_for_users() -> None:
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert set(re.findall(r"\w+", everything)) - {"glayers"} == set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS


def steps_of(workflow: str) -> list[dict[str, Any]]:
    return [step for job in yaml.safe_load(WORKFLOWS[workflow])["jobs"].values() for step in job.get("steps", [])]


def test_workflows_test_every_python_that_the_package_names() -> None:
    named = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", each)}
    matrix = yaml.safe_load(WORKFLOWS["test"])["jobs"]["systems"]["strategy"]["matrix"]
    assert set(matrix["python"]) == named
    assert {each.partition("-")[0] for each in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert min(named, key=lambda each: int(each[2:])) == PROJECT["requires-python"].removeprefix(">=")


@pytest.mark.parametrize("workflow", sorted(WORKFLOWS))
def test_workflows_run_what_the_repository_has(workflow: str) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    code = "\n".join(step.get("run", "") for step in steps_of(workflow))
    assert set(re.findall(r"^make ([\w-]+)", code, re.MULTILINE)) <= targets
    for path in re.findall(r"(?:bash|--ignore) (\S+/\S+)", code):
        assert (ROOT / path).exists(), path
    for extra in re.findall(r"\.\[(\w+)\]", code):
        assert extra in PROJECT["optional-dependencies"]


def test_only_the_upload_may_prove_who_it_is_and_it_uploads_what_was_tried() -> None:
    jobs = yaml.safe_load(WORKFLOWS["publish"])["jobs"]
    proving = {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})}
    assert proving == {"upload", "site"}
    assert set(jobs["upload"]["needs"]) == {"test", "try"}
    assert jobs["upload"]["environment"] == "release"
    (publishing,) = [step for step in jobs["upload"]["steps"] if "publish" in step["uses"]]
    assert publishing["with"] == {"attestations": True}
    assert not re.search(r"password:|secrets\.", WORKFLOWS["publish"])


@pytest.mark.skipif(not (ROOT / ".venv" / "serving").exists(), reason="`make test` downloads the wheels")
def test_the_base_installation_is_small() -> None:
    wheels = {file.name.partition("-")[0]: file.stat().st_size for file in BASE.glob("wheels/*.whl")}
    assert {re.split(r"[^\w-]", each)[0].replace("-", "_") for each in PROJECT["dependencies"]} <= wheels.keys()
    assert not {"torch", "scikit_learn", "matplotlib", "pandas"} & wheels.keys()
    assert sum(wheels.values()) < 120e6
