"""How `auto` chose: what was tried, the record that prints, and what a file keeps of it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from glayers.fitting.folds import format_gain
from glayers.text_tables import aligned_table, html_table, json_ready, markdown_table

_LOSSES = {"log": "log loss", "brier": "Brier score"}
_ANCHORS = {"uncalibrated": "no calibration", "temperature": "temperature scaling"}
# What each part of the model corrects, in words.
_CORRECTS = {
    "shared": "confidence",
    "context": "confidence, depending on the row",
    "scale": "one scale per class",
    "shift": "one shift per class",
    "matrix": "classes that depend on each other",
    "hinges": "bends of the calibration curve",
}


@dataclass(frozen=True)
class PartResult:
    """One part of the mixture: its held-out loss, its gain over temperature scaling, and its weight in what was kept.

    `gain_error` is the standard error of the gain; with few observations it is infinite.
    """

    name: str
    loss: float
    gain: float
    gain_error: float
    weight: float
    n_parameters: int
    seconds: float | None = None  # None after loading: a file does not keep it
    note: str = ""


@dataclass(frozen=True)
class AutoSelection:
    """How `AutoCalibrator` chose: `print(auto.selection_)` explains it.

    Attributes
    ----------
    rows, classes, n_folds : int
        Size of the problem and of the cross-validation.
    sample : int
        How many rows, drawn at random, the parts learned from; temperature scaling used all.
    loss : str
        The loss that parts were compared by, "log" or "brier".
    keep_accuracy : bool
        Whether the order of the classes was kept in every row.
    parts : tuple of PartResult
        The parts of the mixture, with their held-out losses and weights.
    effective : dict
        The effective number of coefficients of each correction of the model: how many the rows determine.
    left_out : dict
        Parts that were not fitted, with the reason.
    kept_loss, gain, gain_error : float
        Held-out loss of what was kept, and how much lower it is than that of temperature scaling.
    uniform_share : float
        The share of the probability that is spread over all possible classes of a row.
    fallback : str
        The anchor that was kept as it is, "temperature" or "uncalibrated", or nothing.
    """

    rows: int
    sample: int
    classes: int
    n_folds: int
    loss: str
    keep_accuracy: bool
    parts: tuple[PartResult, ...]
    effective: Mapping[str, float]
    left_out: Mapping[str, str]
    kept_loss: float
    gain: float
    gain_error: float
    uniform_share: float
    fallback: str = ""

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each part in what was kept, which sum to 1."""
        return {part.name: part.weight for part in self.parts if part.weight}

    @property
    def reason(self) -> str:
        """What was kept and why, in a sentence."""
        loss = _LOSSES[self.loss]
        if self.fallback:
            return f"no gain over {_ANCHORS[self.fallback]} in cross-validated {loss}: falls back to it"
        return f"cross-validated {loss} lower than temperature scaling's by {format_gain(self.gain, self.gain_error)}"

    @property
    def summary(self) -> str:
        """One sentence on what was compared."""
        drawn = ""
        if self.sample != self.rows:
            drawn = f"temperature from all, the other parts from {self.sample:,} random rows; "
        return (
            f"{self.rows:,} rows, {self.classes:,} classes ({self.rows / self.classes:,.0f} rows per class); {drawn}"
            f"compared by {self.n_folds}-fold cross-validated {_LOSSES[self.loss]}."
        )

    def table(self, *, seconds: bool = True) -> list[list[str]]:
        """Return the parts as rows of text, after a row of headings; seconds differ between runs."""
        rows = [["part", "held-out loss", "gain over temperature", "weight", "parameters", "seconds"]]
        for part in self.parts:
            gain = "-" if part.name == "temperature" else _signed(part.gain, part.gain_error)
            took = "-" if part.seconds is None else f"{part.seconds:.1f}"
            rows.append([part.name, f"{part.loss:.5f}", gain, f"{part.weight:.3f}", f"{part.n_parameters:,}", took])
        if not seconds:
            rows = [row[:-1] for row in rows]
        return rows

    def conclusions(self) -> list[str]:
        """Return what follows from the table, as sentences."""
        supported = [
            f"{_CORRECTS[name]} ({count:.0f})"
            for name, count in self.effective.items()
            if round(count) and name in _CORRECTS
        ]
        said = []
        if supported and "model" in self.weights:
            said.append(f"The rows support these corrections (effective coefficients): {'; '.join(supported)}.")
        kept = " + ".join(f"{weight:.3f} {name}" for name, weight in self.weights.items())
        said.append(f"Kept: {kept}; {self.reason}.")
        said.append(
            f"Every class keeps a small minimum probability ({self.uniform_share:.2g}, shared by all classes), because "
            f"{self.rows:,} rows cannot rule any class out. "
            "The parameters of this, and of any last correction of the mixture, are not in the table."
        )
        if self.keep_accuracy:
            said.append("The order of the classes is kept in every row, and so is accuracy.")
        said += [f"Left out: {name}. {reason}." for name, reason in self.left_out.items()]
        return said + [f"Note on {part.name}: {part.note}." for part in self.parts if part.note]

    def _repr_html_(self) -> str:
        return html_table(self.table(), [self.summary, *self.conclusions()])

    def to_markdown(self) -> str:
        """Return the selection as Markdown."""
        return "\n".join([self.summary, "", markdown_table(self.table()), "", *self.conclusions()])

    def __str__(self) -> str:
        return "\n".join([self.summary, "", aligned_table(self.table()), "", *self.conclusions()])

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON has it."""
        record: dict[str, Any] = json_ready(asdict(self))
        return record


def _signed(gain: float, error: float) -> str:
    if not math.isfinite(error):
        return f"{gain:+.5f}"
    return f"{gain:+.5f} +- {error:.5f}"
