"""Planners that sample and use an action prior: to begin with, in the cost, or alone for goals beyond the horizon."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from saltwm.ground.config import CEMConfig, CEMMapConfig, MapConfig, PlannerConfig, PriorPlanner
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.model.world_model import WorldModel
from saltwm.planning.cem import Bounds, Cost, Plan, Proposal, cem
from saltwm.planning.costs import Situation, terminal_cost
from saltwm.planning.looks import require_horizon
from saltwm.planning.map import check_price, imitation
from saltwm.planning.prior import ActionPrior, first_blocks, product

Planner = Callable[..., Plan]
"""(model, situation, horizon=, generators=, bounds=) -> Plan; those of the table take their config too."""


def with_prior(search: Callable[..., Plan]) -> Planner:
    """A planner that samples a cost, its first Gaussian multiplied by the action prior."""

    def plan(model: WorldModel, situation: Situation, *, horizon: int, config: Any, **options: Any) -> Plan:
        proposal, inner = first_blocks(situation.proposed(), horizon), config.search
        mean, std = torch.zeros_like(proposal.mean), torch.full_like(proposal.mean, inner.initial_std)
        sampler = situation.warm_gaussian(horizon, inner.initial_std) or Proposal(mean, std)
        return search(
            terminal_cost(model, situation),
            horizon=horizon,
            action_dim=model.action_encoder.block_dim,
            config=inner,
            initial=product(proposal, sampler),
            **options,
        )

    return plan


def sampled_mode(
    model: WorldModel, situation: Situation, *, horizon: int, config: CEMMapConfig | None = None, **options: Any
) -> Plan:
    """The mode that `map` finds through A(c), by CEM: for any model.

    A search that only begins with the prior forgets it: nothing holds its elites to what the data's actor would do, and
    they drift to where the model errs in its favour. Here the prior is part of the cost in every round. `elite_costs`
    [N, 2] are distances to the goal alone: what the model promises of the prior's mean, and of the plan.
    """
    config = config or CEMMapConfig()
    check_price("cem-map", config.w)
    prior = first_blocks(situation.proposed(), horizon)
    warm = situation.warm_gaussian(horizon)
    distance = terminal_cost(model, situation)
    found = cem(
        posterior_cost(distance, prior, config.w / model.config.latent_dim),
        horizon=horizon,
        action_dim=model.action_encoder.block_dim,
        config=CEMConfig(config.candidates, config.iterations, config.elites),
        initial=prior if warm is None else product(prior, warm),
        **options,
    )
    return replace(found, elite_costs=distance(torch.stack([prior.mean, found.actions], dim=1)))


def posterior_cost(distance: Cost, prior: Proposal, price: float) -> Cost:
    """The distance of a plan's end to the goal, and `price` for each squared deviation from the prior's mean."""

    def cost(candidates: Tensor) -> Tensor:
        away = (candidates - prior.mean[:, None]) / prior.std[:, None]
        return distance(candidates) + price * away.square().sum(dim=(2, 3))

    return cost


def near_goals(planner: Planner) -> Planner:
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


def default_planner(model: WorldModel, prior: ActionPrior | None) -> PlannerConfig:
    """The best that a model and its prior allow."""
    if prior is None:
        return CEMConfig()
    return MapConfig() if model.transition.has_matrix else CEMMapConfig()


def fitting_prior(
    planner: object, model: WorldModel, prior: ActionPrior | None, horizon_blocks: int
) -> ActionPrior | None:
    """The prior if the planner uses it; an error unless it fits model and horizon."""
    if not isinstance(planner, PriorPlanner):
        return None
    if prior is None:
        raise UsageError(
            f"agent: the planner {planner.kind} needs an action prior; give it one: prior=saltwm.load_prior(RUN)",
            remedy="learn a prior",
        )
    sizes = (model.config.latent_dim, model.action_encoder.block_dim)
    if (prior.latent_dim, prior.block_dim) != sizes:
        raise MismatchError(
            f"agent: the prior is for latents of {prior.latent_dim} and action blocks of {prior.block_dim} numbers, "
            f"the model has {sizes[0]} and {sizes[1]}"
        )
    known = (model.checkpoint_sha256, prior.checkpoint_sha256)
    if None not in known and known[0] != known[1]:  # of equal sizes, and yet its latents mean something else
        raise MismatchError(
            f"agent: the prior is that of checkpoint {str(known[1])[:12]}, the model is {str(known[0])[:12]}; "
            "load both from one run"
        )
    if None not in known and model.encoder_sum_when_read not in (None, model.encoder_sum()):
        raise MismatchError(
            f"agent: the model's encoder was changed since it was read from checkpoint {str(known[0])[:12]}, and the "
            "prior knows the latents of before; a run that starts from that checkpoint can have a prior of its own"
        )
    require_horizon(prior.config.horizon_blocks, horizon_blocks)
    return prior.to(model.device).eval()
