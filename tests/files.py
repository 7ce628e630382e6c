"""Files that a test writes again and again."""

from pathlib import Path


def write_anew(path: Path, data: bytes) -> None:
    """Write a new file in the place of an old one: common file systems wait for the disk when one is overwritten."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)
