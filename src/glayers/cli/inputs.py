"""The file a verb was given, or the pipe -> predictions, or the part of them that is wanted."""

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
import typer

from glayers.errors import BadFile, GlayersWarning
from glayers.predictions import Predictions, read_parts, read_predictions
from glayers.predictions.contents import listed
from glayers.predictions.readers import Source

_Part = TypeVar("_Part")
PIPE = Path("-")


def source(path: Path) -> Source:
    """Return what readers read: the path, or standard input for -."""
    if path != PIPE:
        return path
    if sys.stdin is None or sys.stdin.closed:
        raise BadFile("standard input is closed; give a file, or pipe predictions in")
    return sys.stdin.buffer


def name_of(path: Path) -> str:
    """Return what people call a file."""
    return "standard input" if path == PIPE else path.name


def read_calibration(path: Path, labels: Path | None, part: str | None) -> Predictions:
    """Read the rows to fit on: the only part, the one asked for, or else that of calibration."""
    if part is not None:
        return read_predictions(source(path), part, labels)
    return preferred(read_parts(source(path), labels), "calibration")


def read_calibration_and_test(calibration: Path, test: Path | None) -> tuple[Predictions, Predictions]:
    """Read the rows to fit on and those to judge by, from two files or from one that holds both parts."""
    if test is None:
        parts = read_parts(source(calibration))
        if set(parts) != {"calibration", "test"}:
            raise BadFile(
                f"{name_of(calibration)}: has no parts calibration and test, but {listed(parts)}; "
                f"give the test rows as a second file"
            )
        return parts["calibration"], parts["test"]
    if calibration == test == PIPE:
        raise typer.BadParameter("only one of two files can come from a pipe; pipe one file with both parts instead")
    found = preferred(read_parts(source(calibration)), "calibration"), preferred(read_parts(source(test)), "test")
    if all(np.array_equal(*pair) for pair in ([each.logits for each in found], [each.labels for each in found])):
        warnings.warn(
            "calibration and test rows are the same: what was fitted to them cannot be judged by them",
            GlayersWarning,
            stacklevel=2,
        )
    return found


def preferred(parts: Mapping[str, _Part], name: str) -> _Part:
    """Return the only part, or the one of this name where there are two."""
    return parts[name] if len(parts) > 1 else next(iter(parts.values()))
