"""Paired differences and method ranks -> Axes: which method is better, and whether the difference is significant."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from glayers.errors import GlayersError
from glayers.metrics.old import Difference, MethodRanks, PairedDifferences, paired_differences
from glayers.metrics.old.wording import metric_words
from glayers.report import shortened
from glayers.report.plots.style import LIGHT, PANEL, SMALL, Methods, Palette, check_methods, dress, grid, style

# Heights in a critical-difference diagram: between two names, and of the ruler above the axis.
_STEP, _RULER = 0.5, 0.95
_RANKS_WIDTH = 2.2 * PANEL
_LETTER = 0.075  # inches
_LONGEST_NAME = 30  # letters
_IN_POINTS = {"nll": 1.0, "brier": 1.0, "brier_sum": 1.0}  # all others are fractions, shown times 100


def differences_figure(
    methods: Methods,
    labels: object,
    weights: object = None,
    *,
    dark: bool = False,
    metrics: tuple[str, ...] = ("nll", "ks", "accuracy"),
    n_resamples: int = 1000,
    random_state: int = 0,
) -> Figure:
    """How each method differs from the first, with paired bootstrap intervals."""
    check_methods(methods, least=2)
    found = paired_differences(
        methods, labels, weights, metrics=metrics, n_resamples=n_resamples, random_state=random_state
    )
    return forest_figure(found, against=next(iter(methods)), dark=dark)


def forest_figure(found: PairedDifferences, *, against: str | None = None, dark: bool = False) -> Figure:
    """Differences of all methods from one, the first by default, with one panel per metric."""
    reference = found.differences[0].against if against is None else against
    by_metric = {
        metric: [
            difference if difference.against == reference else difference.reversed()
            for difference in found.differences
            if difference.metric == metric and reference in (difference.method, difference.against)
        ]
        for metric in dict.fromkeys(difference.metric for difference in found.differences)
    }
    n_methods = max(map(len, by_metric.values()))
    if n_methods == 0:
        raise GlayersError(f"no method is compared with {reference!r}")
    with style(dark) as palette:
        figure, panels = grid(len(by_metric), palette, size=(0.95 * PANEL, 0.4 * n_methods + 0.9), share_y=True)
        for place, (panel, (metric, differences)) in enumerate(zip(panels, by_metric.items(), strict=True)):
            scale = _IN_POINTS.get(metric, 100.0)
            label = metric_words(metric) + ("" if scale == 1 else ", points")
            draw_forest(panel.main, differences, label=label, scale=scale, palette=palette)
            panel.main.tick_params(labelleft=place == 0)
        name = shortened(reference, _LONGEST_NAME)
        words = f"difference from {name}, {100 * found.level:g} % intervals; filled where significant"
        figure.suptitle(words, fontsize=11, color=palette.ink, parse_math=False)
        return figure


def critical_difference_figure(ranks: MethodRanks, *, dark: bool = False) -> Figure:
    """Methods along their average ranks over data sets, with a bar across those without a significant difference."""
    with style(dark) as palette:
        half = (len(ranks.average_ranks) + 1) // 2
        figure, panels = grid(1, palette, size=(_RANKS_WIDTH, 1.0 + 0.36 * half))
        draw_critical_difference(panels[0].main, ranks, inches=_RANKS_WIDTH, palette=palette)
        return figure


def draw_forest(
    axes: Axes, differences: Sequence[Difference], *, label: str, scale: float = 1.0, palette: Palette = LIGHT
) -> Axes:
    """Draw each difference with its interval, the first at the top; filled where significant, hollow where not."""
    for place, found in enumerate(differences):
        value, low, high = (scale * number for number in found.interval[:3])
        axes.plot([low, high], [place, place], color=palette.score, linewidth=2.2, solid_capstyle="butt")
        axes.plot(
            value,
            place,
            "o" if found.significant else "D",
            color=palette.score if found.significant else palette.background,
            markeredgecolor=palette.score,
            markeredgewidth=1.5,
            markersize=7 if found.significant else 6,
        )
    axes.axvline(0, color=palette.ink, linewidth=1.2, linestyle="--")
    names = [shortened(found.method, _LONGEST_NAME) for found in differences]
    axes.set_yticks(range(len(differences)), names, parse_math=False)
    axes.set_ylim(len(differences) - 0.4, -0.6)
    dress(axes, palette, x=label)
    axes.tick_params(axis="y", length=0)
    return axes


def draw_critical_difference(axes: Axes, ranks: MethodRanks, *, inches: float = 6.6, palette: Palette = LIGHT) -> Axes:
    """Draw methods along their average ranks, best at the left (Demsar, 2006).

    A bar joins methods without a significant difference. Ranks and names share `inches`.
    """
    names = list(ranks.average_ranks)
    last, half = len(names), (len(names) + 1) // 2
    arm = 0.12 * last
    axes.plot([1, last], [0, 0], color=palette.ink, linewidth=1.4)
    for tick in range(1, last + 1):
        axes.plot([tick, tick], [0, 0.18], color=palette.ink, linewidth=1.2)
        axes.text(tick, 0.24, str(tick), ha="center", va="bottom", fontsize=SMALL, color=palette.ink)
    deepest = _draw_groups(axes, ranks, palette)
    for place, name in enumerate(names):
        left = place < half
        y = deepest - _STEP * (place + 1 if left else last - place)
        end, side = (1 - arm, "right") if left else (last + arm, "left")
        rank = ranks.average_ranks[name]
        axes.plot([rank, rank, end], [0, y, y], color=palette.ink, linewidth=1.1)
        words = f"{name}  {rank:.2f} " if left else f" {rank:.2f}  {name}"
        axes.text(end, y, words, ha=side, va="center", fontsize=SMALL, color=palette.ink, parse_math=False)
    axes.plot([1, 1 + ranks.critical_difference], [_RULER, _RULER], color=palette.truth, linewidth=3)
    words = f"critical difference {ranks.critical_difference:.2f}"
    axes.text(1, _RULER + 0.1, words, ha="left", va="bottom", fontsize=SMALL, color=palette.ink)
    axes.set_ylim(deepest - _STEP * (half + 0.6), _RULER + 0.6)
    before, after = (_LETTER * (max(map(len, part), default=0) + 8) for part in (names[:half], names[half:]))
    ranks_per_inch = (last - 1 + 2 * arm) / max(1.0, inches - before - after)
    axes.set_xlim(1 - arm - before * ranks_per_inch, last + arm + after * ranks_per_inch)
    axes.set_axis_off()
    return axes


def _draw_groups(axes: Axes, ranks: MethodRanks, palette: Palette) -> float:
    """Draw a bar across every group of two or more, one below the other, and return the height of the lowest."""
    groups = [group for group in ranks.groups if len(group) > 1]
    for place, group in enumerate(groups):
        ends = ranks.average_ranks[group[0]] - 0.04, ranks.average_ranks[group[-1]] + 0.04
        y = -0.25 - 0.22 * place
        axes.plot(ends, [y, y], color=palette.truth, linewidth=4, solid_capstyle="butt")
    return -0.25 - 0.22 * len(groups)
