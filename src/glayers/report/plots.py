"""A name of `FIGURES` and predictions -> a matplotlib figure; or a spec and an Axes -> the Axes.

What the model says is blue, what happened is orange; before calibration is orange, after is blue. Dashes, fillings and
shapes say the same without colours. No global setting of matplotlib changes.

>>> p = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
>>> len(figure("reliability", {"uncalibrated": p}, labels=[0, 1, 0]).axes)
1
"""

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, ClassVar, Self

import numpy as np

try:
    import matplotlib as mpl
except ModuleNotFoundError as problem:  # pragma: no cover
    raise ModuleNotFoundError("figures need matplotlib: pip install 'glayers[plots]'", name=problem.name) from problem
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from glayers.arrays import Array
from glayers.checks import check_choice, number_between
from glayers.decisions.watch import Watch
from glayers.errors import BadPredictions, shown
from glayers.metrics import Event, top
from glayers.metrics.events import as_event, check_any
from glayers.report.figures import FIGURES, Axis, Kind, Mark, Shown, Spec, Unit, wealth_spec
from glayers.text_tables import shortened

__all__ = ["KsDisplay", "ReliabilityDisplay", "draw", "figure", "style", "watch_figure"]

TEXT = 8.0  # points
SMALL = 7.0  # the least that most journals ask for
PANEL = 2.6  # inches
_ACROSS = 4  # panels in a row
_NARROWEST = 1.6  # inches of a panel: in less, the numbers of an axis overlap
_FONT = "DejaVu Sans"  # comes with matplotlib, so figures are the same on every machine

# Colours by meaning.
COLOURS = {
    "background": "#ffffff",
    "ink": "#1d2530",
    "quiet": "#d9dee5",
    "band": "#aab4c0",
    "score": "#0a63b0",
    "truth": "#cf5a00",
}
# What each word of a look sets.
LOOKS: dict[str, dict[str, Any]] = {
    "observed": {"color": COLOURS["truth"], "linewidth": 1.8},
    "outside": {"color": COLOURS["truth"], "marker": "D", "edgecolor": COLOURS["ink"]},
    "before": {"color": COLOURS["truth"]},
    "after": {"color": COLOURS["score"]},
    "promised": {"linestyle": "--"},
    "actual": {"linewidth": 1.8},
    "whisker": {"alpha": 0.7},
    "ideal": {"color": COLOURS["ink"], "linewidth": 1.0, "linestyle": "--"},
    "band": {"color": COLOURS["band"], "alpha": 0.6},
    "bar": {"color": COLOURS["truth"], "alpha": 0.3},
    "largest": {"color": COLOURS["ink"], "linewidth": 1.8},
}


def figure(
    kind: str,
    methods: Mapping[str, Any],
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event | str = top,
    random_state: int = 0,
    width: float | None = None,
) -> Figure:
    """Draw one of the figures that `FIGURES` describes.

    Parameters
    ----------
    kind
        A name in `glayers.report.figures.FIGURES`, such as "reliability".
    methods
        Array (n, k), `Predictions` or `Confidences` by name, the uncalibrated first.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    sample_weight
        Row weights (n,).
    event
        `top`, `rank(r)`, `within_top(r)`, `label(c)` or `one_of(classes)`.
    random_state
        The seed of resamples.
    width
        The width in inches; by default 2.6 per panel. Letters have 7 or 8 points at any width, and panels that would
        be narrower than 1.6 inches go to the next line.

    Returns
    -------
    Figure
        Save it with `figure.savefig(path)`.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = figure("ks", {"model": Confidences([0.9, 0.6, 0.8], [True, False, True])})
    >>> found.axes[0].get_ylabel()
    'predicted minus observed'
    """
    check_choice(kind, FIGURES, "kind")
    if not isinstance(methods, Mapping) or not methods:
        raise BadPredictions(
            f"methods must be sets of probabilities by name, such as {{'uncalibrated': p, 'calibrated': q}}; "
            f"got {shown(methods)}"
        )
    return _figure_of(_specs(kind, methods, labels, sample_weight, event, random_state), width)


