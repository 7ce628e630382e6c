"""Logits and labels -> one function per class against the rest: logistic curves, or tables of rates of hits.

Platt, quadratic and beta curves are tiny convex problems, solved exactly by Newton's method. Isotonic regression and
bins group rows by score: equal scores stay together, so a weight of 2 equals the row written twice.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array, Bools, Floats
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.checks import whole_number
from glayers.fitting.floor import floor_of
from glayers.fitting.folds import effective_rows, row_weights
from glayers.fitting.newton import Optimum, newton
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Chain, OneVersusRest, QuadraticVersusRest, Reference, Step
from glayers.maps.tables import EachClass, Table, one_versus_rest, slope_features, table_of_bins
from glayers.predictions import Predictions


class ClassRows(NamedTuple):
    """The rows in which one class is possible: log p, log(1 - p), whether it is the label, and weights."""

    log_p: Floats
    log_rest: Floats
    hits: Bools
    weights: Floats


class CurveCalibrator(Calibrator):
    """One logistic curve per class against the rest."""

    _name: ClassVar[str]
    _step: ClassVar[type[Step]] = OneVersusRest
    _identity: ClassVar[tuple[float, ...]] = (1.0, 1.0, 0.0)  # of a class that is impossible in every row

    @abstractmethod
    def _curve(self, rows: ClassRows, targets: Floats) -> Optimum:
        """Return the parameters of the step for one class, given Platt's targets."""

    def _fit(self, given: Predictions) -> Fitted:
        points = np.tile(self._identity, (given.n_classes, 1))
        iterations = 0
        failed = []
        for c, rows in rows_against_rest(given):
            found = self._curve(rows, platt_targets(rows.hits, rows.weights))
            points[c] = found.point
            iterations = max(iterations, found.iterations)
            if not found.converged:
                failed.append(c)
        reason = "converged"
        if failed:
            reason = f"Newton's method did not converge for classes {failed[:5]}"
        chain = Chain((Reference(), self._step(*points.T)))
        return Fitted(chain, self._name, converged=not failed, reason=reason, iterations=iterations)


class PlattScaling(CurveCalibrator):
    """Fit sigmoid(a s + b) to the log-odds s of each class against the rest. Platt, 1999.

    Rows are normalised to sum to 1. For two classes s is the difference of the logits, and this is Platt's method
    exactly, with his targets: (N + 1) / (N + 2) for the N rows of a class and 1 / (M + 2) for the M others. A class
    without rows so gets a probability of about 1 / (M + 2) before normalisation, and separable rows a finite slope.
    The predicted class may change.

    Parameters
    ----------
    inputs : {"logits", "probabilities", "confidence"}, default "logits"
        As in `Calibrator`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 1)) * 2
    >>> labels = (rng.random(20_000) < 1 / (1 + np.exp(1 - z[:, 0]))).astype(int)  # z is calibrated except for a shift
    >>> PlattScaling().fit(z, labels).map_.parameters()["1.shift"].round(1).tolist()
    [1.0, -1.0]
    """

    methods = (Method("platt", "Logistic curve per class against the rest", "nothing", "Platt, 1999"),)

    _name = "Platt scaling"

    def _curve(self, rows: ClassRows, targets: Floats) -> Optimum:
        fit = fit_logistic((rows.log_p - rows.log_rest)[:, None], targets, rows.weights)
        return fit._replace(point=fit.point[[0, 0, 1]])


