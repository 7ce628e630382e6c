"""A trained torch network f and held-out rows -> the calibrated network, g after f, as one module.

`calibrate` performs the steps of the paper: remove the softmax, collect logits and labels, fit g, and apply it after f.

A step's `__call__` only reads its fields, so it runs on a module whose buffers and submodules have the names of the
fields: `chain_module` makes one. `torch.export` and `torch.compile` know modules well, and frozen dataclasses less. The
keys of the state_dict are the names of the arrays in a saved calibrator.

`collect_logits` turns a network and a loader into `Predictions`. A row is what has one label: an example, a pixel of an
image, a token of a text. Pixels of one image and tokens of one text form a group.
"""

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from glayers.activations import with_reference_class
from glayers.arrays import Array, to_numpy
from glayers.calibrators import AutoCalibrator, Calibrator, calibrator_of, load
from glayers.checks import whole_number
from glayers.errors import BadPredictions, GlayersError, GlayersWarning, needs_extra, shown
from glayers.maps.steps import Chain, Step, arrays_of
from glayers.predictions import Predictions
from glayers.progress import progress_bar
from glayers.serving.predictor import Predictor

__all__ = ["CalibratedMap", "CalibratedNetwork", "calibrate", "collect_logits", "strip_softmax", "to_module"]


