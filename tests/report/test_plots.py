"""Figures claim what the numbers say: nothing where there is nothing, the metric's KS, bands; for all eyes."""

from io import BytesIO
from itertools import combinations
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
from glayers.report.figures import FIGURES, bins_spec, cumulative_spec, gap_spec
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


def shown(figure: Figure) -> Numbers:
    """The gaps of the first class matrix, NaN where there is none."""
    image = figure.axes[0].images[0].get_array()
    assert image is not None
    return np.ma.filled(np.ma.asarray(image), np.nan)


def test_an_empty_bin_draws_nothing() -> None:
    found = reliability(Confidences([0.05, 0.62, 0.65, 0.97], [0, 1, 0, 1]), n_bins=5)
    panel = plots.draw(axes(), bins_spec(found))
    lefts = sorted({round(bar.get_x(), 9) for bar in bars(panel)})
    assert lefts == [0.0, 0.6, 0.8]  # nothing from 0.2 to 0.6
    assert len(bars(panel)) == 6  # a bar and a band each
    strip = bins_spec(found).strip
    assert strip is not None
    counts = plots.draw(axes(), strip)
    assert [bar.get_y() + bar.get_height() for bar in bars(counts)] == [1, 2, 1]


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


def test_several_events_have_one_panel_each_and_names_are_no_formulas() -> None:
    given, labels = methods(n=60)
    figure = plots.figure("reliability", {"$x$": given["uncalibrated"]}, labels, event=[rank(1), rank(2)])
    assert len(figure.axes) == 4
    assert [axes.get_title().splitlines()[0] for axes in figure.axes[::2]] == ["$x$, top class", "$x$, rank 2"]
    assert not any(axes.title.get_parse_math() for axes in figure.axes)
    wrong: Any = "top"
    with pytest.raises(BadPredictions, match="event must be top, rank"):
        plots.figure("ks", given, labels, event=wrong)


def test_the_ks_error_is_marked_where_the_curves_are_furthest_apart() -> None:
    given, labels = methods()
    found = ks_curves(check_rows(given["uncalibrated"], labels))
    mark = plots.draw(axes(), cumulative_spec(found)).lines[-1]
    low, high, _ = np.asarray(mark.get_ydata(), dtype=float)
    assert abs(high - low) == pytest.approx(metrics.ks(given["uncalibrated"], labels), abs=1e-12)


@pytest.mark.parametrize("kind", ["reliability", "before-after"])
def test_confidences_and_predictions_take_the_place_of_probabilities(kind: str) -> None:
    given, labels = methods(n=60)
    p = given["uncalibrated"]
    pair = Confidences(p.max(axis=1), p.argmax(axis=1) == labels)
    expected = words(plots.figure(kind, {"model": p}, labels))
    assert words(plots.figure(kind, {"model": pair})) == expected
    assert words(plots.figure(kind, {"model": Predictions(np.log(p), labels)})) == expected


def test_what_needs_all_classes_refuses_confidences() -> None:
    pair = Confidences([0.9, 0.6, 0.8], [True, False, True])
    assert "KS " in words(plots.figure("ks", {"model": pair}))
    for kind in ("class-gaps", "classes"):
        with pytest.raises(BadPredictions, match="probabilities of all classes"):
            plots.figure(kind, {"model": pair, "other": pair})
    with pytest.raises(BadPredictions, match="there is no class 2"):
        plots.figure("ks", {"model": pair}, event=label(2))


def test_a_class_never_predicted_and_gaps_of_chance_have_no_colour_of_their_own() -> None:
    given, labels = methods()
    never = np.column_stack([given["calibrated"], np.zeros(len(labels))])
    figure = plots.figure("classes", {"calibrated": never}, labels)
    image = shown(figure)
    assert image.shape == (4, 5)  # the last class is never predicted
    assert (image == 0).mean() > 0.8
    assert np.abs(shown(plots.figure("classes", given, labels))).max() > 0.1


def test_a_class_matrix_of_two_hundred_classes_has_few_ticks_and_no_numbers() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(200, 0.05), size=400)
    figure = plots.figure("classes", {"uncalibrated": probabilities}, rng.integers(0, 200, 400))
    figure.draw_without_rendering()
    assert not figure.axes[0].texts
    assert len(figure.axes[0].get_xticks()) <= 8


def test_a_forest_fills_what_is_significant_and_puts_shares_in_points() -> None:
    given, labels = methods()
    shown = given | {"half way": (given["uncalibrated"] + given["calibrated"]) / 2}
    settings: Any = {"metrics": ["nll", "ks"], "n_resamples": 99}
    figure = plots.figure("differences", shown, labels, **settings)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["calibrated", "half way"]
    found = metrics.paired_differences(shown, labels, **settings)
    ks = [found.between("ks", name, "uncalibrated") for name in ("calibrated", "half way")]
    drawn = {str(dots.get_label()): np.asarray(dots.get_offsets())[:, 0] for dots in figure.axes[1].collections}
    for word, significant in (("significant", True), ("not significant", False)):
        expected = [difference.interval.value for difference in ks if difference.significant == significant]
        assert drawn.get(word, np.zeros(0)).tolist() == pytest.approx(expected)
    figure.draw_without_rendering()
    ticks = [float(text.get_text().replace("\N{MINUS SIGN}", "-")) for text in figure.axes[1].get_xticklabels()]
    assert min(ticks) < -1


