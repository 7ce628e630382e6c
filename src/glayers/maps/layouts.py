"""A chain <-> the names of its steps and its arrays: how a map is stored in a file, with every shape checked.

Each step declares the layout of its arrays in its fields; STEPS lists the steps that a file may hold, and no others.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array
from glayers.errors import BadFile, GlayersError
from glayers.maps.chain import Chain, Numbers, Step, branch_field
from glayers.maps.mixtures import Blend, Stack, TemperedMixture
from glayers.maps.order import General, Invariant, KeepOrder, SharedCurve
from glayers.maps.shared import Shared
from glayers.maps.steps import Centre, Dense, Diagonal, Dropout, LogSoftmax, Reference, Relu, Scale
from glayers.maps.tables import EachClass, OneVersusRest, TopClass

_KINDS: tuple[type[Step], ...] = (
    *(Blend, Stack, TemperedMixture),
    *(General, Invariant, KeepOrder, SharedCurve),
    *(Centre, Dense, Diagonal, Dropout, LogSoftmax, Reference, Relu, Scale),
    *(Shared, EachClass, OneVersusRest, TopClass),
)
STEPS: dict[str, type[Step]] = {kind.__name__: kind for kind in _KINDS}
_DEEPEST = 8  # branches within branches: fits make four, KeepOrder and Stack twice
_MOST_ENTRIES = 10_000_000  # members x logits: fits make thousands, and a small file must not ask for gigabytes


def structure_of(chain: Chain) -> list[Any]:
    """Return the names of the steps in order; a step with branches is {name: structure or list of structures}.

    >>> from glayers.maps import Reference, Scale
    >>> structure_of(Chain((Reference(), Scale.identity())))
    ['Reference', 'Scale']
    """
    return [_entry(step) for step in chain.steps]


def chain_of(structure: object, arrays: Mapping[str, Array], n_logits: int) -> Chain:
    """Return the chain of this structure with these parameters, or raise an error that says what does not fit.

    >>> chain_of(["Scale"], {"0.factor": np.array(0.5)}, n_logits=3)(np.array([[2.0, 0.0, 4.0]])).tolist()
    [[1.0, 0.0, 2.0]]
    """
    chain, _ = _Builder(arrays).chain(structure, "", n_logits)
    extra = sorted(arrays.keys() - chain.parameters().keys())
    if extra:
        raise BadFile(f"no step has an array {extra[0]!r}")
    with np.errstate(all="ignore"):
        tried = with_reference_class(chain(np.linspace(-1.0, 1.0, n_logits)[None, :]))
    if tried.shape != (1, max(2, n_logits)):
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
    >>> shared = Shared(np.zeros((6, 5)), np.zeros(4), np.ones(4), np.asarray(10.0))
    >>> n_learned(Chain((Scale.identity(), shared))), Chain((Scale.identity(), shared)).n_parameters
    (31, 40)
    """
    return sum(map(_learned_in, chain.steps))


def _learned_in(step: Step) -> int:
    if type(step) not in STEPS.values():  # a user's own activation
        return sum(int(np.size(value)) for value in step.parameters().values())
    return sum(map(n_learned, step.chains().values())) + sum(
        _learned_of(array, getattr(step, name)) for name, array in arrays_of(type(step)).items()
    )


def _learned_of(layout: Numbers, array: Any) -> int:
    own = np.shape(array)[np.ndim(array) - len(layout.axes.split()) :]  # leading axes count members
    size = math.prod(own)
    return {"all": size, "all but one": size - 1, "none": 0}[layout.learned]


def arrays_of(kind: type[Step]) -> dict[str, Numbers]:
    """Return the layouts of a step's arrays, by name."""
    return {field.name: layout for field in fields(kind) for layout in getattr(field.type, "__metadata__", ())}


