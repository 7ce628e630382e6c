"""Labelled batches of a model in production -> an alarm that may be asked for every day.

Each question (the confidence, each class, a promised accuracy) has a bettor who starts with a wealth of 1. Before each
batch the bettor recalibrates the model with the rows of earlier batches only, then bets on the new labels at the odds
of the model. If the model is calibrated, no strategy makes money on average: the wealth is a nonnegative martingale,
and it ever exceeds 1 / alpha with a probability of at most alpha (Ville). So looking often costs nothing. Shafer,
"Testing by Betting", Journal of the Royal Statistical Society A, 2021.

A bettor keeps six numbers. The recalibration adds a + b x to the log-odds x of the model: one Newton step from the
identity, with a normal prior on a and b, from the sums of gradient and curvature.
"""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from glayers.arrays import Floats
from glayers.checks import number_between
from glayers.errors import BadFile, BadPredictions
from glayers.files import errors_as_bad_file, file_path, open_regular, write_whole
from glayers.metrics.events import Rows, Scored, check_any, class_events

__all__ = ["Watch", "watch"]

_FORMAT = 1
_MOST_LOG_ODDS = 27.0  # of a probability of 1 - 2e-12: a bet against certainty would have infinite odds
_PRIOR_PRECISION = 10.0  # of a and b: a change of the log-odds by 0.3 is usual for a model that drifts
_LARGEST_STEP = 2.0  # of a and b, where one Newton step overshoots
_LARGEST_STATE = 2**26  # bytes; 1,000 classes take 200 kB


