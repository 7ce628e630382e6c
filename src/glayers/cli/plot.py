"""`plot`: predictions of the same rows, before and after calibration -> one figure of `FIGURES` in a file."""

import contextlib
import io
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from glayers.cli import arguments as arg
from glayers.cli.runtime import flag, one_line, show, verb
from glayers.errors import BadPredictions
from glayers.predictions import Confidences, Predictions
from glayers.progress import progress_bar
from glayers.report.figures import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTHS = {"column": 3.3, "page": 6.9}  # inches, as most journals have them
_WIDEST = 40.0
# Metadata to leave out of each format, so that two runs give the same bytes.
_DATED = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}
_FILES = f"{arg.PREDICTIONS} Each file is one panel; all files must hold the same rows."
_EVENT = "The event, as in score: top, rank:2, within-top:3, class:NAME; repeat it for one row of panels each."
_MODEL = "Also show the first file after calibration by this model; can be repeated."


_KINDS = {kind: figure.title for kind, figure in FIGURES.items()}


@partial(verb, more="Figures:\n" + "".join(f"  {kind:<24}{title}\n" for kind, title in _KINDS.items()) + "\n")
def plot(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", autocompletion=lambda: list(_KINDS.items()), help="Which figure, see below."),
    ],
    files: Annotated[list[Path], arg.file_argument("FILE", _FILES)],
    output: Annotated[Path, arg.output_option("FIGURE", "Where to draw: .png, .svg or .pdf.")],
    model: Annotated[list[Path] | None, typer.Option(metavar="MODEL", readable=False, help=_MODEL)] = None,
    event: Annotated[list[str] | None, typer.Option(metavar="EVENT", help=_EVENT)] = None,
    bins: Annotated[int | None, typer.Option(metavar="N", min=1, help="The number of bins.")] = None,
    width: Annotated[
        str | None, typer.Option(metavar="column|page|INCHES", help="Scale the figure to this width, letters too.")
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="A title above all panels.")] = None,
    names: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="The name of each panel, instead of the names of the files.")
    ] = None,
    dark: Annotated[bool, flag("--dark", text="Light lines on a dark background.")] = False,
    labels: arg.Labels = None,
    part: arg.Part = None,
    probabilities: arg.Probabilities = False,
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
    $ glayers plot ks test.npz --model model.safetensors -o ks.svg --dark
    $ glayers plot ks test.npz -o ranks.pdf --event rank:1 --event rank:2
    $ glayers plot reliability test.npz -o figure1.pdf --width column
    """
    arg.known_name(kind, FIGURES, "figure")
    chosen: dict[str, Any] = {"dark": dark, "width": _inches(width), "random_state": seed}
    if event:
        _refuse_unless(FIGURES[kind].by_event, "--event", kind)
        chosen["event"] = [arg.event_of(each) for each in event]
    if bins is not None:
        _refuse_unless(kind.startswith("reliability"), "--bins", kind)
        chosen["n_bins"] = bins
    models = model or []
    ending = output.suffix.lower()
    if ending not in _DATED:
        raise typer.BadParameter(f"{output}: the ending must be one of {', '.join(_DATED)}")
    target = arg.Output(output, force, (*files, *models, labels))
    reading = arg.reading_of(labels, part, probabilities)
    rows = [arg.only_or("test", arg.read_parts(arg.source_of([file], reading))).rows for file in files]
    for file, other in zip(files, rows, strict=True):
        if not _same_rows(rows[0], other):
            raise BadPredictions(f"{arg.name_of(file)} and {arg.name_of(files[0])} hold different rows or labels")
    rows += [_calibrated(each, rows[0]) for each in models]
    shown = _names(files, models) if names is None else _own_names(names, len(rows))
    methods = dict(zip(shown, rows, strict=True))
    with progress_bar(arg.progress_of(quiet), f"drawing {kind}", None):
        from glayers.report import plots  # slow to import

        figure = plots.figure(kind, methods, **chosen)
        if title is not None:
            figure.suptitle(one_line(title), fontsize="large", color=figure.axes[0].title.get_color())
        target.write(_image(figure, ending))
    if not quiet:
        show(f"drew {', '.join(methods)}; wrote {output}", f"caption: {_caption(kind, methods, event or [])}")


def _refuse_unless(possible: bool, option: str, kind: str) -> None:
    if not possible:
        raise typer.BadParameter(f"{option} is not for {kind}; leave it out")


def _inches(width: str | None) -> float | None:
    """Return a width in inches: that of a column or a page of most journals, or a number."""
    if width is None:
        return None
    if width in _WIDTHS:
        return _WIDTHS[width]
    with contextlib.suppress(ValueError):
        if 1.0 <= float(width) <= _WIDEST:
            return float(width)
    raise typer.BadParameter(f"--width must be column, page or a number of inches from 1 to {_WIDEST:g}; got {width}")


def _own_names(names: str, wanted: int) -> list[str]:
    given = [one_line(name.strip()) for name in names.split(",")]
    if len(given) != wanted or len(set(given)) != wanted or not all(given):
        raise typer.BadParameter(f"--names must be {wanted} different names with commas between them; got {names}")
    return given


def _caption(kind: str, methods: dict[str, Predictions | Confidences], events: list[str]) -> str:
    """Return a caption to start from."""
    rows = len(next(iter(methods.values())))
    about = f" ({', '.join(events)})" if events else ""
    return f"{FIGURES[kind].title}{about} of {', '.join(methods)} on {rows:,} test rows. {FIGURES[kind].caption}"


def _same_rows(one: Predictions | Confidences, other: Predictions | Confidences) -> bool:
    if isinstance(one, Predictions) and isinstance(other, Predictions):
        return np.array_equal(one.labels, other.labels)
    return len(one) == len(other)  # whether an answer was correct may differ between methods


def _names(files: list[Path], models: list[Path]) -> list[str]:
    """Name each file by its stem; by its path if two share a stem, and by its place if it is given twice."""
    given = [*files, *models]
    stems = [Path(arg.name_of(file)).stem for file in given]
    if models and len(files) == 1:
        stems[0] = "uncalibrated"
    for names in (stems, list(map(str, given))):
        if len(set(names)) == len(names):
            return list(map(one_line, names))
    return [f"{place}: {one_line(stem)}" for place, stem in enumerate(stems, start=1)]


def _calibrated(model: Path, rows: Predictions | Confidences) -> Predictions | Confidences:
    from glayers.calibrators import load

    return load(model).apply(rows)


def _image(figure: "Figure", ending: str) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=ending[1:], metadata={_DATED[ending]: None})
    return stream.getvalue()
