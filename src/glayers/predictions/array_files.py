"""`.npz`, `.npy`, `.json` and `.jsonl` files <-> contents.

Nothing is unpickled, and every size is checked before the data are read. A `.npy` file is mapped, so that some of its
rows can be read at a time.

Two kinds of `.jsonl` lines are read, with a log-probability for each choice of a language model: the sample logs of
lm-evaluation-harness (`samples_*.jsonl`), and plain ones with the keys of an `.npz` in the singular. Questions may have
different numbers of choices: missing ones are impossible.
"""

import gc
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from glayers.arrays import Array
from glayers.errors import BadFile, listed, shown
from glayers.files import DAMAGED, check_size, errors_as_bad_file, file_path, open_regular
from glayers.predictions.contents import (
    KEYS,
    SCORES,
    Contents,
    Reading,
    cells_of,
    contents_of,
    keys_of_fields,
    keys_of_part,
    numbers_of,
)

TEXT_FACTOR = 8  # bytes of memory for a byte of text: a cell of ten characters takes 67 as a Python object
_LINE_KEYS = {key: name for key, name in KEYS.items() if name != "class_names"} | {"answer": "labels"}
_HARNESS = "filtered_resps"  # the key that only logs of the harness have


def read_npz(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read a NumPy archive."""
    with zipfile.ZipFile(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        keys = keys_of_part(sorted(members), reading.part)
        check_size(sum(members[key].file_size for key in keys.values()))
        arrays = {name: _member(archive, members[key]) for name, key in keys.items()}
    yield contents_of(arrays)


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """Return one array of an archive."""
    with archive.open(member) as stream:
        try:
            return _cleaned(npy_format.read_array(stream, allow_pickle=False))
        except ValueError as error:
            raise BadFile(f"{member.filename}: {error}; save plain numbers or text with np.savez") from error


def read_npy(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read the one array of a `.npy` file as logits or probabilities, and the labels of another file."""
    arrays: dict[str, Array] = {reading.inputs or "logits": _array(path, reading)}
    if reading.labels is not None:
        labels = file_path(reading.labels)
        with errors_as_bad_file(labels):
            if labels.suffix.lower() != ".npy":
                raise BadFile("labels= must be a .npy file; save the labels with np.save")
            arrays["labels"] = _array(labels, reading)
    yield contents_of(arrays)


def _array(path: Path, reading: Reading) -> Array:
    """Return the array of a `.npy` file; if it is read in chunks, from the disk only where it is used."""
    open_regular(path).close()
    array: np.memmap[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.offset + array.nbytes != path.stat().st_size:
        raise BadFile(f"has more bytes than its array of shape {array.shape} and {array.dtype}; {DAMAGED}")
    if reading.entries is not None:
        return array
    check_size(array.nbytes)
    return _cleaned(np.array(array))


def _cleaned(array: Array) -> Array:
    """Return an array in this machine's byte order, with values that exist: a file may hold any bytes."""
    kind = array.dtype.kind
    if kind not in "biufUS" or array.dtype.itemsize == 0:
        raise BadFile(f"holds an array of {str(array.dtype)[:80]}; save plain numbers, or text for names and groups")
    if kind == "b":
        return np.not_equal(array.view(np.uint8), 0)  # NumPy trusts that a boolean's byte is 0 or 1
    if kind == "S":
        check_size(4 * array.nbytes)
        return np.strings.decode(array, "utf-8", "backslashreplace")
    if kind == "U":
        array.tolist()  # an error if a character does not exist
    if array.dtype == np.longdouble:
        return array.astype(np.float64)  # no other format holds more digits
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def read_json(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read a JSON object with the keys of an `.npz` and lists as arrays."""
    stored = _parsed(_text_of(path))
    if not isinstance(stored, dict):
        raise BadFile(f"holds a {type(stored).__name__}; expected an object of lists, such as logits and labels")
    keys = keys_of_part(sorted(stored), reading.part)
    yield contents_of({name: stored[key] for name, key in keys.items()})


def _parsed(text: bytes) -> Any:
    """Return what JSON says. Looking for garbage among millions of new lists would take most of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return json.loads(text)
    finally:
        if collects:
            gc.enable()


def _text_of(path: Path) -> bytes:
    """Return the bytes of a text file, unless their numbers would take too much memory."""
    check_size(TEXT_FACTOR * path.stat().st_size)
    return path.read_bytes()


def read_json_lines(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read a log of one JSON object per line."""
    records: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(_text_of(path).splitlines(), 1):
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
    unknown = [key for key in keys if key not in {*_LINE_KEYS, "class_names", _HARNESS}]
    return {key: [record.get(key) for record in records] for key in unknown}


def _padded(rows: list[Array], padding: float) -> Array:
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
    row = {name: record[key] for name, key in keys_of_fields(record, _LINE_KEYS).items()}
    for field in row.keys() & set(SCORES):
        row[field] = _scores(field, row[field])
        if "labels" in row:
            row["labels"] = _place(row["labels"], len(row[field]), record.get("choices"))
    return row


def _harness_row(record: dict[str, Any]) -> dict[str, Any]:
    """Return log-likelihoods of the choices, the correct one, and the document as group."""
    answers = record[_HARNESS]
    are_pairs = isinstance(answers, list) and all(isinstance(answer, list) and len(answer) == 2 for answer in answers)
    if not are_pairs or len(answers) < 2:
        raise BadFile("holds generated text, not log-likelihoods of choices; write confidence and correct instead")
    scores = _scores(_HARNESS, [score for score, _ in answers])
    requested = [[*_values(request), None, None][1] for request in _values(record.get("arguments"))]
    label = _place(record.get("target"), len(scores), requested)
    best = np.flatnonzero(scores == scores.max())
    accuracy = record.get("acc")
    if len(best) == 1 and isinstance(accuracy, int | float) and (best[0] == label) != (accuracy == 1):
        found = f"acc is {accuracy:g}, but choice {best[0]} has the highest log-likelihood and the target is {label}"
        raise BadFile(f"{found}: this task scores in another way; write lines with logprobs and label instead")
    row = {"logits": scores, "labels": label}
    for key in ("doc_id", "doc_hash"):
        if record.get(key) is not None:
            row["groups"] = record[key]
    return row


def _scores(name: str, values: object) -> Array:
    """Return a number for each choice; a harness writes them as text."""
    is_list = isinstance(values, list) and bool(values) and bool not in map(type, values)
    scores = numbers_of(name, values) if is_list else np.empty(0)
    if scores.ndim != 1 or not scores.size:
        raise BadFile(f"{name} must be a list of numbers, one for each choice; got {shown(values)}")
    return scores


def _values(arguments: object) -> list[Any]:
    """Return a list of arguments, which newer logs write as an object."""
    if isinstance(arguments, dict):
        return list(arguments.values())
    return arguments if isinstance(arguments, list) else []


def _place(target: object, n_choices: int, texts: object) -> int:
    """Return the number of the correct choice, given by its number, its text or its letter."""
    place = target
    if isinstance(target, str):
        place = _place_of_text(target.strip(), _values(texts))
    if type(place) is not int or not 0 <= place < n_choices:
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


def npz_bytes(contents: Contents) -> bytes:
    """Return a NumPy archive."""
    stream = io.BytesIO()
    arrays: dict[str, Any] = {key: _as_array(values) for key, values in _columns(contents).items()}
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def npy_bytes(contents: Contents) -> bytes:
    """Return the scores as one array: there is no place for labels."""
    stream = io.BytesIO()
    np.save(stream, contents.scores)
    return stream.getvalue()


def json_bytes(contents: Contents) -> bytes:
    """Return a JSON object with the keys of an `.npz`, arrays as lists."""
    lists = {key: cells_of(values) for key, values in _columns(contents).items()}
    return (json.dumps(lists, default=str) + "\n").encode()


def json_lines_bytes(contents: Contents) -> bytes:
    """Return one JSON object per row, with the scores of all classes as a list."""
    columns = dict(contents.others)
    for field, values in contents.arrays().items():
        columns[field if values.ndim == 2 else field.removesuffix("s")] = values
    rows = zip(*(cells_of(column) for column in columns.values()), strict=True)
    lines = [json.dumps(dict(zip(columns, row, strict=True)), default=str) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _columns(contents: Contents) -> dict[str, Any]:
    """Return values by the keys that the reader knows."""
    columns: dict[str, Any] = {**contents.arrays(), **contents.others}
    if contents.class_names is not None:
        columns["class_names"] = list(contents.class_names)
    return columns


def _as_array(values: Any) -> Array:
    """Return a column as numbers or text."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    cells = cells_of(values)
    if all(type(cell) is float or (type(cell) is int and abs(cell) < 2**63) for cell in cells):
        return np.array(cells)
    return np.array(list(map(str, cells)))
