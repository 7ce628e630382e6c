"""A torch network and a loader of held-out data -> `Predictions`: logits and labels of every row, or of a sample.

A row is what has one label: an example, a pixel of an image, a token of a text. Pixels of one image and tokens of one
text form a group.
"""

from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glayers.arrays import Array, to_numpy
from glayers.checks import whole_number
from glayers.errors import BadPredictions, shown
from glayers.predictions import Predictions
from glayers.progress import progress_bar

MAX_ROWS = 100_000
IGNORED = -100  # the default of torch's cross-entropy and of Hugging Face


def collect_logits(
    network: nn.Module,
    loader: Iterable[Any],
    *,
    class_axis: int | None = None,
    ignore_label: int | None = IGNORED,
    max_rows: int | None = MAX_ROWS,
    random_state: int = 0,
    class_names: Iterable[str] | None = None,
    progress: bool | None = None,
) -> Predictions:
    """Run a network over a loader, without gradients and in evaluation mode, and return its logits and the labels.

    Parameters
    ----------
    network
        A module that returns logits: as a tensor, in the field `logits` of a Hugging Face output, or under the key
        `logits` or `out` of a dictionary.
    loader
        Batches (inputs, labels), or dictionaries with the labels under `labels` or `label`. Inputs that are a
        dictionary are passed by name. Tensors move to the device of the network's first parameter, and floats to its
        type.
    class_axis
        The axis of the classes, needed for logits of more than two axes: 1 for (images, classes, height, width), -1 for
        (texts, tokens, classes). The first axis counts images or texts, which become groups.
    ignore_label
        Rows with this label are left out; often 255 in segmentation. None keeps all.
    max_rows
        Of more rows, a simple random sample of this size is kept: every row that is not ignored is equally likely,
        whatever its label, and the sample does not depend on the batch size. None keeps all.
    random_state
        Seed of the sample.
    class_names
        One name per class.
    progress
        Whether to show a progress bar; None shows it at a terminal.

    Returns
    -------
    Predictions
        In the order of the loader. Logits of half precision are converted to float32.

    Examples
    --------
    >>> batches = [(torch.tensor([[2.0, 0.0, 1.0], [0.5, 3.0, 1.0]]), torch.tensor([0, -100]))]
    >>> collect_logits(nn.Identity(), batches).labels.tolist()
    [0]
    """
    sample = _RowSample(max_rows, random_state)
    n_items = n_labels = 0
    n_batches = len(loader) if isinstance(loader, Sized) else None
    with in_evaluation(network), progress_bar(progress, "collecting logits", n_batches) as advance:
        for number, batch in enumerate(loader):
            logits, shaped_labels = _run(network, batch, f"batch {number}", class_axis)
            items = torch.arange(n_items, n_items + len(shaped_labels))
            labels = shaped_labels.flatten().cpu().numpy()
            groups = items.repeat_interleave(len(labels) // max(1, len(items))).numpy()
            counted = np.full(len(labels), True) if ignore_label is None else labels != ignore_label
            sample.add(logits, labels, groups, counted)
            n_items += len(items)
            n_labels += len(labels)
            advance()
    if not n_labels:
        raise BadPredictions("the loader gave no rows; it must yield (inputs, labels). Is its data empty, or used up?")
    sample.cut()
    if not sample.n_rows:
        raise BadPredictions(f"all {n_labels:,} labels are ignore_label={ignore_label}; no row is left")
    kept_logits, kept_labels, kept_groups, _ = sample.columns
    several_rows = n_labels > n_items
    return Predictions(kept_logits, kept_labels, groups=kept_groups if several_rows else None, class_names=class_names)


class _RowSample:
    """A simple random sample of rows that arrive in batches: those with the smallest random numbers."""

    def __init__(self, most: int | None, random_state: int) -> None:
        self.most = None if most is None else whole_number(most, "max_rows", least=1)
        self.random = np.random.default_rng(random_state)
        self.parts: list[list[Array]] = []
        self.n_rows = 0
        self.below = 1.0  # rows with larger random numbers are out

    def add(self, logits: Tensor, labels: Array, groups: Array, counted: Array) -> None:
        """Add rows, of which only those that are counted may be drawn."""
        numbers = self.random.random(len(labels))  # also of the others, so that labels do not change the draws
        chosen = np.flatnonzero(counted & (numbers < self.below))
        own_logits = to_numpy(logits[torch.as_tensor(chosen, device=logits.device)], "logits")
        self.parts.append([own_logits, labels[chosen], groups[chosen], numbers[chosen]])
        self.n_rows += len(chosen)
        if self.most is not None and self.n_rows > 2 * self.most:
            self.cut()

    def cut(self) -> None:
        """Keep the rows with the smallest random numbers, in their order."""
        self.columns = [np.concatenate(column) for column in zip(*self.parts, strict=True)]
        numbers = self.columns[-1]
        if self.most is not None and len(numbers) > self.most:
            kept = np.sort(np.argsort(numbers)[: self.most])
            self.columns = [column[kept] for column in self.columns]
            self.below = numbers[kept].max()
        self.parts = [self.columns]
        self.n_rows = len(self.columns[-1])


def _run(network: nn.Module, batch: Any, name: str, class_axis: int | None) -> tuple[Tensor, Tensor]:
    """Return logits (rows, logits) and labels (items, ...) of one batch, and check that every label has its logits."""
    inputs, given = _split(batch, name)
    labels = torch.as_tensor(given)
    with torch.inference_mode():
        outputs = logits_of(_called(network, inputs))
    if outputs.dtype != torch.float64:
        outputs = outputs.float()
    axis = axis_of(outputs, class_axis)
    by_row = outputs.movedim(axis, -1)
    if labels.shape == outputs.shape and outputs.shape[axis] == 1:
        labels = labels.movedim(axis, -1)[..., 0]  # (rows, 1), as losses for one logit want them
    if labels.shape != by_row.shape[:-1]:
        raise BadPredictions(
            f"{name}: for logits of shape {tuple(outputs.shape)}, labels must be class numbers of shape "
            f"{tuple(by_row.shape[:-1])}; got shape {tuple(labels.shape)}. Turn one-hot labels into numbers with "
            f"argmax, remove axes of length 1 with squeeze, and resize the logits if the network shrinks images"
        )
    if isinstance(inputs, Mapping) and "input_ids" in inputs:
        _refuse_unshifted(inputs["input_ids"].to(labels.device), labels, name)
    return by_row.reshape(-1, by_row.shape[-1]), labels


def _refuse_unshifted(tokens: Tensor, labels: Tensor, name: str) -> None:
    """Refuse labels that repeat the input tokens: a causal language model shifts them inside its own loss."""
    counted = labels >= 0
    if tokens.shape == labels.shape and counted.any() and torch.equal(tokens[counted], labels[counted]):
        raise BadPredictions(
            f"{name}: the labels are the input tokens themselves. The logits of a causal language model are about the "
            f"next token: shift the labels by one, and end each text with {IGNORED}"
        )


def _split(batch: Any, name: str) -> tuple[Any, Any]:
    """Return the inputs of a batch, a dictionary or something else, and its labels."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    if isinstance(batch, Mapping):
        for key in ("labels", "label"):
            if key in batch:
                return {other: value for other, value in batch.items() if other != key}, batch[key]
    raise BadPredictions(
        f"{name} of the loader must be (inputs, labels) or a dictionary with `labels` or `label`; got {shown(batch)}. "
        f"Change it in the collate function, or in a generator around the loader"
    )


def _called(network: nn.Module, inputs: Any) -> Any:
    """Call the network with inputs by name or by position, after moving them to its device."""
    like = next(network.parameters(), None)
    if isinstance(inputs, Mapping):
        return network(**{name: _moved(value, like) for name, value in inputs.items()})
    if isinstance(inputs, tuple | list):
        return network(*(_moved(value, like) for value in inputs))
    return network(_moved(inputs, like))


def _moved(value: Any, like: Tensor | None) -> Any:
    """Return a tensor on the device of the network, floats also in its type; anything else unchanged."""
    if like is None or not isinstance(value, Tensor):
        return value
    if value.is_floating_point() and like.is_floating_point():
        return value.to(like.device, like.dtype)
    return value.to(like.device)


def logits_of(output: Any) -> Tensor:
    """Return the logits that a network returned: a tensor, or the field of a larger output."""
    found = output
    if isinstance(output, Mapping):
        found = output.get("logits", output.get("out"))  # torchvision's name for segmentation
    elif hasattr(output, "logits"):
        found = output.logits
    if not isinstance(found, Tensor) or not found.is_floating_point():
        raise BadPredictions(
            f"the network must return logits, as a tensor of floats or under the name logits; it returned "
            f"{shown(output)}. Wrap it in a module whose forward returns the logits"
        )
    return found


def axis_of(logits: Tensor, class_axis: int | None) -> int:
    """Return the axis of the classes, counted from 0, without a guess."""
    shape = tuple(logits.shape)
    if class_axis is None and len(shape) != 2:
        raise BadPredictions(
            f"which axis of logits of shape {shape} holds the classes? Only (rows, classes) needs no class_axis; "
            f"pass 1 for (images, classes, height, width), or -1 for (texts, tokens, classes). A network with one "
            f"logit per row must return (rows, 1)"
        )
    if class_axis is None:
        return 1
    return whole_number(class_axis, "class_axis", least=-len(shape), most=len(shape) - 1) % len(shape)


@contextmanager
def in_evaluation(network: nn.Module) -> Iterator[None]:
    """Put a network in evaluation mode, and restore the mode of each part afterwards: a frozen part stays frozen."""
    modes = [(part, part.training) for part in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
