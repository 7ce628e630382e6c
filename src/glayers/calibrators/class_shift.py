"""New rows without labels, or known frequencies -> a record of class shift, with which a calibrator is adapted.

A calibrator keeps a `RowSummary` of its calibration rows, and no row: how often each class is predicted, histograms of
the confidence and of the logits, the mean probability of each class by confidence, and label counts. `count_rows` reads
calibration rows and new rows in the same way.

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
from typing import Any, NamedTuple

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Floats, Ints, effective_rows, to_floats
from glayers.errors import BadPredictions
from glayers.maps import Chain
from glayers.predictions import Predictions
from glayers.serving.predictor import apply_map
from glayers.text_tables import aligned_table, json_ready

CONFIDENCE = "confidence"
LEAST_EXPECTED = 5.0  # rows per bin and sample, as the chi-square approximation needs
_TINY = 1e-300  # nothing is divided by 0


@dataclass(frozen=True)
class Histogram:
    """Counts of a number between edges; the first and last edge are the lowest and highest value."""

    edges: tuple[float, ...]
    counts: tuple[float, ...]

    def bins(self, values: Floats) -> Ints:
        """Return the bin of each value; the outer bins have no end."""
        return np.searchsorted(self.edges[1:-1], values, side="right")

    def largest_change(self, before: Floats, now: Floats, *of: str) -> str:
        """Say at which edge two distributions over the bins differ most."""
        before = np.cumsum(before) / before.sum()
        now = np.cumsum(now) / now.sum()
        place = int(np.abs(now - before).argmax())
        shares = (f"{100 * part[place]:.1f} % {words}" for part, words in zip((before, now), of, strict=True))
        return f"{' but '.join(shares)} are below {self.edges[place + 1]:.2g}"


@dataclass(frozen=True)
class RowSummary:
    """What a calibrator keeps of its calibration rows.

    Attributes
    ----------
    rows
        The effective number of independent rows, to which all counts add up: one row counts per group, and importance
        weights count as Kish's effective number of rows.
    predicted
        How often each class is the most probable one after calibration.
    histograms
        By name: the calibrated confidence, and for the logits before calibration the highest one, and the highest one
        less their mean.
    frequencies
        The frequency of each class among all labels; weights count.
    squares
        The mean square of the calibrated probability of each class.
    shares
        For each bin of the confidence and each class: the mean over all rows of the calibrated probability of the
        class, counted only where the confidence lies in the bin.
    """

    rows: float
    predicted: tuple[float, ...]
    histograms: Mapping[str, Histogram]
    frequencies: tuple[float, ...]
    squares: tuple[float, ...]
    shares: tuple[tuple[float, ...], ...]

    def means(self) -> Floats:
        """Return the mean calibrated probability of each class."""
        total = np.sum(self.shares, axis=0)
        return np.asarray(total / total.sum())

    def smoothed_means(self) -> Floats:
        """Return these means with one row of equal probabilities added: no class is impossible."""
        means = self.means()
        return np.asarray((self.rows * means + 1 / len(means)) / (self.rows + 1))

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, ready for JSON."""
        return asdict(self)


class CountedRows(NamedTuple):
    """Independent rows: their places, weights that add up to Kish's effective number of rows, what the map says.

    `p` are calibrated probabilities (n, classes).
    """

    places: Ints
    weights: Floats
    p: Floats
    features: dict[str, Floats]

    @property
    def total(self) -> float:
        """The effective number of rows."""
        return float(self.weights.sum())

    def counts(self, bins: Ints, n_bins: int) -> Floats:
        """Return the weight of the rows in each bin."""
        return np.bincount(bins, self.weights, n_bins).astype(np.float64)

    def mean(self, values: Floats) -> Floats:
        """Return the weighted mean of values (n, k)."""
        return np.asarray(self.weights @ values / self.total)


