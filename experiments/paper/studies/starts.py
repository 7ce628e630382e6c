"""g-layers from the transparent and from Glorot's start -> scores through training, at every depth and width.

Each start has a search of its own for learning rate and weight decay, at 3 layers and 3 units per class; all sizes use
what it found. A point is the network with the lowest training loss up to that epoch, which early stopping would return.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from experiments.paper.studies.lines import Line, different, markdown, numbers, page, where
from experiments.paper.studies.scoring import METRICS, noted, printed
from experiments.paper.studies.sets import PLACE, RowSet, trained
from experiments.paper.studies.sizes import NO_UNITS, chosen, sizes_and_seeds
from experiments.paper.studies.study import Done, Job, Study

from glayers import GlayersWarning, PaperGLayers
from glayers.metrics import scorecard

Start = Literal["transparent", "glorot"]
STARTS: tuple[Start, ...] = ("transparent", "glorot")
CLOSELY = ("3", "3")  # layers and units per class of the search, also scored after more epochs
SEARCHED = (*CLOSELY, "0")  # with the seed
SHOWN = ("nll", "ks", "accuracy")


@dataclass(frozen=True)
class Starts(Study):
    """Whether the start matters."""

    network: str = "cifar10_dense"
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    units: tuple[int, ...] = (2, 3, 4, 5)
    seeds: int = 3
    search_epochs: int = 40
    epochs: tuple[int, ...] = (0, 1, 3, 10, 40)
    more_epochs: tuple[int, ...] = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 100, 200)

    name: ClassVar[str] = "starts"
    about: ClassVar[str] = (
        "The paper's recipe, stopped after some epochs; scored on test rows. Learning rate and weight decay are those "
        "found by the search of each start at 3 layers and 3 units per class. Of three seeds the worst; one layer has "
        "no hidden units."
    )
    keys: ClassVar[tuple[str, ...]] = (*PLACE, "start", "depth", "units", "seed")
    columns: ClassVar[tuple[str, ...]] = ("learning_rate", "weight_decay", "set", "epochs", "percent", *SHOWN, "note")

    def jobs(self, sets: list[RowSet]) -> Iterator[Job]:
        """Return one job per start, size and seed, with all its epochs."""
        keys = sizes_and_seeds(self.depths, self.units, self.seeds)
        for rows in trained(sets, self.network):
            for start in STARTS:
                for key in [SEARCHED, *(key for key in keys if key != SEARCHED)]:
                    yield Job((*rows.place, start, *key), partial(self._lines, rows, start, *key))

    def _lines(self, rows: RowSet, start: Start, depth: str, units: str, seed: str, done: Done) -> list[Line]:
        if (depth, units, seed) == SEARCHED:
            search = PaperGLayers(3, 3, start=start, max_epochs=self.search_epochs, random_state=0)
            given = rows.calibration
            searching = noted(lambda: search.fit(given.logits, given.labels).predict_proba(rows.test.logits))
            found = chosen(search) | {"note": searching.note}
        else:
            searched = done[(*rows.place, start, *SEARCHED)][0]
            found = {name: searched[name] for name in ("learning_rate", "weight_decay")}
        lines = []
        shown = self.more_epochs if (depth, units) == CLOSELY else self.epochs
        for epochs in shown:
            g = PaperGLayers(
                int(depth),
                int(units) or 3,
                start=start,
                max_epochs=epochs,
                patience=max(shown),
                random_state=int(seed),
                learning_rate=float(found["learning_rate"]),
                weight_decay=float(found["weight_decay"]),
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GlayersWarning)  # without an epoch the loss cannot fall
                g.fit(rows.calibration.logits, rows.calibration.labels)
            when = {"epochs": str(epochs), "percent": f"{100 * epochs / max(shown):g}"}
            for name, part in (("calibration", rows.calibration), ("test", rows.test)):
                card = scorecard(part.with_logits(g.transform(part.logits)))
                lines.append(found | {"set": name} | when | {m: printed(m, card[m]) for m in SHOWN})
        return lines

    def tables(self, lines: list[Line]) -> str:
        """Return accuracy, KS and NLL by size and epoch, both starts side by side."""
        test = sorted(where(lines, set="test"), key=lambda line: (line["depth"], line["units"]))
        epochs = [str(epoch) for epoch in self.epochs]
        start = float(where(test, start=STARTS[0], epochs="0")[0]["accuracy"])
        settings = [
            "{}: learning rate {learning_rate}, weight decay {weight_decay}.".format(name, **where(test, start=name)[0])
            for name in STARTS
        ]
        return page(
            f"Before calibration the accuracy on test rows is {start:.2f} percent. {' '.join(settings)}",
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
