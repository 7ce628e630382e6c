"""Batches of torch tensors -> the scorecard of all of them, as a metric of torchmetrics."""

from collections.abc import Collection
from typing import Any, Literal

import torch
import torchmetrics
from torch import Tensor

from glayers.metrics import METRICS, Event, top
from glayers.metrics.streaming import StreamingScorecard


class ScorecardMetric(torchmetrics.Metric):
    """The metrics of glayers as one metric of torchmetrics, in constant memory; several processes are added up.

    Parameters
    ----------
    inputs
        What `preds` are: "logits" or "probabilities", in both cases (rows, classes).
    metrics
        Names of some metrics; all by default.
    event
        As in `scorecard`.
    **settings
        Those of `torchmetrics.Metric`.

    Examples
    --------
    >>> metric = ScorecardMetric(metrics=["accuracy"])
    >>> metric.update(torch.tensor([[2.0, 0.0, 1.0], [0.0, 2.0, -1.0]]), torch.tensor([0, 2]))
    >>> metric.compute()
    {'accuracy': tensor(0.5000)}
    """

    full_state_update = True  # the value of one batch comes from an empty scorecard

    def __init__(
        self,
        inputs: Literal["logits", "probabilities"] = "logits",
        *,
        metrics: Collection[str] = METRICS,
        event: Event | str = top,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.metrics = list(metrics)
        self.rows = StreamingScorecard(inputs, event=event)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add rows: scores (rows, classes) and class numbers (rows,)."""
        scores = preds if preds.dtype == torch.float64 else preds.float()
        self.rows.update(scores.detach().cpu(), target.cpu())

    def compute(self) -> dict[str, Tensor]:
        """Return each metric by its name."""
        values = self.rows.result(self.metrics)
        return {name: torch.tensor(value, device=self.device) for name, value in values.items()}

    def reset(self) -> None:
        """Forget all rows."""
        super().reset()
        self.rows = self._empty()

    def merge_state(self, incoming_state: Any) -> None:
        """Add all rows of another metric."""
        self.rows.merge(incoming_state.rows)
        self._update_count += incoming_state._update_count
        self._computed = None

    def _empty(self) -> StreamingScorecard:
        return StreamingScorecard(self.rows.inputs, event=self.rows.event)

    def _copy_state_dict(self) -> dict[str, Any]:
        """Return what torchmetrics puts back after the value of one batch, or of all processes."""
        return {"rows": self.rows}

    def _sync_dist(self, dist_sync_fn: Any = None, process_group: Any = None) -> None:  # noqa: ARG002
        """Replace the rows by those of all processes."""
        group = process_group or self.process_group
        parts: list[Any] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(parts, self.rows, group=group)
        self.rows = self._empty()
        for part in parts:
            self.rows.merge(part)
