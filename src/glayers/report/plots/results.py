"""Results of experiments and comparisons -> whole figures: sizes, training, differences, ranks."""

from collections.abc import Iterable, Mapping

from matplotlib.figure import Figure

from glayers.errors import GlayersError
from glayers.metrics import MethodRanks, PairedDifferences
from glayers.metrics.wording import metric_words
from glayers.report.curves import seed_curves
from glayers.report.names import shortened
from glayers.report.plots.comparison import draw_critical_difference, draw_forest
from glayers.report.plots.layout import PANEL, grid, tidy
from glayers.report.plots.style import style
from glayers.report.plots.training import draw_sizes, draw_training

_IN_POINTS = {"nll": 1.0, "brier": 1.0, "brier_sum": 1.0}  # everything else is a share, and shown times 100

_RANKS_WIDTH = 2.2 * PANEL


def sizes_figure(
    records: Iterable[Mapping[str, object]], *, metrics: tuple[str, ...] = ("ks", "accuracy"), dark: bool = False
) -> Figure:
    """Metrics against the number of weights, coloured by depth, bars from seed to seed.

    A record holds `weights`, `depth` and the metrics, in percent where they are shares; seeds are repeated records.
    """
    rows = list(records)
    with style(dark) as palette:
        figure, panels = grid(len(metrics), palette)
        for panel, metric in zip(panels, metrics, strict=True):
            curves = seed_curves(rows, metric, x="weights", by=["depth"])
            draw_sizes(panel.main, curves, ylabel=_axis_words(metric), palette=palette)
        return tidy(figure, panels, palette, columns=1)


def training_figure(
    records: Iterable[Mapping[str, object]], *, metrics: tuple[str, ...] = ("nll", "ks", "accuracy"), dark: bool = False
) -> Figure:
    """Metrics through training, one start and set a curve.

    A record holds `start`, `set`, `percent` (of training, 0 to 100) and the metrics; seeds are repeated records.
    """
    rows = list(records)
    with style(dark) as palette:
        figure, panels = grid(len(metrics), palette)
        for panel, metric in zip(panels, metrics, strict=True):
            curves = seed_curves(rows, metric, x="percent", by=["start", "set"])
            draw_training(panel.main, curves, ylabel=_axis_words(metric), palette=palette)
        return tidy(figure, panels, palette, columns=1)


def forest_figure(found: PairedDifferences, *, against: str | None = None, dark: bool = False) -> Figure:
    """Differences of all methods against one, the first unless named, a panel for each metric."""
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
        name = shortened(reference, 30)
        words = f"difference from {name}, {100 * found.level:g} % intervals; filled where significant"
        figure.suptitle(words, fontsize=11, color=palette.ink, parse_math=False)
        return figure


def critical_difference_figure(ranks: MethodRanks, *, dark: bool = False) -> Figure:
    """Methods along their average ranks over data sets, a bar across those not told apart."""
    with style(dark) as palette:
        half = (len(ranks.average_ranks) + 1) // 2
        figure, panels = grid(1, palette, size=(_RANKS_WIDTH, 1.0 + 0.36 * half))
        draw_critical_difference(panels[0].main, ranks, inches=_RANKS_WIDTH, palette=palette)
        return figure


def _axis_words(metric: str) -> str:
    return metric_words(metric) if metric in _IN_POINTS else f"{metric_words(metric)}, %"
