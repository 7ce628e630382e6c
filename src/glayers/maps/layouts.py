"""A chain <-> the names of its steps and its arrays: how a map is stored in a file, with every shape checked.

LAYOUTS lists the steps that a file may hold, with the arrays of each and their shapes. An axis is a word: `in` is the
number of logits that come in, `branches` the number of chains that a step holds, and any other word a size of the
step's own, the same wherever the word occurs in that step. `in-1` is one less; a number is itself. The table also says
which numbers a fit learns, for whoever counts them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array
from glayers.errors import BadFile, GlayersError
from glayers.maps.chain import Chain, Step
from glayers.maps.mixtures import Blend, Stack, TemperedMixture
from glayers.maps.order import General, Invariant, KeepOrder, SharedCurve
from glayers.maps.shared import N_CONTEXT, N_SHAPES, Shared
from glayers.maps.steps import Centre, Dense, Diagonal, Dropout, LogSoftmax, Reference, Relu, Scale
from glayers.maps.tables import FLOOR, EachClass, OneVersusRest, TopClass

_POSITIVE = float(np.finfo(np.float64).tiny)
_DEEPEST = 8  # branches within branches: fits make four, KeepOrder and Stack twice
_MOST_ENTRIES = 10_000_000  # members x logits: fits make thousands, and a small file must not ask for gigabytes


@dataclass(frozen=True)
class Numbers:
    """One array of a step: its axes as words, the range of its entries, and how many of them a fit learns."""

    axes: str = ""
    low: float = -math.inf
    high: float = math.inf
    learned: Literal["all", "all but one", "none"] = "all"


@dataclass(frozen=True)
class Layout:
    """What a step consists of: arrays by name, and perhaps chains in its field `inner`.

    `out` is the number of logits that come out. A step that `completes` adds the reference class to a single logit,
    and to the single logit of its branches.
    """

    step: type[Step]
    arrays: Mapping[str, Numbers] = field(default_factory=dict)
    out: str = "in"
    completes: bool = False
    inner: Literal["", "branch", "branches"] = ""


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
    if name not in LAYOUTS or LAYOUTS[name].step is not type(step):
        raise GlayersError(
            f"{name} cannot be saved: a file holds numbers and never code, so your own activation stays in memory. "
            f"Fit with activation=None, which is softmax"
        )
    inner = LAYOUTS[name].inner
    if not inner:
        return name
    held = getattr(step, inner)
    return {name: structure_of(held) if inner == "branch" else [structure_of(chain) for chain in held]}


def n_learned(chain: Chain) -> int:
    """Return how many numbers a fit learns, for one member, without constants, scales and reference points.

    >>> from glayers.maps import Scale
    >>> shared = Shared(np.zeros((6, 5)), np.zeros(4), np.ones(4), np.asarray(10.0))
    >>> n_learned(Chain((Scale.identity(), shared))), Chain((Scale.identity(), shared)).n_parameters
    (31, 40)
    """
    return sum(map(_learned_in, chain.steps))


def _learned_in(step: Step) -> int:
    layout = LAYOUTS.get(type(step).__name__)
    if layout is None:  # a user's own activation
        return sum(int(np.size(value)) for value in step.parameters().values())
    inner = getattr(step, layout.inner) if layout.inner else ()
    held = sum(map(n_learned, (inner,) if isinstance(inner, Chain) else inner))
    return held + sum(_learned_of(numbers, getattr(step, name)) for name, numbers in layout.arrays.items())


def _learned_of(numbers: Numbers, array: Any) -> int:
    own = np.shape(array)[np.ndim(array) - len(numbers.axes.split()) :]  # leading axes count members
    size = math.prod(own)
    return {"all": size, "all but one": size - 1, "none": 0}[numbers.learned]


def _shares(axes: str) -> Numbers:
    """Shares sum to 1, so the last one follows from the others."""
    return replace(_SHARE, axes=axes, learned="all but one")


_SHARE = Numbers(low=-1e-9, high=1 + 1e-9)  # between 0 and 1, up to rounding
_GAPS = {
    "factor": Numbers(),
    "weight_in": Numbers("in hidden"),
    "bias_in": Numbers("hidden"),
    "weight_out": Numbers("hidden in-1"),
    "bias_out": Numbers("in-1"),
}
LAYOUTS: dict[str, Layout] = {
    layout.step.__name__: layout
    for layout in (
        Layout(Blend, {"share": _SHARE}, inner="branch"),
        Layout(Centre, {"share": Numbers(learned="none")}),
        Layout(Dense, {"weight": Numbers("in out"), "bias": Numbers("out")}, out="out"),
        Layout(Diagonal, {"scale": Numbers("in"), "shift": Numbers("in")}),
        Layout(Dropout),
        Layout(EachClass, {"knots": Numbers("in knots"), "values": Numbers("in knots", low=FLOOR, high=1.0)}),
        Layout(General, _GAPS),
        Layout(Invariant, _GAPS),
        Layout(KeepOrder, {"slope": Numbers(low=0.0, learned="none")}, completes=True, inner="branch"),
        Layout(LogSoftmax),
        Layout(OneVersusRest, {name: Numbers("in") for name in ("power", "rest_power", "shift")}),
        Layout(Reference, completes=True),
        Layout(Relu),
        Layout(Scale, {"factor": Numbers()}),
        Layout(
            Shared,
            {
                "weight": Numbers(f"{N_SHAPES} {N_CONTEXT}"),
                "centre": Numbers(f"{N_CONTEXT - 1}", learned="none"),
                "spread": Numbers(f"{N_CONTEXT - 1}", low=_POSITIVE, learned="none"),
                "depth": Numbers(low=1.0, learned="none"),
            },
        ),
        Layout(
            SharedCurve,
            {
                "factor": Numbers(),
                "knots": Numbers("knots", learned="none"),
                "widths": Numbers("knots", low=_POSITIVE, learned="none"),
                "log_slopes": Numbers("knots+1"),
            },
        ),
        Layout(Stack, {"shares": _shares("branches")}, completes=True, inner="branches"),
        Layout(TemperedMixture, {"shares": _shares("3"), "factor": Numbers()}),
        Layout(TopClass, {"knots": Numbers("knots"), "values": Numbers("knots", low=FLOOR, high=1.0 - FLOOR)}),
    )
}


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
        """Return the chains of a step, each of which must return as many logits as the step does."""
        if not layout.inner:
            return {}
        several = {f"{path}branch.": held}
        if layout.inner == "branches":
            several = {f"{path}branches.{number}.": structure for number, structure in enumerate(held)}
        chains = []
        for prefix, structure in several.items():
            chain, width = self.chain(structure, prefix, sizes["in"], depth + 1)
            if sizes["in"] != width and not (layout.completes and max(2, sizes["in"]) == max(2, width)):
                raise BadFile(f"the chain {prefix!r} must turn {sizes['in']} logits into as many; it returns {width}")
            chains.append(chain)
        sizes["branches"] = len(chains)
        return {layout.inner: tuple(chains) if layout.inner == "branches" else chains[0]}

    def _array(
        self, name: str, numbers: Numbers, sizes: dict[str, int], members: set[tuple[int, ...]], most_axes: int
    ) -> Array:
        """Return an array whose own axes come last; record the sizes and the members axes found on the way."""
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
            raise BadFile(f"{name} must hold finite numbers from {numbers.low:g} to {numbers.high:g}")
        members.add(array.shape[:before])
        return array


def _named(entry: object) -> tuple[str, object]:
    """Return a step's name and the structure of its branches, if it has any."""
    name, held = next(iter(entry.items())) if type(entry) is dict and len(entry) == 1 else (entry, None)
    if type(name) is not str or name not in LAYOUTS:
        raise BadFile(f"unknown step {name!r:.60}; known are {', '.join(sorted(LAYOUTS))}")
    if bool(LAYOUTS[name].inner) != (type(held) is list):
        raise BadFile(f"{name} must come {'with' if LAYOUTS[name].inner else 'without'} a list of its branches' steps")
    return name, held


def _fits(axis: str, size: int, sizes: dict[str, int]) -> bool:
    """Return whether an axis has the size that its word stands for; the first use of a word defines it."""
    more = {"-1": -1, "+1": 1}.get(axis[-2:], 0)
    word = axis[:-2] if more else axis
    expected = int(word) if word.isdigit() else sizes.setdefault(word, size - more)
    return size >= 1 and size == expected + more
