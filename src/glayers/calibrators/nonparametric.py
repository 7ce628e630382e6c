"""Probabilities and hits -> tables of the calibrated value of each probability: isotonic regression, bins, splines.

Every method here groups rows by score: equal scores stay together, so a weight of 2 equals the row written twice.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np

from glayers.arrays import Array, Bools, Floats
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.calibrators.binary import rows_against_rest
from glayers.checks import whole_number
from glayers.fitting.temperature import fit_with_prior
from glayers.maps import Chain, Reference, Scale
from glayers.maps.tables import EachClass, Table, TopClass, table_of_bins
from glayers.predictions import Predictions

_POINTS = 1_000  # of a spline that becomes a table


class Groups(NamedTuple):
    """Each score once, ascending, with the total weight of its rows and of its hits, and the number of classes."""

    scores: Array
    rows: Array
    hits: Array
    n_classes: int = 2


class TableCalibrator(Calibrator):
    """A calibrator that estimates rates of hits. None minimises the log loss, and binning often raises it a little.

    A confidence is the probability of one class, "correct", however low it is: its classes are calibrated one by one.
    """

    _warns_if_loss_rises = False
    _name: ClassVar[str]
    _of_top: ClassVar[bool] = True  # whether one table is for the top class, or each class has its own

    @abstractmethod
    def _table(self, groups: Groups) -> Table:
        """Return the table of one class, or of the top class."""

    def _fit(self, given: Predictions) -> Fitted:
        return self._fit_tables(given, factor=1.0)

    def _fit_tables(self, given: Predictions, factor: float) -> Fitted:
        """Fit one table to the top class, or one to each class, of probabilities at an inverse temperature."""
        log_p, _, labels, weights = rows_against_rest(given, factor)
        p = np.exp(log_p)  # the very probabilities that the tables will be applied to
        if self._of_top and self.inputs != "confidence":
            table = self._table_of_rows(p.max(axis=1), p.argmax(axis=1) == labels, weights, given.n_classes)
            return Fitted(Chain((Reference(), TopClass.of(table))), self._name)
        tables = []
        for c in range(given.n_classes):
            rows = log_p[:, c] > -np.inf
            tables.append(self._table_of_rows(p[rows, c], labels[rows] == c, weights[rows], given.n_classes))
        return Fitted(Chain((Reference(), EachClass.of(tables))), self._name)

    def _table_of_rows(self, scores: Floats, hits: Bools, weights: Floats, n_classes: int) -> Table:
        """Return the table of these rows; equal scores form a group. Without rows, it changes nothing."""
        if not len(scores):
            return np.array([0.0, 1.0]), np.array([0.0, 1.0])
        values, which = np.unique(scores, return_inverse=True)
        groups = Groups(values, np.bincount(which, weights), np.bincount(which, weights * hits), n_classes)
        return self._table(groups)


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
    _of_top = False

    def _table(self, groups: Groups) -> Table:
        from scipy.optimize import isotonic_regression  # on first use: importing it takes longer than glayers

        found = isotonic_regression(groups.hits / groups.rows, weights=groups.rows)
        # Both ends of each block: the points between them are on a line.
        kept = np.unique(np.concatenate([found.blocks[:-1], found.blocks[1:] - 1]))
        return groups.scores[kept], np.clip(found.x[kept], 0.0, 1.0)


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
    _of_top = False

    n_bins: int = 15

    def _table(self, groups: Groups) -> Table:
        edges, bins = equal_mass_bins(groups, self.n_bins)
        return table_of_bins(edges, (bins.hits + 1 / groups.n_classes) / (bins.rows + 1))


class ScalingBinning(TableCalibrator):
    """Scale by temperature, then round the top class's probability to its bin's mean. Kumar et al., NeurIPS 2019.

    The top class's probability takes at most `n_bins` values, so its calibration can be measured; it never exceeds
    1 - 1e-6. The predicted class is kept, and the other classes keep their proportions. The paper splits the rows
    between the two steps; here both see all rows, because bin means use no label.

    Parameters
    ----------
    n_bins : int, default 15
        The largest number of bins.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)  # z is calibrated, so 3 z is overconfident
    >>> ScalingBinning().fit(3 * z, labels).predict_proba([[6.0, 0.0, 0.0]]).round(1).tolist()
    [[0.8, 0.1, 0.1]]
    """

    methods = (
        Method("scaling-binning", "Temperature, then top-class bins", "predicted class", "Kumar et al., NeurIPS 2019"),
    )

    _name = "scaling-binning"

    n_bins: int = 15

    def _fit(self, given: Predictions) -> Fitted:
        temperature = fit_with_prior(given.logits, given.labels, given.weights)
        binned = self._fit_tables(given, temperature.factor)
        return replace(
            binned,
            map=Chain((Scale(np.asarray(temperature.factor)),)) + binned.map,
            converged=temperature.converged,
            reason=temperature.reason or "converged",
            iterations=temperature.steps,
        )

    def _table(self, groups: Groups) -> Table:
        edges, bins = equal_mass_bins(groups, self.n_bins)
        return table_of_bins(edges, bins.scores)


class SplineCalibration(TableCalibrator):
    """Fit a spline to the cumulative hits; its slope is the new probability. Gupta et al., ICLR 2021.

    Rows are sorted by score. A natural cubic spline with evenly spaced knots is fitted by least squares to the
    cumulative fraction of hits as a function of the fractile, through both ends, so the mean stays exactly the rate of
    hits. Its slope need not be monotone; slopes outside 1e-6..1 - 1e-6 are clipped. The predicted class is kept.

    Parameters
    ----------
    n_knots : int, default 6
        The number of knots, at least 3.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)  # z is calibrated, so 3 z is overconfident
    >>> SplineCalibration().fit(3 * z, labels).predict_proba([[6.0, 0.0, 0.0]]).round(1).tolist()
    [[0.8, 0.1, 0.1]]
    """

    methods = (Method("spline", "Spline fit of the top class", "predicted class", "Gupta et al., ICLR 2021"),)
    _name = "spline calibration"

    n_knots: int = 6

    def _table(self, groups: Groups) -> Table:
        from scipy.interpolate import CubicSpline  # on first use: importing it takes longer than glayers

        knots = np.linspace(0.0, 1.0, whole_number(self.n_knots, "n_knots", least=3))
        total = groups.rows.sum()
        end = np.cumsum(groups.rows) / total
        begin = end - groups.rows / total
        cumulative = np.cumsum(groups.hits) / total
        basis = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")(end)
        heights = np.zeros(len(knots))
        heights[-1] = cumulative[-1]
        rest = cumulative - basis @ heights
        root = np.sqrt(groups.rows)
        heights[1:-1] = np.linalg.lstsq(root[:, None] * basis[:, 1:-1], root * rest, rcond=None)[0]
        curve = CubicSpline(knots, heights, bc_type="natural")
        slope = curve((begin + end) / 2, nu=1)
        # Many rows of one score get the mean slope over their stretch; over a short one, digits would cancel.
        long = end - begin > 1e-6
        slope[long] = (curve(end[long]) - curve(begin[long])) / (end[long] - begin[long])
        # A spline is smooth: some of many points are enough for a broken line.
        kept = np.unique(np.linspace(0, len(slope) - 1, _POINTS).astype(np.int64))
        return groups.scores[kept], slope[kept]


def equal_mass_bins(groups: Groups, n_bins: int) -> tuple[Floats, Groups]:
    """Cut scores into at most `n_bins` bins of equal weight; a group goes to the bin of its middle.

    Return the scores at which the next bin begins, and the bins, with their mean scores.

    >>> equal_mass_bins(Groups(np.array([0.1, 0.2, 0.4]), np.ones(3), np.zeros(3)), 3)[0].round(2).tolist()
    [0.15, 0.3]
    """
    total = np.cumsum(groups.rows)
    middle = (total - groups.rows / 2) / total[-1]
    # The nudge keeps sums of weights that should be equal on one side.
    wanted = np.floor(middle * whole_number(n_bins, "n_bins", least=1) + 1e-9).astype(np.int64)
    last = np.flatnonzero(np.diff(wanted))
    below = groups.scores[last]
    above = groups.scores[last + 1]
    halfway = (below + above) / 2
    edges = np.where(halfway > below, halfway, above)
    which = np.searchsorted(edges, groups.scores, side="right")
    rows = np.bincount(which, groups.rows)
    hits = np.bincount(which, groups.hits)
    scores = np.bincount(which, groups.rows * groups.scores)
    return edges, Groups(scores / rows, rows, hits)
