"""`plot`: predictions of the same rows, before and after calibration -> one figure of `FIGURES` in a file."""

import contextlib
import inspect
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
from glayers.report.figures import EVENT_FIGURES
from glayers.report.words import capital

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The names of FIGURES, so that help and completion need no matplotlib; a test compares the two.
KINDS: dict[str, str] = {
    **{
        kind: f"{figure.title}: {choice.label}"
        for figure in EVENT_FIGURES.values()
        for kind, choice in figure.choices.items()
    },
    "overview": "reliability, and probability by fraction of rows, side by side",
    "ks-ranks": "KS of rank 1, rank 2, ...",
    "ks-within": "KS of the label being within the top r",
    "ks-classes": "KS of the classes with the largest errors",
    "map": "probabilities of the other files against those of the first",
    "classes": "classes with too high and too low probabilities",
    "differences": "differences from the first, with intervals",
}
_WIDTHS = {"column": 3.3, "page": 6.9}  # inches, as most journals have them
_WIDEST = 40.0
_WITH_BINS = ("overview", "reliability")
_WITH_BAND = (*_WITH_BINS, "ks")
# Metadata to leave out of each format, so that two runs give the same bytes.
_DATED = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}
_FILES = f"{arg.PREDICTIONS} Each file is one panel; all files must hold the same rows."
_MODEL = "Also show the first file after calibration by this model; can be repeated."


@partial(verb, more="Figures:\n" + "".join(f"  {kind:<24}{about}\n" for kind, about in KINDS.items()) + "\n")
def plot(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", autocompletion=lambda: list(KINDS.items()), help="Which figure, see below.")
    ],
    files: Annotated[list[Path], arg.file_argument("FILE", _FILES)],
    output: Annotated[Path, arg.output_option("FIGURE", "Where to draw: .png, .svg or .pdf.")],
    model: Annotated[list[Path] | None, typer.Option(metavar="MODEL", readable=False, help=_MODEL)] = None,
    event: arg.EventName = "top",
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
    $ glayers plot reliability-smooth test.npz -o second.pdf --event rank:2
    $ glayers plot overview test.npz -o figure1.pdf --width column --names mine
    """
    arg.known_name(kind, KINDS, "figure")
    chosen: dict[str, Any] = {"dark": dark}
    if event != "top":
        chosen["event"] = arg.event_of(event)
    if bins is not None:
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
        figure = _figure(kind, methods, chosen, seed)
        if title is not None:
            figure.suptitle(one_line(title), fontsize="large", color=figure.axes[0].title.get_color())
        target.write(_image(figure, _inches(width), ending))
    if not quiet:
        show(f"drew {', '.join(methods)}; wrote {output}", f"caption: {_caption(kind, methods, event)}")


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


def _caption(kind: str, methods: dict[str, Predictions | Confidences], event: str) -> str:
    """Return a caption to start from."""
    rows = len(next(iter(methods.values())))
    about = capital(KINDS[kind])
    if event != "top":
        about += f" (event: {event})"
    caption = f"{about}, for {', '.join(methods)} on {rows:,} test rows."
    if kind.startswith(_WITH_BAND):
        caption += " Shaded: where 95 % of calibrated models lie."
    return caption


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


def _figure(kind: str, methods: dict[str, Predictions | Confidences], chosen: dict[str, Any], seed: int) -> "Figure":
    """Draw a figure with the settings that were chosen, and with those others that it takes."""
    from glayers.report.plots import FIGURES

    takes = inspect.signature(FIGURES[kind]).parameters
    first = next(iter(methods.values()))
    settings: dict[str, Any] = {"random_state": seed}
    if isinstance(first, Confidences):
        settings["metrics"] = ("ks", "accuracy")
    elif first.class_names is not None:
        settings["names"] = tuple(map(one_line, first.class_names))
    for name in chosen:
        if name not in takes or (name == "n_bins" and not kind.startswith(_WITH_BINS)):
            raise typer.BadParameter(f"--{name.removeprefix('n_')} is not for {kind}; leave it out")
    return FIGURES[kind](methods, **{name: settings[name] for name in takes if name in settings}, **chosen)


def _image(figure: "Figure", inches: float | None, ending: str) -> bytes:
    from glayers.report.plots.style import fit_width

    if inches is not None:
        fit_width(figure, inches)
    stream = io.BytesIO()
    figure.savefig(stream, format=ending[1:], metadata={_DATED[ending]: None})
    return stream.getvalue()
