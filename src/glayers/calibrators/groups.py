"""Logits, labels and groups -> a common calibrator and one correction per group, such as a site, language or device.

A correction is the model of `fitting/evidence.py` on the calibrated logits of its group: priors hold it at the common
calibrator, so that a group with few or separable rows stays where it was. Its probabilities are mixed with the common
ones by their held-out loss. Unknown groups get the common calibrator.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Floats
from glayers.calibrators.auto import AutoCalibrator
from glayers.calibrators.base import Calibrator, Fitted
from glayers.calibrators.estimator import Estimator, clone
from glayers.checks import check_groups
from glayers.errors import BadFile, BadPredictions, GlayersError, GlayersWarning, shown
from glayers.fitting.evidence import SMALL_MODEL, fit_parts
from glayers.fitting.folds import assign_folds, row_weights
from glayers.fitting.simplex import held_out_weights
from glayers.maps import Chain, Reference
from glayers.maps.mixtures import Stack
from glayers.predictions import Confidences, Predictions
from glayers.predictions.predictions import two_classes
from glayers.serving.predictor import Predictor, apply_map

_LEAST_ROWS = 20  # a smaller group gets the common calibrator


class GroupCorrection(Calibrator):
    """Mix calibrated logits with their correction by confidence, and by one scale and one shift per class.

    Attributes
    ----------
    share_ : float
        The share of the correction in the mixture, by held-out loss.
    """

    _warns_if_loss_rises = False

    def _fit(self, given: Predictions) -> Fitted:
        folds = assign_folds(len(given), None, n_folds=5, random_state=0)
        found = fit_parts(given, 1.0, SMALL_MODEL, folds)
        common = softmax(apply_map(Chain(()), given.logits))
        corrected = np.exp(found.out_of_fold)
        extra_rows = [0.5, 0.0]  # half a row that only the common calibrator explains
        shares = held_out_weights([common, corrected], given.labels, row_weights(given), extra_rows)
        mixed = Chain((Stack(shares, (Chain(()), found.map)),))
        fitted = Fitted.of_parts(found, "correction of a group", "precisions by evidence")
        return replace(fitted, map=mixed, out_of_fold=None, posterior=None)

    @property
    def share_(self) -> float:
        """The share of the correction in the mixture, by held-out loss."""
        return float(self.map_.steps[-1].parameters()["shares"][1])


@dataclass(eq=False, repr=False)
class GroupCalibrator(Estimator):
    """Calibrate groups of rows that may need different calibration, such as sites, languages or devices.

    Parameters
    ----------
    calibrator : Calibrator, optional
        The common method, fitted on the rows of all groups. By default `AutoCalibrator()`.

    Attributes
    ----------
    common_ : Calibrator
        The common calibrator, which unknown groups get.
    corrections_ : dict of str to GroupCorrection
        The correction of each group with at least 20 rows, by the group as text.
    shares_ : dict of str to float
        The share of the correction in the probabilities of each of these groups; 0 means the common calibrator.

    Examples
    --------
    >>> from glayers import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> z, site = rng.normal(size=(4_000, 3)) * 2, rng.choice(["Bern", "Oslo"], 4_000)
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> seen = z * np.where(site == "Bern", 3.0, 1.0)[:, None]  # overconfident in Bern only
    >>> fitted = GroupCalibrator(TemperatureScaling()).fit(seen, labels, site)
    >>> fitted.predict_proba([[3.0, 0.0, 0.0]] * 3, ["Bern", "Oslo", "Rome"])[:, 0].round(1).tolist()
    [0.6, 0.9, 0.7]
    """

    calibrator: Any = None

    of_parts: ClassVar[bool] = True

    def fit(self, logits: Any, labels: Any, groups: Any, sample_weight: Any = None) -> Self:
        """Fit the common calibrator and the corrections, on rows that the network was not trained on.

        Parameters
        ----------
        logits, labels, sample_weight : array-like
            As for `Calibrator.fit`.
        groups : array-like of shape (n_rows,)
            The group of each row, a number or a name. Prediction takes it too.

        Returns
        -------
        Self
            The fitted calibrator.
        """
        method = self._method()
        self._learn(method._check_input(logits, labels, sample_weight, None), groups)
        self.common_._name_classes(labels)
        self.classes_ = self.common_.classes_
        return self

    def fit_predictions(self, predictions: Predictions | Confidences) -> Self:
        """Fit on `Predictions` with groups, and keep their class names."""
        method = self._method()
        given = two_classes(method.inputs, predictions)
        return self._learn(Predictions._trusted(**vars(given) | {"groups": None}), given.groups)

    def _method(self) -> Calibrator:
        """Return the checked setting."""
        method = AutoCalibrator() if self.calibrator is None else self.calibrator
        if not isinstance(method, Calibrator) or method.inputs == "confidence":
            way_out = "Groups are for rows with scores of all classes, not for confidences"
            raise GlayersError(f"calibrator must be a calibrator of all classes; got {shown(method)}. {way_out}")
        return method

    def _learn(self, rows_of_all: Predictions, groups: Any) -> Self:
        names = _names(groups, len(rows_of_all))
        common = clone(self._method()).fit_predictions(rows_of_all)
        given = common.apply(rows_of_all)
        counted = row_weights(given) > 0
        fits = {}
        for name in np.unique(names):
            own = np.flatnonzero((names == name) & counted)
            if len(own) >= _LEAST_ROWS:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", GlayersWarning)  # small groups may miss classes
                    fits[str(name)] = GroupCorrection().fit_predictions(given.take(own))
        self._set_fits(common, fits)
        return self

    def _set_fits(self, common: Calibrator, fits: dict[str, GroupCorrection]) -> None:
        self.common_ = common
        self.corrections_ = fits
        self.shares_ = {name: fit.share_ for name, fit in fits.items()}
        _copy_facts(common, self)

    def _fitted_parts(self) -> dict[str, Calibrator]:
        return {"common": self.common_} | {f"groups/{name}": fit for name, fit in self.corrections_.items()}

    @classmethod
    def _from_parts(cls, parts: Mapping[str, Calibrator]) -> Self:
        common = parts.get("common")
        if common is None:
            raise BadFile("the common calibrator of all groups is missing")
        fits = {}
        for name, fit in parts.items():
            if name.startswith("groups/") and isinstance(fit, GroupCorrection):
                fits[name.removeprefix("groups/")] = fit
            elif name != "common":
                raise BadFile(f"{shown(name)} is neither the common calibrator nor the correction of a group")
        if any(fit.n_features_in_ != len(common.classes_) for fit in fits.values()):
            raise BadFile(f"corrections must be about {len(common.classes_)} classes, as the common calibrator is")
        new = cls(clone(common))
        new._set_fits(common, fits)
        return new

    def predict_proba(self, logits: Any, groups: Any) -> Floats:
        """Return calibrated probabilities (n_rows, n_classes); `groups` (n_rows,) may hold unknown groups."""
        self._check_fitted()
        return np.asarray(softmax(self._corrected(np.array(self.common_.transform(logits)), groups)))

    def predict(self, logits: Any, groups: Any) -> Array:
        """Return the most probable class of each row; its name where the labels of the fit were names."""
        return np.asarray(self.classes_[self.predict_proba(logits, groups).argmax(axis=1)])

    def apply(self, predictions: Predictions) -> Predictions:
        """Return `Predictions` with calibrated logits, by the groups that they have."""
        self._check_fitted()
        calibrated = self.common_.apply(predictions)
        return calibrated.with_logits(self._corrected(np.array(calibrated.logits), predictions.groups))

    def _corrected(self, logits: Floats, groups: Any) -> Floats:
        """Correct the logits of the common calibrator in place, and return them."""
        names = _names(groups, len(logits))
        for name, correction in self.corrections_.items():
            rows = names == name
            if rows.any():
                logits[rows] = correction.map_(logits[rows])
        return logits

    def for_group(self, group: Any) -> Predictor:
        """Return the calibration of one group, which predicts from logits alone and exports with `to_onnx`.

        A group without a correction, such as one that was never seen, gets the common calibrator.
        """
        self._check_fitted()
        (name,) = _names([group], 1)
        one = Predictor()
        _copy_facts(self, one)
        if name in self.corrections_:
            one.map_ += Chain((Reference(),)) + self.corrections_[name].map_
        return one


def _copy_facts(source: Any, target: Any) -> None:
    """Give a predictor the map and the facts of another."""
    for name in ("inputs", "map_", "diagnostics_", "n_features_in_", "classes_", "class_names_", "versions_"):
        setattr(target, name, getattr(source, name))


def _names(groups: Any, n_rows: int) -> Array:
    """Return the group of each row as text; 1.0 is the group 1, whatever the other groups are."""
    if groups is None:
        raise BadPredictions("groups are missing: give the group of each row, in a file as `groups`")
    different, members = np.unique(check_groups(groups, n_rows), return_inverse=True)
    return np.array([_name(group) for group in different], dtype=np.str_)[members]


def _name(group: Any) -> str:
    if isinstance(group, float | np.floating) and float(group).is_integer():
        return str(int(group))
    return str(group)
