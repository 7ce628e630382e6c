"""`fit`: rows with labels -> a calibrator in a file. `apply`: such a file and rows -> calibrated rows in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glayers.cli.arguments import (
    PIPE,
    PREDICTIONS,
    AsJson,
    Calibration,
    Force,
    Labels,
    Method,
    Output,
    Part,
    Quiet,
    Seed,
    name_of,
    read_part,
    source,
    write_to_pipe,
)
from glayers.cli.runtime import FLAG, page, show, show_json, suitable_threads, title, verb, waiting_for
from glayers.errors import BadFile, BadPredictions
from glayers.predictions.contents import Contents, RowsToCalibrate, listed
from glayers.predictions.formats import WRITERS, read_rows, to_bytes

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator

_TEXT = {".csv", ".tsv", ".json"}


@verb(
    "glayers fit calibration.npz -o model.safetensors",
    "glayers fit calibration.csv -o model.safetensors -m temperature --force",
    "glayers fit logits.npy --labels labels.npy -o model.safetensors --json",
)
def fit(
    calibration: Calibration,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="Where to write the calibrator.")],
    method: Method = "auto",
    labels: Labels = None,
    part: Part = None,
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a calibrator on held-out predictions and write it to a file.

    The network must not have been trained on these rows. From a file with two parts, `fit` uses the calibration part.
    """
    from glayers.calibrators import AutoCalibrator
    from glayers.comparison import unfitted

    target = Output(output, force, (calibration, labels))
    target.check()
    rows = read_part(calibration, labels, part, "calibration")
    calibrator = unfitted(method, random_state=seed, progress=False if quiet else None)
    has_a_bar = "progress" in calibrator.get_params()
    with suitable_threads([method], rows), waiting_for(f"fitting {method} on {len(rows):,} rows", quiet or has_a_bar):
        calibrator.fit_predictions(rows)
    target.check()
    calibrator.save(output)
    selection = calibrator.selection_ if isinstance(calibrator, AutoCalibrator) else None
    facts = calibrator.diagnostics_
    if as_json:
        found = {"method": method, "seed": seed, "output": str(output), "classes": rows.n_classes}
        show_json({**found, "diagnostics": facts.to_dict(), "selection": selection and selection.to_dict()})
    elif not quiet:
        show(
            title(f"{method}, fitted on {facts.rows:,} rows of {rows.n_classes:,} classes from {name_of(calibration)}"),
            f"learned {facts.n_parameters:,} parameter{'s'[: facts.n_parameters != 1]} in {facts.seconds:.2g} s; "
            f"mean loss on these rows: {facts.loss_before:.4f} before, {facts.loss_after:.4f} after",
            *([] if selection is None else [page(selection.to_markdown())]),
            f"wrote {output}",
        )


@verb(
    "glayers apply model.safetensors test.npz -o calibrated.npz",
    "glayers apply model.safetensors new.csv -o calibrated.parquet",
    "cat new.csv | glayers apply model.safetensors - -o - --format json",
)
def apply(
    model: Annotated[Path, typer.Argument(metavar="MODEL", readable=False, help="A file from `glayers fit`.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", readable=False, help=f"{PREDICTIONS} Labels may be missing.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="OUT", help="Where to write: .npz, .csv, .tsv, .parquet, .json, or -."),
    ],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            autocompletion=lambda: [each[1:] for each in WRITERS],
            help="npz, csv, tsv, parquet or json; by default the ending of OUT decides, and a pipe gets csv.",
        ),
    ] = None,
    logits: Annotated[
        bool, typer.Option("--logits", metavar=FLAG, help="Write calibrated logits instead of probabilities.")
    ] = False,
    labels: Labels = None,
    part: Part = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Calibrate predictions with a fitted calibrator and write the probabilities.

    Labels, weights, groups and class names of the input are written too.
    """
    from glayers.calibrators import load

    target = Output(output, force, (model, file, labels))
    ending = f".{file_format}" if file_format else ".csv" if output == PIPE else output.suffix.lower()
    if ending not in WRITERS:
        raise typer.BadParameter(f"cannot write {ending!r}; give OUT one of the endings {listed(WRITERS)}, or --format")
    if output != PIPE:
        target.check()
    calibrator = load(model)
    parts = read_rows(source(file), labels)
    if part is not None and part not in parts:
        raise BadFile(f"{name_of(file)}: has no part {part!r}; its parts are {listed(parts)}")
    wanted = parts if part is None else {part: parts[part]}
    data = to_bytes({name: _calibrated(calibrator, rows, logits) for name, rows in wanted.items()}, ending)
    if output == PIPE:
        write_to_pipe(data, text=ending in _TEXT)
        return
    target.write(data)
    if not quiet:
        count = sum(len(rows.predictions) for rows in wanted.values())
        show(f"calibrated {count:,} rows of {name_of(file)} with {name_of(model)}; wrote {output}")


def _calibrated(calibrator: "Calibrator", rows: RowsToCalibrate, logits: bool) -> Contents:
    given = rows.predictions
    if None not in (given.class_names, calibrator.class_names_) and given.class_names != calibrator.class_names_:
        raise BadPredictions(
            f"the model was fitted on the classes {listed(calibrator.class_names_ or ())}, but these rows have "
            f"{listed(given.class_names or ())}; give the columns in the model's order"
        )
    return Contents(
        logits=calibrator.transform(given.logits) if logits else None,
        probabilities=None if logits else calibrator.predict_proba(given.logits),
        labels=given.labels if rows.labelled else None,
        weights=given.weights,
        groups=given.groups,
        class_names=given.class_names or calibrator.class_names_,
    )
