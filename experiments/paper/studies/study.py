"""A study and base networks -> its csv, fit by fit, and the tables made of that file alone.

A study lists its jobs. A job is one fit, or a few that belong together, and returns lines that begin with its key. The
csv is written after each job, so an interrupted study resumes. Its lines are in the order of the jobs, not of the
fitting.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

from experiments.paper.studies.lines import Line, read_lines, write_lines
from experiments.paper.studies.sets import PLACE, RowSet
from experiments.stamp import write_page

Key: TypeAlias = tuple[str, ...]
Done: TypeAlias = Mapping[Key, list[Line]]


class Job(NamedTuple):
    """The key of a job, and the function that makes its lines; it may read the lines made so far."""

    key: Key
    make: Callable[[Done], list[Line]]


class Study(ABC):
    """A question with its settings: what to fit, and the tables that answer it."""

    name: ClassVar[str]
    about: ClassVar[str]  # a sentence above the tables
    keys: ClassVar[tuple[str, ...]]  # the columns that name a job, those of the rows first
    columns: ClassVar[tuple[str, ...]]  # the others

    @abstractmethod
    def jobs(self, sets: list[RowSet]) -> Iterable[Job]:
        """Return the jobs for these rows, in the order of the csv."""

    @abstractmethod
    def tables(self, lines: list[Line]) -> str:
        """Return the tables in Markdown."""


def run(study: Study, sets: list[RowSet], results: Path) -> None:
    """Run the missing jobs, then write the tables."""
    file, columns = results / f"{study.name}.csv", (*study.keys, *study.columns)
    done = current(read_lines(file), study, sets)
    jobs = list(study.jobs(sets))
    left = [job for job in jobs if job.key not in done]
    print(f"{study.name}: {len(jobs) - len(left)} of {len(jobs)} cells are done", flush=True)
    order = {job.key: place for place, job in enumerate(jobs)}
    began = time.perf_counter()
    for number, job in enumerate(left, 1):
        named = dict(zip(study.keys, job.key, strict=True))
        done[job.key] = [named | line for line in job.make(done)]
        ordered = sorted(done, key=lambda key: order.get(key, len(order)))
        write_lines(file, columns, (line for key in ordered for line in done[key]))
        taken = time.perf_counter() - began
        minutes = taken / number * (len(left) - number) / 60
        words = " ".join(value for column, value in named.items() if column != "logits")
        print(f"  {number}/{len(left)} {words}: {taken:.0f} s, about {minutes:.0f} min left", flush=True)
    write_tables(study, results)


def write_tables(study: Study, results: Path) -> None:
    """Write the Markdown file from the csv."""
    lines = read_lines(results / f"{study.name}.csv")
    if lines:
        head = f"Made by `python -m experiments.paper.studies.command {study.name}`. {study.about}"
        write_page(results / f"{study.name}.md", f"{head}\n\n{study.tables(lines)}")


def current(lines: Iterable[Line], study: Study, sets: list[RowSet]) -> dict[Key, list[Line]]:
    """Return lines by job, without those of logits that have changed since."""
    now: dict[Key, Key] = {rows.place[:2]: rows.place for rows in sets}
    done: dict[Key, list[Line]] = {}
    for line in lines:
        place = tuple(line[column] for column in PLACE)
        if now.get(place[:2], place) == place:
            done.setdefault(tuple(line[column] for column in study.keys), []).append(line)
    return done
