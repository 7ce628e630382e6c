"""A chain's structure and arrays: they give the chain back, and whatever does not fit is refused."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from glayers.calibrators.outside import OutsideStep
from glayers.errors import BadFile, GlayersError
from glayers.files import errors_as_bad_file
from glayers.maps import Chain, Dense, KeepOrder, LogSoftmax, Reference, Relu, Scale, Stack, Step, n_learned
from glayers.maps.steps import EachColumn, arrays_of
from glayers.serving.artifact import STEPS, chain_of, structure_of
from tests.strategies import stack_of_two

WIDTH = 4
SIZES = {"branches": 2, "in": WIDTH, "in-1": WIDTH - 1, "out": WIDTH, "hidden": 7, "knots": 5, "knots+1": 6}


INNER = Chain((Dense(np.eye(WIDTH) * 0.5, np.zeros(WIDTH)), Relu()))
every_step = pytest.mark.parametrize("name", STEPS)


def step_of(name: str) -> Step:
    """A step with random numbers of the shapes and ranges its fields declare."""
    rng = np.random.default_rng(0)
    parts: dict[str, Any] = {}
    if "branches" in {field.name for field in fields(STEPS[name])}:
        parts["branches"] = (INNER,) if name in ("Floor", "KeepOrder") else (INNER, INNER)
    for key, numbers in arrays_of(STEPS[name]).items():
        shape = [int(axis) if axis.isdigit() else SIZES[axis] for axis in numbers.axes.split()]
        parts[key] = rng.uniform(0.0, 0.5, size=shape)
        if numbers.learned == "all but one":
            parts[key] /= parts[key].sum()
    return STEPS[name](**parts)


def kinds_of_steps(kind: type[Step] = Step) -> Iterator[type[Step]]:
    for each in kind.__subclasses__():
        yield from kinds_of_steps(each)
        if not each.__abstractmethods__:
            yield each


def test_every_step_of_a_fitted_map_can_be_saved() -> None:
    # A chain within a chain is no part of a fitted map, and private steps are for training.
    # The columns of several labels are saved as one map each. Code of other packages is not saved.
    ours = {kind.__name__ for kind in kinds_of_steps() if kind.__module__.startswith("glayers.")}  # tests have theirs
    ours = {name for name in ours if not name.startswith("_")} - {OutsideStep.__name__}
    assert ours == STEPS.keys() | {Chain.__name__, EachColumn.__name__}


@every_step
def test_a_layout_names_the_parameters_of_its_step(name: str) -> None:
    own = {key for key in step_of(name).parameters() if not key.startswith("branch")}
    assert own == arrays_of(STEPS[name]).keys()


def test_learned_numbers_exclude_constants_and_count_one_member() -> None:
    rng = np.random.default_rng(0)
    layers = Chain((step_of("Centre"), Dense(rng.normal(size=(3, WIDTH, 7)), rng.normal(size=(3, 7)))))
    # 35 weights and biases, whatever the members; the branch's share; no share of the mean, which is there or not.
    blend = stack_of_two(0.5, layers)
    assert n_learned(Chain((blend,))) == 36
    # One share of the stack beside them, since the other follows; 7 x 5 shared weights; no slope.
    mixed = Chain((Stack(np.array([0.5, 0.5]), (Chain((blend,)), Chain((Scale(np.ones(())),)))), step_of("Shared")))
    assert n_learned(Chain((KeepOrder.of(mixed),))) == 36 + 1 + 1 + 35


@every_step
def test_structure_and_arrays_give_the_chain_back(name: str) -> None:
    chain = Chain((LogSoftmax(), step_of(name)))
    again = chain_of(structure_of(chain), chain.parameters(), WIDTH)
    z = np.random.default_rng(1).normal(size=(9, WIDTH)) * 3
    assert again(z).tobytes() == chain(z).tobytes()
    assert structure_of(again) == structure_of(chain)


@every_step
def test_every_array_must_be_there_and_of_its_own_shape(name: str) -> None:
    chain = Chain((LogSoftmax(), step_of(name)))
    structure, arrays = structure_of(chain), chain.parameters()
    for key in [key for key in arrays if "branch" not in key]:
        value = arrays[key]
        without = {other: array for other, array in arrays.items() if other != key}
        with pytest.raises(BadFile, match=f"{key}.* is missing"):
            chain_of(structure, without, WIDTH)
        spoilt = value.copy()
        spoilt[(-1,) * value.ndim] = np.nan
        for wrong in (value[None], value[..., None], spoilt):
            with pytest.raises(BadFile, match=f"{key} must hold finite numbers of shape"):
                chain_of(structure, without | {key: wrong}, WIDTH)
    with pytest.raises(BadFile, match=r"no step has an array '7\.weight'"):
        chain_of(structure, arrays | {"7.weight": np.ones(3)}, WIDTH)


def test_sizes_that_do_not_meet_are_refused() -> None:
    chain = Chain((Dense(np.ones((4, 6)), np.zeros(6)), Relu(), Dense(np.ones((6, 4)), np.zeros(4))))
    structure, arrays = structure_of(chain), chain.parameters()
    assert chain_of(structure, arrays, WIDTH)
    for changed, n_logits in ((arrays, 5), (arrays | {"2.weight": np.ones((5, 4))}, 4)):
        with pytest.raises(BadFile, match="the arrays of the map do not fit together"):
            chain_of(structure, changed, n_logits)
    with pytest.raises(BadFile, match=r"turns 4 logits into an array of shape \(6,\)"):
        chain_of(["Dense"], {"0.weight": np.ones((4, 6)), "0.bias": np.zeros(6)}, 4)


def test_one_logit_may_become_two_by_the_reference_class_or_stay_alone() -> None:
    assert chain_of(["Scale"], {"0.factor": np.ones(())}, 1)(np.ones((2, 1))).shape == (2, 1)
    assert chain_of(["Reference", "Scale"], {"1.factor": np.ones(())}, 1)(np.ones((2, 1))).shape == (2, 2)


# Branches and their members.


def averaged(n_members: int, n_logits: int = WIDTH) -> Chain:
    rng = np.random.default_rng(0)
    dense = Dense(rng.normal(size=(n_members, n_logits, n_logits)), rng.normal(size=(n_members, n_logits)))
    return Chain((Reference(), Scale(np.array(0.5)), stack_of_two(0.3, Chain((dense, Relu())))))


def test_a_branch_of_many_members_comes_back() -> None:
    chain = averaged(3)
    assert structure_of(chain) == ["Reference", "Scale", {"Stack": [[], ["Dense", "Relu"]]}]
    z = np.random.default_rng(1).normal(size=(9, WIDTH))
    assert chain_of(structure_of(chain), chain.parameters(), WIDTH)(z).tobytes() == chain(z).tobytes()


def test_members_must_be_equally_many_and_only_in_a_branch() -> None:
    chain = averaged(3)
    for wrong, complaint in ((np.zeros((2, WIDTH)), "do not fit"), (np.zeros((1, 3, WIDTH)), r"bias must hold")):
        with pytest.raises(BadFile, match=complaint):
            chain_of(structure_of(chain), chain.parameters() | {"2.branches.1.0.bias": wrong}, WIDTH)
    with pytest.raises(BadFile, match=r"1\.factor must hold"):
        chain_of(structure_of(chain), chain.parameters() | {"1.factor": np.ones(3)}, WIDTH)


@pytest.mark.parametrize(
    ("structure", "complaint"),
    [
        (None, "cannot be read"),
        ([7], "unknown step 7; known are Centre"),
        ([["Scale"]], "cannot be read"),
        ([{}], "cannot be read"),
        (["__import__"], "unknown step '__import__'"),
        (["Step"], "unknown step 'Step'"),
        ([{"Scale": []}], "cannot be read"),
        (["Stack"], r"0\.shares.* is missing"),
        (["Corrected"], "cannot be read"),
        ([{"Stack": 3}], "cannot be read"),
        ([{"Corrected": [["Scale"]]}], r"'0\.branches\.0\.0\.factor' is missing"),
    ],
    ids=str,
)
def test_an_invalid_structure_is_refused(structure: Any, complaint: str) -> None:
    arrays = {"0.share": np.ones(()), "0.factor": np.ones(())}
    with pytest.raises(BadFile, match=complaint), errors_as_bad_file("a file"):
        chain_of(structure, arrays, WIDTH)


@pytest.mark.parametrize("n_branches", [0, 2])
def test_a_floor_has_one_branch(n_branches: int) -> None:
    arrays = {"0.depth": np.ones(()), "0.reach": np.ones(())}
    with pytest.raises(BadFile, match="do not fit together"):
        chain_of([{"Floor": [[]] * n_branches}], arrays, WIDTH)


def test_a_map_that_overflows_is_refused() -> None:
    with pytest.raises(BadFile, match="not finite"):
        chain_of(["Scale", "Scale"], {"0.factor": np.array(1e200), "1.factor": np.array(1e200)}, WIDTH)


def test_a_subclass_with_the_name_of_a_step_is_not_taken_for_it() -> None:
    stranger = type("Scale", (Scale,), {})
    with pytest.raises(GlayersError, match="Scale cannot be saved"):
        structure_of(Chain((stranger(np.ones(())),)))


def test_several_branches_come_back_and_need_a_share_each() -> None:
    chain = Chain((KeepOrder.of(Chain((Stack(np.array([0.25, 0.75]), (averaged(3), INNER)),))),))
    structure = structure_of(chain)
    assert structure == [{"KeepOrder": [[{"Stack": [structure_of(averaged(3)), ["Dense", "Relu"]]}]]}]
    z = np.random.default_rng(1).normal(size=(9, WIDTH))
    assert chain_of(structure, chain.parameters(), WIDTH)(z).tobytes() == chain(z).tobytes()
    with pytest.raises(BadFile, match="do not fit together"):
        chain_of(structure, chain.parameters() | {"0.branches.0.0.shares": np.ones(1)}, WIDTH)


@pytest.mark.parametrize("holder", ["KeepOrder", "Stack"])
def test_a_branch_may_return_a_single_logit_or_add_the_reference_class(holder: str) -> None:
    for inner in ([], ["Reference"]):
        arrays = {"0.slope": np.array(0.1)} if holder == "KeepOrder" else {"0.shares": np.ones(1)}
        assert chain_of([{holder: [inner]}], arrays, 1)(np.ones((3, 1))).shape == (3, 2)
