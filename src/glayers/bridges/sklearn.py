"""A scikit-learn classifier and rows -> the same classifier with calibrated probabilities, itself a classifier.

`CalibratedClassifier` takes the place of scikit-learn's CalibratedClassifierCV, with any calibrator of this library. A
classifier with `decision_function` is calibrated on those values as logits, any other on its probabilities.
"""

import inspect
import warnings
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from glayers.activations import log_softmax, softmax, with_reference_class
from glayers.arrays import Array, Floats, Ints
from glayers.calibrators import CALIBRATORS, Calibrator, SharedGLayers, TemperatureScaling
from glayers.calibrators.auto import LEAST_ROWS
from glayers.calibrators.base import Fitted
from glayers.checks import check_weights
from glayers.errors import BadPredictions, GlayersError, GlayersWarning, needs_extra, shown
from glayers.fitting.newton import newton
from glayers.maps import Chain, Diagonal, Reference
from glayers.maps.mixtures import UniformShare
from glayers.maps.steps import SMALLEST
from glayers.predictions import Predictions

with needs_extra("sklearn"):
    from sklearn import get_config
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import StratifiedGroupKFold, check_cv
    from sklearn.utils import Tags, _safe_indexing, get_tags, indexable
    from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.parallel import Parallel, delayed
    from sklearn.utils.validation import _check_method_params, check_is_fitted, column_or_1d

# Of the normal priors of `FewRowsScaling`: standard deviations of 3.2 and 1.
_PRECISION_OF_LOG_TEMPERATURE, _PRECISION_OF_SHIFTS = 0.1, 1.0
_MOST_REPEATED = 100_000  # rows: larger weights of fewer than 100 rows are no counts


class CalibratedPair(NamedTuple):
    """A fitted classifier and the calibrator of its outputs."""

    estimator: Any
    calibrator: Calibrator

    def predict_proba(self, X: Any) -> Array:
        """Return calibrated probabilities (n_rows, n_classes)."""
        return self.calibrator.predict_proba(_outputs(self.estimator, X))


