"""Scores of several methods on many data sets -> average ranks, win rates, and significant differences.

Scores of different data sets cannot be averaged; ranks can. Methods whose average ranks differ by less than the
critical difference do not differ significantly. Demsar, "Statistical Comparisons of Classifiers over Multiple Data
Sets", JMLR 2006.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from glayers.arrays import Floats, to_floats
from glayers.checks import check_switch, number_between
from glayers.errors import BadPredictions
from glayers.text_tables import markdown_table

__all__ = ["MethodRanks", "rank_methods"]


@dataclass(frozen=True)
class MethodRanks:
    """Average ranks of methods and what follows from them. Demsar, JMLR 2006.

    Attributes
    ----------
    average_ranks
        1 for the best; best method first.
    win_rates
        `win_rates[a][b]` is the share of data sets on which a beats b; a tie counts half.
    p_value
        Of the hypothesis that all methods rank alike (Friedman, 1937).
    critical_difference
        The smallest significant difference of average ranks (Nemenyi, 1963).
    groups
        The largest sets of methods without significant differences.
    n_datasets, level
        The number of data sets, and the level of the comparison.
    """

    average_ranks: dict[str, float]
    win_rates: dict[str, dict[str, float]]
    p_value: float
    critical_difference: float
    groups: tuple[tuple[str, ...], ...]
    n_datasets: int
    level: float

    def statement(self) -> str:
        """Say in a sentence which method is best, and which do not differ from it significantly."""
        best, *others = self.average_ranks
        alike = {name for group in self.groups if best in group for name in group} - {best}
        worse = [name for name in others if name not in alike]
        head = f"over {self.n_datasets} data sets {best} ranks best ({self.average_ranks[best]:.2f} on average)"
        ahead = f"significantly ahead of {_listed(worse) if worse else 'no method'}"
        rest = [name for name in others if name in alike]
        same = f", without a significant difference to {_listed(rest)}" if rest else ""
        test = f"critical difference {self.critical_difference:.2f} at level {1 - self.level:.2g}"
        return f"{head}, {ahead}{same}; {test}, Friedman p = {self.p_value:.2g}"

    def to_markdown(self) -> str:
        """Return a Markdown table, best method first: its average rank, and its win rate against each other method."""
        names = list(self.average_ranks)
        lines = [["method", "average rank", *(f"beats {name}" for name in names)]]
        for name in names:
            rates = ["" if other == name else f"{100 * self.win_rates[name][other]:.0f} %" for other in names]
            lines.append([name, f"{self.average_ranks[name]:.2f}", *rates])
        return markdown_table(lines)

    def __str__(self) -> str:
        return self.statement()


def rank_methods(
    scores: Mapping[str, Mapping[str, float]], *, lower_is_better: bool = True, level: float = 0.95
) -> MethodRanks:
    """Rank methods by their scores on each data set.

    Parameters
    ----------
    scores
        {data set: {method: score}}, with every method on every data set.
    lower_is_better
        Whether a low score is good.
    level
        The level of the comparison.

    Returns
    -------
    MethodRanks
        Friedman's test, and Nemenyi's critical difference q sqrt(m (m + 1) / 12 n) for m methods on n data sets, with q
        from the studentized range. Demsar, JMLR 2006.

    Examples
    --------
    >>> nll = {"a": {"none": 0.5, "temperature": 0.4}, "b": {"none": 0.7, "temperature": 0.6}}
    >>> rank_methods(nll).average_ranks
    {'temperature': 1.0, 'none': 2.0}
    """
    from scipy.stats import rankdata, studentized_range  # on first use: importing it takes longer than glayers

    number_between(level, "level", 0, 1)
    methods, table = _table(scores)
    if not check_switch(lower_is_better, "lower_is_better"):
        table = -table
    ranks = rankdata(table, axis=1)
    averages = ranks.mean(axis=0)
    order = [int(i) for i in np.argsort(averages, kind="stable")]
    quantile = float(studentized_range.ppf(level, len(methods), math.inf))
    difference = quantile * math.sqrt(len(methods) * (len(methods) + 1) / (12 * len(table)))
    ahead = ranks[:, :, None] < ranks[:, None]
    level_with = ranks[:, :, None] == ranks[:, None]
    wins = (ahead + 0.5 * level_with).mean(axis=0)
    return MethodRanks(
        average_ranks={methods[i]: float(averages[i]) for i in order},
        win_rates={methods[i]: {methods[j]: float(wins[i, j]) for j in order if j != i} for i in order},
        p_value=_friedman(ranks),
        critical_difference=difference,
        groups=_groups([methods[i] for i in order], averages[order], difference),
        n_datasets=len(table),
        level=level,
    )


def _table(scores: Mapping[str, Mapping[str, float]]) -> tuple[list[str], Floats]:
    """Return the methods and their scores (data sets, methods), or say what is missing."""
    if not isinstance(scores, Mapping) or not all(isinstance(row, Mapping) for row in scores.values()):
        raise BadPredictions(f"scores must be a dict of dicts, {{data set: {{method: score}}}}; got {scores!r:.60}")
    if len(scores) < 2:
        raise BadPredictions(f"ranking needs at least 2 data sets; got {list(scores)}")
    methods = list(next(iter(scores.values())))
    if len(methods) < 2:
        raise BadPredictions(f"ranking needs at least 2 methods; got {methods}")
    for dataset, row in scores.items():
        odd = set(methods) ^ set(row)
        if odd:
            raise BadPredictions(
                f"every data set must have a score of every method; {dataset!r} and the first differ in "
                f"{sorted(odd, key=str)}"
            )
    table = to_floats([[row[method] for method in methods] for row in scores.values()], "scores").astype(np.float64)
    if table.ndim != 2:
        raise BadPredictions(f"scores must be one number for each method and data set; got shape {table.shape}")
    if np.isnan(table).any():
        row, column = np.argwhere(np.isnan(table))[0]
        raise BadPredictions(f"scores must be numbers; {list(scores)[row]!r} has NaN for {methods[column]!r}")
    return methods, table


def _friedman(ranks: Floats) -> float:
    """P-value of the hypothesis that all methods are alike, corrected for ties; SciPy's needs 3 methods or more."""
    from scipy.stats import chi2  # on first use: importing it takes longer than importing glayers

    n_datasets, n_methods = ranks.shape
    middle = (n_methods + 1) / 2
    spread = float(((ranks - middle) ** 2).sum()) / (n_methods - 1)
    if spread == 0:  # every method ties with every other everywhere
        return 1.0
    statistic = float(((ranks.sum(axis=0) - n_datasets * middle) ** 2).sum()) / spread
    return float(chi2.sf(statistic, n_methods - 1))


def _groups(methods: list[str], averages: Floats, difference: float) -> tuple[tuple[str, ...], ...]:
    """Return the largest runs of methods, in order of rank, whose first and last differ by less than the difference."""
    ends = np.searchsorted(averages, averages + difference, side="left")
    ends = np.maximum(ends, np.arange(1, len(methods) + 1))
    longer = np.diff(ends, prepend=0) > 0  # a run that ends where an earlier one ends is part of it
    return tuple(tuple(methods[first : ends[first]]) for first in np.flatnonzero(longer))


def _listed(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
