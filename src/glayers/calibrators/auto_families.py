"""Rows and classes at hand -> the families worth fitting, and each of them fitted with predictions out of fold.

A family is left out for a reason that can be told: too few rows, too many classes, no time, no torch. Time is estimated
from the size of the problem, not measured, so that the same rows give the same calibrator on any machine.
"""

import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from glayers.activations import log_softmax
from glayers.arrays import Floats
from glayers.calibrators.class_parts import CLASS_PARTS, ClassPart, Options, n_repeats
from glayers.calibrators.shared_recalibration import Recalibration, recalibrate
from glayers.errors import GlayersError
from glayers.fitting.comparison import gain_in_words
from glayers.fitting.folds import assign_folds
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Chain
from glayers.maps.keep_order import KeepOrder, in_order_of
from glayers.maps.layouts import n_learned
from glayers.predictions import Predictions

# Thirty shared weights, or layers, learn nothing from fewer.
_LEAST_ROWS = 100
# A matrix of more classes has more entries than rows can tell apart, and its fit takes longer than all others together.
_MOST_MATRIX_CLASSES = 30


class Task(NamedTuple):
    """What is to be calibrated, and how."""

    given: Predictions
    loss: str
    keep_order: bool
    n_folds: int
    seed: int


class Candidate(NamedTuple):
    """A fitted family: its map from logits to log-probabilities, those of every row out of fold, and its facts."""

    name: str
    chain: Chain
    out_of_fold: Floats
    n_parameters: int
    converged: bool
    note: str
    seconds: float


class Family(NamedTuple):
    """A name, how long a fit takes (in seconds, for rows and classes), why not to fit it (or ""), and the fit.

    `needs` names the family that must be fitted before; `own_folds` says that it chooses how many folds it has.
    """

    name: str
    seconds: Callable[[int, int], float]
    objection: Callable[[int, int], str]
    fit: Callable[[Task, Mapping[str, Candidate]], Candidate]
    needs: str = "temperature"
    own_folds: bool = False


def fit_temperature(task: Task, done: Mapping[str, Candidate]) -> Candidate:  # noqa: ARG001 (the first has none)
    """Fit one factor: the baseline."""
    began = time.perf_counter()
    part = CLASS_PARTS["temperature"](task.given, Options(n_folds=task.n_folds, seed=task.seed))
    return _candidate("temperature", part, began)


def fit_shared(task: Task, done: Mapping[str, Candidate]) -> Candidate:
    """Put the shared correction behind temperature scaling."""
    began = time.perf_counter()
    plain = done["temperature"]
    part = ClassPart(plain.chain, plain.out_of_fold, plain.n_parameters, plain.converged, plain.note)
    found = _correction(task, part)
    if not found.chain.steps:
        raise GlayersError(f"on held-out rows it would gain {gain_in_words(found.gain, found.error)}")
    return _joined("shared", task, part, found, began)


def fit_class_part(name: str) -> Callable[[Task, Mapping[str, Candidate]], Candidate]:
    """Return the fit of a class-wise part with the shared correction behind it."""

    def fit(task: Task, done: Mapping[str, Candidate]) -> Candidate:  # noqa: ARG001 (it stands alone)
        began = time.perf_counter()
        return _corrected(name, task, _part(name, task), began)

    return fit


def fit_between(task: Task, done: Mapping[str, Candidate]) -> Candidate:
    """Fit g-layers on what the shared correction makes of the logits, and the shared correction again."""
    began = time.perf_counter()
    shared = done["shared"]
    # Each row as a correction leaves it that had not seen its label: or the layers' held-out loss would be too good.
    moved = task.given.with_logits(shared.out_of_fold)
    part = _part("g-layers", task._replace(given=moved, seed=task.seed + 2))
    return _corrected("shared, g-layers", task, part._replace(chain=shared.chain + part.chain), began)


def _part(name: str, task: Task) -> ClassPart:
    return CLASS_PARTS[name](task.given, Options(task.loss, task.n_folds, task.seed))


def _corrected(name: str, task: Task, part: ClassPart, began: float) -> Candidate:
    return _joined(name, task, part, _correction(task, part), began)


def _correction(task: Task, part: ClassPart) -> Recalibration:
    # Other folds than the class-wise part had, so that no fold's rows share one model's errors.
    folds = assign_folds(len(task.given), task.given.groups, task.n_folds, task.seed + 1)
    return recalibrate(part.out_of_fold, task.given, folds)


def _joined(name: str, task: Task, part: ClassPart, found: Recalibration, began: float) -> Candidate:
    corrected = part._replace(chain=part.chain + found.chain, out_of_fold=found.out_of_fold)
    return _candidate(name, in_order(task.given, corrected) if task.keep_order else corrected, began)


def in_order(given: Predictions, part: ClassPart) -> ClassPart:
    """Return a part that keeps the order of the logits, bent back where it did not."""
    kept = KeepOrder.of(part.chain, fit_inverse_temperature(given.logits, given.labels, given.weights).factor)
    held = log_softmax(in_order_of(given.logits.astype(np.float64), part.out_of_fold, kept.slope))
    return part._replace(chain=Chain((kept,)), out_of_fold=held)


def _candidate(name: str, part: ClassPart, began: float) -> Candidate:
    note = "" if part.converged else part.reason
    seconds = time.perf_counter() - began
    return Candidate(name, part.chain, part.out_of_fold, n_learned(part.chain), part.converged, note, seconds)


def _g_layers_seconds(rows: int, classes: int) -> float:
    """Two layers of 2k units: 4 k^2 weights, six operations each, for as many members and epochs as `GLayers` tries."""
    work = 4.0 * rows * classes**2
    passes = 20 * 100 if work <= 2e7 else 10 * 12 if work <= 5e9 else 6 * 4
    return 1.0 + work * passes * 6 / 5e10 * (1 + 0.6 * (n_repeats(rows, classes) - 1))


def _shared_seconds(rows: int, classes: int) -> float:
    return 5e-4 * rows + 1e-6 * rows * classes


def _none(rows: int, classes: int) -> str:  # noqa: ARG001 (an objection may look at either)
    return ""


def _few_rows(rows: int, classes: int) -> str:  # noqa: ARG001 (an objection may look at either)
    return "" if rows >= _LEAST_ROWS else f"{rows} rows are too few, {_LEAST_ROWS} the least"


def _many_classes(rows: int, classes: int) -> str:
    if classes > _MOST_MATRIX_CLASSES:
        return f"a matrix for {classes} classes learns too slowly, {_MOST_MATRIX_CLASSES} are the most"
    return _few_rows(rows, classes)


def _no_torch(rows: int, classes: int) -> str:
    if find_spec("torch") is None:
        return 'torch is not installed: pip install "glayers[fit]"'
    return _few_rows(rows, classes)


# From simple to rich; the first is what all others are measured against.
FAMILIES = (
    Family("temperature", lambda rows, classes: 2e-7 * rows * classes, _none, fit_temperature),
    Family("shared", _shared_seconds, _few_rows, fit_shared),
    Family("matrix", lambda rows, classes: 1e-5 * rows * classes**2, _many_classes, fit_class_part("matrix")),
    Family("g-layers", _g_layers_seconds, _no_torch, fit_class_part("g-layers"), own_folds=True),
    Family("shared, g-layers", _g_layers_seconds, _no_torch, fit_between, needs="shared", own_folds=True),
)
# Where g-layers cannot be had: one scale and one shift a class.
INSTEAD = Family("vector", lambda rows, classes: 2.5e-6 * rows * classes, _few_rows, fit_class_part("vector"))
