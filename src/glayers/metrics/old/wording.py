"""A metric and numbers -> the words and digits people read."""

import math
from collections.abc import Iterable

_SPELLED = {"nll": "NLL", "ks": "KS", "ece": "ECE", "mce": "MCE", "rms": "RMS", "brier": "Brier"}
_NOT_SHARES = {"nll", "brier", "brier_sum"}


def metric_words(metric: str) -> str:
    """Return the name of a metric as it stands in a sentence.

    >>> metric_words("mean_top_ks")
    'mean top KS'
    """
    return " ".join(_SPELLED.get(word, word) for word in metric.split("_"))


def with_error(metric: str, value: float, error: float) -> str:
    """Return a number and its standard error, to as many digits as the error allows; shares become percentage points.

    >>> with_error("nll", 0.10518, 0.0061), with_error("accuracy", 0.0031, 0.00124)
    ('0.105 ± 0.006', '0.31 ± 0.12 points')
    """
    scale, unit = (1, "") if metric in _NOT_SHARES else (100, " points")
    decimals = _decimals(scale * error)
    return f"{scale * value:.{decimals}f} ± {scale * error:.{decimals}f}{unit}"


def markdown_line(cells: Iterable[str]) -> str:
    r"""Return one line of a Markdown table, whatever a name holds.

    >>> print(markdown_line(["a|b", "0.12"]))
    | a\|b | 0.12 |
    """
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _decimals(error: float) -> int:
    """One digit of the error, two where the first is 1 or 2 and rounding it would change it much."""
    if not (0 < error < math.inf):
        return 4
    magnitude = math.floor(math.log10(error))
    leading = error / 10**magnitude
    return max(0, -magnitude + (leading < 2.95))
