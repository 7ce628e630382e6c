"""Calibrated rows -> bytes in the format that a file's ending asks for; what is written here, `read_rows` reads back.

Numbers keep every digit: the file gives the same probabilities again, bit by bit.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.predictions.contents import WHOLE_FILE, listed


class Written(NamedTuple):
    """What one part of a file will hold: `scores` (n, k) are "logits" or "probabilities", by the name of `kind`."""

    kind: str
    scores: Array
    labels: Array | None = None
    weights: Array | None = None
    groups: Array | None = None
    class_names: tuple[str, ...] | None = None

    def arrays(self) -> dict[str, Array]:
        """Return what is there, by the keys of an `.npz`."""
        rows = {self.kind: self.scores, "labels": self.labels, "weights": self.weights, "groups": self.groups}
        names = None if self.class_names is None else np.array(self.class_names, dtype=str)
        return {key: value for key, value in (rows | {"class_names": names}).items() if value is not None}


def to_bytes(parts: Mapping[str, Written], ending: str) -> bytes:
    """Return the file of this ending that holds these parts; a table has room for one.

    >>> to_bytes({"all": Written("probabilities", np.array([[0.75, 0.25]]), np.array([1]))}, ".csv").splitlines()
    [b'probability_0,probability_1,label', b'0.75,0.25,1']
    """
    if ending not in WRITERS:
        raise BadFile(f"cannot write {ending!r}; the ending must be one of {listed(WRITERS)}")
    return WRITERS[ending](parts)


def npz_bytes(parts: Mapping[str, Written]) -> bytes:
    """Return a NumPy archive."""
    stream = io.BytesIO()
    arrays: dict[str, Any] = _by_key(parts)
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def json_bytes(parts: Mapping[str, Written]) -> bytes:
    """Return an object with the keys of an `.npz`, arrays as lists."""
    return (json.dumps({key: array.tolist() for key, array in _by_key(parts).items()}) + "\n").encode()


def csv_bytes(parts: Mapping[str, Written]) -> bytes:
    """Return comma-separated columns under a header."""
    return _text_bytes(parts, ",")


def tsv_bytes(parts: Mapping[str, Written]) -> bytes:
    """Return tab-separated columns under a header."""
    return _text_bytes(parts, "\t")


def parquet_bytes(parts: Mapping[str, Written]) -> bytes:
    """Return the columns of a `.csv` as Parquet."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BadFile('writing .parquet needs pyarrow: pip install "glayers[parquet]"') from error
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table(_columns(_only_part(parts))), stream)
    return stream.getvalue()


WRITERS: Mapping[str, Callable[[Mapping[str, Written]], bytes]] = {
    ".npz": npz_bytes,
    ".csv": csv_bytes,
    ".tsv": tsv_bytes,
    ".parquet": parquet_bytes,
    ".json": json_bytes,
}


def _by_key(parts: Mapping[str, Written]) -> dict[str, Array]:
    """Keys as `assign_keys` reads them: plain for a whole file, else with the part behind, such as logits_test."""
    return {
        key if part == WHOLE_FILE else f"{key}_{part}": array
        for part, written in parts.items()
        for key, array in written.arrays().items()
    }


def _text_bytes(parts: Mapping[str, Written], delimiter: str) -> bytes:
    columns = _columns(_only_part(parts))
    odd = next((group for group in map(str, columns.get("group", [])) if not group.isprintable()), None)
    if odd is not None:
        raise BadFile(f"the group {odd[:40]!r} holds what a line of text cannot; write .npz or .json")
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return stream.getvalue().encode()


def _only_part(parts: Mapping[str, Written]) -> Written:
    if len(parts) != 1:
        raise BadFile(f"a table holds one part, not {listed(parts)}; choose one of them, or write .npz or .json")
    return next(iter(parts.values()))


def _columns(written: Written) -> dict[str, list[Any]]:
    """One column a class, as the reader of tables wants them; labels are class names where the columns are."""
    n_classes = written.scores.shape[1]
    names = _names_for_columns(written.class_names) or tuple(range(n_classes))
    prefix = {"logits": "logit", "probabilities": "probability"}[written.kind]
    columns: dict[str, list[Any]] = {
        f"{prefix}_{name}": written.scores[:, number].tolist() for number, name in enumerate(names)
    }
    if written.labels is not None:
        columns["label"] = [names[number] for number in written.labels.tolist()]
    if written.weights is not None:
        columns["weight"] = written.weights.tolist()
    if written.groups is not None:
        columns["group"] = written.groups.tolist()
    return columns


def _names_for_columns(names: tuple[str, ...] | None) -> tuple[str | int, ...] | None:
    """Class names that a column can carry: a table's reader takes numbers for class numbers, and strips spaces."""
    return names if names is not None and all(map(_fits_a_column, names)) else None


def _fits_a_column(name: str) -> bool:
    return name != "" and name.isprintable() and name == name.strip() and not _is_number(name)


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
