"""Calibration rows, test rows and names of methods -> every method fitted on the one and scored on the other.

The table is what most people want; the fitted calibrators, the scorecards and what each fit had to say are behind it.
"""

import os
import sys
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glayers.arrays import Array
from glayers.calibrators import CALIBRATORS, Calibrator
from glayers.errors import BadPredictions, GlayersError, GlayersWarning
from glayers.metrics.old import PairedDifferences, paired_differences_from_logits
from glayers.metrics.old.scorecard import Scorecard, score_checked_logits
from glayers.metrics.old.wording import markdown_line
from glayers.predictions import Predictions
from glayers.progress import progress_bar
from glayers.settings import whole_number

UNCALIBRATED = "uncalibrated"
DEFAULT_METHODS = ("temperature", "vector", "matrix-odir", "dirichlet", "g-layers", "shared-g-layers", "auto")
# A column's heading, the field of the scorecard, how it is printed, and what people multiply it by.
_COLUMNS = (
    ("NLL", "nll", ".4f", 1),
    ("KS %", "ks", ".2f", 100),
    ("ECE %", "ece", ".2f", 100),
    ("Brier", "brier", ".5f", 1),
    ("accuracy %", "accuracy", ".2f", 100),
)


@dataclass(frozen=True)
class Comparison:
    """What every method made of the test rows: scorecards and calibrators by name, in the order they were fitted.

    `notes` are the warnings of each fit, `failed` the methods that could not be fitted, with the reason; `seconds` are
    those of the fits.
    """

    test: Predictions
    calibrators: dict[str, Calibrator]
    scorecards: dict[str, Scorecard]
    seconds: dict[str, float]
    notes: dict[str, list[str]]
    failed: dict[str, str]

    def logits(self, method: str) -> Array:
        """Return the test rows' logits as a method calibrates them, or as they came."""
        if method == UNCALIBRATED:
            return self.test.logits
        if method in self.failed:
            raise GlayersError(f"{method} could not be fitted: {self.failed[method]}")
        if method not in self.calibrators:
            raise GlayersError(f"no method {method!r} here; there are {', '.join(self.scorecards)}")
        return self.calibrators[method].transform(self.test.logits)

    def differences(
        self,
        metrics: Sequence[str] = ("nll", "brier", "ks", "accuracy"),
        *,
        n_resamples: int = 1000,
        random_state: int = 0,
    ) -> PairedDifferences:
        """Return how every two methods differ on the same test rows, with paired bootstrap intervals and sentences."""
        logits = {name: self.logits(name) for name in self.scorecards}
        return paired_differences_from_logits(
            logits,
            self.test.labels,
            self.test.weights,
            self.test.groups,
            metrics,
            n_resamples=n_resamples,
            random_state=random_state,
        )

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        calibration: Predictions | None = None,
        n_resamples: int = 1000,
        random_state: int = 0,
        title: str | None = None,
        force: bool = False,
    ) -> None:
        """Write one HTML file that needs nothing else; with the calibration rows it also looks for shift."""
        from glayers.report.html import write_report  # jinja2 only when somebody wants a page

        write_report(
            self,
            path,
            calibration=calibration,
            n_resamples=n_resamples,
            random_state=random_state,
            title=title,
            force=force,
        )

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return every number by method and metric, as JSON would have them."""
        return {
            name: card.to_dict() | {"seconds": self.seconds.get(name, 0.0)} for name, card in self.scorecards.items()
        }

    def to_markdown(self) -> str:
        """Return a Markdown table, one method a line, with what there is to say below it."""
        headings = ["method", *(heading for heading, *_ in _COLUMNS), "seconds"]
        lines = [markdown_line(headings), "|---|" + "---:|" * (len(headings) - 1)]
        lines += [markdown_line(cells) for cells in self._cells()]
        return "\n".join(lines + self._remarks_below())

    def __str__(self) -> str:
        lines = [["", *(heading for heading, *_ in _COLUMNS), "seconds"], *self._cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(pairs))
            for pairs in (list(zip(line, widths, strict=True)) for line in lines)
        ]
        return "\n".join(table + self._remarks_below())

    def _cells(self) -> list[list[str]]:
        return [
            [
                name,
                *(f"{times * getattr(card, field):{form}}" for _, field, form, times in _COLUMNS),
                f"{self.seconds[name]:.2f}" if name in self.seconds else "-",
            ]
            for name, card in self.scorecards.items()
        ]

    def remarks(self) -> list[str]:
        """Return the notes of each fit and the reason of each failure, one line each."""
        notes = [f"{name}: {note}" for name, notes in self.notes.items() for note in notes]
        return notes + [f"{name} could not be fitted: {reason}" for name, reason in self.failed.items()]

    def _remarks_below(self) -> list[str]:
        remarks = self.remarks()
        return ["", *remarks] if remarks else []


def compare(
    calibration: Predictions,
    test: Predictions,
    methods: Iterable[str] | Mapping[str, Calibrator] = DEFAULT_METHODS,
    *,
    random_state: int = 0,
    progress: bool | None = None,
) -> Comparison:
    """Fit methods on the calibration rows and score them on the test rows, beside the uncalibrated.

    `methods` are names of `CALIBRATORS`, which get this `random_state` where they take one, or unfitted calibrators
    by names of your own, which are fitted as they are.

    >>> from glayers.datasets import load_fashion_mnist
    >>> found = compare(*load_fashion_mnist(), methods=["temperature"])
    >>> found.scorecards["temperature"].nll < found.scorecards["uncalibrated"].nll
    True
    """
    for name, part in (("calibration", calibration), ("test", test)):
        if not isinstance(part, Predictions):
            raise BadPredictions(
                f"{name} must be Predictions, as Predictions(logits, labels) or read_predictions(path) makes them; "
                f"got {_described(part)}"
            )
    _check_alike(calibration, test)
    chosen = _calibrators(methods, whole_number(random_state, "random_state", least=0, most=2**32 - 1))
    cards = {UNCALIBRATED: score_checked_logits(test.logits, test.labels, test.weights)}
    result = Comparison(test, {}, cards, {}, {}, {})
    shown = sys.stderr.isatty() if progress is None else progress
    with progress_bar(shown, "comparing methods", len(chosen)) as advance:
        for name, calibrator in chosen.items():
            _try(name, calibrator, calibration, result)
            advance()
    return result


def _try(name: str, calibrator: Calibrator, calibration: Predictions, result: Comparison) -> None:
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GlayersWarning)
        try:
            calibrator.fit_predictions(calibration)
        except (GlayersError, ModuleNotFoundError) as problem:
            result.failed[name] = str(problem)
            return
    result.seconds[name] = time.perf_counter() - began
    said = []
    for warning in caught:
        if issubclass(warning.category, GlayersWarning):
            said.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if said:
        result.notes[name] = list(dict.fromkeys(said))
    result.calibrators[name] = calibrator
    calibrated = calibrator.transform(result.test.logits)
    result.scorecards[name] = score_checked_logits(calibrated, result.test.labels, result.test.weights)


def _calibrators(methods: Iterable[str] | Mapping[str, Calibrator], random_state: int) -> dict[str, Calibrator]:
    if isinstance(methods, Mapping):
        return _checked_calibrators(methods)
    if isinstance(methods, str):
        raise GlayersError(f"methods must be a list of names, such as [{methods!r}]")
    if not isinstance(methods, Iterable):
        raise GlayersError(f"methods must be a list of names or a dict of calibrators; got {_described(methods)}")
    made: dict[str, Any] = {}
    for name in methods:
        if not isinstance(name, str):
            raise GlayersError(
                f"methods must be names, such as 'temperature'; got {_described(name)}. Calibrators of your own go "
                f"by names of your own: {{'mine': TemperatureScaling()}}"
            )
        if name not in CALIBRATORS:
            raise GlayersError(f"unknown method {name!r}; known are {', '.join(CALIBRATORS)}")
        made[name] = unfitted(name, random_state=random_state, progress=False)  # `compare` has one bar for all
    return made


def unfitted(name: str, **settings: Any) -> Calibrator:
    """Return a calibrator by name, with those of the settings that it takes.

    >>> unfitted("temperature", random_state=3)
    TemperatureScaling()
    """
    made = CALIBRATORS[name]()
    return made.set_params(**{key: value for key, value in settings.items() if key in made.get_params()})


def _checked_calibrators(methods: Mapping[Any, Any]) -> dict[str, Calibrator]:
    """Return calibrators under names of the caller's own, each of which can be fitted without undoing another's fit."""
    if UNCALIBRATED in methods:
        raise GlayersError(f"no method may be called {UNCALIBRATED!r}: that is what all are compared with")
    named: dict[int, str] = {}
    for name, calibrator in methods.items():
        if not isinstance(name, str):
            raise GlayersError(f"names of methods must be text; got {_described(name)}")
        if not isinstance(calibrator, Calibrator):
            way_out = ": call it, and pass what it makes" if callable(calibrator) else ", such as TemperatureScaling()"
            raise GlayersError(f"{name!r} must be a calibrator; got {_described(calibrator)}{way_out}")
        if id(calibrator) in named:
            raise GlayersError(
                f"{named[id(calibrator)]!r} and {name!r} are one and the same calibrator, and its second fit would "
                f"undo the first: pass a copy, sklearn.base.clone(calibrator)"
            )
        named[id(calibrator)] = name
    return dict(methods)


def _described(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"{type(value).__name__} {' '.join(repr(value).split()):.60}"


def _check_alike(calibration: Predictions, test: Predictions) -> None:
    widths = calibration.logits.shape[1], test.logits.shape[1]
    if widths[0] != widths[1]:
        raise BadPredictions(
            f"calibration rows have {widths[0]} logits, test rows {widths[1]}: they must be one model's"
        )
    if None not in (calibration.class_names, test.class_names) and calibration.class_names != test.class_names:
        raise BadPredictions("calibration and test rows have different class names, or the same in another order")
    same = np.array_equal(calibration.logits, test.logits) and np.array_equal(calibration.labels, test.labels)
    if same or np.shares_memory(calibration.logits, test.logits):
        warnings.warn(
            "calibration and test rows are the same: scores on the rows of the fit are too optimistic",
            GlayersWarning,
            stacklevel=3,
        )
