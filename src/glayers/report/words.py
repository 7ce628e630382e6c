"""Numbers and test results -> the words in which tables, figures and the page say them."""

import math
import re

from glayers.metrics import METRICS, CalibrationTest, Scorecard

_BEFORE_SIGN = re.compile(r"(?<=\d) (?=%)|(?<=\bp) (?=[=<] )|(?<=\bp [=<]) (?=\d)")
_MINUS = re.compile(r"(?:(?<=[\s(])|^)-(?=\d)")
_SMALLEST_P = 1e-4  # smaller ones depend on the tail of an approximation


def shortened(name: str, most: int = 40) -> str:
    """Return a name that fits a menu, an axis or a title: cut to `most` characters if it is longer.

    >>> shortened("a" * 50, most=5)
    'aaaa…'
    """
    if len(name) <= most:
        return name
    return name[: most - 1] + "…"


def capital(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def plural(number: float, singular: str) -> str:
    """Return a number of things.

    >>> plural(1, "row"), plural(1200, "row"), plural(2, "class")
    ('1 row', '1,200 rows', '2 classes')
    """
    ending = "es" if singular.endswith("s") else "s"
    if round(number) == 1:
        ending = ""
    return f"{number:,.0f} {singular}{ending}"


def p_text(p_value: float) -> str:
    """Return a p-value within a sentence.

    >>> p_text(0.0312), p_text(1e-9)
    ('p = 0.031', 'p < 0.0001')
    """
    if p_value < _SMALLEST_P:
        return "p < 0.0001"
    return f"p = {p_value:.2g}"


def percent(fraction: float) -> str:
    """Return a fraction in percent, with two decimals or, if it is small, with two significant digits.

    >>> percent(0.25), percent(0.00001234)
    ('25.00 %', '0.0012 %')
    """
    digits = 2
    if fraction != 0:
        digits = max(2, 1 - math.floor(math.log10(abs(100 * fraction))))
    return f"{100 * fraction:.{min(digits, 6)}f} %"


def points(fraction: float, digits: int = 1) -> str:
    """Return a difference of two fractions in points, with its sign; what rounds to zero has none.

    >>> points(-0.0312), points(0.0001)
    ('-3.1 points', '0.0 points')
    """
    text = f"{100 * fraction:+.{digits}f}"
    if float(text) == 0:
        text = text[1:]
    return f"{text} points"


def signed(number: float) -> str:
    """Return a number with its sign, which zero has not; a minus as wide as the plus.

    >>> signed(-3.0), signed(0.0)
    ('\N{MINUS SIGN}3', '0')
    """
    if number == 0:
        return "0"
    return f"{number:+g}".replace("-", "\N{MINUS SIGN}")


def significance(significant: bool) -> str:
    """Return whether a result is significant, in words."""
    return "significant" if significant else "not significant"


def typeset(text: str) -> str:
    """Return a text for the page: a number and its sign on one line, and the minus of print."""
    unbroken = _BEFORE_SIGN.sub("\u00a0", text).replace(" +- ", " \u00b1\u00a0")
    return _MINUS.sub("\N{MINUS SIGN}", unbroken)


def mean_sentence(card: Scorecard) -> str:
    """Return mean confidence and accuracy within a sentence."""
    confidence, accuracy = (METRICS[name].format(card[name]) for name in ("confidence", "accuracy"))
    return f"mean confidence {confidence}, accuracy {accuracy}"


def confidence_sentence(card: Scorecard) -> str:
    """Say whether mean confidence and accuracy agree within two standard errors of the accuracy."""
    confidence = card["confidence"]
    gap = confidence - card["accuracy"]
    variance = max(0.0, confidence * (1 - confidence))  # a mean of ones may round to just above 1
    finding = "overconfident" if gap > 0 else "underconfident"
    if abs(gap) <= 2 * math.sqrt(variance / card.rows):
        finding = "neither over- nor underconfident"
    return f"{finding} ({mean_sentence(card)})"


def ks_test_sentence(test: CalibrationTest) -> str:
    """Say what the KS test found.

    >>> ks_test_sentence(CalibrationTest(value=0.02, p_value=0.004, bound=0.015, expected=0.008, level=0.95))
    'KS 2.00 % is significant (p = 0.004; 95 % of calibrated models stay below 1.50 %)'
    """
    value, bound = METRICS["ks"].format(test.value), METRICS["ks"].format(test.bound)
    if test.too_few_groups:
        return f"KS {value}: too few groups to tell whether this is sampling error"
    finding = "significant" if test.rejected else "within sampling error"
    others = f"{100 * test.level:g} % of calibrated models stay below {bound}"
    return f"KS {value} is {finding} ({p_text(test.p_value)}; {others})"
