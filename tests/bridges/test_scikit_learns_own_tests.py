"""scikit-learn's own tests of CalibratedClassifierCV, run on `CalibratedClassifier` in its place.

`python -m tests.bridges.test_scikit_learns_own_tests` prints what passes and what fails.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# How a test that fails differs from what `CalibratedClassifier` promises.
EXPECTED = {
    "test_calibration_method_raises": "wants a classifier by default, and the words of scikit-learn's errors",
    "test_calibration_default_estimator": "wants a classifier by default",
    "test_calibration_cv_splitter": "wants a classifier by default",
    "test_calibration_cv_nfold": "wants a classifier by default",
    "test_error_less_class_samples_than_folds": "wants a classifier by default",
    "test_calibration_ensemble_false": "compares with scikit-learn's own isotonic regression and temperature",
    "test_temperature_scaling": "reads the attribute `beta_` of scikit-learn's temperature",
    "test_calibration_less_classes": "wants zeros where a fold lacks a class; ours is refused by name",
    "test_calibrated_classifier_cv_double_sample_weights_equivalence": (
        "wants weights of 2 to be rows written twice; ours are relative, and priors then count the rows"
    ),
}


def results(folder: Path) -> dict[str, str]:
    """Run the tests in a process of their own, and return passed, failed or skipped by name."""
    (folder / "replace_class.py").write_text(
        "import sklearn.calibration\n"
        "from glayers import CalibratedClassifier\n"
        "sklearn.calibration.CalibratedClassifierCV = CalibratedClassifier\n"
    )
    words = ["-p", "replace_class", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder), "-rA", "-q"]
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--pyargs", "sklearn.tests.test_calibration"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S*::(\w+(?:\[[^\]]*\])?)", done.stdout, re.MULTILINE)
    return {test: outcome for outcome, test in found}


def plain(test: str) -> str:
    return test.partition("[")[0]


@pytest.mark.slow
def test_only_what_differs_by_design_fails(tmp_path: Path) -> None:
    outcomes = results(tmp_path)
    passed = [test for test, outcome in outcomes.items() if outcome == "PASSED"]
    assert {plain(test) for test, outcome in outcomes.items() if outcome != "PASSED"} <= EXPECTED.keys()
    assert len(passed) >= 93


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        outcomes = results(Path(place))
    lines = ["| test | passed | failed | why |", "|---|---:|---:|---|"]
    for name in dict.fromkeys(map(plain, outcomes)):
        own = [outcome for test, outcome in outcomes.items() if plain(test) == name]
        n_passed = own.count("PASSED")
        n_failed = len(own) - n_passed
        lines.append(f"| `{name}` | {n_passed} | {n_failed} | {EXPECTED.get(name, '') if n_failed else ''} |")
    sys.stdout.write("\n".join([*lines, ""]))
