"""Gauss-Newton through A(c): the planner that a state-affine transition allows.

    minimise |z_H - z_g|^2 + mu |a|^2   over action blocks a_0 .. a_{H-1} inside a box

The Jacobian of the last latent with respect to block k is known in closed form,

    d z_H / d a_k = Phi_{k+1->H} (sum_r (N_r z_k) W_g[r] + B) psi'(a_k),

so a dozen damped steps (Levenberg-Marquardt) from a few starts do what CEM samples thousands of plans for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saltwm.ground.config import GaussNewtonConfig, MapConfig
from saltwm.ground.errors import NonFiniteError, UsageError
from saltwm.model.folded import FoldedAffine
from saltwm.model.world_model import WorldModel
from saltwm.planning.cem import Bounds, Plan, check_counts
from saltwm.planning.costs import Situation

DAMPING_DOWN, DAMPING_UP = 0.3, 8.0
"""What an accepted and a refused step do to the damping."""


@torch.no_grad()
def gauss_newton(
    model: WorldModel,
    situation: Situation,
    *,
    horizon: int,
    generators: Sequence[torch.Generator],
    config: GaussNewtonConfig | None = None,
    bounds: Bounds | None = None,
) -> Plan:
    """Plans of `horizon` blocks, one task per generator; each task is solved alone, its starts together.

    `elite_costs` holds the terminal cost |z_H - z_g|^2 / D of the best start: before the first step (what unoptimised
    plans promise, as CEM's first elites do) and after each iteration, [N, 1 + iterations]. Best is lowest in the whole
    objective, mu |a|^2 included.
    """
    config = config or GaussNewtonConfig()
    require_affine(model, "gauss-newton", "cem, icem or mppi")
    check_counts(
        "gauss-newton",
        horizon=horizon,
        iterations=config.iterations,
        starts=config.starts,
        halve_every=config.halve_every,
    )
    situation.check(model.config.latent_dim)
    folded = model.transition.folded(model.action_encoder)
    box = box_of(config.box_std, bounds, model.action_encoder.block_dim)
    warm = situation.warm_start(horizon)
    plans = [
        solve(
            Problem(folded, folded.first_state(history, past), goal, Price(config.mu)),
            _starts(horizon, box, generator, config, None if warm is None else warm[task]),
            box,
            config,
        )
        for task, (history, past, goal, generator) in enumerate(
            zip(situation.history, situation.past_conditions, situation.goal, generators, strict=True)
        )
    ]
    return as_plan(plans)


def require_affine(model: WorldModel, planner: str, instead: str) -> None:
    """UsageError unless the model's transition has a matrix A(c) to go through."""
    if not model.transition.has_matrix:
        raise UsageError(f"{planner} needs a state-affine model (salt); plan this one with {instead}")


def as_plan(plans: Sequence[tuple[Tensor, Tensor]]) -> Plan:
    """The solutions of all tasks as a Plan; NonFiniteError if one of them has no finite cost."""
    for task, (actions, trace) in enumerate(plans):
        if not (actions.isfinite().all() and trace.isfinite().all()):
            raise NonFiniteError(f"planning: no start of task {task} has a finite cost; is the model sound?")
    actions = torch.stack([actions for actions, _ in plans]).cpu()
    return Plan(actions, torch.zeros_like(actions), torch.stack([trace for _, trace in plans]).cpu())


def box_of(std: float, bounds: Bounds | None, action_dim: int) -> Bounds:
    """Within `std` of the mean action and inside the bounds; the nearest edge where these do not meet."""
    limit = torch.full((action_dim,), std)
    if bounds is None:
        return Bounds(-limit, limit)
    return Bounds(bounds.clamp(-limit), bounds.clamp(limit))


def _starts(
    horizon: int, box: Bounds, generator: torch.Generator, config: GaussNewtonConfig, warm: Tensor | None
) -> Tensor:
    """First plans [P, H, A] inside the box: the mean action, what is left of the last plan, and standard normal ones.

    A single start is the rest of the last plan, if there is one.
    """
    starts = torch.randn(config.starts, horizon, len(box.low), generator=generator)
    starts[0] = 0
    if warm is not None:
        starts[min(1, config.starts - 1)] = warm
    return box.clamp(starts)


# --- one task --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Price:
    """What plans cost by themselves, wherever they lead: weight |(a - centre) / scale|^2."""

    weight: float
    centre: Tensor | float = 0.0
    """[H, A], or the mean action."""
    scale: Tensor | float = 1.0
    """[H, A], or the deviation of all actions."""

    def of(self, plans: Tensor) -> Tensor:
        """Of plans [P, H, A] -> [P]."""
        return self.weight * ((plans - self.centre) / self.scale).square().sum(dim=(1, 2))

    def half_gradient(self, plans: Tensor) -> Tensor:
        """[P, H, A] -> [P, H * A]."""
        return (self.weight * (plans - self.centre) / self.scale**2).flatten(1)

    def half_curvature(self) -> Tensor | float:
        """Its diagonal [H * A], or one number for all."""
        curvature = self.weight / self.scale**2
        return curvature.flatten() if isinstance(curvature, Tensor) else curvature


@dataclass(frozen=True)
class Problem:
    """Reach `goal` [D] from the state `x` [X] at a price."""

    folded: FoldedAffine
    x: Tensor
    goal: Tensor
    price: Price

    def objective(self, residual: Tensor, plans: Tensor) -> Tensor:
        """|z_H - z_g|^2 + price [P]; infinite where it is not a number."""
        value = residual.square().sum(dim=1) + self.price.of(plans)
        return value.masked_fill(~value.isfinite(), torch.inf)


@dataclass(frozen=True)
class _Point:
    """Plans and what was found there."""

    plans: Tensor
    """[P, H, A]"""
    residual: Tensor
    """z_H - z_g [P, D]"""
    jacobian: Tensor
    """d z_H / d a [P, H * A, D], transposed: a row per action number."""
    objective: Tensor
    """[P]"""

    def only(self, kept: Tensor) -> "_Point":
        """Some of the plans, by their numbers."""
        return _Point(*(values[kept] for values in vars(self).values()))

    def where(self, better: Tensor, other: "_Point") -> "_Point":
        """`other` where `better` [P], self elsewhere."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Point(*(torch.where(better.view(-1, *[1] * (old.ndim - 1)), new, old) for old, new in pairs))


def solve(
    problem: Problem, starts: Tensor, box: Bounds, config: GaussNewtonConfig | MapConfig
) -> tuple[Tensor, Tensor]:
    """The best plan [H, A] and the trace [1 + iterations] of one task."""
    box = Bounds(box.low.to(problem.x), box.high.to(problem.x))
    point = _look(problem, starts.to(problem.x))
    damping = torch.full_like(point.objective, config.initial_damping)
    trace = [_best_terminal_cost(point)]
    for iteration in range(config.iterations):
        if iteration and iteration % config.halve_every == 0:
            kept = point.objective.argsort(stable=True)[: -(-len(damping) // 2)]
            point, damping = point.only(kept), damping[kept]
        trial = _look(problem, box.clamp(point.plans + _step(point, problem.price, damping, box)))
        better = trial.objective < point.objective
        point = point.where(better, trial)
        damping = damping * torch.where(better, DAMPING_DOWN, DAMPING_UP)
        trace.append(_best_terminal_cost(point))
    return point.plans[point.objective.argmin()], torch.stack(trace)


def _best_terminal_cost(point: _Point) -> Tensor:
    return point.residual[point.objective.argmin()].square().mean()


def _step(point: _Point, price: Price, damping: Tensor, box: Bounds) -> Tensor:
    """The damped Gauss-Newton step [P, H, A]: (J^T J + C + lambda I) step = -(J^T r + g).

    C and g are half the curvature and half the gradient of the price: mu I and mu a here.

    Actions at the edge of the box that the gradient presses outwards are held; the others move as if alone.
    """
    plans = point.plans.flatten(1)
    gradient = (point.jacobian @ point.residual[:, :, None]).squeeze(2) + price.half_gradient(point.plans)
    inward = plans - gradient
    horizon = point.plans.shape[1]
    low, high = box.low.repeat(horizon), box.high.repeat(horizon)
    held = ((plans <= low) & (inward < low)) | ((plans >= high) & (inward > high))
    curvature = point.jacobian @ point.jacobian.mT
    diagonal = torch.diagonal(curvature, dim1=1, dim2=2)
    diagonal += price.half_curvature() + damping[:, None] * diagonal.mean(dim=1, keepdim=True)
    free = ~held
    curvature = curvature * (free[:, :, None] & free[:, None, :]) + torch.diag_embed(held.to(plans.dtype))
    # A factorisation that fails (a singular or non-finite matrix) gives numbers that the trial's objective refuses.
    factor, _ = torch.linalg.cholesky_ex(curvature)
    step = torch.cholesky_solve(-(gradient * free)[:, :, None], factor).squeeze(2)
    return step.view_as(point.plans)


def _look(problem: Problem, plans: Tensor) -> _Point:
    """Roll out plans [P, H, A] with the Jacobian of the last latent."""
    last, jacobian = problem.folded.last_latent_and_jacobian(problem.x, plans)
    residual = last - problem.goal
    return _Point(plans, residual, jacobian, problem.objective(residual, plans))
