"""What `AutoCalibrator` tried, what it kept and why: a record that prints, and that a file keeps as JSON."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from glayers.errors import BadFile
from glayers.fitting.folds import format_gain
from glayers.text_tables import aligned_table, markdown_table

_LOSSES = {"log": "log loss", "brier": "Brier score"}


@dataclass(frozen=True)
class FamilyResult:
    """One family that was fitted: its cross-validated loss, and its weight in the calibrator that was kept.

    `gain` is how much lower the loss is than that of temperature scaling, with standard error `gain_error` (infinite
    from too few rows or groups). Temperature scaling counts with its loss on the rows it was fitted to, because some
    families start from there. Both are None for temperature scaling itself.
    """

    name: str
    loss: float
    gain: float | None
    gain_error: float | None
    weight: float
    n_parameters: int
    seconds: float | None = None  # None after loading: a file does not keep it
    note: str = ""


@dataclass(frozen=True)
class LastCorrection:
    """The shared correction behind the mixture: whether it was kept, and by how much it lowers the held-out `loss`."""

    kept: bool
    loss: str
    gain: float
    gain_error: float


@dataclass(frozen=True)
class AutoSelection:
    """How `AutoCalibrator` chose: `print(auto.selection_)` explains it.

    Attributes
    ----------
    rows, classes, n_folds : int
        Size of the problem and of the cross-validation.
    sample : int, optional
        How many rows, drawn at random, the families learned from; temperature scaling used all. None in old files.
    room : float, optional
        The share of the probability that is spread over all possible classes of a row. None in old files.
    loss : str
        The loss that families were compared by, "log" or "brier".
    keep_accuracy : bool
        Whether the order of the classes was kept in every row.
    families : tuple of FamilyResult
        Everything that was fitted, and "uncalibrated".
    left_out : dict
        Families that were not fitted, with the reason.
    mixture : dict
        Weight of each family in the mixture; it has one entry if one family is best alone.
    mixture_loss : float
        Cross-validated loss of the mixture.
    correction : LastCorrection or None
        The shared correction behind the mixture; None for one family alone.
    kept : {"mixture", "temperature", "uncalibrated"}
        What the calibrator returns.
    reason : str
        Why, in a sentence.
    """

    rows: int
    classes: int
    n_folds: int
    loss: str
    keep_accuracy: bool
    families: tuple[FamilyResult, ...]
    left_out: Mapping[str, str]
    mixture: Mapping[str, float]
    mixture_loss: float
    correction: LastCorrection | None
    kept: str
    reason: str
    sample: int | None = None
    room: float | None = None

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each family in what was kept, which sum to 1."""
        return {family.name: family.weight for family in self.families if family.weight}

    @property
    def summary(self) -> str:
        """One sentence on what was compared."""
        drawn = self.sample not in (None, self.rows)
        sample = f"temperature from all, the other families from {self.sample:,} random rows; " if drawn else ""
        return (
            f"{self.rows:,} rows, {self.classes:,} classes ({self.rows / self.classes:,.0f} rows per class); {sample}"
            f"compared by {self.n_folds}-fold cross-validated {_LOSSES[self.loss]}."
        )

    def table(self, *, seconds: bool = True) -> list[list[str]]:
        """Return the families as rows of text, after a row of headings; seconds differ between runs."""
        heading = ["family", "loss", "gain over temperature", "weight", "parameters", "seconds"]
        rows = [
            [
                family.name,
                f"{family.loss:.5f}",
                _signed_gain(family),
                f"{family.weight:.2f}",
                f"{family.n_parameters:,}",
                "-" if family.seconds is None else f"{family.seconds:.1f}",
            ]
            for family in self.families
        ]
        return [row if seconds else row[:-1] for row in (heading, *rows)]

    def conclusions(self) -> list[str]:
        """Return what follows from the table, as sentences."""
        alone = next(iter(self.mixture))
        parts = " + ".join(f"{weight:.2f} {name}" for name, weight in self.mixture.items())
        loss = f"cross-validated loss {self.mixture_loss:.5f}"
        said = [f"Mixture: {parts if len(self.mixture) > 1 else f'{alone} alone'}; {loss}.{self._correction()}"]
        said.append(f"Kept: {self.kept}. {self.reason}")
        if self.room is not None:
            said.append(f"A share of {self.room:.2g} is spread over all classes, for labels that no row has shown.")
        if self.keep_accuracy:
            said.append("The order of the classes is kept in every row, and so is accuracy.")
        said += [f"Not fitted: {name}. {reason}." for name, reason in self.left_out.items()]
        return said + [f"Note on {family.name}: {family.note}." for family in self.families if family.note]

    def to_markdown(self) -> str:
        """Return the selection as Markdown."""
        return "\n".join([self.summary, "", markdown_table(self.table()), "", *self.conclusions()])

    def __str__(self) -> str:
        return "\n".join([self.summary, "", aligned_table(self.table()), "", *self.conclusions()])

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON has it."""
        return asdict(self) | {"families": [asdict(family) for family in self.families]}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the record that `to_dict` made, or raise BadFile for anything else."""
        try:
            parts = {
                "families": tuple(FamilyResult(**family) for family in record["families"]),
                "correction": None if record["correction"] is None else LastCorrection(**record["correction"]),
            }
            found = cls(**dict(record) | parts)
            str(found)  # a record of wrong types cannot be printed
        except (AttributeError, KeyError, StopIteration, TypeError, ValueError) as problem:
            raise BadFile(f"the record of what auto selected is damaged: {problem}") from problem
        return found

    def _correction(self) -> str:
        made = self.correction
        if made is None:
            return ""
        verb, size = "lower" if made.gain > 0 else "raise", format_gain(abs(made.gain), made.gain_error)
        if made.kept:
            return f" The shared correction behind it {verb}s the loss by {size}."
        return f" A shared correction behind it would {verb} the {_LOSSES[made.loss]} by {size}, so it is left out."


def _signed_gain(family: FamilyResult) -> str:
    if family.gain is None or family.gain_error is None:
        return "-"
    return f"{family.gain:+.5f}" + (f" +- {family.gain_error:.5f}" if math.isfinite(family.gain_error) else "")
