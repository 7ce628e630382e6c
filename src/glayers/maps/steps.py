"""Logits -> logits: steps with named parameters, chains of them, and layers that start exactly as the identity.

Parameters may carry a leading *members* axis: weights of shape (members, in, out) turn logits (n, in) into
(members, n, out), so that many fits run as one. Steps are written against the array API: NumPy arrays in, NumPy
out; torch tensors in, torch out.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeAlias, dataclass_transform

import numpy as np

from glayers.activations import as_one_logit, is_top, log_softmax, with_reference_class
from glayers.arrays import array_namespace
from glayers.errors import GlayersError

__all__ = ["Centre", "Chain", "Dense", "Diagonal", "EachColumn", "Floor", "LogProbabilities", "LogSoftmax"]
__all__ += ["Reference", "Relu", "Scale", "Step", "dense_layers", "n_learned"]


@dataclass(frozen=True)
class Numbers:
    """The layout of one array of a step: its axes as words, and how many of its entries a fit learns."""

    axes: str = ""
    learned: Literal["all", "all but one", "none"] = "all"

    @property
    def n_axes(self) -> int:
        """The number of axes, without that of the members."""
        return len(self.axes.split())


# The arrays of most steps: one number, one number that no fit learns, and one number per class.
Scalar: TypeAlias = Annotated[Any, Numbers()]
Constant: TypeAlias = Annotated[Any, Numbers(learned="none")]
PerClass: TypeAlias = Annotated[Any, Numbers("in")]


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Step(ABC):
    """One step of a map. Every subclass is a frozen dataclass, without a decorator of its own.

    Its parameters are the fields whose type carries a layout, `weight: Annotated[Any, Numbers("in out")]`, and those of
    the chains in its field `branches`, if it has one.
    """

    completes = False  # adds the reference class to a single logit, its own or that of a branch
    normalises = False  # returns log-probabilities

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)

    @abstractmethod
    def __call__(self, logits: Any) -> Any:
        """Apply the step to logits (..., n, m)."""

    def parameters(self) -> dict[str, Any]:
        """Return what fitting may change, by name; those of a chain follow its place: `branches.0.2.weight`."""
        found: dict[str, Any] = {}
        self._mapped(found.setdefault)
        return found

    def with_parameters(self, parameters: Mapping[str, Any]) -> Self:
        """Return the same step with other parameters, of any array library, under exactly the same names."""
        return self._mapped(lambda name, _: parameters[name])

    def map_parameters(self, change: Callable[[Any], Any]) -> Self:
        """Return the same step with a function applied to every parameter, such as a cast."""
        return self._mapped(lambda _, value: change(value))

    def member(self, index: int) -> Self:
        """Return one member of a step whose parameters all carry a members axis."""
        return self.map_parameters(lambda value: value[index])

    @property
    def n_parameters(self) -> int:
        """The number of values to learn, over all members."""
        return sum(int(np.size(value)) for value in self.parameters().values())

    def chains(self) -> "tuple[Chain, ...]":
        """Return the chains that the step holds; most steps hold none."""
        held: tuple[Chain, ...] = getattr(self, "branches", ())
        return held

    def with_chains(self, chains: "Iterable[Chain]") -> Self:
        """Return the same step with other chains, as many as it holds."""
        if not self.chains():
            return self
        changes: dict[str, Any] = {"branches": tuple(chains)}
        return replace(self, **changes)

    def _mapped(self, change: Callable[[str, Any], Any], prefix: str = "") -> Self:
        """Return the same step with change(name, value) in place of each parameter."""
        arrays = {}
        for name in arrays_of(type(self)):
            arrays[name] = change(prefix + name, getattr(self, name))
        chains = []
        for place, chain in enumerate(self.chains()):
            chains.append(chain._mapped(change, f"{prefix}branches.{place}."))
        return replace(self, **arrays).with_chains(chains)


class Chain(Step):
    """Steps applied one after another; their parameters are named by their place: `2.weight`.

    >>> from glayers.maps import Dense, Relu
    >>> chain = Chain((Dense(np.eye(2), np.zeros(2)), Relu(), Dense(np.eye(2), np.zeros(2))))
    >>> chain(np.array([[1.0, -1.0]])).tolist()
    [[1.0, 0.0]]
    >>> chain.n_parameters
    12
    """

    steps: tuple[Step, ...]

    def __call__(self, logits: Any) -> Any:
        """Apply every step."""
        for step in self.steps:
            logits = step(logits)
        return logits

    def __getstate__(self) -> dict[str, Any]:
        return {"steps": self.steps}  # without the kernels that `serving.fast` keeps here

    def __add__(self, other: "Chain") -> "Chain":
        return Chain(self.steps + other.steps)

    def _mapped(self, change: Callable[[str, Any], Any], prefix: str = "") -> "Chain":
        return Chain(tuple(step._mapped(change, f"{prefix}{place}.") for place, step in enumerate(self.steps)))


@cache
def arrays_of(kind: type[Step]) -> dict[str, Numbers]:
    """Return the layouts of a step's arrays, by name."""
    layouts = {}
    for field in fields(kind):
        if hasattr(field.type, "__metadata__"):
            layouts[field.name] = field.type.__metadata__[0]
    return layouts


