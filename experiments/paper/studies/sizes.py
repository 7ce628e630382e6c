"""Units per class and layers of g -> KS, NLL and accuracy against the number of weights, by the paper's recipe.

Learning rate and weight decay come from the search at 3 layers and 3 units per class, once per network, and are used
for all sizes, as in the paper. One layer has no hidden units: it is fitted once per seed. The fewest and the most
layers also have a search of their own, which tells the depth from the reused settings.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from experiments.paper.studies.lines import Line, different, markdown, numbers, page, spread, where
from experiments.paper.studies.scoring import METRICS, noted, scored
from experiments.paper.studies.sets import PLACE, RowSet, trained
from experiments.paper.studies.study import Done, Job, Study

from glayers import PaperGLayers
from glayers.arrays import Array
from glayers.maps.steps import layer_shapes

SEARCHED = ("3", "3", "0")  # layers, units per class, seed
NO_UNITS = "0"
REUSED, OWN = "3 layers", "own"


@dataclass(frozen=True)
class Sizes(Study):
    """How large g should be."""

    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    units: tuple[int, ...] = (2, 3, 4, 5)
    seeds: int = 3
    max_epochs: int = 200
    own_search: tuple[int, ...] = (1, 5)

    name: ClassVar[str] = "sizes"
    about: ClassVar[str] = (
        "The paper's recipe on trained CIFAR-10 networks; learning rate and weight decay as found by the search at "
        "3 layers and 3 units a class, or by a search of this size's own. Mean over seeds ± standard deviation."
    )
    keys: ClassVar[tuple[str, ...]] = (*PLACE, "search", "depth", "units", "seed")
    columns: ClassVar[tuple[str, ...]] = ("weights", "learning_rate", "weight_decay", *METRICS, "note")

    def jobs(self, sets: list[RowSet]) -> Iterator[Job]:
        """Return the fit with the search first, then every size and seed."""
        keys = sizes_and_seeds(self.depths, self.units, self.seeds)
        for rows in trained(sets, "cifar10"):
            own = [(OWN, str(depth), "3" if depth > 1 else NO_UNITS, "0") for depth in self.own_search]
            for key in [(REUSED, *SEARCHED), *((REUSED, *key) for key in keys if key != SEARCHED), *own]:
                yield Job((*rows.place, *key), partial(self._lines, rows, *key))

    def _lines(self, rows: RowSet, search: str, depth: str, units: str, seed: str, done: Done) -> list[Line]:
        n_units = int(units) or 3
        g = PaperGLayers(int(depth), n_units, max_epochs=self.max_epochs, random_state=int(seed))
        if search == REUSED and (depth, units, seed) != SEARCHED:
            (searched,) = done[(*rows.place, REUSED, *SEARCHED)]
            g.set_params(**{name: float(searched[name]) for name in ("learning_rate", "weight_decay")})

        def predict() -> Array:
            return g.fit(rows.calibration.logits, rows.calibration.labels).predict_proba(rows.test.logits)

        line = scored(noted(predict), rows.test)
        weights = n_weights(rows.test.n_classes, int(depth), int(units))
        return [{"weights": str(weights)} | chosen(g) | line]

    def tables(self, lines: list[Line]) -> str:
        """Return one table per network: each size, its weights and its scores."""
        return page(*(_of_network(where(lines, network=name), name) for name in different(lines, "network")))


def sizes_and_seeds(depths: Iterable[int], units: Sequence[int], seeds: int) -> list[tuple[str, str, str]]:
    """Return every depth, width and seed; one layer has no hidden units."""
    keys = []
    for depth in depths:
        widths = [str(width) for width in units] if depth > 1 else [NO_UNITS]
        keys += [(str(depth), width, str(seed)) for width in widths for seed in range(seeds)]
    return keys


def chosen(g: PaperGLayers) -> Line:
    """Return the learning rate and the weight decay that the search chose, as the csv holds them."""
    best = int(np.argmax(g.cv_results_["chosen"]))
    return {name: f"{g.cv_results_[name][best]:g}" for name in ("learning_rate", "weight_decay")}


def n_weights(n_classes: int, depth: int, units: int) -> int:
    """Return the number of weights, without biases, as the paper counts them.

    >>> n_weights(1000, 3, 3)  # 1000 x 3002 + 3002 x 3002 + 3002 x 1000
    15016004
    """
    return sum(n_in * n_out for n_in, n_out in layer_shapes(n_classes, depth, units))


def _of_network(lines: list[Line], name: str) -> str:
    rows = []
    for search, depth, units in sorted({(line["search"], line["depth"], line["units"]) for line in lines}):
        mine = where(lines, search=search, depth=depth, units=units)
        scores = [spread(numbers(mine, metric), about.digits) for metric, about in METRICS.items()]
        settings = [mine[0]["learning_rate"], mine[0]["weight_decay"], search]
        rows.append([depth, "-" if units == NO_UNITS else units, mine[0]["weights"], *settings, *scores])
    heading = ["layers", "units a class", "weights", "learning rate", "weight decay", "search"]
    return f"## {name}\n\n{markdown([*heading, *(about.heading for about in METRICS.values())], rows)}"
