"""Valid inputs -> damaged ones: bytes, trees of JSON, text of tables."""

import copy
import math
from typing import Any

import numpy as np

from glayers.arrays import Array

Random = np.random.Generator


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


ODD_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 3, 2**31, 2**63, 2**64 - 1, 10**30, -(2**63), 0.5, -0.0, 1e308, -1e308, 5e-324),
    *(math.nan, math.inf, -math.inf, "", "a", "=1+1", "nan", "1_0", "\ud800", "\x00", "é\n", "x" * 3_000),
    *([], {}, [[]], [None], ["a", 1], [1, 2], [[1.0, 2.0], [3.0]], [[0.5, 0.5]], {"a": 1}, nested(200), [1e400, "b"]),
]
ODD_CELLS = [
    *("", " ", "nan", "inf", "-inf", "1e999", "-1e-320", "1_0", "0x10", "=1+1", "+1", "@a", "'=a", "\t", '"', '""'),
    *(",", ",,", "\n", "\r", "\x00", "é", "\ufeff", "1e308", "9" * 400, "x" * 5_000, "true", "0.0", "-0", "٣"),
]
ODD_ARRAYS: list[Array] = [
    *(np.zeros(()), np.zeros((0, 4)), np.zeros((6, 0)), np.zeros((6, 4, 1)), np.full((6, 4), np.nan)),
    *(np.array(["a", "b"] * 3), np.array([b"\xff", b"b"] * 3), np.zeros((6, 4), complex), np.zeros(6, "M8[s]")),
    *(np.array([2**64 - 1, 3] * 3, np.uint64), np.linspace(0, 1, 6, dtype=np.longdouble), np.zeros((6, 4), bool)),
    *(np.full((6, 4), 1e308), np.full((6, 4), 5e-324), np.zeros(6, [("a", "f8")]), np.array([None] * 6, object)),
    *(np.array(["\ud800", "", "a", "=b", "c\n", "d"]), np.arange(24).reshape(6, 4).astype(">i2"), np.zeros(6)),
    *(np.arange(6).reshape(6, 1), np.full(6, -1), np.full(6, 0.5), np.zeros(6, "V3"), np.full((6, 4), np.inf)),
]


def pick(items: Any, random: Random) -> Any:
    return items[int(random.integers(len(items)))]


def damaged(data: bytes, other: bytes, random: Random) -> bytes:
    """Damage bytes one to three times: flip, cut, drop, insert or overwrite some, or splice in those of another."""
    for _ in range(random.integers(1, 4)):
        start, stop = (int(place) for place in np.sort(random.integers(0, len(data) + 1, size=2)))
        short = min(stop, start + int(random.integers(1, 9)))
        match random.integers(6):
            case 0:
                flipped = bytearray(data)
                for place in random.integers(0, len(data), size=random.integers(1, 5)) if data else ():
                    flipped[place] ^= 1 << int(random.integers(8))
                data = bytes(flipped)
            case 1:
                data = data[:stop]
            case 2:
                data = data[:start] + data[short:]
            case 3:
                data = data[:start] + random.bytes(int(random.integers(1, 9))) + data[start:]
            case 4:
                data = data[:start] + b"\xff" * (short - start) + data[short:]
            case _:
                begin, end = np.sort(random.integers(0, len(other) + 1, size=2))
                data = data[:start] + other[begin:end] + data[stop:]
    return data


def changed_tree(tree: Any, random: Random) -> Any:
    """Return a copy of a tree of lists and dicts in which one place holds something odd, or is gone, or is renamed."""
    changed = copy.deepcopy(tree)
    place: Any = changed
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return changed
        key = pick(keys, random)
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or random.random() < 0.3:
            break
        place = inner
    match random.integers(5):
        case 0:
            del place[key]
        case 1 if isinstance(place, dict):
            place[pick(["", "a", "logits", f"{key}_test", "sha256"], random)] = place.pop(key)
        case 2 if isinstance(place, list):
            place.append(inner)
        case 3 if isinstance(inner, int | float) and not isinstance(inner, bool):
            place[key] = pick([-inner, inner + 1, inner * 1e300, str(inner), inner + 0.5], random)
        case _:
            place[key] = pick(ODD_VALUES, random)
    return changed


def changed_text(text: str, delimiter: str, random: Random) -> str:
    """Return a table with some cells, names of columns or rows changed."""
    rows = [line.split(delimiter) for line in text.splitlines()]
    for _ in range(random.integers(1, 4)):
        row = pick(rows, random) if random.random() < 0.6 else rows[0]
        column = int(random.integers(len(row))) if row else 0
        match random.integers(6):
            case 0:
                row[column : column + 1] = [pick(ODD_CELLS, random)]
            case 1:
                row.insert(column, pick(ODD_CELLS, random))
            case 2:
                del row[column : column + 1]
            case 3:
                rows.insert(int(random.integers(len(rows) + 1)), [*row])
            case 4:
                names = [
                    "label",
                    "group",
                    "logit",
                    "logit_",
                    "logit_0",
                    "p_1",
                    "confidence",
                    "correct",
                    "weight",
                    "y_test",
                ]
                rows[0][column % max(1, len(rows[0])) :][:1] = [pick(names, random)]
            case _:
                for each in rows:  # a whole column
                    each[column : column + 1] = [pick(ODD_CELLS, random)] if random.random() < 0.5 else each[:1]
    return "\n".join(map(delimiter.join, rows)) + pick(["\n", "", "\r\n", "\n\n"], random)