def n_learned(chain: Chain) -> int:
    """Return how many numbers a fit learns, for one member, without constants, scales and reference points.

    >>> n_learned(Chain((Scale(np.ones(())), Centre(np.ones(())))))
    1
    """
    total = 0
    for step in chain.steps:
        total += sum(n_learned(branch) for branch in step.chains())
        for name, layout in arrays_of(type(step)).items():
            shape = np.shape(getattr(step, name))
            size = math.prod(shape[len(shape) - layout.n_axes :])
            total += {"all": size, "all but one": size - 1, "none": 0}[layout.learned]
    return total


class Scale(Step):
    """One factor for all logits: an inverse temperature."""

    factor: Scalar

    def __call__(self, logits: Any) -> Any:
        """Multiply every logit."""
        return logits * self.factor[..., None, None]


class Diagonal(Step):
    """One scale and one shift per class."""

    scale: PerClass
    shift: PerClass

    def __call__(self, logits: Any) -> Any:
        """Scale and shift each column."""
        return logits * self.scale[..., None, :] + self.shift[..., None, :]


class Dense(Step):
    """A full linear layer: logits @ weight + bias."""

    weight: Annotated[Any, Numbers("in out")]
    bias: Annotated[Any, Numbers("out")]

    def __call__(self, logits: Any) -> Any:
        """Apply the layer."""
        return array_namespace(logits).matmul(logits, self.weight) + self.bias[..., None, :]


class Relu(Step):
    """The positive part."""

    def __call__(self, logits: Any) -> Any:
        """Set negative entries to zero."""
        return array_namespace(logits).clip(logits, min=0)


class Reference(Step):
    """Add the reference class to the single logit of a binary model; more logits pass unchanged."""

    completes = True

    def __call__(self, logits: Any) -> Any:
        """Put a zero before a single logit."""
        return with_reference_class(logits)


class LogSoftmax(Step):
    """Log-probabilities: the same prediction, in a form that adding a constant to a row does not change."""

    normalises = True

    def __call__(self, logits: Any) -> Any:
        """Normalise each row."""
        return log_softmax(logits)


class LogProbabilities(Step):
    """Turn probabilities, raised to a floor, into logits: their logarithms, or the log-odds of class 1 for one column.

    >>> LogProbabilities(np.asarray(0.01))(np.array([[1.0, 0.0]])).round(2).tolist()
    [[0.0, -4.61]]
    """

    floor: Constant

    def __call__(self, logits: Any) -> Any:
        """Return the logits of probabilities (..., n, m)."""
        xp = array_namespace(logits)
        logs = xp.log(xp.where(logits > self.floor, logits, self.floor))
        if logits.shape[-1] > 1:
            return logs
        rest = 1.0 - logits
        return logs - xp.log(xp.where(rest > self.floor, rest, self.floor))


class Centre(Step):
    """Subtract a share of each row's mean: 1 turns log-probabilities into centred logits, 0 leaves them.

    Both are the same prediction, and adding a constant to a row changes neither.
    """

    share: Constant

    def __call__(self, logits: Any) -> Any:
        """Subtract that share of the mean of each row."""
        mean = array_namespace(logits).mean(logits, axis=-1, keepdims=True)
        return logits - self.share[..., None, None] * mean


class Floor(Step):
    """Keep classes far below the highest one, and impossible ones, from the steps of a branch.

    A class is far if it lies more than `depth` below the highest, or more than `reach` plus twice the lead of the
    highest over the second. It enters the branch at the mean of the row's other classes, without the highest. Its
    result is then lowered by the difference, so -inf stays -inf. All other rows pass unchanged.

    >>> floor = Floor(np.asarray(30.0), np.asarray(20.0), (Chain((Centre(np.asarray(1.0)),)),))
    >>> floor(np.array([[5.0, 3.0, -1.0, -np.inf], [5.0, 3.0, -1.0, 1.0]])).tolist()  # 1 is the mean of 3 and -1
    [[3.0, 1.0, -3.0, -inf], [3.0, 1.0, -3.0, -1.0]]
    """

    depth: Constant
    reach: Constant
    branches: tuple[Chain]
    completes = True

    def __call__(self, logits: Any) -> Any:
        """Apply the branch to the raised logits, and lower the result again."""
        (branch,) = self.branches
        raised, lowered = self.split(logits)
        return with_reference_class(branch(raised)) + lowered

    def split(self, logits: Any) -> tuple[Any, Any]:
        """Return logits (n, m) with far classes raised, and how far (n, classes) to lower the result: 0 for most."""
        xp = array_namespace(logits)
        each = with_reference_class(logits)
        top = xp.max(each, axis=-1, keepdims=True)
        second = xp.max(xp.where(is_top(each), -xp.inf, each), axis=-1, keepdims=True)
        far = each < top - xp.minimum(self.depth, self.reach + 2 * (top - second))
        raised = at_mean_of_others(each, far)
        lowered = xp.where(far, each - raised, 0.0)
        if logits.shape[-1] == 1:
            raised = raised[..., 1:] - raised[..., :1]
        return raised, lowered