def _specs(kind: str, methods: Mapping[str, Any], labels: Any, weights: Any, event: Any, seed: int = 0) -> list[Spec]:
    """Describe the panels of predictions."""
    checked = {name: check_any(given, labels, weights) for name, given in methods.items()}
    return FIGURES[kind].specs([Shown(name, rows, as_event(event), seed) for name, rows in checked.items()])


def watch_figure(watched: Watch, *, width: float = 4.2) -> Figure:
    """Draw the evidence against a model after each batch.

    Parameters
    ----------
    watched
        What `glayers.watch` returned, or `Watch.load(path)`.
    width
        The width in inches.

    Returns
    -------
    Figure
        The evidence is the mean of the other lines. It is an alarm from the dashed line on.

    Examples
    --------
    >>> from glayers import Confidences
    >>> seen = Watch()
    >>> seen.update(Confidences([0.9, 0.6, 0.8], [True, False, True]))
    True
    >>> watch_figure(seen).axes[0].get_xlabel()
    'batch'
    """
    if not isinstance(watched, Watch):
        raise BadPredictions(f"pass what `watch` returned, or Watch.load(path); got {shown(watched)}")
    if not watched.batches:
        raise BadPredictions("this watch has seen no batch yet, so there is nothing to draw")
    return _figure_of([wealth_spec(watched)], width, height=2.2)


def _figure_of(specs: Sequence[Spec], width: float | None, height: float | None = None) -> Figure:
    """Draw specs side by side, and collect their legends into one."""
    names = specs[0].y.names
    across = min(_ACROSS, len(specs))
    panel = 4.2 if names else PANEL  # room for names
    if width is not None:
        across = max(1, min(across, int(number_between(width, "width", 0, 100) / _NARROWEST)))
        panel = width / across
    if height is None:
        height = max(2.2, panel)
    if names:
        height = 0.22 * len(names) + 0.8
    with style():
        drawn, panels = grid(len(specs), columns=across, size=(panel, height))
        for axes, spec in zip(panels, specs, strict=True):
            draw(axes, spec)
            title(axes, spec.title, spec.note, letters=max(10, int(12 * panel)))
        return tidy(drawn, panels, columns=across)


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style of these figures; matplotlib's settings are restored afterwards.

    Yields
    ------
    None

    Examples
    --------
    >>> with style():
    ...     mpl.rcParams["font.size"]
    8.0
    """
    settings: dict[Any, Any] = {  # matplotlib's own type lists the names of all its settings
        "font.family": _FONT,
        "font.size": TEXT,
        "axes.titlesize": TEXT,
        "text.color": COLOURS["ink"],
        "axes.labelcolor": COLOURS["ink"],
        "text.usetex": False,
        "text.parse_math": False,  # a name is text, never a formula
    }
    with mpl.rc_context(settings):
        yield


class PaperFigure(Figure):
    """A figure whose PDF holds TrueType fonts, which publishers ask for, and whose SVG is the same in every run."""

    def savefig(self, *args: Any, **settings: Any) -> None:
        """Save the figure as matplotlib does, with these two settings."""
        with mpl.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42, "svg.hashsalt": "glayers"}):
            super().savefig(*args, **settings)


def grid(
    n_panels: int, *, columns: int = _ACROSS, size: tuple[float, float] = (PANEL, PANEL)
) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels, filled row by row."""
    across = min(columns, n_panels)
    lines = math.ceil(n_panels / across)
    inches = (size[0] * across, size[1] * lines + 0.4)
    drawn = PaperFigure(figsize=inches, dpi=300, layout="constrained", facecolor=COLOURS["background"])
    return drawn, [drawn.add_subplot(lines, across, place + 1) for place in range(n_panels)]


