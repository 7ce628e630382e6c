"""A calibrated torch network -> one ONNX file: torch exports the network, and the calibration is recorded behind it."""

import inspect
import os
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from glayers.bridges.torch_loaders import in_evaluation, logits_of
from glayers.calibrators import Calibrator
from glayers.errors import needs_extra


class _Logits(nn.Module):
    """A network that takes all inputs by position, the last ones under these names, and returns its logits alone."""

    def __init__(self, network: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.network, self.names = network, names

    def forward(self, *inputs: Tensor) -> Tensor:
        first = len(inputs) - len(self.names)
        return logits_of(self.network(*inputs[:first], **dict(zip(self.names, inputs[first:], strict=True))))


def export_network(
    network: nn.Module,
    calibrator: Calibrator,
    class_axis: int,
    path: str | os.PathLike[str],
    inputs: tuple[Tensor, ...],
    named: dict[str, Tensor],
) -> None:
    """Write the network and its calibration; `CalibratedNetwork.to_onnx` describes it."""
    with needs_extra("onnx"):
        import onnxscript  # noqa: F401  # which torch needs to export

        from glayers.serving.onnx import append
    names = [*list(inspect.signature(network.forward).parameters)[: len(inputs)], *named]
    given = (*inputs, *named.values())
    with in_evaluation(network), warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # torch warns of changes in its own code
        program = torch.onnx.export(
            _Logits(network, list(named)),
            given,
            input_names=names,
            output_names=["logits"],
            dynamic_shapes=(tuple(map(_free_sizes, given)),),
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # noqa: S101  # torch returns one if it is given no file
    examples = dict(zip(names, given, strict=True))
    append(program.model_proto, calibrator, path, examples, class_axis=class_axis)


def _free_sizes(example: Tensor) -> dict[int, Any]:
    """Return which sizes may vary: the number of rows always, others where the network allows it."""
    return {axis: torch.export.Dim.AUTO if axis else torch.export.Dim.DYNAMIC for axis in range(example.ndim)}
