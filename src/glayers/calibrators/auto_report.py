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
_SIMPLE = {"temperature": "temperature scaling on the rows it was fitted to", "nothing": "doing nothing"}


class Tried(NamedTuple):
    """The loss of every row: held out, by family and by the mixture; and by temperature scaling fitted to these rows.

    What is richer has to beat temperature scaling at home, since some of it starts from there.
    """

    families: Mapping[str, Floats]
    mixture: Floats
    at_home: Floats


class Verdict(NamedTuple):
    """What is returned: "mixture", "temperature" or "nothing", and the reason."""

    kept: str
    reason: str


def judge(tried: Tried, shares: Mapping[str, float], given: Predictions) -> Verdict:
    """Keep the mixture where it gains more than a standard error over the better of temperature and nothing."""
    simple = min(("temperature", "nothing"), key=lambda name: _mean(tried.families[name], given))
    if shares.keys() == {simple}:
        return Verdict(simple, f"nothing else has a share in the mixture: {simple} is returned")
    before = tried.at_home if simple == "temperature" else tried.families[simple]
    gain, error = paired_gain(before, tried.mixture, given.weights, given.groups)
    rounding = _ROUNDING * abs(_mean(tried.mixture, given))
    worth = "lower" if gain > 0 else "higher"
    said = f"held-out loss is {worth} than that of {_SIMPLE[simple]} by {gain_in_words(abs(gain), error)}"
    if abs(gain) <= rounding:
        said = f"held-out loss is that of {_SIMPLE[simple]}"
    if gain > max(error, rounding):
        return Verdict("mixture", f"its {said}")
    return Verdict(simple, f"no gain to rely on, as the mixture's {said}: {simple} is returned")


def told(
    task: Task,
    tried: Tried,
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
    for name, values in tried.families.items():
        gain = "-" if name == "temperature" else _gain(tried.at_home, values, task.given)
        share = shares.get(name, 0.0)
        made = candidates.get(name)
        learned, seconds = ("0", "-") if made is None else (f"{made.n_parameters:,}", f"{made.seconds:.1f}")
        lines.append(f"| {name} | {_mean(values, task.given):.5f} | {gain} | {share:.2f} | {learned} | {seconds} |")
    lines += ["", f"Gains are over {_SIMPLE['temperature']}."]
    lines.append(f"Mixture ({_parts(mixture)}): held-out loss {_mean(tried.mixture, task.given):.5f}.{_last(mixture)}")
    lines.append(f"Kept: {verdict.kept}. {verdict.reason[0].upper()}{verdict.reason[1:]}.")
    if task.keep_order:
        lines.append("The order of the classes is kept in every row, and with it accuracy.")
    lines += [f"Left out: {name}. {reason}." for name, reason in left_out.items()]
    lines += [f"Not converged: {made.name}. {made.note}." for made in candidates.values() if not made.converged]
    return "\n".join(lines)


def _mean(values: Floats, given: Predictions) -> float:
    return float(np.average(values, weights=given.weights))


def _gain(before: Floats, after: Floats, given: Predictions) -> str:
    gain, error = paired_gain(before, after, given.weights, given.groups)
    return f"{gain:+.5f} +- {error:.5f}" if np.isfinite(error) else f"{gain:+.5f}"


def _parts(mixture: Mixture) -> str:
    if len(mixture.shares) == 1:
        return f"{next(iter(mixture.shares))} alone"
    return " + ".join(f"{share:.2f} {name}" for name, share in mixture.shares.items())


def _last(mixture: Mixture) -> str:
    """Return what the last correction did, or would have done; nothing where there is none to speak of."""
    if np.isnan(mixture.gain):
        return ""
    worth, size = "lower" if mixture.gain > 0 else "raise", gain_in_words(abs(mixture.gain), mixture.error)
    if mixture.corrected:
        return f" The last correction, shared by all classes, {worth}s it by {size}."
    return f" A last correction, shared by all classes, would {worth} its log loss by {size}, and is left out."
