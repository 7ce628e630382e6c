"""`compare`, `report`, `demo` and `plot`: methods side by side, in a table, an HTML report or a figure."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from glayers.cli import arguments as arg
from glayers.cli.runtime import flag, one_line, show, show_json, show_note, title
from glayers.datasets import load_fashion_mnist
from glayers.errors import BadPredictions, GlayersError
from glayers.files import write_whole
from glayers.predictions import Predictions
from glayers.predictions.contents import Reading, Rows
from glayers.progress import progress_bar
from glayers.report.figures import FIGURES
from glayers.report.verdict import class_gaps, confidence_sentence, verdict
from glayers.text_tables import terminal_table

if TYPE_CHECKING:
    from glayers.comparison import Comparison

KINDS = "Figures:\n" + "".join(f"  {kind:<24}{figure.title}\n" for kind, figure in FIGURES.items()) + "\n"
_DEMO = "Fashion-MNIST sample (glayers demo)"
# Metadata to leave out of each format, so that two runs give the same bytes.
_DATED = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}
_FILES = f"{arg.PREDICTIONS} Each file is one panel; all files must hold the same rows."
_EVENT = "The event, as in score: top, rank:2, within-top:3, label:NAME."
_MODEL = "Also show the first file after calibration by this model; can be repeated."
_WIDTH = "The width of the figure; a column of most journals has 3.3, a page 6.9."


def compare(
    calibration: arg.Calibration,
    test: arg.Test,
    methods: arg.Methods = None,
    differences: Annotated[bool, flag("--differences", text="Add differences of methods with intervals.")] = False,
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Fit several methods on calibration rows; score them and the uncalibrated model on test rows.

    Examples
    --------
    $ glayers compare calibration.npz test.npz
    $ glayers compare calibration.csv test.csv --methods temperature,vector
    """
    comparison, learned = _compared(calibration, test, methods, seed, quiet)
    between = comparison.differences(random_state=seed) if differences else None
    if as_json:
        numbers: dict[str, Any] = {
            "methods": comparison.to_dict(),
            "calibration_tests": {method: found.to_dict() for method, found in comparison.calibration_tests.items()},
            "notes": comparison.remarks(),
            "failed": comparison.failed,
            "findings": [finding._asdict() for finding in _findings(comparison, learned)],
        }
        if between is not None:
            numbers["differences"] = between.to_dicts()
        show_json(numbers)
        return
    _show(comparison, learned, test.name, quiet)
    if between is not None:
        show("", *str(between).splitlines())


def report(
    calibration: arg.Calibration,
    test: arg.Test,
    output: arg.Page = Path("report.html"),
    methods: arg.Methods = None,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    quiet: arg.Quiet = False,
) -> None:
    """Compare methods and write the HTML report: one file with a summary, tables and interactive figures.

    Examples
    --------
    $ glayers report calibration.npz test.npz
    $ glayers report calibration.npz test.npz -o both.html --methods vector
    """
    arg.check_output(output, force, calibration, test)
    comparison, learned = _compared(calibration, test, methods, seed, quiet)
    _write_page(comparison, learned, test.name, output, force, quiet)


def demo(
    output: arg.Page = Path("report.html"), seed: arg.Seed = 0, force: arg.Force = False, quiet: arg.Quiet = False
) -> None:
    """Compare seven methods on the sample data of the package, and write a report.

    Examples
    --------
    $ glayers demo
    $ glayers demo --output first-look.html --quiet
    """
    arg.check_output(output, force)
    calibration, test = load_fashion_mnist()
    comparison = _fitted(calibration, test, None, "logits", seed, quiet)
    _write_page(comparison, calibration, _DEMO, output.resolve(), force, quiet)


def _compared(calibration: Path, test: Path, methods: str | None, seed: int, quiet: bool) -> tuple["Comparison", Rows]:
    """Read two files, and compare methods; return also the rows that they were fitted on."""
    names = arg.method_names(methods)
    learned, inputs = arg.read_sample(calibration, Reading(), seed, quiet)
    tested, _ = arg.read_sample(test, Reading(), seed, quiet)
    return _fitted(learned, tested, names, inputs, seed, quiet), learned


def _fitted(
    calibration: Rows, test: Rows, methods: list[str] | None, inputs: str, seed: int, quiet: bool
) -> "Comparison":
    from glayers.comparison import compare as compare_methods

    progress = arg.progress_of(quiet)
    found = compare_methods(calibration, test, methods, inputs=inputs, random_state=seed, progress=progress)
    if not found.calibrators:
        reasons = "; ".join(f"{method}: {why}" for method, why in found.failed.items())
        raise GlayersError(f"no method could be fitted; {reasons}")
    return found


def _findings(comparison: "Comparison", learned: Rows) -> list[Any]:
    """Return the problems that scores do not show."""
    from glayers.report.verdict import findings

    return list(findings(comparison, learned))


