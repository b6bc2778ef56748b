"""Gradient descent on the actions, through any differentiable cost."""

from collections.abc import Sequence

import torch

from saltwm.ground.config import GradientConfig
from saltwm.planning.cem import (
    Bounds,
    Cost,
    Plan,
    Proposal,
    around,
    check_counts,
    first_distribution,
    rankable,
    select,
    white_noise,
)


def gradient_descent(
    cost: Cost,
    *,
    horizon: int,
    action_dim: int,
    generators: Sequence[torch.Generator],
    config: GradientConfig | None = None,
    bounds: Bounds | None = None,
    initial: Proposal | None = None,
) -> Plan:
    """Plans of `horizon` blocks by Adam from several starts, one task per generator; the cheapest plan met is kept.

    `cost` must be differentiable (`rollout_cost`). `elite_costs` are those of the best plan so far.
    """
    config = config or GradientConfig()
    check_counts("gradient", horizon=horizon, iterations=config.iterations, starts=config.starts)
    noise = white_noise(config.starts, horizon, action_dim, generators)
    mean, std = first_distribution(len(generators), horizon, action_dim, 1.0, initial)
    best, best_cost, trace = mean, torch.full((len(generators),), torch.inf), []
    with torch.inference_mode(False), torch.enable_grad():
        plans = around(mean, std, noise).clone().requires_grad_()
        optimiser = torch.optim.Adam([plans], lr=config.learning_rate)
        for _ in range(config.iterations):
            if bounds is not None:
                plans.data = bounds.clamp(plans.data)
            costs = rankable(cost(plans), plans)
            elites, elite_costs = select(plans.detach(), costs.detach(), 1)
            better = elite_costs[:, 0] < best_cost
            best = torch.where(better[:, None, None], elites[:, 0], best)
            best_cost = torch.where(better, elite_costs[:, 0], best_cost)
            trace.append(best_cost)
            (plans.grad,) = torch.autograd.grad(costs.masked_fill(costs.isinf(), 0).sum(), plans)
            optimiser.step()
    return Plan(best, torch.zeros_like(best), torch.stack(trace, dim=1))
