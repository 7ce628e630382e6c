"""A comparison -> one HTML file: measured, put into words, tables and figures, and written in one step."""

import os
from pathlib import Path
from typing import Any

from glayers.errors import BadFile
from glayers.files import write_whole
from glayers.metrics.old import PairedDifferences
from glayers.predictions import Predictions
from glayers.report.html.class_data import class_lines, matrix_data
from glayers.report.html.compared import Compared, class_names
from glayers.report.html.data_checks import calibration_counts, data_checks
from glayers.report.html.fits import fits, seeds, stories, versions
from glayers.report.html.measuring import LEVEL, METRICS, Measurements, measure
from glayers.report.html.method_tables import (
    DIFFERENCE_METRICS,
    HEADINGS,
    difference_records,
    difference_tables,
    method_lines,
)
from glayers.report.html.rendering import render
from glayers.report.html.verdict import judge


def write_report(
    comparison: Compared,
    path: str | os.PathLike[str],
    *,
    calibration: Predictions | None = None,
    n_resamples: int = 1000,
    random_state: int = 0,
    title: str | None = None,
    force: bool = False,
) -> None:
    """Write what `glayers.compare` found as one HTML file, in one step; an existing file is kept unless `force`.

    With the rows it was calibrated on, `calibration`, the page also says whether they are like the test rows.
    """
    target = Path(path)
    _refuse_early(target, force)
    text = report_html(
        comparison, calibration=calibration, n_resamples=n_resamples, random_state=random_state, title=title
    )
    # A lone surrogate in a class name is no character; everything else is written as it is.
    write_whole(target, text.encode("utf-8", errors="replace"))


def report_html(
    comparison: Compared,
    *,
    calibration: Predictions | None = None,
    n_resamples: int = 1000,
    random_state: int = 0,
    title: str | None = None,
) -> str:
    """Return the page of `write_report` as text."""
    found = measure(comparison, n_resamples, random_state)
    differences = None
    if len(found.methods) > 1:
        differences = comparison.differences(DIFFERENCE_METRICS, n_resamples=n_resamples, random_state=random_state)
    names = class_names(comparison)
    verdict = judge(comparison, found, differences)
    shown = [found.before, *([found.named(verdict.method)] if verdict.method else [])]
    calibrated_on = calibration_counts(comparison, calibration)
    data = _data(found, differences, names, verdict.method)
    return render(
        data,
        title="Calibration report" if title is None else title,
        rows=len(comparison.test),
        n_classes=comparison.test.n_classes,
        verdict=verdict,
        level=LEVEL,
        headings=[HEADINGS[metric] for metric in METRICS],
        methods=method_lines(found),
        difference_headings=[HEADINGS[metric] for metric in DIFFERENCE_METRICS],
        difference_tables=difference_tables(found, differences),
        class_methods=[method.name for method in shown],
        class_lines=class_lines(found, shown, names, calibrated_on),
        fits=fits(comparison),
        stories=stories(comparison),
        failed=dict(comparison.failed),
        checks=data_checks(comparison, calibration),
        seeds=seeds(comparison),
        random_state=random_state,
        n_resamples=n_resamples,
        versions=versions(),
    )


def _refuse_early(target: Path, force: bool) -> None:
    """Refuse before the long work what writing would refuse after it."""
    if target.is_dir():
        raise BadFile(f"{target}: is a directory; give the name of a file in it")
    if not target.parent.is_dir():
        raise BadFile(f"{target}: there is no folder {target.parent}; make it first")
    if target.exists() and not force:
        raise BadFile(f"{target}: exists already; pass force=True to replace it, or choose another name")


def _data(found: Measurements, differences: PairedDifferences | None, names: list[str], chosen: str) -> dict[str, Any]:
    """Return what the figures are drawn from."""
    return {
        "methods": [method.name for method in found.methods],
        "chosen": chosen,
        "level": LEVEL,
        "events": [{"key": event.key, "group": event.group, "label": event.label} for event in found.events],
        "curves": {method.name: method.curves for method in found.methods},
        "maps": {method.name: method.maps for method in found.methods[1:]},
        "differences": difference_records(differences),
        "headings": HEADINGS,
        "matrix": matrix_data(found, names),
    }
