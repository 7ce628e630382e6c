"""Fewer and fewer calibration rows -> test scores of every method: the paper's question about overfitting."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from experiments.paper.studies.lines import NONE, Line, different, markdown, numbers, page, spread, where
from experiments.paper.studies.scoring import MAIN, METHODS, METRICS, calibrated, scored
from experiments.paper.studies.sets import PLACE, RowSet, drawn, trained
from experiments.paper.studies.study import Done, Job, Study

AGAINST = "temperature"


@dataclass(frozen=True)
class SetSize(Study):
    """How many rows each method needs."""

    methods: tuple[str, ...] = METHODS[1:]
    sizes: tuple[int, ...] = (250, 500, 1_000, 2_000, 5_000)
    draws: int = 3

    name: ClassVar[str] = "set_size"
    about: ClassVar[str] = (
        "Trained CIFAR-10 networks; calibration rows drawn three times, the same for all methods; where all 5,000 are "
        "taken, draws differ in their order and in the seed only. Scored on all test rows."
    )
    keys: ClassVar[tuple[str, ...]] = (*PLACE, "rows", "draw", "method")
    columns: ClassVar[tuple[str, ...]] = (*METRICS, "note")

    def jobs(self, sets: list[RowSet]) -> Iterator[Job]:
        """Return one job per network, number of rows, draw and method."""
        for rows in trained(sets, "cifar10"):
            for size in self.sizes:
                for draw in range(self.draws):
                    for method in self.methods:
                        yield Job(
                            (*rows.place, str(size), str(draw), method),
                            partial(_lines, rows, size, draw, method),
                        )

    def tables(self, lines: list[Line]) -> str:
        """Return means over networks for every method, each network for the main ones, and the failed fits."""
        main = [method for method in MAIN if method in different(lines, "method")]
        return page(
            *(
                f"## {METRICS[metric].heading}, mean over networks and draws\n\n{_means(lines, metric)}"
                for metric in ("nll", "ks")
            ),
            f"## NLL less that of `{AGAINST}`",
            "Paired by network and draw: mean ± standard deviation of the draws' means over networks. Below zero, the "
            "method is better.",
            _paired(lines),
            *(
                f"## {network}, {METRICS[metric].heading}\n\n{_spreads(where(lines, network=network), main, metric)}"
                for network in different(lines, "network")
                for metric in ("nll", "ks")
            ),
            f"## Fits that came back as `{AGAINST}`",
            "Of all fits with so many rows, those with its very scores.",
            _fallen_back(lines),
            "## What the fits said",
            "Fits that warned or failed, of all fits with so many rows.",
            _notes(lines),
        )


def _lines(rows: RowSet, size: int, draw: int, method: str, _: Done) -> list[Line]:
    return [scored(calibrated(method, draw, drawn(rows.calibration, size, draw), rows.test), rows.test)]


def _means(lines: list[Line], metric: str) -> str:
    sizes, digits, rows = different(lines, "rows"), METRICS[metric].digits, []
    for method in different(lines, "method"):
        found = [numbers(where(lines, method=method, rows=size), metric) for size in sizes]
        rows.append([method, *(f"{np.mean(values):.{digits}f}" if values else NONE for values in found)])
    return markdown(["method", *(f"{int(size):,} rows" for size in sizes)], rows)


def _paired(lines: list[Line]) -> str:
    sizes, rows = different(lines, "rows"), []
    for method in different(lines, "method"):
        cells = []
        for size in sizes:
            means = []
            for draw in different(lines, "draw"):
                ours, other = (
                    {line["network"]: line["nll"] for line in where(lines, method=name, rows=size, draw=draw)}
                    for name in (method, AGAINST)
                )
                both = [float(ours[name]) - float(other[name]) for name in ours if ours[name] and other.get(name)]
                means += [float(np.mean(both))] if both else []
            cells.append(spread(means, 4))
        rows.append([method, *cells])
    return markdown(["method", *(f"{int(size):,} rows" for size in sizes)], rows)


def _spreads(lines: list[Line], methods: list[str], metric: str) -> str:
    sizes, digits = different(lines, "rows"), METRICS[metric].digits
    rows = [
        [method, *(spread(numbers(where(lines, method=method, rows=size), metric), digits) for size in sizes)]
        for method in methods
    ]
    return markdown(["method", *(f"{int(size):,} rows" for size in sizes)], rows)


def _fallen_back(lines: list[Line]) -> str:
    sizes, rows = different(lines, "rows"), []
    simple = {_scores(line) for line in where(lines, method=AGAINST)}
    for method in different(lines, "method"):
        found = [where(lines, method=method, rows=size) for size in sizes]
        same = [sum(_scores(line) in simple for line in mine) for mine in found]
        if method != AGAINST and any(same):
            rows.append([method, *(f"{n} of {len(mine)}" for n, mine in zip(same, found, strict=True))])
    return markdown(["method", *(f"{int(size):,} rows" for size in sizes)], rows)


def _scores(line: Line) -> tuple[str, ...]:
    return tuple(line[column] for column in ("network", "rows", "draw", *METRICS))


def _notes(lines: list[Line]) -> str:
    sizes, rows = different(lines, "rows"), []
    first: dict[str, str] = {}
    for method in different(lines, "method"):
        counts = []
        for size in sizes:
            mine = where(lines, method=method, rows=size)
            said = [line["note"] for line in mine if line["note"]]
            counts.append(f"{len(said)} of {len(mine)}")
            if said:
                first.setdefault(method, said[0])
        if method in first:
            rows.append([method, *counts, first[method]])
    header = ["method", *(f"{int(size):,} rows" for size in sizes), "for instance"]
    return markdown(header, rows) if rows else "Nothing."
