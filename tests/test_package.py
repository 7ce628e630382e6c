"""What is published: the sdist holds what its tests read, its description stands alone, every extra has a use."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_DEVELOPERS = {"dev", "docs", "bench", "all"}


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
    folders = [ROOT / name for name in ("src", "tests", "docs", "experiments", "benchmarks")]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    files += [ROOT / "Makefile", ROOT / "constraints.txt", *ROOT.glob("*.md")]
    wanted = {str(file.relative_to(ROOT)) for file in files if not {"__pycache__", ".hypothesis"} & set(file.parts)}
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
