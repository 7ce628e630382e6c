"""A trained torch network f and held-out rows -> the calibrated network, g after f, as one module.

`calibrate` performs the steps of the paper: remove the softmax, collect logits and labels, fit g, and apply it after f.
"""

import warnings
from collections.abc import Iterable, Sized
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from glayers.activations import with_reference_class
from glayers.calibrators import Calibrator, GLayers
from glayers.errors import BadPredictions, GlayersWarning
from glayers.progress import progress_bar


class CalibratedMap(nn.Module):
    """A fitted calibrator as a module: logits in, calibrated logits out. Its parameters are buffers."""

    def __init__(self, calibrator: Calibrator) -> None:
        super().__init__()
        check_is_fitted(calibrator)
        self.chain = calibrator.map_
        for name, value in self.chain.parameters().items():
            self.register_buffer(_buffer(name), torch.tensor(np.asarray(value), dtype=torch.float32))

    def forward(self, logits: Tensor) -> Tensor:
        """Return calibrated logits (n, classes)."""
        # Half precision is too coarse for the computation; only the result is converted back to it.
        wide = logits if logits.dtype == torch.float64 else logits.float()
        held = {name: self.get_buffer(_buffer(name)).to(wide.dtype) for name in self.chain.parameters()}
        return with_reference_class(self.chain.with_parameters(held)(wide)).to(logits.dtype)


class CalibratedNetwork(nn.Module):
    """A network followed by its calibration."""

    def __init__(self, network: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        self.network = network
        self.calibration = CalibratedMap(calibrator)
        self.calibrator = calibrator

    def forward(self, inputs: Any) -> Tensor:
        """Return calibrated logits (n, classes) in place of the network's own."""
        return self.calibration(self.network(inputs))

    logits = forward

    def predict_proba(self, inputs: Any) -> Tensor:
        """Return calibrated probabilities (n, classes)."""
        return torch.softmax(self.logits(inputs), dim=-1)


def to_module(calibrator: Calibrator) -> CalibratedMap:
    """Return a fitted calibrator as a torch module: logits in, calibrated logits out.

    Parameters
    ----------
    calibrator
        Any fitted calibrator.

    Returns
    -------
    CalibratedMap
    """
    return CalibratedMap(calibrator)


def calibrate(
    network: nn.Module,
    loader: Iterable[Any],
    calibrator: Calibrator | None = None,
    progress: bool = False,
) -> CalibratedNetwork:
    """Calibrate a network on held-out data.

    Parameters
    ----------
    network
        A module that returns logits (rows, classes). A softmax at the end of an `nn.Sequential` is removed.
    loader
        Batches of (inputs, labels) that the network was not trained on.
    calibrator
        The calibrator to fit; by default `GLayers()`.
    progress
        Whether to show a progress bar.

    Returns
    -------
    CalibratedNetwork
    """
    stripped = strip_softmax(network)
    logits, labels = collect_logits(stripped, loader, progress)
    fitted = (GLayers() if calibrator is None else calibrator).fit(logits, labels)
    return CalibratedNetwork(stripped, fitted)


def strip_softmax(network: nn.Module) -> nn.Module:
    """Return the network without a softmax or log-softmax at its end; warn if there was one.

    Only the end of an nn.Sequential is visible from outside. If `forward` itself applies softmax, the fit refuses its
    outputs, because they look like probabilities.
    """
    if not isinstance(network, nn.Sequential) or len(network) == 0:
        return network
    last = network[-1]
    if isinstance(last, nn.Softmax | nn.LogSoftmax):
        warnings.warn(f"removed the final {type(last).__name__}: g needs logits", GlayersWarning, stacklevel=3)
        return network[:-1]
    inner = strip_softmax(last)
    return network if inner is last else nn.Sequential(*list(network)[:-1], inner)


def collect_logits(network: nn.Module, loader: Iterable[Any], progress: bool = False) -> tuple[Tensor, Tensor]:
    """Run the network over a loader in inference mode, and restore its training or evaluation mode afterwards."""
    # Restored for each part, so that a frozen part of a network in training stays frozen.
    modes = [(part, part.training) for part in network.modules()]
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    logits, labels = [], []
    n_batches = len(loader) if isinstance(loader, Sized) else 0
    network.eval()
    try:
        with torch.inference_mode(), progress_bar(progress, "collecting logits", n_batches) as advance:
            for number, batch in enumerate(loader):
                outputs, targets = _run(network, batch, number, device)
                logits.append(outputs)
                labels.append(targets)
                advance()
    finally:
        for part, training in modes:
            part.training = training
    if not logits:
        raise BadPredictions("the loader gave no batch; it must yield (inputs, labels)")
    return torch.cat(logits), torch.cat(labels)


def _run(network: nn.Module, batch: Any, number: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Run one batch, checking the batch and the output of the network."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise BadPredictions(f"batch {number} of the loader must be (inputs, labels); got {_kind(batch)}")
    inputs, targets = batch
    labels = torch.as_tensor(targets).cpu()
    labels = labels if labels.ndim else labels[None]
    outputs = network(torch.as_tensor(inputs).to(device))
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(labels):
        raise BadPredictions(
            f"the network must return one tensor of logits (rows, classes); for the {len(labels)} labels of batch "
            f"{number} it returned {_kind(outputs)}. Wrap it in a module whose forward returns the logits"
        )
    return outputs.float().cpu(), labels


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, Sized) else "")


def _buffer(name: str) -> str:
    return name.replace(".", "_")
