"""The theorem: g fitted by a proper loss makes q(g(z)) the true P(y | z), whatever f was, for every event at once."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from glayers import GLayers, PaperGLayers, TemperatureScaling
from glayers.activations import softmax, with_reference_class
from tests.calibrators.simulation import Sample, by_class, crossed, divergence, draw, ks_in_bounds, lone, sample
from tests.strategies import Numbers

WORLDS: dict[str, tuple[Callable[[Numbers], Numbers], int]] = {
    "crossed, 3 classes": (crossed, 3),
    "by class, 10 classes": (by_class, 10),
    "one logit": (lone, 1),
}

# In multiples of the bound. The largest of a dozen events is judged, and g is fitted: with as many rows to fit on as to
# judge by, its own error is of the size of the sampling error. Over five seeds of all worlds the truth itself gave 0.4
# to 1.1, the default recipe 0.7 to 2.2 in 24 of 25 and 2.7 once.
ALLOWED = 2.2

# Enough rows to judge by: uncalibrated logits exceed the bound many times over.
MANY = 4_000
# Where f is far from the truth, the default number of epochs ends a fit that is still improving.
PATIENT: dict[str, Any] = {"random_state": 0, "max_epochs": 100}


@cache
def rows_of(world: str, rows: int, seed: int) -> Sample:
    distortion, n_logits = WORLDS[world]
    return sample(distortion, n_logits, rows, seed)


@cache
def fitted(world: str, rows: int, seed: int = 1) -> GLayers:
    seen = rows_of(world, rows, seed)
    # Two layers cannot bend as the first world does; with more rows they would come no nearer.
    return GLayers(n_layers=3, random_state=0).fit(seen.logits, seen.labels)


def fresh(world: str) -> Sample:
    return rows_of(world, MANY, seed=2)


def kl_of(world: str, rows: int, seed: int = 1) -> float:
    return divergence(fresh(world).truth, fitted(world, rows, seed).predict_proba(fresh(world).logits))


def uncalibrated(logits: Numbers) -> Numbers:
    return softmax(with_reference_class(logits))


@pytest.mark.parametrize("world", WORLDS)
def test_predictions_approach_the_truth_as_rows_grow_and_every_event_is_calibrated_at_once(world: str) -> None:
    seen = rows_of(world, MANY, seed=1)
    temperature = TemperatureScaling().fit(seen.logits, seen.labels)
    by_temperature = divergence(fresh(world).truth, temperature.predict_proba(fresh(world).logits))
    # One draw of 500 rows may be a lucky one.
    few, many = float(np.mean([kl_of(world, 500, seed) for seed in (1, 3)])), kl_of(world, MANY)
    assert many < 0.7 * few
    assert many < 0.15 * by_temperature
    calibrated = ks_in_bounds(fitted(world, MANY).predict_proba(fresh(world).logits), fresh(world).labels)
    before = ks_in_bounds(uncalibrated(fresh(world).logits), fresh(world).labels)
    assert max(calibrated.values()) < ALLOWED, calibrated
    assert max(before.values()) > 2 * ALLOWED, "the test could not fail"
    assert max(ks_in_bounds(fresh(world).truth, fresh(world).labels).values()) < 1.5, "the truth would not pass"


# Two of these are a temperature away from the truth; that g-layers then return it is right, and said.
@pytest.mark.filterwarnings("ignore:g-layers fall back:glayers.GlayersWarning")
@pytest.mark.parametrize("network", ["half-trained", "badly trained", "overconfident"])
def test_it_does_not_matter_how_well_f_was_trained(network: str) -> None:
    rows, rng = 6_000, np.random.default_rng(0)  # fewer show no gain over a temperature of the badly trained one
    informative = rng.normal(size=(2 * rows, 5)) * 2
    labels = draw(softmax(informative), rng)
    noise = rng.normal(size=informative.shape)
    logits = {
        "half-trained": 0.3 * informative + 0.3 * noise,
        "badly trained": 2 * informative @ rng.normal(size=(5, 5)) / np.sqrt(5) + 3 * noise,
        "overconfident": 6 * informative + 6 * noise,
    }[network]
    g = GLayers(**PATIENT).fit(logits[:rows], labels[:rows])
    judged, truth = logits[rows:], labels[rows:]
    calibrated = ks_in_bounds(g.predict_proba(judged), truth)
    assert max(calibrated.values()) < ALLOWED, calibrated
    assert max(ks_in_bounds(softmax(judged), truth).values()) > 2 * ALLOWED


def test_least_squares_leads_to_the_same_predictions() -> None:
    world = "crossed, 3 classes"
    # Least squares learn more slowly: fewer rows would leave more of the sampling error.
    seen, judged = rows_of(world, 5_000, seed=1), rows_of(world, 5_000, seed=2)
    squares = GLayers(n_layers=3, loss="brier", **PATIENT).fit(seen.logits, seen.labels).predict_proba(judged.logits)
    logs = fitted(world, MANY).predict_proba(judged.logits)
    temperature = TemperatureScaling().fit(seen.logits, seen.labels).predict_proba(judged.logits)
    assert np.abs(squares - logs).mean() < 0.03
    assert np.abs(squares - judged.truth).mean() < 0.3 * np.abs(temperature - judged.truth).mean()
    assert max(ks_in_bounds(squares, judged.labels).values()) < ALLOWED


def test_the_papers_recipe_reads_what_softmax_throws_away() -> None:
    # How sharp the truth is depends on the level of a row, which no shift-invariant calibrator can see.
    def by_level(z: Numbers) -> Numbers:
        return (z - z.mean(axis=1, keepdims=True)) * (1 + np.tanh(z.mean(axis=1, keepdims=True)))

    seen, judged = sample(by_level, 3, MANY, seed=1), sample(by_level, 3, 5_000, seed=2)
    settings: dict[str, Any] = {"learning_rate": 3e-3, "weight_decay": 0.0, "max_epochs": 20}
    paper = PaperGLayers(random_state=0, **settings).fit(seen.logits, seen.labels)
    temperature = TemperatureScaling().fit(seen.logits, seen.labels)
    by_paper = divergence(judged.truth, paper.predict_proba(judged.logits))
    assert by_paper < 0.2 * divergence(judged.truth, temperature.predict_proba(judged.logits))
