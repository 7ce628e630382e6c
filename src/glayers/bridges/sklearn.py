"""A scikit-learn classifier and rows -> the same classifier with calibrated probabilities, itself a classifier.

`CalibratedClassifier` takes the place of scikit-learn's CalibratedClassifierCV, with any calibrator of this library. A
classifier with `decision_function` is calibrated on those values as logits, any other on its probabilities.
"""

import inspect
import warnings
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints, few_rows_note
from glayers.calibrators import AutoCalibrator, Calibrator, PlattScaling, calibrator_of
from glayers.checks import check_weights
from glayers.errors import BadPredictions, GlayersError, GlayersWarning, needs_extra, shown

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
    method : Calibrator or str, optional
        A calibrator, its name, or any object with `fit` and `predict_proba`, or a function of probabilities; copies of
        it are fitted. By default `AutoCalibrator(time_budget=0)`: all of `auto` but g-layers, so that it needs no
        torch. Priors hold it near temperature scaling where rows say little. "sigmoid" is `PlattScaling`.
    cv : int, splitter or iterable, default 5
        How rows are split into those that fit the classifier and those that calibrate it. A number means stratified
        folds, which keep groups together if there are any.
    ensemble : "auto", True or False
        "auto" averages the classifiers of all folds; they share one calibrator, fitted on the out-of-fold predictions
        of all rows. True gives each of them a calibrator of its own, fitted on one fold. False uses one classifier,
        fitted on all rows, with the shared calibrator.
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
    method: Any = None
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
        if not isinstance(self.ensemble, bool | str) or self.ensemble not in (True, False, "auto"):
            raise GlayersError(f'ensemble must be True, False or "auto"; got {shown(self.ensemble)}')
        X, y, sample_weight, groups = indexable(X, y, sample_weight, groups)  # noqa: N806  # scikit-learn's name
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        frozen = isinstance(self.estimator, FrozenEstimator)
        self.classes_, labels = _numbered(y, self.estimator.classes_ if frozen else None)
        weights = _checked_weights(sample_weight, len(y))
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
        if self.ensemble is not True:
            folds = [np.concatenate(folds)]
            outputs = [np.concatenate(outputs)]
        calibrators = []
        for rows, output in zip(folds, outputs, strict=True):
            calibrators.append(self._fit_calibrator(output, rows, labels, weights, groups))
        if self.ensemble is False and not frozen:
            estimators = [clone(self.estimator).fit(X, y, **for_estimator)]
        if self.ensemble is not True:
            calibrators *= len(estimators)
        self.calibrated_classifiers_ = [CalibratedPair(*pair) for pair in zip(estimators, calibrators, strict=True)]
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimators[0], name):
                setattr(self, name, getattr(estimators[0], name))
        return self

    def _fit_calibrator(
        self, outputs: Array, rows: Ints, labels: Ints, weights: Floats | None, groups: Any
    ) -> Calibrator:
        """Return a calibrator of the kind that the setting names, fitted on the outputs of some rows."""
        calibrator = self._calibrator()
        calibrator.inputs = "logits" if hasattr(self.estimator, "decision_function") else "probabilities"
        if weights is not None and _are_counts(weights):
            # As in scikit-learn: priors then weigh as much as beside rows that were written several times.
            repeated = np.repeat(np.arange(len(rows)), weights[rows].astype(np.int64))
            outputs = outputs[repeated]
            rows = rows[repeated]
            weights = None
        # Folds are drawn by place, so sorted rows give the same fit in whatever order they came.
        order = np.lexsort((*outputs.reshape(len(rows), -1).T, labels[rows]))
        outputs = outputs[order]
        rows = rows[order]
        own_weights = None if weights is None else weights[rows]
        own_groups = None if groups is None else np.asarray(groups)[rows]
        return calibrator._fit_and_keep(calibrator._check_input(outputs, labels[rows], own_weights, own_groups))

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

    def _calibrator(self) -> Calibrator:
        """Return a new calibrator of the kind that the setting names."""
        if self.method is None:
            return AutoCalibrator(time_budget=0)
        if isinstance(self.method, str) and self.method == "sigmoid":  # its name in scikit-learn
            return PlattScaling()
        return clone(calibrator_of(self.method))

    def _splitter(self, labels: Ints, groups: Any) -> Any:
        if isinstance(self.cv, int) and groups is not None:
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


def _are_counts(weights: Floats) -> bool:
    """Return whether weights of few rows are small whole numbers."""
    whole = bool((weights == np.round(weights)).all())
    return whole and len(weights) < 100 and weights.sum() <= 100_000


def _checked_weights(sample_weight: Any, n_rows: int) -> Floats | None:
    """Return the checked weights, if there are any; warn if few rows have most of the weight."""
    if sample_weight is None:
        return None
    weights = check_weights(sample_weight, n_rows, "sample_weight")
    note = few_rows_note(weights)
    if note:
        warnings.warn(note, GlayersWarning, stacklevel=3)
    return weights


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
