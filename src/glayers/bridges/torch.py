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
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from glayers.activations import as_one_logit, with_reference_class
from glayers.arrays import Array, Ints
from glayers.calibrators import AutoCalibrator, Calibrator, MultiLabelCalibrator, calibrator_of, load
from glayers.checks import MAX_SEED, check_class_names, whole_number
from glayers.errors import BadPredictions, GlayersError, GlayersWarning, needs_extra, shown
from glayers.maps.steps import Chain, Step, arrays_of
from glayers.metrics.streaming import RowSample, row_places
from glayers.predictions import MultiLabelPredictions, Predictions
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
        return self._by_row(logits, self._like_the_input)

    def predict_proba(self, logits: Tensor) -> Tensor:
        """Return calibrated probabilities, which sum to 1 along the axis of the classes: of both for a single logit.

        They are as precise as their type. The softmax of `forward` is less so where float32 cannot hold the logits: one
        of 1e4 is rounded by 5e-4.
        """
        return self._by_row(logits, self._probabilities)

    def _by_row(self, logits: Tensor, result: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what a function gives for calibrated rows, with the classes on their axis."""
        axis = axis_of(logits, self.class_axis)
        if logits.shape[axis] != self.n_logits or not logits.is_floating_point():
            raise BadPredictions(
                f"fitted on {self.n_logits} logits per row; got {logits.dtype} of shape {tuple(logits.shape)} with "
                f"classes on axis {axis}"
            )
        by_row = logits.movedim(axis, -1)
        with _without_autocast(logits.device.type):
            found = result(self.steps(by_row.reshape(-1, self.n_logits).to(self.compute_dtype)))
        return found.reshape(*by_row.shape[:-1], found.shape[-1]).movedim(-1, axis).to(logits.dtype)

    def _like_the_input(self, calibrated: Tensor) -> Tensor:
        return as_one_logit(calibrated) if self.n_logits == 1 else calibrated

    def _probabilities(self, calibrated: Tensor) -> Tensor:
        if self.link == "sigmoid":
            return torch.sigmoid(calibrated)
        return torch.softmax(with_reference_class(calibrated), dim=-1)

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

    def __init__(
        self, network: nn.Module, calibrator: Calibrator | MultiLabelCalibrator, class_axis: int | None = None
    ) -> None:
        super().__init__()
        if calibrator.inputs != "logits":
            raise BadPredictions(
                f"the calibrator was fitted on {calibrator.inputs}, and a network gives logits: fit it on logits"
            )
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

    def to_onnx(self, path: str | os.PathLike[str], *inputs: Any, **named: Any) -> None:
        """Write network and calibration to one ONNX file, after comparing it with NumPy on example inputs.

        Parameters
        ----------
        path
            Where to write. The outputs are `logits`, `probabilities` and `uncalibrated_logits`.
        *inputs, **named
            Example inputs as for `forward`, at least two rows: tensors, or tuples and dictionaries of tensors. The file
            accepts any number of rows, and other sizes, such as that of images, where the network allows it.

        Raises
        ------
        GlayersError
            If the results differ from those of NumPy. Nothing is written.
        """
        self._refuse_replaced_g()
        with needs_extra("onnx"):
            import onnxscript  # noqa: F401  # which torch needs to export

            from glayers.serving.onnx import append
        examples = tree_leaves((inputs, named))
        if not examples or not all(isinstance(example, Tensor) for example in examples):
            raise BadPredictions(
                f"to_onnx needs example inputs, tensors as `forward` takes them; got {shown(inputs or named)}"
            )
        arguments = inspect.signature(self.network.forward).bind(*inputs, **named).arguments
        logits_alone = self.network.register_forward_hook(lambda _network, _inputs, output: logits_of(output))
        try:
            with in_evaluation(self.network), warnings.catch_warnings(action="ignore"), torch.inference_mode():
                program = torch.onnx.export(
                    self.network,
                    inputs,
                    kwargs=named,
                    output_names=["logits"],
                    dynamic_shapes=tree_map(_free_sizes, arguments),
                    dynamo=True,
                    verbose=False,
                )
        finally:
            logits_alone.remove()
        assert program is not None  # noqa: S101  # torch returns one if it is given no file
        network = program.model_proto
        by_name = {
            given.name: example for given, example in zip(network.graph.input, tree_leaves(arguments), strict=True)
        }
        axis = self.calibration.class_axis
        append(network, self.calibrator, path, by_name, class_axis=1 if axis is None else axis)

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


def _free_sizes(example: Tensor) -> dict[int, Any]:
    """Return which sizes may vary: the number of rows always, others than 1 where the network allows it."""
    sizes = {axis: torch.export.Dim.AUTO for axis, size in enumerate(example.shape) if size > 1}
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
    network: nn.Module,
    loader: Iterable[Any],
    calibrator: Calibrator | MultiLabelCalibrator | str | None = None,
    **settings: Any,
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
        The calibrator to fit, or its name, such as "temperature"; by default `AutoCalibrator()`. For rows that may have
        several labels, `MultiLabelCalibrator()`: labels are then 0, 1 or NaN, in the shape of the logits.
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
    stripped = strip_softmax(network)
    several_labels = isinstance(calibrator, MultiLabelCalibrator)
    chosen: Any = calibrator if several_labels else calibrator_of(calibrator)  # before the network runs
    chosen.fit_predictions(collect_logits(stripped, loader, several_labels=several_labels, **settings))
    return CalibratedNetwork(stripped, chosen, settings.get("class_axis"))


class CalibrateAfterTraining:
    """What the callbacks of training libraries share: their settings are checked before the training.

    Parameters
    ----------
    calibrator, path, loader, **settings
        As the callbacks describe them.
    """

    def __init__(
        self,
        calibrator: Calibrator | MultiLabelCalibrator | str | None = None,
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
    several_labels: bool = False,
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
    several_labels
        Whether a row may have several labels, or none: labels are then 0 or 1, in the shape of the logits, and missing
        where they are NaN or `ignore_label`. `calibrate` sets it for a `MultiLabelCalibrator`.
    progress
        Whether to show a progress bar; None shows it at a terminal.

    Returns
    -------
    Predictions
        In the order of the loader; `MultiLabelPredictions` with `several_labels`. Logits of half precision are
        converted to float32.

    Examples
    --------
    >>> batches = [(torch.tensor([[2.0, 0.0, 1.0], [0.5, 3.0, 1.0]]), torch.tensor([0, -100]))]
    >>> collect_logits(nn.Identity(), batches).labels.tolist()
    [0]
    """
    if class_names is not None:
        class_names = tuple(map(str, class_names))
        check_class_names(class_names, len(class_names))  # before the network runs
    how = class_axis, ignore_label, max_rows, random_state, progress, several_labels
    logits, labels, groups = _collect(network, loader, *how)
    if several_labels:
        names = _class_names(network, logits.shape[1], class_names)
        if ignore_label is not None:
            labels = np.where(labels == ignore_label, np.nan, labels)
        return MultiLabelPredictions(logits, labels, groups=groups, label_names=names)
    names = _class_names(network, max(2, logits.shape[1]), class_names)
    return Predictions(logits, labels[:, 0], groups=groups, class_names=names)


def _collect(
    network: nn.Module,
    loader: Iterable[Any],
    class_axis: int | None,
    ignore_label: int | None,
    max_rows: int | None,
    random_state: int,
    progress: bool | None,
    several_labels: bool,
) -> tuple[Array, Array, Array | None]:
    """Return logits (n, m), labels (n, 1) or (n, m), and groups, if an item of the loader has several rows."""
    most = sys.maxsize if max_rows is None else whole_number(max_rows, "max_rows", least=1)
    sample = RowSample(most, whole_number(random_state, "random_state", least=0, most=MAX_SEED))
    n_items = n_rows = 0
    n_batches = len(loader) if isinstance(loader, Sized) else None
    with in_evaluation(network), progress_bar(progress, "collecting logits", n_batches) as advance:
        for number, batch in enumerate(loader):
            logits, labels, n_new = _run(network, batch, f"batch {number}", class_axis, several_labels)
            items = torch.arange(n_items, n_items + n_new).repeat_interleave(len(logits) // max(1, n_new))
            counted = torch.full(labels.shape, True) if ignore_label is None else labels != ignore_label
            rows = counted.any(dim=1).nonzero()[:, 0]
            columns: list[Any] = [column[rows].cpu().numpy() for column in (logits, labels, items)]
            drawable: Any = DrawnRows(*columns)
            sample.update(drawable, row_places(n_rows, len(logits))[rows.cpu().numpy()])
            n_items += n_new
            n_rows += len(logits)
            advance()
    if not n_rows:
        raise BadPredictions("the loader gave no rows; it must yield (inputs, labels). Is its data empty, or used up?")
    if not sample.n_seen:
        raise BadPredictions(f"all {n_rows:,} labels are ignore_label={ignore_label}; no row is left")
    kept: Any = sample.result()
    return kept.logits, kept.labels, kept.items if n_rows > n_items else None


def _class_names(network: nn.Module, n_classes: int, given: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the names that were given, those of a calibrator, or those of a Hugging Face model, one for each class."""
    if given is not None:
        return tuple(given)
    if isinstance(network, CalibratedNetwork):
        return network.calibrator.class_names_
    by_class = getattr(getattr(network, "config", None), "id2label", None) or {}
    names = tuple(str(by_class[c]) for c in range(n_classes) if c in by_class)
    if len(by_class) == n_classes == len(set(names)):
        return names
    return None


@dataclass
class DrawnRows:
    """Rows as a `RowSample` draws them: each for itself, with the number of its image or text."""

    logits: Array
    labels: Array
    items: Array
    groups: None = None

    def __len__(self) -> int:
        return len(self.items)

    def take(self, rows: Ints) -> Self:
        return self._trusted(logits=self.logits[rows], labels=self.labels[rows], items=self.items[rows])

    @classmethod
    def _trusted(cls, **columns: Any) -> Self:
        return cls(**columns)


def _run(
    network: nn.Module, batch: Any, name: str, class_axis: int | None, several_labels: bool
) -> tuple[Tensor, Tensor, int]:
    """Return logits (rows, m), labels (rows, 1) or (rows, m), and the number of items of one batch."""
    inputs, given = _split(batch, name)
    labels = torch.as_tensor(given).detach().cpu()
    with torch.inference_mode():
        outputs = logits_of(_called(network, inputs))
    if outputs.dtype != torch.float64:
        outputs = outputs.float()
    axis = axis_of(outputs, class_axis)
    by_row = outputs.movedim(axis, -1)
    logits = by_row.reshape(-1, by_row.shape[-1])
    n_items = len(by_row)
    if labels.shape == outputs.shape and (several_labels or outputs.shape[axis] == 1):
        # Labels (rows, 1) for one logit are what its losses want.
        return logits, labels.movedim(axis, -1).reshape(logits.shape), n_items
    if several_labels:
        raise BadPredictions(
            f"{name}: several labels per row must have the shape of the logits, {tuple(outputs.shape)}, and be 0 or 1; "
            f"got shape {tuple(labels.shape)}. For one label per row, use another calibrator"
        )
    if labels.shape != by_row.shape[:-1]:
        raise BadPredictions(
            f"{name}: for logits of shape {tuple(outputs.shape)}, labels must be class numbers of shape "
            f"{tuple(by_row.shape[:-1])}; got shape {tuple(labels.shape)}. Turn one-hot labels into numbers with "
            f"argmax, remove axes of length 1 with squeeze, and resize the logits if the network shrinks images. If a "
            f"row may have several labels, calibrate with MultiLabelCalibrator(), and collect with several_labels=True"
        )
    if isinstance(inputs, Mapping) and "input_ids" in inputs:
        _refuse_unshifted(inputs["input_ids"].cpu(), labels, name)
    return logits, labels.reshape(-1, 1), n_items


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
    move = partial(_moved, like=next(network.parameters(), None))
    if isinstance(inputs, Mapping):
        return network(**tree_map(move, dict(inputs)))
    if isinstance(inputs, tuple | list):
        return network(*tree_map(move, inputs))
    return network(move(inputs))


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
            f"which axis of logits of shape {shape} holds the classes? A network with one logit per row must return "
            f"(rows, 1): add .unsqueeze(1). Otherwise name it by class_axis: pass 1 for (images, classes, height, "
            f"width), or -1 for (texts, tokens, classes)"
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
