"""Probabilities and hits -> tables of what each probability turned out to mean: isotonic, bins, splines.

Every method here works on rows grouped by score: equal scores stay together, so a weight of 2 is a row repeated.
"""

from typing import Literal, NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import gammaln, logit
from sklearn.isotonic import IsotonicRegression

from glayers.activations import with_reference_class
from glayers.arrays import Floats, Ints
from glayers.calibrators.binary import DirectCalibrator, Solved
from glayers.errors import GlayersError
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Chain, Reference, Scale
from glayers.maps.tables import EachClass, Table, TopClass, one_versus_rest
from glayers.predictions import Predictions
from glayers.settings import whole_number

Target = Literal["top", "classes"]


class IsotonicCalibration(DirectCalibrator):
    """The non-decreasing function of each class's probability nearest to its hits. Zadrozny and Elkan, 2002.

    One-versus-rest by scikit-learn, linear between its blocks, made to sum to 1. The lowest blocks are often exactly 0
    and are raised to 1e-6, as is a class without rows.

    Cannot: keep the predicted class, or tell scores of one block apart. Wants many rows a class; overfits few.
    """

    def _solve(self, given: Predictions) -> Solved:
        scores, labels, weights = _rows(given)
        tables = []
        for c, column in enumerate(scores.T):
            fit = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
            fit.fit(column, (labels == c).astype(np.float64), weights)
            tables.append(Table(fit.X_thresholds_, fit.y_thresholds_))
        return Solved(Chain((Reference(), EachClass.of(tables))))


class HistogramBinning(DirectCalibrator):
    """The share of hits in bins that hold equally many rows. Zadrozny and Elkan, 2001; Guo et al., 2017.

    `target="classes"` bins each class against the rest and makes rows sum to 1, which may change the predicted class;
    `target="top"` bins the top class alone, shares the rest in the old proportions, and keeps the predicted class.
    `smoothing` pseudo-rows a bin are spread evenly over the outcomes: hits h of n rows become (h + 1/k) / (n + 1) of k
    classes, (h + 1/2) / (n + 1) for the top class. So nothing is exactly 0, also for a class without rows; with
    `smoothing=0` the floor of 1e-6 sees to that.

    Cannot: tell scores of one bin apart, and with `target="top"` says nothing new about the other classes.
    """

    def __init__(self, n_bins: int = 15, *, target: Target = "classes", smoothing: float = 1.0) -> None:
        self.n_bins = n_bins
        self.target = target
        self.smoothing = smoothing

    def _solve(self, given: Predictions) -> Solved:
        n_bins = whole_number(self.n_bins, "n_bins", least=1)
        if not 0 <= self.smoothing < np.inf:
            raise GlayersError(f"smoothing must be a number of pseudo-rows, at least 0; got {self.smoothing!r}")
        columns, n_outcomes = _columns(given, self.target)
        tables = []
        for groups in columns:
            bins = equal_mass_bins(groups, n_bins)
            hits, rows = bins.add_up(groups.hits), bins.add_up(groups.rows)
            tables.append(
                Table.of_bins(bins.edges, (hits + self.smoothing / n_outcomes) / (rows + self.smoothing)),
            )
        return _solved(tables, self.target)


class BayesianBinning(DirectCalibrator):
    """Many equal-mass binnings of the top class, averaged by how well each explains the hits. Naeini et al., 2015.

    BBQ with the paper's prior: 2 pseudo-rows a binning, from n^(1/3) / 10 bins to 10 n^(1/3). The paper has two
    classes and bins one of them; here the top class is binned, the others share the rest in their old proportions, and
    the predicted class is kept. Probabilities of the top class stay within 1e-6 of 0 and 1.

    Cannot: say anything new about the other classes; follow a curve between its bins.
    """

    def _solve(self, given: Predictions) -> Solved:
        (groups,), _ = _columns(given, "top")
        size = np.cbrt(groups.rows.sum())
        # The paper's code stops at 5 rows a bin; more bins than scores would only repeat themselves.
        most = int(min(np.ceil(10 * size), np.ceil(groups.rows.sum() / 5), len(groups.scores)))
        counts = range(max(1, int(min(size / 10, most))), max(1, most) + 1)
        tried = [_bayesian_bins(groups, n, lowest=1 / given.n_classes) for n in counts]
        evidence = np.array([each.evidence for each in tried])
        shares = np.exp(evidence - evidence.max())
        shares /= shares.sum()
        kept = [(share, each) for share, each in zip(shares, tried, strict=True) if share > 1e-12]
        # A sum of step functions jumps wherever one of them does: add the jumps up from the left.
        edges = np.concatenate([each.edges for _, each in kept])
        jumps = np.concatenate([share * np.diff(each.values) for share, each in kept])
        places, which = np.unique(edges, return_inverse=True)
        start = sum(share * each.values[0] for share, each in kept)
        values = start + np.append(0.0, np.cumsum(np.bincount(which, jumps, minlength=len(places))))
        chain = Chain((Reference(), TopClass.of(Table.of_bins(places, values))))
        return Solved(chain, iterations=len(tried), reason=f"{len(kept)} of {len(tried)} binnings carry weight")


