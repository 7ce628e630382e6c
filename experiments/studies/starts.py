"""g-layers from the transparent and from Glorot's start -> scores through training, at every depth and width.

A point is the network with the lowest training loss up to that epoch, which early stopping would return.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from experiments.studies.lines import Line, different, markdown, numbers, page, where
from experiments.studies.scoring import METRICS, printed
from experiments.studies.sets import PLACE, RowSet, trained
from experiments.studies.sizes import NO_UNITS
from experiments.studies.study import Done, Job, Study

from glayers import GLayers, GlayersWarning
from glayers.metrics import scorecard

Start = Literal["transparent", "glorot"]
STARTS: tuple[Start, ...] = ("transparent", "glorot")
CLOSELY = ("3", "3")  # layers and units per class that are also scored after more epochs
SHOWN = ("nll", "ks", "accuracy")


@dataclass(frozen=True)
class Starts(Study):
    """Whether the start matters."""

    network: str = "cifar10_dense"
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    units: tuple[int, ...] = (2, 3, 4, 5)
    seeds: int = 3
    epochs: tuple[int, ...] = (0, 1, 3, 10, 40)
    more_epochs: tuple[int, ...] = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 40)

    name: ClassVar[str] = "starts"
    about: ClassVar[str] = (
        "The paper's recipe without its search (learning rate 0.003, weight decay 0.01), stopped after some epochs; "
        "scored on test rows. Of three seeds the worst; one layer has no hidden units."
    )
    keys: ClassVar[tuple[str, ...]] = (*PLACE, "start", "depth", "units", "seed")
    columns: ClassVar[tuple[str, ...]] = ("set", "epochs", "percent", *SHOWN)

    def jobs(self, sets: list[RowSet]) -> Iterator[Job]:
        """Return one job per start, size and seed, with all its epochs."""
        shapes = [
            (str(depth), str(units) if depth > 1 else NO_UNITS)
            for depth in self.depths
            for units in (self.units if depth > 1 else self.units[:1])
        ]
        for rows in trained(sets, self.network):
            for start in STARTS:
                for shape in shapes:
                    for seed in range(self.seeds):
                        yield Job(
                            (*rows.place, start, *shape, str(seed)),
                            partial(self._lines, rows, start, *shape, seed),
                        )

    def _lines(self, rows: RowSet, start: Start, depth: str, units: str, seed: int, _: Done) -> list[Line]:
        lines = []
        shown = self.more_epochs if (depth, units) == CLOSELY else self.epochs
        for epochs in shown:
            g = GLayers(
                int(depth),
                int(units) or None,
                recipe="paper",
                start=start,
                learning_rate=3e-3,
                weight_decay=1e-2,
                max_epochs=epochs,
                patience=max(shown),
                random_state=seed,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GlayersWarning)  # without an epoch the loss cannot fall
                g.fit(rows.calibration.logits, rows.calibration.labels)
            when = {"epochs": str(epochs), "percent": f"{100 * epochs / max(shown):g}"}
            for name, part in (("calibration", rows.calibration), ("test", rows.test)):
                card = scorecard(part.with_logits(g.transform(part.logits)))
                lines.append({"set": name} | when | {m: printed(m, card[m]) for m in SHOWN})
        return lines

    def tables(self, lines: list[Line]) -> str:
        """Return accuracy, KS and NLL by size and epoch, both starts side by side."""
        test = where(lines, set="test")
        epochs = [str(epoch) for epoch in self.epochs]
        start = float(where(test, start=STARTS[0], epochs="0")[0]["accuracy"])
        return page(
            f"Before calibration the accuracy on test rows is {start:.2f} percent.",
            *(
                f"## {heading}\n\n{_by_size(test, epochs, metric, worst)}"
                for metric, heading, worst in (
                    ("accuracy", "Accuracy, percent, lowest over seeds", min),
                    ("ks", "KS, percent, highest over seeds", max),
                    ("nll", "NLL, highest over seeds", max),
                )
            ),
        )


def _by_size(lines: list[Line], epochs: list[str], metric: str, worst: Callable[[list[float]], float]) -> str:
    digits = METRICS[metric].digits
    rows = []
    for depth in different(lines, "depth"):
        for units in different(where(lines, depth=depth), "units"):
            cells = []
            for start in STARTS:
                for epoch in epochs:
                    found = numbers(where(lines, depth=depth, units=units, start=start, epochs=epoch), metric)
                    cells.append(f"{worst(found):.{digits}f}" if found else "-")
            rows.append([depth, "-" if units == NO_UNITS else units, *cells])
    return markdown(["layers", "units", *(f"{start}, {epoch} epochs" for start in STARTS for epoch in epochs)], rows)
