"""Logs of language models -> contents: one JSON object per line, with a log-probability for each choice.

Two kinds of lines are read: the sample logs of lm-evaluation-harness (`samples_*.jsonl`), and plain ones with the keys
of an `.npz` in the singular. Questions may have different numbers of choices: missing ones are impossible.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile, shown
from glayers.files import DAMAGED, Room
from glayers.predictions.contents import (
    FIELD_WORDS,
    JSON_VALUE,
    WHOLE_FILE,
    Contents,
    group_ids,
    listed,
    without_repeats,
)

_LOG_PROBABILITIES = ("log_probabilities", "logprobs", "log_likelihoods")
_WORDS: Mapping[str, tuple[str, ...]] = {
    **FIELD_WORDS,
    "logits": (*FIELD_WORDS["logits"], *_LOG_PROBABILITIES),
    "labels": (*FIELD_WORDS["labels"], "answer"),
}
_KEYS = {word: field for field, words in _WORDS.items() for word in words if field != "class_names"}
_EXPECTED = "logprobs and label, or confidence and correct, or a sample log of lm-evaluation-harness"


def read_json_lines(path: Path, room: Room) -> dict[str, Contents]:
    """Read a log of one JSON object per line."""
    fields: dict[str, list[Any]] = {}
    kept: Any = None  # a harness writes every question once for each filter; the first filter is read
    for number, record in _records(path, room):
        try:
            row = _harness_row(record) if "filtered_resps" in record else _plain_row(record)
            kept = record.get("filter") if not fields else kept
            if "filtered_resps" in record and record.get("filter") != kept:
                continue
            if fields and fields.keys() != row.keys():
                raise BadFile(f"has {listed(sorted(row))}, but earlier lines have {listed(sorted(fields))}")
        except BadFile as error:
            raise BadFile(f"line {number}: {error}") from error
        room.take(JSON_VALUE * sum(len(value) if isinstance(value, list) else 1 for value in row.values()))
        for field, value in row.items():
            fields.setdefault(field, []).append(value)
    if not fields:
        raise BadFile(f"holds no line with {_EXPECTED}")
    arrays: dict[str, Any] = {field: _array(field, values, room) for field, values in fields.items()}
    return {WHOLE_FILE: Contents(**arrays, no_labels=f"no labels: expected one of the keys {listed(_WORDS['labels'])}")}


def _records(path: Path, room: Room) -> Iterator[tuple[int, dict[str, Any]]]:
    room.take(path.stat().st_size)
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            Room(max(1, room.left)).take(JSON_VALUE * sum(map(line.count, (b",", b"[", b"{"))))
            try:
                record = json.loads(line, object_pairs_hook=without_repeats)
            except ValueError as error:
                raise BadFile(f"line {number} is not JSON ({error}); {DAMAGED}") from error
            if not isinstance(record, dict):
                raise BadFile(f"line {number} must be a JSON object; got {shown(record)}")
            yield number, record


def _plain_row(record: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in record.items():
        if key in _KEYS:
            if _KEYS[key] in row:
                raise BadFile(f"{key!r} and another key are both {_KEYS[key]}; keep one of them")
            row[_KEYS[key]] = value
    scores = next((field for field in ("logits", "probabilities") if field in row), None)
    if scores is None:
        if not {"confidence", "correct"} <= row.keys():
            raise BadFile(f"found {listed(sorted(record))}; expected {_EXPECTED}")
        return {field: value for field, value in row.items() if field != "labels"}
    row = {field: row[field] for field in (scores, "labels", "weights", "groups", "counts") if field in row}
    row[scores] = _numbers(row[scores], scores)
    if "labels" in row:
        row["labels"] = _place(row["labels"], len(row[scores]), [record.get("choices")])
    return row


def _harness_row(record: dict[str, Any]) -> dict[str, Any]:
    """Return log-likelihoods of the choices, the correct one, and the document as group."""
    answers = record["filtered_resps"]
    pairs = isinstance(answers, list) and all(isinstance(each, list) and len(each) == 2 for each in answers)
    if not pairs or len(answers) < 2:
        raise BadFile(
            "holds generated text, not log-likelihoods of choices; write a file with confidence and correct instead"
        )
    scores = _numbers([_float(each[0]) for each in answers], "filtered_resps")
    doc = record.get("doc")
    named = doc.get("choices") if isinstance(doc, dict) else None
    named = named.get("text") if isinstance(named, dict) else named
    label = _place(record.get("target"), len(scores), [_continuations(record.get("arguments")), named])
    best, accuracy = np.flatnonzero(np.array(scores) == max(scores)), record.get("acc")
    if len(best) == 1 and isinstance(accuracy, int | float) and (best[0] == label) != (accuracy == 1):
        raise BadFile(
            f"acc is {accuracy:g}, but choice {best[0]} has the highest log-likelihood and the target is {label}: "
            f"this task scores in another way; write lines with logprobs and label instead"
        )
    group = next((record[key] for key in ("doc_hash", "doc_id") if record.get(key) is not None), None)
    return {"logits": scores, "labels": label} | ({} if group is None else {"groups": group})


def _continuations(arguments: object) -> object:
    """Return the text of each choice: the second argument of each request."""
    requests = list(arguments.values()) if isinstance(arguments, dict) else arguments
    if not isinstance(requests, list):
        return None
    texts = [list(each.values()) if isinstance(each, dict) else each for each in requests]
    return [each[1] if isinstance(each, list) and len(each) > 1 else None for each in texts]


def _place(target: object, n_choices: int, choices: list[object]) -> int:
    """Return the number of the correct choice, given by its number, its text or its letter."""
    if isinstance(target, int) and not isinstance(target, bool):
        place = target
    elif isinstance(target, str):
        word = target.strip()
        for texts in choices:
            same = [i for i, text in enumerate(texts) if _text(text) == word] if isinstance(texts, list) else []
            if len(same) == 1:
                return same[0]
        letter = word.strip("().:").upper()
        place = int(word) if word.isdecimal() else ord(letter) - ord("A") if len(letter) == 1 else -1
    else:
        place = -1
    if not 0 <= place < n_choices:
        raise BadFile(f"the answer {shown(target)} is not one of the {n_choices} choices, by number, letter or text")
    return place


def _text(value: object) -> str | None:
    return value.strip() if isinstance(value, str) else None


def _float(value: object) -> object:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _numbers(values: object, name: str) -> list[float]:
    if not isinstance(values, list) or not values:
        raise BadFile(f"{name} must be a list of numbers, one for each choice; got {shown(values)}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadFile(f"{name} must be a list of numbers, one for each choice; got {shown(value)}")
    return values


def _array(field: str, values: list[Any], room: Room) -> Array:
    if field == "groups":
        if any(isinstance(value, list | dict | None) for value in values):
            raise BadFile("groups must be numbers or text")
        return group_ids(values)
    if field not in ("logits", "probabilities"):
        if not all(isinstance(value, int | float) for value in values):
            raise BadFile(f"{field} must be one number on each line")
        return np.array(values)
    widest = max(map(len, values))
    room.take(8 * widest * len(values))
    rows = np.full((len(values), widest), -np.inf if field == "logits" else 0.0)
    for row, given in zip(rows, values, strict=True):
        row[: len(given)] = given
    return rows


LINE_READERS = {".jsonl": read_json_lines}