class QuadraticScaling(CurveCalibrator):
    """Fit sigmoid(a + b s + c s^2) to the log-odds s of each class against the rest, so that it never decreases.

    As Platt scaling, but the slope changes on a straight line between the lowest and the highest log-odds of the
    calibration rows; beyond them it is constant. A prior pulls c towards 0 where rows are few, and slopes are not
    negative. For more than two classes, rows are normalised to sum to 1, and the predicted class may change.

    Parameters
    ----------
    inputs : {"logits", "probabilities", "confidence"}, default "logits"
        As in `Calibrator`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 1)) * 2
    >>> labels = (rng.random(20_000) < 1 / (1 + np.exp(1 - z[:, 0]))).astype(int)  # z is calibrated except for a shift
    >>> QuadraticScaling().fit(z, labels).predict_proba([[1.0]]).round(1).tolist()
    [[0.5, 0.5]]
    """

    methods = (Method("quadratic", "Quadratic curve per class against the rest", "nothing", "glayers"),)

    _name = "quadratic scaling"
    _step = QuadraticVersusRest
    _identity = (1.0, 1.0, 0.0, 0.0, 1.0)

    def _curve(self, rows: ClassRows, targets: Floats) -> Optimum:
        """Return the slopes at both ends, the shift and the ends."""
        x = rows.log_p - rows.log_rest
        low = x.min()
        high = x.max()
        if high == low:
            high = low + max(1.0, 1e-9 * abs(low))  # of 1e30, a difference of 1 is lost
        falling, rising = slope_features(x, low, high)
        # b x + c (rising - falling) has the slopes b - c and b + c at the ends.
        features = np.stack([x, rising - falling], axis=1)
        # With a penalty from 0.3 to 10, held-out losses of 37 two-class problems and of simulations hardly differ.
        best = fit_logistic(features, targets, rows.weights, np.array([0.0, 3.0]))
        b, c, shift = best.point
        best = best._replace(point=np.array([b - c, b + c, shift]))
        best = _not_negative(best, np.stack([falling, rising], axis=1), targets, rows.weights)
        return best._replace(point=np.append(best.point, [low, high]))


class BetaCalibration(CurveCalibrator):
    """Fit sigmoid(a log p - b log(1 - p) + c) to each class, with a and b not negative. Kull et al., AISTATS 2017.

    Rows are normalised to sum to 1. The identity is a member (a = b = 1, c = 0), and the curve can bend at one end
    only. Targets are smoothed as in Platt scaling, which the paper does not do: a class without any of M rows keeps
    about 1 / (M + 2), and every fit is finite. The predicted class may change.

    Parameters
    ----------
    inputs : {"logits", "probabilities", "confidence"}, default "logits"
        As in `Calibrator`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> BetaCalibration().fit(z, labels).map_.parameters()["1.power"].round(1).tolist()
    [1.0, 1.0, 1.0]
    """

    methods = (Method("beta", "Beta curve per class against the rest", "nothing", "Kull et al., AISTATS 2017"),)

    _name = "beta calibration"

    def _curve(self, rows: ClassRows, targets: Floats) -> Optimum:
        features = np.stack([rows.log_p, -rows.log_rest], axis=1)
        free = fit_logistic(features, targets, rows.weights)
        return _not_negative(free, features, targets, rows.weights)


def platt_targets(hits: Bools, weights: Floats) -> Floats:
    """Return Platt's targets for rows that are of the class and rows that are not: just short of 1 and 0.

    >>> platt_targets(np.array([True, True, False]), np.ones(3)).round(2).tolist()
    [0.75, 0.75, 0.33]
    """
    n_hits = weights[hits].sum()
    n_misses = weights[~hits].sum()
    return np.where(hits, (n_hits + 1) / (n_hits + 2), 1 / (n_misses + 2))


def fit_logistic(features: Floats, targets: Floats, weights: Floats, penalty: Any = 0.0) -> Optimum:
    """Return the slopes and, last, the shift of least weighted log loss against targets within (0, 1).

    The penalty is half the sum of `penalty` times the squared slopes of features with a spread of 1, over all rows.
    """
    ridge = np.full(features.shape[1] + 1, 1e-14)  # moves no minimum, but keeps steps finite for collinear features
    ridge[:-1] += penalty / weights.sum()
    weights = weights / weights.sum()
    size = np.abs(features).max(axis=0)
    size[size == 0] = 1.0
    features = features / size  # the square of 1e300 would overflow
    mean = weights @ features
    spread = np.sqrt(weights @ (features - mean) ** 2)
    # The slope of a constant feature stays 0. Its spread is no more than the rounding of its mean.
    constant = spread <= 1e-13
    spread[constant] = 1.0
    standardised = np.where(constant, 0.0, features - mean) / spread
    x = np.column_stack([standardised, np.ones(len(features))])

    base = weights @ targets
    start = np.append(np.zeros(features.shape[1]), np.log(base / (1 - base)))
    # Where Newton's method expects to gain less than this, coefficients are exact to about 1e-11.
    found = LogLoss(x, targets, weights, ridge).fit(start, tolerance=0.5e-22)
    slopes = found.point[:-1] / spread
    return found._replace(point=np.append(slopes / size, found.point[-1] - slopes @ mean))