@dataclass(eq=False, repr=False)
class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn classifier with calibrated probabilities, in the place of CalibratedClassifierCV.

    Parameters
    ----------
    estimator : classifier
        With `decision_function`, whose values are used as logits, or else with `predict_proba`, whose zeros are raised
        to half the smallest other probability of the calibration rows. A `FrozenEstimator` is not fitted again, and all
        rows calibrate it.
    calibrator : Calibrator or str, optional
        The method or its name; copies of it are fitted. By default `SharedGLayers("vector")`: one scale and one shift
        per class, then a correction that all classes share. Each falls back to less where it does not help. With
        fewer than 100 rows, `FewRowsScaling`: one temperature and one shift per class, with priors.
    cv : int, splitter or iterable, default 5
        How rows are split into those that fit the classifier and those that calibrate it. A number means stratified
        folds, which keep groups together if there are any.
    ensemble : "auto", True or False
        "auto" averages the classifiers of all folds; they share one calibrator, fitted on the out-of-fold predictions
        of all rows. True gives each of them a calibrator of its own, fitted on one fold; so does "auto" with fewer than
        100 rows, where the mean of several is safer. False uses one classifier, fitted on all rows, with the shared
        calibrator.
    n_jobs : int, optional
        How many folds to fit at once.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    calibrated_classifiers_ : list
        Pairs of a fitted `estimator` and its `calibrator`. `calibrator.diagnostics_` says how the fit went.
    n_features_in_, feature_names_in_
        Those of the classifier, if it has them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> CalibratedClassifier(GaussianNB()).fit(X, y).predict_proba(X[:1]).round(1).tolist()
    [[1.0, 0.0, 0.0]]
    """

    estimator: Any
    calibrator: Any = None
    cv: Any = 5
    ensemble: bool | Literal["auto"] = "auto"
    n_jobs: int | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, **fit_params: Any) -> Any:
        """Fit the classifier and its calibration.

        Parameters
        ----------
        X, y
            Features as the classifier accepts them, and labels: numbers or text.
        sample_weight
            Importance weights of the rows, for the classifier if it accepts them, and for the calibrator. Of fewer
            than 100 rows, whole weights count as repeated rows.
        groups
            Rows of one group are never split, neither by `cv` nor by the calibrator.
        **fit_params
            Passed to `fit` of the classifier; what has one entry per row is split as the rows are.

        Returns
        -------
        CalibratedClassifier
        """
        X, y, sample_weight, groups = indexable(X, y, sample_weight, groups)  # noqa: N806  # scikit-learn's name
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        frozen = isinstance(self.estimator, FrozenEstimator)
        self.classes_, labels = _numbered(y, self.estimator.classes_ if frozen else None)
        weights = None if sample_weight is None else check_weights(sample_weight, len(y), "sample_weight")
        shared = self._one_for_all(few=len(y) < LEAST_ROWS and not frozen)
        for_estimator, for_splitter = self._routed(weights, groups, fit_params)
        if frozen:
            estimators = [self.estimator]
            folds = [np.arange(len(y))]
        else:
            splits = list(self._splitter(labels, groups).split(X, y, **for_splitter))
            folds = [held_out for _, held_out in splits]
            estimators = Parallel(n_jobs=self.n_jobs)(
                delayed(_fit_estimator)(clone(self.estimator), X, y, rows, for_estimator, self.classes_)
                for rows, _ in splits
            )
        outputs = [_outputs(each, _safe_indexing(X, fold)) for each, fold in zip(estimators, folds, strict=True)]
        if shared:
            folds = [np.concatenate(folds)]
            outputs = [np.concatenate(outputs)]
        calibrators = []
        for fold, output in zip(folds, outputs, strict=True):
            calibrator = self._calibrator(len(fold), weights, len(y))
            calibrator.inputs = "logits" if hasattr(estimators[0], "decision_function") else "probabilities"
            repeated, own_weights = _repeated(fold, weights, len(y))
            own = fold[repeated]
            own_groups = None if groups is None else np.asarray(groups)[own]
            given = calibrator._check_input(output[repeated], labels[own], own_weights, own_groups)
            calibrators.append(calibrator._fit_and_keep(given))
        if self.ensemble is False and not frozen:
            estimators = [clone(self.estimator).fit(X, y, **for_estimator)]
        if shared:
            calibrators *= len(estimators)
        self.calibrated_classifiers_ = [CalibratedPair(*pair) for pair in zip(estimators, calibrators, strict=True)]
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimators[0], name):
                setattr(self, name, getattr(estimators[0], name))
        return self

    def _one_for_all(self, few: bool) -> bool:
        """Return whether all rows together fit one calibrator."""
        if self.ensemble not in (True, False, "auto"):
            raise GlayersError(f'ensemble must be True, False or "auto"; got {shown(self.ensemble)}')
        return not (self.ensemble is True or (self.ensemble == "auto" and few))

    def predict_proba(self, X: Any) -> Array:
        """Return calibrated probabilities (n_rows, n_classes): the mean over the calibrated classifiers."""
        check_is_fitted(self)
        return np.mean([pair.predict_proba(X) for pair in self.calibrated_classifiers_], axis=0)

    def predict(self, X: Any) -> Array:
        """Return the most probable label of each row."""
        places = self.predict_proba(X).argmax(axis=1)  # first, as it raises if nothing is fitted
        return self.classes_[places]

    def get_metadata_routing(self) -> MetadataRouter:
        """Return which metadata goes where: scikit-learn calls it."""
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        router.add(estimator=self.estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
        return router.add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags

    def _calibrator(self, n_own: int, weights: Floats | None, n_rows: int) -> Calibrator:
        """Return a new calibrator for `n_own` of all rows, of the kind that the setting names."""
        if self.calibrator is None and n_own >= LEAST_ROWS:
            return SharedGLayers("vector")
        if self.calibrator is None:
            n_counted = float(_as_counts(weights, n_rows).sum())
            return FewRowsScaling(n_counted, log_odds=hasattr(self.estimator, "predict_proba"))
        if isinstance(self.calibrator, str) and self.calibrator in CALIBRATORS:
            return CALIBRATORS[self.calibrator]()
        if not isinstance(self.calibrator, Calibrator):
            raise GlayersError(
                f"calibrator must be a calibrator, such as VectorScaling(), or one of the names "
                f"{', '.join(CALIBRATORS)}; got {shown(self.calibrator)}"
            )
        return clone(self.calibrator)

    def _splitter(self, labels: Ints, groups: Any) -> Any:
        if isinstance(self.cv, int):
            counts = np.bincount(labels)
            if counts.min() < self.cv:
                raise BadPredictions(
                    f"class {_label(self.classes_, counts.argmin())} has {counts.min()} rows, fewer than the {self.cv} "
                    f"folds; pass cv={max(2, counts.min())}, or more rows of this class"
                )
            if groups is not None:
                return StratifiedGroupKFold(self.cv)
        return check_cv(self.cv, labels, classifier=True)

    def _routed(self, weights: Any, groups: Any, fit_params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what `fit` of the classifier and `split` of the splitter get."""
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", sample_weight=weights, groups=groups, **fit_params)
            return routed.estimator.fit, {"groups": groups} | routed.splitter.split
        if weights is not None and "sample_weight" in inspect.signature(self.estimator.fit).parameters:
            fit_params = fit_params | {"sample_weight": weights}
        elif weights is not None and not isinstance(self.estimator, FrozenEstimator):
            warnings.warn(
                f"{type(self.estimator).__name__} takes no sample_weight, so only the calibrator uses them; name "
                f"the step that takes them, such as logisticregression__sample_weight=, or enable metadata routing",
                GlayersWarning,
                stacklevel=3,
            )
        return fit_params, {"groups": groups}


