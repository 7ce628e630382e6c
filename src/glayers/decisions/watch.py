"""Labelled batches of a model in production -> an alarm that may be asked for every day.

Each question (the confidence, each class, a promised accuracy) has a bettor who starts with a wealth of 1. Before each
batch the bettor recalibrates the model with the rows of earlier batches only, then bets on the new labels at the odds
of the model. If the model is calibrated, no strategy makes money on average: the wealth is a nonnegative martingale,
and it ever exceeds 1 / alpha with a probability of at most alpha (Ville). So looking often costs nothing. Shafer,
"Testing by Betting", Journal of the Royal Statistical Society A, 2021.

A bettor keeps seven numbers: the wealth, a, b and their precision, which is a matrix. The recalibration adds a + b x to
the log-odds x of the model. After each batch, a and b are those of the highest posterior density, and the normal
distribution there is the prior of the next batch. One Newton step from the identity would not do: a model that says
99 % and is right in 90 % was recalibrated to 1 %, and never raised an alarm.
"""

import json
import math
import warnings
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from glayers.arrays import row_blocks
from glayers.checks import number_between
from glayers.errors import BadFile, BadPredictions, GlayersWarning
from glayers.files import errors_as_bad_file, file_path, locked, open_regular, write_whole
from glayers.metrics.events import Rows, Scored, check_any, class_events
from glayers.metrics.outcomes import recalibration
from glayers.text_tables import two_digits

__all__ = ["Watch", "watch"]

_FORMAT = 6
_MOST_LOG_ODDS = 27.0  # of a probability of 1 - 2e-12: a bet against certainty would have infinite odds
_NEW_BETTOR = (0.0, 0.0, 0.0, 10.0, 0.0, 0.0, 10.0)  # a change of the log-odds by 0.3 is usual for a model that drifts
_KNOWN_BY_ITSELF = 50  # rows of a batch that no other has by chance
_CONFIDENCE = "confidence"
_ACCURACY = "accuracy"


