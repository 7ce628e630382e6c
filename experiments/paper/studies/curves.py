"""Trained base networks -> cumulative score and cumulative hits of the top class against fractile, before and after."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from experiments.paper.studies.lines import Line, different, markdown, page, where
from experiments.paper.studies.scoring import NOTHING, calibrated, printed
from experiments.paper.studies.sets import PLACE, RowSet, trained
from experiments.paper.studies.study import Done, Job, Study

from glayers.report.curves import ks_curves


@dataclass(frozen=True)
class Curves(Study):
    """The picture behind a KS error."""

    network: str = "cifar10_dense"
    methods: tuple[str, ...] = (NOTHING, "temperature", "g-layers-paper", "auto")
    points: int = 101

    name: ClassVar[str] = "curves"
    about: ClassVar[str] = "KS errors of the top class on test rows, percent; the csv holds the curves they come from."
    keys: ClassVar[tuple[str, ...]] = (*PLACE, "method")
    columns: ClassVar[tuple[str, ...]] = ("fractile", "cumulative_score", "cumulative_hits", "ks", "bound", "p_value")

    def jobs(self, sets: list[RowSet]) -> Iterator[Job]:
        """Return one job per method: its curve."""
        for rows in trained(sets, self.network):
            for method in self.methods:
                yield Job((*rows.place, method), partial(self._lines, rows, method))

    def _lines(self, rows: RowSet, method: str, _: Done) -> list[Line]:
        p = calibrated(method, 0, rows.calibration, rows.test).probabilities
        found = ks_curves(p, rows.test.labels, points=self.points)
        ks, bound = printed("ks", found.test.value), printed("ks", found.test.bound)
        test = {"ks": ks, "bound": bound, "p_value": f"{found.test.p_value:.4f}"}
        curves = (found.fractile, found.cumulative_score, found.cumulative_hits)
        return [
            dict(zip(self.columns, (f"{value:.5f}" for value in point), strict=False)) | test
            for point in zip(*curves, strict=True)
        ]

    def tables(self, lines: list[Line]) -> str:
        """Return the KS errors."""
        rows = [
            [network, method, *(where(lines, network=network, method=method)[0][c] for c in ("ks", "bound", "p_value"))]
            for network in different(lines, "network")
            for method in different(lines, "method")
        ]
        return page(markdown(["network", "method", "KS", "calibrated at most", "p"], rows, words=2))
