"""Paired differences and method ranks -> Axes: who is better than whom, and whether that is more than chance."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from glayers.metrics import Difference, MethodRanks
from glayers.report.names import shortened
from glayers.report.plots.style import LIGHT, SMALL, Palette, dress

# Of a critical-difference diagram, heights in units of its own: between two names, and of the ruler above the axis.
_STEP, _RULER = 0.5, 0.95
_LETTER = 0.075  # inches
_LONGEST_NAME = 30  # letters


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
    axes.set_xlabel(label)
    dress(axes, palette)
    axes.tick_params(axis="y", length=0)
    return axes


def draw_critical_difference(axes: Axes, ranks: MethodRanks, *, inches: float = 6.6, palette: Palette = LIGHT) -> Axes:
    """Draw methods along their average ranks, best at the left, a bar across those not told apart. Demsar, 2006.

    So many inches are shared between the ranks and the names at both sides.
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
    a_rank_an_inch = (last - 1 + 2 * arm) / max(1.0, inches - before - after)
    axes.set_xlim(1 - arm - before * a_rank_an_inch, last + arm + after * a_rank_an_inch)
    axes.set_axis_off()
    return axes


def _draw_groups(axes: Axes, ranks: MethodRanks, palette: Palette) -> float:
    """Draw a bar across every group of two or more, one below the other, and return how deep they reach."""
    groups = [group for group in ranks.groups if len(group) > 1]
    for place, group in enumerate(groups):
        ends = ranks.average_ranks[group[0]] - 0.04, ranks.average_ranks[group[-1]] + 0.04
        y = -0.25 - 0.22 * place
        axes.plot(ends, [y, y], color=palette.truth, linewidth=4, solid_capstyle="butt")
    return -0.25 - 0.22 * len(groups)
