"""`fit` writes a calibrator to a file; `apply` reads it and writes calibrated rows; `methods` lists what can be fitted.

`apply` to many files writes a directory of Parquet files, one per task, each complete or not at all. When it is started
again, it leaves out what is there already.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from glayers.activations import probabilities_of
from glayers.cli import arguments as arg
from glayers.cli.exporting import facts_of
from glayers.cli.multi_label import apply_to_labels, with_labels
from glayers.cli.runtime import flag, show, show_json, suitable_threads, title
from glayers.errors import BadFile, BadPredictions, listed
from glayers.files import errors_as_bad_file, write_whole
from glayers.predictions import Confidences
from glayers.predictions.contents import Contents, Reading
from glayers.predictions.formats import WRITERS, ending_in, to_bytes
from glayers.predictions.parquet import parquet_writer
from glayers.predictions.source import CHUNK_ENTRIES, Chunk, FileTask, Source
from glayers.report.words import plural

_FORMAT = f"{', '.join(ending[1:] for ending in WRITERS)}; by default the ending of OUT decides, and a pipe gets csv."
_OUT = f"Where to write: {', '.join(WRITERS)} or -; for many files a directory, which gets Parquet files."
_PRIOR = "An earlier calibrator for the same classes; may be repeated."
_BINARY_ENDINGS = (".npz", ".npy", ".parquet", ".gz")
_MANIFEST = "_glayers.json"


def fit(
    calibration: arg.Calibration,
    output: Annotated[Path, arg.output_option("MODEL", "Where to write the calibrator.")],
    method: arg.Method = "auto",
    settings: arg.Settings = None,
    reading: Reading = arg.READING,
    several_labels: arg.SeveralLabels = False,
    by_group: Annotated[bool, flag("--by-group", text="Also correct each group of rows, such as a site.")] = False,
    prior: Annotated[list[Path] | None, typer.Option("--prior", metavar="MODEL", help=_PRIOR)] = None,
    dask: arg.Dask = None,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Fit a calibrator on held-out predictions and write it to a file.

    The network must not have been trained on these rows. From a file with two parts, `fit` uses the calibration part.

    Examples
    --------
    $ glayers fit calibration.npz -o model.safetensors
    $ glayers fit calibration.csv -o model.safetensors -m temperature --force
    $ glayers fit logits.npy --labels labels.npy -o model.safetensors --json
    $ glayers fit calibration.npz -o fast.safetensors --set time_budget=60
    $ glayers fit calibration.npz -o new.safetensors --prior model.safetensors
    """
    from glayers.calibrators import GroupCalibrator, MultiLabelCalibrator

    if by_group and several_labels:
        raise typer.BadParameter("--by-group works without --several-labels")
    if prior and (method != "auto" or several_labels or by_group):
        raise typer.BadParameter("--prior works with -m auto, without --several-labels and --by-group")
    arg.check_output(output, force, calibration, reading.labels)
    calibrator = arg.method_with_settings(method, settings, seed, arg.progress_of(quiet))
    if prior:
        calibrator.set_params(prior=[arg.calibrator_of_classes(file) for file in prior])
    if several_labels:
        parts = arg.read_contents(arg.source_of([calibration], reading), with_labels)
        contents = arg.only_or("calibration", parts)
        fitted: Any = MultiLabelCalibrator(calibrator.set_params(inputs=contents.inputs))
        fitted.fit(contents.scores, contents.labels, contents.weights, contents.groups)
        fitted.class_names_ = contents.class_names
    else:
        sample = arg.read_sample(calibration, reading, "calibration", seed, quiet, dask=dask)
        calibrator.set_params(inputs=sample.inputs)
        fitted = GroupCalibrator(calibrator) if by_group else calibrator
        with suitable_threads([method], sample.rows):
            fitted.fit_predictions(sample.rows)
    arg.check_output(output, force, calibration, reading.labels)
    fitted.save(output)
    if as_json:
        facts = {"method": method, "seed": seed, "output": str(output), "inputs": calibrator.inputs}
        show_json({**facts, **facts_of(fitted)})
    elif not quiet:
        _show_fit(fitted, method, arg.name_of(calibration))
        show(f"wrote {output}")