@dataclass
class Watch:
    """What was seen of a model in production so far.

    Attributes
    ----------
    alpha
        The probability that a calibrated model ever raises an alarm.
    accuracy
        The promised accuracy; None without a promise.
    bettors
        By question ("confidence", "accuracy" if one was promised, and "class cat" for each class; confidences have no
        classes), the logarithm of the wealth, and what the bettor has learned from earlier batches: a, b, and their
        precision (four numbers).
    batches
        Name, rows and digest of every batch, the evidence after it, the question it was most about, and the logarithms
        of the wealth that make it up: at most three numbers per batch, however many classes there are.
    model
        What identifies the model that is watched; empty if the caller did not say.
    """

    alpha: float = 0.01
    accuracy: float | None = None
    bettors: dict[str, list[float]] = field(default_factory=dict)
    batches: list[dict[str, Any]] = field(default_factory=list)
    model: str = ""

    def __post_init__(self) -> None:
        self.alpha = number_between(self.alpha, "alpha", 0, 1)
        if self.accuracy is not None:
            self.accuracy = number_between(self.accuracy, "accuracy", 0, 1)

    @property
    def log_wealths(self) -> dict[str, float]:
        """The logarithm of the wealth of each bettor, by question."""
        return {question: numbers[0] for question, numbers in self.bettors.items()}

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence: the mean wealth, where all classes together count as one question."""
        return self._evidence()["log_evidence"] if self.bettors else 0.0

    def _evidence(self) -> dict[str, Any]:
        """Return the evidence, the wealth about each question that makes it up, and the question with most of it."""
        wealths = self.log_wealths
        questions = {name: wealths.pop(name) for name in (_CONFIDENCE, _ACCURACY) if name in wealths}
        about = max(questions, key=questions.__getitem__)
        if wealths:
            questions["classes"] = _log_mean(list(wealths.values()))
            if questions["classes"] > questions[about]:
                about = max(wealths, key=wealths.__getitem__)
        return {"log_evidence": _log_mean(list(questions.values())), "log_wealths": questions, "about": about}

    @property
    def alarm_about(self) -> str:
        """The question with most of the evidence when it first reached 1 / alpha; empty without an alarm."""
        raised = (batch["about"] for batch in self.batches if batch["log_evidence"] >= -math.log(self.alpha))
        return next(raised, "")

    @property
    def alarm(self) -> bool:
        """Whether the evidence ever reached 1 / alpha."""
        return bool(self.alarm_about)

    @property
    def rows(self) -> int:
        """The number of rows of all batches."""
        return sum(batch["rows"] for batch in self.batches)

    def update(self, batch: object, labels: object = None, *, name: str = "") -> bool:
        """Count one batch of calibrated probabilities with labels; False if it was counted before.

        Batches of 50 rows or more are known by their rows, smaller ones also by their names: they may be equal by
        chance, and to leave out those that repeat would favour some labels.
        """
        rows = check_any(batch, labels)
        if rows.given_weights is not None or rows.groups is not None:
            raise BadPredictions("watch needs independent rows; leave weights and groups out (--ignore-groups)")
        digest = _checksum(rows.top.scores.tobytes() + rows.top.hits.tobytes())
        counted = [known["name"] for known in self.batches if known["digest"] == digest]
        if counted and (len(rows) >= _KNOWN_BY_ITSELF or (name and name in counted)):
            return False
        events = {_CONFIDENCE: rows.top}
        if self.accuracy is not None:
            events[_ACCURACY] = Scored(np.full(len(rows), self.accuracy), rows.top.hits)
        if isinstance(rows, Rows):
            names = rows.class_names or range(rows.n_classes)
            events |= {f"class {name}": event for name, event in zip(names, class_events(rows), strict=True)}
        if self.batches and events.keys() != self.bettors.keys():
            raise BadPredictions("this batch has other classes than the batches before; use another state file")
        bets = list(events.items())
        for some in row_blocks(len(bets), len(rows)):  # all at once would take many times the memory of the batch
            self._bet(dict(bets[some]))
        self.batches.append({"name": name, "rows": len(rows), "digest": digest, **self._evidence()})
        return True

    def _bet(self, events: dict[str, Scored]) -> None:
        """Bet on the outcomes of one batch at recalibrated odds, then learn from them, for some of the questions."""
        p = np.clip([event.scores for event in events.values()], 0.0, 1.0)
        hits = np.array([event.hits for event in events.values()])
        with np.errstate(divide="ignore"):
            x = np.clip(np.log(p) - np.log1p(-p), -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
        bettors = np.array([self.bettors.get(question, _NEW_BETTOR) for question in events])
        before = bettors[:, 1:3]
        change = before[:, :1] + before[:, 1:] * x
        promised = np.array([question == _ACCURACY for question in events])
        change[promised] = np.minimum(change[promised], 0.0)  # more than was promised is no reason for an alarm
        gains = hits * change + np.logaddexp(0, x) - np.logaddexp(0, x + change)  # log-likelihoods of both
        wealths = bettors[:, 0] + gains.sum(axis=1)
        precision = bettors[:, 3:].reshape(-1, 2, 2)
        point, curvature = recalibration(x, hits, np.ones((1, 1)), before, precision, before)
        new = np.column_stack([wealths, point, curvature.reshape(-1, 4)])
        self.bettors |= zip(events, new.tolist(), strict=True)

    def to_dict(self) -> dict[str, Any]:
        """Return alarm, evidence and wealth by question, ready for JSON."""
        return {
            "alarm": self.alarm,
            "alpha": self.alpha,
            "batches": len(self.batches),
            "rows": self.rows,
            "log_evidence": self.log_evidence,
            "log_wealth": self.log_wealths,
        }

    def __str__(self) -> str:
        counted = f"batches: {len(self.batches):,}, rows: {self.rows:,}"
        if self.alarm:
            about = self.alarm_about
            if about == _ACCURACY and self.accuracy is not None:
                return f"Alarm: the accuracy is below the promised {100 * self.accuracy:g} % ({counted})."
            return f"Alarm: the model is no longer calibrated ({counted}). Most of the evidence was about {about}."
        if len(self.batches) < 2:
            return f"No result yet: testing starts with the second batch ({counted})."
        share = 100 * math.exp(min(0.0, self.log_evidence + math.log(self.alpha)))
        return f"No alarm: {two_digits(share)} % of the evidence that an alarm needs ({counted})."

    def save(self, path: object) -> None:
        """Write the state atomically, with a checksum."""
        state = asdict(self)
        saved = {"format": _FORMAT, "checksum": _checksum(json.dumps(state).encode()), "state": state}
        write_whole(file_path(path), json.dumps(saved).encode())

    @classmethod
    def load(cls, path: object) -> "Watch":
        """Read the state of earlier batches."""
        with errors_as_bad_file(path), open_regular(file_path(path)) as stream:
            saved = json.load(stream)
            if saved["format"] != _FORMAT:
                raise BadFile(f"is not a state file of format {_FORMAT}; start a new one")
            found = cls(**saved["state"])
            if saved["checksum"] != _checksum(json.dumps(saved["state"]).encode()) or not found._is_possible():
                raise BadFile("holds numbers that no watch wrote; start a new state file")
            return found

    def _is_possible(self) -> bool:
        """Whether a watch may have these numbers; an error says that it may not, too."""
        bettors = np.array(list(self.bettors.values())).reshape(-1, 7)
        numbers = [*bettors.flat]
        for batch in self.batches[:]:
            text = batch["name"] + batch["digest"] + batch["about"]
            numbers += [len(text), math.log(batch["rows"]), batch["log_evidence"], *batch["log_wealths"].values()]
        np.linalg.cholesky(bettors[:, 3:].reshape(-1, 2, 2))  # an error unless the precision is positive definite
        return bool(np.isfinite(numbers).all())


def watch(
    batch: object,
    state: object,
    labels: object = None,
    *,
    alpha: float = 0.01,
    accuracy: float | None = None,
    name: str = "",
    model: str = "",
) -> Watch:
    """Count one labelled batch in a state file, and return whether the model still keeps its word.

    Parameters
    ----------
    batch
        Calibrated probabilities (n, k), `Predictions` or `Confidences`, with rows that do not depend on each other.
    state
        The state file. It is made by the first batch; two programs may write to it at the same time.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    alpha
        The probability that a calibrated model which keeps the promised accuracy ever raises an alarm.
    accuracy
        A promised accuracy. All batches of a state file have the same `alpha` and `accuracy`.
    name
        The name of the batch, such as a date. A batch that comes again under its name counts once.
    model
        What identifies the model, such as its version. A state file refuses batches of another model.

    Returns
    -------
    Watch
        `alarm`, `log_evidence` and the wealth of each question; prints as a sentence. The first batch only teaches
        the watch: for a verdict about one batch use `metrics.calibration_test`.

    Notes
    -----
    The promise is about exact calibration: the watch bets against the model as it is. A method that is too simple for
    the model gives an alarm without any drift, so test it on fresh rows first (`metrics.calibration_test`), and prefer
    `AutoCalibrator`. A calibrator that was fitted on few rows is also a little off, which enough batches show. Refit
    with the new rows then, and start a new state file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> rng = np.random.default_rng(0)
    >>> with TemporaryDirectory() as folder:
    ...     for day in range(5):
    ...         p = rng.dirichlet([1, 1, 1], 200)
    ...         labels = [rng.choice(3, p=row) for row in p]
    ...         found = watch(p, f"{folder}/state.json", labels)
    >>> found.alarm, found.rows
    (False, 1000)
    """
    path = file_path(state)
    with locked(path):
        promised = Watch(alpha, accuracy, model=str(model))
        found = Watch.load(path) if path.exists() else promised
        for word in ("alpha", "accuracy", "model"):
            if getattr(found, word) != getattr(promised, word):
                raise BadPredictions(f"{path}: was started with another {word}; use another state file for this one")
        if found.update(batch, labels, name=str(name)):
            found.save(path)
        else:
            warnings.warn(f"the batch {name} was counted before: it changes nothing", GlayersWarning, stacklevel=2)
    return found


def _checksum(content: bytes) -> str:
    """Return what tells one batch, or one state, from another."""
    return sha256(content).hexdigest()[:32]


def _log_mean(values: list[float]) -> float:
    return float(np.logaddexp.reduce(values)) - math.log(len(values))
