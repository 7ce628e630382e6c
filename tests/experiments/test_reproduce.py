"""`experiments/paper/reproduction/command.py`, on small files of the form of the published ones, written here."""

import csv
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from experiments.paper.reproduction.cells import Key, read_cells, read_figures
from experiments.paper.reproduction.collection import SHAPES, SOURCES, find
from experiments.paper.reproduction.command import fits_of, main
from experiments.paper.reproduction.methods import METHODS, METRICS, OURS, Found, odir
from experiments.paper.reproduction.tables import as_markdown

from glayers import Calibrator, GLayers, GlayersWarning, MatrixScaling, Predictions, TemperatureScaling, metrics
from tests.strategies import Numbers

ROOT = Path(__file__).parents[2]
CHEAP = ["uncalibrated", "temperature"]
DENSENET = "probs_densenet40_c10_logits.p"


def rows(n: int, k: int, seed: int, factor: float = 3.0) -> tuple[Numbers, Numbers]:
    """Logits that a temperature of `factor` makes true, in float32 and with labels in a column, as published."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, k))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return (factor * z).astype(np.float32), labels[:, None]


def publish(file: Path, n_calibration: int, n_test: int, k: int) -> None:
    with file.open("wb") as stream:
        pickle.dump((rows(n_calibration, k, 0), rows(n_test, k, 1)), stream)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "made" / "reproduce.csv"


def run(folder: Path, results: Path, *others: str, methods: list[str] = CHEAP) -> int:
    return main(["--logits", str(folder), "--results", str(results), "--seeds", "1", "--methods", *methods, *others])


def test_a_published_pickle_gives_the_numbers_of_the_library(tmp_path: Path, results: Path) -> None:
    publish(tmp_path / DENSENET, 300, 400, 10)
    assert run(tmp_path, results, "--any-rows") == 0
    cell = read_cells(results)[Key("CIFAR-10", "DenseNet 40", "uncalibrated", 0)]
    logits, labels = rows(400, 10, 1)
    odds = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    p, y = odds / odds.sum(axis=1, keepdims=True), labels[:, 0]
    assert (cell["calibration_rows"], cell["test_rows"]) == ("300", "400")
    assert float(cell["ks_top1_percent"]) == pytest.approx(100 * metrics.ks(p, y), abs=1e-3)
    assert float(cell["accuracy_percent"]) == pytest.approx(100 * np.mean(p.argmax(axis=1) == y), abs=1e-3)
    # Mean over rows and classes, as the paper has it.
    assert float(cell["brier_x100"]) == pytest.approx(100 * np.mean((p - np.eye(10)[y]) ** 2), abs=1e-3)
    nine = [100 * metrics.ks(p, y, event=metrics.rank(rank)) for rank in range(1, 10)]
    assert float(cell["ks_mean_top10_percent"]) == pytest.approx(np.mean(nine), abs=1e-3)


def test_a_thousand_classes_of_few_rows_are_taken(tmp_path: Path, results: Path) -> None:
    publish(tmp_path / "probs_resnet152_imgnet_logits.p", 60, 80, 1_000)
    assert run(tmp_path, results, "--any-rows") == 0
    before, after = read_cells(results).values()
    assert float(after["nll"]) < float(before["nll"])
    assert after["note"].startswith("no row is labelled")
    assert after["note"] in results.with_suffix(".md").read_text(encoding="utf-8")


def test_tables_show_the_paper_ours_and_the_difference(tmp_path: Path, results: Path) -> None:
    publish(tmp_path / DENSENET, 300, 400, 10)
    run(tmp_path, results, "--any-rows")
    ours = float(read_cells(results)[Key("CIFAR-10", "DenseNet 40", "temperature", 0)]["ks_top1_percent"])
    text = results.with_suffix(".md").read_text(encoding="utf-8")
    table = text.split("## KS, percent")[1].split("##")[0].splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table if "|" in line and "---" not in line]
    assert cells[0] == ["set", "", "uncalibrated", "temperature"]
    # The paper prints 5.493 and 0.900 for these.
    assert cells[1] == ["CIFAR-10, DenseNet 40", "paper", "5.493", "0.900"]
    assert float(cells[3][3]) == pytest.approx(ours - 0.9, abs=1.1e-3)
    assert all(f"## {metric.heading}" in text for metric in METRICS.values())


def test_auto_over_seeds_stands_beside_the_best_the_paper_printed() -> None:
    figures = read_figures()
    made = dict.fromkeys(METRICS, "90.0") | {"note": ""}
    cells = {
        Key("CIFAR-10", "DenseNet 40", "auto", s): made | {"ks_top1_percent": ks} for s, ks in enumerate(("0.7", "0.8"))
    }
    text = as_markdown(cells, figures)
    # Mean 0.75, deviation sqrt(2 * 0.05^2) = 0.0707; the paper's least KS is 0.669, its highest accuracy 92.6.
    assert "| KS, percent | 0.669 | g_layers_3 | 0.750 ± 0.071 | +0.081 |" in text
    assert "| Accuracy, percent | 92.600 |" in text


def test_a_fit_that_is_done_is_not_made_again(
    tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(tmp_path / DENSENET, 300, 400, 10)
    run(tmp_path, results, "--any-rows", methods=["uncalibrated"])
    marked = results.read_text(encoding="utf-8").replace("uncalibrated,0,300,400,", "uncalibrated,0,300,400,9")
    results.write_text(marked, encoding="utf-8")
    capsys.readouterr()
    run(tmp_path, results, "--any-rows")
    assert "1 of 2 fits are done" in capsys.readouterr().out
    assert results.read_text(encoding="utf-8").startswith(marked)
    (tmp_path / DENSENET).write_bytes(b"no longer read")
    assert run(tmp_path, results) == 0


def test_tables_are_made_from_the_csv_alone(tmp_path: Path, results: Path) -> None:
    publish(tmp_path / DENSENET, 300, 400, 10)
    run(tmp_path, results, "--any-rows")
    made = results.with_suffix(".md").read_bytes()
    results.with_suffix(".md").unlink()
    assert main(["--results", str(results)]) == 0
    assert results.with_suffix(".md").read_bytes() == made


def test_missing_files_are_named_and_the_rest_is_run(
    tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(tmp_path / DENSENET, 300, 400, 10)
    assert run(tmp_path, results, "--any-rows") == 0
    said = capsys.readouterr().out
    missing = [source.file for source in SOURCES if f"missing, there is no {source.file}.p" in said]
    assert missing == [source.file for source in SOURCES if f"{source.file}.p" != DENSENET]
    assert "Not run, for want of their files: CIFAR-10, ResNet 110; " in results.with_suffix(".md").read_text("utf-8")


@pytest.mark.parametrize(
    ("classes", "options", "told"),
    [
        (10, [], "CIFAR-10 has 5,000 calibration and 10,000 test rows in the paper; this file has 300 and 400"),
        (7, ["--any-rows"], "CIFAR-10 has 10 classes; this file has 7"),
    ],
    ids=["rows", "classes"],
)
def test_a_file_of_another_size_is_named_and_the_rest_is_run(
    tmp_path: Path,
    results: Path,
    capsys: pytest.CaptureFixture[str],
    classes: int,
    options: list[str],
    told: str,
) -> None:
    publish(tmp_path / DENSENET, 300, 400, classes)
    shape = SHAPES["SVHN"]
    publish(tmp_path / "probs_resnet152_SD_SVHN_logits.p", shape.calibration_rows, shape.test_rows, shape.classes)
    assert run(tmp_path, results, *options, methods=["uncalibrated"]) == 1
    assert f"{tmp_path / DENSENET}: {told}" in capsys.readouterr().out
    assert list(read_cells(results)) == [Key("SVHN", "ResNet 152 SD", "uncalibrated", 0)]


def test_fits_of_other_rows_are_not_mixed(tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tmp_path / DENSENET, 300, 400, 10)
    run(tmp_path, results, "--any-rows", methods=["uncalibrated"])
    publish(tmp_path / DENSENET, 300, 500, 10)
    assert run(tmp_path, results, "--any-rows") == 1
    assert "with 300 and 400 rows; the file has 300 and 500" in capsys.readouterr().out


def test_an_archive_under_our_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "cifar10_densenet40_paper.npz").touch()
    found = {source.network: find(tmp_path, source) for source in SOURCES if source.dataset == "CIFAR-10"}
    assert [network for network, file in found.items() if file is not None] == ["DenseNet 40"]


def test_odir_does_not_go_back_to_temperature_scaling() -> None:
    # A temperature is all that these rows need, so that the library's own matrix scaling returns it.
    logits, labels = rows(200, 4, 0)
    given = Predictions(logits, labels[:, 0])
    with pytest.warns(GlayersWarning, match="back to temperature scaling"):
        cautious = MatrixScaling(penalty="odir", random_state=0).fit(given.logits, given.labels)
    temperature = TemperatureScaling().fit(given.logits, given.labels).predict_proba(logits)
    published = odir(given, 0)
    assert np.allclose(cautious.predict_proba(logits), temperature, atol=1e-6)
    assert np.abs(published.predict_proba(logits) - temperature).max() > 1e-3
    assert published.precisions_["matrix"] == pytest.approx(cautious.precisions_["matrix"])


def test_depths_reuse_the_settings_found_at_three_layers(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Found] = []

    def quick(given: Predictions, depth: int, found: Found) -> Calibrator:
        asked.append(found)
        rates, decay = found.learning_rate or [1e-3, 3e-3], found.weight_decay or 0.01
        g = GLayers(depth, recipe="paper", learning_rate=rates, weight_decay=decay, max_epochs=1, n_folds=2)
        return g.set_params(random_state=0).fit(given.logits, given.labels)

    monkeypatch.setitem(METHODS, "g_layers_3", lambda given, *_: quick(given, 3, Found()))
    monkeypatch.setitem(METHODS, "g_layers_2", lambda given, _, found: quick(given, 2, found))
    publish(tmp_path / DENSENET, 300, 400, 10)
    assert run(tmp_path, results, "--any-rows", methods=["g_layers_2"]) == 0
    cells = read_cells(results)
    searched = cells[Key("CIFAR-10", "DenseNet 40", "g_layers_3", 0)]
    assert asked == [Found(), Found(float(searched["learning_rate"]), 0.01)]
    assert asked[1].learning_rate in (1e-3, 3e-3)
    assert len(cells) == 2


def test_every_column_of_the_paper_and_ours_is_wanted_where_it_was_printed() -> None:
    figures = read_figures()
    for source in SOURCES:
        printed = {key[2] for key in figures if key[:2] == source[:2]}
        wanted = fits_of(source, list(METHODS), 2, figures)
        assert {key.method for key in wanted} == printed | set(OURS)
        # Two of them do not depend on the seed.
        assert len(wanted) == len(set(wanted)) == 2 * len(printed | set(OURS)) - 2
    # Nine columns on five sets, eight on six, six tables: 6 * (5 * 9 + 6 * 8) = 558.
    assert len(figures) == 558
    assert {key[3] for key in figures} == set(METRICS) - {"nll"}


@pytest.mark.slow
def test_it_runs_as_a_file(tmp_path: Path, results: Path) -> None:
    publish(tmp_path / DENSENET, 300, 400, 10)
    command = [sys.executable, "-m", "experiments.paper.reproduction.command", "--logits", str(tmp_path), "--any-rows"]
    subprocess.run([*command, "--results", str(results), "--methods", *CHEAP], check=True, cwd=ROOT)
    with results.open(encoding="utf-8", newline="") as file:
        assert [line["method"] for line in csv.DictReader(file)] == CHEAP
