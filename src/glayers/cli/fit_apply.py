"""`fit` writes a calibrator to a file; `apply` reads it and writes calibrated rows; `methods` lists what can be fitted.

`apply` to many files writes a directory of Parquet files, one per task, each complete or not at all. When it is started
again, it leaves out what is there already.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from glayers.activations import probabilities_of
from glayers.cli import arguments as arg
from glayers.cli import multi_label
from glayers.cli.runtime import flag, plural, show, show_json, suitable_threads, title, verb
from glayers.errors import BadFile, BadPredictions
from glayers.files import errors_as_bad_file, write_whole
from glayers.predictions import Confidences
from glayers.predictions.contents import Contents, Reading, listed
from glayers.predictions.formats import WRITERS, ending_in, to_bytes
from glayers.predictions.parquet import parquet_writer, read_metadata
from glayers.predictions.source import CHUNK_ENTRIES, Chunk, FileTask, Source
from glayers.progress import progress_bar

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator

_FORMATS = [ending[1:] for ending in WRITERS]
_FORMAT = f"{', '.join(_FORMATS)}; by default the ending of OUT decides, and a pipe gets csv."
_OUT = f"{', '.join(WRITERS)} or -; for many files a directory, which gets Parquet files."
_BINARY_ENDINGS = (".npz", ".npy", ".parquet", ".gz")
_MANIFEST = "_glayers.json"


Prior = Annotated[
    list[Path] | None,
    typer.Option("--prior", metavar="MODEL", help="An earlier calibrator for the same classes; may be repeated."),
]


@verb
def fit(
    calibration: arg.Calibration,
    output: Annotated[Path, arg.output_option("MODEL", "Where to write the calibrator.")],
    method: arg.Method = "auto",
    settings: arg.Settings = None,
    reading: Reading = arg.READING,
    several_labels: multi_label.SeveralLabels = False,
    by_group: Annotated[bool, flag("--by-group", text="Also correct each group of rows, such as a site.")] = False,
    prior: Prior = None,
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
    from glayers.calibrators.groups import GroupCalibrator

    if by_group and several_labels:
        raise typer.BadParameter("--by-group works without --several-labels")
    target = arg.Output(output, force, (calibration, reading.labels))
    calibrator, chosen = arg.method_with_settings(method, settings, seed, arg.progress_of(quiet))
    if prior:
        if method != "auto" or several_labels or by_group:
            raise typer.BadParameter("--prior works with -m auto, without --several-labels and --by-group")
        chosen["prior"] = [arg.calibrator_of_classes(file) for file in prior]
    fitted: Any = calibrator
    if several_labels:
        contents = arg.only_or("calibration", multi_label.read_labels(arg.source_of([calibration], reading)))
        inputs = contents.inputs
        fitted = multi_label.fit_labels(calibrator.set_params(**{"inputs": inputs, **chosen}), contents)
    else:
        sample = arg.read_sample(calibration, reading, "calibration", seed, quiet, dask=dask)
        inputs = sample.inputs
        calibrator.set_params(**{"inputs": inputs, **chosen})
        fitted = GroupCalibrator(calibrator) if by_group else calibrator
        shown = False if "progress" in calibrator.get_params() else arg.progress_of(quiet)  # some show their own bar
        with suitable_threads([method], sample.rows), progress_bar(shown, f"fitting {method}", None):
            fitted.fit_predictions(sample.rows)
    target.check()
    fitted.save(output)
    facts = {"method": method, "seed": seed, "output": str(output), "inputs": inputs}
    if as_json or not quiet:
        _show_fit(fitted, facts, arg.name_of(calibration), as_json)


def _show_fit(fitted: Any, facts: dict[str, Any], name: str, as_json: bool) -> None:
    calibrator = getattr(fitted, "common_", fitted)  # of a calibrator by group
    shares = getattr(fitted, "shares_", {})
    selection = getattr(calibrator, "selection_", None)
    diagnostics = calibrator.diagnostics_
    n_classes = len(calibrator.classes_)
    if as_json:
        numbers = {**facts, "classes": n_classes, "diagnostics": diagnostics.to_dict()}
        numbers["selection"] = selection and selection.to_dict()
        if calibrator is not fitted:
            numbers["shares"] = shares
        show_json(numbers)
        return
    by = "" if facts["inputs"] == "logits" else f", by {facts['inputs']}"
    classes = "labels" if calibrator.link == "sigmoid" else "classes"
    rows = f"{diagnostics.rows:,} rows of {n_classes:,} {classes}"
    show(
        title(f"{facts['method']}, fitted on {rows} from {name}{by}"),
        f"learned {plural(diagnostics.n_parameters, 'parameter')} in {diagnostics.seconds:.2g} s; "
        f"mean loss on these rows: {diagnostics.loss_before:.4f} before, {diagnostics.loss_after:.4f} after",
    )
    if selection is not None:
        show(Text(str(selection)))
    for group, share in shares.items():
        show(f"group {group}: its correction has a share of {share:.2f}")
    show(f"wrote {facts['output']}")


@verb
def apply(
    model: Annotated[Path, arg.file_argument("MODEL", "A file from `glayers fit`.")],
    files: Annotated[list[Path], arg.file_argument("FILE...", f"{arg.PREDICTIONS} {arg.MANY} Labels may be missing.")],
    output: Annotated[Path, arg.output_option("OUT", f"Where to write: {_OUT}")],
    file_format: Annotated[
        str | None, typer.Option("--format", metavar="NAME", autocompletion=lambda: _FORMATS, help=_FORMAT)
    ] = None,
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
    from glayers.calibrators import Calibrator, load

    if files[0].suffix == ".safetensors" != model.suffix:
        raise typer.BadParameter(f"the model comes first: glayers apply {files[0]} {model}")
    source = arg.source_of(files, replace(reading, others=True))
    if dask is None and source.is_small:
        _apply_at_once(model, source, output, _ending(output, file_format), logits, force, quiet)
        return
    if file_format not in (None, "parquet") or output == arg.PIPE:
        raise typer.BadParameter("many rows become Parquet files in a directory: give -o its name, and no --format")
    calibrator = load(model)
    if not isinstance(calibrator, Calibrator):
        raise BadFile(f"{model}: a model of several labels or of groups is applied to one file of at most 1 GB")
    source = arg.source_of(files, source.reading, calibrator.inputs)
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    _prepare_folder(output, source, {"model": digest, "logits": logits}, force)
    tasks = [task for task in source.tasks(needs_labels=False) if not _part_of(output, task).exists()]
    before = _rows_in(output)
    with arg.executor_of(dask, quiet, "calibrating") as executor:
        executor.map(_Calibration(calibrator, logits, output), tasks)
    if not quiet:
        already = f"; {before:,} more were there already" if before else ""
        read = f"{_rows_in(output) - before:,} rows of {plural(len(source.files), 'file')}"
        show(f"calibrated {read} with {arg.name_of(model)}{already}; wrote {output}")


def _ending(output: Path, file_format: str | None) -> str:
    """Return the ending of the format to write."""
    if file_format is not None:
        ending = f".{file_format}"
    elif output == arg.PIPE:
        ending = ".csv"
    else:
        ending = ending_in(output.name, WRITERS) or output.suffix.lower()
    if ending not in WRITERS:
        raise typer.BadParameter(f"cannot write {ending!r}; give OUT one of the endings {listed(WRITERS)}, or --format")
    return ending


def _apply_at_once(
    model: Path, source: Source, output: Path, ending: str, logits: bool, force: bool, quiet: bool
) -> None:
    from glayers.calibrators import MultiLabelCalibrator, load

    (file,) = source.files
    target = None if output == arg.PIPE else arg.Output(output, force, (model, file, source.reading.labels))
    calibrator: Any = load(model)
    source = arg.source_of([file], source.reading, calibrator.inputs)
    if isinstance(calibrator, MultiLabelCalibrator):
        read = multi_label.read_labels(source, needs_labels=False)
        with errors_as_bad_file(arg.name_of(file)):
            parts = {part: multi_label.apply_to_labels(calibrator, each, logits) for part, each in read.items()}
    else:
        chunks = arg.read_parts(source, needs_labels=False, warn=False)
        parts = {part: calibrated(calibrator, chunk, logits) for part, chunk in chunks.items()}
    data = to_bytes(parts, ending)
    if target is None:
        arg.write_to_pipe(data, text=not ending.endswith(_BINARY_ENDINGS))
        return
    target.write(data)
    if not quiet:
        n_rows = sum(len(contents) for contents in parts.values())
        show(f"calibrated {n_rows:,} rows of {arg.name_of(file)} with {arg.name_of(model)}; wrote {output}")


def calibrated(calibrator: "Calibrator", chunk: Chunk, logits: bool) -> Contents:
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


@dataclass(frozen=True)
class _Calibration:
    """What `apply` does with a task: it writes one file of a directory."""

    calibrator: "Calibrator"
    logits: bool
    folder: Path

    def __call__(self, task: FileTask, chunks: Iterable[Chunk]) -> None:
        with parquet_writer(_part_of(self.folder, task)) as write:
            for chunk in chunks:
                with errors_as_bad_file(f"{chunk.path}, counted from row {chunk.first_row:,}"):
                    contents = calibrated(self.calibrator, chunk, self.logits)
                write(contents)


def _prepare_folder(folder: Path, source: Source, options: dict[str, Any], force: bool) -> None:
    """Create a directory with a record of what it is made from; refuse one with other files, or remove old parts."""
    if ending_in(folder.name, WRITERS) or (folder.exists() and not folder.is_dir()):
        raise typer.BadParameter(
            f"{folder}: many rows are written to a directory of Parquet files; give -o a name without ending"
        )
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


def _rows_in(folder: Path) -> int:
    """Return the number of rows that were written, also by earlier runs."""
    n_rows = 0
    for part in folder.glob("part-*-*.parquet"):
        with errors_as_bad_file(f"{part}: use --force to write all parts again"):
            n_rows += int(read_metadata(part).num_rows)
    return n_rows


@verb
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
