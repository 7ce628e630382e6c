"""`fit`: rows with labels -> a calibrator in a file. `apply`: such a file and rows -> calibrated rows in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from glayers.cli import arguments as arg
from glayers.cli.runtime import show, show_json, suitable_threads, title, verb, waiting_for
from glayers.errors import BadPredictions
from glayers.predictions import Predictions, read_parts
from glayers.predictions.contents import Contents, listed
from glayers.predictions.formats import WRITERS, read_rows, to_bytes

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator

_METHOD = "One of `glayers methods`."
_FORMAT = "npz, csv, tsv, parquet or json; by default the ending of OUT decides, and a pipe gets csv."
_FORMATS = [ending[1:] for ending in WRITERS]
_TEXT = {".csv", ".tsv", ".json"}


@verb(
    "glayers fit calibration.npz -o model.safetensors",
    "glayers fit calibration.csv -o model.safetensors -m temperature --force",
    "glayers fit logits.npy --labels labels.npy -o model.safetensors --json",
)
def fit(
    calibration: arg.Calibration,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="Where to write the calibrator.")],
    method: Annotated[
        str, typer.Option("--method", "-m", metavar="NAME", autocompletion=arg.complete_methods, help=_METHOD)
    ] = "auto",
    labels: arg.Labels = None,
    part: arg.Part = None,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Fit a calibrator on held-out predictions and write it to a file.

    The network must not have been trained on these rows. From a file with two parts, `fit` uses the calibration part.
    """
    from glayers.calibrators import METHODS, AutoCalibrator
    from glayers.comparison import unfitted

    arg.known_name(method, METHODS, "method", "glayers methods")
    target = arg.Output(output, force, (calibration, labels))
    target.check()
    rows = arg.only_or("calibration", arg.read_wanted(read_parts, calibration, labels, part))
    calibrator = unfitted(method, random_state=seed, progress=False if quiet else None)
    has_a_bar = "progress" in calibrator.get_params()
    with suitable_threads([method], rows), waiting_for(f"fitting {method} on {len(rows):,} rows", quiet or has_a_bar):
        calibrator.fit_predictions(rows)
    target.check()
    calibrator.save(output)
    selection = calibrator.selection_ if isinstance(calibrator, AutoCalibrator) else None
    facts, name = calibrator.diagnostics_, arg.name_of(calibration)
    if as_json:
        found = {"method": method, "seed": seed, "output": str(output), "classes": rows.n_classes}
        show_json({**found, "diagnostics": facts.to_dict(), "selection": selection and selection.to_dict()})
    elif not quiet:
        show(
            title(f"{method}, fitted on {facts.rows:,} rows of {rows.n_classes:,} classes from {name}"),
            f"learned {facts.n_parameters:,} parameter{'s'[: facts.n_parameters != 1]} in {facts.seconds:.2g} s; "
            f"mean loss on these rows: {facts.loss_before:.4f} before, {facts.loss_after:.4f} after",
            *([] if selection is None else [Text(str(selection))]),
            f"wrote {output}",
        )


@verb(
    "glayers apply model.safetensors test.npz -o calibrated.npz",
    "glayers apply model.safetensors new.csv -o calibrated.parquet",
    "cat new.csv | glayers apply model.safetensors - -o - --format json",
)
def apply(
    model: Annotated[Path, arg.file_argument("MODEL", "A file from `glayers fit`.")],
    file: Annotated[Path, arg.file_argument("FILE", f"{arg.PREDICTIONS} Labels may be missing.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="OUT", help="Where to write: .npz, .csv, .tsv, .parquet, .json or -"),
    ],
    file_format: Annotated[
        str | None, typer.Option("--format", metavar="NAME", autocompletion=lambda: _FORMATS, help=_FORMAT)
    ] = None,
    logits: Annotated[bool, arg.flag("--logits", text="Write calibrated logits instead of probabilities.")] = False,
    labels: arg.Labels = None,
    part: arg.Part = None,
    force: arg.Force = False,
    quiet: arg.Quiet = False,
) -> None:
    """Calibrate predictions with a fitted calibrator and write the probabilities.

    Labels, weights, groups and class names of the input are written too.
    """
    from glayers.calibrators import load

    target = arg.Output(output, force, (model, file, labels))
    ending = f".{file_format}" if file_format else ".csv" if output == arg.PIPE else output.suffix.lower()
    if ending not in WRITERS:
        raise typer.BadParameter(f"cannot write {ending!r}; give OUT one of the endings {listed(WRITERS)}, or --format")
    if output != arg.PIPE:
        target.check()
    calibrator = load(model)
    parts = arg.read_wanted(read_rows, file, labels, part)
    data = to_bytes({name: _calibrated(calibrator, *rows, logits) for name, rows in parts.items()}, ending)
    if output == arg.PIPE:
        arg.write_to_pipe(data, text=ending in _TEXT)
        return
    target.write(data)
    if not quiet:
        count = sum(len(rows) for rows, _ in parts.values())
        show(f"calibrated {count:,} rows of {arg.name_of(file)} with {arg.name_of(model)}; wrote {output}")


def _calibrated(calibrator: "Calibrator", given: Predictions, labelled: bool, logits: bool) -> Contents:
    if None not in (given.class_names, calibrator.class_names_) and given.class_names != calibrator.class_names_:
        raise BadPredictions(
            f"the model was fitted on the classes {listed(calibrator.class_names_ or ())}, but these rows have "
            f"{listed(given.class_names or ())}; give the columns in the model's order"
        )
    return Contents(
        logits=calibrator.transform(given.logits) if logits else None,
        probabilities=None if logits else calibrator.predict_proba(given.logits),
        labels=given.labels if labelled else None,
        weights=given.weights,
        groups=given.groups,
        class_names=given.class_names or calibrator.class_names_,
    )
