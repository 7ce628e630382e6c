"""What a report needs to know of a comparison, so that comparisons may know of reports."""

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from glayers.arrays import Array
from glayers.calibrators import Calibrator
from glayers.metrics.old import PairedDifferences, Scorecard
from glayers.predictions import Predictions

# Marks, embeddings, overrides and isolates of writing from right to left, which reach past the end of a name.
_TURNING = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


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
    """Return what to call each class: its name, in which nothing turns the text around it, or its number."""
    names = compared.test.class_names
    if names is None:
        return [f"class {c}" for c in range(compared.test.n_classes)]
    return [_TURNING.sub(lambda found: found[0].encode("unicode_escape").decode(), name) for name in names]