class LogLoss(NamedTuple):
    """The log loss of logistic curves against targets, plus half the sum of precisions (point - mean)^2."""

    features: Floats
    targets: Floats
    weights: Floats
    precisions: Floats
    mean: Floats | float = 0.0
    offset: Floats | float = 0.0

    def fit(self, start: Floats, tolerance: float) -> Optimum:
        """Return the minimum."""
        return newton(self.value, self.derivatives, start, tolerance=tolerance)

    def value(self, point: Floats) -> float:
        """Return the penalised loss."""
        scores = self.offset + self.features @ point
        losses = np.logaddexp(0.0, scores) - self.targets * scores
        return float(self.weights @ losses + self.precisions @ (point - self.mean) ** 2 / 2)

    def derivatives(self, point: Floats) -> tuple[Floats, Floats]:
        """Return the gradient and the Hessian."""
        from scipy.special import expit  # on first use: importing it takes longer than glayers

        p = expit(self.offset + self.features @ point)
        gradient = (self.weights * (p - self.targets)) @ self.features + self.precisions * (point - self.mean)
        hessian = (self.features.T * (self.weights * p * (1 - p))) @ self.features
        return gradient, hessian + np.diag(self.precisions)


def rows_against_rest(given: Predictions) -> Iterator[tuple[int, ClassRows]]:
    """Yield each class that is possible in some row, and its rows with a positive weight.

    A class is left out of rows where it is impossible, or so far below the others that it must be masked: one such row
    would decide its curve. Rows with one possible class say nothing. Weights sum to Kish's effective number of rows, so
    that a common factor changes no prior.
    """
    weights = row_weights(given)
    weights = weights / weights.sum() * effective_rows(weights)
    logits = with_reference_class(given.logits.astype(np.float64))
    nats = fit_inverse_temperature(given.logits, given.labels, given.weights).factor
    masked = floor_of(nats).split(logits)[1] < 0
    masked[np.arange(len(given)), given.labels] = False
    counted = (weights > 0) & ((~masked).sum(axis=1) > 1)
    log_p, log_rest = one_versus_rest(np.where(masked, -np.inf, logits))
    for c in range(given.n_classes):
        rows = counted & ~masked[:, c]
        if rows.any():
            yield c, ClassRows(log_p[rows, c], log_rest[rows, c], given.labels[rows] == c, weights[rows])


def _not_negative(free: Optimum, features: Floats, targets: Floats, weights: Floats) -> Optimum:
    """Return the best fit without negative slopes: if the free one has any, one slope of two is 0, or both."""
    if (free.point[:-1] >= 0).all():
        return free
    fits = []
    for kept in ([1.0, 0.0], [0.0, 1.0], [0.0, 0.0]):
        fit = fit_logistic(features * kept, targets, weights)
        if (fit.point[:-1] >= 0).all():
            fits.append(fit)
    return min(fits, key=lambda fit: fit.value)


class TableCalibrator(Calibrator):
    """One table of rates of hits per class. None minimises the log loss, and binning often raises it a little."""

    _warns_if_loss_rises = False
    _name: ClassVar[str]

    @abstractmethod
    def _table(self, scores: Floats, rows: Array, hits: Array, n_classes: int) -> Table:
        """Return the table of one class, given each score once, ascending, and the weights of its rows and hits."""

    def _fit(self, given: Predictions) -> Fitted:
        unchanged = np.array([0.0, 1.0]), np.array([0.0, 1.0])  # of a class that is impossible in every row
        tables = [unchanged] * given.n_classes
        for c, rows in rows_against_rest(given):
            scores, which = np.unique(np.exp(rows.log_p), return_inverse=True)
            n_rows = np.bincount(which, rows.weights)
            n_hits = np.bincount(which, rows.weights * rows.hits)
            tables[c] = self._table(scores, n_rows, n_hits, given.n_classes)
        return Fitted(Chain((Reference(), EachClass.of(tables))), self._name)


