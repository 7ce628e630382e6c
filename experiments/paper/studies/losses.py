"""Two proper losses -> the same methods fitted by each, and their scores by every metric."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from experiments.paper.studies.lines import Line, different, markdown, numbers, page, spread, where
from experiments.paper.studies.scoring import METRICS, noted, scored
from experiments.paper.studies.sets import PLACE, RowSet, trained
from experiments.paper.studies.study import Done, Job, Study
from scipy.optimize import minimize_scalar

from glayers import AutoCalibrator, GLayers, Predictions, VectorScaling
from glayers.activations import log_softmax
from glayers.arrays import Array
from glayers.fitting.curvature import smooth_loss

Loss = Literal["log", "brier"]
LOSSES: tuple[Loss, ...] = ("log", "brier")


def temperature(given: Predictions, loss: Loss, _seed: int, logits: Array) -> Array:
    """Return probabilities at the temperature of the lowest loss; the library's has a prior, and the log loss only."""
    score, z = smooth_loss(loss), given.logits.astype(np.float64)

    def mean_loss(log_factor: float) -> float:
        return float(np.mean(score.rows(log_softmax(np.exp(log_factor) * z), given.labels)))

    best = minimize_scalar(mean_loss, bounds=(-5.0, 5.0), method="bounded", options={"xatol": 1e-8}).x
    return np.exp(log_softmax(np.exp(best) * logits.astype(np.float64)))


def vector(given: Predictions, loss: Loss, seed: int, logits: Array) -> Array:
    """Return probabilities by vector scaling."""
    return VectorScaling(loss=loss, random_state=seed).fit(given.logits, given.labels).predict_proba(logits)


def g_layers(given: Predictions, loss: Loss, seed: int, logits: Array) -> Array:
    """Return probabilities by g-layers, the default recipe."""
    return GLayers(loss=loss, random_state=seed).fit(given.logits, given.labels).predict_proba(logits)


def auto(given: Predictions, loss: Loss, seed: int, logits: Array) -> Array:
    """Return probabilities by the method we recommend."""
    return AutoCalibrator(loss=loss, random_state=seed).fit(given.logits, given.labels).predict_proba(logits)


FITS: dict[str, Callable[[Predictions, Loss, int, Array], Array]] = {
    "temperature": temperature,
    "vector": vector,
    "g-layers": g_layers,
    "auto": auto,
}


@dataclass(frozen=True)
class Losses(Study):
    """Whether fits by the Brier score are as good as fits by the log loss."""

    methods: tuple[str, ...] = tuple(FITS)
    seeds: int = 2

    name: ClassVar[str] = "losses"
    about: ClassVar[str] = (
        "Trained networks; each method fitted by the log loss and by the Brier score of the calibration rows, scored "
        "on test rows. Mean over seeds ± standard deviation."
    )
    keys: ClassVar[tuple[str, ...]] = (*PLACE, "method", "loss", "seed")
    columns: ClassVar[tuple[str, ...]] = (*METRICS, "note")

    def jobs(self, sets: list[RowSet]) -> Iterator[Job]:
        """Return one job per network, method, loss and seed; temperature scaling has no seed."""
        for rows in trained(sets):
            for method in self.methods:
                for loss in LOSSES:
                    for seed in range(1 if method == "temperature" else self.seeds):
                        yield Job(
                            (*rows.place, method, loss, str(seed)),
                            partial(_lines, rows, method, loss, seed),
                        )

    def tables(self, lines: list[Line]) -> str:
        """Return one table per network, and how often each loss gave the better fit."""
        return page(
            "## Over all networks",
            "By the Brier score less by the log loss, mean over networks; below zero, the Brier score taught better.",
            _difference(lines),
            *(_of_network(where(lines, network=name), name) for name in different(lines, "network")),
        )


def _lines(rows: RowSet, method: str, loss: Loss, seed: int, _: Done) -> list[Line]:
    return [scored(noted(lambda: FITS[method](rows.calibration, loss, seed, rows.test.logits)), rows.test)]


def _difference(lines: list[Line]) -> str:
    rows = []
    for method in different(lines, "method"):
        cells = []
        for metric, about in METRICS.items():
            by_loss = [
                [
                    np.mean(numbers(where(lines, network=name, method=method, loss=loss), metric))
                    for name in different(lines, "network")
                ]
                for loss in LOSSES
            ]
            gained = np.subtract(by_loss[1], by_loss[0])
            cells.append(f"{np.mean(gained):+.{about.digits}f} ({np.sum(gained < 0)} of {len(gained)} below 0)")
        rows.append([method, *cells])
    return markdown(["method", *(about.heading for about in METRICS.values())], rows)


def _of_network(lines: list[Line], name: str) -> str:
    rows = [
        [method, loss, *(spread(numbers(found, metric), about.digits) for metric, about in METRICS.items())]
        for method in different(lines, "method")
        for loss in LOSSES
        if (found := where(lines, method=method, loss=loss))
    ]
    table = markdown(["method", "fitted by", *(about.heading for about in METRICS.values())], rows, words=2)
    return f"## {name}\n\n{table}"
