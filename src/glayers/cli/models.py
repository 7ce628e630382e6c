"""Verbs that write or read a fitted calibrator: `fit`, `apply`, `adapt`, `export`, `info`; and `methods`."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from glayers.activations import probabilities_of
from glayers.arrays import Ints
from glayers.cli import acting
from glayers.cli import arguments as arg
from glayers.cli.arguments import flag, show, show_json, show_note, show_record, title
from glayers.errors import BadFile, listed
from glayers.files import errors_as_bad_file, unfinished_name, write_whole
from glayers.predictions import Confidences, MultiLabelPredictions
from glayers.predictions.contents import Contents, Reading, Rows
from glayers.predictions.formats import FORMATS, to_bytes, write_parquet
from glayers.predictions.source import Chunks, Source
from glayers.text_tables import plural

_OUT = f"Where to write: {', '.join(FORMATS)}; for many files a directory, which gets Parquet files."
_PRIOR = "For --method auto, an earlier calibrator for the same classes; may be repeated."
_SETS = "Also write `set`: classes, joined by |, among which is the label in P of the rows, such as 90%."


def fit(
    calibration: arg.Calibration,
    output: Annotated[Path, arg.output_option("MODEL", "Where to write the calibrator.")],
    method: arg.Method = "auto",
    settings: arg.Settings = None,
    reading: Reading = arg.READING,
    by_group: Annotated[bool, flag("--by-group", text="Also correct each group of rows, such as a site.")] = False,
    prior: Annotated[list[Path] | None, typer.Option("--prior", metavar="MODEL", help=_PRIOR)] = None,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    as_json: arg.AsJson = False,
) -> None:
    """Fit a calibrator on held-out predictions and write it to a file.

    The network must not have been trained on these rows. If the labels are a matrix of 0 and 1, rows may have several
    labels, and each label gets a calibrator.

    Examples
    --------
    $ glayers fit calibration.npz -o model.safetensors
    $ glayers fit calibration.csv -o model.safetensors -m temperature --force
    $ glayers fit logits.npy --labels labels.npy -o model.safetensors --json
    $ glayers fit calibration.npz -o fast.safetensors --set time_budget=60
    $ glayers fit calibration.npz -o new.safetensors --prior model.safetensors
    """
    from glayers.calibrators import GroupCalibrator, MultiLabelCalibrator

    arg.check_output(output, force, calibration, reading.labels)
    calibrator: Any = arg.method_with_settings(method, settings, random_state=seed)
    if prior:
        calibrator.set_params(prior=[arg.calibrator_of_classes(file) for file in prior])
    source = Source.of([calibration], reading)
    rows, inputs = arg.read_sample(source, seed)
    fitted = calibrator.set_params(inputs=inputs)
    if isinstance(rows, MultiLabelPredictions):
        if by_group or (settings and method == "auto"):
            raise typer.BadParameter("rows with several labels are fitted without --by-group, and auto without --set")
        fitted = MultiLabelCalibrator.by(calibrator)
    elif by_group:
        fitted = GroupCalibrator(calibrator)
    fitted.fit_predictions(rows)
    arg.check_output(output, force, calibration, reading.labels)
    fitted.save(output)
    if as_json:
        facts = {"method": method, "seed": seed, "output": str(output), "inputs": calibrator.inputs}
        show_json({**facts, **_facts_of(fitted)})
    else:
        _show_model(fitted, f" from {calibration.name}")
        show(f"wrote {output}")


def _show_model(fitted: Any, where: str) -> None:
    """Print what a calibrator is, and what it learned."""
    calibrator = getattr(fitted, "common_", fitted)  # of a calibrator by group
    facts = calibrator.diagnostics_
    owner = "" if fitted is calibrator else "common calibrator: "
    learned = plural(facts.n_parameters, "parameter")
    classes = "labels" if calibrator.link == "sigmoid" else "classes"
    show(
        title(
            f"{facts.method}, fitted on {plural(facts.rows, 'row')} of {len(calibrator.classes_):,} {classes}{where}"
        ),
        f"settings: {' '.join(str(fitted).split())}",
        f"{owner}learned {learned} from {calibrator.inputs}; fit finished: {facts.reason}",
        f"{owner}mean training loss, on these rows: {facts.loss_before:.4f} before, {facts.loss_after:.4f} after",
    )
    rows: Any = getattr(calibrator, "calibration_rows_", None)
    if rows is not None and rows.rows < 0.99 * facts.rows:
        show(f"weights and groups leave {rows.rows:,.0f} effective rows")
    if getattr(calibrator, "adaptation_", None) is not None:
        show(calibrator.adaptation_.summary)
    if getattr(calibrator, "selection_", None) is not None:
        show(*str(calibrator.selection_).splitlines())
    for group, share in getattr(fitted, "shares_", {}).items():
        show(f"group {group}: its correction has a share of {share:.2f}")


def apply(
    model: arg.Model,
    files: Annotated[list[Path], arg.file_argument("FILE...", f"{arg.PREDICTIONS} {arg.MANY} Labels may be missing.")],
    output: Annotated[Path, arg.output_option("OUT", _OUT)],
    sets: Annotated[str | None, typer.Option("--sets", metavar="P", help=_SETS)] = None,
    costs: Annotated[Path | None, acting.COSTS] = None,
    abstain: acting.Abstain = None,
    reading: Reading = arg.READING,
    force: arg.Force = False,
) -> None:
    """Calibrate predictions with a fitted calibrator and write the probabilities.

    The predicted class and its confidence are written too, and so are labels, weights, groups, class names and, from
    tables and .jsonl, all other columns. With --costs, `action` is the action of least expected cost: a column of
    COSTS, counted from 0, or the next number to abstain. Many files, or one larger than 1 GB, are read in chunks, and
    OUT is a new directory with one Parquet file for each of them.

    Examples
    --------
    $ glayers apply model.safetensors test.npz -o calibrated.npz
    $ glayers apply model.safetensors new.csv -o calibrated.parquet
    $ glayers apply model.safetensors new.csv -o sets.csv --sets 90%
    $ glayers apply model.safetensors new.csv -o actions.csv --costs costs.csv
    $ glayers apply model.safetensors logits/ -o calibrated
    """
    from glayers.calibrators import MultiLabelCalibrator
    from glayers.decisions.costs import decide

    source = Source.of(files, replace(reading, others=True), needs_labels=False)
    ending = output.suffix.lower()
    if source.is_small and ending not in FORMATS:
        raise typer.BadParameter(f"cannot write {ending!r}; give OUT one of the endings {listed(FORMATS)}")
    if not source.is_small and ending in FORMATS:
        raise typer.BadParameter("many rows become Parquet files in a directory: give -o a name without ending")
    arg.check_output(output, force and source.is_small, model, *files, costs, reading.labels)
    contents = source.contents
    calibrator = arg.calibrator_of_rows(model, contents) if sets is None else arg.calibrator_of_classes(model)
    extra: dict[str, Any] = {}
    if sets is not None:
        extra["level"] = arg.number_of(sets)
    if costs is not None:
        extra["actions"] = partial(decide, costs=acting.read_costs(costs), abstain=abstain)
    if extra and ending == ".npy":
        raise typer.BadParameter("a .npy file has no place for sets or actions; give OUT another ending")
    if extra and isinstance(calibrator, MultiLabelCalibrator):
        raise typer.BadParameter("rows with several labels have neither sets nor actions")
    if contents is None:
        n_rows = _apply_to_files(calibrator, source, output, extra)
    else:
        if isinstance(calibrator, MultiLabelCalibrator):
            calibrator._check_names(contents.class_names)
            probabilities = calibrator.predict_proba(contents.scores)
            names = contents.class_names or calibrator.class_names_
            found = replace(contents, logits=None, probabilities=probabilities, class_names=names)
        else:
            found = calibrated(calibrator, contents, source.checked(), **extra)
        n_rows = len(found)
        write_whole(output, to_bytes(found, ending), force=force)
    name = files[0].name if source.is_small else plural(len(source.files), "file")
    show(f"calibrated {plural(n_rows, 'row')} of {name} with {model.name}; wrote {output}")


def calibrated(
    calibrator: Any,
    contents: Contents,
    rows: Rows,
    level: float | None = None,
    actions: Callable[[Rows], Ints] | None = None,
) -> Contents:
    """Return calibrated rows, the predicted class and its confidence, sets, actions, and what else the input has."""
    after = calibrator.apply(rows)
    others = dict(contents.others)
    if level is not None:
        found = calibrator.predict_set(arg.inputs_of(calibrator, rows), level)
        names = np.array(calibrator.class_names_ or calibrator.classes_.astype(str))
        others["set"] = ["|".join(names[in_set]) for in_set in found]
    if actions is not None:
        others["action"] = actions(after)
    if isinstance(after, Confidences):
        correct = after.correct if contents.labelled else None
        return replace(contents, confidence=after.confidence, correct=correct, others=others)
    labels = after.labels if contents.labelled else None
    if contents.has_soft_labels:
        labels = contents.labels
    # As precise as the input.
    dtype = np.float32 if getattr(rows, "logits", after.logits).dtype == np.float32 else np.float64
    probabilities = probabilities_of(after.logits, dtype)
    return replace(
        contents,
        logits=None,
        probabilities=np.asfortranarray(probabilities),  # Parquet wants the values of a class side by side
        labels=labels,
        predicted=probabilities.argmax(axis=1),
        confidence=probabilities.max(axis=1),
        class_names=after.class_names or calibrator.class_names_,
        others=others,
    )


def _apply_to_files(calibrator: Any, source: Source, output: Path, extra: dict[str, Any]) -> int:
    """Write one Parquet file for each file to a new directory, and return the number of rows."""

    def calibrated_chunks(file: int, chunks: Chunks) -> Iterator[Contents]:
        first_row = 0
        for contents, rows in chunks:
            with errors_as_bad_file(f"{source.files[file]}, counted from row {first_row:,}"):
                yield calibrated(calibrator, contents, rows, **extra)
            first_row += len(contents)

    def write_file(file: int, chunks: Chunks) -> int:
        return write_parquet(folder / f"part-{file:05d}.parquet", calibrated_chunks(file, chunks))

    with unfinished_name(output) as folder:
        folder.mkdir()
        n_rows = sum(source.map(write_file, "calibrating"))
        folder.rename(output)
    return n_rows


def adapt(
    model: arg.Model,
    file: Annotated[Path, arg.file_argument("NEW", f"New rows. {arg.PREDICTIONS} Labels are not used.")],
    output: Annotated[Path, arg.output_option("OUT", "Where to write the adapted calibrator.")],
    reading: Reading = arg.READING,
    level: arg.Level = 0.95,
    force: arg.Force = False,
    as_json: arg.AsJson = False,
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
    rows: Any = arg.read_rows(file, reading, needs_labels=False)
    adapted = arg.calibrator_of_classes(model).adapt(rows, level=level)
    shift = adapted.adaptation_
    arg.check_output(output, force, model, file, reading.labels)
    adapted.save(output)
    show_record(shift, as_json, file.name, shifted=shift.shifted, unexplained=shift.unexplained, output=str(output))
    if not as_json:
        show(f"wrote {output}")


def export(
    model: arg.Model,
    output: Annotated[Path, arg.output_option("OUT", "Where to write the ONNX file.")],
    force: arg.Force = False,
) -> None:
    """Write a calibrator as ONNX, after comparing its results with those of NumPy.

    The input is uncalibrated_logits, and the outputs are logits and probabilities.

    Examples
    --------
    $ glayers export model.safetensors -o model.onnx
    """
    from glayers.calibrators import GroupCalibrator, load

    arg.check_output(output, force, model)
    calibrator = load(model)
    if isinstance(calibrator, GroupCalibrator):
        raise BadFile(f"{model}: was fitted by group; in Python, export one of them by for_group(name).to_onnx(path)")
    calibrator.to_onnx(output)
    show(f"wrote {output}: {model.name}, equal to NumPy on sampled inputs")


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
        show_json(_facts_of(calibrator))
        return
    _show_model(calibrator, f" ({model.name})")
    for note in calibrator.diagnostics_.notes:
        show_note(f"note: {note}")


def _facts_of(calibrator: Any) -> dict[str, Any]:
    """Return what a fitted calibrator is, ready for JSON; some kinds of calibrators lack some facts."""
    settings = {}
    for name, value in calibrator.get_params(False).items():
        settings[name] = value if isinstance(value, int | float | str | None) else str(value)
    selection: Any = getattr(getattr(calibrator, "common_", calibrator), "selection_", None)
    rows: Any = getattr(calibrator, "calibration_rows_", None)
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
        "calibration_rows": rows and rows.to_dict(),
    }


def methods(as_json: arg.AsJson = False) -> None:
    """List the methods: what each does, whether it may change the predicted class, and whether fitting it needs torch.

    Examples
    --------
    $ glayers methods
    $ glayers methods --json
    """
    from glayers.calibrators import CALIBRATORS

    if as_json:
        show_json({name: each.to_dict() for name, each in CALIBRATORS.items()})
        return
    table = Table("method", "summary", "may change class", box=None, pad_edge=False, header_style="bold")
    for name, each in CALIBRATORS.items():
        changes = "no" if each.keeps == "ranking" else "yes"
        table.add_row(f"{name} *" if each.torch == "required" else name, each.summary, changes)
    here = "installed" if find_spec("torch") else 'not installed: pip install "glayers[fit]"'
    show(table, "", f"* needs torch to fit ({here}); so do the g-layers of auto. No method needs torch to predict.")
