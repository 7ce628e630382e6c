"""`compare`, `report` and `demo`: methods side by side, in a table and in an HTML report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glayers.cli import arguments as arg
from glayers.cli.runtime import flag, show, show_json, show_note, suitable_threads, title
from glayers.datasets import load_fashion_mnist
from glayers.errors import BadFile, GlayersError, listed
from glayers.predictions.contents import Reading, Rows
from glayers.predictions.source import Chunk
from glayers.report.words import confidence_sentence
from glayers.text_tables import terminal_table

if TYPE_CHECKING:
    from glayers.comparison import Comparison

_DEMO = "Fashion-MNIST sample (glayers demo)"


def compare(
    calibration: arg.Calibration,
    test: arg.Test = None,
    methods: arg.Methods = None,
    reading: Reading = arg.READING_OF_TWO,
    differences: Annotated[bool, flag("--differences", text="Add differences of methods with intervals.")] = False,
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Fit several methods on calibration rows; score them and the uncalibrated model on test rows.

    Examples
    --------
    $ glayers compare calibration.npz test.npz
    $ glayers compare both.npz --methods temperature,vector,isotonic --json
    """
    names = arg.method_names(methods)
    learned, tested = _read(calibration, test, reading, seed, quiet)
    comparison = _compared(learned.rows, tested.rows, names, learned.inputs, seed, quiet)
    between = comparison.differences(random_state=seed) if differences else None
    if as_json:
        numbers: dict[str, Any] = {
            "methods": comparison.to_dict(),
            "calibration_tests": {method: found.to_dict() for method, found in comparison.calibration_tests.items()},
            "notes": comparison.remarks(),
            "failed": comparison.failed,
            "findings": [finding._asdict() for finding in _findings(comparison, learned.rows)],
        }
        if between is not None:
            numbers["differences"] = between.to_dicts()
        show_json(numbers)
        return
    _show(comparison, learned.rows, arg.name_of(test or calibration), quiet)
    if between is not None:
        show("", *str(between).splitlines())


def report(
    calibration: arg.Calibration,
    test: arg.Test = None,
    output: arg.Page = Path("report.html"),
    methods: arg.Methods = None,
    reading: Reading = arg.READING_OF_TWO,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    quiet: arg.Quiet = False,
) -> None:
    """Compare methods and write the HTML report: one file with a summary, tables and interactive figures.

    Examples
    --------
    $ glayers report calibration.npz test.npz
    $ glayers report both.npz -o both.html --methods temperature,vector
    """
    arg.check_output(output, force, calibration, test)
    names = arg.method_names(methods)
    learned, tested = _read(calibration, test, reading, seed, quiet)
    comparison = _compared(learned.rows, tested.rows, names, learned.inputs, seed, quiet)
    _write_page(comparison, learned.rows, arg.name_of(test or calibration), output, force, quiet)


def demo(
    output: arg.Page = Path("report.html"), seed: arg.Seed = 0, force: arg.Force = False, quiet: arg.Quiet = False
) -> None:
    """Compare seven methods on the sample data of the package, and write a report.

    It replaces the report of an earlier demo. Use --force to replace any other file.

    Examples
    --------
    $ glayers demo
    $ glayers demo --output first-look.html --quiet
    """
    is_own = output.is_file() and f"<title>{_DEMO}".encode() in output.read_bytes()[:4_096]
    arg.check_output(output, force or is_own)
    calibration, test = load_fashion_mnist()
    comparison = _compared(calibration, test, None, "logits", seed, quiet)
    _write_page(comparison, calibration, _DEMO, output.resolve(), force or is_own, quiet)


def _read(calibration: Path, test: Path | None, reading: Reading, seed: int, quiet: bool) -> tuple[Chunk, Chunk]:
    """Read the rows to fit on and those to score, from two files or one with both parts."""
    if test is not None:
        if calibration == test == arg.PIPE:
            raise typer.BadParameter("only one of two files can come from a pipe; pipe one file with both parts")
        learned = arg.read_sample(calibration, reading, "calibration", seed, quiet)
        return learned, arg.read_sample(test, reading, "test", seed, quiet, warn=True)
    source = arg.source_of([calibration], reading)
    parts = arg.read_parts(source, warn=False) if source.is_one_file else {}
    if set(parts) != {"calibration", "test"}:
        raise BadFile(
            f"{arg.name_of(calibration)}: has no parts calibration and test, but {listed(parts)}; "
            f"give the test rows as a second file"
        )
    return parts["calibration"], parts["test"]


def _compared(
    calibration: Rows, test: Rows, methods: list[str] | None, inputs: str, seed: int, quiet: bool
) -> "Comparison":
    from glayers.comparison import DEFAULT_METHODS
    from glayers.comparison import compare as compare_methods

    progress = arg.progress_of(quiet)
    with suitable_threads(methods or DEFAULT_METHODS, calibration, test):
        found = compare_methods(calibration, test, methods, inputs=inputs, random_state=seed, progress=progress)
    if not found.calibrators:
        reasons = "; ".join(f"{method}: {why}" for method, why in found.failed.items())
        raise GlayersError(f"no method could be fitted; {reasons}")
    return found


def _findings(comparison: "Comparison", learned: Rows) -> list[Any]:
    """Return the problems that scores do not show."""
    from glayers.report.findings import findings

    return list(findings(comparison, learned))


def _show(comparison: "Comparison", learned: Rows, name: str, quiet: bool) -> None:
    """Print a table, what the tests found, and problems."""
    n_scored = next(iter(comparison.scorecards.values())).rows  # on a cluster, more than `test` holds
    show(title(f"{name}: fitted on {len(learned):,} rows, scored on {n_scored:,}"))
    show(terminal_table(comparison.cells()), "")
    for method, test in comparison.calibration_tests.items():
        show(f"{method}: {test}", f"{method}: {confidence_sentence(test, comparison.scorecards[method])}")
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
    with suitable_threads((), learned, comparison.test):
        comparison.to_html(output, calibration=learned, title=name, force=force, **options)
    show("", f"wrote {output}: open it in a browser")
