"""Logs of language models are read line by line: choices, the correct one, and documents as groups."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glayers import BadFile, read_confidences, read_predictions
from glayers.predictions import MultiLabelPredictions


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def sample(number: int, scores: list[Any], target: object, **more: Any) -> dict[str, Any]:
    """A line of lm-evaluation-harness, as its version 0.4 writes it."""
    requests = {f"gen_args_{i}": {"arg_0": "Question?", "arg_1": f" choice {i}"} for i in range(len(scores))}
    answers = [[str(score), "False"] for score in scores]
    fixed = {"doc_id": number, "doc": {"question": "Question?"}, "target": target, "arguments": requests}
    return {**fixed, "resps": [[each] for each in answers], "filtered_resps": answers, "doc_hash": f"h{number}", **more}


def test_a_sample_log_of_the_harness(tmp_path: Path) -> None:
    log = write(
        tmp_path / "samples_arc.jsonl",
        sample(0, [-1.5, -0.5, -2.0], 1, acc=1.0),
        sample(1, [-1.0, -3.0, -2.0, -9.0], "2", acc=0.0),
        sample(2, [-4.0, -3.0], " choice 0", acc=0.0),
        sample(3, [-4.0, -3.0, -7.5], "C"),
        sample(4, [-4.0, -4.0], 1, acc=0.0),  # a tie, which the harness decides in its own way
    )
    read = read_predictions(log)
    assert read.labels.tolist() == [1, 2, 0, 2, 1]
    assert read.logits[0].tolist() == [-1.5, -0.5, -2.0, -np.inf]
    assert read.logits[2].tolist() == [-4.0, -3.0, -np.inf, -np.inf]
    assert read.groups is not None
    assert read.groups.tolist() == ["h0", "h1", "h2", "h3", "h4"]


def test_a_choice_that_a_question_lacks_has_probability_0(tmp_path: Path) -> None:
    records = [{"probabilities": [0.5, 0.3, 0.2], "label": 0}, {"probabilities": [0.6, 0.4], "label": 1}]
    read = read_predictions(write(tmp_path / "s.jsonl", *records))
    assert read.probabilities() == pytest.approx(np.array([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0]]), abs=1e-9)
    assert read.probabilities()[1, 2] == 0


def test_older_logs_have_lists_of_arguments(tmp_path: Path) -> None:
    older = sample(0, [-1.0, -2.0], "no") | {"arguments": [["Q?", " yes"], ["Q?", " no"]], "doc_hash": None}
    named = sample(1, [-1.0, -2.0], " choice 1", doc_hash=None)
    read = read_predictions(write(tmp_path / "s.jsonl", older, named))
    assert read.labels.tolist() == [1, 1]
    assert read.groups is not None
    assert read.groups.tolist() == [0, 1]


def test_a_question_is_read_once_although_every_filter_writes_it(tmp_path: Path) -> None:
    lines = [sample(i, [-1.0, -2.0], 0, filter=name) for name in ("none", "strict") for i in range(3)]
    assert len(read_predictions(write(tmp_path / "s.jsonl", *lines))) == 3


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            sample(0, [-1.0, -2.0], 1, acc=1.0),
            "acc is 1, but choice 0 has the highest log-likelihood and the target is 1",
        ),
        (sample(0, [-1.0, -2.0], 2), "the answer 2 is not one of the 2 choices"),
        (sample(0, [-1.0, -2.0], [0, 1]), "the answer .* is not one of the 2 choices"),
        (sample(0, [-1.0, -2.0], "choice"), "the answer 'choice' is not one of the 2 choices"),
        (sample(0, ["much", -2.0], 1), "must be real numbers"),
        (sample(0, [-1.0, -2.0], 1) | {"filtered_resps": ["42"]}, "holds generated text"),
        ({"logprobs": [-1.0, -2.0], "logits": [1, 2], "label": 0}, "are logits; keep one"),
        ({"logprobs": [-1.0, True], "label": 0}, "must be a list of numbers"),
        ({"question": "Why?"}, "found question; expected one of these keys"),
        ([1, 2], "must be a JSON object"),
    ],
)
def test_lines_that_cannot_be_understood_are_named(tmp_path: Path, record: object, message: str) -> None:
    good = {"logprobs": [-1.0, -2.0], "label": 0}
    with pytest.raises(BadFile, match=f"line 1:? .*{message}"):
        read_predictions(write(tmp_path / "s.jsonl", record, good))


def test_plain_lines(tmp_path: Path) -> None:
    lines = write(
        tmp_path / "a.jsonl",
        {"choices": ["yes", "no"], "logprobs": [-0.2, -1.7], "answer": "no", "group": "a", "model": "m"},
        {"choices": ["red", "blue", "both"], "logprobs": [-2, -0.3, -4], "answer": "A", "group": "b", "model": "m"},
    )
    read = read_predictions(lines)
    assert read.labels.tolist() == [1, 0]
    assert read.logits.tolist() == [[-0.2, -1.7, -np.inf], [-2, -0.3, -4]]


def test_a_label_may_be_a_list_for_several_labels_or_a_distribution(tmp_path: Path) -> None:
    several = {"logits": [1.0, -2.0, 0.5], "label": [1, 0, None]}
    found = read_predictions(write(tmp_path / "a.jsonl", several, several | {"label": [1, 1, 0]}))
    assert isinstance(found, MultiLabelPredictions)
    assert [len(rows) for rows in found.by_label().values()] == [2, 2, 1]
    soft = read_predictions(write(tmp_path / "a.jsonl", several | {"label": [0.75, 0.0, 0.25]}))
    assert soft.labels.tolist() == [0, 2]
    mixed = [several, several | {"label": 1}]
    for lines in (mixed, mixed[::-1]):
        with pytest.raises(
            BadFile, match=r"line 2: has labels, logits.* earlier lines have labels, logits.*; write all"
        ):
            read_predictions(write(tmp_path / "a.jsonl", *lines))
    with pytest.raises(BadFile, match="a list of labels for scores by name"):
        read_predictions(write(tmp_path / "a.jsonl", {"logits": {"a": 1.0, "b": 0.5}, "label": [1, 0]}))


def test_confidence_and_correct(tmp_path: Path) -> None:
    lines = write(tmp_path / "c.jsonl", {"confidence": 0.9, "correct": True}, {"confidence": 0.4, "correct": False})
    assert read_confidences(lines).correct.tolist() == [True, False]


def test_lines_must_agree_and_parse(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"line 1: has no groups, as other lines have: add it, or remove line 1 to"):
        read_predictions(
            write(tmp_path / "s.jsonl", {"logits": [1, 2], "label": 0}, {"logits": [1, 2], "label": 0, "group": 1})
        )
    (tmp_path / "s.jsonl").write_text('{"logits": [1, 2], "label": 0}\n{"logits": [1,\n')
    with pytest.raises(
        BadFile, match=r"line 2: cannot be read \(JSONDecodeError.*, or remove line 2 to read the rest$"
    ):
        read_predictions(tmp_path / "s.jsonl")
    (tmp_path / "s.jsonl").write_text("\n\n")
    with pytest.raises(BadFile, match="holds no line"):
        read_predictions(tmp_path / "s.jsonl")


def test_one_long_line_does_not_make_all_rows_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLAYERS_MAX_BYTES", str(2**26))
    short = [{"logits": [1.0, 2.0], "label": 0}] * 2_000
    log = write(tmp_path / "s.jsonl", {"logits": [0.0] * 50_000, "label": 0}, *short)
    with pytest.raises(BadFile, match="is too large"):
        read_predictions(log)
