"""`plot`: predictions of the same rows, before and after calibration -> one figure of `FIGURES` in a file."""

import inspect
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from glayers.arrays import Array
from glayers.cli import arguments as arg
from glayers.cli.runtime import one_line, show, verb, waiting_for
from glayers.errors import BadPredictions
from glayers.predictions import Predictions, read_parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The names of FIGURES, here once more so that help and completion need no matplotlib; a test keeps both the same.
KINDS: dict[str, str] = {
    "reliability": "accuracy against confidence, in bins of equal width",
    "reliability-equal-mass": "the same in bins of equal numbers of rows",
    "reliability-smooth": "the same by kernels instead of bins",
    "reliability-corp": "the same by isotonic regression",
    "ks": "cumulative score and truth against fractile",
    "ks-fractile": "score and smoothed truth against fractile",
    "ks-score": "smoothed truth against score",
    "ks-ranks": "KS of the first, second, ... class of each row",
    "ks-within": "KS of the label being among the first r",
    "ks-classes": "KS of the worst classes",
    "map": "what probabilities of the first become in the others",
    "classes": "class by class, who gets too much and who too little",
    "differences": "how the others differ from the first, with intervals",
}
# By ending, what would make two runs differ in their bytes.
_DATED: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


def _known_kind(kind: str) -> str:
    return arg.known_name(kind, KINDS, "figure", "glayers plot --help")


def _complete_kind(incomplete: str) -> list[tuple[str, str]]:
    return [(kind, about) for kind, about in KINDS.items() if kind.startswith(incomplete)]


@verb(
    "glayers plot reliability test.npz calibrated.npz -o reliability.png",
    "glayers plot ks test.npz --model model.safetensors -o ks.svg --dark",
    "glayers plot reliability-smooth test.npz -o second.pdf --rank 2",
    more="Figures:\n" + "".join(f"  {kind:<24}{about}\n" for kind, about in KINDS.items()) + "\n",
)
def plot(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            callback=_known_kind,
            autocompletion=_complete_kind,
            help="Which figure; they are listed below.",
        ),
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE", readable=False, help=f"{arg.PREDICTIONS} One panel per file, all of the same rows."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FIGURE", help="Where to draw: .png, .svg or .pdf.")
    ],
    model: Annotated[
        list[Path] | None,
        typer.Option(metavar="MODEL", readable=False, help="Show the first file calibrated by this, too; repeatable."),
    ] = None,
    rank: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The class at this rank instead of the first.")
    ] = None,
    within: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Whether the label is among this many.")
    ] = None,
    class_: Annotated[
        int | None, typer.Option("--class", metavar="N", min=0, help="This class against the rest.")
    ] = None,
    bins: Annotated[int | None, typer.Option(metavar="N", min=1, help="How many bins.")] = None,
    dark: Annotated[bool, arg.flag("--dark", text="Light lines on a dark ground.")] = False,
    labels: arg.Labels = None,
    part: arg.Part = None,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    quiet: arg.Quiet = False,
) -> None:
    """Draw a figure of predictions, uncalibrated and calibrated side by side.

    Of a file with two parts, the part test is drawn.
    """
    models = model or []
    target = arg.Output(output, force, (*files, *models, labels))
    if output.suffix.lower() not in _DATED:
        raise typer.BadParameter(f"{output}: the ending must be one of {', '.join(_DATED)}")
    target.check()
    first, *others = [arg.only_or("test", arg.read_wanted(read_parts, file, labels, part)) for file in files]
    _check_same_rows(first, others, files)
    shown = [each.probabilities() for each in (first, *others)] + [_calibrated(each, first) for each in models]
    methods = dict(zip(_names(files, models), shown, strict=True))
    chosen = {"rank": rank, "within": within, "class_": class_, "n_bins": bins}
    with waiting_for(f"drawing {kind}", quiet):
        figure = _draw(kind, methods, first, chosen, dark=dark, seed=seed)
        target.write(_image(figure, output.suffix.lower()))
    if not quiet:
        show(f"drew {', '.join(methods)}; wrote {output}")


def _check_same_rows(first: Predictions, others: list[Predictions], files: list[Path]) -> None:
    for file, other in zip(files[1:], others, strict=True):
        if not np.array_equal(first.labels, other.labels):
            raise BadPredictions(
                f"{arg.name_of(file)} and {arg.name_of(files[0])} have different labels; give the same rows"
            )


def _names(files: list[Path], models: list[Path]) -> list[str]:
    """Call each file by its stem, by its whole path where two share one, and by its place where it stands twice."""
    given = [*files, *models]
    stems = [Path(arg.name_of(file)).stem for file in given]
    if models and len(files) == 1:
        stems[0] = "uncalibrated"
    for names in (stems, list(map(str, given))):
        if len(set(names)) == len(names):
            return list(map(one_line, names))
    return [f"{place}: {one_line(stem)}" for place, stem in enumerate(stems, start=1)]


def _calibrated(model: Path, rows: Predictions) -> Array:
    from glayers.calibrators import load

    return load(model).predict_proba(rows.logits)


def _draw(
    kind: str, methods: dict[str, Array], rows: Predictions, chosen: dict[str, int | None], *, dark: bool, seed: int
) -> "Figure":
    from glayers.metrics import Event, label, rank, within_top
    from glayers.report.plots import FIGURES

    takes = inspect.signature(FIGURES[kind]).parameters
    events: dict[str, Callable[[int], Event]] = {"rank": rank, "within": within_top, "class_": label}
    choices: dict[str, Any] = {}
    for name, value in chosen.items():
        if value is None:
            continue
        option = {"class_": "--class", "n_bins": "--bins"}.get(name, f"--{name}")
        argument = "event" if name in events else name
        if argument not in takes:
            raise typer.BadParameter(f"{option} is not for {kind}; leave it out")
        if argument in choices:
            raise typer.BadParameter("choose one of --rank, --within and --class")
        choices[argument] = events[name](value) if name in events else value
    names = None if rows.class_names is None else tuple(map(one_line, rows.class_names))
    known = {name: value for name, value in {"random_state": seed, "names": names}.items() if name in takes}
    return FIGURES[kind](methods, rows.labels, sample_weight=rows.weights, dark=dark, **known, **choices)


def _image(figure: "Figure", ending: str) -> bytes:
    import matplotlib

    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "glayers"}):  # or every run would invent new names inside an SVG
        figure.savefig(stream, format=ending[1:], metadata=_DATED[ending])
    return stream.getvalue()
