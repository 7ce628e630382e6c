"""Results of all studies -> how many searches of the paper's recipe chose a setting inside the values they tried.

A choice is interior if the search tried a smaller and a larger value of both settings. If not, the fit warned.
"""

from collections.abc import Callable
from pathlib import Path

from experiments.paper.studies.lines import Line, markdown, page, read_lines
from experiments.paper.studies.sizes import OWN, SEARCHED
from experiments.paper.studies.starts import SEARCHED as SEARCHED_START
from experiments.stamp import write_page

EDGE = "of those tried"


def _paper(line: Line) -> bool:
    return line["method"] == "g-layers-paper"


def _shape(line: Line) -> tuple[str, ...]:
    return line["depth"], line["units"], line["seed"]


# The lines of a study that are a search.
IS_SEARCH: dict[str, Callable[[Line], bool]] = {
    "set_size": _paper,
    "networks": _paper,
    "ranks": lambda line: _paper(line) and line["rank"] == "1",
    "sizes": lambda line: line["search"] == OWN or _shape(line) == SEARCHED,
    "starts": lambda line: (
        _shape(line) == SEARCHED_START and line["epochs"] == "0" and line["set"] == "test" and "note" in line
    ),
    "reproduce": lambda line: line["method"] in ("g_layers_1", "g_layers_3"),
    "many_classes": lambda line: line["settings_tried"] != "",
}


def searches_table(results: Path) -> str:
    """Return the number of searches and of interior choices, by study and in all."""
    rows, total = [], [0, 0]
    for name, is_search in IS_SEARCH.items():
        notes = [line["note"] for line in read_lines(results / f"{name}.csv") if is_search(line)]
        inside = sum(EDGE not in note for note in notes)
        if notes:
            rows.append([name, str(len(notes)), str(inside)])
        total = [total[0] + len(notes), total[1] + inside]
    rows.append(["all", *map(str, total)])
    return markdown(["study", "searches", "interior choices"], rows)


def write_searches(results: Path) -> None:
    """Write the table."""
    text = page(
        "Made by `python -m experiments.paper.studies.command searches`. Searches of the paper's recipe for "
        "learning rate "
        "and weight decay. A choice is interior if smaller and larger values of both settings were tried. `ranks`, "
        "`sizes` and "
        "`networks` share the fits at the last epoch.",
        searches_table(results),
    )
    write_page(results / "searches.md", text)
