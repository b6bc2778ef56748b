"""CEM in the draw order of stable-worldmodel's solver, for comparisons bit for bit."""

from collections.abc import Sequence

import torch

from saltwm.ground.config import CEMConfig
from saltwm.planning.cem import Cost, Plan, check_counts, check_elites, rankable, select


def compatible_cem(
    batches: Sequence[tuple[int, Cost]],
    *,
    horizon: int,
    action_dim: int,
    generator: torch.Generator,
    config: CEMConfig | None = None,
) -> Plan:
    """CEM in the draw order of stable-worldmodel's solver, for comparisons bit for bit.

    There one generator, made once with the solver's seed and never seeded again, serves all batches of tasks in turn
    and all later calls: keep it and hand it in again. `batches` are (number of tasks, their cost); that solver takes
    one task at a time by default. A plan then depends on what was planned before, which is why nothing else here
    draws like this.
    """
    config = config or CEMConfig()
    check_counts("CEM", horizon=horizon, iterations=config.iterations)
    check_elites("CEM", config.elites, config.candidates)
    plans = [_solve_together(tasks, cost, horizon, action_dim, generator, config) for tasks, cost in batches]
    return Plan(
        torch.cat([plan.actions for plan in plans]),
        torch.cat([plan.std for plan in plans]),
        torch.cat([plan.elite_costs for plan in plans]),
    )


def _solve_together(
    tasks: int, cost: Cost, horizon: int, action_dim: int, generator: torch.Generator, config: CEMConfig
) -> Plan:
    shape = (tasks, horizon, action_dim)
    mean, std = torch.zeros(shape), torch.full(shape, config.initial_std)
    trace = []
    for _ in range(config.iterations):
        noise = torch.randn(tasks, config.candidates, horizon, action_dim, generator=generator)
        candidates = noise * std[:, None] + mean[:, None]
        candidates[:, 0] = mean
        elites, elite_costs = select(candidates, rankable(cost(candidates), candidates), config.elites)
        # torch's own reductions: `fit` sums in another order, and the last bit is the point here.
        mean, std = elites.mean(dim=1), elites.std(dim=1)
        trace.append(elite_costs.mean(dim=1))
    return Plan(mean, std, torch.stack(trace, dim=1))
