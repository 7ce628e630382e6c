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
from glayers.files import DAMAGED, MemoryBudget
from glayers.predictions.array_files import JSON_VALUE, json_size, without_repeats
from glayers.predictions.contents import (
    ARCHIVE_KEYS,
    FIELD_WORDS,
    SCORES,
    WHOLE_FILE,
    Contents,
    Parts,
    Portion,
    Reading,
    cells_of,
    group_ids,
    listed,
)

_LOG_PROBABILITIES = ("log_probabilities", "logprobs", "log_likelihoods")
_WORDS: Mapping[str, tuple[str, ...]] = {
    **FIELD_WORDS,
    "logits": (*FIELD_WORDS["logits"], *_LOG_PROBABILITIES),
    "labels": (*FIELD_WORDS["labels"], "answer"),
}
_KEYS = {word: field for field, words in _WORDS.items() for word in words if field != "class_names"}
_EXPECTED = "logprobs and label, or confidence and correct, or a sample log of lm-evaluation-harness"


def read_json_lines(path: Path, reading: Reading, portion: Portion) -> Parts:
    """Read a log of one JSON object per line."""
    budget = portion.budget
    fields: dict[str, list[Any]] = {}
    unread: list[dict[str, Any]] = []
    first_filter = None
    for number, record in _records(path, budget):
        is_harness = "filtered_resps" in record
        try:
            row = _harness_row(record) if is_harness else _plain_row(record)
            if not fields:
                first_filter = record.get("filter")
            if is_harness and record.get("filter") != first_filter:
                continue  # a harness writes every question once for each filter; the first filter is read
            if fields and fields.keys() != row.keys():
                raise BadFile(f"has {listed(sorted(row))}, but earlier lines have {listed(sorted(fields))}")
        except BadFile as error:
            raise BadFile(f"line {number}: {error}") from error
        budget.spend(JSON_VALUE * sum(len(value) if isinstance(value, list) else 1 for value in row.values()))
        for field, value in row.items():
            fields.setdefault(field, []).append(value)
        unread.append(record if reading.others else {})
    if not fields:
        raise BadFile(f"holds no line with {_EXPECTED}")
    arrays: dict[str, Any] = {field: _array(field, values, budget) for field, values in fields.items()}
    no_labels = f"no labels: expected one of the keys {listed(_WORDS['labels'])}"
    return {WHOLE_FILE: iter([Contents(**arrays, others=_others(unread), no_labels=no_labels)])}


def _others(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of all other keys, None where a line has none."""
    keys = dict.fromkeys(key for record in records for key in record)
    unknown = [key for key in keys if key not in _KEYS and key not in ARCHIVE_KEYS and key != "filtered_resps"]
    return {key: [record.get(key) for record in records] for key in unknown}


def json_lines_bytes(parts: Mapping[str, Contents]) -> bytes:
    """Return one JSON object per row, with the scores of all classes as a list."""
    if len(parts) != 1:
        raise BadFile(f"a .jsonl file holds one part, not {listed(parts)}; choose one of them, or write .npz or .json")
    (contents,) = parts.values()
    columns = dict(contents.others)
    for field, values in vars(contents).items():
        if isinstance(values, np.ndarray):
            columns[field if values.ndim == 2 else field.removesuffix("s")] = values
    names = list(columns)
    rows = zip(*(cells_of(column) for column in columns.values()), strict=True)
    lines = [json.dumps(dict(zip(names, row, strict=True)), default=str) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _records(path: Path, budget: MemoryBudget) -> Iterator[tuple[int, dict[str, Any]]]:
    budget.spend(path.stat().st_size)
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            MemoryBudget(max(1, budget.left)).spend(json_size(line))
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
        field = _KEYS.get(key)
        if field in row:
            raise BadFile(f"{key!r} and another key are both {field}; keep one of them")
        if field is not None and field != "predicted":
            row[field] = value
    scores = next((field for field in SCORES if field in row), None)
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
    are_pairs = isinstance(answers, list) and all(isinstance(answer, list) and len(answer) == 2 for answer in answers)
    if not are_pairs or len(answers) < 2:
        raise BadFile(
            "holds generated text, not log-likelihoods of choices; write a file with confidence and correct instead"
        )
    scores = _numbers([_float(answer[0]) for answer in answers], "filtered_resps")
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
    if not isinstance(document, dict):
        return None
    choices = document.get("choices")
    return choices.get("text") if isinstance(choices, dict) else choices


def _continuations(arguments: object) -> object:
    """Return the text of each choice: the second argument of each request."""
    requests = list(arguments.values()) if isinstance(arguments, dict) else arguments
    if not isinstance(requests, list):
        return None
    texts = []
    for request in requests:
        arguments = list(request.values()) if isinstance(request, dict) else request
        texts.append(arguments[1] if isinstance(arguments, list) and len(arguments) > 1 else None)
    return texts


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


def _array(field: str, values: list[Any], budget: MemoryBudget) -> Array:
    if field == "groups":
        if any(isinstance(value, list | dict | None) for value in values):
            raise BadFile("groups must be numbers or text")
        return group_ids(values)
    if field not in SCORES:
        if not all(isinstance(value, int | float) for value in values):
            raise BadFile(f"{field} must be one number on each line")
        return np.array(values)
    widest = max(map(len, values))
    budget.spend(8 * widest * len(values))
    scores = np.full((len(values), widest), -np.inf if field == "logits" else 0.0)
    for row, choices in zip(scores, values, strict=True):
        row[: len(choices)] = choices
    return scores