class ScalingBinning(DirectCalibrator):
    """Temperature scaling, then the top class's probability rounded to its bin's mean. Kumar et al., 2019.

    The output takes `n_bins` values, so its calibration can be measured; the predicted class is kept. The paper splits
    the rows between the two parts; here both see all, since bin means read no label.

    Cannot: bend more than temperature does, or say anything but temperature about the other classes. The top class
    never gets more than 1 - 1e-6.
    """

    def __init__(self, n_bins: int = 15) -> None:
        self.n_bins = n_bins

    def _solve(self, given: Predictions) -> Solved:
        n_bins = whole_number(self.n_bins, "n_bins", least=1)
        found = fit_inverse_temperature(given.logits, given.labels, given.weights)
        (groups,), _ = _columns(given, "top", found.factor)
        bins = equal_mass_bins(groups, n_bins)
        means = bins.add_up(groups.rows * groups.scores) / bins.add_up(groups.rows)
        step = TopClass.of(Table.of_bins(bins.edges, means))
        chain = Chain((Scale(np.asarray(found.factor)), Reference(), step))
        return Solved(chain, found.steps, found.converged, found.reason or "converged")


class SplineCalibration(DirectCalibrator):
    """The slope of a smooth curve through the cumulative hits, as a function of the fractile. Gupta et al., 2021.

    Rows sorted by score, the share of rows so far is t, the share of hits so far h(t): a natural cubic spline with
    evenly spaced knots is fitted to h by least squares, through both its ends, so that the mean stays exactly the
    share of hits. Its slope at t is the new probability. `target="top"` does so for the top class and keeps the
    predicted class, `target="classes"` for every class, and makes rows sum to 1.

    Cannot: promise a non-decreasing function; slopes outside 1e-6..1 - 1e-6 are clipped, so a class without rows
    gets 1e-6. With many classes, the rows where a class is likely lie within the last knot, and it sees little there.
    """

    def __init__(self, n_knots: int = 6, *, target: Target = "top") -> None:
        self.n_knots = n_knots
        self.target = target

    def _solve(self, given: Predictions) -> Solved:
        n_knots = whole_number(self.n_knots, "n_knots", least=3)
        columns, _ = _columns(given, self.target)
        return _solved([_spline_table(groups, n_knots) for groups in columns], self.target)


class Groups(NamedTuple):
    """Rows of equal score together: each score once, ascending, with the weight of its rows and of its hits."""

    scores: Floats
    rows: Floats
    hits: Floats


class Bins(NamedTuple):
    """The bin of each group, from 0, and the scores where the next bin begins."""

    of_group: Ints
    edges: Floats

    def add_up(self, weights: Floats) -> Floats:
        """Add weights of groups up, bin by bin."""
        return _sums(self.of_group, weights)


def grouped(scores: Floats, hits: np.ndarray, weights: Floats) -> Groups:
    """Put rows of equal score together.

    >>> grouped(np.array([0.5, 0.2, 0.5]), np.array([True, True, False]), np.ones(3)).rows.tolist()
    [1.0, 2.0]
    """
    values, which = np.unique(scores, return_inverse=True)
    return Groups(values, _sums(which, weights), _sums(which, weights * hits))


def equal_mass_bins(groups: Groups, n_bins: int) -> Bins:
    """Cut scores into at most `n_bins` bins of equal weight; a group goes where its middle lies.

    >>> equal_mass_bins(Groups(np.array([0.1, 0.2, 0.4]), np.ones(3), np.zeros(3)), 3).edges.round(2).tolist()
    [0.15, 0.3]
    """
    total = np.cumsum(groups.rows)
    middle = (total - groups.rows / 2) / total[-1]
    # The nudge keeps sums of weights that should be equal on one side.
    wanted = np.floor(middle * n_bins + 1e-9).astype(np.int64)
    last = np.flatnonzero(np.diff(wanted))
    below, above = groups.scores[last], groups.scores[last + 1]
    edges = np.where((below + above) / 2 > below, (below + above) / 2, above)
    return Bins(np.searchsorted(edges, groups.scores, side="right"), edges)


