"""An objective -> its minimum by L-BFGS on all rows, every member with its own memory, step and end.

Members never mix: one gradient of the summed objective is the gradient of each. A member leaves as soon as it is done
or its watcher gives it up, and the others go on without it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from glayers.fitting.objective import Objective, Value
from glayers.fitting.watching import Sight, Watcher, everyone_goes_on

_MEMORY = 10
_SUFFICIENT = 1e-4  # Armijo's constant
_SHORTEST = 2.0**-20


class Minimum(NamedTuple):
    """Where each member ended: parameters, objective there, iterations taken, and whether it had converged."""

    parameters: Tensor
    objective: Tensor
    iterations: Tensor
    converged: Tensor


def minimise(
    objective: Objective,
    start: Tensor,
    max_iterations: int = 200,
    tolerance: float = 1e-9,
    watcher: Watcher = everyone_goes_on,
) -> Minimum:
    """Run L-BFGS from `start` (members, size) until each objective falls by less than `tolerance` of itself."""
    active, point, current = torch.arange(len(start), device=start.device), start.clone(), objective
    here, memory, nobody = objective(point), _Memory(start), torch.zeros_like(active, dtype=torch.bool)
    result = Minimum(start.clone(), here.objective.clone(), torch.zeros_like(active), nobody.clone())
    train, held_out = here.train.clone(), here.held_out.clone()
    done = nobody
    for iteration in range(max_iterations + 1):
        if iteration:
            there_point, there, moved = _line_search(
                current, point, here, memory.direction(here.gradient), memory.fresh
            )
            memory.remember(there_point - point, there.gradient - here.gradient)
            gain = here.objective - there.objective
            done = ~moved | (gain <= tolerance * there.objective.abs().clamp(min=1e-12))
            # A poor step may be the fault of a stale memory: forget it, and try the plain gradient once before the end.
            retry = done & ~memory.fresh
            memory.forget(retry)
            done &= ~retry
            point, here = there_point, there
            result.parameters[active], result.objective[active] = point, here.objective
            result.iterations[active], result.converged[active] = iteration, done & torch.isfinite(here.objective)
            train[active], held_out[active] = here.train, here.held_out
        goes_on = ~done & watcher(Sight(iteration, result.parameters, train, held_out))[active]
        if not goes_on.all():
            active, point, here, done = active[goes_on], point[goes_on], here.of(goes_on), done[goes_on]
            memory.keep(goes_on)
            current = objective.of(active)
        if not len(active):
            break
    return result


class _Memory:
    """The last steps and changes of gradient, newest last; a pair without curvature counts for nothing."""

    def __init__(self, point: Tensor) -> None:
        self.steps: list[Tensor] = []
        self.changes: list[Tensor] = []
        self.inverse: list[Tensor] = []
        self.scale = torch.ones(len(point), 1, dtype=point.dtype, device=point.device)
        self.fresh = torch.ones(len(point), dtype=torch.bool, device=point.device)

    def keep(self, members: Tensor) -> None:
        self.steps = [s[members] for s in self.steps]
        self.changes = [y[members] for y in self.changes]
        self.inverse = [r[members] for r in self.inverse]
        self.scale, self.fresh = self.scale[members], self.fresh[members]

    def forget(self, members: Tensor) -> None:
        for inverse in self.inverse:
            inverse[members] = 0.0
        self.scale[members] = 1.0
        self.fresh = self.fresh | members

    def remember(self, step: Tensor, change: Tensor) -> None:
        curvature = (step * change).sum(dim=1, keepdim=True)
        size = (change * change).sum(dim=1, keepdim=True)
        good = curvature > 1e-10 * size.sqrt() * (step * step).sum(dim=1, keepdim=True).sqrt()
        self.steps.append(step)
        self.changes.append(change)
        self.inverse.append(torch.where(good, 1 / curvature, torch.zeros_like(curvature)))
        self.scale = torch.where(good, curvature / size, self.scale)
        self.fresh = self.fresh & ~good[:, 0]
        if len(self.steps) > _MEMORY:
            del self.steps[0], self.changes[0], self.inverse[0]

    def direction(self, gradient: Tensor) -> Tensor:
        towards = -gradient
        alphas = []
        for s, y, r in zip(reversed(self.steps), reversed(self.changes), reversed(self.inverse), strict=True):
            alpha = r * (s * towards).sum(dim=1, keepdim=True)
            towards = towards - alpha * y
            alphas.append(alpha)
        towards = towards * self.scale
        for s, y, r, alpha in zip(self.steps, self.changes, self.inverse, reversed(alphas), strict=True):
            towards = towards + s * (alpha - r * (y * towards).sum(dim=1, keepdim=True))
        return towards


def _line_search(
    objective: Objective, point: Tensor, here: Value, direction: Tensor, first: Tensor
) -> tuple[Tensor, Value, Tensor]:
    """Halve the step of each member until the objective falls enough; a member that never does stays where it is."""
    slope = (here.gradient * direction).sum(dim=1).double()
    uphill = slope >= 0
    direction = torch.where(uphill[:, None], -here.gradient, direction)
    slope = torch.where(uphill, -(here.gradient.double() ** 2).sum(dim=1), slope)
    # Without curvature to go by, the first step changes no parameter by more than a tenth.
    cautious = 0.1 / direction.abs().amax(dim=1).clamp(min=1e-30)
    step = torch.where(first | uphill, cautious.clamp(max=1.0), torch.ones_like(cautious))
    searching = torch.ones(len(point), dtype=torch.bool, device=point.device)
    moved = torch.zeros(len(point), dtype=torch.bool, device=point.device)
    best_point, best = point.clone(), Value(*(value.clone() for value in here))
    while searching.any():
        who = torch.nonzero(searching)[:, 0]
        trial = point[who] + step[who, None] * direction[who]
        there = (objective if len(who) == len(point) else objective.of(who))(trial)
        enough = there.objective <= here.objective[who] + _SUFFICIENT * step[who].double() * slope[who]
        enough &= torch.isfinite(there.objective)
        winners = who[enough]
        best_point[winners] = trial[enough]
        for target, source in zip(best, there, strict=True):
            target[winners] = source[enough]
        moved[winners] = True
        searching[winners] = False
        step = torch.where(searching, step / 2, step)
        searching &= step > _SHORTEST * cautious.clamp(max=1.0)
    return best_point, best, moved
