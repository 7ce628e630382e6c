"""A fitted calibrator in a file and rows, labelled or not -> the same rows with true probabilities, in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glayers.cli.inputs import PIPE, name_of, source
from glayers.cli.options import PREDICTIONS, Force, Labels, Part, Quiet
from glayers.cli.outputs import Output, write_to_pipe
from glayers.cli.screen import show
from glayers.cli.verb import FLAG, verb
from glayers.errors import BadFile, BadPredictions
from glayers.predictions.contents import Rows, listed
from glayers.predictions.readers import read_rows
from glayers.predictions.writers import WRITERS, Written, to_bytes

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator

_TEXT = {".csv", ".tsv", ".json"}


def _known_format(name: str | None) -> str | None:
    if name is not None and f".{name}" not in WRITERS:
        raise typer.BadParameter(f"unknown format {name!r}; known are {listed(each[1:] for each in WRITERS)}")
    return name


@verb(
    "glayers apply model.safetensors test.npz -o calibrated.npz",
    "glayers apply model.safetensors new.csv -o calibrated.parquet",
    "cat new.csv | glayers apply model.safetensors - -o - --format json",
)
def apply(
    model: Annotated[Path, typer.Argument(metavar="MODEL", readable=False, help="What `glayers fit` wrote.")],
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
            callback=_known_format,
            autocompletion=lambda: [each[1:] for each in WRITERS],
            help="npz, csv, tsv, parquet or json, whatever the name of OUT; to a pipe csv if not given.",
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

    Labels, weights, groups and class names are handed on where they are there.
    """
    from glayers.calibrators import load

    target = Output(output, force, (model, file))
    ending = _ending(output, file_format)
    if output != PIPE:
        target.check()
    calibrator = load(model)
    parts = _wanted(read_rows(source(file), labels), part, file)
    data = to_bytes({name: _calibrated(calibrator, rows, logits) for name, rows in parts.items()}, ending)
    if output == PIPE:
        write_to_pipe(data, text=ending in _TEXT)
        return
    target.write(data)
    if not quiet:
        count = sum(len(rows.predictions) for rows in parts.values())
        show(f"calibrated {count:,} rows of {name_of(file)} with {name_of(model)}; wrote {output}")


def _ending(output: Path, file_format: str | None) -> str:
    if file_format is not None:
        return f".{file_format}"
    ending = ".csv" if output == PIPE else output.suffix.lower()
    if ending not in WRITERS:
        raise typer.BadParameter(f"{output}: the ending must be one of {listed(WRITERS)}; or say --format")
    return ending


def _wanted(parts: dict[str, Rows], part: str | None, file: Path) -> dict[str, Rows]:
    if part is None:
        return parts
    if part not in parts:
        raise BadFile(f"{name_of(file)}: has no part {part!r}; its parts are {listed(parts)}")
    return {part: parts[part]}


def _calibrated(calibrator: "Calibrator", rows: Rows, logits: bool) -> Written:
    given = rows.predictions
    if None not in (given.class_names, calibrator.class_names_) and given.class_names != calibrator.class_names_:
        raise BadPredictions(
            f"the model was fitted on the classes {listed(calibrator.class_names_ or ())}, but these rows have "
            f"{listed(given.class_names or ())}; give the columns in the model's order"
        )
    change = calibrator.transform if logits else calibrator.predict_proba
    return Written(
        kind="logits" if logits else "probabilities",
        scores=change(given.logits),
        labels=given.labels if rows.labelled else None,
        weights=given.weights,
        groups=given.groups,
        class_names=given.class_names or calibrator.class_names_,
    )
