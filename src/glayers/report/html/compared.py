"""What a report needs to know of a comparison, so that comparisons may know of reports."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from glayers.arrays import Array
from glayers.calibrators import Calibrator
from glayers.metrics import PairedDifferences, Scorecard
from glayers.predictions import Predictions


class Compared(Protocol):
    """Methods by name, the first of `scorecards` being the uncalibrated: `glayers.compare` returns one."""

    @property
    def test(self) -> Predictions:
        """The rows all methods were scored on."""

    @property
    def calibrators(self) -> Mapping[str, Calibrator]:
        """The fitted calibrators."""

    @property
    def scorecards(self) -> Mapping[str, Scorecard]:
        """The scorecards, of the uncalibrated too."""

    @property
    def notes(self) -> Mapping[str, Sequence[str]]:
        """What each fit warned of."""

    @property
    def failed(self) -> Mapping[str, str]:
        """Why a method could not be fitted."""

    def logits(self, method: str) -> Array:
        """The test rows' logits as a method calibrates them."""

    def differences(
        self, metrics: Sequence[str], *, n_resamples: int = 1000, random_state: int = 0
    ) -> PairedDifferences:
        """How every two methods differ on the same rows."""


def class_names(compared: Compared) -> list[str]:
    """Return what to call each class: its name, or its number."""
    names = compared.test.class_names
    return [f"class {c}" for c in range(compared.test.n_classes)] if names is None else list(names)