class IsotonicCalibration(TableCalibrator):
    """Fit a non-decreasing function of each class's probability. Zadrozny and Elkan, KDD 2002.

    One class against the rest by isotonic regression, linear between its blocks, then normalised to
    sum to 1. The lowest blocks are often exactly 0 and are raised to 1e-6, as is a class without rows. The predicted
    class may change, and scores within one block become equal. Needs many rows per class; overfits few.

    Parameters
    ----------
    inputs : {"logits", "probabilities", "confidence"}, default "logits"
        As in `Calibrator`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> IsotonicCalibration().fit(3 * z, labels).predict_proba([[6.0, 0.0, 0.0]]).round(1).tolist()
    [[0.8, 0.1, 0.1]]
    """

    methods = (Method("isotonic", "Isotonic regression per class", "nothing", "Zadrozny and Elkan, KDD 2002"),)
    _name = "isotonic calibration"

    def _table(self, scores: Floats, rows: Array, hits: Array, n_classes: int) -> Table:  # noqa: ARG002
        from scipy.optimize import isotonic_regression  # on first use: importing it takes longer than glayers

        found = isotonic_regression(hits / rows, weights=rows)
        # Both ends of each block: the points between them are on a line.
        kept = np.unique(np.concatenate([found.blocks[:-1], found.blocks[1:] - 1]))
        return scores[kept], np.clip(found.x[kept], 0.0, 1.0)


class HistogramBinning(TableCalibrator):
    """Replace each probability by the rate of hits in its bin; bins hold equally many rows. Zadrozny and Elkan, 2001.

    Each class is binned against the rest, and rows are normalised to sum to 1. One pseudo-row per bin is spread evenly
    over the classes: h hits of n rows become (h + 1/k) / (n + 1) for k classes. So no probability is exactly 0, even
    for a class without rows. Scores within one bin become equal, and the predicted class may change.

    Parameters
    ----------
    n_bins : int, default 15
        The largest number of bins.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)  # z is calibrated, so 3 z is overconfident
    >>> HistogramBinning().fit(3 * z, labels).predict_proba([[6.0, 0.0, 0.0]]).round(1).tolist()
    [[0.8, 0.1, 0.1]]
    """

    methods = (Method("histogram", "Histogram binning per class", "nothing", "Zadrozny and Elkan, ICML 2001"),)
    _name = "histogram binning"

    n_bins: int = 15

    def _table(self, scores: Floats, rows: Array, hits: Array, n_classes: int) -> Table:
        edges = equal_mass_edges(scores, rows, self.n_bins)
        bins = np.searchsorted(edges, scores, side="right")
        rates = (np.bincount(bins, hits) + 1 / n_classes) / (np.bincount(bins, rows) + 1)
        return table_of_bins(edges, rates)


def equal_mass_edges(scores: Floats, rows: Array, n_bins: int) -> Floats:
    """Cut scores into at most `n_bins` bins of equal weight; return the scores at which the next bin begins.

    A score goes to the bin of the middle of its rows.

    >>> equal_mass_edges(np.array([0.1, 0.2, 0.4]), np.ones(3), 3).round(2).tolist()
    [0.15, 0.3]
    """
    total = np.cumsum(rows)
    middle = (total - rows / 2) / total[-1]
    # The nudge keeps sums of weights that should be equal on one side.
    wanted = np.floor(middle * whole_number(n_bins, "n_bins", least=1) + 1e-9).astype(np.int64)
    last = np.flatnonzero(np.diff(wanted))
    below = scores[last]
    above = scores[last + 1]
    halfway = (below + above) / 2
    return np.where(halfway > below, halfway, above)