@np.errstate(over="ignore", invalid="ignore")
def count_rows(given: Predictions, chain: Chain, all_rows: bool = False) -> CountedRows:
    """Return one row of each group, none of weight 0, and a part of many; `chain` is the fitted map of logits."""
    order = np.random.default_rng(0).permutation(len(given))
    if given.weights is not None:
        order = order[given.weights[order] > 0]
    if given.groups is not None:
        _, first = np.unique(given.groups[order], return_index=True)
        order = order[np.sort(first)]
    if not all_rows:
        # The counts of more rows would hardly differ. Four million probabilities take 32 MB.
        order = order[: min(20_000, 4_000_000 // given.n_classes)]
    places = np.sort(order)
    weights = np.ones(len(places))
    if given.weights is not None:
        weights = given.weights[places] / given.weights[places].sum()
        weights = weights * effective_rows(weights)
    logits = given.logits[places]
    p = softmax(apply_map(chain, logits, given.n_classes))
    highest = logits.max(axis=1).astype(np.float64)
    mean = logits.mean(axis=1, dtype=np.float64, where=logits > -np.inf)
    features = {CONFIDENCE: p.max(axis=1), "highest logit": highest, "highest logit less mean logit": highest - mean}
    return CountedRows(places, weights, p, {name: np.nan_to_num(column) for name, column in features.items()})


def summarise(given: Predictions, chain: Chain) -> RowSummary:
    """Return the counts of calibration rows; `chain` is the fitted map of logits."""
    counted = count_rows(given, chain)
    histograms = {}
    for name, values in counted.features.items():
        edges = _edges(values)
        counts = counted.counts(np.searchsorted(edges, values, side="right"), len(edges) + 1)
        histograms[name] = Histogram((float(values.min()), *edges, float(values.max())), _tuple(counts))
    confidence = histograms[CONFIDENCE]
    weighted = counted.weights[:, None] * counted.p / counted.total
    shares = np.zeros((len(confidence.counts), given.n_classes))
    np.add.at(shares, confidence.bins(counted.features[CONFIDENCE]), weighted)
    frequencies = np.bincount(given.labels, given.weights, given.n_classes)
    return RowSummary(
        rows=counted.total,
        predicted=_tuple(counted.counts(counted.p.argmax(axis=1), given.n_classes)),
        histograms=histograms,
        frequencies=_tuple(frequencies / frequencies.sum()),
        squares=_four_digits((weighted * counted.p).sum(axis=0)),
        shares=tuple(map(_four_digits, shares)),
    )


def _edges(values: Floats) -> tuple[float, ...]:
    """Return inner edges between values, with about a tenth of the values in each bin.

    Values that differ by rounding only share a bin.
    """
    ordered = np.sort(values)
    steps = np.diff(ordered) > 1e-12 * np.maximum(1.0, np.abs(ordered[1:]))
    starts = np.append(0, np.flatnonzero(steps) + 1)  # where a bin may start
    tenths = len(ordered) * np.arange(1, 10) // 10
    firsts = np.unique(starts[np.searchsorted(starts, tenths, side="right") - 1])
    return tuple(float(ordered[i - 1] / 2 + ordered[i] / 2) for i in firsts if i > 0)


def _tuple(values: Array) -> tuple[float, ...]:
    return tuple(values.tolist())


def _four_digits(values: Floats) -> tuple[float, ...]:
    """Return numbers with four digits, more exact than any sample and shorter in a file."""
    return tuple(float(f"{value:.4g}") for value in values)


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
        return np.divide(self.after, self.before)

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
        return json_ready(asdict(self))

    @property
    def summary(self) -> str:
        """What was adapted, in words: the class whose frequency changed most."""
        most = int(np.abs(np.subtract(self.after, self.before)).argmax())
        name = self.class_names[most] if self.class_names else f"class {most}"
        before, after = (f"{100 * each[most]:.1f} %" for each in (self.before, self.after))
        if before == after:
            return "adapted to class frequencies that do not differ"
        return f"adapted to other class frequencies: {name} from {before} to {after}"

    def sentences(self) -> tuple[str, ...]:
        """Return the results of the two tests in words."""
        if self.estimated is None:
            return ("the frequencies were given, so nothing was tested",)
        if math.isnan(self.p_value):
            effective = f"{self.rows:.0f} effective rows"
            return (f"too few rows or groups ({effective}) to tell whether the class frequencies differ",)
        differ = "differ" if self.shifted else "do not differ significantly"
        change = f"the class frequencies {differ} from those of the calibration rows (p = {self.p_value:.2g})"
        fit = f"class shift explains these rows, as far as they can tell (p = {self.fit_p_value:.2g})"
        if self.unexplained:
            fit = f"class shift does not explain these rows (p = {self.fit_p_value:.2g}; {self.misfit})"
        return change, fit

    def notes(self) -> list[str]:
        """Return what `adapt` warns of."""
        found = []
        if self.unexplained:
            found.append(f"{self.sentences()[1]}: adapted probabilities may be wrong")
        if self.bias:
            found.append(
                f"adapting may make predictions worse: on the calibration rows, {self.bias}. Fit VectorScaling or "
                f"AutoCalibrator, which learn one shift per class, and adapt that"
            )
        return found

    def __str__(self) -> str:
        changes = np.abs(np.subtract(self.after, self.before))
        shown = np.sort(np.argsort(-changes, kind="stable")[:12])
        lines = [["class", "before %", "estimated %", "s.e.", "adapted to %"]]
        columns = (self.before, self.estimated, self.standard_errors, self.after)
        for y in shown.tolist():
            numbers = ["" if column is None else f"{100 * column[y]:.2f}" for column in columns]
            lines.append([self._names()[y], *numbers])
        table = aligned_table(lines)
        if len(shown) < len(changes):
            table += f"\nand {len(changes) - len(shown)} classes that changed less"
        return "\n".join([table, *self.sentences()])

    def _names(self) -> tuple[str, ...]:
        return self.class_names or tuple(map(str, range(len(self.before))))


def given_frequencies(summary: RowSummary, values: object) -> ClassShift:
    """Return the record of frequencies that the user knows."""
    before = _before(summary)
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
    return ClassShift(_tuple(before), _tuple(new / new.sum()))


def estimate_class_shift(summary: RowSummary, sample: CountedRows, level: float) -> ClassShift:
    """Estimate the class frequencies of new rows."""
    m = summary.smoothed_means()
    before = _before(summary)
    w = _likely_ratios(sample, m)
    p_value, prior_rows = _change_test(sample, m, summary, level)
    after = before
    if math.isfinite(prior_rows):
        after = _likely_ratios(sample, m, prior_rows) * before
    fit_p_value, misfit = _fit_test(sample, w, summary)
    return ClassShift(
        before=_tuple(before),
        after=_tuple(after / after.sum()),
        estimated=_tuple(w * before / (w @ before)),
        standard_errors=_tuple(_standard_errors(sample, m, w, before, summary.rows)),
        rows=sample.total,
        p_value=p_value,
        fit_p_value=fit_p_value,
        misfit=misfit,
        level=level,
    )


def with_bias(found: ClassShift, summary: RowSummary) -> ClassShift:
    """Name the class with the most wrong probability, if the error after adapting is expected to be larger than before.

    Labels of calibrated rows have the variance p (1 - p). A shift b of the log-odds moves the mean probability of a
    class by b times the mean of p (1 - p), which gives the b that each class lacks on the calibration rows. Adapted
    probabilities still lack b; without adapting, they lack b plus the logarithm of the ratio of frequencies.
    """
    from scipy.stats import chi2  # on first use: importing it takes longer than glayers

    means = summary.means()
    variances = np.maximum(means - summary.squares, 0) + 1 / summary.rows
    difference = summary.frequencies - means
    lacking = difference / variances
    freedom = len(means) - 1  # differences add up to 0
    unit = len(means) / (freedom * summary.rows)
    p_value = chi2.sf(difference @ lacking / unit, freedom)
    after = np.array(found.after)

    def size(log_odds: Floats) -> float:
        return float(after @ (log_odds - after @ log_odds) ** 2)

    is_biased = p_value <= 1 - found.level
    if not is_biased or size(lacking) <= size(lacking + np.log(found.ratio)):
        return found
    worst = np.argmax(after * np.abs(lacking))
    frequency = f"a frequency of {100 * summary.frequencies[worst]:.1f} %"
    bias = f"class {found._names()[worst]} has a mean probability of {100 * means[worst]:.1f} % and {frequency}"
    return replace(found, bias=bias)


def _before(summary: RowSummary) -> Floats:
    """Return the old frequencies; the mean probability stands in for a class that was never a label."""
    labels = np.array(summary.frequencies)
    means = summary.means()
    before = np.where(labels > 0, labels, np.maximum(means, 0.5 / summary.rows / len(means)))
    return np.asarray(before / before.sum())


def _likely_ratios(sample: CountedRows, m: Floats, prior_rows: float = 0.0) -> Floats:
    """Return the ratios w that maximise the likelihood, the mean of log(p . w) such that m . w = 1, by EM.

    One step multiplies each ratio by the mean of p / (p . w) over m. The largest of these factors, less 1, bounds how
    far the likelihood lies below its maximum, so it tells when to stop. A Dirichlet prior adds rows with the old
    frequencies to each step; with it, w is the posterior mode.
    """
    w = np.ones(len(m))
    prior = prior_rows / sample.total
    for _ in range(2_000):  # 20 to 100 are usual
        density = np.maximum(sample.p @ w, _TINY)
        factors = sample.mean(sample.p / density[:, None]) / m
        new = w * factors + prior
        gap = factors.max() - 1
        if prior:
            gap = np.abs(new / (1 + prior) - w).max()
        if gap < 0.01 / sample.total:  # 0.01 in the log-likelihood of all rows: far below its sampling error
            break
        w = new / (m @ new)
    return w


def _standard_errors(sample: CountedRows, m: Floats, w: Floats, before: Floats, calibration_rows: float) -> Floats:
    """Return the standard errors of the frequencies w * before, normalised, from new and from calibration rows.

    With r = p / s(x), a new row moves w by inverse (r - m), where the mean of r r' is the information per row about w.
    A calibration row moves m by p - m, and so w by -inverse (p - m); it also moves the old frequency by its label less
    the frequency. Labels have the covariance diag(m) - m m', and that of the probabilities with the probabilities.
    """
    density = np.maximum(sample.p @ w, _TINY)
    r = sample.p / density[:, None]
    inverse = _inverse_information(sample, r, m)
    total = w @ before
    # The derivative of normalised frequencies by w * before.
    slope = (np.eye(len(m)) - (w * before / total)[:, None]) / total
    by_ratio = slope @ (before[:, None] * inverse)
    by_label = slope * w
    of_new = by_ratio @ np.cov(r.T, aweights=sample.weights, ddof=0) @ by_ratio.T
    # New rows with weights 1 / s(x) stand for calibration rows.
    of_p = np.cov(sample.p.T, aweights=sample.weights / density, ddof=0)
    of_labels = np.diag(m) - np.outer(m, m)
    crossed = by_ratio @ of_p @ by_label.T
    of_old = by_ratio @ of_p @ by_ratio.T - crossed - crossed.T + by_label @ of_labels @ by_label.T
    variances = np.diag(of_new) / max(1.0, sample.total - 1) + np.diag(of_old) / calibration_rows
    return np.sqrt(np.maximum(variances, 0))


def _inverse_information(sample: CountedRows, r: Floats, m: Floats) -> Floats:
    """Return the inverse of the mean of r r'.

    Divided by m, its eigenvalues are 1 for classes that are never confused, and smaller for others. One below 1 / n
    belongs to a direction about which n rows say nothing: it is raised to 1 / n.
    """
    scaled = r / np.sqrt(m)
    values, vectors = np.linalg.eigh((scaled * sample.weights[:, None]).T @ scaled / sample.total)
    rotated = vectors / np.sqrt(m)[:, None]
    return np.asarray(rotated / np.maximum(values, 1 / sample.total) @ rotated.T)


def _change_test(sample: CountedRows, m: Floats, summary: RowSummary, level: float) -> tuple[float, float]:
    """Test whether class frequencies differ, from the differences d of the mean probabilities of the two samples.

    d is the score of the hypothesis that all ratios are 1. The statistic adds up d^2 / m over the classes, as Pearson's
    does. Variances are pooled over both samples; covariances are those of the new rows.

    Return the p-value, and how many rows a prior in favour of the old frequencies should be worth. Ratios with a
    Dirichlet prior worth a rows, centred at 1, add spread / a to the statistic. Solving for a gives the prior. The
    critical value stands in for the mean, so that chance alone hardly ever moves a ratio.
    """
    n_new = sample.total
    n_old = summary.rows
    fewer = min(n_new, n_old)
    if fewer < 2 * LEAST_EXPECTED:
        return math.nan, math.inf
    mean = sample.mean(sample.p)
    covariance = np.cov(sample.p.T, aweights=sample.weights, ddof=0)
    spread = covariance + np.outer(mean, mean)
    old_variances = summary.squares - m**2
    pooled = (n_new * np.diag(covariance) + n_old * old_variances) / (n_new + n_old)
    np.fill_diagonal(covariance, np.maximum(pooled, 0))
    scale = 1 / (m + 1 / fewer)
    p_value, excess = chi_square(mean - m, covariance * (1 / n_new + 1 / n_old), scale, n_new, level)
    if not excess > 0:
        return p_value, math.inf
    moved = scale @ (np.square(spread) @ (1 / m) - mean**2)  # what ratios that vary add to the statistic
    return p_value, max(1.0, float(moved) / excess)


def _fit_test(sample: CountedRows, w: Floats, summary: RowSummary) -> tuple[float, str]:
    """Return the p-value of the test that confidences are distributed as class shift predicts, and the largest gap.

    The prediction is shares @ w, from calibration rows with the weights w of their classes: Kish's effective number of
    them counts. That w was fitted to the new rows makes the test a little cautious.
    """
    if sample.total < 2 * len(w):
        return math.nan, ""
    histogram = summary.histograms[CONFIDENCE]
    expected = summary.shares @ w
    now = sample.counts(histogram.bins(sample.features[CONFIDENCE]), len(expected))
    rows = summary.rows / (summary.means() @ w**2)
    p_value = same_frequencies(rows * expected / expected.sum(), now)
    return p_value, f"in confidence, where {histogram.largest_change(expected, now, 'of expected rows', 'of these')}"


def same_frequencies(before: Floats, now: Floats) -> float:
    """Return the p-value of Pearson's test that two samples of counts have the same distribution.

    Neighbouring bins are merged until both samples can be expected to have enough rows in each; nan if fewer than two
    bins are left, or if a sample is too small for two bins.

    >>> round(same_frequencies(np.array([50.0, 30.0, 20.0]), np.array([30.0, 40.0, 30.0])), 4)  # 8.43, 2 degrees
    0.0148
    """
    from scipy.stats import chi2_contingency  # on first use: importing it takes longer than glayers

    counts = np.stack([before, now])
    totals = counts.sum(axis=1)
    if totals.min() < 2 * LEAST_EXPECTED:
        return math.nan
    if np.count_nonzero(counts.sum(axis=0)) == 1:
        return 1.0
    parts = merge_neighbours(counts.sum(axis=0), LEAST_EXPECTED * totals.sum() / totals.min())
    if parts.max() == 0:
        return math.nan
    merged = [np.bincount(parts, row) for row in counts]
    return float(chi2_contingency(merged, correction=False).pvalue)


def merge_neighbours(amounts: Floats, least: float) -> Ints:
    """Return the part of each bin: neighbours are merged until every part has at least this amount.

    >>> merge_neighbours(np.array([3.0, 1.0, 2.0, 5.0, 1.0]), 3.0).tolist()  # the last joins the part before
    [0, 1, 1, 2, 2]
    """
    parts = []
    number = 0
    held = 0.0
    for amount in amounts.tolist():
        parts.append(number)
        held += amount
        if held >= least:
            number += 1
            held = 0.0
    return np.minimum(parts, max(0, number - 1))


def chi_square(difference: Floats, covariance: Floats, scale: Floats, rows: float, level: float) -> tuple[float, float]:
    """Compare the sum of scale * difference^2 with its distribution by chance (Satterthwaite, 1946).

    By chance it is a sum of chi-square numbers with weights, which one of the same mean and variance replaces. No
    covariance is inverted, so the test keeps its power with many classes. The sum of the squares of a covariance that
    was estimated from `rows` is larger by chance, which is subtracted.

    Return the p-value, nan if nothing can differ, and how far the sum exceeds what chance exceeds with probability
    1 - level.
    """
    from scipy.stats import chi2  # on first use: importing it takes longer than glayers

    root = np.sqrt(scale)
    scaled = root[:, None] * covariance * root
    mean = np.trace(scaled)
    if not mean > 0:
        return math.nan, math.nan
    squares = (scaled**2).sum() - mean**2 / rows
    unit = max(squares, mean**2 / len(scale)) / mean
    chance = chi2(mean / unit, scale=unit)
    statistic = scale @ difference**2
    return float(chance.sf(statistic)), float(statistic - chance.ppf(level))
