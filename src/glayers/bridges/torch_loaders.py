"""A torch network and a loader of held-out data -> `Predictions`: logits and labels of every row, or of a sample.

A row is what has one label: an example, a pixel of an image, a token of a text. Pixels of one image and tokens of one
text form a group.
"""

import inspect
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
    label_key: str | None = None,
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
        dictionary are passed by name. All inputs move to the device of the network's first parameter, and floats
        to its type.
    class_axis
        The axis of the classes, needed for logits of more than two axes: 1 for (images, classes, height, width), -1 for
        (texts, tokens, classes). The first axis counts images or texts, which become groups.
    ignore_label
        Rows with this label are left out; often 255 in segmentation. None keeps all.
    label_key
        The key of the labels in batches that are dictionaries, if it is neither `labels` nor `label`.
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
    most = None if max_rows is None else whole_number(max_rows, "max_rows", least=1)
    random = np.random.default_rng(random_state)
    parts: list[list[Array]] = []  # of the sample: logits, labels, groups, random numbers
    highest = 1.0  # of all rows, those with the smallest random numbers are kept
    n_items = n_labels = n_kept = 0
    n_batches = len(loader) if isinstance(loader, Sized) else None
    with in_evaluation(network), progress_bar(progress, "collecting logits", n_batches) as advance:
        for number, batch in enumerate(loader):
            logits, shaped = _run(network, batch, f"batch {number}", class_axis, label_key)
            labels = shaped.flatten().cpu().numpy()
            groups = n_items + np.repeat(np.arange(len(shaped)), len(labels) // max(1, len(shaped)))
            numbers = random.random(len(labels))  # also of ignored rows, so that labels do not change the draws
            kept = numbers < highest
            if ignore_label is not None:
                kept &= labels != ignore_label
            chosen = np.flatnonzero(kept)
            own = to_numpy(logits[torch.as_tensor(chosen, device=logits.device)], "logits")
            wide = own if own.dtype == np.float64 else own.astype(np.float32, copy=False)
            parts.append([wide, labels[chosen], groups[chosen], numbers[chosen]])
            n_items += len(shaped)
            n_labels += len(labels)
            n_kept += len(chosen)
            if most is not None and n_kept > 2 * most:
                parts = [_smallest(parts, most)]
                highest = parts[0][-1].max()
                n_kept = most
            advance()
    if not n_labels:
        raise BadPredictions("the loader gave no rows; it must yield (inputs, labels). Is its data empty, or used up?")
    if not n_kept:
        raise BadPredictions(f"all {n_labels:,} labels are ignore_label={ignore_label}; no row is left")
    found = _smallest(parts, most)
    return Predictions(found[0], found[1], groups=found[2] if n_labels > n_items else None, class_names=class_names)


def _smallest(parts: list[list[Array]], most: int | None) -> list[Array]:
    """Return the rows with the smallest random numbers, in their order."""
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    rows = np.sort(np.argsort(columns[-1])[:most])
    return [column[rows] for column in columns]


def _run(
    network: nn.Module, batch: Any, name: str, class_axis: int | None, label_key: str | None
) -> tuple[Tensor, Tensor]:
    """Return logits (rows, logits) and labels (items, ...) of one batch, and check that every label has its logits."""
    inputs, given = _split(batch, name, label_key)
    labels = torch.as_tensor(given)
    if labels.ndim == 0:
        labels = labels[None]
    with torch.inference_mode():
        outputs = logits_of(_called(network, inputs, name))
    axis = axis_of(outputs, class_axis)
    if axis == 0:
        raise BadPredictions(f"class_axis must not be the first axis of {tuple(outputs.shape)}, which counts examples")
    by_row = outputs.movedim(axis, -1)
    if labels.shape == outputs.shape and outputs.shape[axis] == 1:
        labels = labels.movedim(axis, -1)[..., 0]  # (rows, 1), as losses for one logit want them
    if labels.shape != by_row.shape[:-1]:
        raise BadPredictions(
            f"{name}: for logits of shape {tuple(outputs.shape)}, labels must be class numbers of shape "
            f"{tuple(by_row.shape[:-1])}; got shape {tuple(labels.shape)}. Turn one-hot labels into numbers with "
            f"argmax, remove axes of length 1 with squeeze, and resize the logits if the network shrinks images"
        )
    _refuse_unshifted(inputs, labels, name)
    return by_row.reshape(-1, by_row.shape[-1]), labels


def _split(batch: Any, name: str, label_key: str | None) -> tuple[Any, Any]:
    """Return the inputs of a batch, a dictionary or something else, and its labels."""
    if isinstance(batch, Mapping):
        key = label_key or ("label" if "label" in batch and "labels" not in batch else "labels")
        if key not in batch:
            raise BadPredictions(
                f"{name} has no labels under {key!r}; it has {shown(list(batch))}. Name the entry with label_key=..."
            )
        return {other: value for other, value in batch.items() if other != key}, batch[key]
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise BadPredictions(
            f"{name} of the loader must be (inputs, labels) or a dictionary with labels; got {_kind(batch)}. "
            f"Change it in the collate function, or in a generator around the loader"
        )
    return batch[0], batch[1]


def _called(network: nn.Module, inputs: Any, name: str) -> Any:
    """Call the network with inputs by name or by position, after moving them to its device."""
    like = next(network.parameters(), None)
    if isinstance(inputs, tuple | list) and all(isinstance(each, Tensor) for each in inputs):
        return network(*(_moved(each, like) for each in inputs))
    inputs = _moved(inputs, like)
    if not isinstance(inputs, Mapping):
        return network(inputs)
    takes = inspect.signature(network.forward).parameters
    unknown = [key for key in inputs if key not in takes]
    if len(inputs) == 1 and unknown:  # such as {"image": ...} for forward(self, x)
        return network(inputs[unknown[0]])
    if unknown and not any(each.kind is each.VAR_KEYWORD for each in takes.values()):
        raise BadPredictions(
            f"{name} has entries that the network does not take: {shown(unknown)}; its forward takes "
            f"{shown(list(takes))}. Leave them out in the collate function, or name the labels with label_key=..."
        )
    return network(**inputs)


def _moved(value: Any, like: Tensor | None) -> Any:
    """Return tensors and arrays on the device of the network, floats also in its type; anything else unchanged."""
    if isinstance(value, Mapping):
        return {key: _moved(each, like) for key, each in value.items()}
    if not isinstance(value, Tensor | np.ndarray):
        return value
    tensor = torch.as_tensor(value)
    if like is None:
        return tensor
    both_floats = tensor.is_floating_point() and like.is_floating_point()
    return tensor.to(like.device, like.dtype if both_floats else None)


def logits_of(output: Any) -> Tensor:
    """Return the logits that a network returned: a tensor, or the field of a larger output."""
    found = output
    if isinstance(output, Mapping):
        found = output.get("logits", output.get("out", output))  # torchvision's name for segmentation
    elif not isinstance(output, Tensor):
        found = getattr(output, "logits", output)
    if not isinstance(found, Tensor) or not found.is_floating_point():
        raise BadPredictions(
            f"the network must return logits, as a tensor of floats or under the name logits; it returned "
            f"{_kind(found)}. Wrap it in a module whose forward returns the logits"
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
    axis = 1 if class_axis is None else whole_number(class_axis, "class_axis", least=-len(shape), most=len(shape) - 1)
    return axis % len(shape)


def _refuse_unshifted(inputs: Any, labels: Tensor, name: str) -> None:
    """Refuse labels that repeat the input tokens: a causal language model shifts them inside its own loss."""
    tokens = inputs.get("input_ids") if isinstance(inputs, Mapping) else None
    if isinstance(tokens, Tensor) and tokens.shape == labels.shape:
        counted = labels >= 0
        if counted.any() and torch.equal(labels[counted].cpu(), tokens[counted.to(tokens.device)].cpu()):
            raise BadPredictions(
                f"{name}: the labels are the input tokens themselves. The logits of a causal language model are about "
                f"the next token: shift the labels by one, and end each text with {IGNORED}"
            )


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


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')} and shape {tuple(value.shape)}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, Sized) else "")
