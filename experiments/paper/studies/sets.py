"""Base networks -> their rows, checkpoint by checkpoint, each under its name and a fingerprint of its logits."""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from experiments.paper.networks.captured import Network

from glayers import Predictions

PLACE = ("network", "checkpoint", "logits")


class RowSet(NamedTuple):
    """Rows to fit on and rows to score; their network, epoch and fingerprint; and facts about the epoch."""

    place: tuple[str, str, str]
    calibration: Predictions
    test: Predictions
    is_early_stop: bool
    is_last: bool


def every_checkpoint(networks: Mapping[str, Network]) -> list[RowSet]:
    """Return the rows of every checkpoint, in the order of training."""
    return [
        RowSet(
            (name, epoch, fingerprint(*network.checkpoints[epoch])),
            *network.checkpoints[epoch],
            is_early_stop=epoch == network.early_stopping,
            is_last=epoch == network.last,
        )
        for name, network in networks.items()
        for epoch in sorted(network.checkpoints, key=int)
    ]


def trained(sets: list[RowSet], dataset: str = "") -> list[RowSet]:
    """Return the rows of networks after their last epoch, optionally only of names with this beginning."""
    return [rows for rows in sets if rows.is_last and rows.place[0].startswith(dataset)]


def fingerprint(*parts: Predictions) -> str:
    """Return the first digits of the SHA-256 of logits and labels, which tell whether results are of these logits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part.logits).tobytes() + part.labels.astype(np.int64).tobytes())
    return digest.hexdigest()[:8]


def drawn(given: Predictions, n_rows: int, draw: int) -> Predictions:
    """Return rows drawn without replacement; a larger sample of the same draw contains the smaller ones."""
    rows = np.random.default_rng(draw).permutation(len(given))[:n_rows]
    return Predictions(given.logits[rows], given.labels[rows])
