"""`experiments/paper/studies/command.py`, on two small networks whose logits a temperature makes true."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from experiments.paper.networks.captured import Network
from experiments.paper.studies import command, figures, many_classes, regularisation, same
from experiments.paper.studies.curves import Curves
from experiments.paper.studies.field import PUBLISHED, ROW, field_table, read_published, write_field
from experiments.paper.studies.lines import Line, different, numbers, read_lines, where, write_lines
from experiments.paper.studies.losses import Losses, temperature
from experiments.paper.studies.networks import Networks
from experiments.paper.studies.ranks import Ranks
from experiments.paper.studies.regularisation import DEFAULT, FOLDS, PLAIN, Regularisation
from experiments.paper.studies.scoring import MAIN, METHODS, calibrated, noted, scored
from experiments.paper.studies.searches import searches_table
from experiments.paper.studies.set_size import SetSize
from experiments.paper.studies.sets import RowSet, drawn, every_checkpoint, fingerprint, trained
from experiments.paper.studies.sizes import Sizes, n_weights
from experiments.paper.studies.starts import Starts
from experiments.paper.studies.study import Study, run, write_tables

from glayers import CALIBRATORS, BadPredictions, PaperGLayers, Predictions, TemperatureScaling, metrics
from glayers.activations import softmax
from glayers.datasets import CalibrationAndTest
from glayers.fitting.temperature import fit_inverse_temperature
from tests.strategies import Numbers

ROOT = Path(__file__).parents[2]
CHEAP = ("uncalibrated", "temperature", "vector")
# Small settings; everything else is as in the real ones.
STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Networks(methods=CHEAP, n_resamples=50),
        Sizes(depths=(1, 2, 3), units=(2, 3), seeds=2, max_epochs=2, own_search=(1,)),
        Starts("cifar10_residual", (1, 3), (2, 3), seeds=2, search_epochs=2, epochs=(0, 1), more_epochs=(0, 1, 2)),
        Ranks(methods=CHEAP),
        Curves("cifar10_residual", methods=CHEAP, points=11),
        SetSize(methods=CHEAP[1:], sizes=(60, 150), draws=2),
        Regularisation(
            ways=(PLAIN, "dropout 0.1", FOLDS, DEFAULT),
            sizes=(150,),
            draws=2,
            settings={"learning_rate": 1e-2, "max_epochs": 3},
        ),
        Losses(methods=("temperature", "vector"), seeds=2),
    )
}
# Two networks of two checkpoints, four classes. Jobs of a study times the lines of a job.
N_LINES = {
    "networks": 2 * 2 * 3,
    "sizes": (1 + 2 + 2) * 2 + 1,  # of one network; one layer has no units, and a search of its own
    "starts": 2 * (1 + 1) * 2 * 2 * 2
    + 2 * 2 * 3 * 2,  # starts x sizes x seeds x epochs x parts; h = 3 has one epoch more
    "ranks": 2 * 3 * 4,
    "set_size": 2 * 2 * 2,
    "regularisation": 2 * 4,
    "losses": 2 * (2 + 4),  # a temperature has no seeds
}


def rows(n: int, seed: int, factor: float, k: int = 4) -> Predictions:
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, k))
    return Predictions(factor * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1))


def network(name: str, seed: int) -> Network:
    parts = {
        epoch: CalibrationAndTest(rows(150, seed, factor), rows(200, seed + 1, factor))
        for epoch, factor in (("3", 3.0), ("1", 0.5))
    }
    return Network(name, parts, {"early_stopping_epoch": 1})


@pytest.fixture(scope="module")
def sets() -> list[RowSet]:
    names = ("cifar10_residual", "fashion_mnist_residual")
    return every_checkpoint({name: network(name, 10 * place) for place, name in enumerate(names)})


@pytest.fixture(scope="module")
def made(sets: list[RowSet], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of every study, made once."""
    results = tmp_path_factory.mktemp("results")
    for study in STUDIES.values():
        run(study, sets, results)
    return results


def lines_of(results: Path, name: str) -> list[Line]:
    return read_lines(results / f"{name}.csv")


def test_checkpoints_stand_in_the_order_of_training_and_know_what_they_are(sets: list[RowSet]) -> None:
    assert [rows.place[:2] for rows in sets[:2]] == [("cifar10_residual", "1"), ("cifar10_residual", "3")]
    assert [(rows.is_early_stop, rows.is_last) for rows in sets[:2]] == [(True, False), (False, True)]
    assert [rows.place[0] for rows in trained(sets, "cifar10")] == ["cifar10_residual"]


