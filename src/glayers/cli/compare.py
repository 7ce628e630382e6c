"""`compare`, `report`, `demo`: calibration and test rows -> methods side by side, as a table and an HTML report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glayers.cli.arguments import (
    AsJson,
    Calibration,
    Force,
    Methods,
    Output,
    Page,
    Quiet,
    Seed,
    Test,
    method_names,
    name_of,
    read_calibration_and_test,
)
from glayers.cli.runtime import show, show_json, show_note, suitable_threads, title, verb, waiting_for
from glayers.datasets import load_fashion_mnist
from glayers.errors import GlayersError
from glayers.predictions import Predictions
from glayers.report.tables import comparison_table, verdict

if TYPE_CHECKING:
    from glayers.comparison import Comparison

_DEMO_TITLE = "A small network on Fashion-MNIST (glayers demo)"
_BEGINNING = 4_096  # bytes of a page, its title among them


@verb(
    "glayers compare calibration.npz test.npz",
    "glayers compare both.npz --methods temperature,vector,isotonic --json",
    "glayers compare both.npz --methods temperature --report compared.html",
)
def compare(
    calibration: Calibration,
    test: Test = None,
    methods: Methods = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write an HTML report.")] = None,
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit several methods on calibration rows and score each on test rows, beside no calibration."""
    target = None if report is None else Output(report, force, (calibration, test))
    _compare_files(calibration, test, methods, target, seed, quiet, as_json=as_json)


@verb(
    "glayers report calibration.npz test.npz",
    "glayers report both.npz -o both.html --methods temperature,vector",
)
def report(
    calibration: Calibration,
    test: Test = None,
    output: Page = Path("report.html"),
    methods: Methods = None,
    seed: Seed = 0,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods and write the HTML report: one file with the verdict, tables and interactive figures."""
    _compare_files(calibration, test, methods, Output(output, force, (calibration, test)), seed, quiet)


@verb("glayers demo", "glayers demo --output first-look.html --quiet")
def demo(output: Page = Path("report.html"), seed: Seed = 0, force: Force = False, quiet: Quiet = False) -> None:
    """Calibrate the sample predictions of the package by the strongest methods, and write a report.

    It replaces the report of an earlier demo, and any other file only with --force.
    """
    target = Output(output.resolve(), force or _is_of_a_demo(output))
    target.check()
    rows = load_fashion_mnist()
    _compare(rows, "a small network on Fashion-MNIST", None, target, seed, quiet, page_title=_DEMO_TITLE)


def _is_of_a_demo(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return f"<title>{_DEMO_TITLE}".encode() in stream.read(_BEGINNING)


def _compare_files(
    calibration: Path,
    test: Path | None,
    methods: str | None,
    target: Output | None,
    seed: int,
    quiet: bool,
    *,
    as_json: bool = False,
) -> None:
    wanted = None if methods is None else method_names(methods)
    if target is not None:
        target.check()
    rows = read_calibration_and_test(calibration, test)
    _compare(rows, name_of(test or calibration), wanted, target, seed, quiet, as_json=as_json)


def _compare(
    rows: tuple[Predictions, Predictions],
    name: str,
    methods: list[str] | None,
    target: Output | None,
    seed: int,
    quiet: bool,
    *,
    as_json: bool = False,
    page_title: str | None = None,
) -> None:
    """Compare the methods, print the result, and write the report if there is a file for it."""
    from glayers import comparison

    wanted = methods or list(comparison.DEFAULT_METHODS)
    with suitable_threads(wanted, *rows):
        found = comparison.compare(*rows, wanted, random_state=seed, progress=False if quiet else None)
    if found.failed and not found.calibrators:
        raise GlayersError(f"no method could be fitted; {'; '.join(f'{n}: {why}' for n, why in found.failed.items())}")
    if as_json:
        show_json({"methods": found.to_dict(), "notes": found.notes, "failed": found.failed})
    else:
        show(title(f"{len(rows[1]):,} test rows of {name}, fitted on {len(rows[0]):,} others"))
        _show_comparison(found, quiet)
    if target is None:
        return
    target.check()
    with suitable_threads((), *rows), waiting_for("writing the report", quiet):
        found.to_html(target.path, calibration=rows[0], random_state=seed, title=page_title or name, force=target.force)
    if not as_json:
        show("", f"wrote {target.path}: open it in a browser")


def _show_comparison(found: "Comparison", quiet: bool) -> None:
    """Print the table, the verdict before and after, and, unless `quiet`, the notes of the fits to standard error."""
    cards = found.scorecards
    best = "auto" if "auto" in cards else min(cards, key=lambda name: cards[name].nll)
    show(comparison_table(cards, found.seconds), "")
    for name in dict.fromkeys([next(iter(cards)), best]):
        show(f"{name}: {verdict(cards[name])}")
    for line in () if quiet else found.remarks():
        show_note(f"note: {line}")
