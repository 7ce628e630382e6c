"""What is written is read back as it was: every digit, every label and every name that the format has room for."""

import builtins
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glayers.errors import BadFile
from glayers.predictions.contents import Contents
from glayers.predictions.formats import FORMATS, to_bytes
from glayers.predictions.source import read_confidences, read_predictions
from tests.files import write_anew
from tests.predictions.examples import read_any, read_rows

TABLES = [".csv", ".tsv", ".parquet"]
WHOLE_ROWS = [ending for ending in FORMATS if ending != ".npy"]  # which holds scores alone
every_format = pytest.mark.parametrize("ending", WHOLE_ROWS)


@st.composite
def written(draw: st.DrawFn) -> Contents:
    n_rows, n_classes, seed = draw(st.integers(1, 6)), draw(st.integers(2, 5)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n_rows, n_classes)) * 10.0 ** rng.integers(-20, 20, size=(n_rows, n_classes))
    letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")  # NumPy's text ends at a zero
    names = st.lists(st.text(letters, min_size=1, max_size=6), min_size=n_classes, max_size=n_classes, unique=True)
    groups = st.lists(st.text(string.printable[:-5], min_size=1), min_size=n_rows, max_size=n_rows)
    weights = draw(st.one_of(st.none(), st.just(rng.uniform(0.1, 3, n_rows))))
    return Contents(
        logits=scores - 5.0,  # a lone row of 0.5 and 0.5 would be taken for probabilities
        labels=draw(st.one_of(st.none(), st.just(rng.integers(0, n_classes, n_rows)))),
        weights=weights,
        counts=None if weights is not None else draw(st.one_of(st.none(), st.just(rng.integers(1, 4, n_rows)))),
        groups=draw(st.one_of(st.none(), groups.map(np.array))),
        class_names=draw(st.one_of(st.none(), names.map(tuple))),
    )


def read_back(data: bytes, ending: str, folder: Path) -> tuple[Any, bool]:
    path = folder / f"a{ending}"
    write_anew(path, data)
    return read_rows(path)


@settings(max_examples=40)
@given(made=written())
def test_rows_come_back_as_they_were(made: Contents, tmp_path_factory: pytest.TempPathFactory) -> None:
    for ending in WHOLE_ROWS:
        assert_comes_back(made, ending, tmp_path_factory.getbasetemp())


@every_format
def test_one_score_alone_comes_back(tmp_path: Path, ending: str) -> None:
    assert_comes_back(Contents(logits=np.array([[2.5], [-1.0]])), ending, tmp_path)
    found, labelled = read_back(to_bytes(Contents(confidence=np.array([0.5, 0.25])), ending), ending, tmp_path)
    assert (found.confidence.tolist(), labelled) == ([0.5, 0.25], False)


def test_lines_keep_the_label_of_classes_that_are_named_by_numbers(tmp_path: Path) -> None:
    made = Contents(logits=np.zeros((3, 3)), labels=np.array([2, 0, 1]), class_names=("00", "000", "0"))
    assert_comes_back(made, ".jsonl", tmp_path)


def assert_comes_back(made: Contents, ending: str, folder: Path) -> None:
    data = to_bytes(made, ending)
    found, labelled = read_back(data, ending, folder)
    times = np.ones(len(made), int) if made.counts is None else made.counts
    assert found.logits.tolist() == np.repeat(made.logits, times, axis=0).tolist()  # type: ignore[arg-type]
    assert labelled == (made.labels is not None)
    for name in ("labels", "weights", "groups"):
        given = getattr(made, name)
        if given is not None:
            assert getattr(found, name).tolist() == np.repeat(given, times).tolist()
        elif name != "labels":
            assert getattr(found, name) is None
    may_be_lost = ending in TABLES or ending == ".jsonl"
    assert found.class_names == made.class_names or (may_be_lost and found.class_names is None)