def _show_fit(fitted: Any, method: str, name: str) -> None:
    """Print what was learned."""
    calibrator = getattr(fitted, "common_", fitted)  # of a calibrator by group
    facts = calibrator.diagnostics_
    classes = "labels" if calibrator.link == "sigmoid" else "classes"
    by = "" if calibrator.inputs == "logits" else f", by {calibrator.inputs}"
    show(
        title(f"{method}, fitted on {facts.rows:,} rows of {len(calibrator.classes_):,} {classes} from {name}{by}"),
        f"learned {plural(facts.n_parameters, 'parameter')} in {facts.seconds:.2g} s; "
        f"mean loss on these rows: {facts.loss_before:.4f} before, {facts.loss_after:.4f} after",
    )
    selection = getattr(calibrator, "selection_", None)
    if selection is not None:
        show(Text(str(selection)))
    for group, share in getattr(fitted, "shares_", {}).items():
        show(f"group {group}: its correction has a share of {share:.2f}")


def apply(
    model: arg.Model,
    files: Annotated[list[Path], arg.file_argument("FILE...", f"{arg.PREDICTIONS} {arg.MANY} Labels may be missing.")],
    output: Annotated[Path, arg.output_option("OUT", _OUT)],
    file_format: Annotated[str | None, typer.Option("--format", metavar="NAME", help=_FORMAT)] = None,
    logits: Annotated[bool, flag("--logits", text="Write calibrated logits instead of probabilities.")] = False,
    reading: Reading = arg.READING,
    dask: arg.Dask = None,
    force: arg.Force = False,
    quiet: arg.Quiet = False,
) -> None:
    """Calibrate predictions with a fitted calibrator and write the probabilities.

    The predicted class and its confidence are written too, and so are labels, weights, groups, class names and, from
    tables and .jsonl, all other columns. Many files, or one larger than 1 GB, are read in chunks, and OUT is a
    directory of Parquet files. If the command is interrupted, run it again: it goes on.

    Examples
    --------
    $ glayers apply model.safetensors test.npz -o calibrated.npz
    $ glayers apply model.safetensors new.csv -o calibrated.parquet
    $ glayers apply model.safetensors logits/ -o calibrated
    $ cat new.csv | glayers apply model.safetensors - -o - --format json
    """
    from glayers.calibrators import load

    if files[0].suffix == ".safetensors" != model.suffix:
        raise typer.BadParameter(f"the model comes first: glayers apply {files[0]} {model}")
    reading = replace(reading, others=True)
    is_small = dask is None and arg.source_of(files, reading).is_small
    ending = _ending(output, file_format, is_small)
    check = partial(arg.check_output, output, force, model, *files, reading.labels)
    if is_small and output != arg.PIPE:
        check()
    calibrator = load(model) if is_small else arg.calibrator_of_classes(model)
    source = arg.source_of(files, reading, calibrator)
    name = plural(len(source.files), "file")
    already = ""
    if is_small:
        name = arg.name_of(files[0])
        parts = _calibrated_parts(calibrator, source, logits)
        n_rows = sum(len(contents) for contents in parts.values())
        data = to_bytes(parts, ending)
        if output == arg.PIPE:
            arg.write_to_pipe(data, text=not ending.endswith(_BINARY_ENDINGS))
            return
        check()
        write_whole(output, data)
    else:
        digest = hashlib.sha256(model.read_bytes()).hexdigest()
        _prepare_folder(output, source, {"model": digest, "logits": logits}, force)
        tasks = source.tasks(needs_labels=False)
        missing = [task for task in tasks if not _part_of(output, task).exists()]
        with arg.executor_of(dask, quiet, "calibrating") as executor:
            n_rows = sum(executor.map(partial(_write_part, calibrator, logits, output), missing))
        if len(missing) < len(tasks):
            already = f"; {len(tasks) - len(missing):,} of {len(tasks):,} parts were there already"
    if not quiet:
        show(f"calibrated {n_rows:,} rows of {name} with {arg.name_of(model)}{already}; wrote {output}")


def _ending(output: Path, file_format: str | None, is_small: bool) -> str:
    """Return the ending of the format to write."""
    ending = ending_in(output.name, WRITERS) or output.suffix.lower()
    if file_format is not None:
        ending = f".{file_format}"
    elif output == arg.PIPE:
        ending = ".csv"
    if is_small and ending not in WRITERS:
        raise typer.BadParameter(f"cannot write {ending!r}; give OUT one of the endings {listed(WRITERS)}, or --format")
    if not is_small and (ending in WRITERS or file_format is not None):
        raise typer.BadParameter("many rows become Parquet files in a directory: give -o a name without ending")
    return ending


