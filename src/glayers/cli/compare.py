"""Calibration and test rows -> every method side by side, in a table, and as a page to look at."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glayers.cli.fit import unfitted
from glayers.cli.inputs import name_of, read_calibration_and_test
from glayers.cli.options import AsJson, Calibration, Force, Methods, Quiet, Report, Seed, Test, method_names
from glayers.cli.outputs import Output
from glayers.cli.screen import show, show_json, tell, title, waiting_for
from glayers.cli.threads import enough_threads
from glayers.cli.verb import verb
from glayers.errors import GlayersError
from glayers.predictions import Predictions
from glayers.report.tables import comparison_table, verdict

if TYPE_CHECKING:
    from glayers.comparison import Comparison


@verb(
    "glayers compare calibration.npz test.npz",
    "glayers compare both.npz --methods temperature,vector,isotonic --json",
    "glayers compare both.npz --methods temperature --report compared.html",
)
def compare(
    calibration: Calibration,
    test: Test = None,
    methods: Methods = None,
    report: Report = None,
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit several methods on calibration rows and score each on test rows, beside doing nothing."""
    run_comparison(calibration, test, methods, report, seed=seed, force=force, as_json=as_json, quiet=quiet)


@verb(
    "glayers report calibration.npz test.npz",
    "glayers report both.npz -o both.html --methods temperature,vector",
)
def report(
    calibration: Calibration,
    test: Test = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PAGE", help="Where to write the page.")] = Path(
        "report.html"
    ),
    methods: Methods = None,
    seed: Seed = 0,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods and write the HTML report: one file with the verdict, tables and figures to explore."""
    run_comparison(calibration, test, methods, output, seed=seed, force=force, as_json=False, quiet=quiet)


def run_comparison(
    calibration: Path,
    test: Path | None,
    methods: str | None,
    page: Path | None,
    *,
    seed: int,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Read, compare, print, and write the page where one is wanted."""
    inputs = (calibration, *([] if test is None else [test]))
    target = None if page is None else Output(page, force, inputs)
    if target is not None:
        target.check()
    rows = read_calibration_and_test(calibration, test)
    name = name_of(test or calibration)
    found = compared(*rows, None if methods is None else method_names(methods), seed, quiet)
    if as_json:
        show_json(for_json(found))
    else:
        heading = f"{len(rows[1]):,} test rows of {name}, fitted on {len(rows[0]):,} others"
        show_comparison(found, heading, quiet)
    if target is not None:
        target.check()
        write_page(found, rows[0], target.path, name, seed, force, quiet)
        if not as_json:
            show("", f"wrote {target.path}: open it in a browser")


def compared(
    calibration: Predictions, test: Predictions, methods: list[str] | None, seed: int, quiet: bool
) -> "Comparison":
    """Compare methods; that none could be fitted is an error."""
    from glayers.comparison import DEFAULT_METHODS
    from glayers.comparison import compare as compare_methods

    # One bar for all of it: those of single fits would fall over it.
    wanted = {name: unfitted(name, seed, progress=False) for name in methods or DEFAULT_METHODS}
    with enough_threads(wanted, calibration, test):
        found = compare_methods(calibration, test, wanted, random_state=seed, progress=False if quiet else None)
    if found.failed and not found.calibrators:
        raise GlayersError(f"no method could be fitted; {'; '.join(f'{n}: {why}' for n, why in found.failed.items())}")
    return found


def show_comparison(found: "Comparison", heading: str, quiet: bool) -> None:
    """Print the table, the verdict before and after, and on the side, unless `quiet`, what the fits had to say."""
    cards = found.scorecards
    told = "auto" if "auto" in cards else min(cards, key=lambda name: cards[name].nll)
    show(title(heading), comparison_table(cards, found.seconds), "")
    for name in dict.fromkeys([next(iter(cards)), told]):
        show(f"{name}: {verdict(cards[name])}")
    if quiet:
        return
    for name, notes in found.notes.items():
        for each in notes:
            tell(f"note: {name}: {each}")
    for name, reason in found.failed.items():
        tell(f"note: {name} could not be fitted: {reason}")


def for_json(found: "Comparison") -> dict[str, Any]:
    """Return all numbers of a comparison, and what the fits had to say."""
    return {"methods": found.to_dict(), "notes": found.notes, "failed": found.failed}


def write_page(
    found: "Comparison", calibration: Predictions, path: Path, heading: str, seed: int, force: bool, quiet: bool
) -> None:
    """Write the HTML report."""
    from glayers.report.html import write_report

    with enough_threads((), calibration, found.test), waiting_for("writing the report", quiet):
        write_report(found, path, calibration=calibration, random_state=seed, title=heading, force=force)
