"""Logits of held-out rows -> how far below the highest class an ordinary class lies: the `Floor` before dense layers.

A dense layer reads every class, so one class of -1e4, or an impossible one, would decide the result of all others. What
counts as far depends on the data: distances are measured in nats, after temperature scaling, and compared with those of
the other rows.
"""

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array, Floats
from glayers.maps import Chain, Floor

_LIKELY = 20.0  # nats below the highest class: up to here a class may be the label of one row in many millions
_GAP = 3.0  # a distance this many times the next smaller one is that of a masked class
_MARGIN = 5.0  # nats, on top of a quarter: new rows may have larger distances than these


def fit_floor(logits: Array, factor: float, weights: Floats | None) -> Floor:
    """Return the floor, with an empty branch, for logits that are nats after multiplication by `factor`.

    The depth is twice the largest ordinary distance, and the reach is what distances have beyond twice the lead, with a
    margin for new rows.

    >>> z = np.array([[0.0, -5.0, -9.0], [0.0, -4.0, -7.0], [-8.0, 0.0, -1e4], [-9.0, -4.0, 0.0]])
    >>> floor = fit_floor(z, 1.0, None)
    >>> floor.depth.item(), floor.reach.item()  # 9 - 2 * 4 = 1 is the most beyond twice the lead
    (18.0, 6.25)
    """
    counted = slice(None) if weights is None else weights > 0
    each = with_reference_class(logits[counted].astype(np.float64))
    distances = each.max(axis=1, keepdims=True) - each
    lead = np.partition(distances, 1, axis=1)[:, 1]
    finite = lead[np.isfinite(lead)]
    near = max(_LIKELY / factor, float(np.median(finite)) if finite.size else 0.0)
    beyond = np.sort(distances[np.isfinite(distances) & (distances > near)])
    gaps = np.flatnonzero(beyond > _GAP * np.append(near, beyond[:-1]))
    largest = np.append(near, beyond)[gaps[0] if gaps.size else len(beyond)]
    lowest = np.where(distances <= largest, distances, 0.0).max(axis=1)
    several = lowest > 0
    if not several.any():  # one possible class in each row, or all equal
        return Floor(np.asarray(2 * near), np.asarray(near), Chain(()))
    reach = max(0.0, float((lowest - 2 * lead)[several].max()))
    return Floor(np.asarray(2 * lowest.max()), np.asarray(1.25 * reach + _MARGIN / factor), Chain(()))
