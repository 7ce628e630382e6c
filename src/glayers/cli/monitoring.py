"""What a scheduler asks of `score`, and `info`: a fitted model's own facts, conditions that fail, and shift.

A condition that holds, and a question that the rows cannot answer, end the program with status 3.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.table import Table

from glayers.cli import arguments as arg
from glayers.cli.runtime import flag, show, show_json, show_note, title, verb
from glayers.errors import BadPredictions
from glayers.metrics import METRICS, Metric, OmnibusTest
from glayers.predictions.contents import WHOLE_FILE, listed
from glayers.predictions.source import Chunk

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator
    from glayers.shift import ShiftTest

_FAILED = 3  # exit status
UNCALIBRATED = "uncalibrated"
_USUAL_LEVEL = 0.95
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt
}  # fmt: skip
_CONDITION = re.compile(r"\s*([A-Za-z0-9_]+)\s*(>=|<=|>|<)\s*([-+.0-9eE]+)\s*(%?)\s*")

Model = Annotated[
    Path | None,
    typer.Option(metavar="MODEL", readable=False, help="A file from `glayers fit`: score before and after it."),
]
FailIf = Annotated[
    list[str] | None,
    typer.Option("--fail-if", metavar="CONDITION", help='Exit with 3 if it holds, such as "ks > 0.02" or "ks > 2 %".'),
]
FailIfMiscalibrated = Annotated[
    bool, flag("--fail-if-miscalibrated", text="Exit with 3 unless the calibration test passes.")
]
FailIfShifted = Annotated[
    bool, flag("--fail-if-shifted", text="Exit with 3 unless the rows look like MODEL's calibration rows.")
]
Level = Annotated[
    float, typer.Option(metavar="P", min=0.5, max=0.9999, help="Level of the tests: 0.95 fails 1 of 20 good batches.")
]


@dataclass(frozen=True)
class Condition:
    """A metric, a sign and a number, such as ks > 0.02."""

    metric: str
    sign: str
    limit: float

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the condition that an option states.

        >>> Condition.of("KS > 2 %")
        Condition(metric='ks', sign='>', limit=0.02)
        """
        found = _CONDITION.fullmatch(text)
        try:
            if found is None:
                raise ValueError
            limit = float(found[3]) / (100 if found[4] else 1)
        except ValueError as error:
            raise typer.BadParameter(
                f"cannot read the condition {text!r}; write a metric, a sign and a number, such as 'ks > 0.02'"
            ) from error
        name = arg.known_name(found[1].lower(), METRICS, "metric", "glayers score --json")
        _check_limit(METRICS[name], found[2], limit)
        return cls(name, found[2], limit)

    def failure(self, scores: Mapping[str, float]) -> str | None:
        """Return what is wrong, or None. A score that is not a number is wrong too."""
        if self.metric not in scores:
            raise BadPredictions(f"these rows have no {self.metric}; they have {listed(scores)}")
        value = scores[self.metric]
        if math.isnan(value):
            return f"{self.metric} is not a number"
        return (
            f"{self.metric} = {value:.4g} {self.sign} {self.limit:g}" if _SIGNS[self.sign](value, self.limit) else None
        )


def _check_limit(metric: Metric, sign: str, limit: float) -> None:
    """Refuse a limit that no score can pass, or that every score passes: most often a percent sign is missing."""
    outside = not metric.lowest <= limit <= metric.highest
    never = (sign == ">" and limit == metric.highest) or (sign == "<" and limit == metric.lowest)
    if not outside and not never:
        return
    if math.isinf(metric.highest):
        possible = f"at least {metric.lowest:g}"
    elif metric.unit == "percent":
        possible = f"between {metric.lowest:g} and {metric.highest:g} ({100 * metric.highest:g} %)"
    else:
        possible = f"between {metric.lowest:g} and {metric.highest:g}"
    hint = ""
    if metric.unit == "percent" and 1 <= limit <= 100:
        hint = f"; did you mean '{metric.name} {sign} {limit:g} %'?"
    raise typer.BadParameter(f"{metric.name} is always {possible}, so it cannot be compared with {limit:g}{hint}")