def tidy(drawn: Figure, panels: list[Axes], *, columns: int = _ACROSS) -> Figure:
    """Write equal labels of the vertical axes once per row, and collect the legends of all panels into one below."""
    named: dict[str, Any] = {}
    for place, axes in enumerate(panels):
        if place % min(columns, len(panels)) and axes.get_ylabel() == panels[place - 1].get_ylabel():
            axes.yaxis.label.set_visible(False)
        handles, labels = axes.get_legend_handles_labels()
        named.update(zip(labels, handles, strict=True))
    if named:
        widest = 0.055 * max(map(len, named)) + 0.5  # inches of the longest label and its sample
        n_columns = max(1, min(len(named), int(drawn.get_figwidth() / widest)))
        look: dict[str, Any] = {"frameon": False, "fontsize": SMALL, "labelcolor": COLOURS["ink"]}
        drawn.legend(named.values(), named.keys(), loc="outside lower center", ncols=n_columns, **look)
    return drawn


def title(axes: Axes, name: str, below: str = "", letters: int = 24) -> None:
    """Write the name of a panel, in lines of at most so many letters, and a line below."""
    lines = textwrap.wrap(shortened(name, 3 * letters), letters)
    axes.set_title("\n".join([*lines, below]).strip())


def draw(axes: Axes, spec: Spec) -> Axes:
    """Draw a spec on an Axes.

    Parameters
    ----------
    axes
        The Axes to draw on.
    spec
        What one of the `*_spec` functions returned.

    Returns
    -------
    Axes
        The same Axes.

    Examples
    --------
    >>> from glayers import Confidences
    >>> from glayers.report.curves import ks_curves
    >>> from glayers.report.figures import gap_spec, wealth_spec
    >>> found = ks_curves(Confidences([0.9, 0.6, 0.8], [True, False, True]))
    >>> draw(Figure().add_subplot(), gap_spec(found)).get_ylabel()
    'predicted minus observed'
    """
    for mark in spec.marks:
        values = spec.values(mark)
        if values[0].size:
            _MARKS[mark.kind](axes, mark, *values)
    axes.margins(0.04)  # beyond the marks, as on the page
    axes.set(xlabel=spec.x.label, ylabel=spec.y.label)
    axes.set(xlim=(spec.x.low, spec.x.high), ylim=(spec.y.low, spec.y.high))
    dress(axes)
    _set_ticks(axes.xaxis, spec.x)
    _set_ticks(axes.yaxis, spec.y)
    if spec.y.names:
        axes.tick_params(axis="y", length=0)
        axes.yaxis.set_inverted(True)
    return axes


class _Display:
    """One panel of a figure on an Axes, made as scikit-learn makes its displays."""

    _kind: ClassVar[str]

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    @classmethod
    def from_predictions(
        cls,
        probabilities: object,
        labels: object = None,
        *,
        sample_weight: object = None,
        event: Event | str = top,
        name: str = "",
        ax: Axes | None = None,
    ) -> Self:
        """Draw the panel of predictions.

        Parameters
        ----------
        probabilities
            Array (n, k), `Predictions` or `Confidences`.
        labels, sample_weight
            Class numbers and row weights (n,); left out with `Predictions` and `Confidences`.
        event
            `top`, `rank(r)`, `within_top(r)`, `label(c)` or `one_of(classes)`.
        name
            The title.
        ax
            Where to draw; None makes a figure.
        """
        [spec] = _specs(cls._kind, {name: probabilities}, labels, sample_weight, event)
        return cls(spec).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, **settings: Any) -> Self:
        """Draw the panel of a fitted classifier with `predict_proba` and `classes_`; settings as `from_predictions`."""
        labels = np.searchsorted(estimator.classes_, y)
        return cls.from_predictions(estimator.predict_proba(X), labels, **settings)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw on an Axes, or on that of a new figure; they are then `ax_` and `figure_`."""
        with style():
            if ax is None:
                drawn, (self.ax_,) = grid(1)
                tidy(drawn, [draw(self.ax_, self.spec)])
            else:
                self.ax_ = draw(ax, self.spec)
                ax.legend(fontsize=SMALL, frameon=False)
            title(self.ax_, self.spec.title, self.spec.note)
        whole: Any = self.ax_.get_figure(root=True)
        self.figure_: Figure = whole
        return self

    def _repr_png_(self) -> bytes:
        stream = BytesIO()
        self.figure_.savefig(stream, dpi=150)
        return stream.getvalue()


class ReliabilityDisplay(_Display):
    """A reliability diagram with its band; see `from_predictions` and `from_estimator`.

    Attributes
    ----------
    spec
        What is drawn.
    ax_, figure_
        The Axes and its figure.

    Examples
    --------
    >>> p = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
    >>> ReliabilityDisplay.from_predictions(p, [0, 1, 0]).ax_.get_ylabel()
    'observed frequency'
    """

    _kind = "reliability"


class KsDisplay(_Display):
    """The cumulative gap behind the KS error, with its band; see `from_predictions` and `from_estimator`.

    Attributes
    ----------
    spec
        What is drawn.
    ax_, figure_
        The Axes and its figure.
    """

    _kind = "ks"


def dress(axes: Axes) -> Axes:
    """Give an Axes its colours."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(COLOURS["ink"])
    # Also for the ticks that matplotlib creates only when it draws.
    ticks: dict[str, Any] = {"color": COLOURS["ink"], "labelcolor": COLOURS["ink"], "labelfontfamily": _FONT}
    axes.tick_params(which="both", labelsize=SMALL, **ticks)
    axes.tick_params(which="minor", length=0)
    axes.set_axisbelow(True)
    axes.grid(visible=True, color=COLOURS["quiet"], linewidth=0.6)
    return axes


