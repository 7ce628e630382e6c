"""Ways to keep g from overfitting -> the change in test NLL against the plain fit, with intervals.

The plain fit is the paper's, 3 layers of 3 units per class, without its weight decay: one learning rate, one fit on all
rows, stopped by the loss of the rows it trains on. Every other setting changes one thing. The table shows several
strengths of each and picks none.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from experiments.paper.studies.lines import Line, different, markdown, numbers, page, where
from experiments.paper.studies.scoring import METRICS, noted, scored
from experiments.paper.studies.sets import PLACE, RowSet, drawn, trained
from experiments.paper.studies.study import Done, Job, Study
from scipy.stats import t as student

from glayers import GLayers, Predictions
from glayers.arrays import Array
from glayers.fitting.folds import assign_folds

PLAIN, FOLDS, DEFAULT = "none", "fold averaging", "default recipe"
N_FOLDS = 5
ONE_FIT: dict[str, dict[str, Any]] = {
    PLAIN: {},
    **{f"weight decay {decay:g}": {"weight_decay": decay} for decay in (1e-2, 1e-1, 1.0, 10.0)},
    **{f"decay to the start {decay:g}": {"weight_decay": decay, "decay_to": "start"} for decay in (1e-2, 1e-1, 1.0)},
    **{f"dropout {share:g}": {"dropout": share} for share in (0.1, 0.3)},
    **{f"label smoothing {share:g}": {"label_smoothing": share} for share in (0.01, 0.05)},
    **{f"mixup {shape:g}": {"mixup": shape} for shape in (0.1, 0.4)},
}


@dataclass(frozen=True)
class Regularisation(Study):
    """What helps against overfitting."""

    ways: tuple[str, ...] = (*ONE_FIT, FOLDS, DEFAULT)
    sizes: tuple[int, ...] = (500, 5_000)
    draws: int = 4
    settings: dict[str, Any] = field(default_factory=lambda: {"learning_rate": 1e-3, "max_epochs": 100})

    name: ClassVar[str] = "regularisation"
    about: ClassVar[str] = (
        "Trained CIFAR-10 networks. `none` is g-layers of 3 layers, one fit, learning rate 0.001, at most 100 epochs, "
        f"no decay; the others change one thing. `{FOLDS}` is the mean of {N_FOLDS} such fits, each on all but "
        f"a fifth of the rows. `{DEFAULT}` is what the library does: 2 layers of 2 units a class from "
        "temperature scaling, epochs chosen on held-out rows, folds averaged and blended with temperature scaling."
    )
    keys: ClassVar[tuple[str, ...]] = (*PLACE, "rows", "draw", "way")
    columns: ClassVar[tuple[str, ...]] = (*METRICS, "note")

    def jobs(self, sets: list[RowSet]) -> Iterator[Job]:
        """Return one job per network, number of rows, draw and way."""
        for rows in trained(sets, "cifar10"):
            for size in self.sizes:
                for draw in range(self.draws):
                    for way in self.ways:
                        yield Job(
                            (*rows.place, str(size), str(draw), way),
                            partial(self._lines, rows, size, draw, way),
                        )

    def _lines(self, rows: RowSet, size: int, draw: int, way: str, _: Done) -> list[Line]:
        given = drawn(rows.calibration, size, draw)
        return [scored(noted(lambda: self._probabilities(given, draw, way, rows.test.logits)), rows.test)]

    def _probabilities(self, given: Predictions, seed: int, way: str, logits: Array) -> Array:
        if way == DEFAULT:
            return GLayers(random_state=seed).fit(given.logits, given.labels).predict_proba(logits)
        chosen = {"weight_decay": 0.0} | self.settings | ONE_FIT.get(way, {})
        g = GLayers(recipe="paper", random_state=seed, **chosen)
        if way != FOLDS:
            return g.fit(given.logits, given.labels).predict_proba(logits)
        folds = assign_folds(len(given), None, N_FOLDS, seed)
        parts = [
            g.fit(given.logits[folds != fold], given.labels[folds != fold]).predict_proba(logits)
            for fold in range(N_FOLDS)
        ]
        return np.mean(parts, axis=0)

    def tables(self, lines: list[Line]) -> str:
        """Return a table for each number of rows: difference in NLL with an interval, by network and over all."""
        return page(
            "NLL of test rows less that of `none` with the same rows and the same seed: mean over networks, and its "
            "95 % interval (Student's t over draws, so for these networks and test rows). Below zero, it helps. By "
            "network the mean over draws. The last columns are means over networks and draws.",
            *(
                f"## {int(size):,} rows\n\n{_against_plain(where(lines, rows=size))}"
                for size in different(lines, "rows")
            ),
        )


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return the mean of a sample and its 95 % interval by Student's t.

    >>> [round(end, 3) for end in interval([1.0, 2.0, 3.0])]  # 2 -+ 4.303 / sqrt(3)
    [2.0, -0.484, 4.484]
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, float("-inf"), float("inf")
    reach = float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return mean, mean - reach, mean + reach


def differences(lines: list[Line], way: str, metric: str = "nll") -> dict[str, dict[str, float]]:
    """Return the metric of a way minus that of the plain fit, by network and draw, where both fits succeeded."""
    plain, ours = (
        {(line["network"], line["draw"]): float(line[metric]) for line in where(lines, way=name) if line[metric]}
        for name in (PLAIN, way)
    )
    return {
        network: {
            draw: value - plain[name, draw]
            for (name, draw), value in ours.items()
            if name == network and (name, draw) in plain
        }
        for network in different(lines, "network")
    }


def over_networks(found: dict[str, dict[str, float]]) -> list[float]:
    """Return the mean over networks, for each draw that all networks have."""
    draws = sorted(set.intersection(*(set(mine) for mine in found.values())))
    return [float(np.mean([mine[draw] for mine in found.values()])) for draw in draws]


def _against_plain(lines: list[Line]) -> str:
    networks, rows = different(lines, "network"), []
    for way in different(lines, "way"):
        found = differences(lines, way)
        draws = over_networks(found)
        if not draws:
            continue
        mean, low, high = interval(draws)
        verdict = "helps" if high < 0 else "hurts" if low > 0 else ""
        overall = ["", "", ""] if way == PLAIN else [f"{mean:+.4f}", f"{low:+.4f} to {high:+.4f}", verdict]
        by_network = [f"{np.mean(list(found[network].values())):+.4f}" for network in networks]
        means = [
            f"{np.mean(numbers(where(lines, way=way), metric)):.{METRICS[metric].digits}f}"
            for metric in ("nll", "ks", "accuracy")
        ]
        rows.append([way, *overall, *by_network, *means])
    header = ["", "difference", "95 % interval", "", *networks, "NLL", "KS, percent", "accuracy, percent"]
    return markdown(header, rows)
