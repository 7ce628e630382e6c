"""Weights of a mixture by held-out loss: the optimum on the simplex, and what extra rows do."""

from typing import Any

import numpy as np
import pytest

from glayers.activations import softmax
from glayers.fitting.curvature import SMOOTH_LOSSES
from glayers.fitting.simplex import held_out_weights
from tests.strategies import Numbers

EXTRA = [0.0, 2.0, 1.0]


def three_parts(n_rows: int = 400, seed: int = 0) -> tuple[list[Numbers], Any, Numbers]:
    """Probabilities of three parts that each see one share of the truth, labels, and weights of rows."""
    rng = np.random.default_rng(seed)
    views = rng.normal(size=(3, n_rows, 4))
    labels = (2 * views[0] + views[1] + rng.gumbel(size=(n_rows, 4))).argmax(axis=1)
    return [softmax(2 * view) for view in views], labels, rng.uniform(0.2, 2, n_rows)


def mean_loss(parts: list[Numbers], labels: Any, rows: Numbers, extra: list[float], w: Numbers) -> float:
    """The held-out loss, with a row for each part that only this part explains."""
    mixed = np.log(np.tensordot(w, parts, axes=1))
    value = float(rows / rows.sum() @ SMOOTH_LOSSES["log"].rows(mixed, labels))
    effective = rows.sum() ** 2 / (rows**2).sum()
    return value - sum(count * np.log(weight) for count, weight in zip(extra, w, strict=True) if count) / effective


def test_no_mixture_has_a_lower_held_out_loss() -> None:
    parts, labels, rows = three_parts()
    found = held_out_weights(parts, labels, rows, EXTRA)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    least = mean_loss(parts, labels, rows, EXTRA, found)
    rng = np.random.default_rng(1)
    others = [*rng.dirichlet(np.ones(3), 200), *(0.98 * found + 0.02 * w for w in rng.dirichlet(np.ones(3), 50))]
    assert all(mean_loss(parts, labels, rows, EXTRA, w) >= least - 1e-9 for w in others)


def test_the_weights_of_labels_drawn_from_a_mixture_are_found() -> None:
    rng = np.random.default_rng(0)
    parts = [softmax(3 * rng.normal(size=(20_000, 4))) for _ in range(3)]
    true = np.array([0.5, 0.2, 0.3])
    mixed = np.log(np.tensordot(true, parts, axes=1))
    labels = (mixed + rng.gumbel(size=mixed.shape)).argmax(axis=1)
    assert held_out_weights(parts, labels, np.ones(20_000), EXTRA) == pytest.approx(true, abs=0.03)


def test_parts_that_say_the_same_have_the_weights_of_their_extra_rows() -> None:
    same, labels, rows = three_parts()
    found = held_out_weights([same[0]] * 3, labels, rows, [1.0, 2.0, 5.0])
    assert found == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=1e-3)


def test_extra_rows_pull_towards_their_part_and_less_with_more_rows() -> None:
    pulls = []
    for n_rows in (100, 10_000):
        parts, labels, rows = three_parts(n_rows)
        without, pulled = (held_out_weights(parts, labels, rows, [0, 0, extra])[2] for extra in (0.0, 5.0))
        assert pulled > without
        pulls.append(pulled - without)
    assert pulls[1] < pulls[0] / 5


def test_weights_of_rows_have_no_unit_and_a_weight_of_zero_is_no_row() -> None:
    parts, labels, rows = three_parts()
    rows[::3] = 0.0
    used = rows > 0
    found = held_out_weights(parts, labels, rows, EXTRA)
    assert held_out_weights(parts, labels, 1e6 * rows, EXTRA) == pytest.approx(found, abs=1e-5)
    alone = held_out_weights([part[used] for part in parts], labels[used], rows[used], EXTRA)
    assert alone == pytest.approx(found, abs=1e-5)


def test_the_order_of_parts_and_rows_means_nothing() -> None:
    parts, labels, rows = three_parts()
    found = held_out_weights(parts, labels, rows, EXTRA)
    order = np.random.default_rng(2).permutation(len(labels))
    turned = [parts[place][order] for place in (2, 0, 1)]
    again = held_out_weights(turned, labels[order], rows[order], [EXTRA[place] for place in (2, 0, 1)])
    assert again == pytest.approx(found[[2, 0, 1]], abs=1e-4)


def test_a_part_that_rules_labels_out_has_no_weight() -> None:
    parts, labels, rows = three_parts()
    parts[2][np.arange(400), labels] = 0.0
    found = held_out_weights(parts, labels, rows, [0.0, 0.0, 0.0])
    assert found[2] == pytest.approx(0, abs=1e-6)


def test_rows_that_no_part_explains_do_not_end_the_search() -> None:
    first = np.array([[0.9, 0.1], [1.0, 0.0]] * 10)
    second = np.array([[0.1, 0.9], [1.0, 0.0]] * 10)
    found = held_out_weights([first, second], np.array([0, 1] * 10), np.ones(20), [0.0, 0.0])
    assert found == pytest.approx([1, 0], abs=1e-6)
