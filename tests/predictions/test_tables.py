"""Tables give back what was written, by the names of their columns; a bad cell is named by its place."""

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from glayers.arrays import Array
from glayers.predictions import Predictions
from glayers.predictions.contents import Contents, Reading
from glayers.predictions.formats import open_file, to_bytes
from glayers.predictions.source import read_predictions
from tests.predictions.examples import GROUPS, LABELS, LOGITS, NAMES, PROBABILITIES, WEIGHTS, bad


def table(path: Path, columns: dict[str, Iterable[Any]], delimiter: str = ",") -> Path:
    """Write columns as text, floats so that they read back exactly."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(columns)
    writer.writerows(zip(*(map(str, values) for values in columns.values()), strict=True))
    path.write_bytes(text.getvalue().encode())
    return path


def parquet(path: Path, columns: dict[str, Any]) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def scores(prefix: str, values: Array, names: Sequence[object]) -> dict[str, list[float]]:
    return {f"{prefix}_{name}": values[:, column].tolist() for column, name in enumerate(names)}


def assert_same(found: Predictions, logits: Array, labels: Array = LABELS) -> None:
    np.testing.assert_array_equal(found.logits, logits)
    np.testing.assert_array_equal(found.labels, labels)


def any_table(path: Path, columns: dict[str, Any]) -> Path:
    """Write the same columns in whichever format the ending says."""
    if path.suffix == ".parquet":
        return parquet(path, columns)
    return table(path, columns, "\t" if ".tsv" in path.name else ",")


EVERY_TABLE = ["a.csv", "a.tsv", "a.parquet", "A.CSV"]
TABLES = ["a.csv", "a.parquet"]  # text, and columns with types


@pytest.mark.parametrize("name", EVERY_TABLE)
def test_a_table_gives_back_everything_that_was_written(tmp_path: Path, name: str) -> None:
    columns = {
        "image": [f"{row}.png" for row in range(7)],
        **scores("logit", LOGITS, NAMES),
        "label": LABELS.tolist(),
        "weight": WEIGHTS.tolist(),
        "group": GROUPS.tolist(),
    }
    found = read_predictions(any_table(tmp_path / name, columns))
    assert_same(found, LOGITS)
    np.testing.assert_array_equal(found.weights, WEIGHTS)
    np.testing.assert_array_equal(found.groups, GROUPS)
    assert found.class_names == NAMES


@pytest.mark.parametrize("name", TABLES)
def test_labels_may_be_the_names_of_classes(tmp_path: Path, name: str) -> None:
    labels = [NAMES[label] for label in LABELS]
    path = any_table(tmp_path / name, {"y": labels, **scores("logit", LOGITS, NAMES)})
    assert_same(read_predictions(path), LOGITS)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("prefix", ["probability", "prob", "p"])
def test_probabilities_are_recognised_by_their_prefix(tmp_path: Path, name: str, prefix: str) -> None:
    path = any_table(tmp_path / name, {**scores(prefix, PROBABILITIES, NAMES), "target": LABELS.tolist()})
    assert_same(read_predictions(path), np.log(PROBABILITIES))


@pytest.mark.parametrize("name", TABLES)
def test_numbered_columns_go_by_their_number_not_their_place(tmp_path: Path, name: str) -> None:
    order = [2, 0, 3, 1]
    columns = {**scores("logit", LOGITS[:, order], order), "label": LABELS.tolist()}
    found = read_predictions(any_table(tmp_path / name, columns))
    assert_same(found, LOGITS)
    assert found.class_names is None


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("column", ["logit", "logit_1", "logit_spam"])
def test_one_logit_column_is_a_binary_model(tmp_path: Path, name: str, column: str) -> None:
    labels = np.array([1, 0, 0, 1, 1, 0, 1])
    path = any_table(tmp_path / name, {column: (LOGITS[:, 0] - 3).tolist(), "label": labels.tolist()})
    found = read_predictions(path)
    assert_same(found, LOGITS[:, :1] - 3, labels)
    assert found.n_classes == 2
    assert found.class_names is None


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("labels", "numbers", "names"),
    [
        (["healthy", "ill", " healthy", "ill "], [0, 1, 0, 1], ("healthy", "ill")),
        (["ill", "ill", "ill", "ill"], [1, 1, 1, 1], None),
        (["0", "1", "1", "0"], [0, 1, 1, 0], None),
    ],
)
def test_a_single_column_names_class_1_and_the_other_label_is_class_0(
    tmp_path: Path, name: str, labels: list[str], numbers: list[int], names: tuple[str, ...] | None
) -> None:
    p = np.array([0.2, 0.9, 0.4, 0.7])
    path = any_table(tmp_path / name, {"probability_ill": p.tolist(), "label": labels})
    found = read_predictions(path)
    assert found.probabilities()[:, 1] == pytest.approx(p)
    assert found.labels.tolist() == numbers
    assert found.class_names == names
    reading = Reading(entries=2)  # one row at a time
    chunks = [rows for chunk in open_file(path, reading) for rows in [chunk.checked()]]
    assert [rows.labels.item() for rows in chunks if isinstance(rows, Predictions)] == numbers


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("odd", ["Ill", "", "sick"])
def test_a_third_label_beside_a_single_column_is_refused(tmp_path: Path, name: str, odd: str) -> None:
    path = any_table(tmp_path / name, {"probability_ill": [0.2, 0.9, 0.4], "label": ["ill", "healthy", odd]})
    assert f"column 'label' has {odd!r}; expected a number or one of healthy, ill" in bad(path)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("column", ["logit_0", "prob_0", "p_2", "probability_1.0"])
def test_a_single_column_of_another_class_is_not_read_as_class_1(tmp_path: Path, name: str, column: str) -> None:
    message = bad(any_table(tmp_path / name, {column: [0.25, 0.75], "label": [0, 1]}))
    prefix = column.split("_")[0]
    assert f"column {column!r} stands alone" in message
    assert f"name it {prefix}_1, or give both" in message


@pytest.mark.parametrize("name", TABLES)
def test_spaces_around_a_label_do_not_count(tmp_path: Path, name: str) -> None:
    labels = [f" {NAMES[label]}  " for label in LABELS]
    path = any_table(tmp_path / name, {"y": labels, **scores("logit", LOGITS, NAMES)})
    assert_same(read_predictions(path), LOGITS)


@pytest.mark.parametrize("name", TABLES)
def test_logit_columns_take_precedence_over_probability_columns(tmp_path: Path, name: str) -> None:
    columns = {
        **scores("p", PROBABILITIES, NAMES),
        **scores("logit", LOGITS + 5, NAMES),
        "label": LABELS.tolist(),
    }
    assert_same(read_predictions(any_table(tmp_path / name, columns)), LOGITS + 5)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"a": [1.5], "b": [2.5]},
            "found a, b; expected one of these keys or column headers: logit_<class>, probability_<class>",
        ),
        ({"logit_a": [1.5], "logit_b": [2.5], "truth": [0]}, "no labels: name their key or column"),
        ({"logit_a": [1.5], "logit_b": [2.5], "y": [0], "label": [0]}, "both 'y' and 'label' are labels"),
        ({"p_a": [0.5], "prob_b": [0.5], "y": [0]}, "both 'p_<class>' and 'prob_<class>' are probabilities"),
        ({"logit_1": [1.5], "logit_2": [2.5], "y": [1]}, "number the classes 0..1, or name all of them"),
        ({"logit_a": [1.5], "logit_1": [2.5], "y": [1]}, "class number 1 of logit"),
        ({"logit": [1.5], "logit_b": [2.5], "y": [1]}, "names no class"),
        (
            {"logit_a": [1.5], "logit_b": [2.5], "y": ["c"]},
            "column 'y' has 'c'; expected a number or one of a, b",
        ),
        (
            {"logit_0": [1.5], "logit_1": [2.5], "y": ["1.5"]},
            "whole numbers in 0..1; row 0 has 1.5",
        ),
        ({"logit_a": [1.5], "logit_b": [2.5], "y": [7]}, "labels must be whole numbers in 0..1"),
        ({"logit_a": [1.5], "logit_b": ["two"], "y": [0]}, "column 'logit_b' has 'two'; expected a number"),
        (
            {"logit_a": [1.5], "logit_b": [2.0], "y": [0], "weight": [np.inf]},
            "finite and not negative; row 0 has inf",
        ),
    ],
)
def test_each_contradiction_between_columns_has_its_own_message(
    tmp_path: Path, name: str, columns: dict[str, list[Any]], said: str
) -> None:
    assert said in bad(any_table(tmp_path / name, columns))


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


HEADER = "logit_a,logit_b,label\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEADER + "1,2,0\n1,oops,1\n", "line 3, column 'logit_b' has 'oops'; expected a number"),
        (HEADER + "1,2,0\n\n1,,1\n", "line 4, column 'logit_b' has ''; expected a number"),
        (HEADER + "1,2,0\n1,2,\n", "line 3, column 'label' has ''; expected a number or one of a, b"),
        (HEADER + "1,2,0\n1,2\n", "line 3 has 2 cells, but the header has 3"),
        (HEADER + '1,2,0\n1,"2', "cannot be read (Error"),
        (HEADER + "1_0,2,0\n", "line 2, column 'logit_a' has '1_0'; expected a number"),
        ("logit_0,logit_1,label\n1,2,1\n1,2,0_1\n", "line 3, column 'label' has '0_1'; expected a number"),
        (HEADER, "no rows under its header"),
        ("\n\n", "no logits or probabilities: found none"),
        ("logit_a;logit_b;label\n1;2;0\n", "put commas, in .tsv tabs, between columns, and write 0.5, not 0,5"),
        ('"logit_a";"logit_b";"label"\n0,1;0,2;0\n', "put commas, in .tsv tabs, between columns"),  # R's write.csv2
        ("logit_a\tlogit_b\tlabel\n1\t2\t0\n", "put commas, in .tsv tabs, between columns"),
        (
            "id,logit_a,logit_b,logti_wren,label\n7,1,2,3,1\n7,1,2,3,wren\n",
            "line 3, column 'label' has 'wren'; expected a number or one of a, b: no column has the scores of "
            "another class. Rename its column (ignored: id, logti_wren), or fix or remove that row",
        ),
        ("1,2,0\n3,4,1\n", "found 1, 2, 0; expected one of these keys or column headers"),
        ("logit_a,logit_b,logit_a,label\n1,2,3,0\n", "the column 'logit_a' is there twice"),
    ],
)
def test_a_bad_cell_is_named_by_line_and_column(tmp_path: Path, text: str, said: str) -> None:
    assert said in bad(write(tmp_path / "a.csv", text))


def test_a_byte_order_mark_and_spaces_in_the_header_do_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "logit_a, logit_b, label\r\n1.5, -2, 1\r\n", "utf-8-sig")
    assert_same(read_predictions(path), np.array([[1.5, -2.0]]), np.array([1]))


def test_a_name_may_hold_the_delimiter_a_line_break_or_any_letter(tmp_path: Path) -> None:
    names = ("a,b", "two\nlines", "naïve €")
    path = table(tmp_path / "a.csv", {**scores("logit", LOGITS[:, :3], names), "label": [names[1]] * 7})
    found = read_predictions(path)
    assert found.class_names == names
    assert_same(found, LOGITS[:, :3], np.ones(7))


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_the_error_for_another_encoding_suggests_utf_8(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "a.csv", HEADER.replace("logit_a", "logit_é") + "1,2,0\n", encoding)
    assert "save it as UTF-8" in bad(path)


def test_parquet_keeps_single_precision_and_whole_number_groups(tmp_path: Path) -> None:
    logits = LOGITS.astype(np.float32)
    columns = {f"logit_{name}": logits[:, column] for column, name in enumerate(NAMES)}
    labels = pyarrow.array([NAMES[label] for label in LABELS]).dictionary_encode()
    found = read_predictions(parquet(tmp_path / "a.parquet", {**columns, "y": labels, "group": LABELS * 10}))
    assert_same(found, logits)
    assert found.logits.dtype == np.float32
    np.testing.assert_array_equal(found.groups, LABELS * 10)


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("logit_b", [1.0, None], "row 1, column 'logit_b' is missing"),
        ("label", [None, 1], "row 0, column 'label' is missing"),
        ("group", ["a", None], "row 1, column 'group' is missing"),
        ("logit_b", ["1", "two"], "row 1, column 'logit_b' has 'two'; expected a number"),
        ("group", [[1], [1, 2]], "column 'group' holds list<element: int64>; expected numbers or text"),
        ("group", [{"a": 1}, {"a": 2}], "column 'group' holds struct<a: int64>"),
    ],
)
def test_a_bad_parquet_column_is_named(tmp_path: Path, column: str, values: list[Any], said: str) -> None:
    columns = {"logit_a": [1.0, -2.0], "logit_b": [0.5, 3.0], "label": [0, 1]} | {column: values}
    assert said in bad(parquet(tmp_path / "a.parquet", columns))


def test_without_pyarrow_a_parquet_file_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet(tmp_path / "a.parquet", {"logit": [1.0, -2.0], "label": [0, 1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert 'pip install "glayers[parquet]"' in bad(path)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet"])
def test_a_single_score_is_written_as_the_reader_expects_it(tmp_path: Path, ending: str) -> None:
    given = Contents(logits=np.array([[0.5], [-2.0]]), labels=np.array([1, 0]), class_names=("no", "yes"))
    (tmp_path / f"one{ending}").write_bytes(to_bytes(given, ending))
    read = read_predictions(tmp_path / f"one{ending}")
    assert read.logits.tolist() == [[0.5], [-2.0]]
    assert read.labels.tolist() == [1, 0]
