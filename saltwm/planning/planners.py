"""The closed table of planners: a config's `kind` chooses the function."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from saltwm.ground.config import PlannerConfig
from saltwm.model.world_model import WorldModel
from saltwm.planning.cem import Bounds, Cost, Plan, Proposal, cem
from saltwm.planning.costs import Situation, rollout_cost, terminal_cost
from saltwm.planning.gauss_newton import gauss_newton
from saltwm.planning.gradient import gradient_descent
from saltwm.planning.icem import icem
from saltwm.planning.mppi import mppi

Planner = Callable[..., Plan]
"""(model, situation, horizon=, generators=, config=, bounds=) -> Plan."""


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


def _differentiable_cost(model: WorldModel, situation: Situation) -> Cost:
    """The plain rollout of a frozen copy: gradients flow to the actions and to nothing else."""
    return rollout_cost(copy.deepcopy(model).requires_grad_(False), situation)


PLANNERS: dict[str, Planner] = {
    "cem": _with_cost(cem, terminal_cost),
    "icem": _with_cost(icem, terminal_cost),
    "mppi": _with_cost(mppi, terminal_cost),
    "gradient": _with_cost(gradient_descent, _differentiable_cost),
    "gauss-newton": gauss_newton,
}


def plan(
    model: WorldModel,
    situation: Situation,
    *,
    horizon: int,
    generators: Sequence[torch.Generator],
    config: PlannerConfig,
    bounds: Bounds | None = None,
) -> Plan:
    """Plans for each task of the situation with the planner that the config names."""
    return PLANNERS[config.kind](model, situation, horizon=horizon, generators=generators, config=config, bounds=bounds)