def _look(mark: Mark) -> dict[str, Any]:
    """Return the settings of a mark: its label, and what the words of its look set."""
    settings: dict[str, Any] = {"label": mark.label, "linewidth": 1.4}
    for word in mark.look.split():
        settings |= LOOKS[word]
    return settings


def _line(axes: Axes, mark: Mark, x: Array, y: Array) -> None:
    axes.plot(x, y, solid_capstyle="round", **_look(mark))


def _boxes(axes: Axes, mark: Mark, left: Array, bottom: Array, right: Array, top: Array) -> None:
    look = _look(mark) | {"linewidth": 0}
    axes.bar(left, top - bottom, right - left, bottom, align="edge", **look)


def _segments(axes: Axes, mark: Mark, x: Array, y: Array, x_end: Array, y_end: Array) -> None:
    nothing = np.full(len(x), np.nan)  # ends the pen's stroke
    axes.plot(
        np.ravel([x, x_end, nothing], "F"), np.ravel([y, y_end, nothing], "F"), solid_capstyle="butt", **_look(mark)
    )


def _dots(axes: Axes, mark: Mark, x: Array, y: Array, radius: Array | float = 4.5) -> None:
    look = {"edgecolor": COLOURS["background"]} | _look(mark) | {"linewidth": 0.8}
    # A pixel of the page is half a point here. A marker may cross the edge of the Axes, and no room is made for it.
    points = axes.scatter(x, y, np.square(radius), zorder=4, clip_on=False, **look)
    points.set_in_layout(False)


_MARKS: dict[Kind, Callable[..., None]] = {
    "line": _line,
    "boxes": _boxes,
    "segments": _segments,
    "dots": _dots,
}


def _set_ticks(axis: Any, wanted: Axis) -> None:
    """Set the numbers or names beside a matplotlib axis."""
    if wanted.names:
        axis.set_ticks(range(len(wanted.names)), wanted.names, parse_math=False)
    else:
        if wanted.unit == "rows":
            axis.get_major_locator().set_params(integer=True)
        axis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value, wanted.unit)))


def tick_text(value: float, unit: Unit) -> str:
    """Return a number beside an axis.

    >>> [tick_text(*tick) for tick in ((0.07, "percent"), (-0.0025, "points"), (-0.0, "number"))]
    ['7%', '−0.25', '0']
    """
    if unit in ("percent", "points"):
        value = 100 * value
    text = f"{round(value, 6) + 0.0:g}".replace("-", "\N{MINUS SIGN}")
    if unit == "percent":
        text += "%"
    return text