def at_mean_of_others(logits: Any, far: Any) -> Any:
    """Put marked classes at the mean of the row's other classes, without the highest.

    >>> at_mean_of_others(np.array([[5.0, 3.0, -1.0, -9.0]]), np.array([[False, False, False, True]])).tolist()
    [[5.0, 3.0, -1.0, 1.0]]
    """
    xp = array_namespace(logits)
    top = xp.max(logits, axis=-1, keepdims=True)
    n_others = xp.clip(xp.sum(xp.astype(~far, logits.dtype), axis=-1, keepdims=True) - 1, min=1)
    # Divided first: a sum of huge differences would overflow.
    mean = xp.sum(xp.where(far, 0.0, (logits - top) / n_others), axis=-1, keepdims=True)
    return xp.where(far, top + mean, logits)


class EachColumn(Step):
    """Apply one branch per column: each takes one logit, whose sigmoid is the probability of a label, and gives one.

    >>> halves = EachColumn((Chain((Scale(np.array(0.5)),)), Chain(())))
    >>> halves(np.array([[2.0, 2.0]])).tolist()
    [[1.0, 2.0]]
    """

    branches: tuple[Chain, ...]

    def __call__(self, logits: Any) -> Any:
        """Apply every branch to its column (n, 1)."""
        columns = []
        for place, branch in enumerate(self.branches):
            columns.append(as_one_logit(branch(logits[..., place : place + 1])))
        return array_namespace(logits).concat(columns, axis=-1)


def dense_layers(
    n_logits: int,
    n_layers: int,
    units_per_class: int = 3,
    random_state: int | np.random.Generator = 0,
    start: Literal["transparent", "glorot"] = "transparent",
) -> Chain:
    """Return `n_layers` dense layers, the last one included; those with the transparent start are the identity.

    relu(z) - relu(-z) = z, so a hidden layer that carries both signs of every logit loses nothing. The first layer
    splits each logit in two, hidden layers pass these 2C units on, and the last layer subtracts them. Units beyond 2C
    have random incoming weights and outgoing weights of zero: they change nothing at the start, yet they learn from the
    first step. The paper compares this with Glorot's uniform random start.

    Hidden layers have units_per_class * n_logits + 2 units; at least 2 * n_logits for the transparent start.

    >>> layers = dense_layers(n_logits=4, n_layers=3)
    >>> z = np.array([[0.3, -7.0, 1e4, 2.5]])
    >>> (layers(z) == z).all()
    np.True_
    >>> layers.steps[0].weight.shape
    (4, 14)
    """
    shapes = layer_shapes(n_logits, n_layers, units_per_class)
    n_hidden = shapes[0][1]
    if start == "transparent" and n_layers > 1 and n_hidden < 2 * n_logits:
        raise GlayersError(
            f"a transparent layer on {n_logits} logits needs at least {2 * n_logits} units to carry both signs; got "
            f"{n_hidden}. Use units_per_class >= 2"
        )
    rng = np.random.default_rng(random_state)
    steps: list[Step] = []
    for (n_in, n_out), carried in zip(shapes, _carried(n_logits, n_layers), strict=True):
        reach = np.sqrt(6.0 / (n_in + n_out))
        weight = rng.uniform(-reach, reach, size=(n_in, n_out))
        if start == "transparent":
            weight[:, : carried.shape[1]] = 0.0
            weight[: carried.shape[0], : carried.shape[1]] = carried
        steps += [Dense(weight, np.zeros(n_out)), Relu()]
    return Chain(tuple(steps[:-1]))


def _carried(n_logits: int, n_layers: int) -> list[Any]:
    """Return the weights of each transparent layer that carry the logits on: split, passed on, and subtracted."""
    if n_layers == 1:
        return [np.eye(n_logits)]
    both_signs = np.hstack([np.eye(n_logits), 0.0 - np.eye(n_logits)])
    return [both_signs, *[np.eye(2 * n_logits)] * (n_layers - 2), both_signs.T]


def layer_shapes(n_logits: int, n_layers: int, units_per_class: int) -> list[tuple[int, int]]:
    """Return the inputs and outputs of each layer; hidden ones have the paper's hC + 2 units."""
    hidden = [units_per_class * n_logits + 2] * (n_layers - 1)
    return list(pairwise([n_logits, *hidden, n_logits]))
