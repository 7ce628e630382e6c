"""Pickles of the published collection are read, and run nothing."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.paper.convert_pickles import read_pickle

from glayers import BadFile

LOGITS = np.random.default_rng(3).normal(size=(7, 4))
LABELS = np.array([3, 0, 2, 2, 1, 3, 0])
# What Python 2 wrote: an array of one row of two float32 numbers, and its label, for both parts.
_ARRAY = (
    "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I{shape}\nt"
    "cnumpy\ndtype\n(S'{kind}'\nI0\nI1\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\nS'{data}'\ntb"
)
_PAIR = _ARRAY.format(shape="1\nI2", kind="f4", data=r"\x00\x00\x00@\x00\x00\x80?") + _ARRAY.format(
    shape="1", kind="i4", data=r"\x01\x00\x00\x00"
)
PYTHON_2 = f"(({_PAIR}t({_PAIR}tt.".encode()


class Harmful:
    """Makes a folder when it is unpickled in the usual way."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("protocol", range(6))
def test_both_parts_are_read(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "a.p"
    path.write_bytes(pickle.dumps(((LOGITS, LABELS[:, None]), (np.asfortranarray(-LOGITS), LABELS)), protocol))
    parts = read_pickle(path)
    assert (parts["calibration"].logits == LOGITS).all()
    assert (parts["test"].logits == -LOGITS).all()
    assert parts["calibration"].labels.tolist() == parts["test"].labels.tolist() == LABELS.tolist()


def test_a_pickle_of_python_2_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.p"
    path.write_bytes(PYTHON_2)
    assert read_pickle(path)["test"].logits.tolist() == [[2.0, 1.0]]
    assert read_pickle(path)["test"].labels.tolist() == [1]


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_executed(tmp_path: Path, protocol: int) -> None:
    marker, path = tmp_path / "marker", tmp_path / "a.p"
    path.write_bytes(pickle.dumps(((LOGITS, Harmful(marker)), (LOGITS, LABELS)), protocol))
    with pytest.raises(BadFile, match="mkdir, which arrays of numbers never need"):
        read_pickle(path)
    assert not marker.exists()
    pickle.loads(path.read_bytes())  # the usual way makes it
    assert marker.exists()


@pytest.mark.parametrize("value", [[1, 2], ((LOGITS, LABELS),), ((LOGITS, LABELS), (LOGITS, LABELS[:3]))])
def test_other_contents_are_refused_in_one_line(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "a.p"
    path.write_bytes(pickle.dumps(value))
    with pytest.raises(BadFile, match=r"a\.p: is no pickle of"):
        read_pickle(path)
