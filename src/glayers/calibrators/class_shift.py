"""New rows without labels, or known frequencies -> a record of class shift, with which a calibrator is adapted.

Under class shift, the rows of each class look as before, but classes have other frequencies. With the ratio w of new
to old frequencies, the calibrated probabilities p(y | x) become p(y | x) w(y), normalised. The new rows have the
density of the calibration rows times s(x) = sum_y w(y) p(y | x). Maximum likelihood therefore maximises the mean of
log s(x) over the new rows, such that the mean of s over the calibration rows is 1: sum_y w(y) m(y) = 1, where m is the
mean calibrated probability. EM finds the maximum (Saerens, Latinne and Decaestecker, 2002). Taking m, and not the
frequencies of the labels, keeps a calibrator with biased class probabilities from seeing a shift where there is none.

The density ratio s also tells what any mean over calibration rows would be, so the sampling error of the calibration
rows can be estimated from the new rows: it is part of the standard errors and of both tests.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Floats, to_floats
from glayers.calibrators.row_summary import CONFIDENCE, RowSummary
from glayers.calibrators.shift_tests import LEAST_EXPECTED, chi_square
from glayers.errors import BadFile, BadPredictions, listed
from glayers.predictions import Predictions
from glayers.serving.artifact import decoded
from glayers.text_tables import aligned_table

_MOST_LINES = 12  # of the table, where there are more classes
_MOST_STEPS = 2_000  # of EM; with acceleration a hundred are usually enough
_CLOSE = 1e-3  # of the log-likelihood of all rows: far below its sampling error
_TINY = 1e-300  # nothing is divided by 0


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
        if (numbers < 0).any() or not all(0 < value < math.inf for value in (*record.before, *record.after)):
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
        chosen = np.arange(len(self.before))
        if len(chosen) > _MOST_LINES:
            order = np.argsort(-np.abs(np.subtract(self.after, self.before)), kind="stable")
            chosen = order[:_MOST_LINES]
        lines = [["class", "before %", "estimated %", "s.e.", "adapted to %"]]
        for y in chosen:
            columns = (self.before, self.estimated, self.standard_errors, self.after)
            numbers = ["" if column is None else f"{100 * column[y]:.2f}" for column in columns]
            lines.append([self._names()[y], *numbers])
        return lines

    def __str__(self) -> str:
        more = len(self.before) - _MOST_LINES
        rest = [f"and {more} classes that changed less"] if more > 0 else []
        return "\n".join([aligned_table(self.table()), *rest, *self.sentences()])

    def _names(self) -> tuple[str, ...]:
        return self.class_names or tuple(map(str, range(len(self.before))))


def given_frequencies(summary: RowSummary, values: object, names: tuple[str, ...] | None) -> ClassShift:
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
    summary: RowSummary, given: Predictions, calibrated: Floats, level: float, names: tuple[str, ...] | None
) -> ClassShift:
    """Estimate class frequencies of new rows; `calibrated` are their calibrated logits (n, classes)."""
    sample = _NewRows.of(softmax(calibrated), given.weights, given.groups)
    # One row of equal probabilities is added: no class is impossible.
    m = (summary.rows * summary.means() + 1 / calibrated.shape[1]) / (summary.rows + 1)
    before = _before(summary)
    w = _likely_ratios(sample, m)
    p_value, prior_rows = _change_test(sample, m, summary, level)
    after = before
    if math.isfinite(prior_rows):
        after = _likely_ratios(sample, m, prior_rows) * before
    fit_p_value, misfit = _fit_test(sample, m, w, summary)
    found = ClassShift(
        _tuple(before),
        _tuple(after / after.sum()),
        _tuple(w * before / (w @ before)),
        _tuple(_standard_errors(sample, m, w, before, summary.rows)),
        sample.rows,
        p_value,
        fit_p_value,
        misfit,
        level=level,
        class_names=names,
    )
    return replace(found, bias=_bias(found, summary))


def _bias(found: ClassShift, summary: RowSummary) -> str:
    """Name the class with the most wrong probability, if the error after adapting is expected to be larger than before.

    Labels of calibrated rows have the variance p (1 - p). A shift b of the log-odds moves the mean probability of a
    class by b times the mean of p (1 - p), which gives the b that each class lacks on the calibration rows. Adapted
    probabilities still lack b; without adapting, they lack b plus the logarithm of the ratio of frequencies.
    """
    from scipy.stats import chi2  # on first use: importing it takes longer than glayers

    means = summary.means()
    variances = np.maximum(means - np.array(summary.squares), 0) + 1 / summary.rows
    difference = np.array(summary.frequencies) - means
    lacking = difference / variances
    freedom = len(means) - 1  # differences add up to 0
    unit = len(means) / (freedom * summary.rows)
    after = np.array(found.after)

    def size(log_odds: Floats) -> float:
        return float(after @ (log_odds - after @ log_odds) ** 2)

    p_value = chi2.sf(difference @ lacking / unit, freedom)
    if not p_value <= 1 - found.level or not size(lacking) > size(lacking + np.log(found.ratio)):
        return ""
    worst = int(np.argmax(after * np.abs(lacking)))
    frequency = f"a frequency of {100 * summary.frequencies[worst]:.1f} %"
    return f"class {found._names()[worst]} has a mean probability of {100 * means[worst]:.1f} % and {frequency}"


def _tuple(values: Floats) -> tuple[float, ...]:
    return tuple(values.tolist())


def _before(summary: RowSummary) -> Floats:
    """Return the old frequencies; the mean probability stands in for a class that was never a label."""
    labels = np.array(summary.frequencies)
    means = summary.means()
    before = np.where(labels > 0, labels, np.maximum(means, 0.5 / summary.rows / len(means)))
    return np.asarray(before / before.sum())


@dataclass(frozen=True)
class _NewRows:
    """New rows: calibrated probabilities, weights that sum to 1, the group of each row, and the effective rows.

    `rows` is the number of independent rows that would give mean probabilities the same precision.
    """

    p: Floats
    weights: Floats
    group: Array
    rows: float

    @classmethod
    def of(cls, p: Floats, weights: Floats | None, groups: Array | None) -> Self:
        """Return new rows; without groups, each row is one."""
        weights = np.ones(len(p)) if weights is None else weights
        weights = weights / weights.sum()
        _, group = np.unique(np.arange(len(p)) if groups is None else groups, return_inverse=True)
        sample = cls(p, weights, group, 1 / float(weights @ weights))
        deviations = weights[:, None] * (p - weights @ p)
        together = sample._sums(deviations)
        apart = float((deviations**2).sum())
        grouped = float((together**2).sum())
        rows = min(sample.rows, float(len(together)))
        if len(together) > 1 and grouped > 0:
            rows = max(1.0, sample.rows * min(1.0, apart / grouped))
        return cls(p, weights, group, rows)

    def _sums(self, values: Floats) -> Floats:
        """Return the sum of the values (n, k) of each group."""
        sums = np.zeros((self.group.max() + 1, values.shape[1]))
        np.add.at(sums, self.group, values)
        return sums

    def covariance_of_mean(self, values: Floats) -> Floats:
        """Return the covariance of the weighted mean of values (n, k); a group counts as one observation."""
        sums = self._sums(self.weights[:, None] * (values - self.weights @ values))
        return np.asarray(sums.T @ sums * (len(sums) / max(1, len(sums) - 1)))

    def covariance_as_before(self, values: Floats, w: Floats) -> Floats:
        """Return the covariance of values (n, k) over calibration rows, which new rows over s(x) stand for."""
        weights = self.weights / np.maximum(self.p @ w, _TINY)
        centred = values - weights @ values / weights.sum()
        return np.asarray((centred * weights[:, None]).T @ centred)


def _likely_ratios(sample: _NewRows, m: Floats, prior_rows: float = 0.0) -> Floats:
    """Return the ratios w that maximise the likelihood, the mean of log(p . w) such that m . w = 1, by accelerated EM.

    One step multiplies each ratio by the mean of p / (p . w) over m. The largest of these factors, less 1, bounds how
    far the likelihood lies below its maximum, so it tells when to stop. A Dirichlet prior adds rows with the old
    frequencies to each step; with it, w is the posterior mode. Each cycle extrapolates two steps (Varadhan and Roland,
    2008) and keeps the result only if it is no worse.
    """
    w = np.ones(len(m))
    prior = prior_rows / sample.rows

    def step(w: Floats) -> tuple[Floats, float, float]:
        """Return the next ratios, the likelihood of these, and how far they are from the maximum."""
        density = np.maximum(sample.p @ w, _TINY)
        factors = (sample.weights / density) @ sample.p / m
        new = w * factors + prior
        value = sample.weights @ np.log(density) + prior * (m @ np.log(np.maximum(w, _TINY)))
        gap = factors.max() - 1
        if prior:
            gap = np.abs(new / (1 + prior) - w).max()
        return new / (m @ new), float(value), float(gap)

    for _ in range(_MOST_STEPS):
        first, value, gap = step(w)
        if gap < _CLOSE / sample.rows:
            break
        second, _, _ = step(first)
        move = first - w
        curvature = second - 2 * first + w
        length = math.sqrt(float(move @ move) / max(float(curvature @ curvature), _TINY))
        far = w + 2 * length * move + length**2 * curvature
        w = second
        if length > 1 and (far >= 0).all():
            tried, far_value, _ = step(far / (m @ far))
            if far_value >= value:
                w = tried
    return w


def _influence_of_rows(sample: _NewRows, m: Floats, w: Floats) -> tuple[Floats, Floats]:
    """Return r = p / s(x), and the inverse of the information per row about w, the mean of r r'.

    A new row moves w by inverse (r - m). Divided by m, eigenvalues of the information are 1 for classes that are never
    confused, and smaller for others. One below 1 / n belongs to a direction about which n rows say nothing: it is
    raised to 1 / n.
    """
    r = sample.p / np.maximum(sample.p @ w, _TINY)[:, None]
    scale = 1 / np.sqrt(m)
    scaled = r * scale
    values, vectors = np.linalg.eigh((scaled * sample.weights[:, None]).T @ scaled)
    inverse = scale[:, None] * (vectors / np.maximum(values, 1 / sample.rows)) @ vectors.T * scale
    return r, np.asarray(inverse)


def _standard_errors(sample: _NewRows, m: Floats, w: Floats, before: Floats, calibration_rows: float) -> Floats:
    """Return the standard errors of the frequencies w * before, normalised, from new and from calibration rows.

    A calibration row moves m by p - m, and so w by -inverse (p - m); it also moves the old frequency by its label less
    the frequency. Labels have the covariance diag(m) - m m', and that of the probabilities with the probabilities.
    """
    r, inverse = _influence_of_rows(sample, m, w)
    total = float(w @ before)
    # The derivative of normalised frequencies by w * before.
    slope = (np.eye(len(m)) - (w * before / total)[:, None]) / total
    by_ratio = slope @ (before[:, None] * inverse)
    by_label = slope * w
    new = by_ratio @ sample.covariance_of_mean(r) @ by_ratio.T
    of_p = sample.covariance_as_before(sample.p, w)
    of_labels = np.diag(m) - np.outer(m, m)
    crossed = by_ratio @ of_p @ by_label.T
    old = by_ratio @ of_p @ by_ratio.T - crossed - crossed.T + by_label @ of_labels @ by_label.T
    return np.sqrt(np.maximum(np.diag(new) + np.maximum(np.diag(old), 0) / calibration_rows, 0))


def _change_test(sample: _NewRows, m: Floats, summary: RowSummary, level: float) -> tuple[float, float]:
    """Test whether class frequencies differ, from the differences d of the mean probabilities of the two samples.

    d is the score of the hypothesis that all ratios are 1. The statistic adds up d^2 / m over the classes, as Pearson's
    does. Variances are pooled over both samples; covariances are those of the new rows.

    Return the p-value, and how many rows a prior in favour of the old frequencies should be worth. Ratios with a
    Dirichlet prior worth a rows, centred at 1, add spread / a to the statistic. Solving for a gives the prior. The
    critical value stands in for the mean, so that chance alone hardly ever moves a ratio.
    """
    fewer = min(sample.rows, summary.rows)
    if fewer < 2 * LEAST_EXPECTED:
        return math.nan, math.inf
    mean = sample.weights @ sample.p
    spread = (sample.p * sample.weights[:, None]).T @ sample.p
    covariance = spread - np.outer(mean, mean)
    of_both = sample.rows * np.diag(covariance) + summary.rows * (np.array(summary.squares) - m**2)
    np.fill_diagonal(covariance, np.maximum(of_both / (sample.rows + summary.rows), 0))
    scale = 1 / (m + 1 / fewer)
    covariance *= 1 / sample.rows + 1 / summary.rows
    p_value, excess = chi_square(mean - m, covariance, scale, sample.rows, level)
    if not excess > 0:
        return p_value, math.inf
    moved = scale @ (np.square(spread) @ (1 / m) - mean**2)  # what ratios that vary add to the statistic
    return p_value, max(1.0, float(moved) / excess)


def _fit_test(sample: _NewRows, m: Floats, w: Floats, summary: RowSummary) -> tuple[float, str]:
    """Return the p-value of the test that confidences are distributed as class shift predicts, and the largest gap.

    The prediction is shares @ w. The residual of a row is its bin less what it adds to the prediction through w.
    """
    if sample.rows < 2 * len(m):
        return math.nan, ""
    histogram = summary.histograms[CONFIDENCE]
    shares = np.array(summary.shares)
    bins = np.eye(len(shares))[histogram.bins(sample.p.max(axis=1))]
    now = sample.weights @ bins
    expected = shares @ w
    free = w > 0  # a ratio of 0 is at its limit
    r, inverse = _influence_of_rows(sample, m, w)
    residuals = bins - (r * free) @ inverse @ shares.T
    covariance = sample.covariance_of_mean(residuals)
    covariance += sample.covariance_as_before(residuals * (sample.p @ w)[:, None], w) / summary.rows
    fewer = min(sample.rows, summary.rows)
    p_value, _ = chi_square(now - expected, covariance, 1 / (expected + 1 / fewer), sample.rows)
    return p_value, f"confidence {histogram.largest_change(expected, now, 'expected')}"
