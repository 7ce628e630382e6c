"""Logs of language models <-> contents: one JSON object per line, with a log-probability for each choice.

Two kinds of lines are read: the sample logs of lm-evaluation-harness (`samples_*.jsonl`), and plain ones with the keys
of an `.npz` in the singular. Questions may have different numbers of choices: missing ones are impossible.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile, listed, shown
from glayers.files import check_size, errors_as_bad_file
from glayers.predictions.array_files import read_text
from glayers.predictions.contents import KEYS, SCORES, Contents, Reading, cells_of, contents_of, keys_of_fields

_KEYS = {key: name for key, name in KEYS.items() if name != "class_names"} | {"answer": "labels"}
_HARNESS = "filtered_resps"  # the key that only logs of the harness have


def read_json_lines(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read a log of one JSON object per line."""
    records: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        with errors_as_bad_file(f"line {number}"):
            record = json.loads(line)
            row = _row(record)
            if rows and rows[0].keys() != row.keys():
                raise BadFile(f"has {listed(sorted(row))}, but earlier lines have {listed(sorted(rows[0]))}")
        if records and _HARNESS in record and record.get("filter") != records[0].get("filter"):
            continue  # a harness writes every question once for each filter; the first filter is read
        records.append(record)
        rows.append(row)
    if not rows:
        raise BadFile("holds no line with logprobs and label, or with confidence and correct")
    fields: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    for name, padding in (("logits", -np.inf), ("probabilities", 0.0)):
        if name in fields:
            fields[name] = _padded(fields[name], padding)
    others = _others(records) if reading.others else {}
    yield contents_of(fields, others)


def _others(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of all other keys, None where a line has none."""
    keys = dict.fromkeys(key for record in records for key in record)
    unknown = [key for key in keys if key not in {*_KEYS, "class_names", _HARNESS}]
    return {key: [record.get(key) for record in records] for key in unknown}


def _padded(rows: list[list[float]], padding: float) -> Array:
    """Return rows of different lengths as an array, the longest one's width."""
    widest = max(map(len, rows))
    check_size(8 * widest * len(rows))
    scores = np.full((len(rows), widest), padding)
    for row, choices in zip(scores, rows, strict=True):
        row[: len(choices)] = choices
    return scores


def _row(record: Any) -> dict[str, Any]:
    """Return the fields of one line."""
    if not isinstance(record, dict):
        raise BadFile(f"must be a JSON object; got {shown(record)}")
    if _HARNESS in record:
        return _harness_row(record)
    row = {name: record[key] for name, key in keys_of_fields(record, _KEYS).items()}
    for field in row.keys() & set(SCORES):
        row[field] = _numbers(row[field], field)
        if "labels" in row:
            row["labels"] = _place(row["labels"], len(row[field]), record.get("choices"))
    return row


def _harness_row(record: dict[str, Any]) -> dict[str, Any]:
    """Return log-likelihoods of the choices, the correct one, and the document as group."""
    answers = record[_HARNESS]
    are_pairs = isinstance(answers, list) and all(isinstance(answer, list) and len(answer) == 2 for answer in answers)
    if not are_pairs or len(answers) < 2:
        raise BadFile("holds generated text, not log-likelihoods of choices; write confidence and correct instead")
    scores = _numbers([answer[0] for answer in answers], _HARNESS)
    requested = [[*_values(request), None, None][1] for request in _values(record.get("arguments"))]
    label = _place(record.get("target"), len(scores), requested)
    best = np.flatnonzero(np.array(scores) == max(scores))
    accuracy = record.get("acc")
    if len(best) == 1 and isinstance(accuracy, int | float) and (best[0] == label) != (accuracy == 1):
        found = f"acc is {accuracy:g}, but choice {best[0]} has the highest log-likelihood and the target is {label}"
        raise BadFile(f"{found}: this task scores in another way; write lines with logprobs and label instead")
    row = {"logits": scores, "labels": label}
    for key in ("doc_id", "doc_hash"):
        if record.get(key) is not None:
            row["groups"] = record[key]
    return row


def _values(arguments: object) -> list[Any]:
    """Return a list of arguments, which newer logs write as an object."""
    if isinstance(arguments, dict):
        return list(arguments.values())
    return arguments if isinstance(arguments, list) else []


def _place(target: object, n_choices: int, texts: object) -> int:
    """Return the number of the correct choice, given by its number, its text or its letter."""
    place = -1
    if isinstance(target, int) and not isinstance(target, bool):
        place = target
    elif isinstance(target, str):
        place = _place_of_text(target.strip(), _values(texts))
    if not 0 <= place < n_choices:
        raise BadFile(f"the answer {shown(target)} is not one of the {n_choices} choices, by number, letter or text")
    return place


def _place_of_text(word: str, texts: list[Any]) -> int:
    """Return the number of the choice with this text, number or letter; -1 if there is none."""
    same = [number for number, text in enumerate(texts) if str(text).strip() == word]
    if len(same) == 1:
        return same[0]
    if word.isdecimal():
        return int(word)
    letter = word.strip("().:").upper()
    return ord(letter) - ord("A") if len(letter) == 1 else -1


def _numbers(values: object, name: str) -> list[float]:
    """Return a list of numbers; a harness writes them as text."""
    try:
        if not isinstance(values, list) or not values or any(isinstance(value, bool) for value in values):
            raise ValueError
        return list(map(float, values))
    except (TypeError, ValueError) as error:
        raise BadFile(f"{name} must be a list of numbers, one for each choice; got {shown(values)}") from error


def json_lines_bytes(contents: Contents) -> bytes:
    """Return one JSON object per row, with the scores of all classes as a list."""
    columns = dict(contents.others)
    for field, values in contents.arrays().items():
        columns[field if values.ndim == 2 else field.removesuffix("s")] = values
    rows = zip(*(cells_of(column) for column in columns.values()), strict=True)
    lines = [json.dumps(dict(zip(columns, row, strict=True)), default=str) for row in rows]
    return ("\n".join(lines) + "\n").encode()
