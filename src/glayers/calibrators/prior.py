"""Logits and labels -> one shift per class that moves the mean probability of the class to its frequency."""

import numpy as np

from glayers.activations import softmax, with_reference_class
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.maps import Chain, Diagonal, Reference
from glayers.predictions import Predictions


class PriorCorrection(Calibrator):
    """Multiply the odds of each class by its frequency over its mean probability. Saerens et al., 2002.

    Examples
    --------
    >>> logits, labels = [[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [3.0, 0.0, 0.0]], [0, 1, 2]
    >>> PriorCorrection().fit(logits, labels).predict([[0.1, 0.0, 0.0]]).tolist()  # class 2 had too little probability
    [2]
    """

    methods = (Method("prior", "One shift per class, by frequency", "nothing", "Saerens et al., 2002"),)

    def _fit(self, given: Predictions) -> Fitted:
        weights = np.ones(len(given)) if given.weights is None else given.weights
        weights = weights / weights.mean()  # a common factor changes nothing
        frequency = np.bincount(given.labels, weights, given.n_classes) + 1  # no class counts as impossible
        probability = weights @ softmax(with_reference_class(given.logits.astype(np.float64))) + 1
        shift = np.log(frequency / probability)
        return Fitted(Chain((Reference(), Diagonal(np.ones(given.n_classes), shift))), "prior correction")