def _calibrated_parts(calibrator: Any, source: Source, logits: bool) -> dict[str, Contents]:
    """Calibrate the parts of a small file."""
    from glayers.calibrators import MultiLabelCalibrator

    if isinstance(calibrator, MultiLabelCalibrator):
        return arg.read_contents(source, partial(apply_to_labels, calibrator, logits=logits))
    chunks = arg.read_parts(source, needs_labels=False, warn=False)
    return {part: calibrated(calibrator, chunk, logits) for part, chunk in chunks.items()}


def calibrated(calibrator: Any, chunk: Chunk, logits: bool) -> Contents:
    """Return calibrated rows, the predicted class and its confidence, and whatever else the input has."""
    after = calibrator.apply(chunk.rows)
    extras: dict[str, Any] = {name: getattr(chunk.rows, name) for name in ("weights", "counts", "groups")}
    extras["others"] = chunk.others
    if isinstance(after, Confidences):
        if logits:
            raise BadPredictions("--logits is for predictions of classes; this file has a confidence per row")
        correct = after.correct if chunk.labelled else None
        return Contents(confidence=after.confidence, correct=correct, **extras)
    # As precise as the input.
    dtype = np.float32 if getattr(chunk.rows, "logits", after.logits).dtype == np.float32 else np.float64
    probabilities = probabilities_of(after.logits, dtype)
    if logits:
        extras["logits"] = np.asfortranarray(after.logits, dtype)  # Parquet wants the values of a class side by side
    else:
        extras["probabilities"] = np.asfortranarray(probabilities)
    return Contents(
        labels=after.labels if chunk.labelled else None,
        predicted=probabilities.argmax(axis=1),
        confidence=probabilities.max(axis=1),
        class_names=after.class_names or calibrator.class_names_,
        **extras,
    )


def _write_part(calibrator: Any, logits: bool, folder: Path, task: FileTask, chunks: Iterable[Chunk]) -> int:
    """Calibrate the rows of a task, write them to one file of a directory, and return their number."""
    n_rows = 0
    with parquet_writer(_part_of(folder, task)) as write:
        for chunk in chunks:
            with errors_as_bad_file(f"{chunk.path}, counted from row {chunk.first_row:,}"):
                contents = calibrated(calibrator, chunk, logits)
            write(contents)
            n_rows += len(contents)
    return n_rows


def _prepare_folder(folder: Path, source: Source, options: dict[str, Any], force: bool) -> None:
    """Create a directory with a record of what it is made from; refuse one with other files, or remove old parts."""
    for file in source.files:
        if file.resolve().is_relative_to(folder.resolve()):
            raise BadFile(f"{folder}: holds the input file {file}; write to another directory")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise BadFile(f"{folder}: cannot be created ({error.strerror}); check the folder above it") from error
    files = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in source.files]
    made_from = {"files": files, "entries": CHUNK_ENTRIES, **vars(source.reading), **options}
    record = json.dumps(made_from, indent=1, default=str).encode()
    manifest = folder / _MANIFEST
    if any(folder.iterdir()) and not (manifest.is_file() and (force or manifest.read_bytes() == record)):
        way_out = "use --force to replace them, or choose another directory" if manifest.is_file() else "choose another"
        raise BadFile(f"{folder}: has files already, and not from this model, input and options; {way_out}")
    if force:
        for part in folder.glob("part-*-*.parquet"):
            part.unlink()
    write_whole(manifest, record)


def _part_of(folder: Path, task: FileTask) -> Path:
    """Return the file that a task writes."""
    return folder / f"part-{task.file:05d}-{task.number:05d}.parquet"


def methods(as_json: arg.AsJson = False) -> None:
    """List the methods: what each does, what it keeps unchanged, and whether fitting it needs torch.

    Examples
    --------
    $ glayers methods
    $ glayers methods --json
    """
    from glayers.calibrators import METHODS

    if as_json:
        show_json({name: {**vars(each), "settings": dict(each.settings)} for name, each in METHODS.items()})
        return
    table = Table("method", "summary", "keeps", box=None, pad_edge=False, header_style="bold")
    for name, each in METHODS.items():
        table.add_row(f"{name} *" if each.torch == "required" else name, each.summary, each.keeps)
    here = "installed" if find_spec("torch") else 'not installed: pip install "glayers[fit]"'
    show(table, "", f"* needs torch to fit ({here}). No method needs torch to predict.")
