"""Probabilities and hits -> tables of the calibrated value of each probability: isotonic regression, bins, splines.

Every method here groups rows by score: equal scores stay together, so a weight of 2 equals the row written twice.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Bools, Floats, Ints
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.calibrators.binary import rows_against_rest
from glayers.checks import check_choice, whole_number
from glayers.errors import GlayersError
from glayers.fitting.temperature import fit_with_prior
from glayers.maps import Chain, Reference, Scale
from glayers.maps.tables import EachClass, Table, TopClass
from glayers.predictions import Predictions

Target = Literal["top", "classes"]


class TableCalibrator(Calibrator):
    """A calibrator that estimates rates of hits. None minimises the log loss, and binning often raises it a little."""

    _warns_if_loss_rises = False

    def _fit_tables(
        self, given: Predictions, method: str, target: Target, table_of: "TableOf", factor: float = 1.0
    ) -> Fitted:
        """Fit one table to the top class, or one to each class, of probabilities at an inverse temperature.

        A confidence is the probability of one class, "correct", however low it is; the top class could be the other.
        """
        check_choice(target, ("top", "classes"), "target")
        log_p, _, labels, weights = rows_against_rest(given, factor)
        p = np.exp(log_p)  # the very probabilities that the tables will be applied to
        if target == "top" and self.inputs != "confidence":
            table = _table(table_of, p.max(axis=1), p.argmax(axis=1) == labels, weights)
            return Fitted(Chain((Reference(), TopClass.of(table))), method)
        tables = []
        for c in range(given.n_classes):
            rows = log_p[:, c] > -np.inf
            tables.append(_table(table_of, p[rows, c], labels[rows] == c, weights[rows]))
        return Fitted(Chain((Reference(), EachClass.of(tables))), method)

    def _refuse_confidence(self, name: str) -> None:
        if self.inputs == "confidence":
            raise GlayersError(
                f"{name} calibrates the top class of each row, and a confidence may be that of the other; use "
                f"IsotonicCalibration, HistogramBinning, SplineCalibration, PlattScaling or BetaCalibration"
            )


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

    def _fit(self, given: Predictions) -> Fitted:
        return self._fit_tables(given, "isotonic calibration", "classes", _isotonic_table)


@dataclass(eq=False, repr=False)
class HistogramBinning(TableCalibrator):
    """Replace each probability by the rate of hits in its bin; bins hold equally many rows. Zadrozny and Elkan, 2001.

    One pseudo-row per bin is spread evenly over the outcomes: h hits of n rows become (h + 1/k) / (n + 1) for k
    classes, (h + 1/2) / (n + 1) for the top class. So no probability is exactly 0, even for a class without rows.
    Scores within one bin become equal.

    Parameters
    ----------
    n_bins : int, default 15
        The largest number of bins.
    target : {"classes", "top"}, default "classes"
        "classes" bins each class against the rest and normalises rows to sum to 1, which may change the predicted
        class. "top" bins the top class alone and keeps the predicted class; the other classes keep their proportions.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)  # z is calibrated, so 3 z is overconfident
    >>> HistogramBinning().fit(3 * z, labels).predict_proba([[6.0, 0.0, 0.0]]).round(1).tolist()
    [[0.8, 0.1, 0.1]]
    """

    methods = (
        Method("histogram", "Histogram binning per class", "nothing", "Zadrozny and Elkan, ICML 2001"),
        Method(
            *("histogram-top", "Histogram binning of the top class", "predicted class", "Guo et al., ICML 2017"),
            settings={"target": "top"},
        ),
    )

    n_bins: int = 15
    _: KW_ONLY
    target: Target = "classes"

    def _fit(self, given: Predictions) -> Fitted:
        n_bins = whole_number(self.n_bins, "n_bins", least=1)
        check_choice(self.target, ("top", "classes"), "target")
        per_class = self.target == "classes" or self.inputs == "confidence"
        n_outcomes = given.n_classes if per_class else 2

        def table(groups: Groups) -> Table:
            edges, bins = equal_mass_bins(groups, n_bins)
            return Table.of_bins(edges, (bins.hits + 1 / n_outcomes) / (bins.rows + 1))

        return self._fit_tables(given, "histogram binning", self.target, table)


class BayesianBinning(TableCalibrator):
    """Average many equal-mass binnings of the top class by their evidence (BBQ). Naeini et al., AAAI 2015.

    Uses the paper's prior: 2 pseudo-rows per binning, from n^(1/3) / 10 bins to 10 n^(1/3). The paper bins one of two
    classes; here the top class is binned. The predicted class is kept, and the other classes keep their proportions.
    Probabilities of the top class stay within 1e-6 of 0 and 1.

    Parameters
    ----------
    inputs : {"logits", "probabilities"}, default "logits"
        As in `Calibrator`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)  # z is calibrated, so 3 z is overconfident
    >>> BayesianBinning().fit(3 * z, labels).predict_proba([[6.0, 0.0, 0.0]]).round(1).tolist()
    [[0.8, 0.1, 0.1]]
    """

    methods = (Method("bbq", "Bayesian average of top-class binnings", "predicted class", "Naeini et al., AAAI 2015"),)

    def _fit(self, given: Predictions) -> Fitted:
        self._refuse_confidence("Bayesian binning")
        return self._fit_tables(
            given, "Bayesian binning", "top", lambda groups: _averaged_table(groups, lowest=1 / given.n_classes)
        )


@dataclass(eq=False, repr=False)
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

    n_bins: int = 15

    def _fit(self, given: Predictions) -> Fitted:
        self._refuse_confidence("scaling-binning")
        n_bins = whole_number(self.n_bins, "n_bins", least=1)
        found = fit_with_prior(given.logits, given.labels, given.weights)

        def table(groups: Groups) -> Table:
            edges, bins = equal_mass_bins(groups, n_bins)
            return Table.of_bins(edges, bins.scores)

        binned = self._fit_tables(given, "scaling-binning", "top", table, found.factor)
        return replace(
            binned,
            map=Chain((Scale(np.asarray(found.factor)),)) + binned.map,
            converged=found.converged,
            reason=found.reason or "converged",
            iterations=found.steps,
        )


@dataclass(eq=False, repr=False)
class SplineCalibration(TableCalibrator):
    """Fit a spline to the cumulative hits; its slope is the new probability. Gupta et al., ICLR 2021.

    Rows are sorted by score. A natural cubic spline with evenly spaced knots is fitted by least squares to the
    cumulative fraction of hits as a function of the fractile, through both ends, so the mean stays exactly the rate of
    hits. Its slope need not be monotone; slopes outside 1e-6..1 - 1e-6 are clipped, so a class without rows gets 1e-6.
    With many classes, the rows where a class is likely lie within the last knot, which limits `target="classes"`.

    Parameters
    ----------
    n_knots : int, default 6
        The number of knots, at least 3.
    target : {"top", "classes"}, default "top"
        "top" calibrates the top class alone and keeps the predicted class; "classes" calibrates each class against
        the rest and normalises rows to sum to 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)  # z is calibrated, so 3 z is overconfident
    >>> SplineCalibration().fit(3 * z, labels).predict_proba([[6.0, 0.0, 0.0]]).round(1).tolist()
    [[0.8, 0.1, 0.1]]
    """

    methods = (
        Method("spline", "Spline fit of the top class", "predicted class", "Gupta et al., ICLR 2021"),
        Method("spline-classes", "Spline fit per class", "nothing", "Gupta et al., ICLR 2021", {"target": "classes"}),
    )

    n_knots: int = 6
    _: KW_ONLY
    target: Target = "top"

    def _fit(self, given: Predictions) -> Fitted:
        n_knots = whole_number(self.n_knots, "n_knots", least=3)
        return self._fit_tables(given, "spline calibration", self.target, lambda groups: _spline_table(groups, n_knots))


TableOf: TypeAlias = "Callable[[Groups], Table]"


class Groups(NamedTuple):
    """Each score once, ascending, with the total weight of its rows and of its hits."""

    scores: Array
    rows: Array
    hits: Array


def _table(table_of: TableOf, scores: Floats, hits: Bools, weights: Floats) -> Table:
    """Return the table of these rows; equal scores form a group. Without rows, it changes nothing."""
    if not len(scores):
        return Table(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    values, which = np.unique(scores, return_inverse=True)
    return table_of(Groups(values, np.bincount(which, weights), np.bincount(which, weights * hits)))


def equal_mass_bins(groups: Groups, n_bins: int) -> tuple[Floats, Groups]:
    """Cut scores into at most `n_bins` bins of equal weight; a group goes to the bin of its middle.

    Return the scores at which the next bin begins, and the bins, with their mean scores.

    >>> equal_mass_bins(Groups(np.array([0.1, 0.2, 0.4]), np.ones(3), np.zeros(3)), 3)[0].round(2).tolist()
    [0.15, 0.3]
    """
    total = np.cumsum(groups.rows)
    middle = (total - groups.rows / 2) / total[-1]
    # The nudge keeps sums of weights that should be equal on one side.
    wanted = np.floor(middle * n_bins + 1e-9).astype(np.int64)
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


def _averaged_table(groups: Groups, lowest: float) -> Table:
    """Average binnings by their evidence; their scores lie above `lowest`."""
    n_rows = groups.rows.sum()
    size = np.cbrt(n_rows)
    # The paper's code stops at 5 rows per bin; more bins than scores would only repeat themselves.
    most = max(1, int(min(np.ceil(10 * size), np.ceil(n_rows / 5), len(groups.scores))))
    fewest = max(1, int(min(size / 10, most)))
    tried = [_bayesian_bins(groups, n_bins, lowest) for n_bins in range(fewest, most + 1)]
    posterior = softmax(np.array([evidence for _, _, evidence in tried]))
    kept = np.flatnonzero(posterior > 1e-12)
    # A sum of step functions jumps wherever one of them does.
    places = np.unique(np.concatenate([tried[i][0] for i in kept]))
    starts = np.append(-np.inf, places)
    values = np.zeros(len(starts))
    for i in kept:
        edges, rates, _ = tried[i]
        values += posterior[i] * rates[np.searchsorted(edges, starts, side="right")]
    return Table.of_bins(places, values)


def _bayesian_bins(groups: Groups, n_bins: int, lowest: float) -> tuple[Floats, Floats, float]:
    """Return edges, posterior means and log evidence of one binning, under beta priors about the bins' centres."""
    from scipy.special import betaln  # on first use: importing it takes longer than glayers

    edges, (_, rows, hits) = equal_mass_bins(groups, n_bins)
    borders = np.concatenate([[lowest], edges, [1.0]])
    middle = np.clip((borders[1:] + borders[:-1]) / 2, 1e-9, 1 - 1e-9)
    strength = 2.0 / len(rows)
    a = strength * middle
    b = strength * (1 - middle)
    evidence = betaln(hits + a, rows - hits + b) - betaln(a, b)
    return edges, (hits + a) / (rows + strength), float(evidence.sum())


def _isotonic_table(groups: Groups) -> Table:
    from scipy.optimize import isotonic_regression  # on first use: importing it takes longer than glayers

    found = isotonic_regression(groups.hits / groups.rows, weights=groups.rows)
    # Both ends of each block: the points between them are on a line.
    kept = np.unique(np.concatenate([found.blocks[:-1], found.blocks[1:] - 1]))
    return Table(groups.scores[kept], np.clip(found.x[kept], 0.0, 1.0))


def _spline_table(groups: Groups, n_knots: int) -> Table:
    from scipy.interpolate import CubicSpline  # on first use: importing it takes longer than glayers

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
    # Many rows of one score get the mean slope over their stretch; over a short one, digits would cancel.
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
    from scipy.special import logit  # on first use: importing it takes longer than glayers

    odds = logit(np.clip(scores, 1e-12, 1 - 1e-12))
    by_fractile = np.searchsorted(fractiles, np.linspace(0, 1, each))
    by_odds = np.searchsorted(odds, np.linspace(odds[0], odds[-1], each))
    chosen = np.concatenate([by_fractile, by_odds, [0, len(scores) - 1]])
    return np.unique(np.clip(chosen, 0, len(scores) - 1))