@dataclass(frozen=True)
class _Builder:
    """Builds chains out of arrays by name."""

    arrays: Mapping[str, Array]

    def chain(self, structure: object, prefix: str, n_logits: int, depth: int = 0) -> tuple[Chain, int]:
        """Return the chain whose arrays have this prefix, and the number of logits that it returns."""
        if type(structure) is not list:
            raise BadFile(f"a structure must be a list of steps; got {structure!r:.60}")
        if depth > _DEEPEST:
            raise BadFile(f"branches are nested more than {_DEEPEST} deep")
        steps: list[Step] = []
        width, members = n_logits, set[tuple[int, ...]]()
        for place, entry in enumerate(structure):
            kind, held = _step_and_branches(entry)
            path, sizes = f"{prefix}{place}.", {"in": width}
            inner = self._inner(kind, held, path, sizes, depth)
            parts = {
                key: self._array(path + key, layout, sizes, members, most_axes=1 if depth else 0)
                for key, layout in arrays_of(kind).items()
            }
            steps.append(kind(**parts, **inner))
            width = max(2, sizes[kind.n_out]) if kind.completes else sizes[kind.n_out]
        if len(members) > 1 or any(math.prod(axes) * n_logits > _MOST_ENTRIES for axes in members):
            raise BadFile(f"the arrays under {prefix!r} have members axes that do not fit: {sorted(members)[:3]}")
        return Chain(tuple(steps)), width

    def _inner(self, kind: type[Step], held: Any, path: str, sizes: dict[str, int], depth: int) -> dict[str, Any]:
        """Return the chains of a step, each of which must return as many logits as the step does."""
        field = branch_field(kind)
        if not field:
            return {}
        several = {f"{path}branch.": held}
        if field == "branches":
            several = {f"{path}branches.{number}.": structure for number, structure in enumerate(held)}
        chains = []
        for prefix, structure in several.items():
            chain, width = self.chain(structure, prefix, sizes["in"], depth + 1)
            if sizes["in"] != width and not (kind.completes and max(2, sizes["in"]) == max(2, width)):
                raise BadFile(f"the chain {prefix!r} must turn {sizes['in']} logits into as many; it returns {width}")
            chains.append(chain)
        sizes["branches"] = len(chains)
        return {field: tuple(chains) if field == "branches" else chains[0]}

    def _array(
        self, name: str, layout: Numbers, sizes: dict[str, int], members: set[tuple[int, ...]], most_axes: int
    ) -> Array:
        """Return an array whose own axes come last; record the sizes and the members axes found on the way."""
        if name not in self.arrays:
            raise BadFile(f"the array {name!r} is missing")
        array, axes = self.arrays[name], layout.axes.split()
        before = array.ndim - len(axes)
        if not 0 <= before <= most_axes or not all(
            _fits(axis, size, sizes) for axis, size in zip(axes, array.shape[before:], strict=True)
        ):
            known = ", ".join(f"{word} = {size}" for word, size in sizes.items())
            raise BadFile(f"{name} has shape {array.shape}, not ({', '.join(axes)}) with {known}")
        if not (np.isfinite(array) & (array >= layout.low) & (array <= layout.high)).all():
            raise BadFile(f"{name} must hold finite numbers from {layout.low:g} to {layout.high:g}")
        members.add(array.shape[:before])
        return array


def _step_and_branches(entry: object) -> tuple[type[Step], object]:
    """Return the class of a step and the structure of its branches, if it has any."""
    name, held = next(iter(entry.items())) if type(entry) is dict and len(entry) == 1 else (entry, None)
    if type(name) is not str or name not in STEPS:
        raise BadFile(f"unknown step {name!r:.60}; known are {', '.join(sorted(STEPS))}")
    inner = branch_field(STEPS[name])
    if bool(inner) != (type(held) is list):
        raise BadFile(f"{name} must come {'with' if inner else 'without'} a list of its branches' steps")
    return STEPS[name], held


def _fits(axis: str, size: int, sizes: dict[str, int]) -> bool:
    """Return whether an axis has the size that its word stands for; the first use of a word defines it."""
    more = {"-1": -1, "+1": 1}.get(axis[-2:], 0)
    word = axis[:-2] if more else axis
    expected = int(word) if word.isdigit() else sizes.setdefault(word, size - more)
    return size >= 1 and size == expected + more
