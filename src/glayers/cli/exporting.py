"""A fitted calibrator -> another file, or its own facts.

`export` writes ONNX, alone or behind its network, `adapt` a new model, and `info` prints what a model is.
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from glayers.cli import arguments as arg
from glayers.cli.runtime import flag, show, show_json, show_note, title
from glayers.errors import listed, needs_extra
from glayers.files import errors_as_bad_file
from glayers.predictions.contents import Reading

_FREQUENCIES = "Known frequencies instead of NEW, by class name or number."
_UNEXPLAINED = "Write nothing and exit with 3 if class shift does not explain NEW."


def export(
    model: arg.Model,
    output: Annotated[Path, arg.output_option("OUT", "Where to write the ONNX file.")],
    float64: Annotated[bool, flag("--float64", text="Use float64 for input and outputs, not float32.")] = False,
    network: Annotated[Path | None, arg.file_option("FILE", "The network as ONNX, to write both in one file.")] = None,
    inputs: Annotated[Path | None, arg.file_option("FILE", "Example inputs of the network: .npy or .npz.")] = None,
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
    from glayers.calibrators import load

    if (network is None) != (inputs is None) or (float64 and network):
        raise typer.BadParameter("--network and --inputs belong together; the network decides about float64")
    arg.check_output(output, force, model, network, inputs)
    calibrator = _of_group(load(model), group)
    behind = ""
    if network is None or inputs is None:
        calibrator.to_onnx(output, "float64" if float64 else "float32")
    else:
        with needs_extra("onnx"):
            from glayers.serving import onnx
        with errors_as_bad_file(inputs):
            examples = np.load(inputs, allow_pickle=False)
        onnx.append(network, calibrator, output, examples, class_axis=class_axis)
        behind = f" behind {arg.name_of(network)}"
    if not quiet:
        show(f"wrote {output}: {arg.name_of(model)}{behind}, equal to NumPy on sampled inputs")


def _of_group(calibrator: Any, group: str | None) -> Any:
    """Return what an ONNX file can hold: of a calibrator by group, that of one group."""
    from glayers.calibrators import GroupCalibrator

    if not isinstance(calibrator, GroupCalibrator):
        if group is not None:
            raise typer.BadParameter("the model was not fitted by group; leave --group out")
        return calibrator
    if group not in calibrator.shares_:
        raise typer.BadParameter(
            f"the model was fitted by group, and an ONNX file holds one group that has a correction: give --group and "
            f"one of {listed(calibrator.shares_)}"
        )
    return calibrator.for_group(group)


def adapt(
    model: arg.Model,
    output: Annotated[Path, arg.output_option("OUT", "Where to write the adapted calibrator.")],
    file: Annotated[Path | None, arg.file_argument("NEW", f"New rows. {arg.PREDICTIONS} Labels are not used.")] = None,
    frequencies: Annotated[str | None, typer.Option(metavar="cat=0.2,dog=0.8", help=_FREQUENCIES)] = None,
    reading: Reading = arg.READING,
    level: arg.Level = 0.95,
    fail_if_unexplained: Annotated[bool, flag("--fail-if-unexplained", text=_UNEXPLAINED)] = False,
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
    arg.check_output(output, force, model, file, reading.labels)
    calibrator = arg.calibrator_of_classes(model)
    if file is None:
        adapted = calibrator.adapt(frequencies=_frequencies(frequencies or ""))
    else:
        rows: Any = arg.read_test(file, reading, calibrator, needs_labels=False).rows
        adapted = calibrator.adapt(rows, level=level)
    shift = adapted.adaptation_
    refused = fail_if_unexplained and not shift.fit_p_value > 1 - level
    if not refused:
        arg.check_output(output, force, model, file, reading.labels)
        adapted.save(output)
    if as_json:
        written = None if refused else str(output)
        tests = {"shifted": shift.shifted, "unexplained": shift.unexplained, "output": written}
        show_json({**shift.to_dict(), **tests})
    elif not quiet:
        show(title(arg.name_of(file or model)), *str(shift).splitlines())
        if not refused:
            show(f"wrote {output}")
    arg.end_with([shift.sentences()[-1]] if refused else [])


def _frequencies(text: str) -> dict[str, float]:
    """Return the frequencies that an option gives to classes.

    >>> _frequencies("cat=0.2,dog=0.8")
    {'cat': 0.2, 'dog': 0.8}
    """
    pairs = arg.pairs_of(text.split(","), "frequencies", "cat=0.2,dog=0.8")
    try:
        return {name: float(number) for name, number in pairs.items()}
    except ValueError as error:
        raise typer.BadParameter(f"cannot read the frequencies {text!r}: they must be numbers") from error


def info(model: arg.Model, as_json: arg.AsJson = False) -> None:
    """Describe a fitted calibrator: its method and settings, the rows it was fitted on, and how the fit went.

    Examples
    --------
    $ glayers info model.safetensors
    $ glayers info model.safetensors --json
    """
    from glayers.calibrators import load

    calibrator = load(model)
    if as_json:
        show_json(facts_of(calibrator))
        return
    facts = calibrator.diagnostics_
    unseen = len(facts.classes_never_seen)
    lines = {
        "method": facts.method,
        "settings": " ".join(str(calibrator).split()),
        "classes": f"{len(calibrator.classes_):,}" + (f", {unseen:,} of them never seen" if unseen else ""),
        "class names": listed(calibrator.class_names_ or ()),
        "fitted on": f"{facts.rows:,} rows",
        "mean loss": f"{facts.loss_before:.4f} before, {facts.loss_after:.4f} after, on the rows of the fit",
        "fit ended": facts.reason if facts.converged else f"not converged: {facts.reason}",
        "parameters": f"{facts.n_parameters:,}",
        "versions": ", ".join(f"{name} {number}" for name, number in calibrator.versions_.items()),
    }
    show(title(arg.name_of(model)), *(f"{name:<13}{text}" for name, text in lines.items()))
    if getattr(calibrator, "selection_", None) is not None:
        show("", *str(calibrator.selection_).splitlines())
    for note in facts.notes:
        show_note(f"note: {note}")


def facts_of(calibrator: Any) -> dict[str, Any]:
    """Return what a fitted calibrator is, ready for JSON; some kinds of calibrators lack some facts."""
    settings = {}
    for name, value in calibrator.get_params(False).items():
        settings[name] = value if isinstance(value, bool | int | float | str | None) else str(value)
    selection: Any = getattr(getattr(calibrator, "common_", calibrator), "selection_", None)
    counts: Any = getattr(calibrator, "calibration_rows_", None)
    return {
        "calibrator": type(calibrator).__name__,
        "settings": settings,
        "logits": calibrator.n_features_in_,
        "classes": len(calibrator.classes_),
        "class_names": calibrator.class_names_,
        "versions": calibrator.versions_,
        "diagnostics": calibrator.diagnostics_.to_dict(),
        "selection": selection and selection.to_dict(),
        "calibration_rows": counts and counts.to_dict(),
        "shares": getattr(calibrator, "shares_", None),
    }
