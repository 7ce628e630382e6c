"""Calibration rows, test rows and names of methods -> every method, fitted on the first and scored on the second."""

import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from glayers.arrays import Array
from glayers.calibrators import CALIBRATORS, AutoCalibrator, Calibrator, MultiLabelCalibrator, calibrator_of
from glayers.calibrators.estimator import clone
from glayers.checks import MAX_SEED, items_of, whole_number
from glayers.errors import BadPredictions, GlayersError, GlayersWarning, listed, shown
from glayers.metrics import METRICS, OmnibusTest, PairedDifferences, Scorecard, calibration_test, scorecard
from glayers.metrics.bootstrap import Bootstrap
from glayers.metrics.events import Rows, Scored, check_any
from glayers.metrics.scorecard import differences_of
from glayers.predictions import Confidences, MultiLabelPredictions, Predictions
from glayers.predictions.predictions import two_classes
from glayers.progress import progress_bar
from glayers.text_tables import Tabled

UNCALIBRATED = "uncalibrated"
DEFAULT_METHODS = ("temperature", "vector", "matrix-odir", "dirichlet", "g-layers", "shared-g-layers", "auto")
# Of a confidence: those that calibrate a single probability, however low it is.
CONFIDENCE_METHODS = ("platt", "beta", "isotonic", "histogram", "auto")
LABEL_METHODS = ("temperature", "platt", "beta", "isotonic", "auto")
# Methods with a weight for every pair of classes
_SQUARE_METHODS = ("matrix-odir", "dirichlet", "g-layers", "shared-g-layers")
_MOST_WORK = 2e9  # rows x pairs of classes: with more, these methods take many minutes
_RESAMPLES_OF_STARS = 200
_STEPS_OF_NETWORKS = 50  # of the progress bar: with torch a fit took 6 s, others 0.1 s (5,000 rows of 10 classes)
STARRED = "* not significantly worse than the best of the column"


