"""Every table of results says which code made it, and a number of the sample data says when tables grow old."""

import re
from pathlib import Path

import pytest
from experiments.stamp import STAMP, checksum, stamped, write_page

from glayers import AutoCalibrator, datasets, metrics
from glayers.calibrators import calibrator_of

ROOT = Path(__file__).parent.parent.parent
PAGES = [page for folder in ("experiments", "benchmarks") for page in (ROOT / folder / "results").glob("*.md")]


def test_every_table_names_the_code_that_made_its_numbers() -> None:
    without = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        stamp = STAMP.search(text)
        remade = page.with_suffix(".csv").exists() and stamp is not None and stamp[1] != checksum(page, text)
        if stamp is None or remade:
            without.append(page.name)
    assert without == [], "write these by `experiments.stamp.write_page`, as their scripts do"


def test_a_table_of_the_same_numbers_keeps_its_stamp() -> None:
    first = stamped("# A\n\n| 1 |\n", "0" * 12, "", "glayers 1.0.0 at abc1234")
    assert first == f"# A\n\nNewest numbers: glayers 1.0.0 at abc1234; checksum {'0' * 12}.\n\n| 1 |\n"
    assert stamped("# B\n\n| 1 |\n", "0" * 12, first, "glayers 2.0.0").count("abc1234") == 1
    assert "abc1234" not in stamped("# A\n\n| 2 |\n", "1" * 12, first, "glayers 2.0.0")


def test_the_numbers_are_those_of_the_csv_beside_the_table(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    stamps = []
    for layout, numbers in (("one", "a\n1\n"), ("two", "a\n1\n"), ("two", "a\n2\n")):
        page.with_suffix(".csv").write_text(numbers)
        write_page(page, f"{layout}\n")
        found = re.findall("checksum (.*)[.]", page.read_text())
        assert len(found) == 1
        stamps += found
    assert stamps[0] == stamps[1] != stamps[2]


# NLL and KS of the 10,000 test rows of the sample data, seed 0. Where one moves by more than 1e-4, the tables of that
# method are old: make them again, or say in the guides which version they are of, and then change the number here.
SEED_0 = {
    "auto": (0.249679, 0.002260),
    "auto without g-layers": (0.250031, 0.002354),
    "temperature": (0.260718, 0.009197),
    "vector": (0.254154, 0.007849),
    "matrix": (0.250016, 0.006332),
    "matrix-odir": (0.249550, 0.004267),
    "dirichlet": (0.249498, 0.006020),
    "g-layers": (0.249980, 0.003040),
    "shared-g-layers": (0.249369, 0.003288),
    "order-invariant": (0.261621, 0.005292),
    "platt": (0.258457, 0.009050),
    "quadratic": (0.258004, 0.008328),
    "beta": (0.257538, 0.007342),
    "isotonic": (0.268390, 0.003298),
    "histogram": (0.325893, 0.010215),
}


@pytest.mark.parametrize("name", SEED_0)
def test_the_numbers_of_the_sample_data_have_not_moved(name: str) -> None:
    nll, ks = SEED_0[name]
    calibrator = AutoCalibrator(time_budget=0) if name == "auto without g-layers" else calibrator_of(name)
    calibration, test = datasets.load_fashion_mnist()
    found = calibrator.fit_predictions(calibration).apply(test)
    assert metrics.nll(found) == pytest.approx(nll, abs=1e-4)
    assert metrics.ks(found) == pytest.approx(ks, abs=1e-4)
