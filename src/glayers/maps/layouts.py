"""A chain <-> the names of its steps and its arrays: how a map is stored in a file, with every shape checked.

Each step declares the layout of its arrays in its fields; STEPS lists the steps that a file may hold, and no others.
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
from glayers.maps.steps import Activate, Chain, EachColumn, Numbers, Step, arrays_of, branch_field, with_branches

# A user's activation is code, and a file holds none; a fitted map is one chain, with others only in branches.
_NOT_IN_FILES = (Activate, Chain, EachColumn)
STEPS: dict[str, type[Step]] = {
    name: kind
    for module in (corrections, mixtures, order, steps, tables)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Step) and not isabstract(kind) and kind not in _NOT_IN_FILES
}
_TRIED = np.array([0.0, 1.0, -1.0, 1e4, -1e4])  # factors of the rows that a loaded map must handle
_DEEPEST = 8  # branches within branches: fits make four, KeepOrder and Stack twice
_MOST_ENTRIES = 10_000_000  # members x logits: fits make thousands, and a small file must not ask for gigabytes


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
            raise GlayersError(
                f"{name} cannot be saved: a file holds numbers and never code, so your own activation stays in memory. "
                f"Fit with activation=None, which is softmax"
            )
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
    chain, _ = _build(structure, arrays, n_logits)
    extra = sorted(arrays.keys() - chain.parameters().keys())
    if extra:
        raise BadFile(f"no step has an array {extra[0]!r}")
    with np.errstate(all="ignore"):
        tried = with_reference_class(chain(np.linspace(-1.0, 1.0, n_logits) * _TRIED[:, None]))
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
            n_members_axes = len(shape) - len(layout.axes.split())
            size = math.prod(shape[n_members_axes:])
            total += {"all": size, "all but one": size - 1, "none": 0}[layout.learned]
    return total


def _build(
    structure: object, arrays: Mapping[str, Array], n_logits: int, prefix: str = "", depth: int = 0
) -> tuple[Chain, int]:
    """Return the chain whose arrays have this prefix, and the number of logits that it returns."""
    if type(structure) is not list:
        raise BadFile(f"a structure must be a list of steps; got {shown(structure)}")
    if depth > _DEEPEST:
        raise BadFile(f"branches are nested more than {_DEEPEST} deep")
    built: list[Step] = []
    width = n_logits
    members: set[tuple[int, ...]] = set()
    for place, entry in enumerate(structure):
        kind, branches = _step_and_branches(entry)
        sizes = {"in": width}
        if branches:
            sizes["branches"] = len(branches)
        chains = []
        for name, inner in branches.items():
            path = f"{prefix}{place}.{name}."
            chain, returned = _build(inner, arrays, width, path, depth + 1)
            if returned != width and not (kind.completes and max(2, returned) == max(2, width)):
                raise BadFile(f"the chain {path!r} must turn {width} logits into as many; it returns {returned}")
            chains.append(chain)
        own: dict[str, Array] = {}
        for name, layout in arrays_of(kind).items():
            full = f"{prefix}{place}.{name}"
            if full not in arrays:
                raise BadFile(f"the array {full!r} is missing")
            own[name] = arrays[full]
            members.add(_members_axes(full, own[name], layout, sizes, most_axes=1 if depth else 0))
        built.append(kind(**own, **with_branches(kind, chains)))
        width = sizes[kind.n_out]
        if kind.completes:
            width = max(2, width)
    if len(members) > 1 or any(math.prod(axes) * n_logits > _MOST_ENTRIES for axes in members):
        raise BadFile(f"the arrays under {prefix!r} have members axes that do not fit: {sorted(members)[:3]}")
    return Chain(tuple(built)), width


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


def _members_axes(name: str, array: Array, layout: Numbers, sizes: dict[str, int], most_axes: int) -> tuple[int, ...]:
    """Return the axes before an array's own, after checking its shape and range.

    Words that `sizes` lacks are sizes of the step's own: their first use defines them.
    """
    axes = layout.axes.split()
    before = array.ndim - len(axes)
    fits = 0 <= before <= most_axes
    for axis, size in zip(axes, array.shape[max(0, before) :], strict=False):
        more = {"-1": -1, "+1": 1}.get(axis[-2:], 0)
        word = axis[:-2] if more else axis
        expected = int(word) if word.isdigit() else sizes.setdefault(word, size - more)
        fits = fits and size >= 1 and size == expected + more
    if not fits:
        known = ", ".join(f"{word} = {size}" for word, size in sizes.items())
        raise BadFile(f"{name} has shape {array.shape}, not ({', '.join(axes)}) with {known}")
    if not (np.isfinite(array) & (array >= layout.low) & (array <= layout.high)).all():
        raise BadFile(f"{name} must hold finite numbers from {layout.low:g} to {layout.high:g}")
    if layout.learned == "all but one" and not np.allclose(array.sum(axis=-1), 1.0, rtol=0.0, atol=1e-6):
        raise BadFile(f"{name} must hold shares that sum to 1")
    return array.shape[:before]
