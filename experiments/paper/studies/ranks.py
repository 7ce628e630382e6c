"""Trained base networks -> the KS error of the first to the tenth rank, before and after calibration."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from experiments.paper.studies.lines import Line, different, markdown, numbers, page, where
from experiments.paper.studies.scoring import NOTHING, calibrated, printed
from experiments.paper.studies.sets import PLACE, RowSet, trained
from experiments.paper.studies.study import Done, Job, Study

from glayers.metrics import ks_test, rank


@dataclass(frozen=True)
class Ranks(Study):
    """Whether all ranks are calibrated, or only the top class."""

    methods: tuple[str, ...] = (NOTHING, "temperature", "g-layers-paper", "g-layers", "shared-g-layers", "auto")
    most: int = 10

    name: ClassVar[str] = "ranks"
    about: ClassVar[str] = (
        "KS error in percent of the class at each rank, trained networks, test rows. `*` is an error that a calibrated "
        "model with the same scores exceeds in more than 5 % of cases."
    )
    keys: ClassVar[tuple[str, ...]] = (*PLACE, "method")
    columns: ClassVar[tuple[str, ...]] = ("rank", "ks", "bound", "p_value", "note")

    def jobs(self, sets: list[RowSet]) -> Iterator[Job]:
        """Return one job per network and method, with all its ranks."""
        for rows in trained(sets):
            for method in self.methods:
                yield Job((*rows.place, method), partial(self._lines, rows, method))

    def _lines(self, rows: RowSet, method: str, _: Done) -> list[Line]:
        p, note = calibrated(method, 0, rows.calibration, rows.test)
        lines = []
        for place in range(1, min(self.most, rows.test.n_classes) + 1):
            found = None if p is None else ks_test(p, rows.test.labels, event=rank(place))
            ks, bound = ("", "") if found is None else (printed("ks", found.value), printed("ks", found.bound))
            p_value = "" if found is None else f"{found.p_value:.4f}"
            lines.append({"rank": str(place), "ks": ks, "bound": bound, "p_value": p_value, "note": note})
        return lines

    def tables(self, lines: list[Line]) -> str:
        """Return one table per network, with means over five and over nine ranks as the paper has them."""
        return page(*(_of_network(where(lines, network=name), name) for name in different(lines, "network")))


def _of_network(lines: list[Line], name: str) -> str:
    ranks, rows = different(lines, "rank"), []
    for method in different(lines, "method"):
        mine = [line for line in where(lines, method=method) if line["ks"]]
        cells = [f"{float(line['ks']):.2f}" + ("*" if float(line["p_value"]) > 0.05 else "") for line in mine]
        errors = numbers(mine, "ks")
        rows.append([method, *cells, *(f"{np.mean(errors[:n]):.3f}" for n in (5, 9))] if mine else [method])
    return f"## {name}\n\n" + markdown(["method", *(f"rank {r}" for r in ranks), "mean 1-5", "mean 1-9"], rows)
