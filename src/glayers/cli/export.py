"""`export`: a fitted calibrator becomes an ONNX file, alone or behind its network."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from glayers.cli import arguments as arg
from glayers.cli.runtime import flag, show, verb
from glayers.files import errors_as_bad_file


@verb
def export(
    model: Annotated[Path, arg.file_argument("MODEL", "A file from `glayers fit`.")],
    output: Annotated[Path, arg.output_option("OUT", "Where to write the ONNX file.")],
    float64: Annotated[
        bool, flag("--float64", text="Use float64 for input and outputs; float32 is the default.")
    ] = False,
    network: Annotated[
        Path | None,
        typer.Option(metavar="FILE", readable=False, help="The network as ONNX, to write both in one file."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", readable=False, help="Example inputs of the network: .npy, or .npz by name."),
    ] = None,
    class_axis: Annotated[int, typer.Option(metavar="N", help="The axis of the classes in its output.")] = 1,
    force: arg.Force = False,
    quiet: arg.Quiet = False,
) -> None:
    """Write a calibrator as ONNX, after comparing its results with those of NumPy.

    The input is uncalibrated_logits, and the outputs are logits and probabilities. With --network, the inputs are those
    of the network.

    Examples
    --------
    $ glayers export model.safetensors -o model.onnx
    $ glayers export model.safetensors -o wide.onnx --float64
    """
    from glayers.loading import load
    from glayers.serving.predictor import needs_onnx

    if (network is None) != (inputs is None) or (float64 and network):
        raise typer.BadParameter("--network and --inputs belong together; the network decides about float64")
    target = arg.Output(output, force, (model, network, inputs))
    calibrator = load(model)
    if network is None or inputs is None:
        calibrator.to_onnx(output, "float64" if float64 else "float32")
    else:
        with needs_onnx():
            from glayers.serving import onnx
        with errors_as_bad_file(inputs):
            examples = np.load(inputs, allow_pickle=False)
        onnx.append(network, calibrator, output, examples, class_axis=class_axis)
    if not quiet:
        behind = f" behind {arg.name_of(network)}" if network else ""
        show(f"wrote {target.path}: {arg.name_of(model)}{behind}, equal to NumPy on sampled inputs")
