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
from glayers.errors import BadFile, shown
from glayers.files import MemoryBudget
from glayers.predictions.array_files import JSON_VALUE, parsed_json
from glayers.predictions.contents import (
    ARCHIVE_KEYS,
    FIELD_WORDS,
    SCORES,
    WHOLE_FILE,
    Chunks,
    Parts,
    Portion,
    Reading,
    cells_of,
    contents_of,
    keys_by_part,
    listed,
    only_part,
)

_KEYS = {word: (WHOLE_FILE, field) for field, words in FIELD_WORDS.items() for word in words if field != "class_names"}
_KEYS["answer"] = (WHOLE_FILE, "labels")


def read_json_lines(path: Path, reading: Reading, portion: Portion) -> Chunks:
    """Read a log of one JSON object per line."""
    budget = portion.budget
    fields: dict[str, list[Any]] = {}
    kept: list[dict[str, Any]] = []
    first_filter = None
    for number, record in _records(path, budget):
        is_harness = "filtered_resps" in record
        try:
            row = _harness_row(record) if is_harness else _plain_row(record)
            if not fields:
                fields = {field: [] for field in row}
                first_filter = record.get("filter")
            if is_harness and record.get("filter") != first_filter:
                continue  # a harness writes every question once for each filter; the first filter is read
            if fields.keys() != row.keys():
                raise BadFile(f"has {listed(sorted(row))}, but earlier lines have {listed(sorted(fields))}")
        except BadFile as error:
            raise BadFile(f"line {number}: {error}") from error
        budget.spend(JSON_VALUE * sum(len(value) if isinstance(value, list) else 1 for value in row.values()))
        for field, value in row.items():
            fields[field].append(value)
        kept.append(record if reading.others else {})
    if not fields:
        raise BadFile("holds no line with logprobs and label, or with confidence and correct")
    arrays: dict[str, Any] = dict(fields)
    for field in fields.keys() & set(SCORES):
        arrays[field] = _padded(fields[field], -np.inf if field == "logits" else 0.0, budget)
    yield {WHOLE_FILE: contents_of(arrays, _others(kept))}


def _records(path: Path, budget: MemoryBudget) -> Iterator[tuple[int, dict[str, Any]]]:
    budget.spend(path.stat().st_size)
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                record = parsed_json(line, MemoryBudget(max(1, budget.left)))
            except BadFile as error:
                raise BadFile(f"line {number}: {error}") from error
            if not isinstance(record, dict):
                raise BadFile(f"line {number} must be a JSON object; got {shown(record)}")
            yield number, record


def _others(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of all other keys, None where a line has none."""
    keys = dict.fromkeys(key for record in records for key in record)
    unknown = [key for key in keys if key not in _KEYS and key not in ARCHIVE_KEYS and key != "filtered_resps"]
    return {key: [record.get(key) for record in records] for key in unknown}


def _padded(rows: list[list[float]], value: float, budget: MemoryBudget) -> Array:
    """Return rows of different lengths as an array, the longest one's width."""
    widest = max(map(len, rows))
    budget.spend(8 * widest * len(rows))
    scores = np.full((len(rows), widest), value)
    for row, choices in zip(scores, rows, strict=True):
        row[: len(choices)] = choices
    return scores


def _plain_row(record: dict[str, Any]) -> dict[str, Any]:
    key_of = keys_by_part(record, _KEYS)[WHOLE_FILE]
    row = {field: record[key] for field, key in key_of.items()}
    for field in row.keys() & set(SCORES):
        row[field] = _numbers(row[field], field)
        if "labels" in row:
            row["labels"] = _place(row["labels"], len(row[field]), [record.get("choices")])
    return row


def _harness_row(record: dict[str, Any]) -> dict[str, Any]:
    """Return log-likelihoods of the choices, the correct one, and the document as group."""
    answers = record["filtered_resps"]
    are_pairs = isinstance(answers, list) and all(isinstance(answer, list) and len(answer) == 2 for answer in answers)
    if not are_pairs or len(answers) < 2:
        raise BadFile(
            "holds generated text, not log-likelihoods of choices; write a file with confidence and correct instead"
        )
    scores = _numbers([answer[0] for answer in answers], "filtered_resps")
    texts = [_continuations(record.get("arguments")), _choices(record.get("doc"))]
    label = _place(record.get("target"), len(scores), texts)
    best = np.flatnonzero(np.array(scores) == max(scores))
    accuracy = record.get("acc")
    if len(best) == 1 and isinstance(accuracy, int | float) and (best[0] == label) != (accuracy == 1):
        raise BadFile(
            f"acc is {accuracy:g}, but choice {best[0]} has the highest log-likelihood and the target is {label}: "
            f"this task scores in another way; write lines with logprobs and label instead"
        )
    row = {"logits": scores, "labels": label}
    for key in ("doc_id", "doc_hash"):
        if record.get(key) is not None:
            row["groups"] = record[key]
    return row


def _choices(document: object) -> object:
    """Return the choices of a question, which some tasks write as {"text": [...]}."""
    choices = document.get("choices") if isinstance(document, dict) else None
    return choices.get("text") if isinstance(choices, dict) else choices


def _continuations(arguments: object) -> list[object]:
    """Return the text of each choice: the second argument of each request."""
    return [[*_values(request), None, None][1] for request in _values(arguments)]


def _values(arguments: object) -> list[Any]:
    """Return a list of arguments, which newer logs write as an object."""
    if isinstance(arguments, dict):
        return list(arguments.values())
    return arguments if isinstance(arguments, list) else []


def _place(target: object, n_choices: int, choices: list[object]) -> int:
    """Return the number of the correct choice, given by its number, its text or its letter."""
    place = -1
    if isinstance(target, int) and not isinstance(target, bool):
        place = target
    elif isinstance(target, str):
        place = _place_of_text(target.strip(), choices)
    if not 0 <= place < n_choices:
        raise BadFile(f"the answer {shown(target)} is not one of the {n_choices} choices, by number, letter or text")
    return place


def _place_of_text(word: str, choices: list[object]) -> int:
    """Return the number of the choice with this text, number or letter; -1 if there is none."""
    for texts in choices:
        if isinstance(texts, list):
            same = [number for number, text in enumerate(texts) if isinstance(text, str) and text.strip() == word]
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


def json_lines_bytes(parts: Parts) -> bytes:
    """Return one JSON object per row, with the scores of all classes as a list."""
    contents = only_part(parts)
    columns = dict(contents.others)
    for field, values in contents.arrays().items():
        columns[field if values.ndim == 2 else field.removesuffix("s")] = values
    rows = zip(*(cells_of(column) for column in columns.values()), strict=True)
    lines = [json.dumps(dict(zip(columns, row, strict=True)), default=str) for row in rows]
    return ("\n".join(lines) + "\n").encode()
