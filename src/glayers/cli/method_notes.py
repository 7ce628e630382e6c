"""Each name of `CALIBRATORS` -> what it is, what it cannot do and whether its fit needs torch, in a line.

Kept apart from the calibrators so that help and completion need not import them; a test keeps both lists the same.
"""

from typing import NamedTuple


class MethodNote(NamedTuple):
    """What to know of a method before choosing it."""

    is_a: str
    cannot: str
    torch: str = "no"


_APART = "tell classes apart"
_PAIRS = "see class pairs"
_PRIOR = "mend a class prior"
_LITTLE = "learn from little"
_LOWER = "mend lower ranks"
METHODS: dict[str, MethodNote] = {
    "auto": MethodNote("the best mix, by held-out rows", "be instant", "helps"),
    "temperature": MethodNote("one factor; keeps every ranking", _APART),
    "ensemble-temperature": MethodNote("temperature, raw, uniform mixed", _APART),
    "vector": MethodNote("a scale and a shift a class", _PAIRS),
    "matrix": MethodNote("structured matrix scaling", "bend"),
    "matrix-odir": MethodNote("MS-ODIR: penalty off diagonal", "bend"),
    "dirichlet": MethodNote("Dir-ODIR, on log-probabilities", "bend"),
    "g-layers": MethodNote("the paper's dense layers", _LITTLE, "yes"),
    "g-layers-paper": MethodNote("the same, by the paper's recipe", "be quick", "yes"),
    "shared-g-layers": MethodNote("g-layers, then a shared curve", _LITTLE, "yes"),
    "order-general": MethodNote("a map that keeps every ranking", _PRIOR, "yes"),
    "order-invariant": MethodNote("the same, treats classes alike", _PRIOR, "yes"),
    "order-diagonal": MethodNote("one rising curve for all logits", _PRIOR, "yes"),
    "platt": MethodNote("a logistic curve a class", _PAIRS),
    "beta": MethodNote("a beta curve a class", _PAIRS),
    "isotonic": MethodNote("a rising staircase a class", _PAIRS),
    "histogram": MethodNote("bins for each class", _PAIRS),
    "histogram-top": MethodNote("bins for the top class", _LOWER),
    "bbq": MethodNote("an average of binnings a class", _PAIRS),
    "scaling-binning": MethodNote("a curve a class, then its bins", _PAIRS),
    "spline": MethodNote("a spline for the top class", _LOWER),
    "spline-classes": MethodNote("a spline for each class", _PAIRS),
}