class CalibratedMap(nn.Module):
    """A fitted calibrator as a module: logits in, calibrated logits out. Its parameters are buffers.

    Parameters
    ----------
    calibrator
        Any fitted calibrator.
    class_axis
        The axis of the classes, needed for logits of more than two axes: 1 for (images, classes, height, width), -1 for
        (texts, tokens, classes).
    """

    def __init__(self, calibrator: Predictor, class_axis: int | None = None) -> None:
        super().__init__()
        calibrator._check_fitted()
        self.n_logits = int(calibrator.n_features_in_)
        self.class_axis = class_axis
        self.compute_dtype = torch.float64  # gives the numbers of NumPy; `half()` of a network does not change it
        self.link = calibrator.link
        self.steps = chain_module(calibrator.map_)

    def forward(self, logits: Tensor) -> Tensor:
        """Return calibrated logits of the same shape. A single logit stays one: its sigmoid is the probability."""
        calibrated = self._computed(logits)
        if self.n_logits == 1 and self.link == "softmax":
            axis = axis_of(logits, self.class_axis)
            calibrated = calibrated.narrow(axis, 1, 1) - calibrated.narrow(axis, 0, 1)  # the log-odds of class 1
        return calibrated.to(logits.dtype)

    def predict_proba(self, logits: Tensor) -> Tensor:
        """Return calibrated probabilities, which sum to 1 along the axis of the classes: of both for a single logit.

        They are as precise as their type. The softmax of `forward` is less so where float32 cannot hold the logits: one
        of 1e4 is rounded by 5e-4.
        """
        calibrated = self._computed(logits)
        if self.link == "sigmoid":
            return torch.sigmoid(calibrated).to(logits.dtype)
        return torch.softmax(calibrated, dim=axis_of(logits, self.class_axis)).to(logits.dtype)

    def _computed(self, logits: Tensor) -> Tensor:
        """Return calibrated logits of the type of the computation."""
        with _without_autocast(logits.device.type):
            axis = axis_of(logits, self.class_axis)
            if logits.shape[axis] != self.n_logits or not logits.is_floating_point():
                raise BadPredictions(
                    f"fitted on {self.n_logits} logits per row; got {logits.dtype} of shape {tuple(logits.shape)} with "
                    f"classes on axis {axis}"
                )
            by_row = logits.movedim(axis, -1)
            result = self.steps(by_row.reshape(-1, self.n_logits).to(self.compute_dtype))
            if self.link == "softmax":
                result = with_reference_class(result)
            return result.reshape(*by_row.shape[:-1], result.shape[-1]).movedim(-1, axis)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow the network to its device, but not to half precision."""
        device = fn(torch.zeros(0)).device
        if device.type == "mps":  # Apple's devices have no float64
            self.compute_dtype = torch.float32
        return super()._apply(lambda buffer: buffer.to(device, self.compute_dtype), recurse)  # type: ignore[no-untyped-call]


class CalibratedNetwork(nn.Module):
    """A network followed by its calibration.

    Parameters
    ----------
    network
        A module that returns logits. A softmax at the end of an `nn.Sequential` is removed with a warning.
    calibrator
        A calibrator that was fitted on logits of this network.
    class_axis
        As for `calibrate`.
    """

    def __init__(self, network: nn.Module, calibrator: Calibrator, class_axis: int | None = None) -> None:
        super().__init__()
        self.network = strip_softmax(network)
        self.calibration = CalibratedMap(calibrator, class_axis)
        self.calibrator = calibrator
        self.training = network.training

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return calibrated logits in place of the network's own, always as a tensor."""
        return self.calibration(logits_of(self.network(*inputs, **named)))

    logits = forward

    def predict_proba(self, *inputs: Any, **named: Any) -> Tensor:
        """Return calibrated probabilities, which sum to 1 along the axis of the classes."""
        return self.calibration.predict_proba(logits_of(self.network(*inputs, **named)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write g, without the network, to one `.safetensors` file that `load` and `glayers.load` read.

        Examples
        --------
        >>> import tempfile
        >>> from glayers import TemperatureScaling
        >>> z, labels = torch.tensor([[2.0, 0.0, 1.0], [0.0, 2.0, -1.0], [2.0, 0.0, 0.5]]), torch.tensor([0, 1, 2])
        >>> calibrated = calibrate(nn.Identity(), [(z, labels)], TemperatureScaling())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     calibrated.save(f"{folder}/g.safetensors")
        ...     again = CalibratedNetwork.load(nn.Identity(), f"{folder}/g.safetensors")
        >>> torch.equal(again(z), calibrated(z))
        True
        """
        self._refuse_replaced_g()
        self.calibrator.save(path)

    def to_onnx(self, path: str | os.PathLike[str], *inputs: Tensor, **named: Tensor) -> None:
        """Write network and calibration to one ONNX file, after comparing it with NumPy on example inputs.

        Parameters
        ----------
        path
            Where to write. The outputs are `logits`, `probabilities` and `uncalibrated_logits`.
        *inputs, **named
            Example inputs as for `forward`, at least two rows. The file accepts any number of rows, and other sizes,
            such as that of images, where the network allows it.

        Raises
        ------
        GlayersError
            If the results differ from those of NumPy. Nothing is written.
        """
        self._refuse_replaced_g()
        with needs_extra("onnx"):
            import onnxscript  # noqa: F401  # which torch needs to export

            from glayers.serving.onnx import append
        names = [*list(inspect.signature(self.network.forward).parameters)[: len(inputs)], *named]
        examples = (*inputs, *named.values())
        with in_evaluation(self.network), warnings.catch_warnings(action="ignore"), torch.inference_mode():
            program = torch.onnx.export(
                _LogitsOf(self.network, list(named)),
                examples,
                input_names=names,
                output_names=["logits"],
                dynamic_shapes=(tuple(map(_free_sizes, examples)),),
                dynamo=True,
                verbose=False,
            )
        assert program is not None  # noqa: S101  # torch returns one if it is given no file
        axis = self.calibration.class_axis
        by_name = dict(zip(names, examples, strict=True))
        append(program.model_proto, self.calibrator, path, by_name, class_axis=1 if axis is None else axis)

    @classmethod
    def load(cls, network: nn.Module, path: str | os.PathLike[str], class_axis: int | None = None) -> Self:
        """Return a network followed by the g of a file that `save` or any fitted calibrator wrote."""
        return cls(network, load(path), class_axis)

    def _refuse_replaced_g(self) -> None:
        """Raise an error if the buffers are not those of the calibrator, which files are written from."""
        for name, value in self.calibrator.map_.parameters().items():
            held = self.calibration.steps.get_buffer(name).cpu()
            if not torch.equal(held, torch.tensor(np.asarray(value), dtype=held.dtype)):
                raise GlayersError(
                    "load_state_dict replaced g, so that this module no longer is what its `calibrator` says. Save the "
                    "state_dict, or save and export the network that it came from"
                )


class _LogitsOf(nn.Module):
    """A network that takes all inputs by position, the last ones under these names, and returns its logits alone."""

    def __init__(self, network: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.network = network
        self.names = names

    def forward(self, *inputs: Tensor) -> Tensor:
        n_positional = len(inputs) - len(self.names)
        named = dict(zip(self.names, inputs[n_positional:], strict=True))
        return logits_of(self.network(*inputs[:n_positional], **named))


def _free_sizes(example: Tensor) -> dict[int, Any]:
    """Return which sizes may vary: the number of rows always, others where the network allows it."""
    sizes: dict[int, Any] = dict.fromkeys(range(example.ndim), torch.export.Dim.AUTO)
    return sizes | {0: torch.export.Dim.DYNAMIC}


def to_module(calibrator: Predictor, class_axis: int | None = None) -> CalibratedMap:
    """Return a fitted calibrator as a torch module: logits in, calibrated logits out.

    Parameters
    ----------
    calibrator
        Any fitted calibrator.
    class_axis
        The axis of the classes, needed for logits of more than two axes: 1 for (images, classes, height, width), -1 for
        (texts, tokens, classes).

    Returns
    -------
    CalibratedMap
        `torch.export`, `torch.compile` and `torch.jit.trace` accept it. It computes in float64, and in float32 on
        Apple's `mps` devices, whatever the type of the logits and of the result.

    Examples
    --------
    >>> from glayers import TemperatureScaling
    >>> fitted = TemperatureScaling().fit([[2.0, 0.0, 1.0], [0.0, 2.0, -1.0], [2.0, 0.0, 0.5]], [0, 1, 2])
    >>> pixels = torch.zeros(5, 3, 32, 32)
    >>> to_module(fitted, class_axis=1)(pixels).shape
    torch.Size([5, 3, 32, 32])
    """
    return CalibratedMap(calibrator, class_axis)


def calibrate(
    network: nn.Module, loader: Iterable[Any], calibrator: Calibrator | str | None = None, **settings: Any
) -> CalibratedNetwork:
    """Calibrate a network on held-out data.

    Parameters
    ----------
    network
        A module that returns logits: as a tensor, or in the field `logits` of a Hugging Face output. A softmax or
        sigmoid at the end of an `nn.Sequential` is removed with a warning.
    loader
        Batches (inputs, labels) that the network was not trained on, or dictionaries with `labels`.
    calibrator
        The calibrator to fit, or its name, such as "temperature"; by default `AutoCalibrator()`.
    **settings
        Those of `collect_logits`: class_axis, ignore_label, max_rows, random_state, class_names, progress.

    Returns
    -------
    CalibratedNetwork
        The same network, not a copy, followed by g. It is in the training or evaluation mode that the network was in.

    Examples
    --------
    >>> z, labels = torch.tensor([[2.0, 0.0, 1.0], [0.0, 2.0, -1.0], [2.0, 0.0, 0.5]]), torch.tensor([0, 1, 2])
    >>> calibrated = calibrate(nn.Identity(), [(z, labels)], "temperature")
    >>> calibrated.predict_proba(z[:1]).shape
    torch.Size([1, 3])
    """
    if calibrator is None:
        calibrator = AutoCalibrator(progress=settings.get("progress"))
    chosen = calibrator_of(calibrator)
    stripped = strip_softmax(network)
    given = collect_logits(stripped, loader, **settings)
    return CalibratedNetwork(stripped, chosen.fit_predictions(given), settings.get("class_axis"))


class CalibrateAfterTraining:
    """What the callbacks of training libraries share: their settings are checked before the training.

    Parameters
    ----------
    calibrator, path, loader, **settings
        As the callbacks describe them.
    """

    def __init__(
        self,
        calibrator: Calibrator | str | None = None,
        path: str | os.PathLike[str] | None = None,
        loader: Iterable[Any] | None = None,
        **settings: Any,
    ) -> None:
        inspect.signature(collect_logits).bind(None, loader, **settings)  # raises for an unknown setting
        self.calibrator = calibrator
        self.path = path
        self.loader = loader
        self.settings = settings
        self.calibrated: CalibratedNetwork | None = None

    def _check_start(self, n_processes: int, without_rows: str) -> None:
        """Refuse what could not be calibrated; `without_rows` says why the trainer has no rows for it, if so."""
        if n_processes > 1:
            raise GlayersError(
                f"each of the {n_processes} processes sees only a part of the held-out rows: leave this callback out, "
                f"and call glayers.bridges.torch.calibrate after the training"
            )
        if self.loader is None and without_rows:
            raise GlayersError(without_rows)

    def _calibrate(self, network: nn.Module, loader: Iterable[Any] | None) -> None:
        """Calibrate and save g. Errors become warnings, so that no trained network is lost to them."""
        self.calibrated = None  # not that of an earlier training
        try:
            if loader is None:
                raise GlayersError("there is not exactly one validation loader; pass the one to use, loader=...")
            self.calibrated = calibrate(network, loader, self.calibrator, **self.settings)
            if self.path is not None:
                self.calibrated.save(self.path)
        except GlayersError as error:
            what = "calibrated" if self.calibrated is None else "saved"
            warnings.warn(
                f"the network is trained, but g could not be {what}: {error}. Call `calibrate` on the network",
                GlayersWarning,
                stacklevel=3,
            )


def strip_softmax(network: nn.Module) -> nn.Module:
    """Return the network without a softmax, log-softmax or sigmoid at its end; warn if there was one.

    Only the end of an nn.Sequential is visible from outside. If `forward` itself applies softmax, the fit refuses its
    outputs, because they look like probabilities.

    Parameters
    ----------
    network : Module
        A classifier.

    Returns
    -------
    Module
        The same network if it does not end in one of these; otherwise a new nn.Sequential of its other modules.

    Examples
    --------
    >>> with warnings.catch_warnings(action="ignore"):
    ...     len(strip_softmax(nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1))))
    1
    """
    if not isinstance(network, nn.Sequential) or len(network) == 0:
        return network
    last = network[-1]
    if isinstance(last, nn.Softmax | nn.LogSoftmax | nn.Sigmoid):
        warnings.warn(f"removed the final {type(last).__name__}: g needs logits", GlayersWarning, stacklevel=3)
        return network[:-1]
    inner = strip_softmax(last)
    return network if inner is last else nn.Sequential(*list(network)[:-1], inner)


def _without_autocast(device: str) -> AbstractContextManager[Any]:
    """Leave autocast, if it is on: matrix products in half precision would be too coarse."""
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def chain_module(chain: Chain) -> nn.Sequential:
    """Return the steps of a chain as modules, one after another.

    >>> from glayers.maps import Chain, Scale
    >>> module = chain_module(Chain((Scale(np.asarray(0.5)),)))
    >>> module(torch.tensor([[2.0, 4.0]])).tolist(), list(module.state_dict())
    ([[1.0, 2.0]], ['0.factor'])
    """
    return nn.Sequential(*(_step_module(step) for step in chain.steps))


def _step_module(step: Step) -> nn.Module:
    module = _class_of(type(step))()
    for name in arrays_of(type(step)):
        value = np.asarray(getattr(step, name), np.float64)
        module.register_buffer(name, torch.tensor(value))
    module.branches = nn.ModuleList(chain_module(chain) for chain in step.chains())
    return module


@cache
def _class_of(kind: type[Step]) -> type[nn.Module]:
    """Return the class of modules that compute what this kind of step computes."""
    own = {name: each for name, each in vars(kind).items() if not name.startswith("__")}
    methods: dict[str, Any] = {name: each for name, each in own.items() if inspect.isfunction(each)}
    methods["forward"] = kind.__call__
    # Pickle finds no class that is made here, so it asks for it again.
    methods["__reduce__"] = lambda module: (_new, (kind,), module.__dict__)
    return type(kind.__name__, (nn.Module,), methods)


def _new(kind: type[Step]) -> nn.Module:
    made = _class_of(kind)
    return made.__new__(made)


def collect_logits(
    network: nn.Module,
    loader: Iterable[Any],
    *,
    class_axis: int | None = None,
    ignore_label: int | None = -100,
    max_rows: int | None = 100_000,
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
        One name per class; by default those in the `config` of a Hugging Face model.
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
    if class_names is None:
        class_names = _names_in_config(network, max(2, kept_logits.shape[1]))
    return Predictions(kept_logits, kept_labels, groups=kept_groups if several_rows else None, class_names=class_names)


def _names_in_config(network: nn.Module, n_classes: int) -> list[str] | None:
    """Return the class names that a Hugging Face model has, if it has a different one for each class."""
    by_class = getattr(getattr(network, "config", None), "id2label", None) or {}
    names = [str(by_class[c]) for c in range(n_classes) if c in by_class]
    if len(by_class) == n_classes == len(set(names)):
        return names
    return None


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
            f"next token: shift the labels by one, and end each text with ignore_label"
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