def test_failure(answer: OmnibusTest) -> str | None:
    """Return why the calibration test does not pass, or None."""
    return None if answer.verdict == "calibrated" else str(answer)


def shift_failure(found: "ShiftTest") -> str | None:
    """Return why the rows do not pass as rows like the calibration rows, or None."""
    return str(found) if found.shifted or math.isnan(found.p_value) else None


def draws_for(level: float) -> int | None:
    """Return how many draws the calibration test needs for a level; None leaves the choice to it.

    >>> draws_for(0.95), draws_for(0.999)
    (None, 3999)
    """
    return None if level <= _USUAL_LEVEL else math.ceil(round(4 / (1 - level), 6)) - 1


def end_with(failures: Iterable[str]) -> None:
    """Say what failed, and end with status 3 if anything did."""
    found = list(failures)
    for each in found:
        show_note(f"failed: {each}")
    if found:
        raise typer.Exit(_FAILED)


def shift_of(calibrator: "Calibrator", chunk: Chunk, level: float) -> "ShiftTest":
    """Compare rows with those that a calibrator was fitted on; labels, if there are any, are compared too."""
    from glayers.predictions.predictions import map_inputs, two_classes
    from glayers.shift import shift_test

    if chunk.labelled:
        return shift_test(calibrator, chunk.rows, level=level)
    rows = two_classes(calibrator.inputs, chunk.rows)
    return shift_test(calibrator, map_inputs(calibrator.inputs, rows), groups=rows.groups, level=level)


def part_label(part: str, name: str) -> str:
    """Return the name of a result of one part; a file without parts needs no name for it."""
    return name if part == WHOLE_FILE else f"{part}, {name}"


def prefix_of(name: str) -> str:
    """Return what stands before a sentence about one part."""
    return "" if name == WHOLE_FILE else f"{name}: "


@verb
def info(
    model: Annotated[Path, arg.file_argument("MODEL", "A file from `glayers fit`.")], as_json: arg.AsJson = False
) -> None:
    """Describe a fitted calibrator: its method and settings, the rows it was fitted on, and how the fit went.

    Examples
    --------
    $ glayers info model.safetensors
    $ glayers info model.safetensors --json
    """
    from glayers.calibrators import load

    calibrator = load(model)
    facts = calibrator.diagnostics_
    selection: Any = getattr(calibrator, "selection_", None)
    counts: Any = getattr(calibrator, "calibration_rows_", None)  # not of groups and several labels
    if as_json:
        show_json(
            {
                "calibrator": type(calibrator).__name__,
                "settings": {name: _plain(value) for name, value in calibrator.get_params(False).items()},
                "logits": calibrator.n_features_in_,
                "classes": len(calibrator.classes_),
                "class_names": calibrator.class_names_,
                "versions": calibrator.versions_,
                "diagnostics": facts.to_dict(),
                "selection": selection and selection.to_dict(),
                "calibration_rows": counts and counts.to_dict(),
            }
        )
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    unseen = len(facts.classes_never_seen)
    lines = {
        "method": facts.method,
        "settings": str(calibrator),
        "classes": f"{len(calibrator.classes_):,}" + (f", {unseen:,} of them never seen" if unseen else ""),
        "class names": listed(calibrator.class_names_ or ()) or "none",
        "fitted on": f"{facts.rows:,} rows",
        "mean loss": f"{facts.loss_before:.4f} before, {facts.loss_after:.4f} after, on the rows of the fit",
        "fit ended": facts.reason if facts.converged else f"not converged: {facts.reason}",
        "parameters": f"{facts.n_parameters:,}",
        "versions": ", ".join(f"{name} {number}" for name, number in calibrator.versions_.items()),
    }
    for name, text in lines.items():
        table.add_row(name, " ".join(text.split()))
    show(title(arg.name_of(model)), table, *([] if selection is None else ["", *str(selection).splitlines()]))
    for note in facts.notes:
        show_note(f"note: {note}")


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
