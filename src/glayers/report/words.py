"""Numbers and names -> the words in which terminal, figures and page say them."""

import math
import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from glayers.metrics import METRICS, CalibrationTest

_BEFORE_SIGN = re.compile(r"(?<=\d) (?=%)|(?<=\bp) (?=[=<\u2264] )|(?<=\bp [=<\u2264]) (?=\d)")
_MINUS = re.compile(r"(?:(?<=[\s(])|^)-(?=\d)")
# Unicode marks for right-to-left writing: they would also turn the text around a class name.
_TURNING = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

Unit: TypeAlias = Literal["percent", "points", "number", "rows", "text"]


def ks_sentence(test: CalibrationTest) -> str:
    """Return a KS error, and what chance alone would make of it.

    >>> ks_sentence(CalibrationTest(value=0.02, p_value=0.004, bound=0.015, expected=0.008, level=0.95))
    'KS 2.00 %; that of a calibrated model exceeds 1.50 % in 5 % of samples'
    """
    value = METRICS["ks"].format(test.value)
    if test.too_few_groups:
        return f"KS {value}; too few groups to tell whether this is sampling error"
    bound = METRICS["ks"].format(test.bound)
    return f"KS {value}; that of a calibrated model exceeds {bound} in {100 - 100 * test.level:.3g} % of samples"


def shortened(name: str, most: int = 40) -> str:
    """Return a name that fits a menu, an axis or a title: cut to `most` characters if it is longer.

    >>> shortened("a" * 50, most=5)
    'aaaa…'
    """
    if len(name) <= most:
        return name
    return name[: most - 1] + "…"


def class_names(names: Sequence[str] | None, n_classes: int) -> list[str]:
    """Return the name of each class, with marks for right-to-left writing escaped, or its number."""
    if names is None:
        return [f"class {c}" for c in range(n_classes)]
    return [_TURNING.sub(lambda mark: mark[0].encode("unicode_escape").decode(), name) for name in names]


def capital(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def plural(number: float, singular: str) -> str:
    """Return a number of things.

    >>> plural(1, "row"), plural(1200, "row"), plural(2, "class")
    ('1 row', '1,200 rows', '2 classes')
    """
    if round(number) == 1:
        return f"1 {singular}"
    ending = "es" if singular.endswith("s") else "s"
    return f"{number:,.0f} {singular}{ending}"


def percent(fraction: float, digits: int = 2) -> str:
    """Return a fraction in percent, with so many decimals or, if it is small, with two significant digits.

    >>> percent(0.25), percent(0.25, 0), percent(0.00001234)
    ('25.00 %', '25 %', '0.0012 %')
    """
    if fraction != 0:
        digits = max(digits, 1 - math.floor(math.log10(abs(100 * fraction))))
    return f"{100 * fraction:.{min(digits, 6)}f} %"


def points(fraction: float) -> str:
    """Return a difference of fractions in points, with its sign, which zero has not.

    >>> points(0.0312), points(-0.00001)
    ('+3.1', '0.0')
    """
    number = round(100 * fraction, 1)
    if number == 0:
        return "0.0"
    return f"{number:+.1f}"


def written(value: Any, unit: Unit) -> str:
    """Return a value of a column by its unit.

    >>> written(0.25, "percent"), written(1200.0, "rows"), written(math.nan, "points")
    ('25.00 %', '1,200', '–')
    """
    if unit == "text":
        return str(value)
    if math.isnan(value):
        return "\N{EN DASH}"
    if unit == "percent":
        return percent(value)
    if unit == "points":
        return points(value)
    if unit == "rows":
        return f"{value:,.0f}"
    return f"{value:.4g}"


def significance(significant: bool) -> str:
    """Return whether a result is significant, in words."""
    return "significant" if significant else "not significant"


def typeset(text: str) -> str:
    """Return a text for the page: a number and its sign on one line, and the minus of print."""
    unbroken = _BEFORE_SIGN.sub("\u00a0", text.replace("p <= ", "p \u2264 ")).replace(" +- ", " \u00b1\u00a0")
    return _MINUS.sub("\N{MINUS SIGN}", unbroken)
