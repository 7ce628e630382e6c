"""A chain <-> the names of its steps and its arrays: how a map is stored in a file, with every shape checked.

Each step declares the layout of its arrays in its fields; STEPS lists the steps that a file may hold, and no others.
"""

import math
from collections.abc import Mapping
from inspect import isabstract
from itertools import repeat
from typing import Any

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array
from glayers.errors import BadFile, GlayersError, shown
from glayers.maps import corrections, mixtures, order, steps, tables
from glayers.maps.steps import Activate, Chain, Numbers, Step, arrays_of, branch_field, with_branches

# A user's activation is code, and a file holds none; a fitted map is one chain, with others only in branches.
_NOT_IN_FILES = (Activate, Chain)
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
    return [_entry(step) for step in chain.steps]


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


def _entry(step: Step) -> Any:
    name = type(step).__name__
    if STEPS.get(name) is not type(step):
        raise GlayersError(
            f"{name} cannot be saved: a file holds numbers and never code, so your own activation stays in memory. "
            f"Fit with activation=None, which is softmax"
        )
    structures = [structure_of(chain) for chain in step.chains().values()]
    inner = branch_field(type(step))
    return {name: structures if inner == "branches" else structures[0]} if inner else name


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
        total += sum(map(n_learned, step.chains().values()))
        for name, layout in arrays_of(type(step)).items():
            array = getattr(step, name)
            size = math.prod(np.shape(array)[np.ndim(array) - len(layout.axes.split()) :])  # leading axes count members
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
    width, members = n_logits, set[tuple[int, ...]]()
    for place, entry in enumerate(structure):
        kind, branches = _step_and_branches(entry)
        sizes = {"in": width} | ({"branches": len(branches)} if branches else {})
        chains = []
        for name, inner in branches.items():
            path = f"{prefix}{place}.{name}."
            chain, returned = _build(inner, arrays, width, path, depth + 1)
            if returned != width and not (kind.completes and max(2, returned) == max(2, width)):
                raise BadFile(f"the chain {path!r} must turn {width} logits into as many; it returns {returned}")
            chains.append(chain)
        parts: dict[str, Any] = {}
        for name, layout in arrays_of(kind).items():
            full = f"{prefix}{place}.{name}"
            if full not in arrays:
                raise BadFile(f"the array {full!r} is missing")
            parts[name] = arrays[full]
            members.add(_members_axes(full, arrays[full], layout, sizes, most_axes=1 if depth else 0))
        built.append(kind(**parts, **with_branches(kind, chains)))
        width = max(2, sizes[kind.n_out]) if kind.completes else sizes[kind.n_out]
    if len(members) > 1 or any(math.prod(axes) * n_logits > _MOST_ENTRIES for axes in members):
        raise BadFile(f"the arrays under {prefix!r} have members axes that do not fit: {sorted(members)[:3]}")
    return Chain(tuple(built)), width


def _step_and_branches(entry: object) -> tuple[type[Step], dict[str, object]]:
    """Return the class of a step and the structures of its branches, if it has any."""
    name, held = next(iter(entry.items())) if type(entry) is dict and len(entry) == 1 else (entry, None)
    if type(name) is not str or name not in STEPS:
        raise BadFile(f"unknown step {shown(name)}; known are {', '.join(sorted(STEPS))}")
    inner = branch_field(STEPS[name])
    if bool(inner) != isinstance(held, list):
        raise BadFile(f"{name} must come {'with' if inner else 'without'} a list of its branches' steps")
    several = {f"branches.{number}": each for number, each in enumerate(held or ())} if inner == "branches" else {}
    return STEPS[name], {"branch": held} if inner == "branch" else several


def _members_axes(name: str, array: Array, layout: Numbers, sizes: dict[str, int], most_axes: int) -> tuple[int, ...]:
    """Return the axes before an array's own, after checking its shape and range; record the sizes of new words."""
    axes = layout.axes.split()
    before = array.ndim - len(axes)
    if not 0 <= before <= most_axes or not all(map(_fits, axes, array.shape[before:], repeat(sizes))):
        known = ", ".join(f"{word} = {size}" for word, size in sizes.items())
        raise BadFile(f"{name} has shape {array.shape}, not ({', '.join(axes)}) with {known}")
    if not (np.isfinite(array) & (array >= layout.low) & (array <= layout.high)).all():
        raise BadFile(f"{name} must hold finite numbers from {layout.low:g} to {layout.high:g}")
    if layout.learned == "all but one" and not np.allclose(array.sum(axis=-1), 1.0, rtol=0.0, atol=1e-6):
        raise BadFile(f"{name} must hold shares that sum to 1")
    return array.shape[:before]


def _fits(axis: str, size: int, sizes: dict[str, int]) -> bool:
    """Return whether an axis has the size that its word stands for; the first use of a word defines it."""
    more = {"-1": -1, "+1": 1}.get(axis[-2:], 0)
    word = axis[:-2] if more else axis
    expected = int(word) if word.isdigit() else sizes.setdefault(word, size - more)
    return size >= 1 and size == expected + more
