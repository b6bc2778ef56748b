"""The closed table of planners: a config's `kind` chooses the function."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from saltwm.ground.config import OwnPlannerConfig, PlannerConfig
from saltwm.model.world_model import WorldModel
from saltwm.planning import own
from saltwm.planning.cem import Bounds, Cost, Plan, Proposal, cem
from saltwm.planning.costs import Situation, rollout_cost, terminal_cost
from saltwm.planning.gauss_newton import gauss_newton
from saltwm.planning.gradient import gradient_descent
from saltwm.planning.icem import icem
from saltwm.planning.map import imitation, posterior_mode
from saltwm.planning.mppi import mppi
from saltwm.planning.prior import first_blocks, product

Planner = Callable[..., Plan]
"""(model, situation, horizon=, generators=, bounds=) -> Plan; those of the table take their config too."""


def _with_cost(search: Callable[..., Plan], make_cost: Callable[[WorldModel, Situation], Cost]) -> Planner:
    """A planner that searches a cost, as one that plans for a model."""

    def plan(model: WorldModel, situation: Situation, *, horizon: int, config: Any, **options: Any) -> Plan:
        return search(
            make_cost(model, situation),
            horizon=horizon,
            action_dim=model.action_encoder.block_dim,
            config=config,
            initial=_warm(situation, horizon, config),
            **options,
        )

    return plan


def _warm(situation: Situation, horizon: int, config: Any) -> Proposal | None:
    """The rest of the last plan, as uncertain as a first plan is; None without one."""
    mean = situation.warm_start(horizon)
    return None if mean is None else Proposal(mean, torch.full_like(mean, getattr(config, "initial_std", 1.0)))


def _with_prior(search: Callable[..., Plan]) -> Planner:
    """A planner that samples a cost, its first Gaussian multiplied by the action prior."""

    def plan(model: WorldModel, situation: Situation, *, horizon: int, config: Any, **options: Any) -> Plan:
        proposal, inner = first_blocks(situation.proposed(), horizon), config.search
        mean, std = torch.zeros_like(proposal.mean), torch.full_like(proposal.mean, inner.initial_std)
        sampler = _warm(situation, horizon, inner) or Proposal(mean, std)
        return search(
            terminal_cost(model, situation),
            horizon=horizon,
            action_dim=model.action_encoder.block_dim,
            config=inner,
            initial=product(proposal, sampler),
            **options,
        )

    return plan


def _near_goals(planner: Planner) -> Planner:
    """A planner that leaves goals beyond the horizon to the prior.

    Such a goal is not to be reached within the plan, and the distance to it would mislead; the prior knows the way.
    """

    def plan(
        model: WorldModel, situation: Situation, *, horizon: int, bounds: Bounds | None = None, **options: Any
    ) -> Plan:
        far = situation.beyond(horizon)
        led = imitation(model, situation, horizon=horizon, bounds=bounds) if far.any() else None
        if led is not None and far.all():
            return led
        found = planner(model, situation, horizon=horizon, bounds=bounds, **options)
        if led is None:
            return found
        costs = torch.where(far[:, None], led.elite_costs, found.elite_costs)
        by_task = far[:, None, None]
        return Plan(torch.where(by_task, led.actions, found.actions), torch.where(by_task, led.std, found.std), costs)

    return plan


def _differentiable_cost(model: WorldModel, situation: Situation) -> Cost:
    """The plain rollout of a frozen copy: gradients flow to the actions and to nothing else."""
    return rollout_cost(copy.deepcopy(model).requires_grad_(False), situation)


PLANNERS: dict[str, Planner] = {
    "cem": _with_cost(cem, terminal_cost),
    "icem": _with_cost(icem, terminal_cost),
    "mppi": _with_cost(mppi, terminal_cost),
    "gradient": _with_cost(gradient_descent, _differentiable_cost),
    "gauss-newton": gauss_newton,
    "map": _near_goals(posterior_mode),
    "cem-prior": _near_goals(_with_prior(cem)),
    "icem-prior": _near_goals(_with_prior(icem)),
    "mppi-prior": _near_goals(_with_prior(mppi)),
    "prior": imitation,
}


def planner_of(config: PlannerConfig | Callable[..., Plan]) -> Planner:
    """The planner that a config names, with its settings, or a function of a user's own.

    A config that names such a function was read from a file or given by a person; `own.require_named` tells which.
    """
    if isinstance(config, OwnPlannerConfig):
        return partial(own.run, own.imported(config.function))
    if isinstance(config, PlannerConfig):
        return partial(PLANNERS[config.kind], config=config)
    return partial(own.run, config)