def _sums(which: Ints, weights: Floats) -> Floats:
    return np.bincount(which, weights).astype(np.float64)


class _BayesianBins(NamedTuple):
    edges: Floats
    values: Floats
    evidence: float


def _bayesian_bins(groups: Groups, n_bins: int, lowest: float) -> _BayesianBins:
    """Posterior means of one binning and its log marginal likelihood, under beta priors about the bins' middles."""
    bins = equal_mass_bins(groups, n_bins)
    rows, hits = bins.add_up(groups.rows), bins.add_up(groups.hits)
    borders = np.concatenate([[lowest], bins.edges, [1.0]])
    middle = np.clip((borders[1:] + borders[:-1]) / 2, 1e-9, 1 - 1e-9)
    strength = 2.0 / len(rows)
    a, b = strength * middle, strength * (1 - middle)
    each = gammaln(strength) - gammaln(rows + strength) + gammaln(hits + a) - gammaln(a)
    each += gammaln(rows - hits + b) - gammaln(b)
    return _BayesianBins(bins.edges, (hits + a) / (rows + strength), float(each.sum()))


def _spline_table(groups: Groups, n_knots: int) -> Table:
    total = groups.rows.sum()
    end = np.cumsum(groups.rows) / total
    begin = end - groups.rows / total
    cumulative = np.cumsum(groups.hits) / total
    knots = np.linspace(0.0, 1.0, n_knots)
    basis = CubicSpline(knots, np.eye(n_knots), bc_type="natural")(end)
    heights = np.append(np.zeros(n_knots - 1), cumulative[-1])
    root = np.sqrt(groups.rows)[:, None]
    rest = (cumulative - basis @ heights)[:, None]
    heights[1:-1] = np.linalg.lstsq(root * basis[:, 1:-1], root * rest, rcond=None)[0][:, 0]
    curve = CubicSpline(knots, heights, bc_type="natural")
    # Many rows of one score share the mean slope of their stretch; a short one would only cancel digits.
    long = end - begin > 1e-6
    slope = np.where(
        long, (curve(end) - curve(begin)) / np.where(long, end - begin, 1.0), curve((begin + end) / 2, nu=1)
    )
    kept = _spread_points(groups.scores, end)
    return Table(groups.scores[kept], slope[kept])


def _spread_points(scores: Floats, fractiles: Floats, each: int = 256) -> Ints:
    """Choose scores close enough for a broken line: some evenly by fractile, some evenly by log-odds, and both ends."""
    if len(scores) <= 2 * each:
        return np.arange(len(scores))
    odds = logit(np.clip(scores, 1e-12, 1 - 1e-12))
    by_fractile = np.searchsorted(fractiles, np.linspace(0, 1, each))
    by_odds = np.searchsorted(odds, np.linspace(odds[0], odds[-1], each))
    chosen = np.concatenate([by_fractile, by_odds, [0, len(scores) - 1]])
    return np.unique(np.clip(chosen, 0, len(scores) - 1))


def _rows(given: Predictions, factor: float = 1.0) -> tuple[Floats, Ints, Floats]:
    """Return probabilities exactly as the tables will meet them, labels and weights of the rows that count."""
    weights = np.ones(len(given)) if given.weights is None else given.weights
    counted = weights > 0
    logits = with_reference_class(given.logits[counted].astype(np.float64) * factor)
    return np.exp(one_versus_rest(logits)[0]), given.labels[counted], weights[counted]


def _columns(given: Predictions, target: Target, factor: float = 1.0) -> tuple[list[Groups], int]:
    """Return what is to be calibrated, one column or one a class, and among how many outcomes."""
    if target not in ("top", "classes"):
        raise GlayersError(f"target must be 'top' or 'classes'; got {target!r}")
    scores, labels, weights = _rows(given, factor)
    if target == "top":
        return [grouped(scores.max(axis=1), scores.argmax(axis=1) == labels, weights)], 2
    return [grouped(column, labels == c, weights) for c, column in enumerate(scores.T)], scores.shape[1]


def _solved(tables: list[Table], target: Target) -> Solved:
    step = TopClass.of(tables[0]) if target == "top" else EachClass.of(tables)
    return Solved(Chain((Reference(), step)))
