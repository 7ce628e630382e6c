"""A chain -> the names of its steps, and these with arrays by name -> the chain again, every shape checked."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array
from glayers.errors import BadFile, GlayersError
from glayers.maps.chain import Chain
from glayers.maps.layouts import LAYOUTS, Layout, Numbers
from glayers.maps.steps import Step

_DEEPEST = 8  # branches within branches: fits make four, order kept within a stack within a stack
_MOST_ENTRIES = 10_000_000  # members x logits: fits make thousands, and a small file must not ask for gigabytes


def structure_of(chain: Chain) -> list[Any]:
    """Return the names of the steps in order; a step with a branch is {name: structure}, with several a list of these.

    >>> from glayers.maps import Reference, Scale
    >>> structure_of(Chain((Reference(), Scale.identity())))
    ['Reference', 'Scale']
    """
    return [_entry(step) for step in chain.steps]


def chain_of(structure: object, arrays: Mapping[str, Array], n_logits: int) -> Chain:
    """Return the chain of that structure with those parameters, or say what does not fit.

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
    if name not in LAYOUTS or LAYOUTS[name].step is not type(step):
        raise GlayersError(
            f"{name} cannot go into a file, which holds numbers and never code: a q of your own stays in memory. "
            f"Fit with activation=None, which is softmax"
        )
    inner = LAYOUTS[name].inner
    if not inner:
        return name
    held = getattr(step, inner)
    return {name: structure_of(held) if inner == "branch" else [structure_of(chain) for chain in held]}


@dataclass(frozen=True)
class _Builder:
    """Arrays by name, from which chains take what is theirs."""

    arrays: Mapping[str, Array]

    def chain(self, structure: object, prefix: str, n_logits: int, depth: int = 0) -> tuple[Chain, int]:
        """Return the chain whose arrays have that prefix, and how many logits it turns `n_logits` into."""
        if type(structure) is not list:
            raise BadFile(f"a structure must be a list of steps; got {structure!r:.60}")
        if depth > _DEEPEST:
            raise BadFile(f"branches are nested more than {_DEEPEST} deep")
        steps: list[Step] = []
        width, members = n_logits, set[tuple[int, ...]]()
        for place, entry in enumerate(structure):
            name, held = _named(entry)
            layout, path = LAYOUTS[name], f"{prefix}{place}."
            sizes = {"in": width}
            inner = self._inner(layout, held, path, sizes, depth)
            parts = {
                key: self._array(path + key, numbers, sizes, members, most_axes=1 if depth else 0)
                for key, numbers in layout.arrays.items()
            }
            steps.append(layout.step(**parts, **inner))
            width = max(2, sizes[layout.out]) if layout.completes else sizes[layout.out]
        if len(members) > 1 or any(math.prod(axes) * n_logits > _MOST_ENTRIES for axes in members):
            raise BadFile(f"the arrays under {prefix!r} have members axes that do not fit: {sorted(members)[:3]}")
        return Chain(tuple(steps)), width

    def _inner(self, layout: Layout, held: Any, path: str, sizes: dict[str, int], depth: int) -> dict[str, Any]:
        """Return the chains a step holds, each of which must make as many logits as the step does."""
        if not layout.inner:
            return {}
        several = {f"{path}branch.": held}
        if layout.inner == "branches":
            several = {f"{path}branches.{number}.": structure for number, structure in enumerate(held)}
        chains = []
        for prefix, structure in several.items():
            chain, width = self.chain(structure, prefix, sizes["in"], depth + 1)
            if sizes["in"] != width and not (layout.completes and max(2, sizes["in"]) == max(2, width)):
                raise BadFile(f"the chain {prefix!r} must turn {sizes['in']} logits into as many; it gives {width}")
            chains.append(chain)
        sizes["branches"] = len(chains)
        return {layout.inner: tuple(chains) if layout.inner == "branches" else chains[0]}

    def _array(
        self, name: str, numbers: Numbers, sizes: dict[str, int], members: set[tuple[int, ...]], most_axes: int
    ) -> Array:
        """Return an array whose own axes come last; sizes and members axes met on the way are noted."""
        if name not in self.arrays:
            raise BadFile(f"the array {name!r} is missing")
        array, axes = self.arrays[name], numbers.axes.split()
        before = array.ndim - len(axes)
        if not 0 <= before <= most_axes or not all(
            _fits(axis, size, sizes) for axis, size in zip(axes, array.shape[before:], strict=True)
        ):
            known = ", ".join(f"{word} = {size}" for word, size in sizes.items())
            raise BadFile(f"{name} has shape {array.shape}, not ({', '.join(axes)}) with {known}")
        if not (np.isfinite(array) & (array >= numbers.low) & (array <= numbers.high)).all():
            raise BadFile(f"{name} must hold finite numbers from {numbers.low:g} to {numbers.high:g}, and does not")
        members.add(array.shape[:before])
        return array


def _named(entry: object) -> tuple[str, object]:
    """Return a step's name and the structure of what it holds; most hold nothing."""
    name, held = next(iter(entry.items())) if type(entry) is dict and len(entry) == 1 else (entry, None)
    if type(name) is not str or name not in LAYOUTS:
        raise BadFile(f"unknown step {name!r:.60}; known are {', '.join(sorted(LAYOUTS))}")
    if bool(LAYOUTS[name].inner) != (type(held) is list):
        raise BadFile(f"{name} must come {'with' if LAYOUTS[name].inner else 'without'} a list of what it holds")
    return name, held


def _fits(axis: str, size: int, sizes: dict[str, int]) -> bool:
    """Say whether an axis has the size its word stands for; the first use of a word settles it."""
    more = {"-1": -1, "+1": 1}.get(axis[-2:], 0)
    word = axis[:-2] if more else axis
    expected = int(word) if word.isdigit() else sizes.setdefault(word, size - more)
    return size >= 1 and size == expected + more
