"""The contract of a calibrator: an estimator in scikit-learn's manner, logits in, true probabilities out.

Settings go into the constructor, `fit` learns, learned state ends in `_`. A subclass writes `_fit`, which sets `map_`
and `diagnostics_`; checking what the caller passed, the way back to probabilities and the way to a file are here, once.
"""

import os
import warnings
from abc import ABC, abstractmethod
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, Tags, TransformerTags
from sklearn.utils.validation import check_is_fitted

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Array, Floats, row_blocks
from glayers.calibrators.artifact import Artifact, check_names
from glayers.calibrators.artifact_file import write_artifact
from glayers.errors import BadPredictions, GlayersError, GlayersWarning
from glayers.fitting.diagnostics import Diagnostics
from glayers.logits import check_logits
from glayers.maps import Chain
from glayers.predictions.predictions import Predictions


class Calibrator(BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn ships no types
    """Anything that makes probabilities true after training: a map on logits, fitted by a proper loss.

    Every fit leaves `map_`, `diagnostics_`, `classes_`, `class_names_` (None where nobody gave them) and `versions_`.
    """

    map_: Chain
    diagnostics_: Diagnostics
    class_names_: tuple[str, ...] | None
    versions_: dict[str, str]
    _kept: ClassVar[tuple[str, ...]] = ()  # learned beyond the map, in values JSON can hold: a file keeps them too

    def fit(self, logits: Any, labels: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Learn from logits (n, m) and labels (n,) of rows that the network was not trained on."""
        given = Predictions(logits, labels, weights=sample_weight, groups=groups)
        self._fit(given)
        return self._fitted_on(given)

    def fit_predictions(self, predictions: Predictions) -> Self:
        """Learn from predictions, as `fit` does from their parts, and remember their class names."""
        # Not by way of the other: warnings of a fit count the calls up to the line that asked for it.
        self._fit(predictions)
        return self._fitted_on(predictions)

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it to one `.safetensors` file that `glayers.load` reads, in one step or not at all."""
        from glayers.calibrators.catalogue import CLASSES  # which knows every class, this one too

        check_is_fitted(self)
        if CLASSES.get(type(self).__name__) is not type(self):
            raise GlayersError(
                f"{type(self).__name__} is no calibrator of glayers, and `load` would not know it: keep it in memory, "
                f"or its numbers, `map_.parameters()`, in a file of your own"
            )
        artifact = Artifact(
            calibrator=type(self).__name__,
            settings=self.get_params(deep=False),
            chain=self.map_,
            n_logits=self.n_features_in_,
            class_names=self.class_names_,
            diagnostics=self.diagnostics_,
            kept={name: getattr(self, name) for name in self._kept},
            versions=self.versions_,
        )
        write_artifact(artifact, Path(path))

    @classmethod
    def from_artifact(cls, artifact: Artifact) -> Self:
        """Return the calibrator a file holds; what `_kept` does not name, such as out-of-fold rows, is not in it."""
        check_names(artifact.settings, set(cls._get_param_names()), f"setting of {cls.__name__}")
        check_names(artifact.kept, set(cls._kept), f"kept attribute of {cls.__name__}")
        new = cls(**artifact.settings)
        new.map_, new.diagnostics_ = artifact.chain, artifact.diagnostics
        for name, value in artifact.kept.items():
            setattr(new, name, value)
        new._know(artifact.n_logits, artifact.class_names, artifact.versions)
        return new

    @property
    def n_parameters_(self) -> int:
        """How many numbers were learned."""
        return self.diagnostics_.n_parameters

    @abstractmethod
    def _fit(self, given: Predictions) -> None:
        """Set `map_` and `diagnostics_`."""

    def __sklearn_tags__(self) -> Tags:
        # Classes and probabilities make a classifier: without the tag scikit-learn scores and splits as for regression.
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier"
        tags.classifier_tags = ClassifierTags()
        tags.transformer_tags = TransformerTags(preserves_dtype=["float64"])
        tags.target_tags.required = True
        return tags

    def _fitted_on(self, given: Predictions) -> Self:
        # In one order and type, as a file gives them back: sums of products depend on it in their last digit.
        self.map_ = self.map_.map_parameters(lambda value: np.asarray(value, np.float64, order="C"))
        versions = {"glayers": version("glayers"), "numpy": np.__version__}
        self._know(given.logits.shape[1], given.class_names, versions)
        unseen = self.diagnostics_.classes_never_seen
        if unseen:
            warnings.warn(
                f"no row is labelled {_some(unseen)}: their probabilities rest on the network alone",
                GlayersWarning,
                stacklevel=3,
            )
        return self

    def _know(self, n_logits: int, class_names: tuple[str, ...] | None, versions: dict[str, str]) -> None:
        self.n_features_in_ = n_logits
        self.classes_ = np.arange(max(2, n_logits))
        self.class_names_ = class_names
        self.versions_ = versions


def apply_map(chain: Chain, logits: Array) -> Floats:
    """Return calibrated logits (n, classes) in float64, block by block."""
    result = np.empty((len(logits), max(2, logits.shape[1])))
    for rows in row_blocks(*result.shape):
        result[rows] = with_reference_class(chain(logits[rows].astype(np.float64)))
    return result


def _some(classes: tuple[int, ...]) -> str:
    names = ", ".join(map(str, classes[:5]))
    return names if len(classes) <= 5 else f"{names} and {len(classes) - 5} others"
