"""Predictions -> every metric at once, as a small table that prints, converts and compares."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from glayers.metrics.events import Event, Rows, Scored, check_any, check_event, top
from glayers.metrics.metric import markdown_line
from glayers.metrics.registry import METRICS, chosen_metrics, evaluate_once


@dataclass(frozen=True)
class Scorecard(Mapping[str, float]):
    """Every metric of one set of predictions, by name: `card["nll"]`.

    Accuracy, confidence and calibration errors are fractions here and percentages in print. `mean_top_ks` covers the
    ten highest ranks and `top_5_accuracy` the five highest, or all of them where there are fewer classes.

    Attributes
    ----------
    values_by_name
        The numbers, in the order of `METRICS`.
    rows
        The number of rows.
    classes
        The number of classes, or None where only the scores of one event are known.
    """

    values_by_name: dict[str, float]
    rows: int
    classes: int | None

    def __getitem__(self, metric: str) -> float:
        return self.values_by_name[metric]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def to_dict(self) -> dict[str, float]:
        """Return the number of rows and of classes, and all metrics by name, ready for JSON."""
        classes = {} if self.classes is None else {"classes": self.classes}
        return {"rows": self.rows, **classes, **self.values_by_name}

    def printed(self) -> dict[str, str]:
        """Return each label with its value as people read it."""
        sizes = {name: f"{value:,}" for name, value in list(self.to_dict().items())[: -len(self)]}
        return sizes | {METRICS[m].label_for(self.classes): METRICS[m].format(value) for m, value in self.items()}

    def to_markdown(self) -> str:
        """Return a Markdown table with one line per metric."""
        return "\n".join(["| metric | value |", "|---|---:|", *map(markdown_line, self.printed().items())])

    def __str__(self) -> str:
        printed = self.printed()
        width = max(map(len, printed))
        return "\n".join(f"{label:<{width}}  {value:>10}" for label, value in printed.items())


def scorecard(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event = top
) -> Scorecard:
    """Score predictions by every metric, after checking that they are probabilities.

    Parameters
    ----------
    probabilities
        Array (n, k), `Predictions` or `Confidences`. With `Predictions` the NLL comes from the logits; with
        `Confidences` the scorecard holds the metrics that need only one event.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    sample_weight
        Row weights (n,).
    event
        An event other than `top` gives the metrics of that event alone.

    Returns
    -------
    Scorecard
        A mapping from metric names to numbers, which prints as a table.

    Examples
    --------
    >>> card = scorecard([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2])
    >>> card["accuracy"]
    0.5
    >>> print(card.to_markdown().splitlines()[4])
    | accuracy | 50.00 % |
    """
    rows = rows_to_score(probabilities, labels, sample_weight, None, event)
    return card_of(rows, evaluate_once(rows, chosen_metrics(rows)))


def rows_to_score(given: object, labels: object, sample_weight: object, groups: object, event: Event) -> Rows | Scored:
    """Check predictions that all metrics will read, and keep only one event of them if that is not the top class."""
    rows = check_any(given, labels, sample_weight, groups, strict=True)
    return rows if event == top else check_event(rows, event=event)


def card_of(rows: Rows | Scored, values: dict[str, float]) -> Scorecard:
    """Return the scorecard of checked rows with these values."""
    return Scorecard(values, len(rows.weights), rows.n_classes if isinstance(rows, Rows) else None)
