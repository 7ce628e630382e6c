"""Figures claim what the numbers say: nothing where there is nothing, the metric's KS, bands; for all eyes."""

import re
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from glayers import Confidences, Predictions, metrics
from glayers.errors import BadPredictions
from glayers.metrics import label, rank
from glayers.metrics.events import check_rows
from glayers.report import plots
from glayers.report.curves import ks_curves, reliability
from glayers.report.figures import FIGURES, bins_spec, gap_spec
from glayers.report.plots import SMALL, TEXT
from tests.metrics.simulation import sample
from tests.report.golden_images import check_text_stays_inside
from tests.report.plots_cases import CASES, methods
from tests.strategies import Numbers


def axes() -> Axes:
    return Figure().add_subplot()


def bars(of: Axes) -> list[Rectangle]:
    return [patch for patch in of.patches if isinstance(patch, Rectangle)]


def words(figure: Figure) -> str:
    return "\n".join(text.get_text() for each in figure.axes for text in (each.title, *each.texts))


def test_an_empty_bin_draws_nothing() -> None:
    found = reliability(Confidences([0.05, 0.62, 0.65, 0.97], [0, 1, 0, 1]), n_bins=5)
    panel = plots.draw(axes(), bins_spec(found))
    lefts = sorted({round(bar.get_x(), 9) for bar in bars(panel)})
    assert lefts == [0.0, 0.6, 0.8]  # nothing from 0.2 to 0.6
    assert len(bars(panel)) == 6  # a bar and a band each


def test_a_bar_is_as_high_as_the_model_is_right_even_if_that_is_never() -> None:
    found = reliability(Confidences([0.3, 0.35, 0.9, 0.95], [0, 0, 1, 0]), n_bins=2)
    panel = plots.draw(axes(), bins_spec(found))
    assert [bar.get_height() for bar in bars(panel)[:2]] == [0.0, 0.5]


def test_points_of_a_calibrated_model_lie_in_its_band_and_an_overconfident_ones_do_not() -> None:
    given, labels = methods(n=4000)
    shares = {}
    for name, probabilities in given.items():
        panel = plots.draw(axes(), bins_spec(reliability(check_rows(probabilities, labels), n_bins=10)))
        counted = {str(dots.get_label()): len(np.asarray(dots.get_offsets())) for dots in panel.collections}
        inside, outside = (counted.get(label, 0) for label in ("observed", "observed, outside the band"))
        shares[name] = inside / (inside + outside)
    assert shares["calibrated"] >= 0.85  # 8 bins of 95 % each
    assert shares["uncalibrated"] <= 0.3


def test_calibrated_models_stay_in_the_band_of_the_gap_as_often_as_it_says() -> None:
    found = [ks_curves(check_rows(*sample(seed, n=200, k=4))) for seed in range(60)]
    outside = [np.abs(each.cumulative_hits - each.cumulative_score).max() > each.test.bound for each in found]
    assert sum(outside) <= 8  # of 60 at 5 %: more than 8 has a chance of 0.4 %
    panel = plots.draw(axes(), gap_spec(found[0]))
    assert abs(bars(panel)[0].get_y()) == found[0].test.bound  # the lower edge of the band
    gap = panel.lines[1]
    assert np.array_equal(gap.get_ydata(), found[0].cumulative_score - found[0].cumulative_hits)


def test_the_ks_error_written_into_a_panel_is_the_metrics() -> None:
    given, labels = methods()
    text = words(plots.figure("ks", given, labels, event=rank(2)))
    for name, probabilities in given.items():
        test = metrics.ks_test(probabilities, labels, event=rank(2))
        assert f"{name}, rank 2\nKS {100 * test.value:.2f} %" in text


def test_names_are_no_formulas_and_events_no_words() -> None:
    given, labels = methods(n=60)
    figure = plots.figure("reliability", {"$x$": given["uncalibrated"]}, labels, event=rank(2))
    assert [axes.get_title().splitlines()[0] for axes in figure.axes] == ["$x$, rank 2"]
    assert not any(axes.title.get_parse_math() for axes in figure.axes)
    wrong: Any = "top"
    with pytest.raises(BadPredictions, match="event must be top, rank"):
        plots.figure("ks", given, labels, event=wrong)


