"""GLayers: what its recipes promise, what it keeps, what it refuses, and that the same seed gives the same bytes."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from glayers import GLayers, GlayersError, GlayersWarning, PaperGLayers, TemperatureScaling, metrics
from glayers.activations import softmax
from glayers.datasets import load_fashion_mnist
from glayers.maps import Chain, Dense, Scale, Stack
from tests.calibrators.simulation import by_class, draw, sample
from tests.strategies import Numbers

PAPER: dict[str, Any] = {"learning_rate": 1e-3, "weight_decay": 1e-3, "random_state": 0}
ONE_SETTING: dict[Any, dict[str, Any]] = {GLayers: {}, PaperGLayers: {"weight_decay": 1e-3}}
BOTH = pytest.mark.parametrize("g_layers", [GLayers, PaperGLayers])
FULL_BATCH = 10_000

edge_is_fine = pytest.mark.filterwarnings("ignore:g-layers. the best learning_rate:glayers.GlayersWarning")
no_gain_is_fine = pytest.mark.filterwarnings("ignore:g-layers fall back:glayers.GlayersWarning")


def bent(rows: int = 400, classes: int = 4) -> tuple[Numbers, Numbers]:
    world = sample(by_class, classes, rows, seed=3)
    return world.logits, world.labels


def loss_of(log_probabilities: Numbers, labels: Numbers) -> float:
    return -float(log_probabilities[np.arange(len(labels)), labels].mean())


# The two recipes.


@pytest.mark.parametrize("flaw", ["temperature", "class by class"])
def test_the_search_of_the_papers_recipe_ends_inside_what_it_tried(flaw: str) -> None:
    world = sample(by_class, 3, 200, seed=0)
    # A temperature asks for a strong weight decay, errors of single classes for a weak one.
    z = 3 * np.log(world.truth) if flaw == "temperature" else 4 * world.logits
    g = PaperGLayers(1, max_epochs=20, batch_size=50, random_state=0).fit(z, world.labels)
    (best,) = np.flatnonzero(g.cv_results_["chosen"])
    assert g.cv_results_["held_out_loss"][best] < g.cv_results_["held_out_loss"].min() + 1.1e-4
    for name in ("learning_rate", "weight_decay"):
        tried = g.cv_results_[name]
        assert min(tried) < tried[best] < max(tried)
    assert max(g.cv_results_["weight_decay"]) <= 1e4, "very large decays act alike"
    assert not [note for note in g.diagnostics_.notes if "of the search" in note]


@pytest.mark.parametrize(("tried", "end"), [([1e-9, 1e-8], "largest"), ([0.5, 1.0, 2.0], "smallest")])
def test_a_best_value_on_the_edge_of_the_given_grid_is_said(tried: list[float], end: str) -> None:
    z, labels = bent(200)
    with pytest.warns(GlayersWarning, match=f"best learning_rate of the search, .* is the {end} of those tried"):
        g = PaperGLayers(2, learning_rate=tried, weight_decay=[0.0], max_epochs=3, random_state=0).fit(3 * z, labels)
    assert any(end in note for note in g.diagnostics_.notes)


@pytest.mark.parametrize("seed", range(4))
def test_layers_that_never_left_their_start_say_that_temperature_is_returned(seed: int) -> None:
    world = sample(by_class, 3, 60, seed=seed)  # rounding makes gains of 1e-17 here, larger than their own errors
    with pytest.warns(GlayersWarning, match=r"g-layers fall back to temperature scaling.*\(0 \+- 0\)"):
        g = GLayers(max_epochs=0, random_state=0).fit(world.logits, world.labels)
    assert g.map_.n_parameters == 1


@pytest.mark.parametrize("columns", [3, 10])
def test_no_constant_added_to_a_row_changes_the_default_recipe(columns: int) -> None:
    z, labels = bent(300, columns)
    shift = np.random.default_rng(0).normal(size=(300, 1)) * 50
    plain, shifted = (GLayers(max_epochs=4, random_state=0).fit(logits, labels) for logits in (z, z + shift))
    assert [step for step in plain.map_.steps if isinstance(step, Stack)], "g is in use"
    assert plain.predict_proba(z + shift) == pytest.approx(plain.predict_proba(z), abs=1e-9)
    assert shifted.predict_proba(z) == pytest.approx(plain.predict_proba(z), abs=1e-6)


def behind_floor(chain: Any) -> Chain:
    """Return the layers in the branch of the floor."""
    return chain.steps[0].branches[0]


@pytest.mark.parametrize("g", [GLayers(learning_rate=0.03), PaperGLayers(**PAPER)], ids=["default", "paper"])
def test_training_that_ends_at_the_last_epoch_allowed_says_so(g: Any) -> None:
    with pytest.warns(GlayersWarning, match=r"loss at epoch 2 of at most 2 \(max_epochs\)"):
        found = g.set_params(max_epochs=2).fit(*bent())
    assert not found.diagnostics_.converged


def test_the_papers_recipe_with_one_setting_skips_the_search() -> None:
    z, labels = bent()
    g = PaperGLayers(max_epochs=3, **PAPER).fit(z, labels)
    assert np.isnan(g.cv_results_["held_out_loss"]).tolist() == [True]
    assert g.out_of_fold_ is None
    # Nothing is held out, so one group and one row are enough.
    PaperGLayers(max_epochs=3, **PAPER).fit(z, labels, groups=np.zeros(len(z)))


@edge_is_fine
def test_the_papers_recipe_chooses_the_setting_of_least_held_out_loss() -> None:
    z, labels = bent()
    g = PaperGLayers(learning_rate=[1e-2, 1e-6], weight_decay=[0.0, 1.0], max_epochs=8, random_state=0)
    g.fit(z, labels)
    assert g.cv_results_["learning_rate"].tolist() == [1e-2, 1e-2, 1e-6, 1e-6]
    assert g.cv_results_["weight_decay"].tolist() == [0.0, 1.0, 0.0, 1.0]
    losses = g.cv_results_["held_out_loss"]
    winner = int(losses.argmin())
    rate, decay = g.cv_results_["learning_rate"][winner], g.cv_results_["weight_decay"][winner]
    assert rate == 1e-2, "a rate of 1e-6 goes nowhere in 8 epochs"
    # The refit on all rows is the fit with that one setting.
    alone = PaperGLayers(learning_rate=rate, weight_decay=decay, max_epochs=8, random_state=0).fit(z, labels)
    assert np.array_equal(alone.predict_proba(z), g.predict_proba(z))
    # And its out-of-fold predictions are those whose loss was compared; folds of 80 rows weigh alike.
    assert g.out_of_fold_.shape == z.shape
    assert loss_of(g.out_of_fold_, labels) == pytest.approx(float(losses[winner]), rel=1e-6)


@pytest.mark.parametrize("n_layers", [1, 2, 4, 5])
def test_settings_of_three_layers_serve_other_depths(n_layers: int) -> None:
    z, labels = bent()
    g = PaperGLayers(n_layers, max_epochs=10, **PAPER).fit(z, labels)
    assert sum(isinstance(step, Dense) for step in behind_floor(g.map_).steps) == n_layers
    # h = 3 and 4 classes: 14 hidden units.
    sizes = [4, *[14] * (n_layers - 1), 4]
    expected = sum(a * b + b for a, b in pairwise(sizes))
    assert g.n_parameters_ == expected
    assert g.diagnostics_.loss_after < g.diagnostics_.loss_before


def test_the_papers_recipe_keeps_the_epoch_of_least_training_loss() -> None:
    z, labels = bent()
    g = PaperGLayers(max_epochs=12, **(PAPER | {"learning_rate": 0.05})).fit(z, labels)
    history = g.history_["train_loss"]
    assert g.diagnostics_.loss_after == pytest.approx(float(history.min()), rel=1e-5)
    assert g.diagnostics_.reason == f"lowest training loss at epoch {history.argmin()} of at most 12 (max_epochs)"


def test_a_calibrated_network_comes_back_by_temperature_scaling_with_a_word() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(1000, 4)) * 2
    labels = draw(softmax(z), rng)
    with pytest.warns(GlayersWarning, match="fall back to temperature scaling"):
        g = GLayers(random_state=0).fit(z, labels)
    expected = TemperatureScaling().fit(z, labels)
    assert g.predict_proba(z) == pytest.approx(expected.predict_proba(z), abs=1e-12)
    assert g.n_parameters_ == 1
    assert np.array_equal(g.predict(z), z.argmax(axis=1))


def test_decay_to_the_start_changes_the_fit() -> None:
    z, labels = bent()
    plain = PaperGLayers(max_epochs=3, **PAPER).fit(z, labels).predict_proba(z)
    other = PaperGLayers(max_epochs=3, decay_to="start", **PAPER).fit(z, labels).predict_proba(z)
    assert np.isfinite(other).all()
    assert not np.array_equal(other, plain)


def test_strong_decay_to_the_start_stays_there_and_to_zero_shrinks() -> None:
    z, labels = bent()
    strong = PAPER | {"weight_decay": 1e4, "max_epochs": 5, "n_layers": 2}
    start = PaperGLayers(decay_to="start", **strong).fit(z, labels)
    free = PaperGLayers(**(strong | {"weight_decay": 0.0})).fit(z, labels)
    zero = PaperGLayers(decay_to="zero", **(strong | {"weight_decay": 1e-2, "max_epochs": 20})).fit(z, labels)
    sizes = [float((chain.parameters()["0.branches.0.0.weight"] ** 2).sum()) for chain in (zero.map_, free.map_)]
    carried = np.eye(4, 8) - np.eye(4, 8, 4)
    moved = [np.abs(g.map_.parameters()["0.branches.0.0.weight"][:, :8] - carried).max() for g in (start, free)]
    assert moved[0] < 0.3 * moved[1]
    assert sizes[0] < sizes[1]


def test_a_glorot_start_runs_and_begins_worse() -> None:
    z, labels = bent()
    transparent = PaperGLayers(max_epochs=5, **PAPER).fit(z, labels)
    with pytest.warns(GlayersWarning, match="did not lower the loss"):
        glorot = PaperGLayers(start="glorot", max_epochs=5, **PAPER).fit(z, labels)
    assert glorot.history_["train_loss"][0] > transparent.history_["train_loss"][0] + 0.1


# Seeds, threads, weights, groups.


@pytest.mark.parametrize("g", [GLayers(), PaperGLayers(**PAPER)], ids=["default", "paper"])
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(g: Any) -> None:
    z, labels = bent()
    one, same, other = (
        g.set_params(max_epochs=4, random_state=seed).fit(z, labels).predict_proba(z) for seed in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_fitting_does_not_touch_the_global_generators() -> None:
    z, labels = bent()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    GLayers(max_epochs=2, random_state=0).fit(z, labels)
    assert torch.equal(torch.get_rng_state(), before)


def test_one_and_two_threads_give_the_same_bytes() -> None:
    calibration, test = load_fashion_mnist()
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            g = GLayers(max_epochs=1, learning_rate=0.01, random_state=0).fit(calibration.logits, calibration.labels)
            found.append(g.predict_proba(test.logits))
    finally:
        torch.set_num_threads(threads)
    assert np.array_equal(found[0], found[1])


def test_weights_are_repeated_rows() -> None:
    # One batch an epoch, so that both descend the very same objective; with minibatches only the optimum is shared.
    z, labels = bent(120)
    times = np.random.default_rng(0).integers(0, 4, 120)
    rows = np.repeat(np.arange(120), times)
    settings = PAPER | {"batch_size": FULL_BATCH, "max_epochs": 30}
    weighted = PaperGLayers(**settings).fit(z, labels, sample_weight=times)
    repeated = PaperGLayers(**settings).fit(z[rows], labels[rows])
    assert weighted.predict_proba(z) == pytest.approx(repeated.predict_proba(z), abs=1e-7)
    assert weighted.diagnostics_.loss_before == pytest.approx(repeated.diagnostics_.loss_before, rel=1e-9)
    assert weighted.diagnostics_.loss_after == pytest.approx(repeated.diagnostics_.loss_after, rel=1e-7)


@pytest.mark.filterwarnings("ignore:g-layers start from:glayers.GlayersWarning")
@no_gain_is_fine  # where the truthful rows weigh twenty times, z is right as it is
def test_the_default_recipe_leans_to_the_rows_that_weigh_more() -> None:
    # Half of the rows say class = argmax z, half say the class after it; weights choose whom to believe.
    rng = np.random.default_rng(0)
    z = rng.normal(size=(600, 3)) * 2
    truthful = rng.random(600) < 0.5
    labels = (draw(softmax(z), rng) + ~truthful) % 3
    shares = []
    for weight in (1.0, 20.0):
        g = GLayers(random_state=0, max_epochs=8).fit(z, labels, sample_weight=np.where(truthful, weight, 1.0))
        shares.append(float((g.predict(z) == z.argmax(axis=1)).mean()))
    assert shares[0] < shares[1]


@pytest.mark.parametrize(
    "g", [GLayers(), PaperGLayers(learning_rate=(1e-2, 1e-3), weight_decay=0.0)], ids=["default", "paper"]
)
@edge_is_fine
@no_gain_is_fine
def test_rows_of_one_group_are_predicted_by_one_fold(g: Any) -> None:
    rng = np.random.default_rng(0)
    z, labels = bent(100)
    # Each row three times over, shuffled: a group is three equal rows, perhaps with unequal labels.
    order = rng.permutation(300)
    logits, truth, groups = (np.repeat(part, 3, axis=0)[order] for part in (z, labels, np.arange(100)))
    truth = np.where(rng.random(300) < 0.2, (truth + 1) % 4, truth)
    together, apart = (
        g.set_params(max_epochs=4, random_state=0).fit(logits, truth, groups=each).out_of_fold_
        for each in (groups, None)
    )
    spread = [max(np.ptp(p[groups == g], axis=0).max() for g in range(100)) for p in (together, apart)]
    assert spread[0] < 1e-12
    assert spread[1] > 1e-4


def test_rows_out_of_fold_were_not_seen() -> None:
    # Random labels: a fit that saw them learns them by heart; one that did not cannot beat the entropy.
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=(200, 3)) * 2, rng.integers(0, 3, 200)
    by_heart: dict[str, Any] = {
        "learning_rate": (5e-3, 1e-2),
        "weight_decay": 0.0,
        "max_epochs": 80,
        "patience": 80,
        "batch_size": 50,
    }
    with pytest.warns(GlayersWarning, match="is the smallest of those tried"):
        g = PaperGLayers(3, 10, random_state=0, **by_heart).fit(z, labels)
    assert g.diagnostics_.loss_after < np.log(3) - 0.2
    assert loss_of(g.out_of_fold_, labels) > np.log(3)


@no_gain_is_fine
def test_the_default_recipe_does_not_believe_random_labels() -> None:
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=(300, 3)) * 2, rng.integers(0, 3, 300)
    g = GLayers(random_state=0).fit(z, labels)
    assert loss_of(g.out_of_fold_, labels) > np.log(3) - 0.01
    assert g.predict_proba(z).max() < 0.5


# Rows at the edge.


@no_gain_is_fine
@BOTH
def test_a_class_never_seen_keeps_a_small_finite_probability(g_layers: Any) -> None:
    z, labels = bent()
    seen = labels != 2
    with pytest.warns(GlayersWarning, match="no row is labelled 2: their probabilities cannot be calibrated"):
        g = g_layers(learning_rate=1e-3, max_epochs=4, random_state=0, **ONE_SETTING[g_layers]).fit(
            z[seen], labels[seen]
        )
    p = g.predict_proba(z[seen])
    assert g.diagnostics_.classes_never_seen == (2,)
    assert p.shape[1] == 4
    assert (p[:, 2] > 0).all()
    assert p[:, 2].mean() < softmax(z[seen])[:, 2].mean()
    assert np.isfinite(g.transform(z)).all()


@no_gain_is_fine
@BOTH
def test_labels_of_one_class_only_are_believed(g_layers: Any) -> None:
    z, _ = bent()
    with pytest.warns(GlayersWarning, match="no row is labelled 0, 2, 3"):
        g = g_layers(learning_rate=1e-2, max_epochs=25, random_state=0, **ONE_SETTING[g_layers]).fit(
            z, np.ones(len(z), dtype=int)
        )
    p = g.predict_proba(z)
    assert np.isfinite(p).all()
    assert p[:, 1].mean() > softmax(z)[:, 1].mean() + 0.05


@BOTH
def test_many_missing_classes_are_counted_not_listed(g_layers: Any) -> None:
    z = np.random.default_rng(0).normal(size=(40, 12))
    with pytest.warns(GlayersWarning, match="no row is labelled 2, 3, 4, 5, 6 and 5 more"):
        g_layers(learning_rate=1e-3, max_epochs=3, random_state=0, **ONE_SETTING[g_layers]).fit(z, np.arange(40) % 2)


@no_gain_is_fine
@BOTH
@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_huge_and_tiny_logits_are_fitted(g_layers: Any, size: float) -> None:
    z, labels = bent()
    g = g_layers(learning_rate=1e-3, max_epochs=6, random_state=0, **ONE_SETTING[g_layers]).fit(z * size, labels)
    assert np.isfinite(g.predict_proba(z * size)).all()
    assert g.diagnostics_.loss_after < g.diagnostics_.loss_before
    if g_layers is GLayers:
        # It starts from temperature, so the scale of the logits matters only to the prior of the temperature.
        plain = g_layers(learning_rate=1e-3, max_epochs=6, random_state=0, **ONE_SETTING[g_layers]).fit(z, labels)
        assert g.predict_proba(z * size) == pytest.approx(plain.predict_proba(z), abs=2e-3)


@no_gain_is_fine
@pytest.mark.filterwarnings("ignore:g-layers start from:glayers.GlayersWarning")
def test_equal_logits_teach_the_frequencies() -> None:
    labels = np.array([0] * 60 + [1] * 30 + [2] * 10)[np.random.default_rng(0).permutation(100)]
    g = GLayers(random_state=0, learning_rate=0.1).fit(np.zeros((100, 3)), labels)
    assert g.predict_proba(np.zeros((1, 3)))[0] == pytest.approx([0.6, 0.3, 0.1], abs=0.1)


@no_gain_is_fine
@pytest.mark.filterwarnings("ignore:g-layers start from:glayers.GlayersWarning")
@pytest.mark.filterwarnings("ignore:no row is labelled:glayers.GlayersWarning")
def test_two_rows_are_enough_and_one_is_refused_where_rows_are_held_out() -> None:
    z, labels = bent()
    p = GLayers(random_state=0, max_epochs=3).fit(z[:2], labels[:2]).predict_proba(z)
    assert np.isfinite(p).all()
    with pytest.raises(GlayersError, match="at least 2 rows, one to hold out; got 1"):
        GLayers(random_state=0).fit(z[:1], labels[:1])
    assert np.isfinite(PaperGLayers(**PAPER).fit(z[:1], labels[:1]).predict_proba(z)).all()


# What is refused.


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"loss": "hinge"}, r"loss must be one of \['brier', 'log'\]; got 'hinge'"),
        ({"start": "zero"}, "start must be one of 'glorot', 'transparent'; got 'zero'"),
        ({"decay_to": "one"}, "decay_to must be one of 'start', 'zero'; got 'one'"),
        ({"device": "toaster"}, "device 'toaster' cannot be used here: .*cpu"),
        ({"learning_rate": ["fast"]}, "learning_rate must be a number or a list of numbers, .*; got"),
        ({"n_layers": 0}, "n_layers must be at least 1, a whole number; got 0"),
        ({"units_per_class": 1}, "at least 8 units .* units_per_class >= 2"),
        ({"n_folds": 1}, "n_folds must be at least 2, a whole number; got 1"),
        ({"batch_size": 0}, "batch_size must be at least 1, a whole number; got 0"),
        ({"n_layers": 2.5}, "n_layers must be at least 1, a whole number; got 2.5"),
        ({"learning_rate": []}, "learning_rate must be a number or a list of numbers, each finite and not negative"),
        ({"learning_rate": -1.0}, "learning_rate must be a number or a list of numbers, each finite and not negative"),
        ({"weight_decay": [0.1, -0.1]}, "weight_decay must be .* each finite and not negative"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused_with_the_way_out(settings: dict[str, Any], complaint: str) -> None:
    for g_layers in (GLayers, PaperGLayers):
        if settings.keys() <= g_layers().get_params().keys():
            with pytest.raises(ValueError, match=complaint):
                g_layers(**settings).fit(*bent())


def test_a_fit_that_gains_nothing_warns() -> None:
    z, labels = bent()
    with pytest.warns(GlayersWarning, match="g-layers, paper recipe did not lower the loss of the calibration rows"):
        PaperGLayers(**(PAPER | {"learning_rate": 1e-30, "max_epochs": 2})).fit(z, labels)


def test_settings_are_kept_as_given_and_can_be_changed() -> None:
    g = PaperGLayers(4, 5, learning_rate=[1e-3], random_state=7)
    settings = g.get_params()
    assert settings["n_layers"] == 4
    assert settings["units_per_class"] == 5
    assert settings["learning_rate"] == [1e-3]
    assert g.set_params(n_layers=2, max_epochs=1).n_layers == 2
    assert "n_layers=2" in repr(g)
    with pytest.raises(ValueError, match="depth"):
        g.set_params(depth=3)


def test_the_map_begins_with_the_temperature_that_was_fitted() -> None:
    z, labels = bent()
    g = GLayers(max_epochs=3, random_state=0).fit(z, labels)
    scale = next(step for step in g.map_.steps if isinstance(step, Scale))
    assert 1 / float(scale.factor) == pytest.approx(TemperatureScaling().fit(z, labels).temperature_, rel=1e-9)


def test_a_progress_bar_writes_nothing_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    GLayers(max_epochs=2, random_state=0, progress=True).fit(*bent())
    assert capsys.readouterr().out == ""


@no_gain_is_fine
def test_a_start_that_tells_nothing_is_said() -> None:
    # Every label is the class after the likely one: no temperature helps.
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(500, 3))
    labels = (draw(softmax(z), rng) + 1) % 3
    with pytest.warns(GlayersWarning, match="g-layers start from temperature scaling: the logits carry no information"):
        GLayers(random_state=0).fit(z, labels)


def test_what_to_try_must_be_numbers_in_a_list() -> None:
    z, labels = bent()
    wrong_ones: list[Any] = [(rate for rate in [0.01]), "0.01"]
    for wrong in wrong_ones:
        with pytest.raises(GlayersError, match="a number or a list of numbers"):
            GLayers(learning_rate=wrong).fit(z, labels)


def test_the_diagnostics_speak_of_the_loss_that_was_minimised() -> None:
    z, labels = bent()
    g = PaperGLayers(max_epochs=5, **(PAPER | {"loss": "brier"})).fit(z, labels)
    assert g.diagnostics_.loss_after == pytest.approx(metrics.brier_sum(g.predict_proba(z), labels))
