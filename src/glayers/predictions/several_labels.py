"""Matrices of logits and labels -> `MultiLabelPredictions`: the predictions of rows that may have several labels.

Each pair of a row and a label whose presence is known is one row with one logit. Everything that takes `Predictions` so
takes rows with several labels, and a missing label is a pair that is not there.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from glayers import checks
from glayers.arrays import Array, Ints, column_names, to_floats
from glayers.errors import BadPredictions, GlayersWarning, listed
from glayers.predictions.predictions import Predictions
from glayers.text_tables import plural

_PRESENCE = ("absent", "present")


@dataclass(frozen=True, eq=False, init=False, repr=False)
class MultiLabelPredictions(Predictions):
    """Logits and labels of rows that may have several labels, or none.

    The record has one row for each pair of a row and a label whose presence is known. Its classes are "absent" and
    "present". Pairs of one row are a group, because they depend on each other.

    Parameters
    ----------
    logits
        Array (n, labels): the sigmoid of a logit is the probability that the row has the label. -inf means that it
        cannot have it. The columns of a data frame name the labels.
    labels
        Array (n, labels): 1 where the row has the label, 0 where it does not, and NaN where nobody knows.
    weights, groups
        Of the n rows, as for `Predictions`; rows of weight 0 are left out.
    label_names
        One name per label.

    Attributes
    ----------
    n_labels : int
        The number of labels.
    columns : ndarray of shape (pairs,)
        The number of the label of each pair.

    Examples
    --------
    >>> rows = MultiLabelPredictions([[2.0, -1.0], [0.5, -3.0]], [[1, 0], [np.nan, 0]], label_names=["cat", "dog"])
    >>> rows
    MultiLabelPredictions(3 pairs of a row and a label, 2 labels, float64)
    >>> {name: len(each) for name, each in rows.by_label().items()}
    {'cat': 1, 'dog': 2}
    """

    label_names: tuple[str, ...] | None
    columns: Ints
    n_labels: int
    has_several_labels: ClassVar[bool] = True

    def __init__(
        self,
        logits: object,
        labels: object,
        weights: object = None,
        groups: object = None,
        label_names: Iterable[str] | None = None,
    ) -> None:
        scores = checks.two_dimensional(to_floats(logits, "logits"), "logits")
        checks.refuse(~(scores < np.inf), scores, "logits must be finite", ", or -inf for a label that is impossible")
        if len(scores) > 1 and scores.min() >= 0 and scores.max() <= 1:
            warnings.warn(
                "all logits lie between 0 and 1: if they are probabilities, pass them to "
                'MultiLabelPredictions.from_probabilities, or fit with the setting inputs="probabilities"',
                GlayersWarning,
                stacklevel=2,
            )
        names = column_names(logits) if label_names is None else label_names
        self._check_matrix(scores, labels, weights, groups, names)

    @classmethod
    def from_probabilities(  # type: ignore[override]
        cls,
        probabilities: object,
        labels: object,
        weights: object = None,
        groups: object = None,
        label_names: Iterable[str] | None = None,
        floor: float = 1e-12,
    ) -> Self:
        """Return predictions of probabilities (n, labels), which need not sum to 1, raised to `floor`.

        Parameters
        ----------
        probabilities, labels, weights, groups, label_names
            As for `MultiLabelPredictions`.
        floor
            The smallest probability, and the smallest of its complement.

        Returns
        -------
        MultiLabelPredictions
        """
        scores = checks.two_dimensional(to_floats(probabilities, "probabilities"), "probabilities")
        checks.refuse_outside_unit_interval(scores, "probabilities")
        flat = Predictions.from_probabilities(scores.reshape(-1, 1), np.zeros(scores.size, np.int64), floor=floor)
        record = cls.__new__(cls)
        names = column_names(probabilities) if label_names is None else label_names
        record._check_matrix(flat.logits.reshape(scores.shape), labels, weights, groups, names)
        return record

    def _check_matrix(self, logits: Array, labels: object, weights: Any, groups: Any, names: Any) -> None:
        n_rows, n_labels = logits.shape
        own_names = column_names(labels)
        if names is not None and own_names is not None and tuple(names) != own_names:
            raise BadPredictions(
                f"the columns of the labels, {listed(own_names)}, must have the names and the order of those of the "
                f"scores, {listed(names)}"
            )
        truth = checks.check_label_matrix(labels, logits.shape)
        known_pairs = ~np.isnan(truth)
        if weights is not None:
            weights = checks.check_weights(weights, n_rows)
            known_pairs &= weights[:, None] > 0  # a label may have no others
        rows, columns = np.nonzero(known_pairs)
        if not rows.size:
            raise BadPredictions("every label is missing: all are NaN, or in rows of weight 0")
        if weights is not None:
            weights = weights[rows]
        units = rows
        if groups is not None:
            units = checks.check_groups(groups, n_rows)[rows]
        known = truth[rows, columns].astype(np.int64)
        pairs = logits[rows, columns][:, None]
        checks.refuse_impossible_labels(pairs, known)
        self._set_checked(
            weights,
            units,
            logits=pairs,
            labels=known,
            class_names=_PRESENCE,
            columns=columns,
            n_labels=n_labels,
            label_names=checks.check_class_names(names, n_labels),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the labels, or their numbers as text."""
        return self.label_names or tuple(map(str, range(self.n_labels)))

    def by_label(self) -> dict[str, Predictions]:
        """Return the rows of each label by its name, those of labels that are missing in every row left out."""
        found = {}
        for number, name in enumerate(self.names):
            places = np.flatnonzero(self.columns == number)
            if places.size:
                found[name] = self._rows_at(places)
        return found

    def _rows_at(self, places: Ints) -> Predictions:
        """Return some pairs of one label as rows of two classes."""
        fields: dict[str, Any] = {
            name: value[places] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        del fields["columns"]
        if len(np.unique(fields["groups"])) == len(places):  # independent rows
            fields["groups"] = None
        return Predictions._trusted(**{"class_names": None, "weights": None} | fields)

    def __repr__(self) -> str:
        pairs = f"{len(self):,} pairs of a row and a label"
        return f"MultiLabelPredictions({pairs}, {plural(self.n_labels, 'label')}, {self.logits.dtype})"
