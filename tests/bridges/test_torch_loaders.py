"""A network and a loader become predictions: every kind of batch and output, ignored labels, groups and samples."""

import io
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from glayers import BadPredictions, Predictions
from glayers.bridges.torch import collect_logits

ITEMS, CLASSES = 12, 3
RNG = np.random.default_rng(0)
Z = torch.tensor(RNG.normal(size=(ITEMS, CLASSES)), dtype=torch.float32)
LABELS = torch.tensor(RNG.integers(0, CLASSES, ITEMS))
IMAGES = torch.tensor(RNG.normal(size=(ITEMS, CLASSES, 4, 5)), dtype=torch.float32)
MASKS = torch.tensor(RNG.integers(0, CLASSES, (ITEMS, 4, 5)))


class Returns(nn.Module):
    """A network that returns its input in the form that a library would."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, pixel_values: Tensor, scale: Tensor | None = None) -> Any:
        z = pixel_values if scale is None else pixel_values * scale
        forms = {
            "tensor": z,
            "dictionary": {"logits": z, "hidden": None},
            "torchvision": {"out": z, "aux": -z},
            "field": SimpleNamespace(loss=None, logits=z),
            "tuple": (z, z),
            "labels": z.argmax(dim=-1),
        }
        return forms[self.form]


def batches(inputs: Tensor, labels: Tensor, size: int = 5) -> list[Any]:
    return list(zip(torch.split(inputs, size), torch.split(labels, size), strict=True))


@pytest.mark.parametrize("form", ["tensor", "dictionary", "torchvision", "field"])
@pytest.mark.parametrize(
    "batch",
    [
        (Z, LABELS),
        [Z, LABELS.tolist()],
        ((Z,), LABELS),
        ({"pixel_values": Z}, LABELS),
        {"pixel_values": Z, "labels": LABELS},
        {"label": LABELS, "pixel_values": Z},
        {"pixel_values": Z / 2, "scale": torch.tensor(2.0), "labels": LABELS},
    ],
    ids=["tuple", "list", "one", "named", "labels", "label", "two"],
)
def test_every_kind_of_batch_and_output_gives_the_same_rows(form: str, batch: Any) -> None:
    found = collect_logits(Returns(form), [batch])
    assert np.array_equal(found.logits, Z.numpy())
    assert np.array_equal(found.labels, LABELS.numpy())
    assert found.groups is None


def test_rows_come_in_order_without_dropout_or_gradient() -> None:
    network = nn.Sequential(nn.Linear(CLASSES, CLASSES), nn.Dropout(0.9)).train()
    found = collect_logits(network, batches(Z, LABELS), class_names="abc")
    assert found.logits == pytest.approx(network.eval()(Z).detach().numpy(), abs=1e-6)
    assert np.array_equal(found.labels, LABELS.numpy())
    assert found.class_names == ("a", "b", "c")
    assert not next(iter(network.parameters())).grad


@pytest.mark.parametrize(
    ("network", "batch", "complaint"),
    [
        ("tensor", Z, r"batch 0 .* must be \(inputs, labels\) or a dictionary.* got tensor"),
        ("tensor", (1, 2, 3), r"got \(1, 2, 3\)"),
        ("tensor", {"pixel_values": Z}, r"batch 0 .* a dictionary with `labels` or `label`; got \{'pixel_values'"),
        ("tuple", (Z, LABELS), r"it returned \(tensor.*Wrap it"),
        ("labels", (Z, LABELS), "tensor of floats.*it returned tensor"),
        ("tensor", (Z, LABELS[1:]), r"logits of shape \(12, 3\), labels .* of shape \(12,\); got shape \(11,\)"),
        ("tensor", (Z, nn.functional.one_hot(LABELS)), r"got shape \(12, 3\). Turn one-hot labels"),
        ("tensor", (Z.flatten(), LABELS), r"which axis of logits of shape \(36,\)"),
        ("tensor", (IMAGES, MASKS), r"which axis of logits of shape \(12, 3, 4, 5\).*pass 1 for"),
    ],
)
def test_the_error_names_the_batch_or_output_that_is_wrong(network: str, batch: Any, complaint: str) -> None:
    with pytest.raises(BadPredictions, match=complaint):
        collect_logits(Returns(network), [batch])


@pytest.mark.parametrize(
    ("loader", "complaint"),
    [
        ([], "the loader gave no rows"),
        ([(Z[:0], LABELS[:0])], "the loader gave no rows"),
        ([(Z, torch.full_like(LABELS, -100))], "all 12 labels are ignore_label=-100"),
    ],
)
def test_a_loader_without_labels_is_refused(loader: list[Any], complaint: str) -> None:
    with pytest.raises(BadPredictions, match=complaint):
        collect_logits(nn.Identity(), loader)


def test_one_logit_may_have_labels_of_its_own_shape() -> None:
    found = collect_logits(nn.Identity(), [(Z[:, :1], (LABELS[:, None] > 0).float())])
    assert np.array_equal(found.labels, (LABELS > 0).numpy())
    found = collect_logits(nn.Identity(), [(IMAGES[:, :1], (MASKS[:, None] > 0).long())], class_axis=1)
    assert np.array_equal(found.labels, (MASKS > 0).numpy().ravel())


@pytest.mark.parametrize("axis", [1, -3, -1])
def test_pixels_are_rows_and_their_image_is_the_group(axis: int) -> None:
    given = IMAGES if axis != -1 else IMAGES.movedim(1, -1)
    masks = MASKS.clone()
    masks[:, 0] = 255
    found = collect_logits(nn.Identity(), batches(given, masks), class_axis=axis, ignore_label=255)
    counted = (masks != 255).numpy()
    assert np.array_equal(found.logits, IMAGES.movedim(1, -1).numpy()[counted])
    assert np.array_equal(found.labels, masks.numpy()[counted])
    assert np.array_equal(
        np.asarray(found.groups), np.broadcast_to(np.arange(ITEMS)[:, None, None], counted.shape)[counted]
    )


def test_none_ignores_no_label() -> None:
    with pytest.raises(BadPredictions, match=r"0\.\.2; row 0 has -100"):
        collect_logits(nn.Identity(), [(Z, torch.full_like(LABELS, -100))], ignore_label=None)


def sample(size: int, max_rows: int | None, labels: Tensor = MASKS, seed: int = 0) -> Predictions:
    loader = batches(IMAGES, labels, size)
    return collect_logits(nn.Identity(), loader, class_axis=1, max_rows=max_rows, random_state=seed, ignore_label=9)


def places(found: Predictions) -> list[int]:
    """Where the rows of a sample are among all rows."""
    everything = IMAGES.movedim(1, -1).reshape(-1, CLASSES).numpy()
    return [int(np.flatnonzero((everything == row).all(axis=1))[0]) for row in found.logits]


@pytest.mark.parametrize("max_rows", [1, 17, 100, 239])
def test_a_sample_has_its_size_and_order_whatever_the_batch_size_and_the_labels(max_rows: int) -> None:
    found = places(sample(1, max_rows))
    assert len(set(found)) == max_rows
    assert found == sorted(found)
    assert found == places(sample(7, max_rows)) == places(sample(7, max_rows, MASKS.flip(0)))
    assert found == places(sample(12, max_rows))
    if max_rows < 239:
        assert found != places(sample(12, max_rows, seed=1))
    assert np.asarray(sample(12, max_rows).groups).tolist() == [place // 20 for place in found]


def test_a_sample_leaves_out_ignored_rows_and_fills_up_with_others() -> None:
    masks = MASKS.clone()
    masks[::2] = 9
    found = sample(5, 100, masks)
    assert len(found) == 100
    assert set((np.asarray(found.groups) % 2).tolist()) == {1}
    assert len(sample(5, None, masks)) == len(sample(5, 10**6, masks)) == 120


def test_every_row_is_equally_likely_in_a_sample() -> None:
    counts = np.bincount([place for seed in range(200) for place in places(sample(5, 60, seed=seed))], minlength=240)
    # Binomial with 200 draws of 1/4: mean 50, standard deviation 6.1; of 240 rows, the most extreme lies within 4.5.
    assert counts.sum() == 200 * 60
    assert np.abs(counts - 50).max() < 4.5 * 6.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_inputs_take_the_type_of_the_network_and_its_logits_are_kept_exactly(dtype: torch.dtype) -> None:
    network = nn.Linear(CLASSES, CLASSES).to(dtype)
    found = collect_logits(network, [(Z, LABELS)])
    expected = network(Z.to(dtype)).detach()
    assert found.logits.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    assert np.array_equal(found.logits, expected.double().numpy())


def test_labels_that_repeat_the_tokens_are_refused() -> None:
    class Tokens(nn.Module):
        def forward(self, input_ids: Tensor) -> Tensor:
            return nn.functional.one_hot(input_ids, CLASSES) * 3.0

    tokens = MASKS[:, 0]
    with pytest.raises(BadPredictions, match="shift the labels by one"):
        collect_logits(Tokens(), [{"input_ids": tokens, "labels": tokens}], class_axis=-1)
    shifted = torch.cat([tokens[:, 1:], torch.full((ITEMS, 1), -100)], dim=1)
    found = collect_logits(Tokens(), [{"input_ids": tokens, "labels": shifted}], class_axis=-1)
    assert len(found) == ITEMS * 4


def test_a_loader_without_length_and_a_progress_bar_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    def given() -> Iterator[Any]:
        yield from batches(Z, LABELS)

    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert len(collect_logits(nn.Identity(), given(), progress=True)) == ITEMS
    assert len(collect_logits(nn.Identity(), given())) == ITEMS
