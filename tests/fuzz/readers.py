"""Files of every format, damaged: each reads or is a `BadFile`, and what was read can be written again."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from glayers import GlayersError
from glayers.predictions import Confidences, MultiLabelPredictions, Predictions
from glayers.predictions.contents import Contents
from glayers.predictions.formats import FORMATS, to_bytes
from glayers.predictions.source import read_confidences, read_predictions
from tests.files import write_anew
from tests.fuzz.mutations import ODD_ARRAYS, Random, changed_text, changed_tree, damaged, pick
from tests.predictions.examples import read_any, read_rows

LOGITS = np.random.default_rng(5).normal(size=(6, 4))
LABELS = np.array([3, 0, 2, 1, 1, 3])
ARRAYS: dict[str, Any] = {
    "logits": LOGITS,
    "labels": LABELS,
    "weights": np.linspace(0.5, 2, 6),
    "groups": np.array(["é", "b", "b", "c", "a", "a"]),
    "class_names": np.array(["a", "b", "c", "d"]),
}
PARTS: dict[str, Any] = {
    "z_val": LOGITS,
    "y_val": LABELS,
    "test_probs": np.full((3, 2), 0.5),
    "test_y": np.arange(3) % 2,
}
PAIR: dict[str, Any] = {"confidence": np.linspace(0, 1, 6), "correct": LABELS > 1, "groups": LABELS}
COLUMNS: dict[str, Any] = {
    **{f"logit_{name}": LOGITS[:, number] for number, name in enumerate("abcd")},
    "label": np.array(list("abcd"))[LABELS],
    "group": ["é", "b", "b", "c", "a", "a"],
    "weight": np.linspace(0.5, 2, 6),
}


def bytes_of(save: Any, *arguments: Any, **named: Any) -> bytes:
    stream = io.BytesIO()
    save(stream, *arguments, **named)
    return stream.getvalue()


def text(columns: dict[str, Any], delimiter: str = ",") -> str:
    rows = zip(*(list(map(str, cells)) for cells in columns.values()), strict=True)
    return "\n".join(map(delimiter.join, [list(columns), *rows])) + "\n"


def listed(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: array.tolist() for name, array in arrays.items()}


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    return bytes_of(lambda stream: pyarrow.parquet.write_table(pyarrow.table(columns), stream, **options))


def lines(labels: Any) -> bytes:
    rows = zip(LOGITS.tolist(), LABELS.tolist(), labels, strict=True)
    records = [{"id": name, "logits": row, "label": label} for row, label, name in rows]
    return "".join(json.dumps(record) + "\n" for record in records).encode()


GOOD_FILES: dict[str, bytes] = {
    "stored.npz": bytes_of(np.savez, **ARRAYS),
    "packed.npz": bytes_of(np.savez_compressed, **ARRAYS),
    "parts.npz": bytes_of(np.savez, **PARTS),
    "pair.npz": bytes_of(np.savez, **PAIR),
    "one.npy": bytes_of(np.save, LOGITS),
    "a.csv": text(COLUMNS).encode(),
    "pair.csv": text({"confidence": PAIR["confidence"], "correct": PAIR["correct"]}).encode(),
    "a.tsv": text(COLUMNS, "\t").encode(),
    "a.parquet": parquet(COLUMNS),
    "plain.parquet": parquet(COLUMNS, use_dictionary=False, compression="zstd"),
    "a.json": json.dumps(listed(ARRAYS)).encode(),
    "a.jsonl": lines(COLUMNS["label"]),
    "parts.json": json.dumps(listed(PARTS)).encode(),
}


def restructured(name: str, random: Random) -> bytes | None:
    """Return a file whose container is sound and whose contents are odd."""
    ending = Path(name).suffix
    if ending == ".npz":
        arrays = dict(pick([ARRAYS, PARTS, PAIR], random))
        for _ in range(random.integers(1, 3)):
            key = "groups" if "groups" in arrays and random.random() < 0.3 else pick(list(arrays), random)
            if random.random() < 0.7:
                arrays[key] = pick(ODD_ARRAYS, random)
            else:
                arrays[pick(["logits", "groups_test", "y", "p", "correct", "é", "class_names"], random)] = arrays.pop(
                    key
                )
        return bytes_of(pick([np.savez, np.savez_compressed], random), **arrays)
    if ending == ".npy":
        return bytes_of(np.save, pick(ODD_ARRAYS, random))
    if ending == ".json":
        return json.dumps(changed_tree(listed(pick([ARRAYS, PARTS, PAIR], random)), random)).encode()
    if ending in (".csv", ".tsv"):
        delimiter = "\t" if ending == ".tsv" else ","
        return changed_text(text(COLUMNS, delimiter), delimiter, random).encode()
    if ending == ".parquet":
        columns = dict(COLUMNS)
        odd = [list(array) for array in ODD_ARRAYS if array.shape == (6,)] + [[None] * 6, [[1]] * 6, [b"\xff"] * 6]
        columns[pick([*columns, "logit_e", "label_", "y"], random)] = pick(odd, random)
        try:
            return parquet(columns)
        except (pyarrow.ArrowException, UnicodeEncodeError, OverflowError, TypeError):
            return None  # what Parquet itself cannot hold
    return None


def check_reader(random: Random, folder: Path) -> str:
    """Read one damaged file; return what happened, or raise what should not come out."""
    name = pick(list(GOOD_FILES), random)
    data = restructured(name, random) if random.random() < 0.5 else None
    if data is None:
        data = damaged(GOOD_FILES[name], GOOD_FILES[pick(list(GOOD_FILES), random)], random)
    path, labels = folder / name, folder / "labels.npy"
    write_anew(path, data)
    np.save(labels, LABELS)
    second = labels if path.suffix == ".npy" else None
    try:
        if random.random() < 0.2:
            read_confidences(path)
        if random.random() < 0.2:
            read_predictions(path, part="val" if path.suffix in (".npz", ".json") else None, labels=second)
        read = pick([read_any, read_rows], random)
        record = read(path, second)
    except GlayersError as error:
        check_message(error, str(path))
        return "refused"
    check_writing(record, folder, random)
    return "read"


def check_message(error: GlayersError, begins: str) -> None:
    """A message is one short line that names the file."""
    message = str(error)
    assert message.startswith(begins), message
    assert "\n" not in message
    assert len(message) < 2_000


def check_writing(record: Any, folder: Path, random: Random) -> None:
    """What was read can be written in any format, or our own error says why not; written rows read back the same."""
    ending = pick([ending for ending in FORMATS if ending != ".npy"], random)  # which holds scores alone
    rows: Any
    rows, labelled = record if isinstance(record, tuple) else (record, True)
    if isinstance(rows, MultiLabelPredictions):  # one row per label; `apply` writes files of them from their contents
        return
    fields = {key: value for key, value in vars(rows).items() if labelled or key != "labels"}
    try:
        data = to_bytes(Contents(**fields), ending)
    except GlayersError:
        return
    path = folder / f"written{ending}"
    write_anew(path, data)
    again: Any = read_rows(path)[0] if isinstance(rows, Predictions) else read_confidences(path)
    assert np.array_equal(again.weights, rows.weights) if rows.weights is not None else again.weights is None
    if isinstance(rows, Confidences):
        assert np.array_equal(again.confidence, rows.confidence)
    else:
        assert np.array_equal(again.logits, rows.logits)
    if rows.groups is not None:
        assert list(map(str, again.groups)) == list(map(str, rows.groups))
