"""The contract of a calibrator: an estimator in scikit-learn's manner, logits in, true probabilities out.

Settings go into the constructor, `fit` learns, learned state ends in `_`. A subclass writes `_fit`, which sets `map_`
and `diagnostics_`; checking what the caller passed and the way back to probabilities are here, once.
"""

import warnings
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Array, Floats, row_blocks
from glayers.errors import BadPredictions, GlayersWarning
from glayers.fitting.diagnostics import Diagnostics
from glayers.logits import check_logits
from glayers.maps import Chain
from glayers.predictions.predictions import Predictions


class Calibrator(BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn ships no types
    """Anything that makes probabilities true after training: a map on logits, fitted by a proper loss."""

    map_: Chain
    diagnostics_: Diagnostics

    def fit(self, logits: Any, labels: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Learn from logits (n, m) and labels (n,) of rows that the network was not trained on."""
        given = Predictions(logits, labels, weights=sample_weight, groups=groups)
        self._fit(given)
        self.n_features_in_ = given.logits.shape[1]
        self.classes_ = np.arange(given.n_classes)
        unseen = self.diagnostics_.classes_never_seen
        if unseen:
            warnings.warn(
                f"no row is labelled {_some(unseen)}: their probabilities rest on the network alone",
                GlayersWarning,
                stacklevel=2,
            )
        return self

    def predict_proba(self, logits: Any) -> Array:
        """Return calibrated probabilities (n, classes), each row summing to 1."""
        return softmax(self.transform(logits))

    def transform(self, logits: Any) -> Floats:
        """Return calibrated logits (n, classes) whose softmax is `predict_proba`, in float64."""
        check_is_fitted(self)
        given = check_logits(logits)
        if given.shape[1] != self.n_features_in_:
            raise BadPredictions(f"fitted on {self.n_features_in_} logits a row; got {given.shape[1]}")
        return apply_map(self.map_, given)

    def predict(self, logits: Any) -> Array:
        """Return the most probable class of each row."""
        best = self.transform(logits).argmax(axis=1)
        return self.classes_[best]

    @property
    def n_parameters_(self) -> int:
        """How many numbers were learned."""
        return self.diagnostics_.n_parameters

    @abstractmethod
    def _fit(self, given: Predictions) -> None:
        """Set `map_` and `diagnostics_`."""


def apply_map(chain: Chain, logits: Array) -> Floats:
    """Return calibrated logits (n, classes) in float64, block by block."""
    result = np.empty((len(logits), max(2, logits.shape[1])))
    for rows in row_blocks(*result.shape):
        result[rows] = with_reference_class(chain(logits[rows].astype(np.float64)))
    return result


def _some(classes: tuple[int, ...]) -> str:
    names = ", ".join(map(str, classes[:5]))
    return names if len(classes) <= 5 else f"{names} and {len(classes) - 5} others"
