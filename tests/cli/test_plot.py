"""`plot` draws every figure, from files and models, and refuses options that a figure does not take."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from glayers.report.figures import FIGURES
from glayers.report.plots import PaperFigure
from tests.cli.conftest import overconfident
from tests.cli.running import complaint, leftovers, run, usage_error

STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that commands make, which they write without rendering them; the golden tests render each kind."""
    figures: list[Figure] = []

    def image(figure: Figure, ending: str) -> bytes:
        figures.append(figure)
        return STARTS[ending]

    monkeypatch.setattr("glayers.cli.comparing.image", image)
    return figures


def test_every_figure_is_made_from_two_files_as_one_whose_pdf_has_truetype_fonts(
    folder: Path, unrendered: list[Figure]
) -> None:
    for kind in FIGURES:
        done = run("plot", kind, "test.npz", "calibrated.npz", "-o", "x.pdf", "--force")
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[0] == "drew test, calibrated; wrote x.pdf"
    assert {type(figure) for figure in unrendered} == {PaperFigure}
    assert len(unrendered) == len(FIGURES)


@pytest.mark.parametrize("ending", STARTS)
def test_the_ending_is_the_format(folder: Path, ending: str) -> None:
    assert run("plot", "reliability", "test.npz", "-o", f"x{ending}", "--width", 5).exit_code == 0
    assert Path(f"x{ending}").read_bytes().startswith(STARTS[ending])
    assert b"/Type3" not in Path(f"x{ending}").read_bytes()


def test_a_model_stands_beside_the_uncalibrated(folder: Path, unrendered: list[Figure]) -> None:
    done = run("plot", "ks", "test.npz", "--model", "model.safetensors", "-o", "x.png", "--event", "rank:2")
    assert done.stdout.splitlines()[0] == "drew uncalibrated, model; wrote x.png"


def test_files_that_share_a_name_are_refused(folder: Path) -> None:
    (folder / "b").mkdir()
    Path("b/test.npz").write_bytes(Path("test.npz").read_bytes())
    done = run("plot", "ks", "test.npz", "b/test.npz", "-o", "x.png")
    assert "files must have different names" in usage_error(done)


def test_a_model_that_is_sure_and_right_and_names_that_are_long_are_drawn(folder: Path) -> None:
    labels = np.arange(60) * 7 % 3
    names = np.array(["a" * 300, "b", "c"])
    np.savez("sure.npz", logits=1e4 * np.eye(3)[labels], labels=labels, class_names=names)
    for kind in ("ks", "classes"):  # warnings of matplotlib would be errors here
        assert run("plot", kind, "sure.npz", "-o", f"{kind}.svg").exit_code == 0
    assert f"<!-- {'a' * 23}… -->" in Path("classes.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["reliability", "ks", "errors", "methods"])
def test_figures_of_the_top_class_need_confidence_and_correct_only(
    folder: Path, unrendered: list[Figure], kind: str
) -> None:
    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        np.savez(f"{name}.npz", confidence=rng.uniform(size=80), correct=rng.integers(0, 2, 80))
    assert run("plot", kind, "one.npz", "two.npz", "-o", "x.svg").stdout.splitlines()[0] == "drew one, two; wrote x.svg"
    assert "fit one with inputs='confidence'" in complaint(
        run("plot", kind, "one.npz", "--model", "model.safetensors", "-o", "y.svg")
    )


def test_files_with_different_rows_are_refused(folder: Path) -> None:
    line = complaint(run("plot", "ks", "test.npz", "calibration.npz", "-o", "x.png"))
    assert "calibration.npz and test.npz hold different rows or labels" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plot", "relibility", "test.npz", "-o", "x.png"], "did you mean 'reliability'?"),
        (["plot", "ks", "test.npz", "-o", "x.jpg"], "the ending must be one of .png, .svg, .pdf"),
        (
            ["plot", "classes", "test.npz", "-o", "x.png", "--event", "rank:2"],
            "--event is not for classes; leave it out",
        ),
        (["plot", "ks", "test.npz", "-o", "x.png", "--event", "rank"], "unknown event 'rank'; use top, rank:2"),
    ],
)
def test_what_no_figure_takes_is_a_usage_error(folder: Path, words: list[str], said: str) -> None:
    assert said in usage_error(run(*words))
    assert not Path(words[4]).exists()


def test_a_figure_that_the_rows_do_not_allow_is_one_line(folder: Path) -> None:
    assert "rank" in complaint(run("plot", "ks", "test.npz", "-o", "x.png", "--event", "rank:9"))
    assert "2 or more" in complaint(run("plot", "methods", "test.npz", "-o", "x.png"))
    assert leftovers(folder) == []


def test_names_are_text_and_never_formulas(folder: Path) -> None:
    logits, labels = overconfident(60, 3)
    names = np.array(["$x^{", "$$", r"\frac", "<b>&"])
    np.savez("$\\frac{1$.npz", logits=logits, labels=labels, class_names=names)
    done = run("plot", "classes", "$\\frac{1$.npz", "test.npz", "-o", "x.svg")
    assert "hold different rows or labels" in complaint(done)
    done = run("plot", "classes", "$\\frac{1$.npz", "-o", "x.svg")
    assert done.stdout.splitlines()[0] == "drew $\\frac{1$; wrote x.svg"
    drawn = Path("x.svg").read_text(encoding="utf-8")  # letters are shapes, their words comments
    for name in ("$x^{", "$$", r"\frac", "&lt;b&gt;&amp;"):
        assert f"<!-- {name} -->" in drawn
    run("plot", "errors", "$\\frac{1$.npz", "-o", "y.svg")
    assert r"<!-- $\frac{1$ -->" in Path("y.svg").read_text(encoding="utf-8")


def test_a_figure_for_a_paper_has_its_width_and_a_caption(folder: Path) -> None:
    for width, kind in ((3.3, "ks"), (5, "errors"), (6.9, "reliability")):
        done = run("plot", kind, "test.npz", "calibrated.npz", "--width", width, "-o", "x.svg", "--force")
        assert done.exit_code == 0, done.output
        assert f'width="{72 * width:g}pt"' in Path("x.svg").read_text(encoding="utf-8")
    assert done.stdout.splitlines()[1].startswith("caption: Reliability diagram. ")
    assert "--width" in usage_error(run("plot", "ks", "test.npz", "--width", "0.5", "-o", "y.svg"))
