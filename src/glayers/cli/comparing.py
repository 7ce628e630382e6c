"""`compare`, `report` and `demo`: methods side by side, in a table and in an HTML report."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glayers.cli import arguments as arg
from glayers.cli.runtime import flag, show, show_json, show_note, suitable_threads, title, verb
from glayers.datasets import load_fashion_mnist
from glayers.errors import BadFile, GlayersError
from glayers.metrics import METRICS, Scorecard
from glayers.predictions.contents import Reading, Rows, listed
from glayers.predictions.source import Chunk, Source
from glayers.report.words import confidence_sentence
from glayers.text_tables import terminal_table

if TYPE_CHECKING:
    from glayers.comparison import Comparison

_DEMO = "Fashion-MNIST sample (glayers demo)"


@dataclass(frozen=True)
class _Shown:
    """How to show a comparison."""

    page: arg.Output | None
    seed: int
    quiet: bool
    as_json: bool = False
    differences: bool = False


@verb
def compare(
    calibration: arg.Calibration,
    test: arg.Test = None,
    methods: arg.Methods = None,
    reading: Reading = arg.READING_OF_TWO,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write an HTML report.")] = None,
    differences: Annotated[bool, flag("--differences", text="Add differences of methods with intervals.")] = False,
    dask: arg.Dask = None,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Fit several methods on calibration rows; score them and the uncalibrated model on test rows.

    Examples
    --------
    $ glayers compare calibration.npz test.npz
    $ glayers compare both.npz --methods temperature,vector,isotonic --json
    $ glayers compare both.npz --methods temperature --report compared.html
    """
    target = None if report is None else arg.Output(report, force, (calibration, test))
    shown = _Shown(target, seed, quiet, as_json, differences)
    _compare_files(calibration, test, methods, reading, shown, dask)


@verb
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
    target = arg.Output(output, force, (calibration, test))
    _compare_files(calibration, test, methods, reading, _Shown(target, seed, quiet))


@verb
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
    target = arg.Output(output.resolve(), force or is_own)
    calibration, test = load_fashion_mnist()
    _compare_rows(calibration, test, _DEMO, None, "logits", _Shown(target, seed, quiet))


def _compare_files(
    calibration: Path, test: Path | None, methods: str | None, reading: Reading, shown: _Shown, dask: str | None = None
) -> None:
    """Read the rows to fit on and those to score, from two files or one with both parts; compare methods on them."""
    names = arg.method_names(methods)
    if test is None:
        learned, tested = _two_parts(calibration, reading, is_local=dask is None)
    elif calibration == test == arg.PIPE:
        raise typer.BadParameter("only one of two files can come from a pipe; pipe one file with both parts instead")
    else:
        learned = arg.read_sample(calibration, reading, "calibration", shown.seed, shown.quiet, dask=dask)
        if dask is not None:
            comparison = _compare_on_cluster(learned, arg.source_of([test], reading), names, shown.seed, dask)
            _show_comparison(comparison, learned.rows, arg.name_of(test), shown)
            return
        tested = arg.read_sample(test, reading, "test", shown.seed, shown.quiet, warn=True)
    name = arg.name_of(test or calibration)
    _compare_rows(learned.rows, tested.rows, name, names, learned.inputs, shown)


def _two_parts(file: Path, reading: Reading, is_local: bool) -> tuple[Chunk, Chunk]:
    source = arg.source_of([file], reading)
    if not source.is_small or not is_local:
        raise BadFile(
            f"{file}: only one small file that this machine reads can have parts calibration and test; "
            f"give the test rows as a second argument, TEST"
        )
    parts = arg.read_parts(source, warn=False)
    if set(parts) != {"calibration", "test"}:
        raise BadFile(
            f"{arg.name_of(file)}: has no parts calibration and test, but {listed(parts)}; "
            f"give the test rows as a second file"
        )
    return parts["calibration"], parts["test"]


def _compare_rows(
    calibration: Rows, test: Rows, name: str, methods: list[str] | None, inputs: str, shown: _Shown
) -> None:
    from glayers.comparison import DEFAULT_METHODS
    from glayers.comparison import compare as compare_methods

    options: dict[str, Any] = {"progress": False} if shown.quiet else {"on_result": _show_result}
    with suitable_threads(methods or DEFAULT_METHODS, calibration, test):
        comparison = compare_methods(calibration, test, methods, inputs=inputs, random_state=shown.seed, **options)
    _show_comparison(comparison, calibration, name, shown)


def _compare_on_cluster(
    learned: Chunk, test: Source, methods: list[str] | None, seed: int, address: str
) -> "Comparison":
    """Fit methods here, and score all test rows on a cluster."""
    from glayers.bridges import dask

    options: dict[str, Any] = {"inputs": learned.inputs, "random_state": seed}
    with dask.connect(address) as client:
        return dask.compare(learned.rows, dask.DaskRows(tuple(test.tasks())), methods, client=client, **options)


def _show_result(name: str, card: Scorecard, seconds: float) -> None:
    """Print one line for a method as soon as it is scored: others may take minutes."""
    metrics = [METRICS[metric] for metric in ("nll" if "nll" in card else "confidence_nll", "ks")]
    scores = [f"{metric.short_label} {metric.format(card[metric.name])}" for metric in metrics]
    show_note(f"{name}: {', '.join(scores)}, fitted in {seconds:.1f} s")


def _show_comparison(comparison: "Comparison", learned: Rows, name: str, shown: _Shown) -> None:
    """Print a table or JSON, and write the page if one is asked for."""
    from glayers.report.findings import banners, data_checks

    if not comparison.calibrators:
        reasons = "; ".join(f"{method}: {why}" for method, why in comparison.failed.items())
        raise GlayersError(f"no method could be fitted; {reasons}")
    between = comparison.differences(random_state=shown.seed) if shown.differences else None
    findings = banners(data_checks(comparison, learned))
    if shown.as_json:
        _show_numbers(comparison, findings, between)
    else:
        show(title(f"{name}: fitted on {len(learned):,} rows, scored on {comparison.n_scored:,}"))
        _show_table(comparison, findings, between)
        if not shown.quiet:
            for line in comparison.remarks():
                show_note(f"note: {line}")
    if shown.page is not None:
        shown.page.check()
        with suitable_threads((), learned, comparison.test):
            comparison.to_html(
                shown.page.path,
                calibration=learned,
                progress=arg.progress_of(shown.quiet),
                random_state=shown.seed,
                title=name,
                force=shown.page.force,
            )
        if not shown.as_json:
            show("", f"wrote {shown.page.path}: open it in a browser")


def _show_numbers(comparison: "Comparison", findings: Any, between: Any) -> None:
    numbers: dict[str, Any] = {
        "methods": comparison.to_dict(),
        "calibration_tests": {method: test.to_dict() for method, test in comparison.calibration_tests.items()},
        "notes": comparison.notes,
        "failed": comparison.failed,
        "left_out": comparison.left_out,
        "findings": [finding._asdict() for finding in findings],
    }
    if between is not None:
        numbers["differences"] = between.to_dicts()
    show_json(numbers)


def _show_table(comparison: "Comparison", findings: Any, between: Any) -> None:
    show(terminal_table(comparison.cells()), "")
    for method, test in comparison.calibration_tests.items():
        show(f"{method}: {test}", f"{method}: {confidence_sentence(test, comparison.scorecards[method])}")
    for finding in findings:
        show(f"attention: {finding.subject}: {finding.found}. {finding.advice}.")
    if between is not None:
        show("", *str(between).splitlines())
