"""Held-out losses of everything tried -> what to keep, and why, in plain words."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from glayers.arrays import Floats
from glayers.calibrators.auto_families import Candidate, Task
from glayers.calibrators.auto_mixture import Mixture
from glayers.fitting.comparison import gain_in_words, paired_gain
from glayers.predictions import Predictions

_ROUNDING = 1e-12  # copies of the same predictions differ by no more
_LOSSES = {"log": "log loss", "brier": "Brier score"}


class Verdict(NamedTuple):
    """What is returned: "mixture", "temperature" or "nothing", the mixture's held-out loss, and the reason."""

    kept: str
    mixture_loss: float
    reason: str


def judge(losses: Mapping[str, Floats], at_home: Floats, mixture: Floats, given: Predictions) -> Verdict:
    """Keep the mixture where it gains more than a standard error over the better of temperature and nothing.

    What is richer has to beat temperature scaling `at_home`, on the very rows that one was fitted to.
    """
    means = {name: float(np.average(values, weights=given.weights)) for name, values in losses.items()}
    simple = min(("temperature", "nothing"), key=means.__getitem__)
    before = at_home if simple == "temperature" else losses[simple]
    gain, error = paired_gain(before, mixture, given.weights, given.groups)
    mixture_loss = float(np.average(mixture, weights=given.weights))
    said = f"{gain_in_words(gain, error)} lower held-out loss than {simple}"
    if gain > max(error, _ROUNDING * abs(mixture_loss)):
        return Verdict("mixture", mixture_loss, f"the mixture has a {said}")
    return Verdict(simple, mixture_loss, f"no gain to rely on ({said}): {simple} is returned")


def told(
    task: Task,
    losses: Mapping[str, Floats],
    candidates: Mapping[str, Candidate],
    mixture: Mixture,
    shares: Mapping[str, float],
    verdict: Verdict,
    left_out: Mapping[str, str],
) -> str:
    """Return the report as Markdown that reads well as plain text."""
    rows, classes = len(task.given), task.given.n_classes
    lines = [
        f"{rows:,} rows of {classes:,} classes, {rows / classes:,.0f} a class; judged by the {_LOSSES[task.loss]} of "
        f"rows held out in {task.n_folds} folds.",
        "",
        "| family | held-out loss | gain over temperature | share | learned | seconds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, values in losses.items():
        mean = float(np.average(values, weights=task.given.weights))
        gain = "-" if name == "temperature" else _gain(losses["temperature"], values, task.given)
        share = shares.get(name, 0.0)
        made = candidates.get(name)
        learned, seconds = ("0", "-") if made is None else (f"{made.n_parameters:,}", f"{made.seconds:.1f}")
        lines.append(f"| {name} | {mean:.5f} | {gain} | {share:.2f} | {learned} | {seconds} |")
    lines += ["", f"Mixture: held-out loss {verdict.mixture_loss:.5f}{_correction(mixture)}."]
    lines.append(f"Kept: {verdict.kept}. {verdict.reason[0].upper()}{verdict.reason[1:]}.")
    if task.keep_order:
        lines.append("The order of the classes is kept in every row, and with it accuracy.")
    lines += [f"Left out: {name}. {reason}." for name, reason in left_out.items()]
    lines += [f"Not converged: {made.name}. {made.note}." for made in candidates.values() if not made.converged]
    return "\n".join(lines)


def _gain(before: Floats, after: Floats, given: Predictions) -> str:
    gain, error = paired_gain(before, after, given.weights, given.groups)
    return f"{gain:+.5f} +- {error:.5f}" if np.isfinite(error) else f"{gain:+.5f}"


def _correction(mixture: Mixture) -> str:
    if np.isnan(mixture.gain):
        return ""
    worth, size = "gained" if mixture.gain >= 0 else "lost", gain_in_words(abs(mixture.gain), mixture.error)
    return f"; the last correction, shared by all classes, {worth} {size} of it"
