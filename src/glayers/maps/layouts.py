"""A chain <-> the names of its steps and its arrays: how a map is stored in a file.

STEPS lists the steps that a file may hold, and no others. A map from a file is tried on a few rows before it is used.
"""

import math
from collections.abc import Mapping
from inspect import isabstract
from typing import Any

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array
from glayers.errors import BadFile, GlayersError, shown
from glayers.maps import corrections, mixtures, order, steps, tables
from glayers.maps.steps import Chain, EachColumn, Numbers, Step, arrays_of, branch_field, with_branches

_NOT_IN_FILES = (Chain, EachColumn)  # a fitted map is one chain, with others only in branches
_TRIED = np.array([0.0, 1.0, -1.0, 1e4, -1e4])  # factors of the rows that a loaded map must handle
_MOST_ENTRIES = 10_000_000  # members x logits: fits make thousands, and a small file must not ask for gigabytes


def _steps_in_files() -> dict[str, type[Step]]:
    found = {}
    for module in (corrections, mixtures, order, steps, tables):
        for name, kind in vars(module).items():
            is_step = isinstance(kind, type) and issubclass(kind, Step)
            if is_step and not isabstract(kind) and kind not in _NOT_IN_FILES:
                found[name] = kind
    return found


STEPS: dict[str, type[Step]] = _steps_in_files()


def structure_of(chain: Chain) -> list[Any]:
    """Return the names of the steps in order; a step with branches is {name: structure or list of structures}.

    >>> from glayers.maps import Reference, Scale
    >>> structure_of(Chain((Reference(), Scale(np.ones(())))))
    ['Reference', 'Scale']
    """
    structure: list[Any] = []
    for step in chain.steps:
        name = type(step).__name__
        if STEPS.get(name) is not type(step):
            raise GlayersError(f"{name} cannot be saved: a file holds steps of glayers, and never code")
        branches = [structure_of(branch) for branch in step.chains().values()]
        field = branch_field(type(step))
        if field == "branches":
            structure.append({name: branches})
        elif field == "branch":
            structure.append({name: branches[0]})
        else:
            structure.append(name)
    return structure


def chain_of(structure: object, arrays: Mapping[str, Array], n_logits: int) -> Chain:
    """Return the chain of this structure with these parameters, or raise an error that says what does not fit.

    >>> chain_of(["Scale"], {"0.factor": np.array(0.5)}, n_logits=3)(np.array([[2.0, 0.0, 4.0]])).tolist()
    [[1.0, 0.0, 2.0]]
    """
    chain = _build(structure, arrays, n_logits, "")
    extra = sorted(arrays.keys() - chain.parameters().keys())
    if extra:
        raise BadFile(f"no step has an array {extra[0]!r}")
    rows = np.linspace(-1.0, 1.0, n_logits) * _TRIED[:, None]
    try:
        with np.errstate(all="ignore"):
            tried = with_reference_class(chain(rows))
    except (IndexError, ValueError) as error:
        raise BadFile(f"the arrays of the map do not fit together: {error}") from error
    if tried.shape != (len(_TRIED), max(2, n_logits)):
        raise BadFile(f"the map turns {n_logits} logits into an array of shape {tried.shape[1:]}")
    if not np.isfinite(tried).all():
        raise BadFile("the map turns finite logits into numbers that are not finite")
    return chain


def n_learned(chain: Chain) -> int:
    """Return how many numbers a fit learns, for one member, without constants, scales and reference points.

    >>> from glayers.maps import Scale
    >>> from glayers.maps import Shared
    >>> shared = Shared(np.zeros((7, 5)), np.zeros(4), np.ones(4))
    >>> n_learned(Chain((Scale(np.ones(())), shared))), Chain((Scale(np.ones(())), shared)).n_parameters
    (36, 44)
    """
    total = 0
    for step in chain.steps:
        total += sum(n_learned(branch) for branch in step.chains().values())
        for name, layout in arrays_of(type(step)).items():
            shape = np.shape(getattr(step, name))
            size = math.prod(shape[len(shape) - layout.n_axes :])
            total += {"all": size, "all but one": size - 1, "none": 0}[layout.learned]
    return total


def _build(structure: object, arrays: Mapping[str, Array], n_logits: int, prefix: str) -> Chain:
    """Return the chain whose arrays have this prefix. Only in a branch may arrays have a members axis."""
    if type(structure) is not list:
        raise BadFile(f"a structure must be a list of steps; got {shown(structure)}")
    built = []
    for place, entry in enumerate(structure):
        kind, branches = _step_and_branches(entry)
        chains = []
        for name, inner in branches.items():
            chains.append(_build(inner, arrays, n_logits, f"{prefix}{place}.{name}."))
        own = {}
        for name, layout in arrays_of(kind).items():
            full = f"{prefix}{place}.{name}"
            if full not in arrays:
                raise BadFile(f"the array {full!r} is missing")
            own[name] = arrays[full]
            _check_array(full, own[name], layout, n_logits, may_have_members=prefix != "")
        built.append(kind(**own, **with_branches(kind, chains)))
    return Chain(tuple(built))


def _step_and_branches(entry: object) -> tuple[type[Step], dict[str, object]]:
    """Return the class of a step and the structures of its branches by name, if it has any."""
    name, held = entry, None
    if type(entry) is dict and len(entry) == 1:
        name, held = next(iter(entry.items()))
    if type(name) is not str or name not in STEPS:
        raise BadFile(f"unknown step {shown(name)}; known are {', '.join(sorted(STEPS))}")
    field = branch_field(STEPS[name])
    if bool(field) != isinstance(held, list):
        raise BadFile(f"{name} must come {'with' if field else 'without'} a list of its branches' steps")
    if field == "branch":
        return STEPS[name], {"branch": held}
    return STEPS[name], {f"branches.{number}": each for number, each in enumerate(held or [])}


def _check_array(name: str, array: Array, layout: Numbers, n_logits: int, may_have_members: bool) -> None:
    """Refuse an array with other axes than its layout, too many members, or numbers outside their range."""
    members = array.shape[: max(0, array.ndim - layout.n_axes)]
    fits = len(members) + layout.n_axes == array.ndim and len(members) <= int(may_have_members)
    if not fits or array.size == 0 or math.prod(members) * n_logits > _MOST_ENTRIES:
        raise BadFile(f"{name} has shape {array.shape}, not ({layout.axes}), or too many members")
    if not (np.isfinite(array) & (array >= layout.low) & (array <= layout.high)).all():
        raise BadFile(f"{name} must hold finite numbers from {layout.low:g} to {layout.high:g}")
    if layout.learned == "all but one" and not np.allclose(array.sum(axis=-1), 1.0, rtol=0.0, atol=1e-6):
        raise BadFile(f"{name} must hold shares that sum to 1")