@dataclass
class Bettor:
    """One question: what recalibration has learned, and the logarithm of the wealth."""

    gradient: list[float] = field(default_factory=lambda: [0.0, 0.0])
    curvature: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    log_wealth: float = 0.0

    def bet(self, event: Scored) -> None:
        """Bet on the rows of one batch, then learn from them."""
        p = np.clip(event.scores, 0.0, 1.0)
        with np.errstate(divide="ignore"):
            x = np.clip(np.log(p) - np.log1p(-p), -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
        a, b = self._recalibration()
        sign = 2 * event.hits - 1
        gains = np.logaddexp(0, -sign * x) - np.logaddexp(0, -sign * (x + a + b * x))
        self.log_wealth += float(gains.sum())
        residual = event.hits - p
        spread = p * (1 - p)
        self.gradient[0] += float(residual.sum())
        self.gradient[1] += float(residual @ x)
        self.curvature[0] += float(spread.sum())
        self.curvature[1] += float(spread @ x)
        self.curvature[2] += float(spread @ x**2)

    def _recalibration(self) -> Floats:
        """Return a and b, from earlier batches only."""
        first, mixed, second = self.curvature
        matrix = np.array([[first + _PRIOR_PRECISION, mixed], [mixed, second + _PRIOR_PRECISION]])
        return np.clip(np.linalg.solve(matrix, self.gradient), -_LARGEST_STEP, _LARGEST_STEP)


@dataclass
class Promise:
    """A promised accuracy: counts of earlier batches, and the logarithm of the wealth."""

    accuracy: float
    right: float = 0.0
    rows: float = 0.0
    log_wealth: float = 0.0

    def bet(self, event: Scored) -> None:
        """Bet on an accuracy below the promised one, as high as earlier batches showed."""
        observed = (self.right + self.accuracy) / (self.rows + 1)
        expected = min(max(observed, 1e-6), self.accuracy)  # a higher one would bet on keeping the promise
        right = float(event.hits.sum())
        wrong = len(event.hits) - right
        self.log_wealth += right * math.log(expected / self.accuracy)
        self.log_wealth += wrong * math.log((1 - expected) / (1 - self.accuracy))
        self.right += right
        self.rows += len(event.hits)


@dataclass
class Watch:
    """What was seen of a model in production so far.

    Attributes
    ----------
    alpha
        The probability that a calibrated model ever raises an alarm.
    confidence
        The bettor against the confidence of the top class.
    classes
        One bettor for each class, by name; none for `Confidences`.
    promise
        The bettor against the promised accuracy; None without a promise.
    batches
        Name, rows, digest and evidence of every batch.
    """

    alpha: float = 0.01
    confidence: Bettor = field(default_factory=Bettor)
    classes: dict[str, Bettor] = field(default_factory=dict)
    promise: Promise | None = None
    batches: list[dict[str, Any]] = field(default_factory=list)

    @property
    def log_wealths(self) -> dict[str, float]:
        """The logarithm of the wealth of each bettor, by question."""
        found = {"confidence": self.confidence.log_wealth}
        if self.promise is not None:
            found["accuracy"] = self.promise.log_wealth
        return found | {f"class {name}": bettor.log_wealth for name, bettor in self.classes.items()}

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence: the mean wealth, where all classes together count as one question."""
        questions = [self.confidence.log_wealth]
        if self.promise is not None:
            questions.append(self.promise.log_wealth)
        if self.classes:
            questions.append(_log_mean([bettor.log_wealth for bettor in self.classes.values()]))
        return _log_mean(questions)

    @property
    def alarm(self) -> bool:
        """Whether the evidence ever reached 1 / alpha."""
        return any(batch["log_evidence"] >= -math.log(self.alpha) for batch in self.batches)

    @property
    def rows(self) -> int:
        """The number of rows of all batches."""
        return sum(batch["rows"] for batch in self.batches)

    def update(self, batch: object, labels: object = None, *, name: str = "") -> bool:
        """Count one batch of calibrated probabilities with labels; False if it was counted before by the same name.

        A batch without a name always counts: small batches may be equal by chance, and to leave out those that repeat
        would favour some labels.
        """
        rows = check_any(batch, labels, strict=True)
        _check_independent(rows)
        name = str(name)
        digest = _digest(rows)
        if name and any(known["digest"] == digest and known["name"] == name for known in self.batches):
            return False
        names = _class_names(rows)
        if self.batches and names != list(self.classes):
            raise BadPredictions("this batch has other classes than the batches before; use another state file")
        self.confidence.bet(rows.top)
        if self.promise is not None:
            self.promise.bet(rows.top)
        if isinstance(rows, Rows):
            if not self.batches:
                self.classes = {each: Bettor() for each in names}
            for bettor, event in zip(self.classes.values(), class_events(rows), strict=True):
                bettor.bet(event)
        self.batches.append(
            {"name": name, "rows": len(rows.weights), "digest": digest, "log_evidence": self.log_evidence}
        )
        return True

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
            most = max(self.log_wealths, key=lambda question: self.log_wealths[question])
            if most == "accuracy" and self.promise is not None:
                return f"Alarm: the accuracy is below the promised {100 * self.promise.accuracy:g} % ({counted})."
            return f"Alarm: the model is no longer calibrated ({counted}). Most of the evidence is about {most}."
        if len(self.batches) < 2:
            return f"No verdict yet: the watch bets from the second batch on ({counted})."
        share = math.exp(min(0.0, self.log_evidence + math.log(self.alpha)))
        return f"No alarm: {100 * share:.2g} % of the evidence that an alarm needs ({counted})."

    def save(self, path: object) -> None:
        """Write the state atomically."""
        state = {"format": _FORMAT, **asdict(self)}
        write_whole(file_path(path), json.dumps(state).encode())

    @classmethod
    def load(cls, path: object) -> "Watch":
        """Read the state of earlier batches."""
        with errors_as_bad_file(path):
            with open_regular(file_path(path)) as stream:
                text = stream.read(_LARGEST_STATE + 1)
            if len(text) > _LARGEST_STATE:
                raise BadFile("is too large for the state of a watch")
            return cls._of_state(json.loads(text))

    @classmethod
    def _of_state(cls, state: dict[str, Any]) -> "Watch":
        if not isinstance(state, dict) or state.pop("format", None) != _FORMAT:
            raise BadFile(f"is not a state file of format {_FORMAT}; start a new one")
        promise = state["promise"]
        if promise is not None:
            promise = _checked_promise(Promise(**promise))
        classes = {name: _checked_bettor(Bettor(**bettor)) for name, bettor in state["classes"].items()}
        confidence = _checked_bettor(Bettor(**state["confidence"]))
        batches = [_checked_batch(batch) for batch in state["batches"]]
        (alpha,) = _finite([state["alpha"]], 1)
        found = cls(alpha, confidence, classes, promise, batches)
        if not 0 < found.alpha < 1:
            raise BadFile(_FORGED)
        return found


def watch(
    batch: object,
    state: object,
    labels: object = None,
    *,
    alpha: float | None = None,
    accuracy: float | None = None,
    name: str = "",
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
        The probability that a calibrated model which keeps the promised accuracy ever raises an alarm, 0.01 by
        default. Batches of one state file have the same.
    accuracy
        A promised accuracy; the same for all batches of a state file.
    name
        The name of the batch, such as a date. A batch that comes again under its name counts once.

    Returns
    -------
    Watch
        `alarm`, `log_evidence` and the wealth of each question; prints as a sentence. The first batch only teaches
        the watch: for a verdict about one batch use `metrics.calibration_test`.

    Notes
    -----
    The promise is about exact calibration. A calibrator that was fitted on n rows is a little off, and after some
    multiples of n rows the watch notices that too. Refit with the new rows then.

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
    with _locked(path):
        found = _new(0.01 if alpha is None else alpha, accuracy)
        if path.exists():
            known = Watch.load(path)
            promised = None if known.promise is None else known.promise.accuracy
            if (alpha is not None and alpha != known.alpha) or (accuracy is not None and accuracy != promised):
                raise BadPredictions(
                    f"{path}: was started with alpha {known.alpha:g} and a promised accuracy of {promised}; leave "
                    f"alpha and accuracy out, or use another state file"
                )
            found = known
        if found.update(batch, labels, name=name):
            found.save(path)
    return found


_FORGED = "holds numbers that no watch writes; start a new state file"


def _finite(values: Any, size: int) -> list[float]:
    """Return a list of finite numbers of this size, or refuse it."""
    if not isinstance(values, list) or len(values) != size:
        raise BadFile(_FORGED)
    if not all(type(value) in (int, float) and abs(value) < 1e12 for value in values):
        raise BadFile(_FORGED)
    return [float(value) for value in values]


def _checked_bettor(bettor: Bettor) -> Bettor:
    _finite(bettor.gradient, 2)
    _finite([bettor.log_wealth], 1)
    first, mixed, second = _finite(bettor.curvature, 3)
    if first < 0 or second < 0 or mixed**2 > first * second * (1 + 1e-9) + 1e-9:
        raise BadFile(_FORGED)
    return bettor


def _checked_promise(promise: Promise) -> Promise:
    accuracy, right, rows, _ = _finite([promise.accuracy, promise.right, promise.rows, promise.log_wealth], 4)
    if not 0 < accuracy < 1 or not 0 <= right <= rows:
        raise BadFile(_FORGED)
    return promise


def _checked_batch(batch: Any) -> dict[str, Any]:
    if not isinstance(batch, dict) or batch.keys() != {"name", "rows", "digest", "log_evidence"}:
        raise BadFile(_FORGED)
    _finite([batch["rows"], batch["log_evidence"]], 2)
    if not isinstance(batch["name"], str) or not isinstance(batch["digest"], str):
        raise BadFile(_FORGED)
    return batch


def _class_names(rows: Rows | Scored) -> list[str]:
    """Return the names or numbers of the classes; none for confidences."""
    if isinstance(rows, Scored):
        return []
    return [str(name) for name in rows.class_names or range(rows.n_classes)]


def _new(alpha: float, accuracy: float | None) -> Watch:
    found = Watch(number_between(alpha, "alpha", 0, 1))
    if accuracy is not None:
        found.promise = Promise(number_between(accuracy, "accuracy", 0, 1))
    return found


def _check_independent(rows: Rows | Scored) -> None:
    if rows.given_weights is not None or rows.groups is not None:
        raise BadPredictions("watch bets on independent rows of equal weight; leave weights and groups out")


def _digest(rows: Rows | Scored) -> str:
    """Return what tells one batch from another."""
    outcomes = rows.labels if isinstance(rows, Rows) else rows.hits
    scores = rows.probabilities if isinstance(rows, Rows) else rows.scores
    found = sha256(np.ascontiguousarray(scores).tobytes())
    found.update(np.ascontiguousarray(outcomes).tobytes())
    return found.hexdigest()[:32]


def _log_mean(values: list[float]) -> float:
    highest = max(values)
    return highest + math.log(sum(math.exp(value - highest) for value in values) / len(values))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one program at a time change the state file; others wait."""
    if os.name == "nt":
        raise BadFile("watch needs file locks, which this system lacks; use Watch.load, update and save instead")
    import fcntl

    try:
        lock = Path(f"{path}.lock").open("a")  # noqa: SIM115  # an error of the batch is not one of the lock
    except (OSError, ValueError) as error:
        raise BadFile(f"{path}.lock: cannot be written ({error}); check the folder of the state file") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
