"""Methods -> whole figures: one panel per method and event, or per metric, with one legend."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib.figure import Figure

from glayers.checks import check_choice, whole_number
from glayers.errors import BadPredictions, GlayersError
from glayers.metrics import (
    Event,
    PairedDifferences,
    ks_per_class,
    label,
    paired_differences,
    rank,
    top,
    within_top,
)
from glayers.metrics.events import check_event, check_rows
from glayers.report.curves import calibration_map, class_matrix
from glayers.report.curves.classes import class_probabilities
from glayers.report.figures import (
    EVENT_KINDS,
    EventCurves,
    calibration_map_spec,
    class_matrix_spec,
    forest_spec,
    strongest_gap,
)
from glayers.report.plots.drawing import draw
from glayers.report.plots.style import PANEL, grid, style, tidy, title
from glayers.report.spec import Spec
from glayers.report.words import shortened

__all__ = [
    "calibration_map_figure",
    "class_figure",
    "differences_figure",
    "event_figure",
    "forest_figure",
    "ks_panels",
    "overview_figure",
]

Methods: TypeAlias = Mapping[str, Any]
_EVENTS: dict[str, Callable[[Any], Event]] = {"rank": rank, "within_top": within_top, "label": label}
_LONGEST_NAME = 30  # letters


def figure_of(specs: Sequence[Spec], *, dark: bool = False, columns: int = 4, **layout: Any) -> Figure:
    """Draw specs side by side, each with its strip below, and collect their legends into one."""
    strip = specs[0].strip
    if strip is not None:
        layout |= {"strip": strip.view.height, "share_x": strip.view.x == specs[0].view.x}
    with style(dark) as palette:
        figure, panels = grid(len(specs), palette, columns=columns, **layout)
        for panel, spec in zip(panels, specs, strict=True):
            draw(panel.main, spec, palette=palette)
            if spec.strip is not None:
                draw(panel.strip, spec.strip, palette=palette)
            title(panel.main, spec.title, *spec.note.split("\n"))
            if layout.get("share_y"):
                panel.main.tick_params(labelleft=panel is panels[0])
        return tidy(figure, panels, columns=columns)


def event_figure(
    methods: Methods,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event | list[Event] = top,
    dark: bool = False,
    kind: str = "reliability",
    n_bins: int = 15,
) -> Figure:
    """Draw the reliability diagrams or the KS curves of one or more methods.

    Parameters
    ----------
    methods
        Array (n, k), `Predictions` or `Confidences` by name; one panel per method and event.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    sample_weight
        Row weights (n,).
    event
        `top`, `rank(r)`, `within_top(r)`, `label(c)` or `one_of(classes)`, or a list of them.
    dark
        Whether to draw light lines on a dark ground.
    kind
        "reliability" with bins of equal width, "reliability-equal-mass", "reliability-smooth" (kernel) or
        "reliability-corp" (isotonic); cumulative curves "ks", their gap "ks-gap", or score and smoothed probability
        against fraction of rows, "ks-fractile", or against score, "ks-score".
    n_bins
        The number of bins.

    Returns
    -------
    Figure
        One panel per method and event, several events of a method in one row. Save it with `figure.savefig(path)`.

    Examples
    --------
    >>> from glayers import Confidences
    >>> figure = event_figure({"model": Confidences([0.9, 0.6, 0.8], [True, False, True])}, n_bins=5)
    >>> len(figure.axes)  # the diagram, and the number of rows below it
    2
    """
    check_methods(methods)
    check_choice(kind, EVENT_KINDS, "kind")
    events = event if isinstance(event, list) else [event]
    if not events:
        raise BadPredictions("event must be one event or a list of events; the list is empty")
    specs = []
    for name, given in methods.items():
        for each in events:
            scored = check_event(given, labels, sample_weight, event=each)
            spec = replace(EVENT_KINDS[kind].spec(EventCurves(scored, n_bins)), title=name)
            if events != [top]:
                spec = replace(spec, note=f"{each.name}\n{spec.note}")
            specs.append(spec)
    if len(events) > 1:
        return figure_of(specs, dark=dark, columns=len(events))
    return figure_of(specs, dark=dark)


def ks_panels(
    methods: Methods,
    labels: object = None,
    *,
    sample_weight: object = None,
    dark: bool = False,
    kind: str = "ks",
    by: Literal["rank", "within_top", "label"] = "rank",
    r: int = 4,
) -> Figure:
    """Draw the KS curves of several events, with one row of panels per method.

    Parameters
    ----------
    methods, labels, sample_weight, dark, kind
        As in `event_figure`; `Confidences` do not suffice.
    by
        "rank": ranks 1 to r; "within_top": within the top 1 to r; "label": the r classes with the largest KS error of
        the first method.
    r
        The number of events.

    Returns
    -------
    Figure
        r panels per method.

    Examples
    --------
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]]
    >>> len(ks_panels({"model": p}, [0, 1, 0], kind="ks-gap", r=2).axes)
    2
    """
    check_methods(methods)
    check_choice(by, _EVENTS, "by")
    first = check_rows(next(iter(methods.values())), labels, sample_weight)
    r = min(whole_number(r, "r", least=1), first.n_classes)
    chosen: list[int | str] = list(range(1, r + 1))
    if by == "label":
        chosen = np.argsort(-ks_per_class(first), kind="stable")[:r].tolist()
        if first.class_names is not None:
            chosen = [first.class_names[int(c)] for c in chosen]
    events = [_EVENTS[by](number) for number in chosen]
    return event_figure(methods, labels, sample_weight=sample_weight, event=events, dark=dark, kind=kind)


def overview_figure(
    methods: Methods,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event = top,
    dark: bool = False,
    n_bins: int = 15,
) -> Figure:
    """Draw for every method its reliability diagram, and beside it predicted and observed probability by fractile.

    Parameters
    ----------
    methods, labels, sample_weight, event, dark, n_bins
        As in `event_figure`.

    Returns
    -------
    Figure
        One row of two panels per method.

    Examples
    --------
    >>> from glayers import Confidences
    >>> figure = overview_figure({"model": Confidences([0.9, 0.6, 0.8], [True, False, True])}, n_bins=5)
    >>> len(figure.axes)
    2
    """
    check_methods(methods)
    specs = []
    for name, given in methods.items():
        curves = EventCurves(check_event(given, labels, sample_weight, event=event), n_bins)
        both = [EVENT_KINDS[kind].spec(curves) for kind in ("reliability", "ks-fractile")]
        specs += [replace(spec, title=name, strip=None) for spec in both]
    return figure_of(specs, dark=dark, columns=2)


def calibration_map_figure(
    methods: Methods, labels: object = None, *, sample_weight: object = None, dark: bool = False
) -> Figure:
    """Draw how each of the other methods changes the probabilities of the first, for the top class and every class.

    Parameters
    ----------
    methods
        Array (n, k) or `Predictions` by name, the uncalibrated first.
    labels, sample_weight
        Not used; all figures are called alike.
    dark
        Whether to draw light lines on a dark ground.

    Returns
    -------
    Figure
        One panel for each method but the first.

    Examples
    --------
    >>> p = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2]])
    >>> len(calibration_map_figure({"before": p, "after": (p + 1) / 4}).axes)
    1
    """
    del labels, sample_weight
    check_methods(methods, least=2)
    (_, first), *others = methods.items()
    before = class_probabilities(first, "methods")
    specs = []
    for name, given in others:
        after = class_probabilities(given, "methods")
        classes = [calibration_map(before, after, c) for c in range(before.shape[1])]
        specs.append(replace(calibration_map_spec(calibration_map(before, after), classes), title=name))
    return figure_of(specs, dark=dark)


def class_figure(
    methods: Methods,
    labels: object = None,
    *,
    sample_weight: object = None,
    dark: bool = False,
    names: tuple[str, ...] | None = None,
) -> Figure:
    """Draw by predicted class how much the mean probability of each class exceeds its frequency.

    Parameters
    ----------
    methods, labels, sample_weight, dark
        As in `event_figure`; `Confidences` do not suffice.
    names
        The names of the classes.

    Returns
    -------
    Figure
        One matrix per method, each with the scale of its colours below.

    Examples
    --------
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]]
    >>> len(class_figure({"model": p}, [0, 1, 0], names=("a", "b", "c")).axes)  # the matrix and its scale
    2
    """
    check_methods(methods)
    found = {name: class_matrix(given, labels, sample_weight=sample_weight) for name, given in methods.items()}
    strongest = strongest_gap(list(found.values()))
    specs = [
        replace(class_matrix_spec(matrix, names, strongest=strongest), title=name) for name, matrix in found.items()
    ]
    return figure_of(specs, dark=dark, size=(3.6, 3.4))


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
        As in `event_figure`.
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
    metrics = dict.fromkeys(difference.metric for difference in found.differences)
    specs = [
        forest_spec([found.between(metric, name, reference) for name in names if name != reference])
        for metric in metrics
    ]
    figure = figure_of(specs, dark=dark, size=(0.95 * PANEL, 0.4 * len(names) + 0.5), share_y=True)
    name = shortened(reference, _LONGEST_NAME)
    words = f"difference from {name}, better on the left\n{100 * found.level:g} % intervals"
    figure.suptitle(words, fontsize=11, color=figure.axes[0].title.get_color(), parse_math=False)
    return figure


def check_methods(methods: Methods, least: int = 1) -> None:
    """Refuse too few methods; the first curve computed from them checks their numbers."""
    if not isinstance(methods, Mapping) or len(methods) < least:
        came = list(methods) if isinstance(methods, Mapping) else type(methods).__name__
        raise BadPredictions(
            f"methods must be {least} or more sets of probabilities by name, such as "
            f"{{'uncalibrated': p, 'calibrated': q}}; got {came}"
        )
