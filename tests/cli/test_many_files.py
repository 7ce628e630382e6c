"""Directories, globs, several files and large files: the numbers of one file."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from glayers import Predictions, TemperatureScaling, metrics, read_predictions
from glayers.cli import scoring
from glayers.errors import BadFile
from glayers.predictions import source
from glayers.predictions.contents import Contents, Reading
from glayers.predictions.formats import to_bytes
from glayers.predictions.source import Source, files_of
from tests.cli.running import run

ENDINGS = [".parquet", ".csv", ".npz", ".json"]


def simulated(n_rows: int = 300, groups: bool = False) -> Predictions:
    rng = np.random.default_rng(4)
    z = rng.normal(size=(n_rows, 3)) * 2
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Predictions(2 * z, labels, groups=rng.integers(0, 40, n_rows) if groups else None)


def write(folder: Path, rows: Predictions, cuts: list[int], ending: str = ".parquet") -> list[Path]:
    folder.mkdir(exist_ok=True)
    files = []
    for number, part in enumerate(np.split(np.arange(len(rows)), cuts)):
        some = rows.take(part)
        path = folder / f"{number}{ending}"
        contents = Contents(logits=some.logits, labels=some.labels, groups=some.groups)
        path.write_bytes(to_bytes(contents, ending))
        files.append(path)
    return files


def chunks_of(*paths: Path, reading: Reading | None = None, entries: int = 40, labelled: bool = True) -> list[Any]:
    files = Source(paths, replace(reading or Reading(), entries=entries), labelled)
    return [rows for file in range(len(paths)) for _, rows in files.chunks(file)]


def scored(*words: object) -> dict[str, Any]:
    done = run("score", *words, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_directory_a_glob_and_several_files_score_as_one_array(ending: str, tmp_path: Path) -> None:
    rows = simulated()
    files = write(tmp_path / "in", rows, [50, 51, 200], ending)
    (tmp_path / "in" / "_hidden.tsv").write_text("not predictions")
    wanted = metrics.scorecard(rows).to_dict()
    for given in ([tmp_path / "in"], [tmp_path / "in" / f"*{ending}"], files):
        found = scored(*given)["all"]
        assert {name: found[name] for name in wanted} == pytest.approx(wanted, abs=1e-12)
    of_ks = metrics.calibration_test(rows, n_resamples=99).tests["ks"]
    assert scored(tmp_path / "in")["all"]["ks_test"]["p_value"] == pytest.approx(of_ks.p_value, abs=1e-9)


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".npz", ".npy"])
def test_chunks_of_any_size_hold_the_rows_of_the_file(ending: str, tmp_path: Path) -> None:
    rows = simulated(100)
    labels = None
    if ending == ".npy":
        path, labels = tmp_path / "z.npy", tmp_path / "y.npy"
        np.save(path, rows.logits)
        np.save(labels, rows.labels)
    else:
        path = write(tmp_path, rows, [], ending)[0]
    for entries in (1, 40, 10**6):
        chunks = chunks_of(path, reading=Reading(labels=labels), entries=entries)
        assert (len(chunks) == 1) is (entries == 10**6)
        assert (np.concatenate([chunk.logits for chunk in chunks]) == rows.logits).all()
        assert (np.concatenate([chunk.labels for chunk in chunks]) == rows.labels).all()


def test_a_failure_stops_the_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in", simulated(4_000), list(range(100, 4_000, 100)))
    monkeypatch.setattr(source, "available_threads", lambda: 2)
    used = []

    def use(file: int, chunks: Any) -> int:
        for _ in chunks:
            used.append(file)
            if file == 2:
                raise BadFile("broken")
            time.sleep(0.02)
        return 0

    with pytest.raises(BadFile, match="broken"):
        list(Source.of([tmp_path / "in"], Reading()).map(use))
    assert len(used) < 30


def test_a_large_file_is_read_in_chunks_and_tests_see_a_subset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = simulated(2_000, groups=True)
    (path,) = write(tmp_path, rows, [])
    TemperatureScaling().fit_predictions(rows).save(tmp_path / "m.safetensors")
    whole = scored(path, "--model", tmp_path / "m.safetensors")
    monkeypatch.setattr(source, "LARGE_FILE", 1_000)
    monkeypatch.setattr(scoring, "_TESTED_ROWS", 500)
    found = scored(path, "--model", tmp_path / "m.safetensors", "--intervals", "--resamples", 20)
    for name in ("uncalibrated", "calibrated"):
        for metric in metrics.METRICS:
            assert found[name][metric] == pytest.approx(whole[name][metric], abs=1e-12), metric
        assert found[name]["intervals"]["nll"]["low"] < found[name]["nll"] < found[name]["intervals"]["nll"]["high"]
    assert 0 < found["tested_rows"] <= 500
    shown = run("score", path, "--intervals", "--resamples", 20).stdout
    assert f"Tests and intervals of {found['tested_rows']} rows, drawn at random from 2,000:" in shown


def test_apply_writes_a_new_directory(tmp_path: Path) -> None:
    rows = simulated()
    write(tmp_path / "in", rows, [120])
    fitted = TemperatureScaling().fit_predictions(rows)
    fitted.save(model := tmp_path / "m.safetensors")
    words = ("apply", model, tmp_path / "in", "-o", out := tmp_path / "out")
    done = run(*words)
    assert "calibrated 300 rows of 2 files with m.safetensors; wrote" in " ".join(done.stdout.split())
    assert [part.name for part in sorted(out.iterdir())] == ["part-00000.parquet", "part-00001.parquet"]
    parts = [read_predictions(part) for part in sorted(out.iterdir())]
    made = np.concatenate([part.probabilities() for part in parts])
    np.testing.assert_allclose(made, fitted.predict_proba(rows.logits), atol=1e-9)
    assert (np.concatenate([part.labels for part in parts]) == rows.labels).all()
    assert scored(out)["all"]["nll"] == pytest.approx(
        scored(tmp_path / "in", "--model", model)["calibrated"]["nll"], abs=1e-9
    )
    assert "is a directory" in run(*words, "--force").stderr  # which may hold anything
    alone = tmp_path / "alone"
    write(alone, rows, [])
    assert run("apply", model, alone, "-o", tmp_path / "one").exit_code == 0  # also a directory
    (part,) = (tmp_path / "one").iterdir()
    assert read_predictions(part).probabilities()[0] == pytest.approx(fitted.predict_proba(rows.logits[:1])[0])


def test_fit_and_report_take_a_random_subset_of_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from glayers.calibrators import auto

    monkeypatch.setattr(auto, "_ENOUGH_ROWS", 1_000)
    rows = simulated(1_500)
    write(tmp_path / "in", rows, [400])
    done = run("fit", tmp_path / "in", "-o", tmp_path / "m.safetensors", "-m", "temperature")
    assert done.exit_code == 0, done.stderr
    assert "1,000 of 1,500 rows" in " ".join(done.stderr.split())
    options = ("--methods", "temperature", "-o", tmp_path / "page.html")
    assert run("report", tmp_path / "in", tmp_path / "in" / "0.parquet", *options).exit_code == 0
    assert (tmp_path / "page.html").is_file()


def test_what_cannot_be_done_with_many_files_says_why(tmp_path: Path) -> None:
    rows = simulated()
    files = write(tmp_path / "in", rows, [120])
    TemperatureScaling().fit_predictions(rows).save(model := tmp_path / "m.safetensors")
    named = Contents(logits=rows.logits, labels=rows.labels, class_names=("a", "b", "c"))
    (tmp_path / "named.parquet").write_bytes(to_bytes(named, ".parquet"))
    bare = Contents(logits=rows.logits)
    (tmp_path / "bare.parquet").write_bytes(to_bytes(bare, ".parquet"))
    weighted = Contents(logits=rows.logits, labels=rows.labels, weights=np.arange(1.0, len(rows) + 1))
    (tmp_path / "weighted.parquet").write_bytes(to_bytes(weighted, ".parquet"))
    grouped = Contents(logits=rows.logits, labels=rows.labels, groups=np.arange(len(rows)) % 9)
    (tmp_path / "grouped.parquet").write_bytes(to_bytes(grouped, ".parquet"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    for words, said in {
        ("score", tmp_path / "empty"): "is a directory with no files of predictions",
        ("score", tmp_path / "*.arrow"): "a pattern that no file matches",
        ("score", files[0], files[0]): "is given twice",
        (
            "score",
            files[0],
            tmp_path / "named.parquet",
        ): "named.parquet: differs from",
        ("score", files[0], tmp_path / "bare.parquet"): "no labels",
        ("score", files[0], tmp_path / "weighted.parquet"): "in weights; handle them apart",
        ("score", tmp_path / "grouped.parquet", files[0]): "in groups; handle them apart",
        (
            "score",
            *files,
            "--model",
            model,
            tmp_path / "bare.parquet",
        ): "in labels; handle them apart",
        ("score", *files, "--labels", tmp_path / "y.npy"): "labels can be given for one .npy file",
        ("apply", model, *files, "-o", tmp_path / "x.npz"): "give -o a name without ending",
        ("apply", model, *files, "-o", tmp_path / "in"): "is a directory, a pipe or a device",
        ("apply", model, *files, "-o", tmp_path / "taken"): "is a directory, a pipe or a device",
        ("card", model, tmp_path / "in"): "give one smaller file",
        ("adapt", model, tmp_path / "in", "-o", tmp_path / "x.safetensors"): "give one smaller file",
    }.items():
        done = run(*words)
        assert done.exit_code in (1, 2), (words, done.stdout)
        assert said in " ".join(done.stderr.replace("│", " ").split()), done.stderr
    assert (tmp_path / "taken" / "mine.txt").is_file()


def test_bad_rows_are_found_in_their_file(tmp_path: Path) -> None:
    rows = simulated(50)
    (path,) = write(tmp_path, rows, [])
    z = rows.logits.copy()
    z[30, 1] = np.nan
    (tmp_path / "bad.parquet").write_bytes(to_bytes(Contents(logits=z, labels=rows.labels), ".parquet"))
    with pytest.raises(Exception, match="counted from row 30: logits must be finite; row 0, column 1 has nan"):
        chunks_of(path, tmp_path / "bad.parquet")
    gap = pyarrow.table({f"logit_{c}": [None if (n, c) == (31, 2) else 3.0 * c for n in range(50)] for c in range(3)})
    parquet.write_table(gap, tmp_path / "gap.parquet")
    with pytest.raises(Exception, match="row 31, column 'logit_2' is missing"):
        chunks_of(tmp_path / "gap.parquet", labelled=False)
    (tmp_path / "gap.parquet").unlink()
    assert files_of([tmp_path]) == (tmp_path / "0.parquet", tmp_path / "bad.parquet")


def test_chunks_of_an_array_in_fortran_order_hold_its_rows(tmp_path: Path) -> None:
    z = simulated(50).logits
    np.save(tmp_path / "f.npy", np.asfortranarray(z))
    chunks = chunks_of(tmp_path / "f.npy", labelled=False)
    assert len(chunks) > 1
    assert np.array_equal(np.concatenate([chunk.logits for chunk in chunks]), z)


def test_apply_names_the_file_and_the_row_it_cannot_calibrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = simulated(50)
    TemperatureScaling().fit(rows.logits / 10, rows.labels).save(model := tmp_path / "m.safetensors")
    huge = rows.logits.copy()
    huge[41] = [1e308, 0.0, 0.0]  # divided by a temperature below 1, it is no number
    write(tmp_path / "in", Predictions(np.concatenate([rows.logits, huge]), np.tile(rows.labels, 2)), [50])
    monkeypatch.setattr(source, "CHUNK_ENTRIES", 60)
    said = " ".join(run("apply", model, tmp_path / "in", "-o", tmp_path / "out").stderr.split())
    assert "1.parquet, counted from row 30: the map has no result for row 11" in said


def test_threads_change_neither_scores_nor_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = simulated(groups=True)
    write(tmp_path / "in", rows, [70, 71, 200])
    TemperatureScaling().fit(rows.logits, rows.labels).save(tmp_path / "m.safetensors")
    monkeypatch.setattr(source, "CHUNK_ENTRIES", 60)
    found = {}
    for threads in (1, 3):
        monkeypatch.setattr(source, "available_threads", lambda n=threads: n)
        out = tmp_path / f"out{threads}"
        assert run("apply", tmp_path / "m.safetensors", tmp_path / "in", "-o", out).exit_code == 0
        parts = {file.name: file.read_bytes() for file in out.glob("*.parquet")}
        found[threads] = parts, scored(tmp_path / "in", "--model", tmp_path / "m.safetensors")["calibrated"]
    assert found[1][0] == found[3][0]
    numbers = [{name: v for name, v in card.items() if isinstance(v, float)} for _, card in found.values()]
    assert numbers[0] == pytest.approx(numbers[1], abs=1e-12)
    (tmp_path / "in" / "1.parquet").write_bytes(b"PAR1 damaged PAR1")
    assert "1.parquet" in run("score", tmp_path / "in").stderr


def test_soft_labels_are_read_from_one_file_alone(tmp_path: Path) -> None:
    rows = simulated()
    TemperatureScaling().fit_predictions(rows).save(model := tmp_path / "m.safetensors")
    files = [tmp_path / f"{number}.npz" for number in range(2)]
    for file in files:
        np.savez(file, logits=rows.logits, labels=0.9 * np.eye(3)[rows.labels] + 0.1 / 3)
    scored(files[0])
    for words in (("score", *files), ("apply", model, *files, "-o", tmp_path / "out")):
        done = run(*words)
        assert done.exit_code == 1
        assert "rows with soft labels are read at once: give one file" in " ".join(done.stderr.split())
