"""Numbers -> people: curves, figures, terminal tables and the HTML page."""


def shortened(name: str, most: int = 40) -> str:
    """Return a name that fits a menu, an axis or a title: cut to `most` characters if it is longer.

    >>> shortened("a" * 50, most=5)
    'aaaa…'
    """
    return name if len(name) <= most else name[: most - 1] + "…"
