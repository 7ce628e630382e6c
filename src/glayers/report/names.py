"""Names of classes and methods -> what fits a menu, an axis or a title."""


def shortened(name: str, most: int = 40) -> str:
    """Return the name, or its beginning where it is too long.

    >>> shortened("a" * 50, most=5)
    'aaaa…'
    """
    return name if len(name) <= most else name[: most - 1] + "…"
