"""`compare`, `report`, `demo`: calibration and test rows -> methods side by side, as a table and an HTML report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glayers.cli import arguments as arg
from glayers.cli.runtime import show, show_json, show_note, suitable_threads, title, verb, waiting_for
from glayers.datasets import load_fashion_mnist
from glayers.errors import GlayersError
from glayers.predictions import Predictions
from glayers.report.tables import comparison_table, confidence_sentence

if TYPE_CHECKING:
    from glayers.comparison import Comparison

_DEMO_TITLE = "A small network on Fashion-MNIST (glayers demo)"


@verb(
    "glayers compare calibration.npz test.npz",
    "glayers compare both.npz --methods temperature,vector,isotonic --json",
    "glayers compare both.npz --methods temperature --report compared.html",
)
def compare(
    calibration: arg.Calibration,
    test: arg.Test = None,
    methods: arg.Methods = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write an HTML report.")] = None,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Fit several methods on calibration rows and score each on test rows, beside no calibration."""
    wanted = None if methods is None else arg.method_names(methods)
    target = None if report is None else arg.Output(report, force, (calibration, test))
    if target is not None:
        target.check()
    rows, name = arg.read_calibration_and_test(calibration, test), arg.name_of(test or calibration)
    found = _compare(rows, wanted, seed, quiet)
    if as_json:
        show_json({"methods": found.to_dict(), "notes": found.notes, "failed": found.failed})
    else:
        _show(found, rows, name, quiet)
    if target is not None:
        _write_page(found, rows[0], target, name, seed, quiet)
        if not as_json:
            show("", f"wrote {target.path}: open it in a browser")


@verb(
    "glayers report calibration.npz test.npz",
    "glayers report both.npz -o both.html --methods temperature,vector",
)
def report(
    calibration: arg.Calibration,
    test: arg.Test = None,
    output: arg.Page = Path("report.html"),
    methods: arg.Methods = None,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    quiet: arg.Quiet = False,
) -> None:
    """Compare methods and write the HTML report: one file with the verdict, tables and interactive figures."""
    options = {"methods": methods, "report": output, "seed": seed, "force": force, "quiet": quiet}
    compare.run(calibration=calibration, test=test, **options)


@verb("glayers demo", "glayers demo --output first-look.html --quiet")
def demo(
    output: arg.Page = Path("report.html"), seed: arg.Seed = 0, force: arg.Force = False, quiet: arg.Quiet = False
) -> None:
    """Calibrate the sample predictions of the package by the strongest methods, and write a report.

    It replaces the report of an earlier demo, and any other file only with --force.
    """
    own = output.is_file() and f"<title>{_DEMO_TITLE}".encode() in output.read_bytes()[:4_096]
    target = arg.Output(output.resolve(), force or own)
    target.check()
    rows = load_fashion_mnist()
    found = _compare(rows, None, seed, quiet)
    _show(found, rows, "a small network on Fashion-MNIST", quiet)
    _write_page(found, rows.calibration, target, _DEMO_TITLE, seed, quiet)
    show("", f"wrote {target.path}: open it in a browser")


def _compare(rows: tuple[Predictions, Predictions], methods: list[str] | None, seed: int, quiet: bool) -> "Comparison":
    from glayers import comparison

    wanted = methods or comparison.DEFAULT_METHODS
    with suitable_threads(wanted, *rows):
        found = comparison.compare(*rows, wanted, random_state=seed, progress=False if quiet else None)
    if not found.calibrators:
        raise GlayersError(f"no method could be fitted; {'; '.join(f'{n}: {why}' for n, why in found.failed.items())}")
    return found


def _show(found: "Comparison", rows: tuple[Predictions, Predictions], name: str, quiet: bool) -> None:
    """Print the table, a sentence before and after, and, unless `quiet`, the notes of the fits to standard error."""
    cards = found.scorecards
    best = "auto" if "auto" in cards else min(cards, key=lambda method: cards[method]["nll"])
    show(title(f"{len(rows[1]):,} test rows of {name}, fitted on {len(rows[0]):,} others"))
    show(comparison_table(cards, found.seconds), "")
    for method in dict.fromkeys([next(iter(cards)), best]):
        show(f"{method}: {confidence_sentence(cards[method])}")
    for line in () if quiet else found.remarks():
        show_note(f"note: {line}")


def _write_page(
    found: "Comparison", calibration: Predictions, target: arg.Output, name: str, seed: int, quiet: bool
) -> None:
    target.check()
    with suitable_threads((), calibration, found.test), waiting_for("writing the report", quiet):
        found.to_html(target.path, calibration=calibration, random_state=seed, title=name, force=target.force)