def _show(comparison: "Comparison", learned: Rows, name: str, quiet: bool) -> None:
    """Print a table, what the tests found, and problems."""
    from glayers.comparison import STARRED  # on first use: it imports every calibrator

    n_scored = next(iter(comparison.scorecards.values())).rows  # on a cluster, more than `test` holds
    show(title(f"{name}: fitted on {len(learned):,} rows, scored on {n_scored:,}"))
    show(terminal_table(comparison.cells(), STARRED), "")
    for method, test in comparison.calibration_tests.items():
        card = comparison.scorecards[method]
        show(f"{method}: {test}", f"{method}: {confidence_sentence(test, card)}")
        said = verdict(test, card, class_gaps(comparison.rows(method)))
        if said.sentence != test.finding and not test.rejected:  # single classes are off
            show(f"{method}: {said.sentence}")
    for finding in _findings(comparison, learned):
        show(f"attention: {finding.subject}: {finding.found}. {finding.advice}.")
    if not quiet:
        for line in comparison.remarks():
            show_note(f"note: {line}")


def _write_page(comparison: "Comparison", learned: Rows, name: str, output: Path, force: bool, quiet: bool) -> None:
    """Print the comparison, and write its page."""
    _show(comparison, learned, name, quiet)
    arg.check_output(output, force)
    options: dict[str, Any] = {"progress": arg.progress_of(quiet), "random_state": comparison.random_state}
    comparison.to_html(output, calibration=learned, title=name, force=force, **options)
    show("", f"wrote {output}: open it in a browser")


def plot(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Which figure, see below.")],
    files: Annotated[list[Path], arg.file_argument("FILE", _FILES)],
    output: Annotated[Path, arg.output_option("FIGURE", "Where to draw: .png, .svg or .pdf.")],
    model: Annotated[list[Path] | None, arg.file_option("MODEL", _MODEL)] = None,
    event: Annotated[str | None, typer.Option(metavar="EVENT", help=_EVENT)] = None,
    width: Annotated[float | None, typer.Option(metavar="INCHES", min=1, max=40, help=_WIDTH)] = None,
    reading: Reading = arg.READING,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    quiet: arg.Quiet = False,
) -> None:
    """Draw a figure of predictions, uncalibrated and calibrated side by side.

    Instead of predictions and labels, a file may have the columns confidence and correct. From Python, figures have
    more options: see `glayers.report.plots`.

    Examples
    --------
    $ glayers plot reliability test.npz calibrated.npz -o reliability.png
    $ glayers plot ks test.npz --model model.safetensors -o ks.svg
    $ glayers plot ks test.npz -o second.pdf --event rank:2
    $ glayers plot reliability test.npz -o figure1.pdf --width 3.3
    """
    figure_kind = FIGURES[arg.known_name(kind, FIGURES, "figure")]
    if event and not figure_kind.by_event:
        raise typer.BadParameter(f"--event is not for {kind}; leave it out")
    ending = image_ending(output)
    models = model or []
    arg.check_output(output, force, *files, *models, reading.labels)
    methods = dict(zip(_names(files, models), _rows(files, models, reading), strict=True))
    with progress_bar(arg.progress_of(quiet), f"drawing {kind}", None):
        from glayers.report import plots  # slow to import

        figure = plots.figure(kind, methods, event=arg.event_of(event or "top"), width=width, random_state=seed)
        drawn = image(figure, ending)
    write_whole(output, drawn, force=force)
    if not quiet:
        show(f"drew {', '.join(methods)}; wrote {output}", f"caption: {figure_kind.title}. {figure_kind.caption}")


def _names(files: list[Path], models: list[Path]) -> list[str]:
    """Name each file by its stem."""
    names = [one_line(file.stem) for file in [*files, *models]]
    if models and len(files) == 1:
        names[0] = "uncalibrated"
    if len(set(names)) < len(names):
        raise typer.BadParameter(f"files must have different names, which become those of the panels; got {names}")
    return names


def _rows(files: list[Path], models: list[Path], reading: Reading) -> list[Rows]:
    """Read the same rows from every file, and calibrate the first by every model."""
    from glayers.calibrators import load

    rows = [arg.read_rows(file, reading) for file in files]
    first = rows[0]
    for file, other in zip(files, rows, strict=True):
        same = len(first) == len(other)  # whether an answer was correct may differ between methods
        if isinstance(first, Predictions) and isinstance(other, Predictions):
            same = np.array_equal(first.labels, other.labels)
        if not same:
            raise BadPredictions(f"{file.name} and {files[0].name} hold different rows or labels")
    return rows + [load(model).apply(first) for model in models]


def image_ending(output: Path) -> str:
    """Return the ending of the name of a figure, which says how to draw it."""
    ending = output.suffix.lower()
    if ending not in _DATED:
        raise typer.BadParameter(f"{output}: the ending must be one of {', '.join(_DATED)}")
    return ending


def image(figure: Any, ending: str) -> bytes:
    """Return the bytes of a figure."""
    stream = io.BytesIO()
    figure.savefig(stream, format=ending[1:], metadata={_DATED[ending]: None})
    return stream.getvalue()
