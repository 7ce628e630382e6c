"""Seven rows of four classes, and the one line with which a file is refused."""

from pathlib import Path

import numpy as np
import pytest

from glayers.errors import BadFile
from glayers.predictions.contents import Reading, Rows
from glayers.predictions.source import PathLike, Source, _read, read_predictions
from tests.files import write_anew

LOGITS = np.random.default_rng(11).normal(size=(7, 4))
LABELS = np.array([3, 0, 2, 2, 1, 3, 0])
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
WEIGHTS = np.array([1.0, 2.0, 0.5, 0.0, 3.0, 1.5, 1.0])
GROUPS = np.array(["b", "a", "b", "c", "a", "a", "b"])
NAMES = ("owl", "cat", "dog", "ant")


def bad(path: Path, part: str | None = None, labels: Path | None = None) -> str:
    """Return the one line with which a file is refused."""
    with pytest.raises(BadFile) as caught:
        read_predictions(path, part, labels)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def refusal(path: Path, data: bytes) -> str:
    """Write a file, and return the one line with which it is refused."""
    write_anew(path, data)
    with pytest.raises(BadFile) as caught:
        read_predictions(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def read_any(path: PathLike, labels: PathLike | None = None) -> Rows:
    """Read a file as `Confidences` if it holds those, otherwise as `Predictions`."""
    return _read(path, Reading(labels))


def read_rows(path: PathLike, labels: PathLike | None = None) -> tuple[Rows, bool]:
    """Read a file, and whether it has labels: new rows to calibrate may have none."""
    source = Source.of([Path(path)], Reading(labels), needs_labels=False)
    assert source.contents is not None
    return source.checked(), source.contents.labelled
