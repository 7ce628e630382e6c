"""Rows and classes -> the families worth fitting, and each of them fitted with out-of-fold predictions.

A family is left out for a reason that the user can read: too many classes, no time, no torch. Times are
estimated from the size of the problem and not measured, so that the same rows give the same calibrator on any machine.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from glayers.calibrators.base import Fitted
from glayers.calibrators.shared_g_layers import CLASS_PARTS, Task, corrected, n_repeats
from glayers.errors import GlayersError

LEAST_ROWS = 100  # of g-layers: the other families have priors that hold them near temperature scaling
# With more classes a matrix has more entries than rows can determine, and takes longer than all other families.
_MOST_MATRIX_CLASSES = 30


# With this many rows the loss on new ones is within 0.0005 of the best possible (`experiments/enough_rows.py`).
_ENOUGH_ROWS, _MOST_LOGITS = 100_000, 25_000_000


def enough_rows(classes: int) -> int:
    """Return how many rows the families learn from; of more, a random sample. Temperature scaling uses all rows.

    >>> enough_rows(10), enough_rows(1_000)
    (100000, 25000)
    """
    return min(_ENOUGH_ROWS, _MOST_LOGITS // classes)


_MORE_COPIES = 4  # of the logits, in float64, beside the out-of-fold predictions of each family


class AutoFamily(NamedTuple):
    """A family: estimated seconds for rows and classes, a reason not to fit it (or ""), and the fit.

    `needs` names the family that must be fitted before. A family with `own_folds` chooses its number of folds itself.
    """

    name: str
    seconds: Callable[[int, int], float]
    objection: Callable[[int, int], str]
    fit: Callable[[Task, Mapping[str, Fitted]], Fitted]
    needs: str = "temperature"
    own_folds: bool = False


def affordable(rows: int, classes: int, budget: float, n_folds: int = 5) -> tuple[list[AutoFamily], dict[str, str]]:
    """Return the families to fit, and why the others are left out; temperature scaling is always fitted."""
    chosen, left_out = [FAMILIES[0]], {}
    spent = FAMILIES[0].seconds(rows, classes)
    for family in FAMILIES[1:]:
        needed = family.seconds(rows, classes) * (1 if family.own_folds else n_folds / 5)  # estimates are for 5 folds
        objection = family.objection(rows, classes)
        if not objection and spent + needed > budget:
            left = max(0.0, budget - spent)
            objection = f"It would take about {needed:.3g} s, and time_budget={budget:g} leaves {left:.3g} s"
        if objection:
            left_out[family.name] = objection
            continue
        chosen.append(family)
        spent += needed
    return chosen, left_out


def needs(chosen: list[AutoFamily], rows: int, classes: int) -> str:
    """Return what the families will need, estimated from the size of the problem; the progress bar shows it.

    >>> needs(list(FAMILIES[:2]), 20_000, 100)
    'fitting 2 families to 20,000 rows, about 1.2 s and 0.1 GB'
    """
    seconds = sum(family.seconds(rows, classes) for family in chosen)
    gigabytes = 8e-9 * rows * classes * (len(chosen) + _MORE_COPIES)
    return f"fitting {len(chosen)} families to {rows:,} rows, about {seconds:.2g} s and {gigabytes:.1g} GB"


def one_by_one(function: Callable[..., Any], items: Iterable[Any], *common: Any) -> Iterator[Any]:
    """Yield function(item, *common) of each item."""
    return (function(item, *common) for item in items)


def fit_families(
    task: Task,
    chosen: list[AutoFamily],
    left_out: dict[str, str],
    advance: Callable[[], None],
    run: Callable[..., Iterable[Fitted | str]] = one_by_one,
) -> dict[str, Fitted]:
    """Fit the families; one that cannot be fitted joins `left_out` with its reason.

    The only attribute of each record is "seconds", the time that its fit took. Families that do
    not depend on each other are fitted by run(fit_family, names, task, made): one by one, or each on another machine.
    """
    made: dict[str, Fitted] = {}
    for _, several in groupby(chosen, key=lambda family: family is not chosen[0] and family.needs):
        names = [family.name for family in several]
        for name, found in zip(names, run(fit_family, names, task, made), strict=True):
            if isinstance(found, str):
                left_out[name] = found
            else:
                made[name] = found
            advance()
    return made


def fit_family(name: str, task: Task, made: Mapping[str, Fitted]) -> Fitted | str:
    """Return the fit of one family, or why there is none."""
    family, began = next(family for family in FAMILIES if family.name == name), time.perf_counter()
    try:
        if made and family.needs not in made:
            raise GlayersError(f"It builds on {family.needs}, which is left out")
        fitted = family.fit(task, made)
        return replace(fitted, attributes={"seconds": time.perf_counter() - began})
    except GlayersError as problem:
        if not made:  # nothing can be fitted without temperature scaling
            raise
        return str(problem)


def _fit_shared(task: Task, done: Mapping[str, Fitted]) -> Fitted:
    """Put the shared correction behind temperature scaling."""
    fitted, correction = corrected(task, done["temperature"])
    if correction.notes:
        raise GlayersError(correction.notes[0])
    return fitted


def _fit_part(name: str, task: Task, done: Mapping[str, Fitted]) -> Fitted:  # noqa: ARG001 (it builds on none)
    """Fit a class-wise part with the shared correction behind it."""
    return corrected(task, _beyond_temperature(CLASS_PARTS[name](task)))[0]


def _beyond_temperature(part: Fitted) -> Fitted:
    """Return the part, or leave it out if it is only another temperature scaling."""
    if part.n_parameters == 1:
        raise GlayersError(f"It equals temperature scaling: {part.reason}")
    return part


def _fit_between(task: Task, done: Mapping[str, Fitted]) -> Fitted:
    """Fit g-layers to the output of the shared correction, and the shared correction again."""
    if "g-layers" not in done:
        raise GlayersError("Without the shared correction, g-layers learn nothing beyond temperature scaling")
    shared = done["shared"]
    # Out-of-fold inputs: with those of a correction that saw the labels, the held-out loss would be too optimistic.
    moved = task.given.with_logits(np.asarray(shared.out_of_fold))
    part = _beyond_temperature(CLASS_PARTS["g-layers"](task._replace(given=moved, seed=task.seed + 2)))
    return corrected(task, replace(part, map=shared.map + part.map))[0]


def _g_layers_seconds(rows: int, classes: int) -> float:
    """Two layers of 2k units: 4 k^2 weights, six operations each, and as much again for what is done per unit.

    Both count for each of the members and epochs that `GLayers` trains; with little work it seldom trains all of them.
    Torch takes a second to start.
    """
    work = 4.0 * rows * classes**2
    passes = 250 if work <= 2e7 else 10 * 12 if work <= 5e9 else 6 * 4
    return 1.0 + (work * 6 / 5e10 + 4e-8 * rows * classes) * passes * (1 + 0.6 * (n_repeats(rows, classes) - 1))


def _many_classes(rows: int, classes: int) -> str:  # noqa: ARG001 (objections may depend on either)
    if classes > _MOST_MATRIX_CLASSES:
        return f"Matrix scaling is too slow for {classes} classes; it is fitted for at most {_MOST_MATRIX_CLASSES}"
    return ""


def _no_layers(rows: int, classes: int) -> str:  # noqa: ARG001
    if find_spec("torch") is None:
        return 'Torch is not installed: pip install "glayers[fit]"'
    return "" if rows >= LEAST_ROWS else f"{rows} rows are too few; it needs at least {LEAST_ROWS}"


# From simple to rich; all others are compared with the first. Seconds depend on n rows and k classes; they are rounded
# from processor times at 5,000 x 10, 5,000 x 100, 50,000 x 10 and 25,000 x 1,000.
FAMILIES = (
    AutoFamily(
        "temperature", lambda n, k: 2e-7 * n * k, lambda *_: "", lambda task, _: CLASS_PARTS["temperature"](task)
    ),
    AutoFamily("shared", lambda n, k: 2.5e-5 * n + 1.5e-7 * n * k, lambda *_: "", _fit_shared),
    AutoFamily("vector", lambda n, k: 4e-5 * n + 1.1e-6 * n * k, lambda *_: "", partial(_fit_part, "vector")),
    AutoFamily("matrix", lambda n, k: 5e-5 * n + 3e-8 * n * k**2, _many_classes, partial(_fit_part, "matrix")),
    AutoFamily("g-layers", _g_layers_seconds, _no_layers, partial(_fit_part, "g-layers"), own_folds=True),
    AutoFamily("shared, g-layers", _g_layers_seconds, _no_layers, _fit_between, needs="shared", own_folds=True),
)