@pytest.mark.parametrize("name", N_LINES)
def test_a_study_fits_everything_it_names(made: Path, name: str) -> None:
    lines = lines_of(made, name)
    assert len(lines) == N_LINES[name]
    assert list(lines[0]) == [*STUDIES[name].keys, *STUDIES[name].columns]
    assert all(line["nll" if "nll" in line else "ks"] for line in lines)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_is_done_fits_nothing(
    made: Path, sets: list[RowSet], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"{name}.csv"
    file.write_bytes((made / file.name).read_bytes())
    run(STUDIES[name], sets, tmp_path)
    n_jobs = len(list(STUDIES[name].jobs(sets)))
    assert capsys.readouterr().out == f"{name}: {n_jobs} of {n_jobs} cells are done\n"
    assert file.read_bytes() == (made / file.name).read_bytes()
    assert (tmp_path / f"{name}.md").read_bytes() == (made / f"{name}.md").read_bytes()


def test_an_interrupted_study_goes_on_and_ends_with_the_same_bytes(
    made: Path, sets: list[RowSet], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, lines = STUDIES["networks"], lines_of(made, "networks")
    write_lines(tmp_path / "networks.csv", list(lines[0]), lines[5:2:-1])
    run(study, sets, tmp_path)
    assert "3 of 12 cells are done" in capsys.readouterr().out
    assert (tmp_path / "networks.csv").read_bytes() == (made / "networks.csv").read_bytes()


def test_lines_of_other_logits_are_made_again(
    made: Path, sets: list[RowSet], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ranks.csv").write_bytes((made / "ranks.csv").read_bytes())
    other = rows(150, 99, 3.0), rows(200, 98, 3.0)
    changed = [
        rowset._replace(place=(*rowset.place[:2], fingerprint(*other)), calibration=other[0], test=other[1])
        if rowset.place[:2] == ("cifar10_residual", "3")
        else rowset
        for rowset in sets
    ]
    run(STUDIES["ranks"], changed, tmp_path)
    assert "ranks: 3 of 6 cells are done" in capsys.readouterr().out
    assert len(lines_of(tmp_path, "ranks")) == N_LINES["ranks"]
    assert sets[1].place[2] not in different(lines_of(tmp_path, "ranks"), "logits")


def test_networks_has_the_numbers_of_the_library_within_their_intervals(made: Path, sets: list[RowSet]) -> None:
    after = sets[1]
    p = TemperatureScaling().fit(after.calibration.logits, after.calibration.labels).predict_proba(after.test.logits)
    (line,) = where(lines_of(made, "networks"), network="cifar10_residual", checkpoint="3", method="temperature")
    assert float(line["nll"]) == pytest.approx(metrics.nll(p, after.test.labels), abs=1e-5)
    assert float(line["ks"]) == pytest.approx(100 * metrics.ks(p, after.test.labels), abs=1e-4)
    assert float(line["ks_p_value"]) == pytest.approx(metrics.ks_test(p, after.test.labels).p_value, abs=1e-4)
    for name in ("nll", "brier", "accuracy"):  # a KS error within chance has no interval worth its name
        assert float(line[f"{name}_low"]) <= float(line[name]) <= float(line[f"{name}_high"])


def test_the_table_shows_the_early_stop_and_what_chance_allows(made: Path) -> None:
    text = (made / "networks.md").read_text(encoding="utf-8")
    assert "| cifar10_residual | 1, early stop |" in text
    assert "| cifar10_residual | 3 |" in text
    for line in lines_of(made, "networks"):
        chance = f"* (≤ {float(line['ks_bound']):.2f})" if float(line["ks_p_value"]) > 0.05 else " ["
        assert f"{float(line['ks']):.2f}{chance}" in text


def test_every_method_of_the_library_is_studied() -> None:
    assert command.STUDIES["networks"] == Networks(methods=("uncalibrated", *CALIBRATORS))
    assert command.STUDIES["set_size"] == SetSize(methods=tuple(CALIBRATORS))
    assert set(MAIN) <= set(METHODS)


def test_every_size_takes_what_the_search_at_three_layers_found(made: Path, sets: list[RowSet], tmp_path: Path) -> None:
    *lines, own = lines_of(made, "sizes")
    assert own["search"] == "own"
    assert [lines[0][column] for column in ("depth", "units", "seed")] == ["3", "3", "0"]
    assert len({line["nll"] for line in where(lines, depth="3", units="3")}) == 2
    # As if the search had found what is not among the choices: fits made afterwards must have it from the file.
    write_lines(tmp_path / "sizes.csv", list(lines[0]), [lines[0] | {"learning_rate": "0.002", "weight_decay": "0.5"}])
    run(STUDIES["sizes"], sets, tmp_path)
    again = where(lines_of(tmp_path, "sizes"), search="3 layers")
    assert {(line["learning_rate"], line["weight_decay"]) for line in again} == {("0.002", "0.5")}
    assert len(again) == len(lines)


def test_weights_are_counted_as_in_the_paper() -> None:
    # Ten classes, three units a class: hidden layers of 32, so 10 x 32 + 32 x 32 + 32 x 10.
    assert n_weights(10, 3, 3) == 1664
    assert n_weights(10, 1, 0) == 100


def test_the_transparent_start_keeps_accuracy_at_every_size(made: Path, sets: list[RowSet]) -> None:
    before = 100 * metrics.accuracy(sets[1].test.probabilities(), sets[1].test.labels)
    lines = where(lines_of(made, "starts"), set="test", epochs="0")
    kept = {line["accuracy"] for line in where(lines, start="transparent")}
    assert kept == {f"{before:.3f}"}
    assert max(numbers(where(lines, start="glorot"), "accuracy")) < before


def test_more_rows_of_a_draw_contain_the_fewer_and_draws_differ() -> None:
    given = rows(40, 0, 1.0)
    few, many, other = (drawn(given, n, draw).logits.tolist() for n, draw in ((10, 0), (30, 0), (10, 1)))
    assert many[:10] == few != other
    assert sorted(drawn(given, 40, 3).logits.tolist()) == sorted(given.logits.tolist())


def test_a_method_that_fails_or_warns_is_a_result(sets: list[RowSet]) -> None:
    def refuse() -> Numbers:
        raise BadPredictions("too few rows")

    line = scored(noted(refuse), sets[0].test)
    assert (line["nll"], line["ks"], line["note"]) == ("", "", "failed: too few rows")
    one_class = Predictions(3 * np.eye(4)[:3], [1, 1, 1])
    assert "no row is labelled" in calibrated("temperature", 0, one_class, sets[0].test).note


def test_differences_are_paired_and_their_interval_is_students() -> None:
    nll = {("a", "0"): (0.5, 0.4), ("a", "1"): (0.6, 0.3), ("b", "0"): (0.2, 0.3), ("b", "1"): (0.2, 0.2)}
    lines = [
        {"network": name, "draw": draw, "way": way, "nll": str(value)}
        for (name, draw), values in nll.items()
        for way, value in zip((PLAIN, "dropout 0.1"), values, strict=True)
    ]
    found = regularisation.differences(lines, "dropout 0.1")
    assert found == {"a": pytest.approx({"0": -0.1, "1": -0.3}), "b": pytest.approx({"0": 0.1, "1": 0.0})}
    assert regularisation.over_networks(found) == pytest.approx([0.0, -0.15])
    # A draw that not all networks have yet says nothing of all of them.
    assert len(regularisation.over_networks(regularisation.differences(lines[:-1], "dropout 0.1"))) == 1
    # Means of the draws 0 and -0.15: mean -0.075, standard error 0.075, times 12.706 of one degree of freedom.
    assert regularisation.interval([0.0, -0.15]) == pytest.approx((-0.075, -1.028, 0.878), abs=1e-3)


def test_fold_averaging_is_the_mean_of_fits_on_four_fifths(sets: list[RowSet], monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[int] = []

    class Counting:
        def __init__(self, **_: object) -> None: ...

        def fit(self, logits: Numbers, _labels: Numbers) -> "Counting":
            fitted.append(len(logits))
            return self

        def predict_proba(self, logits: Numbers) -> Numbers:
            return np.full((len(logits), 4), float(len(fitted)))

    monkeypatch.setattr(regularisation, "RegularisedGLayers", Counting)
    p = Regularisation()._probabilities(sets[0].calibration, 0, FOLDS, sets[0].test.logits)
    assert fitted == [120] * 5
    assert p[0, 0] == 3.0  # the mean of 1 to 5


def test_a_temperature_is_that_of_the_library_by_log_loss_and_the_best_by_brier(sets: list[RowSet]) -> None:
    given = sets[1].calibration
    by_log, by_brier = (temperature(given, loss, 0, given.logits) for loss in ("log", "brier"))
    library = fit_inverse_temperature(given.logits, given.labels, None)  # without the prior, as for Brier
    assert np.allclose(by_log, softmax(library.factor * given.logits), atol=1e-5)
    assert metrics.brier(by_brier, given.labels) < metrics.brier(by_log, given.labels)
    assert metrics.nll(by_brier, given.labels) > metrics.nll(by_log, given.labels)


def test_published_figures_stand_in_the_field_as_they_were_printed(tmp_path: Path) -> None:
    write_field(tmp_path)
    table = (tmp_path / "field.md").read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines() if row.startswith("|")]
    header, _, *body = cells
    columns = {"nll": "NLL", "ks_top1_percent": "KS, percent", "ece_top1_percent": "ECE, percent"}
    published = read_published()
    assert len(published) == len(PUBLISHED.read_text(encoding="utf-8").splitlines()) - 3
    here = where(published, **ROW)
    assert len(different(where(here, source="h-Calibration repository"), "method")) == 20
    ks = numbers(where(published, method="sctl", metric="ks_top1_percent"), "value")
    (row,) = [row for row in body if row[0] == "sctl"]
    assert row[-1] == f"{np.mean(ks):.3f} (9 networks)"
    for figure in here:
        (row,) = [row for row in body if row[:2] == [figure["method"], figure["source"]]]
        assert float(row[header.index(columns[figure["metric"]])]) == pytest.approx(float(figure["value"]), abs=5e-4)
    nll = [float(row[2].split()[0]) for row in body if row[2] != "-"]
    assert nll == sorted(nll)
    assert [row for row in body if row[0] == "auto" and row[1] == "**glayers**"]


def test_the_field_says_how_far_sources_disagree() -> None:
    published = [
        {**ROW, "method": "t", "source": source, "metric": "nll", "value": value}
        for source, value in (("a", "0.3"), ("b", "0.1"))
    ]
    ours = [{"method": "auto", "seed": "0", "nll": "0.2", "ks_top1_percent": "1", "ece_top1_percent": "1"}]
    assert "by up to 0.2000 in NLL" in field_table(ours, published)


def test_the_field_names_the_published_methods_ahead_of_auto() -> None:
    published = [
        {**ROW, "method": method, "source": "a", "metric": metric, "value": value}
        for method, value in (("better", "0.9"), ("worse", "1.1"))
        for metric in ("nll", "ks_top1_percent")
    ]
    ours = [{"method": "auto", "seed": "0", "nll": "0.2", "ks_top1_percent": "1", "ece_top1_percent": "1"}]
    assert "than `auto` (1.000) on these rows: better (0.900)." in field_table(ours, published)


def test_a_search_that_ends_at_an_edge_is_not_counted_as_interior(sets: list[RowSet], tmp_path: Path) -> None:
    given = sets[0].calibration
    ends = PaperGLayers(1, learning_rate=1e-3, weight_decay=[0.1, 1.0], max_epochs=1)
    at_the_edge = noted(lambda: ends.fit(given.logits, given.labels).predict_proba(given.logits)).note
    lines = [
        {"method": method, "rank": rank, "note": note}
        for method, note in (("g-layers-paper", at_the_edge), ("g-layers-paper", ""), ("auto", ""))
        for rank in ("1", "2")
    ]
    write_lines(tmp_path / "ranks.csv", ("method", "rank", "note"), lines)
    assert searches_table(tmp_path).splitlines()[2:] == ["| ranks | 2 | 1 |", "| all | 2 | 1 |"]


def test_other_depths_of_many_classes_use_what_the_search_at_three_layers_found() -> None:
    found = [
        {"method": "g, 1 layer", "learning_rate": "0.001", "weight_decay": "0.01"},
        {"method": "g, 3 layers", "learning_rate": "0.003", "weight_decay": "0.1"},
    ]
    four = many_classes.g_of("g, 4 layers", found)
    assert (four.n_layers, four.learning_rate, four.weight_decay) == (4, 0.003, 0.1)
    longer = many_classes.g_of("g, 3 layers, same settings, 1,000 epochs (as 1)", found)
    assert (longer.n_layers, longer.learning_rate, longer.max_epochs) == (3, 0.001, 1_000)


def test_the_same_tables_are_identical(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert same.main([str(made), str(made)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [*(f"{name}: identical" for name in STUDIES), "reproduce: not made"]


@pytest.mark.parametrize(
    ("name", "spreads", "code"), [("sizes", 0.5, 0), ("sizes", 20.0, 1), ("networks", 20.0, 1), ("networks", 0.1, 0)]
)
def test_a_change_is_measured_in_spreads_over_seeds(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, spreads: float, code: int
) -> None:
    lines = lines_of(made, name)
    key = {"depth": "2", "units": "2"} if name == "sizes" else {"checkpoint": "3", "method": "vector"}
    # `networks` has no seeds and borrows: of vector scaling, what it shows in `set_size` and `losses`.
    borrowed = same.spreads_of(made)["vector", "nll"]
    unit = float(np.std(numbers(where(lines, **key), "nll"), ddof=1)) if name == "sizes" else float(np.median(borrowed))
    median = np.median(same.spreads_in(same.grouped(lines, STUDIES[name].keys)).get(("", "nll"), [0.0]))
    for line in where(lines, **key):
        line["nll"] = f"{float(line['nll']) + spreads * max(unit, float(median)):.8f}"
    write_lines(tmp_path / f"{name}.csv", list(lines[0]), lines)
    assert same.main([str(tmp_path), str(made)]) == code
    assert f"{name}: differs, at most by so many spreads: nll {spreads:g}\n" in capsys.readouterr().out


def test_missing_cells_and_failed_fits_are_no_noise(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of(made, "ranks")
    write_lines(tmp_path / "ranks.csv", list(lines[0]), lines[4:])
    assert same.main([str(tmp_path), str(made)]) == 1
    assert "ranks: 0 cells are new and 4 are gone" in capsys.readouterr().out
    lines[0]["ks"] = ""
    write_lines(tmp_path / "ranks.csv", list(lines[0]), lines)
    assert same.main([str(tmp_path), str(made)]) == 1
    assert "0 fits went well, not 1" in capsys.readouterr().out


def test_a_table_of_fewer_seeds_is_compared_on_these(made: Path, tmp_path: Path) -> None:
    lines = lines_of(made, "set_size")
    write_lines(tmp_path / "set_size.csv", list(lines[0]), where(lines, draw="1"))
    for one, other in ((tmp_path, made), (made, tmp_path)):
        assert same.compared("set_size", one, other, {}, 1.0) == (
            "differs, at most by so many spreads: no metric",
            False,
        )
    others = [line | {"draw": "7"} for line in where(lines, draw="1")]
    write_lines(tmp_path / "set_size.csv", list(lines[0]), others)
    assert "has no seed in common" in same.compared("set_size", tmp_path, made, {}, 1.0).words


def test_tables_are_made_from_the_csv_alone(made: Path, tmp_path: Path) -> None:
    for name, study in STUDIES.items():
        (tmp_path / f"{name}.csv").write_bytes((made / f"{name}.csv").read_bytes())
        write_tables(study, tmp_path)
        assert (tmp_path / f"{name}.md").read_bytes() == (made / f"{name}.md").read_bytes()


@pytest.mark.slow
def test_every_figure_of_the_paper_is_drawn_from_results(made: Path, tmp_path: Path) -> None:
    figures.main(["--results", str(made), "--output", str(tmp_path)])
    assert sorted(file.stem for file in tmp_path.glob("*.png")) == sorted(figures.PICTURES)


@pytest.mark.slow
def test_it_runs_as_a_file(tmp_path: Path) -> None:
    script = [sys.executable, "-m", "experiments.paper.studies.command", "field", "--results", str(tmp_path)]
    subprocess.run(script, check=True, cwd=ROOT)
    assert (tmp_path / "field.md").exists()
    with (tmp_path / "empty.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerow(["nothing"])
    compare = [sys.executable, "-m", "experiments.paper.studies.same", str(tmp_path), str(tmp_path)]
    assert b"holds none of" in subprocess.run(compare, check=False, capture_output=True, cwd=ROOT).stderr
