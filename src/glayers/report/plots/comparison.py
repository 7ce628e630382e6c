"""Paired differences and method ranks -> Axes: which method is better, and whether the difference is significant."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from glayers.errors import GlayersError
from glayers.metrics import METRICS, Difference, MethodRanks, PairedDifferences, paired_differences
from glayers.report import shortened
from glayers.report.plots.style import LIGHT, PANEL, SMALL, Methods, Palette, check_methods, dress, grid, style

__all__ = [
    "critical_difference_figure",
    "differences_figure",
    "draw_critical_difference",
    "draw_forest",
    "forest_figure",
]

# Heights in a critical-difference diagram: between two names, and of the ruler above the axis.
_STEP, _RULER = 0.5, 0.95
_RANKS_WIDTH = 2.2 * PANEL
_LETTER = 0.075  # inches
_LONGEST_NAME = 30  # letters


def differences_figure(
    methods: Methods,
    labels: object = None,
    *,
    sample_weight: object = None,
    dark: bool = False,
    metrics: tuple[str, ...] = ("nll", "ks", "accuracy"),
    n_resamples: int = 1000,
    random_state: int = 0,
) -> Figure:
    """Draw how each method differs from the first, with paired bootstrap intervals.

    Parameters
    ----------
    methods, labels, sample_weight, dark
        As in `reliability_figure`.
    metrics
        Names of metrics; one panel each.
    n_resamples, random_state
        The number of resamples and their seed.

    Returns
    -------
    Figure
        One panel per metric.

    Examples
    --------
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]] * 5
    >>> q = [[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]] * 5
    >>> len(differences_figure({"before": p, "after": q}, [0, 1, 0] * 5, metrics=("nll",), n_resamples=99).axes)
    1
    """
    check_methods(methods, least=2)
    draws: dict[str, Any] = {"n_resamples": n_resamples, "random_state": random_state}
    found = paired_differences(methods, labels, sample_weight=sample_weight, metrics=metrics, **draws)
    return forest_figure(found, against=next(iter(methods)), dark=dark)


def forest_figure(found: PairedDifferences, *, against: str | None = None, dark: bool = False) -> Figure:
    """Draw the differences of all methods from one of them.

    Parameters
    ----------
    found
        What `paired_differences` returned.
    against
        The name of the method to compare with; the first by default.
    dark
        Whether to draw light lines on a dark ground.

    Returns
    -------
    Figure
        One panel per metric; filled marks are significant.

    Examples
    --------
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]] * 5
    >>> q = [[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]] * 5
    >>> found = paired_differences({"p": p, "q": q}, [0, 1, 0] * 5, metrics=["nll"], n_resamples=99)
    >>> len(forest_figure(found).axes)
    1
    """
    names = dict.fromkeys(name for difference in found.differences for name in (difference.against, difference.method))
    reference = next(iter(names)) if against is None else against
    if reference not in names:
        raise GlayersError(f"no method is compared with {reference!r}")
    by_metric = [
        [found.between(metric, name, reference) for name in names if name != reference]
        for metric in dict.fromkeys(difference.metric for difference in found.differences)
    ]
    with style(dark) as palette:
        figure, panels = grid(len(by_metric), palette, size=(0.95 * PANEL, 0.4 * len(names) + 0.5), share_y=True)
        for place, (panel, differences) in enumerate(zip(panels, by_metric, strict=True)):
            draw_forest(panel.main, differences, palette=palette)
            panel.main.tick_params(labelleft=place == 0)
        name = shortened(reference, _LONGEST_NAME)
        words = f"difference from {name}, {100 * found.level:g} % intervals; filled where significant"
        figure.suptitle(words, fontsize=11, color=palette.ink, parse_math=False)
        return figure


def critical_difference_figure(ranks: MethodRanks, *, dark: bool = False) -> Figure:
    """Draw methods along their average ranks over data sets, with a bar across those that do not differ significantly.

    Parameters
    ----------
    ranks
        What `rank_methods` returned.
    dark
        Whether to draw light lines on a dark ground.

    Returns
    -------
    Figure
        A critical-difference diagram. Demsar, JMLR 2006.

    Examples
    --------
    >>> from glayers.metrics import rank_methods
    >>> nll = {"a": {"none": 0.5, "temperature": 0.4}, "b": {"none": 0.7, "temperature": 0.6}}
    >>> len(critical_difference_figure(rank_methods(nll)).axes)
    1
    """
    half = (len(ranks.average_ranks) + 1) // 2
    with style(dark) as palette:
        figure, panels = grid(1, palette, size=(_RANKS_WIDTH, 1.0 + 0.36 * half))
        draw_critical_difference(panels[0].main, ranks, inches=_RANKS_WIDTH, palette=palette)
        return figure


def draw_forest(axes: Axes, differences: Sequence[Difference], *, palette: Palette = LIGHT) -> Axes:
    """Draw each difference with its interval, the first at the top; filled where significant, hollow where not.

    Parameters
    ----------
    axes
        The Axes to draw on.
    differences
        Differences in one metric, as `paired_differences` returns them; percentages are drawn in points.
    palette
        `LIGHT` or `DARK`, as `style` gives it.

    Returns
    -------
    Axes
        The same Axes.

    Examples
    --------
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]] * 5
    >>> q = [[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]] * 5
    >>> found = paired_differences({"p": p, "q": q}, [0, 1, 0] * 5, metrics=["nll"], n_resamples=99)
    >>> draw_forest(Figure().add_subplot(), found.differences).get_xlabel()
    'NLL'
    """
    metric = METRICS[differences[0].metric]
    label, scale = (f"{metric.short_label}, points", 100) if metric.unit == "percent" else (metric.short_label, 1)
    for place, found in enumerate(differences):
        value, low, high = (scale * number for number in found.interval[:3])
        axes.plot([low, high], [place, place], color=palette.score, linewidth=2.2, solid_capstyle="butt")
        marker, size, fill = ("o", 7, palette.score) if found.significant else ("D", 6, palette.background)
        edge: dict[str, Any] = {"markeredgecolor": palette.score, "markeredgewidth": 1.5}
        axes.plot(value, place, marker, color=fill, markersize=size, **edge)
    axes.axvline(0, color=palette.ink, linewidth=1.2, linestyle="--")
    names = [shortened(found.method, _LONGEST_NAME) for found in differences]
    axes.set_yticks(range(len(differences)), names, parse_math=False)
    axes.set_ylim(len(differences) - 0.4, -0.6)
    dress(axes, palette, x=label)
    axes.tick_params(axis="y", length=0)
    return axes


def draw_critical_difference(axes: Axes, ranks: MethodRanks, *, inches: float = 6.6, palette: Palette = LIGHT) -> Axes:
    """Draw methods along their average ranks, best at the left; a bar joins those that do not differ significantly.

    Parameters
    ----------
    axes
        The Axes to draw on.
    ranks
        What `rank_methods` returned. Demsar, JMLR 2006.
    inches
        The width of the Axes, which ranks and names have to fit.
    palette
        `LIGHT` or `DARK`, as `style` gives it.

    Returns
    -------
    Axes
        The same Axes.

    Examples
    --------
    >>> from glayers.metrics import rank_methods
    >>> ranks = rank_methods({"a": {"none": 0.5, "temperature": 0.4}, "b": {"none": 0.7, "temperature": 0.6}})
    >>> draw_critical_difference(Figure().add_subplot(), ranks).axison
    False
    """
    names = list(ranks.average_ranks)
    write = partial(axes.text, fontsize=SMALL, color=palette.ink, parse_math=False)
    last, half = len(names), (len(names) + 1) // 2
    arm = 0.12 * last
    axes.plot([1, last], [0, 0], color=palette.ink, linewidth=1.4)
    for tick in range(1, last + 1):
        axes.plot([tick, tick], [0, 0.18], color=palette.ink, linewidth=1.2)
        write(tick, 0.24, str(tick), ha="center", va="bottom")
    lowest = -0.25  # the bars of groups lie one below the other
    for group in (group for group in ranks.groups if len(group) > 1):
        ends = ranks.average_ranks[group[0]] - 0.04, ranks.average_ranks[group[-1]] + 0.04
        axes.plot(ends, [lowest, lowest], color=palette.truth, linewidth=4, solid_capstyle="butt")
        lowest -= 0.22
    for place, name in enumerate(names):
        left = place < half
        y = lowest - _STEP * (place + 1 if left else last - place)
        end, side = (1 - arm, "right") if left else (last + arm, "left")
        rank = ranks.average_ranks[name]
        axes.plot([rank, rank, end], [0, y, y], color=palette.ink, linewidth=1.1)
        write(end, y, f"{name}  {rank:.2f} " if left else f" {rank:.2f}  {name}", ha=side, va="center")
    axes.plot([1, 1 + ranks.critical_difference], [_RULER, _RULER], color=palette.truth, linewidth=3)
    write(1, _RULER + 0.1, f"critical difference {ranks.critical_difference:.2f}", ha="left", va="bottom")
    axes.set_ylim(lowest - _STEP * (half + 0.6), _RULER + 0.6)
    before, after = (_LETTER * (max(map(len, part), default=0) + 8) for part in (names[:half], names[half:]))
    ranks_per_inch = (last - 1 + 2 * arm) / max(1.0, inches - before - after)
    axes.set_xlim(1 - arm - before * ranks_per_inch, last + arm + after * ranks_per_inch)
    axes.set_axis_off()
    return axes