def test_the_ks_error_is_marked_where_the_gap_is_largest() -> None:
    given, labels = methods()
    found = ks_curves(check_rows(given["uncalibrated"], labels))
    mark = plots.draw(axes(), gap_spec(found)).lines[-1]
    low, high, _ = np.asarray(mark.get_ydata(), dtype=float)
    assert abs(high - low) == pytest.approx(metrics.ks(given["uncalibrated"], labels), abs=1e-12)


def test_confidences_and_predictions_take_the_place_of_probabilities() -> None:
    given, labels = methods(n=60)
    p = given["uncalibrated"]
    pair = Confidences(p.max(axis=1), p.argmax(axis=1) == labels)
    expected = words(plots.figure("reliability", {"model": p}, labels))
    assert words(plots.figure("reliability", {"model": pair})) == expected
    assert words(plots.figure("reliability", {"model": Predictions(np.log(p), labels)})) == expected


def test_what_needs_all_classes_refuses_confidences() -> None:
    pair = Confidences([0.9, 0.6, 0.8], [True, False, True])
    assert "KS " in words(plots.figure("ks", {"model": pair}))
    with pytest.raises(BadPredictions, match="probabilities of all classes"):
        plots.figure("classes", {"model": pair, "other": pair})
    with pytest.raises(BadPredictions, match="there is no class 2"):
        plots.figure("ks", {"model": pair}, event=label(2))


def test_a_figure_saves_as_png_svg_and_pdf_with_truetype_fonts() -> None:
    given, labels = methods(n=60)
    figure = plots.figure("ks", {"model": given["uncalibrated"]}, labels)
    png, svg, pdf = BytesIO(), BytesIO(), BytesIO()
    figure.savefig(png, format="png", dpi=50)
    corner = mpl.image.imread(BytesIO(png.getvalue()))[0, 0, :3]
    assert np.abs(corner - to_rgb(plots.COLOURS["background"])).max() < 0.01
    figure.savefig(svg, format="svg")
    assert ElementTree.fromstring(svg.getvalue()).tag.endswith("svg")
    figure.savefig(pdf, format="pdf")
    assert b"/Type3" not in pdf.getvalue()


def test_drawing_changes_no_setting_of_matplotlib() -> None:
    before = dict(mpl.rcParams)
    CASES["reliability"]()
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("width", [6.9, 3.3])
@pytest.mark.parametrize("kind", FIGURES)
def test_letters_have_the_size_that_journals_ask_for_at_any_width(kind: str, width: float) -> None:
    given, labels = methods(n=60)
    figure = plots.figure(kind, given, labels, width=width)
    figure.draw_without_rendering()
    assert figure.get_figwidth() == pytest.approx(width)
    axes = figure.axes[0]
    texts = (axes.title, axes.xaxis.label, axes.get_yticklabels()[0], figure.legends[0].get_texts()[0])
    assert [float(text.get_fontsize()) for text in texts] == [TEXT, TEXT, SMALL, SMALL]
    check_text_stays_inside(figure)


def test_many_panels_in_a_narrow_column_go_below_each_other() -> None:
    given, labels = methods(n=60)
    panels = {f"method {number}": next(iter(given.values())) for number in range(5)}
    figure = plots.figure("reliability", panels, labels, width=3.3)
    figure.draw_without_rendering()
    assert [axes.get_subplotspec().get_geometry()[:2] for axes in figure.axes] == [(3, 2)] * 5  # type: ignore[union-attr]
    assert min(axes.get_window_extent().width for axes in figure.axes) > 0.9 * figure.dpi  # inches
    check_text_stays_inside(figure)


