"""A fitted calibrator -> another file, or its own facts.

`export` writes ONNX, `adapt` a new model, and `info` prints what a model is.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from glayers.cli import arguments as arg
from glayers.cli.runtime import flag, show, show_json, show_note, title
from glayers.errors import listed
from glayers.predictions.contents import Reading

_UNEXPLAINED = "Write nothing and exit with 3 if class shift does not explain NEW."


def export(
    model: arg.Model,
    output: Annotated[Path, arg.output_option("OUT", "Where to write the ONNX file.")],
    float64: Annotated[bool, flag("--float64", text="Use float64 for input and outputs, not float32.")] = False,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="The group, for a model fitted by group.")] = None,
    force: arg.Force = False,
    quiet: arg.Quiet = False,
) -> None:
    """Write a calibrator as ONNX, after comparing its results with those of NumPy.

    The input is uncalibrated_logits, and the outputs are logits and probabilities.

    Examples
    --------
    $ glayers export model.safetensors -o model.onnx
    $ glayers export model.safetensors -o wide.onnx --float64
    """
    from glayers.calibrators import load

    arg.check_output(output, force, model)
    _of_group(load(model), group).to_onnx(output, "float64" if float64 else "float32")
    if not quiet:
        show(f"wrote {output}: {arg.name_of(model)}, equal to NumPy on sampled inputs")


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
    file: Annotated[Path, arg.file_argument("NEW", f"New rows. {arg.PREDICTIONS} Labels are not used.")],
    output: Annotated[Path, arg.output_option("OUT", "Where to write the adapted calibrator.")],
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
    arg.check_output(output, force, model, file, reading.labels)
    calibrator = arg.calibrator_of_classes(model)
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
        show(title(arg.name_of(file)), *str(shift).splitlines())
        if not refused:
            show(f"wrote {output}")
    arg.end_with([shift.sentences()[-1]] if refused else [])


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
        counts: Any = getattr(calibrator, "calibration_rows_", None)
        show_json({**facts_of(calibrator), "calibration_rows": counts and counts.to_dict()})
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
    return {
        "calibrator": type(calibrator).__name__,
        "settings": settings,
        "logits": calibrator.n_features_in_,
        "classes": len(calibrator.classes_),
        "class_names": calibrator.class_names_,
        "versions": calibrator.versions_,
        "diagnostics": calibrator.diagnostics_.to_dict(),
        "selection": selection and selection.to_dict(),
        "shares": getattr(calibrator, "shares_", None),
    }
