"""A fitted calibrator -> another file, or its own facts.

`export` writes ONNX, alone or behind its network, `adapt` a new model, and `info` prints what a model is.
"""

import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from glayers.cli import arguments as arg
from glayers.cli.runtime import flag, show, show_json, show_note, title, verb
from glayers.errors import GlayersWarning, needs_extra, shown
from glayers.files import errors_as_bad_file
from glayers.predictions.contents import Reading, listed


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
    group: Annotated[str | None, typer.Option(metavar="NAME", help="The group, for a model fitted by group.")] = None,
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
    from glayers.calibrators import GroupCalibrator, load

    if (network is None) != (inputs is None) or (float64 and network):
        raise typer.BadParameter("--network and --inputs belong together; the network decides about float64")
    target = arg.Output(output, force, (model, network, inputs))
    calibrator: Any = load(model)
    if isinstance(calibrator, GroupCalibrator):
        if group is None:
            raise typer.BadParameter(
                f"{arg.name_of(model)} was fitted by group, and an ONNX file holds one group: give --group and one of "
                f"{listed(calibrator.shares_)}; any other name gives the common calibrator"
            )
        if group not in calibrator.shares_:
            known = f"known groups are {listed(calibrator.shares_)}" if calibrator.shares_ else "no group has one"
            warnings.warn(
                f"group {shown(group)} has no correction, so the file holds the common calibrator; {known}",
                GlayersWarning,
                stacklevel=2,
            )
        calibrator = calibrator.for_group(group)
    elif group is not None:
        raise typer.BadParameter(f"{arg.name_of(model)} was not fitted by group; leave --group out")
    if network is None or inputs is None:
        calibrator.to_onnx(output, "float64" if float64 else "float32")
    else:
        with needs_extra("onnx"):
            from glayers.serving import onnx
        with errors_as_bad_file(inputs):
            examples = np.load(inputs, allow_pickle=False)
        onnx.append(network, calibrator, output, examples, class_axis=class_axis)
    if not quiet:
        behind = f" behind {arg.name_of(network)}" if network else ""
        show(f"wrote {target.path}: {arg.name_of(model)}{behind}, equal to NumPy on sampled inputs")


@verb
def adapt(
    model: Annotated[Path, arg.file_argument("MODEL", "A file from `glayers fit`.")],
    output: Annotated[Path, arg.output_option("OUT", "Where to write the adapted calibrator.")],
    file: Annotated[Path | None, arg.file_argument("NEW", f"New rows. {arg.PREDICTIONS} Labels are not used.")] = None,
    frequencies: Annotated[
        str | None,
        typer.Option(metavar="cat=0.2,dog=0.8", help="Known frequencies instead of NEW, by class name or number."),
    ] = None,
    reading: Reading = arg.READING,
    level: arg.Level = 0.95,
    fail_if_unexplained: Annotated[
        bool, flag("--fail-if-unexplained", text="Write nothing and exit with 3 if class shift does not explain NEW.")
    ] = False,
    force: arg.Force = False,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Adapt a calibrator to new class frequencies, estimated from rows without labels, and write it to a file.

    It prints the frequencies, and tests whether they differ from those of the calibration rows and whether other class
    frequencies explain the new rows at all.

    Examples
    --------
    $ glayers adapt model.safetensors new.csv -o adapted.safetensors
    $ glayers adapt model.safetensors new.csv -o new.safetensors --json
    """
    if (file is None) == (frequencies is None):
        raise typer.BadParameter("give either new rows, or their class frequencies with --frequencies")
    target = arg.Output(output, force, (model, file, reading.labels))
    calibrator = arg.calibrator_of_classes(model)
    if file is None:
        pairs = arg.pairs_of((frequencies or "").split(","), "frequencies", "cat=0.2,dog=0.8")
        try:
            given = {name: float(number) for name, number in pairs.items()}
        except ValueError as error:
            raise typer.BadParameter(f"cannot read the frequencies {frequencies!r}: they must be numbers") from error
        adapted = calibrator.adapt(frequencies=given)
    else:
        parts = arg.read_parts(arg.source_of([file], reading, calibrator.inputs), needs_labels=False, warn=False)
        rows: Any = arg.only_or("test", parts).rows
        adapted = calibrator.adapt(rows, level=level)
    adaptation = adapted.adaptation_
    refused = fail_if_unexplained and not adaptation.fit_p_value > 1 - level
    if not refused:
        target.check()
        adapted.save(output)
    if as_json:
        tests = {
            "shifted": adaptation.shifted,
            "unexplained": adaptation.unexplained,
            "output": None if refused else str(output),
        }
        show_json({**adaptation.to_dict(), **tests})
    elif not quiet:
        show(title(arg.name_of(model if file is None else file)), *str(adaptation).splitlines())
        if not refused:
            show(f"wrote {output}")
    arg.end_with([adaptation.sentences()[-1]] if refused else [])


@verb
def info(
    model: Annotated[Path, arg.file_argument("MODEL", "A file from `glayers fit`.")], as_json: arg.AsJson = False
) -> None:
    """Describe a fitted calibrator: its method and settings, the rows it was fitted on, and how the fit went.

    Examples
    --------
    $ glayers info model.safetensors
    $ glayers info model.safetensors --json
    """
    from glayers.calibrators import load

    calibrator = load(model)
    facts = calibrator.diagnostics_
    selection: Any = getattr(calibrator, "selection_", None)
    counts: Any = getattr(calibrator, "calibration_rows_", None)  # not of groups and several labels
    if as_json:
        show_json(
            {
                "calibrator": type(calibrator).__name__,
                "settings": {name: _plain(value) for name, value in calibrator.get_params(False).items()},
                "logits": calibrator.n_features_in_,
                "classes": len(calibrator.classes_),
                "class_names": calibrator.class_names_,
                "versions": calibrator.versions_,
                "diagnostics": facts.to_dict(),
                "selection": selection and selection.to_dict(),
                "calibration_rows": counts and counts.to_dict(),
            }
        )
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    unseen = len(facts.classes_never_seen)
    lines = {
        "method": facts.method,
        "settings": str(calibrator),
        "classes": f"{len(calibrator.classes_):,}" + (f", {unseen:,} of them never seen" if unseen else ""),
        "class names": listed(calibrator.class_names_ or ()) or "none",
        "fitted on": f"{facts.rows:,} rows",
        "mean loss": f"{facts.loss_before:.4f} before, {facts.loss_after:.4f} after, on the rows of the fit",
        "fit ended": facts.reason if facts.converged else f"not converged: {facts.reason}",
        "parameters": f"{facts.n_parameters:,}",
        "versions": ", ".join(f"{name} {number}" for name, number in calibrator.versions_.items()),
    }
    for name, text in lines.items():
        table.add_row(name, " ".join(text.split()))
    show(title(arg.name_of(model)), table, *([] if selection is None else ["", *str(selection).splitlines()]))
    for note in facts.notes:
        show_note(f"note: {note}")


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