@dataclass(frozen=True)
class Comparison(Tabled):
    """The fitted methods and their scores, by name and in the order of the fits. It prints as a table.

    Attributes
    ----------
    test
        The test rows.
    calibrators
        The fitted calibrators.
    scorecards
        The scores on the test rows; the first is "uncalibrated".
    failed
        The methods that could not be fitted, or were left out because they would take too long, with the reason.
    random_state
        The seed of `calibration_tests`.
    """

    test: Predictions | Confidences
    calibrators: dict[str, Calibrator]
    scorecards: dict[str, Scorecard]
    failed: dict[str, str]
    random_state: int = 0

    @cached_property
    def recommended(self) -> str:
        """`auto` if it was fitted, else the fitted method with the lowest NLL on the test rows, if any.

        That one is also recommended where `auto` is significantly worse. Of confidences, the NLL of "the answer is
        correct" decides.
        """
        best = min(self.calibrators, key=lambda name: self.scorecards[name][self.loss], default=UNCALIBRATED)
        for name, fitted in self.calibrators.items():
            if isinstance(fitted, AutoCalibrator) or (isinstance(fitted, MultiLabelCalibrator) and fitted.is_default):
                return best if self._is_worse(name, best) else name
        return best

    def _is_worse(self, name: str, best: str) -> bool:
        """Whether the loss of a method is significantly higher than the lowest."""
        losses = [card[self.loss] for card in self.scorecards.values()]
        if name == best or not np.isfinite(losses).all() or self.rows(UNCALIBRATED).n_units < 2:
            return False
        found = self.differences([self.loss], n_resamples=_RESAMPLES_OF_STARS, random_state=self.random_state)
        return found.between(self.loss, name, best).significant

    @property
    def loss(self) -> str:
        """The proper score that decides between methods: of all classes or, of confidences, of being correct."""
        return "nll" if isinstance(self.test, Predictions) else "confidence_nll"

    @cached_property
    def calibration_tests(self) -> dict[str, OmnibusTest]:
        """Whether the model is calibrated on the test rows, before and after the recommended method."""
        return {name: self.calibration_test(name) for name in dict.fromkeys([UNCALIBRATED, self.recommended])}

    def calibration_test(self, method: str, n_resamples: int | None = None) -> OmnibusTest:
        """Test a method on the test rows, also against what its calibration rows allow."""
        return calibration_test(
            self.rows(method),
            calibrator=self.calibrators.get(method),
            before=self.test,
            n_resamples=n_resamples,
            random_state=self.random_state,
            progress=False,
        )

    @cached_property
    def best(self) -> dict[str, list[str]]:
        """By printed metric, the methods that are not significantly worse than the best on the same rows."""
        cards = self.scorecards.values()
        finite = [name for name in self._columns() if all(math.isfinite(card[name]) for card in cards)]
        if len(self.scorecards) < 2 or not finite or self.rows(UNCALIBRATED).n_units < 2:
            return {}
        found = self.differences(finite, n_resamples=_RESAMPLES_OF_STARS, random_state=self.random_state)
        best = {}
        for metric in finite:
            values = {name: card[metric] for name, card in self.scorecards.items()}
            pick = max if METRICS[metric].better == "higher" else min
            first = pick(values, key=values.__getitem__)
            others = [name for name in values if name != first]
            as_good = [name for name in others if not found.between(metric, name, first).significant]
            best[metric] = [first, *as_good]
        return best

    def _columns(self) -> tuple[str, ...]:
        return self.loss, "ks", "ece", self.loss.replace("nll", "brier"), "accuracy"

    def predictions(self, method: str) -> Predictions | Confidences:
        """Return the test rows as calibrated by a method, or unchanged for "uncalibrated"."""
        if not isinstance(method, str) or method not in self.scorecards:
            reason = self.failed.get(str(method), f"there are {', '.join(self.scorecards)}")
            raise GlayersError(f"{shown(method)} is no fitted method: {reason}")
        return self.test if method == UNCALIBRATED else self.calibrators[method].apply(self.test)

    def rows(self, method: str) -> Rows | Scored:
        """Return the rows of `predictions` as metrics read them."""
        return check_any(self.predictions(method))

    def differences(
        self, metrics: Sequence[str] | None = None, *, n_resamples: int = 1000, random_state: int = 0
    ) -> PairedDifferences:
        """Compare every two methods on the test rows by a paired bootstrap: `glayers.metrics.paired_differences`."""
        rows = ((name, self.rows(name)) for name in self.scorecards)
        return differences_of(rows, metrics, Bootstrap(n_resamples, random_state=random_state))

    def to_html(self, path: str | os.PathLike[str], **settings: Any) -> None:
        """Write the HTML report, one file that needs no other.

        Parameters
        ----------
        path
            Where to write it.
        **settings
            Of `glayers.report.page.write_report`: `calibration` (the rows of the fits; with them the report also looks
            for rows in both sets), `n_resamples`, `random_state`, `title`, `force` (replace a file that exists) and
            `progress`.
        """
        from glayers.report.page import write_report  # jinja2 is imported only for a report

        write_report(self, path, **settings)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return every number by method and metric, ready for JSON."""
        numbers = {name: card.to_dict() for name, card in self.scorecards.items()}
        for name, fitted in self.calibrators.items():
            numbers[name]["seconds"] = fitted.diagnostics_.seconds or 0.0
        return numbers

    def remarks(self) -> list[str]:
        """Return the warnings of the fits and the reason of each failure, one line each."""
        methods: dict[str, list[str]] = {}
        for name, fitted in self.calibrators.items():
            for note in fitted.diagnostics_.notes:
                methods.setdefault(note.removeprefix(f"{name}: "), []).append(name)
        notes = [f"{', '.join(names)}: {note}" for note, names in methods.items()]
        return notes + [f"{name} could not be fitted: {reason}" for name, reason in self.failed.items()]

    def footnotes(self) -> list[str]:
        """Return what a star means, and the remarks."""
        return [STARRED] * bool(self.best) + self.remarks()

    def cells(self) -> list[list[str]]:
        """Return the printed table: a line of headings, then one line per method; stars mark the best of a column."""
        metrics = [METRICS[name] for name in self._columns()]
        cells = [["", *(metric.short_label for metric in metrics), "seconds"]]
        for name, card in self.scorecards.items():
            line = [name]
            for metric in metrics:
                star = " *" if name in self.best.get(metric.name, []) else "  "
                line.append(metric.format(card[metric.name]) + star)
            seconds = "-"
            if name in self.calibrators:
                seconds = f"{self.calibrators[name].diagnostics_.seconds or 0.0:.2f}"
            cells.append([*line, seconds])
        return cells


def compare(
    calibration: Predictions | Confidences,
    test: Predictions | Confidences,
    methods: Iterable[str] | Mapping[str, Calibrator] | None = None,
    *,
    inputs: str = "logits",
    random_state: int = 0,
    progress: bool | None = None,
) -> Comparison:
    """Fit methods on the calibration rows and score them on the test rows, beside no calibration.

    Parameters
    ----------
    calibration, test
        The rows to fit on and the rows to score, with the same classes; or the confidences of both. Of
        `MultiLabelPredictions`, a copy of each method is fitted for every label; "auto" is `MultiLabelCalibrator()`.
    methods
        Names from `CALIBRATORS`, or a dict of calibrators by names of your own; copies of them are fitted. A calibrator
        may be any object with `fit` and `predict_proba`, or a function of probabilities. By default
        `DEFAULT_METHODS`, or `CONFIDENCE_METHODS` for confidences. Of the defaults, methods whose cost grows with the
        square of the classes are left out where they would take many minutes; `failed` and the printed table say so.
    inputs
        The setting of the methods given by name; that of confidences is always "confidence".
    random_state
        The seed of the methods given by name, and of the tests in `calibration_tests`.
    progress
        Whether to show a progress bar; None shows it at a terminal.

    Returns
    -------
    Comparison
        A method that cannot be fitted is listed under `failed`; the others are still compared.

    Examples
    --------
    >>> from glayers.datasets import load_fashion_mnist
    >>> found = compare(*load_fashion_mnist(), methods=["temperature"])
    >>> found.scorecards["temperature"]["nll"] < found.scorecards["uncalibrated"]["nll"]
    True
    """
    _check_parts(calibration, test)
    seed = whole_number(random_state, "random_state", least=0, most=MAX_SEED)
    if isinstance(calibration, Confidences):
        inputs = "confidence"
    too_slow: dict[str, str] = {}
    if methods is None:
        too_slow = _too_slow(calibration)
        methods = [name for name in _usual_methods(calibration) if name not in too_slow]
    chosen: dict[str, Any] = _calibrators(methods, inputs=inputs, random_state=seed, progress=False)
    if isinstance(calibration, MultiLabelPredictions):
        chosen = {name: MultiLabelCalibrator.by(calibrator) for name, calibrator in chosen.items()}
    result = Comparison(test, {}, {UNCALIBRATED: scorecard(test)}, too_slow, seed)
    steps = {}
    for name, calibrator in chosen.items():
        needs_torch = any(method.torch != "no" for method in calibrator.methods)
        steps[name] = _STEPS_OF_NETWORKS if needs_torch else 1
    with progress_bar(progress, "comparing methods", sum(steps.values())) as advance:
        for number, (name, calibrator) in enumerate(chosen.items(), start=1):
            advance(0, f"fitting {name} ({number} of {len(chosen)})")
            try:
                given: Any = calibration
                if not isinstance(calibrator, MultiLabelCalibrator):
                    given = two_classes(calibrator.inputs, calibration)
                fitted = calibrator._fit_and_keep(given)
            except (GlayersError, ModuleNotFoundError) as problem:
                result.failed[name] = str(problem)
            else:
                result.calibrators[name] = fitted
                result.scorecards[name] = scorecard(fitted.apply(test))
            advance(steps[name])
    return result


def _usual_methods(calibration: Predictions | Confidences) -> tuple[str, ...]:
    if isinstance(calibration, MultiLabelPredictions):
        return LABEL_METHODS
    return CONFIDENCE_METHODS if isinstance(calibration, Confidences) else DEFAULT_METHODS


def _too_slow(calibration: Predictions | Confidences) -> dict[str, str]:
    """Return the default methods to leave out unless they are asked for, with the reason and how to ask for them."""
    if isinstance(calibration, Confidences) or len(calibration) * calibration.n_classes**2 <= _MOST_WORK:
        return {}
    size = f"{len(calibration):,} rows x {calibration.n_classes:,} classes"
    reason = f"left out, as with {size} it takes many minutes; ask for it by name:"
    return {name: f"{reason} methods=[{name!r}], or --methods {name}" for name in _SQUARE_METHODS}


def unfitted(name: str, **settings: Any) -> Calibrator:
    """Return a calibrator by name, with those of the settings that it takes.

    >>> unfitted("temperature", random_state=3)
    TemperatureScaling()
    """
    made = CALIBRATORS[name]()
    return made.set_params(**{key: value for key, value in settings.items() if key in made.get_params()})


def _calibrators(methods: Any, **settings: Any) -> dict[str, Calibrator]:
    """Return new calibrators by name, or copies of those given by names of the user's own."""
    if isinstance(methods, Mapping):
        chosen = {}
        for name, calibrator in methods.items():
            if not isinstance(name, str) or name == UNCALIBRATED:
                raise GlayersError(f"methods must map names other than {UNCALIBRATED!r} to calibrators; got {name!r}")
            several = isinstance(calibrator, MultiLabelCalibrator)
            chosen[name] = clone(calibrator if several else calibrator_of(calibrator))
        return chosen
    names = items_of(methods)
    if names is None or not all(isinstance(name, str) and name in CALIBRATORS for name in names):
        raise GlayersError(
            f"methods must be some of {', '.join(CALIBRATORS)}; got {shown(methods)}. Put calibrators of your own into "
            f"a dict: {{'mine': TemperatureScaling()}}"
        )
    return {name: unfitted(name, **settings) for name in names}