@pytest.mark.parametrize("kind", FIGURES)
def test_type_in_the_pdf_of_a_column_has_at_least_6_5_and_at_most_8_points(kind: str) -> None:
    given, labels = methods(n=60)
    stream = BytesIO()
    with mpl.rc_context({"pdf.compression": 0}):
        plots.figure(kind, given, labels, width=3.3).savefig(stream, format="pdf")
    sizes = [float(size) for size in re.findall(rb"/F\S+ ([\d.]+) Tf", stream.getvalue())]
    assert len(sizes) > 10
    assert min(sizes) >= 6.5
    assert max(sizes) <= 8


# What a missing kind of cone makes of linear RGB: Vienot, Brettel and Mollon, Color Research and Application 1999.
BLINDNESS = {
    "all cones": np.eye(3),
    "deuteranopia": np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]]),
    "protanopia": np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]]),
}


def linear(colour: str) -> Numbers:
    channels = np.array(to_rgb(colour))
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(channels: Numbers) -> Numbers:
    """CIELAB of linear RGB, for the white of a screen."""
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ channels
    x, y, z = np.cbrt(np.clip(xyz / [0.9505, 1.0, 1.089], 0.009, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    """(L + 0.05) / (l + 0.05) of the lighter and the darker, as WCAG 2 has it."""
    light = [0.05 + float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other)]
    return max(light) / min(light)


@pytest.mark.parametrize("eyes", BLINDNESS)
def test_colours_that_must_differ_do_so_for_all_eyes(eyes: str) -> None:
    one, other = (lab(BLINDNESS[eyes] @ linear(plots.COLOURS[name])) for name in ("score", "truth"))
    assert float(np.linalg.norm(one - other)) > 40


def test_lines_and_letters_stand_out_from_the_ground() -> None:
    ground = plots.COLOURS["background"]
    assert contrast(plots.COLOURS["ink"], ground) > 7
    assert min(contrast(plots.COLOURS[name], ground) for name in ("score", "truth")) > 3


@pytest.mark.parametrize(
    ("kind", "given", "choices", "said"),
    [
        ("reliability", {}, {}, "methods must be sets of probabilities by name"),
        ("reliability", [[0.5, 0.5]], {}, r"got \[\[0.5, 0.5\]\]"),
        ("round", {"uncalibrated": [[0.5, 0.5]]}, {}, "kind must be one of 'errors', 'reliability', "),
    ],
)
def test_a_wrong_choice_is_named(kind: str, given: Any, choices: dict[str, Any], said: str) -> None:
    with pytest.raises(BadPredictions, match=said):
        plots.figure(kind, given, [0], **choices)


def test_every_figure_says_what_it_shows_and_how_to_read_it() -> None:
    for figure in FIGURES.values():
        assert figure.title[0].isupper()
        assert figure.caption.endswith(".")


def test_displays_draw_what_the_figures_show_on_any_axes() -> None:
    given, labels = methods(n=60)
    p = given["uncalibrated"]
    alone = plots.ReliabilityDisplay.from_predictions(p, labels, name="model")
    assert alone.ax_.get_title() == plots.figure("reliability", {"model": p}, labels).axes[0].get_title()
    assert alone._repr_png_().startswith(b"\x89PNG")
    mine = axes()
    found = plots.KsDisplay.from_predictions(Predictions(np.log(p), labels), event=rank(2), ax=mine)
    assert (found.ax_, found.figure_) == (mine, mine.figure)
    assert mine.get_title() == f"rank 2\nKS {100 * metrics.ks(p, labels, event=rank(2)):.2f} %"
    assert mine.get_legend() is not None


def test_displays_of_a_classifier_know_its_labels() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = np.where(x[:, 0] + rng.normal(size=200) > 0, "yes", "no")
    model = linear.LogisticRegression().fit(x, y)
    found = plots.ReliabilityDisplay.from_estimator(model, x, y, event=label(1))
    ece = metrics.ece(model.predict_proba(x), (y == "yes").astype(int), event=label(1))
    assert found.spec.note == f"ECE {100 * ece:.2f} %"
