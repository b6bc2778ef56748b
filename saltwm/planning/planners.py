"""The closed table of planners: a config's `kind` chooses the function."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

from saltwm.ground.config import OwnPlannerConfig, PlannerConfig
from saltwm.ground.errors import UsageError
from saltwm.model.world_model import WorldModel
from saltwm.planning import own
from saltwm.planning.cem import Cost, Plan, cem
from saltwm.planning.costs import Situation, rollout_cost, terminal_cost
from saltwm.planning.gauss_newton import gauss_newton
from saltwm.planning.gradient import gradient_descent
from saltwm.planning.icem import icem
from saltwm.planning.map import imitation, posterior_mode
from saltwm.planning.mppi import mppi
from saltwm.planning.names import planner_named
from saltwm.planning.with_prior import Planner, near_goals, sampled_mode, with_prior


def _with_cost(search: Callable[..., Plan], make_cost: Callable[[WorldModel, Situation], Cost]) -> Planner:
    """Adapt a search over a cost to the planner interface (model, situation)."""

    def plan(model: WorldModel, situation: Situation, *, horizon: int, config: Any, **options: Any) -> Plan:
        return search(
            make_cost(model, situation),
            horizon=horizon,
            action_dim=model.action_encoder.block_dim,
            config=config,
            initial=situation.warm_gaussian(horizon, getattr(config, "initial_std", 1.0)),
            **options,
        )

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
    "map": near_goals(posterior_mode),
    "cem-map": near_goals(sampled_mode),
    "cem-prior": near_goals(with_prior(cem)),
    "icem-prior": near_goals(with_prior(icem)),
    "mppi-prior": near_goals(with_prior(mppi)),
    "prior": imitation,
}


def planner_given(
    planner: PlannerConfig | Callable[..., Plan] | str | None,
) -> PlannerConfig | Callable[..., Plan] | None:
    """The planner that a name stands for; UsageError for what can be none."""
    if isinstance(planner, str):
        return own.name_planner(planner) if ":" in planner else planner_named(planner)
    if planner is None or isinstance(planner, PlannerConfig) or (callable(planner) and not isinstance(planner, type)):
        return planner
    raise UsageError(f"agent: planner {planner!r:.80}: expected a config such as MapConfig(), its name, or a function")


def planner_of(config: PlannerConfig | Callable[..., Plan]) -> Planner:
    """The planner that a config names, with its settings, or a function of a user's own.

    A config that names such a function was read from a file or given by a person; `own.require_named` tells which.
    """
    if isinstance(config, OwnPlannerConfig):
        return partial(own.run, own.imported(config.function))
    if isinstance(config, PlannerConfig):
        return partial(PLANNERS[config.kind], config=config)
    return partial(own.run, config)
