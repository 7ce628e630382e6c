"""Committed results of the studies -> the figures of the paper, with the same bytes every time.

Run: python -m experiments.paper.studies.figures [--results DIR] [--output DIR] [--only sizes]
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.paper.studies.drawing import (
    WORDS,
    different,
    draw_cumulative,
    draw_methods,
    ks_curves_of,
    log_scale,
    named,
    read_records,
    save_small,
    where,
)
from experiments.paper.studies.plots import DASHES, MARKERS, SERIES, draw_sizes, seed_curves, training_figure
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from glayers.report.figures import gap_spec
from glayers.report.plots import COLOURS, draw, dress, grid, style, tidy, title

RESULTS = Path(__file__).parents[2] / "results"
OUTPUT = Path(__file__).parents[3] / "docs" / "figures" / "paper"
BEFORE_AND_AFTER = ("uncalibrated", "temperature", "g-layers", "shared-g-layers", "auto")
BY_SIZE = ("temperature", "vector", "dirichlet", "g-layers-paper", "g-layers", "shared-g-layers", "auto")
START_NAMES = {"transparent": "transparent", "glorot": "Glorot"}
SMALL = (2.35, 2.5)  # inches per panel, for several side by side


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the chosen figures, by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=list(PICTURES), default=list(PICTURES))
    chosen = parser.parse_args(arguments)
    chosen.output.mkdir(parents=True, exist_ok=True)
    for name in chosen.only:
        file = chosen.output / f"{name}.png"
        save_small(PICTURES[name](chosen.results), file)
        print(file)
    return 0


def training(results: Path) -> Figure:
    """Three layers from both starts, through training."""
    records = where(read_records(results / "starts.csv"), depth=3, units=3)
    return training_figure([record | {"start": START_NAMES[record["start"]]} for record in records])


def widths(results: Path) -> Figure:
    """Accuracy through training from both starts, at every depth and width."""
    # The first size in the file is the one of the search.
    records = sorted(where(read_records(results / "starts.csv"), set="test"), key=lambda r: (r["depth"], r["units"]))
    epochs = sorted({record["epochs"] for record in where(records, depth=records[0]["depth"])})
    depths, units = different(records, "depth"), different(records, "units")
    with style():
        figure, panels = grid(len(depths), columns=5, size=(2.05, 2.6))
        for panel in panels[1:]:
            panel.sharey(panels[0])
        for panel, depth in zip(panels, depths, strict=True):
            shown = [record for record in where(records, depth=depth) if record["epochs"] in epochs]
            for found in seed_curves(shown, "accuracy", x="epochs", by=["start", "units"]):
                start, width = found.name
                place = [epochs.index(epoch) for epoch in found.x]
                panel.plot(
                    place,
                    found.low,
                    color=SERIES[0 if start == "transparent" else 1],
                    linestyle=DASHES[0 if start == "transparent" else 1],
                    marker=MARKERS[units.index(width)],
                    linewidth=1.2,
                    label=f"{START_NAMES[str(start)]}, {f'h = {width}' if width else 'no hidden units'}",
                )
            panel.set_xticks(range(len(epochs)), [f"{epoch:g}" for epoch in epochs])
            panel.set_xlabel("epochs")
            panel.set_ylabel("accuracy, %, lowest of seeds")
            dress(panel)
            title(panel, f"{depth} layer{'s' if depth > 1 else ''}")
            panel.tick_params(labelleft=panel is panels[0])
        return tidy(figure, panels, columns=5)


def sizes(results: Path) -> Figure:
    """KS and accuracy against the number of weights, network by network."""
    records = where(read_records(results / "sizes.csv"), search="3 layers")
    networks = different(records, "network")
    with style():
        figure, panels = grid(2 * len(networks), columns=len(networks), size=(2.9, 2.5))
        for place, panel in enumerate(panels):
            metric, network = ("ks", "accuracy")[place // len(networks)], networks[place % len(networks)]
            curves = seed_curves(where(records, network=network), metric, x="weights", by=["depth"])
            draw_sizes(panel, curves, ylabel=WORDS[metric])
            title(panel, named(network) if place < len(networks) else "")
        return tidy(figure, panels, columns=len(networks))


def ranks(results: Path) -> Figure:
    """KS of each rank before and after, network by network, above the bound for a calibrated model."""
    records = read_records(results / "ranks.csv")
    networks = different(records, "network")
    with style():
        figure, panels = grid(len(networks), size=(SMALL[0], 2.8))
        for panel in panels[1:]:
            panel.sharey(panels[0])
        for panel, network in zip(panels, networks, strict=True):
            mine = [record for record in where(records, network=network) if record["ks"] > 0]
            bounds = where(mine, method="temperature")
            x, bound = ([record[column] for record in bounds] for column in ("rank", "bound"))
            panel.fill_between(x, 1e-3, bound, color=COLOURS["band"], alpha=0.5, linewidth=0, label="within chance")
            draw_methods(panel, mine, "ks", "rank", BEFORE_AND_AFTER)
            log_scale(panel)
            panel.set_ylim(3e-3, None)
            panel.set_xticks([1, 3, 5, 7, 9])
            title(panel, named(network))
            panel.tick_params(labelleft=panel is panels[0])
        return tidy(figure, panels)


def cumulative(results: Path) -> Figure:
    """Cumulative score and cumulative hits of the top class, with the gap below."""
    records = read_records(results / "curves.csv")
    methods = different(records, "method")
    with style():
        figure, panels = grid(2 * len(methods), columns=len(methods), size=(2.3, 2.0))
        for place, panel in enumerate(panels):
            method = methods[place % len(methods)]
            found = ks_curves_of(where(records, method=method))
            if place < len(methods):
                draw_cumulative(panel, found)
                title(panel, method)
            else:
                draw(panel, gap_spec(found))
        return tidy(figure, panels, columns=len(methods))


def set_size(results: Path) -> Figure:
    """NLL and KS by the number of calibration rows, mean over networks and draws."""
    records = read_records(results / "set_size.csv")
    rows = different(records, "rows")
    with style():
        figure, panels = grid(2, size=(4.2, 3.4))
        for panel, metric in zip(panels, ("nll", "ks"), strict=True):
            draw_methods(panel, records, metric, "rows", BY_SIZE)
            panel.set_xscale("log")
            panel.set_xticks(rows, [f"{int(n):,}" for n in rows])
            panel.xaxis.set_minor_formatter(NullFormatter())
            panel.set_xlabel("calibration rows")
        return tidy(figure, panels, columns=1)


def checkpoints(results: Path) -> Figure:
    """KS and NLL before and after calibration, epoch by epoch, bars are 95 % intervals."""
    # A bootstrap interval says nothing about an error within sampling noise, so such a point has no bar.
    records = [
        record | ({"ks_low": record["ks"], "ks_high": record["ks"]} if record["ks_p_value"] > 0.05 else {})
        for record in read_records(results / "networks.csv")
        if record["method"] in BEFORE_AND_AFTER
    ]
    networks = different(records, "network")
    with style():
        figure, panels = grid(2 * len(networks), columns=len(networks), size=SMALL)
        for place, panel in enumerate(panels):
            metric, network = ("ks", "nll")[place // len(networks)], networks[place % len(networks)]
            mine = where(records, network=network)
            epochs = different(mine, "checkpoint")
            if metric == "ks":
                bounds = [record["ks_bound"] for record in where(mine, method="temperature")]
                panel.fill_between(
                    range(len(epochs)), 0, bounds, color=COLOURS["band"], alpha=0.5, linewidth=0, label="within chance"
                )
            numbered = [record | {"place": epochs.index(record["checkpoint"])} for record in mine]
            draw_methods(panel, numbered, metric, "place", BEFORE_AND_AFTER, ends=True)
            panel.set_xticks(range(len(epochs)), [f"{epoch:g}" for epoch in epochs])
            panel.set_xlabel("epoch")
            if metric == "ks":
                panel.set_ylim(0, None)
            title(panel, named(network) if place < len(networks) else "")
        return tidy(figure, panels, columns=len(networks))


PICTURES: dict[str, Callable[[Path], Figure]] = {
    "training": training,
    "widths": widths,
    "sizes": sizes,
    "ranks": ranks,
    "cumulative": cumulative,
    "set-size": set_size,
    "checkpoints": checkpoints,
}


if __name__ == "__main__":
    main()
