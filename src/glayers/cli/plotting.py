"""`plot`: predictions of the same rows, before and after calibration -> one figure of `FIGURES` in a file."""

import io
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from glayers.cli import arguments as arg
from glayers.cli.runtime import one_line, show
from glayers.errors import BadPredictions
from glayers.files import write_whole
from glayers.predictions import Predictions
from glayers.predictions.contents import Reading, Rows
from glayers.progress import progress_bar
from glayers.report.figures import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = "Figures:\n" + "".join(f"  {kind:<24}{figure.title}\n" for kind, figure in FIGURES.items()) + "\n"
_WIDTHS = {"column": "3.3", "page": "6.9"}  # inches, as most journals have them
_WIDEST = 40.0
# Metadata to leave out of each format, so that two runs give the same bytes.
_DATED = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}
_FILES = f"{arg.PREDICTIONS} Each file is one panel; all files must hold the same rows."
_EVENT = "The event, as in score: top, rank:2, within-top:3, label:NAME."
_MODEL = "Also show the first file after calibration by this model; can be repeated."
_WIDTH = "Figure width: column, page, or inches."
_NAMES = "The name of each panel, instead of the names of the files."


def plot(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Which figure, see below.")],
    files: Annotated[list[Path], arg.file_argument("FILE", _FILES)],
    output: Annotated[Path, arg.output_option("FIGURE", "Where to draw: .png, .svg or .pdf.")],
    model: Annotated[list[Path] | None, arg.file_option("MODEL", _MODEL)] = None,
    event: Annotated[str | None, typer.Option(metavar="EVENT", help=_EVENT)] = None,
    bins: Annotated[int | None, typer.Option(metavar="N", min=1, help="The number of bins.")] = None,
    width: Annotated[str | None, typer.Option(metavar="column|page|INCHES", help=_WIDTH)] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="A title above all panels.")] = None,
    names: Annotated[str | None, typer.Option(metavar="A,B,...", help=_NAMES)] = None,
    reading: Reading = arg.READING,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    quiet: arg.Quiet = False,
) -> None:
    """Draw a figure of predictions, uncalibrated and calibrated side by side.

    From a file with two parts, `plot` uses the test part.

    Instead of predictions and labels, a file may have the columns confidence and correct.

    Examples
    --------
    $ glayers plot reliability test.npz calibrated.npz -o reliability.png
    $ glayers plot ks test.npz --model model.safetensors -o ks.svg
    $ glayers plot ks test.npz -o second.pdf --event rank:2
    $ glayers plot reliability test.npz -o figure1.pdf --width column
    """
    figure_kind = FIGURES[arg.known_name(kind, FIGURES, "figure")]
    if event and not figure_kind.by_event:
        raise typer.BadParameter(f"--event is not for {kind}; leave it out")
    if bins is not None and not kind.startswith("reliability"):
        raise typer.BadParameter(f"--bins is not for {kind}; leave it out")
    chosen: dict[str, Any] = {"event": arg.event_of(event or "top"), "n_bins": bins or 15, "width": _inches(width)}
    models = model or []
    ending = output.suffix.lower()
    if ending not in _DATED:
        raise typer.BadParameter(f"{output}: the ending must be one of {', '.join(_DATED)}")
    arg.check_output(output, force, *files, *models, reading.labels)
    methods = dict(zip(_names(files, models, names), _rows(files, models, reading), strict=True))
    with progress_bar(arg.progress_of(quiet), f"drawing {kind}", None):
        from glayers.report import plots  # slow to import

        figure = plots.figure(kind, methods, random_state=seed, **chosen)
        if title is not None:
            figure.suptitle(one_line(title), fontsize="large", color=figure.axes[0].title.get_color())
        image = _image(figure, ending)
    arg.check_output(output, force, *files, *models, reading.labels)
    write_whole(output, image)
    if not quiet:
        drawn = ", ".join(methods)
        about = f" ({event})" if event else ""
        n_rows = len(next(iter(methods.values())))
        caption = f"{figure_kind.title}{about} of {drawn} on {n_rows:,} test rows. {figure_kind.caption}"
        show(f"drew {drawn}; wrote {output}", f"caption: {caption}")


def _inches(width: str | None) -> float | None:
    """Return a width in inches: that of a column or a page of most journals, or a number."""
    if width is None:
        return None
    inches = 0.0
    with suppress(ValueError):
        inches = float(_WIDTHS.get(width, width))
    if not 1.0 <= inches <= _WIDEST:
        raise typer.BadParameter(
            f"--width must be column, page or a number of inches from 1 to {_WIDEST:g}; got {width}"
        )
    return inches


def _names(files: list[Path], models: list[Path], names: str | None) -> list[str]:
    """Name each file by its stem; by its path if two share a stem, and by its place if it is given twice."""
    given = [*files, *models]
    if names is not None:
        own = [one_line(name.strip()) for name in names.split(",")]
        if len(own) != len(given) or len(set(own)) != len(own) or not all(own):
            raise typer.BadParameter(
                f"--names must be {len(given)} different names with commas between them; got {names}"
            )
        return own
    stems = [Path(arg.name_of(file)).stem for file in given]
    if models and len(files) == 1:
        stems[0] = "uncalibrated"
    for chosen in (stems, list(map(str, given))):
        if len(set(chosen)) == len(chosen):
            return list(map(one_line, chosen))
    return [f"{place}: {one_line(stem)}" for place, stem in enumerate(stems, start=1)]


def _rows(files: list[Path], models: list[Path], reading: Reading) -> list[Rows]:
    """Read the same rows from every file, and calibrate the first by every model."""
    from glayers.calibrators import load

    rows = [arg.read_test(file, reading).rows for file in files]
    first = rows[0]
    for file, other in zip(files, rows, strict=True):
        same = len(first) == len(other)  # whether an answer was correct may differ between methods
        if isinstance(first, Predictions) and isinstance(other, Predictions):
            same = np.array_equal(first.labels, other.labels)
        if not same:
            raise BadPredictions(f"{arg.name_of(file)} and {arg.name_of(files[0])} hold different rows or labels")
    return rows + [load(model).apply(first) for model in models]


def _image(figure: "Figure", ending: str) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=ending[1:], metadata={_DATED[ending]: None})
    return stream.getvalue()
