"""Two folders of results -> whether the tables agree, or how far apart they are in units of the spread over seeds.

On the machine that made the committed files, the same logits give the same bytes. On another machine, rounding may
change the result as another seed would: then means over seeds must agree within the stated number of spreads. A table
without seeds borrows the spread that its methods show in the tables with them. Seeds that only one table has are left
out.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from experiments.paper.reproduction import methods as reproduction
from experiments.paper.reproduction.cells import Key
from experiments.paper.studies.command import STUDIES
from experiments.paper.studies.lines import Line, numbers, read_lines
from experiments.paper.studies.scoring import METRICS

SEEDS = ("seed", "draw")
TABLES: dict[str, tuple[str, ...]] = {name: study.keys for name, study in STUDIES.items()} | {"reproduce": Key._fields}
COMPARED = {*METRICS, *reproduction.METRICS}
LIMIT = 6.0

# The lines of all seeds, by the key of a fit without its seed and the place among the lines of that fit.
Groups: TypeAlias = dict[tuple[tuple[str, ...], int], list[Line]]
# Standard deviations over seeds, by method and metric.
Spreads: TypeAlias = dict[tuple[str, str], list[float]]


class Verdict(NamedTuple):
    """The message about a table, and whether it differs by more than noise."""

    words: str
    differs: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 where a table differs by more than noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fresh", type=Path, help="the folder of tables just made")
    parser.add_argument("committed", type=Path)
    parser.add_argument("--limit", type=float, default=LIMIT, help="spreads over seeds that are noise")
    settings = parser.parse_args(arguments)
    there = [name for name in TABLES if (settings.fresh / f"{name}.csv").exists()]
    if not there:
        parser.error(f"{settings.fresh} holds none of {', '.join(f'{name}.csv' for name in TABLES)}")
    borrowed = spreads_of(settings.committed)
    verdicts = {name: compared(name, settings.fresh, settings.committed, borrowed, settings.limit) for name in there}
    for name, verdict in verdicts.items():
        print(f"{name}: {verdict.words}")
    for name in (name for name in TABLES if name not in verdicts):
        print(f"{name}: not made")
    return int(any(verdict.differs for verdict in verdicts.values()))


def compared(name: str, fresh: Path, committed: Path, borrowed: Spreads, limit: float) -> Verdict:
    """Compare one table."""
    files = [folder / f"{name}.csv" for folder in (fresh, committed)]
    if not files[1].exists():
        return Verdict("is new", True)
    if files[0].read_bytes() == files[1].read_bytes():
        return Verdict("identical", False)
    ours, theirs = (grouped(read_lines(file), TABLES[name]) for file in files)
    if ours.keys() != theirs.keys():
        only = [len(ours.keys() - theirs.keys()), len(theirs.keys() - ours.keys())]
        return Verdict(f"{only[0]} cells are new and {only[1]} are gone: other networks, or other settings", True)
    own = spreads_in(theirs)
    largest: dict[str, float] = {}
    for key in theirs:
        lines = of_seeds(theirs[key], ours[key])
        ours[key] = of_seeds(ours[key], lines)
        if not lines:
            return Verdict(f"{' '.join(key[0])} has no seed in common", True)
        for column in (column for column in lines[0] if base(column) in COMPARED):
            after, before = numbers(ours[key], column), numbers(lines, column)
            if len(after) != len(before):
                return Verdict(f"{column} of {' '.join(key[0])}: {len(after)} fits went well, not {len(before)}", True)
            if before and (apart := abs(float(np.mean(after) - np.mean(before)))):
                unit = unit_of(lines, column, own or borrowed)
                largest[column] = max(largest.get(column, 0.0), apart / unit)
    words = ", ".join(f"{column} {size:.2g}" for column, size in largest.items()) or "no metric"
    return Verdict(f"differs, at most by so many spreads: {words}", max(largest.values(), default=0.0) > limit)


def grouped(lines: Iterable[Line], keys: Sequence[str]) -> Groups:
    """Return the lines of all seeds, grouped by fit."""
    groups: Groups = {}
    places: dict[tuple[str, ...], int] = {}
    for line in lines:
        fit = tuple(line[column] for column in keys)
        places[fit] = places.get(fit, -1) + 1
        groups.setdefault((tuple(line[c] for c in keys if c not in SEEDS), places[fit]), []).append(line)
    return groups


def of_seeds(lines: list[Line], others: list[Line]) -> list[Line]:
    """Return the lines whose seed the others have too: a table of fewer seeds is compared on these."""
    seeds = {_seed(line) for line in others}
    return [line for line in lines if _seed(line) in seeds]


def _seed(line: Line) -> tuple[str, ...]:
    return tuple(line[column] for column in SEEDS if column in line)


def spreads_of(folder: Path) -> Spreads:
    """Return the spreads of all tables of a folder that have seeds."""
    found: Spreads = {}
    for name, keys in TABLES.items():
        for key, values in spreads_in(grouped(read_lines(folder / f"{name}.csv"), keys)).items():
            found.setdefault(key, []).extend(values)
    return found


def spreads_in(groups: Groups) -> Spreads:
    """Return the standard deviations over seeds, without those of deterministic methods."""
    found: Spreads = {}
    for lines in groups.values():
        for column in (column for column in lines[0] if column in COMPARED):
            values = numbers(lines, column)
            if len(values) > 1 and np.ptp(values) > 0:
                found.setdefault((lines[0].get("method", ""), column), []).append(float(np.std(values, ddof=1)))
    return found


def unit_of(lines: list[Line], column: str, spreads: Spreads) -> float:
    """Return the larger of the spread over seeds of these lines and the typical one of their method or of all."""
    metric, values = base(column), numbers(lines, column)
    usual = spreads.get((lines[0].get("method", ""), metric)) or [
        value for (_, name), found in spreads.items() if name == metric for value in found
    ]
    own = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return max(own, float(np.median(usual or [0.0]))) or np.finfo(float).tiny


def base(column: str) -> str:
    """Return the metric of a column that holds an end of its interval.

    >>> base("nll_low"), base("nll")
    ('nll', 'nll')
    """
    return column.removesuffix("_low").removesuffix("_high")


if __name__ == "__main__":
    sys.exit(main())