@dataclass(eq=False, repr=False)
class FewRowsScaling(Calibrator):
    """One temperature and one shift per class, with priors: for so few rows that all of them may be classified right.

    Log temperature and shifts have normal priors, so that both are finite. The result is mixed with a little of the
    uniform distribution, 1 / (4 n + 4): n rows without an error cannot rule out a rare one.

    Parameters
    ----------
    n_rows : float
        The number of rows, with weights the effective number, behind all calibrators whose predictions are averaged.
    log_odds : bool, default True
        Whether the outputs are log-odds, if perhaps too large or too small. Those of a support vector machine are not.

    Examples
    --------
    >>> fitted = FewRowsScaling(3).fit([[2.0, 0.0], [0.0, 2.0], [3.0, 0.0]], [0, 1, 0])
    >>> fitted.predict_proba([[99.0, 0.0]]).round(3).tolist()  # half of 1 / (4 * 3 + 4)
    [[0.969, 0.031]]
    """

    n_rows: float
    log_odds: bool = True

    def _fit(self, given: Predictions) -> Fitted:
        z = with_reference_class(given.logits.astype(np.float64))
        if not np.isfinite(z).all():
            return TemperatureScaling()._fit(given)
        weights = _as_counts(given.weights, len(z))
        # The prior expects a temperature near 1 for log-odds, but no typical odds above exp(20). Other decision values
        # have any unit: typical odds of exp(4) are expected.
        ranges = np.ptp(z, axis=1)
        order = np.argsort(ranges)
        typical = ranges[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)]
        unit = (20.0 if self.log_odds else 4.0) / max(float(typical), SMALLEST)
        unit = min(1.0, unit) if self.log_odds else unit
        z, truth = z * unit, np.eye(z.shape[1])[given.labels]
        precisions = np.append(_PRECISION_OF_LOG_TEMPERATURE, np.full(z.shape[1], _PRECISION_OF_SHIFTS))

        def value(point: Floats) -> float:
            log_p = log_softmax(np.exp(point[0]) * z + point[1:])
            return float(precisions @ point**2 / 2 - weights @ (truth * log_p).sum(axis=1))

        def derivatives(point: Floats) -> tuple[Floats, Floats]:
            """Return the gradient, and the positive definite part of the Hessian."""
            scaled = np.exp(point[0]) * z
            p = softmax(scaled + point[1:])
            excess = weights[:, None] * (p - truth)
            features = np.concatenate([scaled[:, None, :], np.tile(np.eye(z.shape[1]), (len(z), 1, 1))], axis=1)
            centred = features - (features @ p[:, :, None])  # the covariance of the features under p
            hessian = np.einsum("n,nik,nk,njk->ij", weights, centred, p, centred, optimize=True)
            gradient = np.append((excess * scaled).sum(), excess.sum(axis=0))
            return gradient + precisions * point, hessian + np.diag(precisions)

        found = newton(value, derivatives, np.zeros(len(precisions)), tolerance=1e-18)
        share = 0.25 / (self.n_rows + 1)
        scale = np.full(z.shape[1], unit * np.exp(found.point[0]))
        mixture = UniformShare(np.asarray(share))
        chain = Chain((Reference(), Diagonal(scale, found.point[1:]), mixture))
        reason = "converged" if found.converged else f"no convergence in {found.iterations} Newton steps"
        return Fitted(
            chain, "scaling with priors", found.converged, reason, found.iterations, n_parameters=len(precisions)
        )


