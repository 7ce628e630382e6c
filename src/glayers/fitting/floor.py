"""A temperature -> how far below the highest class a masked class lies: the `Floor` before dense layers.

Also probabilities of held-out rows -> what stands for a probability of 0, which has no finite logit.

A dense layer reads every class, so one class of -1e4, or an impossible one, would decide the result of all others.
Distances are measured in nats, after temperature scaling.
"""

import numpy as np

from glayers.arrays import Floats
from glayers.maps import Chain, Floor, LogProbabilities

_LARGEST = float(np.finfo(np.float64).max)  # of numbers that a file holds
# Nats below the highest class. After temperature scaling, no class of 13 sets of logits is more than 38 below, and of
# labels none more than 12. Masks are usually -1e4 or lower.
_FAR = 100.0
# Probabilities up to here count as 0: `Predictions.from_probabilities` raises zeros to 1e-12, and rows that sum to 0.99
# are normalised afterwards.
_ZERO = 1.02e-12


def fit_log_probabilities(probabilities: Floats, weights: Floats | None = None) -> tuple[LogProbabilities, str]:
    """Return the step from probabilities to logits, and a note for the user that counts the probabilities it raises.

    Zeros are raised to half the smallest other probability: a forest of 100 trees that says 0 means less than 1 %, and
    not 1e-12. Where that is more than half of 1 / classes, as for a single tree that says 0 or 1, the latter is used.

    >>> fit_log_probabilities(np.array([[0.9, 0.1, 0.0], [0.02, 0.98, 0.0]]))[1]
    '2 of 6 probabilities are 0 and were raised to 0.01, half the smallest other one'
    """
    if weights is not None:
        probabilities = probabilities[weights > 0]
    if probabilities.shape[1] == 1:
        probabilities = np.concatenate([1.0 - probabilities, probabilities], axis=1)
    zeros = probabilities <= _ZERO
    floor = min(probabilities[~zeros].min() / 2, 0.5 / probabilities.shape[1])
    note = ""
    if zeros.any():
        counted = f"{zeros.sum()} of {zeros.size} probabilities"
        note = f"{counted} are 0 and were raised to {floor:.3g}, half the smallest other one"
    return LogProbabilities(np.asarray(floor)), note


def floor_of(factor: float) -> Floor:
    """Return the floor, with an empty branch, for logits that are nats after multiplication by `factor`.

    >>> floor_of(0.5).depth.item()
    200.0
    """
    far = np.asarray(min(_FAR / factor, _LARGEST))
    return Floor(far, far, (Chain(()),))
