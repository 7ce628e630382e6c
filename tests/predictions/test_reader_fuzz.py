"""Damaged files of every format either read or are a `BadFile`; nothing else comes out and nothing is run."""

import gzip
import io
import os
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glayers.errors import BadFile, GlayersWarning
from glayers.predictions.formats import read_parts

LOGITS = np.random.default_rng(5).normal(size=(6, 4))
LABELS = np.array([3, 0, 2, 1, 1, 3])
MUTANTS_OF_EACH = 84  # of 12 kinds of file: 1,008 in all


def saved(save: Callable[..., Any], *arguments: Any, **entries: Any) -> bytes:
    stream = io.BytesIO()
    save(stream, *arguments, **entries)
    return stream.getvalue()


def text() -> bytes:
    rows = [",".join(map(str, [*row, label, "g"])) for row, label in zip(LOGITS, LABELS, strict=True)]
    return "\n".join(["logit_a,logit_b,logit_c,logit_d,label,group", *rows, ""]).encode()


def columns() -> dict[str, Any]:
    return {**{f"logit_{number}": LOGITS[:, number] for number in range(4)}, "label": LABELS}


def pickled(protocol: int) -> bytes:
    return pickle.dumps(((LOGITS, LABELS.reshape(-1, 1)), (LOGITS[:5] + 1, LABELS[:5])), protocol=protocol)


ENTRIES: dict[str, Any] = {
    "logits": LOGITS,
    "labels": LABELS,
    "groups": np.array(["é", "b", "b", "c", "a", "a"]),
    "class_names": np.array(["a", "b", "c", "d"]),
}
GOOD_FILES = {
    "stored.npz": saved(np.savez, **ENTRIES),
    "packed.npz": saved(np.savez_compressed, **ENTRIES),
    "one.npy": saved(np.save, LOGITS),
    "a.csv": text(),
    "a.csv.gz": gzip.compress(text(), mtime=0),
    "a.parquet": saved(lambda stream: pyarrow.parquet.write_table(pyarrow.table(columns()), stream)),
    **{f"{protocol}.p": pickled(protocol) for protocol in range(6)},
}


class TouchesMarker:
    """A pickle of this makes the marker file when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch '{self.marker}'",)


def mutant(data: bytes, other: bytes, random: np.random.Generator) -> bytes:
    """Damage a file one to three times: flip, drop, repeat or overwrite bytes, or splice in another file's."""
    for _ in range(random.integers(1, 4)):
        start, stop = np.sort(random.integers(0, len(data) + 1, size=2))
        short = min(int(stop), int(start) + int(random.integers(1, 9)))
        match random.integers(6):
            case 0:
                flipped = bytearray(data)
                for place in random.integers(0, len(data), size=random.integers(1, 5)) if data else ():
                    flipped[place] ^= 1 << int(random.integers(8))
                data = bytes(flipped)
            case 1:
                data = data[:stop]
            case 2:
                data = data[:start] + data[short:]
            case 3:
                data = data[:start] + random.bytes(int(random.integers(1, 9))) + data[start:]
            case 4:
                data = data[:start] + b"\xff" * (short - int(start)) + data[short:]
            case _:
                begin, end = np.sort(random.integers(0, len(other) + 1, size=2))
                data = data[:start] + other[begin:end] + data[stop:]
    return data


@pytest.mark.parametrize("name", GOOD_FILES)
def test_a_thousand_damaged_files_read_or_are_bad_files(tmp_path: Path, name: str) -> None:
    random = np.random.default_rng(zlib.crc32(name.encode()))
    marker, path, labels = tmp_path / "marker", tmp_path / name, tmp_path / "labels.npy"
    np.save(labels, LABELS)
    hostile = pickle.dumps(((LOGITS, TouchesMarker(marker)), (LOGITS, LABELS)), protocol=int(random.integers(6)))
    others = [hostile, *GOOD_FILES.values()]
    refusals = []
    for _ in range(MUTANTS_OF_EACH):
        other = others[int(random.integers(len(others)))] if random.integers(2) else hostile
        path.write_bytes(mutant(GOOD_FILES[name], other, random))
        try:
            read_parts(path, labels if path.suffix == ".npy" else None)
        except BadFile as error:
            refusals.append(str(error))
        except GlayersWarning:
            continue  # it reads, but there is something to know
    assert not marker.exists()
    assert len(refusals) > MUTANTS_OF_EACH / 4  # damage that is never noticed would be no test
    assert all(str(path) in line and "\n" not in line for line in refusals)


@pytest.mark.parametrize("name", GOOD_FILES)
def test_the_files_are_good_before_they_are_damaged(tmp_path: Path, name: str) -> None:
    path, labels = tmp_path / name, tmp_path / "labels.npy"
    np.save(labels, LABELS)
    path.write_bytes(GOOD_FILES[name])
    first = next(iter(read_parts(path, labels if path.suffix == ".npy" else None).values()))
    np.testing.assert_array_equal(first.logits, LOGITS)
    np.testing.assert_array_equal(first.labels, LABELS)


BEGINNINGS = [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00", b"PAR1", b"\x1f\x8b\x08\x00", b"\x80\x04"]


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(GOOD_FILES)),
    data=st.builds(bytes.__add__, st.sampled_from(BEGINNINGS), st.binary(max_size=200)),
)
def test_random_bytes_are_a_bad_file_under_any_name(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("bytes") / name
    path.write_bytes(data)
    with pytest.raises(BadFile):
        read_parts(path, path if path.suffix == ".npy" else None)