def _repeated(rows: Ints, weights: Floats | None, n_rows: int) -> tuple[Ints, Floats | None]:
    """Return which of some rows calibrate, and their weights.

    Of few rows, whole weights are counts, as in scikit-learn: each row comes as often, without a weight. Priors then
    weigh as much as beside rows that were written several times.
    """
    places = np.arange(len(rows))
    if weights is None:
        return places, None
    own = weights[rows]
    whole = (weights == np.round(weights)).all()
    if whole and n_rows < LEAST_ROWS and weights.sum() <= _MOST_REPEATED:
        return np.repeat(places, own.astype(np.int64)), None
    return places, own


def _as_counts(weights: Floats | None, n_rows: int) -> Floats:
    """Return how many rows each row counts for, which matters beside a prior.

    Whole weights are counts, as in scikit-learn. Others are importance weights, whose common factor changes nothing:
    they sum to Kish's effective number of rows.
    """
    if weights is None or (weights == np.round(weights)).all():
        return np.ones(n_rows) if weights is None else weights
    return weights * (weights.sum() / (weights @ weights))


def _numbered(y: Array, classes: Array | None) -> tuple[Array, Ints]:
    """Return the classes, and the number of the class of each row."""
    found, numbers = np.unique(y, return_inverse=True)
    if classes is not None:
        unknown = np.setdiff1d(found, classes)
        if unknown.size:
            raise BadPredictions(f"the classifier does not know the label {_label(unknown, 0)}; remove those rows")
        return classes, np.searchsorted(classes, found)[numbers]
    if len(found) < 2:
        raise BadPredictions(f"y must hold several classes, and not only one class; got {shown(found.tolist())}")
    return found, numbers


def _label(labels: Array, place: Any) -> str:
    return shown(labels.tolist()[place])  # as Python prints it, without the type of NumPy


def _fit_estimator(estimator: Any, X: Any, y: Array, rows: Ints, params: dict[str, Any], classes: Array) -> Any:
    """Fit a classifier on some rows, which must have all classes."""
    own = _check_method_params(X, params, indices=rows)
    fitted = estimator.fit(_safe_indexing(X, rows), y[rows], **own)
    if not np.array_equal(fitted.classes_, classes):
        raise BadPredictions(
            f"a fold has no row of class {_label(np.setdiff1d(classes, fitted.classes_), 0)} to fit the classifier on; "
            f"use a stratified `cv`, fewer folds, or more rows of this class"
        )
    return fitted


def _outputs(estimator: Any, X: Any) -> Array:
    """Return decision values or else probabilities, (n, classes), or (n, 1) for two classes."""
    if hasattr(estimator, "decision_function"):
        values = np.asarray(estimator.decision_function(X))
        if values.ndim == 1:
            values = values[:, None]
    else:
        values = np.asarray(estimator.predict_proba(X))
        if values.shape[1] == 2:
            values = values[:, 1:]
    n_classes = len(estimator.classes_)
    expected = 1 if n_classes == 2 else n_classes
    if values.shape[1] != expected:
        raise BadPredictions(
            f"{type(estimator).__name__} gives {values.shape[1]} decision values for {n_classes} classes; set "
            f'decision_function_shape="ovr", or use a classifier with one value per class'
        )
    return values
