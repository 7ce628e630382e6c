"""New rows without labels, or known frequencies -> a record of class shift, with which a calibrator is adapted.

`class_frequencies.py` estimates and tests.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Floats, to_floats
from glayers.calibrators.class_frequencies import (
    Sample,
    change_test,
    class_bias,
    fit_test,
    likely_ratios,
    standard_errors,
)
from glayers.calibrators.row_summary import CONFIDENCE, ClassSummary, RowSummary
from glayers.errors import BadFile, BadPredictions, listed
from glayers.predictions import Predictions
from glayers.serving.artifact import decoded
from glayers.text_tables import aligned_table

_MOST_LINES = 12  # of the table, where there are more classes


@dataclass(frozen=True)
class ClassShift:
    """The class frequencies that a calibrator was fitted on and adapted to; it prints as a table and two sentences.

    Attributes
    ----------
    before, after
        The class frequencies among the calibration rows, and those that the calibrator was adapted to.
    estimated, standard_errors
        The maximum likelihood estimate from unlabelled rows, and its standard errors; None for given frequencies.
        `after` combines the rows with a prior in favour of `before`, which is strong if sampling error explains most of
        the difference; it equals `before` unless the two differ significantly.
    rows
        The effective number of independent new rows.
    p_value
        Of the test whether the new frequencies differ from the old ones; nan for too few rows.
    fit_p_value
        Of the test whether class shift explains the new rows; nan for too few rows.
    misfit
        Where the new rows differ most from what class shift predicts.
    bias
        The class whose probability is most wrong on the calibration rows, if adapting may make predictions worse.
    level
        Of both tests.
    """

    before: tuple[float, ...]
    after: tuple[float, ...]
    estimated: tuple[float, ...] | None = None
    standard_errors: tuple[float, ...] | None = None
    rows: float = math.nan
    p_value: float = math.nan
    fit_p_value: float = math.nan
    misfit: str = ""
    bias: str = ""
    level: float = 0.95
    class_names: tuple[str, ...] | None = None

    @property
    def ratio(self) -> Floats:
        """The new over the old frequency of each class: importance weights, by label, for a refit."""
        return np.array(self.after) / np.array(self.before)

    @property
    def shifted(self) -> bool:
        """Whether the class frequencies differ significantly."""
        return self.p_value <= 1 - self.level

    @property
    def unexplained(self) -> bool:
        """Whether the new rows differ significantly from what class shift can explain."""
        return self.fit_p_value <= 1 - self.level

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: object) -> Self:
        """Return the record that `to_dict` wrote. Raise an error for anything else."""
        what = "the record of a class shift"
        record = decoded(cls, facts, what)
        columns = [record.before, record.after]
        columns += [values for values in (record.estimated, record.standard_errors) if values is not None]
        numbers = np.concatenate([*columns, [record.rows, record.p_value, record.fit_p_value, record.level]])
        frequencies = np.array([*record.before, *record.after])
        if (numbers < 0).any() or not np.isfinite(frequencies).all() or not frequencies.all():
            raise BadFile(f"{what} has numbers that are no frequencies")
        if len({len(values) for values in (*columns, record.class_names or record.before)}) != 1:
            raise BadFile(f"{what} is about different numbers of classes")
        return record

    def sentences(self) -> tuple[str, ...]:
        """Return the results of the two tests in words."""
        if self.estimated is None:
            return ("the frequencies were given, so nothing was tested",)
        change = "the class frequencies do not differ significantly"
        if self.shifted:
            change = "the class frequencies differ"
        change += f" from those of the calibration rows (p = {self.p_value:.2g})"
        if math.isnan(self.p_value):
            effective = f"{self.rows:.0f} effective rows"
            change = f"too few rows or groups ({effective}) to tell whether the class frequencies differ"
        fit = f"class shift explains these rows, as far as they can tell (p = {self.fit_p_value:.2g})"
        if self.unexplained:
            fit = f"class shift does not explain these rows (p = {self.fit_p_value:.2g}; {self.misfit})"
        if math.isnan(self.fit_p_value):
            fit = "too few rows, or too many classes, to tell whether class shift explains these rows"
        return change, fit

    def notes(self, never_seen: tuple[int, ...]) -> list[str]:
        """Return warnings; `never_seen` are the classes without calibration rows."""
        found = []
        if self.unexplained:
            found.append(f"{self.sentences()[1]}: adapted probabilities may be wrong")
        if self.bias:
            found.append(
                f"adapting may make predictions worse: on the calibration rows, {self.bias}. Fit VectorScaling or "
                f"AutoCalibrator, which learn one shift per class, and adapt that"
            )
        if never_seen:
            names = listed([self._names()[y] for y in never_seen])
            found.append(f"no calibration row is labelled {names}: the new frequency is compared with the probability")
        return found

    def table(self) -> list[list[str]]:
        """Return the rows of a table: the classes that changed most first, if there are many."""
        estimated = self.estimated or ()
        errors = self.standard_errors or ()
        chosen = range(len(self.before))
        if len(chosen) > _MOST_LINES:
            order = np.argsort(-np.abs(np.subtract(self.after, self.before)), kind="stable")
            chosen = order[:_MOST_LINES].tolist()
        lines = [["class", "before %", "estimated %", "s.e.", "adapted to %"]]
        for y in chosen:
            columns = (self.before, estimated, errors, self.after)
            lines.append([self._names()[y], *(f"{100 * column[y]:.2f}" if column else "" for column in columns)])
        return lines

    def __str__(self) -> str:
        more = len(self.before) - _MOST_LINES
        rest = [f"and {more} classes that changed less"] if more > 0 else []
        return "\n".join([aligned_table(self.table()), *rest, *self.sentences()])

    def _names(self) -> tuple[str, ...]:
        return self.class_names or tuple(map(str, range(len(self.before))))


def given_frequencies(summary: ClassSummary, values: object, names: tuple[str, ...] | None) -> ClassShift:
    """Return the record of frequencies that the user knows."""
    before = _before(summary)
    if isinstance(values, Mapping):
        known = names or tuple(map(str, range(len(before))))
        by_name = {str(name): value for name, value in values.items()}
        if by_name.keys() != set(known):
            raise BadPredictions(f"frequencies must name every class: {listed(known)}; got {listed(by_name)}")
        values = [by_name[name] for name in known]
    new = to_floats(values, "frequencies").astype(np.float64)
    if new.shape != before.shape:
        raise BadPredictions(f"frequencies must be {len(before)} numbers, one per class; got shape {new.shape}")
    bad = np.flatnonzero(~((new > 0) & (new < np.inf)))
    if bad.size:
        raise BadPredictions(
            f"frequencies must be positive; class {bad[0]} has {new[bad[0]]:g}. For a class that hardly occurs, give a "
            f"small number such as 1e-6; for one that is impossible in some rows, give these rows a logit of -inf"
        )
    new = new / new.max()  # counts and huge numbers, too
    found = ClassShift(_tuple(before), _tuple(new / new.sum()), class_names=names)
    return replace(found, bias=_bias(found, summary))


def estimate_class_shift(
    kept: RowSummary, given: Predictions, calibrated: Floats, level: float, names: tuple[str, ...] | None
) -> ClassShift:
    """Estimate class frequencies of new rows; `calibrated` are their calibrated logits (n, classes)."""
    summary = kept.by_class
    sample = Sample.of(softmax(calibrated), given.weights, given.groups)
    # One row of equal probabilities is added: no class is impossible.
    m = (summary.rows * summary.means() + 1 / calibrated.shape[1]) / (summary.rows + 1)
    before = _before(summary)
    w = likely_ratios(sample, m)
    p_value, prior_rows = change_test(sample, m, summary, level)
    after = before
    if math.isfinite(prior_rows):
        after = likely_ratios(sample, m, prior_rows) * before
    fit_p_value, misfit = fit_test(sample, m, w, summary, kept.histograms[CONFIDENCE])
    found = ClassShift(
        _tuple(before),
        _tuple(after / after.sum()),
        _tuple(w * before / (w @ before)),
        _tuple(standard_errors(sample, m, w, before, summary.rows)),
        sample.rows,
        p_value,
        fit_p_value,
        misfit,
        level=level,
        class_names=names,
    )
    return replace(found, bias=_bias(found, summary))


def _bias(found: ClassShift, summary: ClassSummary) -> str:
    """Name the class with the most wrong probability, if the error after adapting is expected to be larger than before.

    The probabilities lack log-odds b on the calibration rows. Adapted ones still lack b; without adapting, they lack b
    plus the logarithm of the ratio of frequencies.
    """
    lacking, test = class_bias(summary)
    after = np.array(found.after)

    def size(log_odds: Floats) -> float:
        return float(after @ (log_odds - after @ log_odds) ** 2)

    if not test.p_value <= 1 - found.level or not size(lacking) > size(lacking + np.log(found.ratio)):
        return ""
    worst = int(np.argmax(after * np.abs(lacking)))
    mean = 100 * summary.means()[worst]
    frequency = 100 * summary.frequencies[worst]
    return f"class {found._names()[worst]} has a mean probability of {mean:.1f} % and a frequency of {frequency:.1f} %"


def _tuple(values: Floats) -> tuple[float, ...]:
    return tuple(values.tolist())


def _before(summary: ClassSummary) -> Floats:
    """Return the old frequencies; the mean probability stands in for a class that was never a label."""
    labels = np.array(summary.frequencies)
    means = summary.means()
    before = np.where(labels > 0, labels, np.maximum(means, 0.5 / summary.rows / len(means)))
    return np.asarray(before / before.sum())
