"""Numbers -> people: curves, figures, terminal tables and the HTML page."""


def shortened(name: str, most: int = 40) -> str:
    """Return a name that fits a menu, an axis or a title: cut to `most` characters if it is longer.

    >>> shortened("a" * 50, most=5)
    'aaaa…'
    """
    return name if len(name) <= most else name[: most - 1] + "…"


def p_text(p_value: float) -> str:
    """Return a p-value within a sentence.

    >>> p_text(0.0312), p_text(1e-9)
    ('p = 0.031', 'p < 0.0001')
    """
    return f"p = {p_value:.2g}" if p_value >= 1e-4 else "p < 0.0001"
