"""KS curves -> Axes: what a model says and what happens, against the fractile of rows or against the score."""

from matplotlib.axes import Axes

from glayers.report.curves import KsCurves
from glayers.report.plots.style import LIGHT, SMALL, Palette, band_words, dress, percent_axis

_LEAST_REACH = 1e-4  # of an axis, for a model that is sure and right of all
_SAYS, _HAPPENS = "score: what it says", "what happens"


def draw_cumulative(axes: Axes, found: KsCurves, *, palette: Palette = LIGHT) -> Axes:
    """Draw cumulative score and cumulative hits against fractile, with the KS error marked where it is."""
    low, high = found.cumulative_score - found.bound, found.cumulative_score + found.bound
    axes.fill_between(
        found.fractile, low, high, color=palette.band, alpha=0.6, linewidth=0, label=band_words(found.level)
    )
    axes.plot(found.fractile, found.cumulative_score, "--", color=palette.score, label=_SAYS)
    axes.plot(found.fractile, found.cumulative_hits, color=palette.truth, label=_HAPPENS)
    at = found.fractile[found.where]
    ends = found.cumulative_score[found.where], found.cumulative_hits[found.where]
    axes.plot([at, at], ends, color=palette.ink, linewidth=2.4, zorder=4, clip_on=False)
    axes.set_ylim(0, 1.05 * max(*high, *found.cumulative_hits, _LEAST_REACH))
    _write_ks(axes, found, palette)
    axes.set_ylabel("cumulative, %")
    return _against_fractile(axes, palette)


def draw_gap(axes: Axes, found: KsCurves, *, palette: Palette = LIGHT) -> Axes:
    """Draw cumulative hits minus score against fractile: leaving the band anywhere is being miscalibrated."""
    axes.axhspan(-found.bound, found.bound, color=palette.band, alpha=0.6, linewidth=0, label=band_words(found.level))
    axes.axhline(0, color=palette.score, linestyle="--", linewidth=1.4)
    gap = found.cumulative_hits - found.cumulative_score
    axes.plot(found.fractile, gap, color=palette.truth, label="what happens minus what it says")
    at = found.fractile[found.where]
    axes.plot([at, at], [0, gap[found.where]], color=palette.ink, linewidth=2.4, zorder=4, clip_on=False)
    reach = 1.15 * max(found.ks, found.bound, _LEAST_REACH)
    axes.set_ylim(-reach, reach)
    axes.set_ylabel("gap, %")
    return _against_fractile(axes, palette)


def draw_rates(axes: Axes, found: KsCurves, *, palette: Palette = LIGHT) -> Axes:
    """Draw score and spline-smoothed probability against fractile."""
    axes.plot(found.fractile, found.score, "--", color=palette.score, label=_SAYS)
    axes.plot(found.fractile, found.hit_rate, color=palette.truth, label=_HAPPENS)
    axes.fill_between(found.fractile, found.score, found.hit_rate, color=palette.truth, alpha=0.2, linewidth=0)
    _write_ks(axes, found, palette, low=float(found.score.mean()) > 0.5)
    axes.set_ylabel("probability, %")
    axes.set_ylim(0, 1.02)
    return _against_fractile(axes, palette)


def draw_against_score(axes: Axes, found: KsCurves, *, palette: Palette = LIGHT) -> Axes:
    """Draw score and spline-smoothed probability against score."""
    axes.plot(found.score, found.score, "--", color=palette.score, label=_SAYS)
    axes.plot(found.score, found.hit_rate, color=palette.truth, label=_HAPPENS)
    axes.fill_between(found.score, found.score, found.hit_rate, color=palette.truth, alpha=0.2, linewidth=0)
    _write_ks(axes, found, palette, low=float((found.hit_rate - found.score).mean()) > 0.05)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(0, 1)
    axes.set_xlabel("score, %")
    axes.set_ylabel("probability, %")
    dress(axes, palette)
    percent_axis(axes, "x")
    return percent_axis(axes, "y")


def ks_words(found: KsCurves) -> str:
    """Say the KS error and what a calibrated model shows, in percent.

    >>> from glayers.report.curves import ks_curves
    >>> print(ks_words(ks_curves([0.7] * 100, [True] * 55 + [False] * 45)))
    KS 15.00 %
    calibrated ≤ 9.65 %
    """
    return f"KS {100 * found.ks:.2f} %\ncalibrated ≤ {100 * found.bound:.2f} %"


def _write_ks(axes: Axes, found: KsCurves, palette: Palette, *, low: bool = False) -> None:
    """Write the KS error into the upper left corner, or into the lower right where curves take the other."""
    x, y = (0.97, 0.04) if low else (0.04, 0.96)
    axes.text(
        x,
        y,
        ks_words(found),
        transform=axes.transAxes,
        ha="right" if low else "left",
        va="bottom" if low else "top",
        fontsize=SMALL,
        color=palette.ink,
        bbox={"facecolor": palette.background, "edgecolor": "none", "alpha": 0.75, "pad": 1.5},
    )


def _against_fractile(axes: Axes, palette: Palette) -> Axes:
    axes.set_xlim(0, 1)
    axes.set_xlabel("fractile, %")
    dress(axes, palette)
    percent_axis(axes, "x")
    return percent_axis(axes, "y")