def _check_parts(calibration: Any, test: Any) -> None:
    """Refuse what are no rows, and rows of different models; warn of the same rows."""
    for name, part in (("calibration", calibration), ("test", test)):
        if not isinstance(part, Predictions | Confidences):
            raise BadPredictions(
                f"{name} must be Predictions, from Predictions(logits, labels) or read_predictions(path), or "
                f"Confidences; got {shown(part)}"
            )
    if type(calibration) is not type(test):
        raise BadPredictions(f"calibration and test rows must be of one kind; got {calibration!r} and {test!r}")
    names = ["confidence", "correct"]
    if isinstance(test, Predictions):
        names = ["logits", "labels"]
        if isinstance(test, MultiLabelPredictions):
            labels = calibration.names, test.names
            if labels[0] != labels[1]:
                differ = f"{listed(labels[0])}, and {listed(labels[1])}"
                raise BadPredictions(f"calibration and test rows must have the same labels; they have {differ}")
        widths = calibration.logits.shape[1], test.logits.shape[1]
        classes = calibration.class_names or test.class_names, test.class_names or calibration.class_names
        if widths[0] != widths[1] or classes[0] != classes[1]:
            differ = f"{widths[0]} and {widths[1]} logits, class names {shown(classes[0])} and {shown(classes[1])}"
            raise BadPredictions(f"calibration and test rows must come from the same model; they have {differ}")
    if all(_same(getattr(calibration, name), getattr(test, name)) for name in names):
        message = "calibration and test rows are the same: scores on the rows of the fit are too optimistic"
        warnings.warn(message, GlayersWarning, stacklevel=3)


def _same(one: Array, other: Array) -> bool:
    return np.shares_memory(one, other) or np.array_equal(one, other)
