"""Numbers -> the text people read and the JSON a page carries."""

import dataclasses
import json
import math
import re
from typing import Any

import numpy as np

from glayers.arrays import Array

# Inside <script> an HTML parser looks for these and nothing else; JSON reads them back from their codes.
_ESCAPED = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
_SIGN = re.compile(r"(?<=\d) (?=%)|(?<=\bp) (?=[=<] )|(?<=\bp [=<]) (?=\d)")
_PLAIN = {"nll": ".4f", "brier": ".5f"}


def metric_text(metric: str, value: float) -> str:
    """Return a metric as people read it: percent where it is a share.

    >>> metric_text("nll", 0.21449), metric_text("ks", 0.0305)
    ('0.2145', '3.05 %')
    """
    return f"{value:{_PLAIN[metric]}}" if metric in _PLAIN else f"{100 * value:.2f} %"


def difference_text(metric: str, value: float) -> str:
    """Return a difference of a metric with its sign, in percentage points where it is a share.

    >>> difference_text("nll", 0.21449), difference_text("accuracy", -0.001), difference_text("accuracy", -1e-9)
    ('+0.2145', '-0.10 points', '0.00 points')
    """
    form, times, unit = (_PLAIN[metric], 1, "") if metric in _PLAIN else (".2f", 100, " points")
    number = f"{times * value:+{form}}"
    return (number if float(number) else number[1:]) + unit  # a zero has no sign, whatever it was rounded from


def from_to(low: str, high: str) -> str:
    """Return the ends of an interval, with the unit once.

    >>> from_to("2.55 %", "3.55 %")
    '2.55 to 3.55 %'
    """
    return f"{low.split(' ')[0]} to {high}"


def p_text(p_value: float) -> str:
    """Return a p-value in a sentence; what is below 0.0001 is not told apart.

    >>> p_text(0.0312), p_text(1e-9)
    ('p = 0.031', 'p < 0.0001')
    """
    return f"p = {p_value:.2g}" if p_value >= 1e-4 else "p < 0.0001"


def percent(share: float) -> str:
    """Return a share as a sentence has it.

    >>> percent(0.9539)
    '95.4 %'
    """
    return f"{100 * share:.1f} %"


def unbroken(text: Any) -> Any:
    r"""Keep numbers and their signs on one line, where it is text: a sign must not begin the next.

    >>> unbroken("95.4 %, p = 0.03").split(" ")
    ['95.4\xa0%,', 'p\xa0=\xa00.03']
    """
    return _SIGN.sub("\u00a0", text) if type(text) is str else text  # what is Markup is no text but ours


def plain(value: Any, digits: int = 5) -> Any:
    """Return arrays, dataclasses and numbers as JSON has them, to so many digits; what is not finite is null.

    >>> plain({"a": np.array([1 / 3, np.nan]), "b": 2})
    {'a': [0.33333, None], 'b': 2}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), digits) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: plain(held, digits) for key, held in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(held, digits) for held in _items(value)]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def script_json(value: Any) -> str:
    r"""Return JSON that can stand inside a <script> whatever the strings in it say.

    >>> print(script_json(["</script>"]))
    ["\u003c/script\u003e"]
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_ESCAPED)


def _items(value: list[Any] | tuple[Any, ...] | Array) -> list[Any]:
    return value.tolist() if isinstance(value, np.ndarray) else list(value)
