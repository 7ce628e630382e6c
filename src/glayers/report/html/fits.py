"""Fitted calibrators -> what was fitted and why, with which settings, seeds and versions.

Seconds are left out, also those in auto's own table: the same inputs give the same bytes.
"""

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from glayers.calibrators import AutoCalibrator, Calibrator
from glayers.report.html.compared import Compared

_PACKAGES = ("glayers", "numpy", "scipy", "scikit-learn", "torch", "jinja2")
_NOT_REPRODUCIBLE = "seconds"


@dataclass(frozen=True)
class Fit:
    """What a fit has to say, as text."""

    method: str
    made_by: str
    learned: str
    losses: str
    converged: bool
    reason: str
    notes: list[str]


@dataclass(frozen=True)
class Story:
    """Auto's report, taken apart: sentences before its table, the table, and sentences after."""

    method: str
    before: list[str]
    heading: list[str]
    lines: list[list[str]]
    after: list[str]


def fits(compared: Compared) -> list[Fit]:
    """Return what each fit has to say, in the order of the methods."""
    return [_fit(name, made, list(compared.notes.get(name, ()))) for name, made in compared.calibrators.items()]


def stories(compared: Compared) -> list[Story]:
    """Return the reports of those calibrators that chose among families."""
    made = compared.calibrators.items()
    return [told_story(name, one.report_) for name, one in made if isinstance(one, AutoCalibrator)]


def told_story(method: str, markdown: str) -> Story:
    r"""Take a report apart into sentences and one table.

    >>> story = told_story("auto", "Two rows.\n\n| family | seconds |\n|---|---:|\n| vector | 0.1 |\n\nKept: vector.")
    >>> story.before, story.heading, story.lines, story.after
    (['Two rows.'], ['family'], [['vector']], ['Kept: vector.'])
    """
    lines = [line.strip() for line in markdown.splitlines() if line.strip()]
    places = [place for place, line in enumerate(lines) if line.startswith("|")]
    first, last = (places[0], places[-1] + 1) if places else (len(lines), len(lines))
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first:last]]
    heading = table[0] if table else []
    kept = [place for place, name in enumerate(heading) if name != _NOT_REPRODUCIBLE]
    body = [[line[place] for place in kept] for line in table[2:]]
    return Story(method, lines[:first], [heading[place] for place in kept], body, lines[last:])


def seeds(compared: Compared) -> dict[str, str]:
    """Return the seed of every method that has one."""
    settings = {name: made.get_params(deep=False) for name, made in compared.calibrators.items()}
    return {name: str(given["random_state"]) for name, given in settings.items() if "random_state" in given}


def versions() -> dict[str, str]:
    """Return what this was made with."""
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # torch is an extra
            found[package] = "not installed"
    return found


def _fit(name: str, made: Calibrator, notes: list[str]) -> Fit:
    facts = made.diagnostics_
    return Fit(
        method=name,
        made_by=" ".join(repr(made).split()),
        learned=f"{facts.n_parameters:,} from {facts.rows:,} rows",
        losses=f"{facts.loss_before:.4f} to {facts.loss_after:.4f}",
        converged=facts.converged,
        reason=facts.reason,
        notes=notes,
    )