@pytest.mark.parametrize("dark", [False, True])
def test_a_figure_saves_as_png_and_as_svg_light_and_dark(dark: bool) -> None:
    given, labels = methods(n=60)
    figure = plots.figure("ks", {"model": given["uncalibrated"]}, labels, dark=dark)
    background = (plots.DARK if dark else plots.LIGHT).background
    png, svg = BytesIO(), BytesIO()
    figure.savefig(png, format="png", dpi=50)
    corner = mpl.image.imread(BytesIO(png.getvalue()))[0, 0, :3]
    assert np.abs(corner - to_rgb(background)).max() < 0.01
    figure.savefig(svg, format="svg")
    assert ElementTree.fromstring(svg.getvalue()).tag.endswith("svg")
    assert background.encode() in svg.getvalue()


def test_drawing_changes_no_setting_of_matplotlib() -> None:
    before = dict(mpl.rcParams)
    CASES["reliability-dark"]()
    assert dict(mpl.rcParams) == before


def test_letters_of_two_panels_shrunk_to_half_a_page_are_five_points_high() -> None:
    given, labels = methods(n=60)
    inches = plots.figure("reliability", given, labels).get_figwidth()
    assert min(SMALL, TEXT) * 3.4 / inches >= 5


@pytest.mark.parametrize("share", [0.9, 0.5])
@pytest.mark.parametrize("kind", ["ks", "class-gaps", "differences"])
def test_letters_of_a_figure_of_a_width_shrink_with_it_down_to_seven_points(kind: str, share: float) -> None:
    given, labels = methods(n=60)

    def sizes(figure: Figure) -> list[float]:
        figure.draw_without_rendering()
        axes = figure.axes[0]
        texts = (axes.title, axes.xaxis.label, axes.get_yticklabels()[0])
        return [float(text.get_fontsize()) for text in texts]

    figure = plots.figure(kind, given, labels, n_resamples=99)
    small = plots.figure(kind, given, labels, n_resamples=99, width=share * figure.get_figwidth())
    assert small.get_figwidth() == pytest.approx(share * figure.get_figwidth())
    assert sizes(small) == pytest.approx([max(size * share, 7.0) for size in sizes(figure)])
    check_text_stays_inside(small)


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


@pytest.mark.parametrize("palette", [plots.LIGHT, plots.DARK], ids=["light", "dark"])
@pytest.mark.parametrize("eyes", BLINDNESS)
def test_colours_that_must_differ_do_so_for_all_eyes(palette: plots.Palette, eyes: str) -> None:
    def apart(one: str, other: str) -> float:
        return float(np.linalg.norm(lab(BLINDNESS[eyes] @ linear(one)) - lab(BLINDNESS[eyes] @ linear(other))))

    assert apart(palette.score, palette.truth) > 40
    # Depths have markers too.
    assert min(apart(one, other) for one, other in combinations(palette.series, 2)) > 15


@pytest.mark.parametrize("palette", [plots.LIGHT, plots.DARK], ids=["light", "dark"])
def test_lines_and_letters_stand_out_from_the_ground(palette: plots.Palette) -> None:
    assert contrast(palette.ink, palette.background) > 7
    assert min(contrast(colour, palette.background) for colour in (palette.score, palette.truth)) > 3
    assert min(contrast(colour, palette.background) for colour in palette.series) > 3


@pytest.mark.parametrize(
    ("kind", "given", "choices", "said"),
    [
        ("reliability", {}, {}, "methods must be 1 or more sets of probabilities by name"),
        ("differences", {"uncalibrated": [[0.5, 0.5]]}, {}, "methods must be 2 or more"),
        ("reliability", [[0.5, 0.5]], {}, r"got \[\[0.5, 0.5\]\]"),
        ("round", {"uncalibrated": [[0.5, 0.5]]}, {}, "kind must be one of 'before-after', "),
        ("ks", {"uncalibrated": [[0.5, 0.5]]}, {"event": []}, "the list is empty"),
    ],
)
def test_a_wrong_choice_is_named(kind: str, given: Any, choices: dict[str, Any], said: str) -> None:
    with pytest.raises(BadPredictions, match=said):
        plots.figure(kind, given, [0], **choices)


def test_every_figure_says_what_it_shows_and_how_to_read_it() -> None:
    for figure in FIGURES.values():
        assert figure.title[0].isupper()
        assert figure.caption.endswith(".")
