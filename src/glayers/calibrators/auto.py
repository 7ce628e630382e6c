"""Held-out logits and labels -> the calibrator we recommend: several families, judged out of fold, and their mixture.

Each family that makes sense for these rows and classes is fitted, with predictions for every row by fits that had not
seen it. Their convex mixture of least held-out loss is corrected once more by what all classes share. Where that gains
less than a standard error over temperature scaling, the simple answer is returned.
"""

import sys
import time
import warnings
from collections.abc import Callable
from numbers import Real
from typing import ClassVar, Literal

import numpy as np
from sklearn.utils import check_random_state

from glayers.activations import log_softmax
from glayers.arrays import Floats
from glayers.calibrators.auto_families import FAMILIES, INSTEAD, Candidate, Family, Task
from glayers.calibrators.auto_mixture import mixture_of
from glayers.calibrators.auto_report import Tried, judge, told
from glayers.calibrators.base import Calibrator, Method, apply_map
from glayers.errors import GlayersError, GlayersWarning
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.diagnostics import Diagnostics, label_facts
from glayers.maps import Chain
from glayers.maps.layouts import n_learned
from glayers.predictions import Predictions
from glayers.progress import progress_bar
from glayers.settings import whole_number


class AutoCalibrator(Calibrator):
    """Fit what makes sense, judge it on rows held out, mix the best; never worse there than temperature or nothing.

    `loss` is what families are judged by and, where they can, fitted by. `keep_accuracy=True` keeps the order of every
    row's classes, and with it accuracy and every top-k accuracy. `time_budget` is in seconds of a machine with two
    cores, estimated from rows and classes: a family that would exceed it is left out, and the report says so; the
    same rows give the same calibrator on any machine. `n_folds` holds for all but g-layers, which choose their own.
    Weights count as rows: twice the weight everywhere is twice the evidence. `progress=None` shows a bar at a terminal.

    Learned: `map_`, `diagnostics_`, `report_` (what was tried, what was kept and why, in plain words), `shares_` (of
    each family in the mixture), `out_of_fold_` (log-probabilities of every row by fits that had not seen it, but for
    what a few numbers tell that all rows chose: strengths, epochs, shares, and the temperature that fits start from).

    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> auto = AutoCalibrator(random_state=0).fit(calibration.logits[:1000], calibration.labels[:1000])
    >>> print(auto.report_.splitlines()[0])
    1,000 rows of 10 classes, 100 a class; judged by the log loss of rows held out in 5 folds.
    """

    _kept: ClassVar[tuple[str, ...]] = ("report_", "shares_")

    methods = (
        Method(
            "auto",
            "Cross-validated mixture of several methods",
            keeps="nothing",
            reference="glayers",
            torch="optional",
        ),
    )

    def __init__(
        self,
        *,
        loss: Literal["log", "brier"] = "log",
        keep_accuracy: bool = False,
        time_budget: float = 120.0,
        n_folds: int = 5,
        random_state: int | None = 0,
        progress: bool | None = None,
    ) -> None:
        self.loss = loss
        self.keep_accuracy = keep_accuracy
        self.time_budget = time_budget
        self.n_folds = n_folds
        self.random_state = random_state
        self.progress = progress

    def _fit(self, given: Predictions) -> None:
        began = time.perf_counter()
        loss = smooth_loss(self.loss)
        budget = _seconds(self.time_budget)
        units = len(given) if given.groups is None else len(np.unique(given.groups))
        n_folds = min(whole_number(self.n_folds, "n_folds", least=2), max(2, units))
        if not isinstance(self.keep_accuracy, bool | np.bool_):
            raise GlayersError(f"keep_accuracy must be True or False; got {self.keep_accuracy!r}")
        seed = int(check_random_state(self.random_state).randint(2**31 - 10))
        task = Task(given, self.loss, bool(self.keep_accuracy), n_folds, seed)
        chosen, left_out = _affordable(len(given), given.n_classes, budget, n_folds)
        shown = sys.stderr.isatty() if self.progress is None else self.progress
        with progress_bar(shown, "fitting families", len(chosen) + 1) as advance:
            candidates = _candidates(task, chosen, left_out, advance)
            mixture = mixture_of(list(candidates.values()), task)
            advance()

        def row_losses(log_probabilities: Floats) -> Floats:
            return loss.rows(log_probabilities, given.labels)

        nothing = apply_map(Chain(()), given.logits)
        plain = candidates["temperature"]
        losses = {"nothing": row_losses(nothing)} | {c.name: row_losses(c.out_of_fold) for c in candidates.values()}
        at_home = row_losses(apply_map(plain.chain, given.logits))
        tried = Tried(losses, row_losses(mixture.out_of_fold), at_home)
        verdict = judge(tried, mixture.shares, given)
        simple = {"nothing": (Chain(()), log_softmax(nothing)), "temperature": (plain.chain, plain.out_of_fold)}
        self.map_, self.out_of_fold_ = simple.get(verdict.kept, (mixture.chain, mixture.out_of_fold))
        self.shares_ = {verdict.kept: 1.0} if verdict.kept in simple else mixture.shares
        used = [candidates[name] for name in self.shares_ if name in candidates]
        self.report_ = told(task, tried, candidates, mixture, self.shares_, verdict, left_out)
        self.diagnostics_ = Diagnostics(
            method=f"auto: {' + '.join(self.shares_)}",
            converged=all(candidate.converged for candidate in used),
            reason=verdict.reason,
            iterations=len(candidates),
            loss_before=float(np.average(losses["nothing"], weights=given.weights)),
            loss_after=float(np.average(row_losses(apply_map(self.map_, given.logits)), weights=given.weights)),
            moved=verdict.kept != "nothing",
            n_parameters=n_learned(self.map_),
            seconds=time.perf_counter() - began,
            **label_facts(given),
        )
        if verdict.kept == "nothing":
            warnings.warn(f"auto: {verdict.reason}", GlayersWarning, stacklevel=3)


def _seconds(given: object) -> float:
    if not isinstance(given, Real) or not float(given) >= 0:
        raise GlayersError(f"time_budget must be a number of seconds, 0 or more; got {given!r}")
    return float(given)


def _candidates(
    task: Task, chosen: list[Family], left_out: dict[str, str], advance: Callable[[], None]
) -> dict[str, Candidate]:
    """Fit one family after the other; why one could not be fitted joins the reasons of those left out."""
    first, *others = chosen
    made = {first.name: first.fit(task, {})}
    advance()
    for family in others:
        try:
            if family.needs not in made:
                raise GlayersError(f"it stands on {family.needs}, which is left out")
            made[family.name] = family.fit(task, made)
        except GlayersError as problem:
            left_out[family.name] = str(problem)
        advance()
    return made


def _affordable(rows: int, classes: int, budget: float, n_folds: int = 5) -> tuple[list[Family], dict[str, str]]:
    """Return the families to fit and why the others are not; temperature scaling is always among them."""
    chosen, left_out = [FAMILIES[0]], {}
    spent = FAMILIES[0].seconds(rows, classes)
    for family in (*FAMILIES[1:], INSTEAD):
        needed = family.seconds(rows, classes) * (1 if family.own_folds else n_folds / 5)  # estimates are for five
        objection = family.objection(rows, classes)
        if family is INSTEAD and any(other.name == "g-layers" for other in chosen):
            continue
        if not objection and spent + needed > budget:
            left = max(0.0, budget - spent)
            objection = f"it would take about {needed:.3g} s, and time_budget={budget:g} leaves {left:.3g}"
        if objection:
            left_out[family.name] = objection
            continue
        chosen.append(family)
        spent += needed
    return chosen, left_out