@pytest.mark.parametrize("ending", TABLES)
@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("cat", "Ankle boot", "T-shirt/top"), True),
        (('"quoted"', "a,b", "ü"), True),
        (("1", "2", "3"), False),  # a reader would take them for class numbers
        (("nan", "b", "c"), True),
        ((" a", "b", "c"), False),
        (("", "b", "c"), False),
        (("\x1b[31m", "b", "c"), False),
        (("a\rb", "b", "c"), False),
    ],
)
def test_names_that_no_column_can_carry_become_numbers(
    tmp_path: Path, ending: str, names: tuple[str, ...], kept: bool
) -> None:
    made = Contents(probabilities=np.array([[0.5, 0.25, 0.25]]), labels=np.array([2]), class_names=names)
    found, _ = read_back(to_bytes(made, ending), ending, tmp_path)
    assert found.class_names == (names if kept else None)
    assert found.labels.tolist() == [2]
    assert found.probabilities()[0, 0] == pytest.approx(0.5)


@every_format
@pytest.mark.parametrize("name", ["a\rb", "a\nb", "a\r\nb", ' "', "\x1b[31m"])
def test_groups_may_hold_line_breaks(tmp_path: Path, ending: str, name: str) -> None:
    made = Contents(logits=np.array([[1.0, 2, 5]]), groups=np.array([name]))
    assert read_back(to_bytes(made, ending), ending, tmp_path)[0].groups[0].split() == name.split()


@every_format
def test_same_rows_same_bytes(ending: str) -> None:
    made = Contents(logits=np.array([[1.0, 2, 5]]), labels=np.array([1]), class_names=("a", "b", "c"))
    assert to_bytes(made, ending) == to_bytes(made, ending)


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(BadFile, match=r"glayers\[parquet\]"):
        to_bytes(Contents(logits=np.array([[1.0, 2, 5]])), ".parquet")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[1, 2]]", "holds a list; expected an object of lists, such as logits"),
        ("{", "cannot be read (JSONDecodeError"),
        ("\udcff", "is not UTF-8 text"),
        ('{"logits": 3, "labels": [0]}', "logits must be a list; got 3"),
        ('{"logits": [[1, 2], [3]], "labels": [0, 1]}', "logits must be real numbers, in rows of equal length"),
        ('{"logits": [["a", "b"]], "labels": [0]}', "logits must be real numbers"),
        ('{"logits": [[NaN, 1]], "labels": [0]}', "must be finite"),
        ('{"logits": [[1, null]], "labels": [0]}', "must be finite"),
        ('{"logits": [[3, 1]]}', "no labels: name their key"),
        ('{"logits": [[3, 1]], "labels": [0], "class_names": [1, 1]}', "class_names must be 2 different names"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_the_error_for_json_without_predictions_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadFile) as caught:
        read_predictions(tmp_path / "a.json")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@every_format
def test_confidences_come_back_as_they_were(tmp_path: Path, ending: str) -> None:
    made = Contents(
        confidence=np.array([0.1, 0.7, 1 / 3]),
        correct=np.array([False, True, True]),
        weights=np.array([1.0, 2.0, 0.5]),
        groups=np.array(["a", "b", "a"]),
    )
    path = tmp_path / f"a{ending}"
    path.write_bytes(to_bytes(made, ending))
    found = read_confidences(path)
    for name in ("confidence", "correct", "weights", "groups"):
        assert getattr(found, name).tolist() == getattr(made, name).tolist()
    assert repr(read_any(path)) == "Confidences(3 rows, weights, groups)"


@every_format
def test_impossible_classes_come_back(ending: str, tmp_path: Path) -> None:
    logits = np.array([[1.0, -np.inf, 0.5], [0.25, -2.0, -np.inf]])
    path = tmp_path / f"rows{ending}"
    path.write_bytes(to_bytes(Contents(logits=logits, labels=np.array([0, 1])), ending))
    assert np.array_equal(read_predictions(path).logits, logits)


@pytest.mark.parametrize(
    ("cells", "complaint"),
    [("inf,0,0,1", "row 0, column 0 has inf. .*only -inf"), ("2,0,-inf,1", "labels must be whole .* row 0 has -inf")],
)
def test_other_infinities_are_refused(cells: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(f"logit_0,logit_1,label,weight\n{cells}\n")
    with pytest.raises(BadFile, match=complaint):
        read_predictions(tmp_path / "rows.csv")
