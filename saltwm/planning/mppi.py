"""MPPI (Williams et al., 2015): the next mean averages all candidates, weighted by exp(-cost / temperature)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from saltwm.ground.config import MPPIConfig
from saltwm.ground.errors import UsageError
from saltwm.planning.cem import (
    Bounds,
    Cost,
    Plan,
    Proposal,
    around,
    check_counts,
    first_distribution,
    rankable,
    white_noise,
)


def mppi(
    cost: Cost,
    *,
    horizon: int,
    action_dim: int,
    generators: Sequence[torch.Generator],
    config: MPPIConfig | None = None,
    bounds: Bounds | None = None,
    initial: Proposal | None = None,
) -> Plan:
    """Plans of `horizon` blocks that lower `cost`, one task per generator; `elite_costs` are weighted mean costs."""
    config = config or MPPIConfig()
    check_counts("MPPI", horizon=horizon, iterations=config.iterations, candidates=config.candidates)
    if config.temperature <= 0:
        raise UsageError(f"MPPI: temperature {config.temperature}; expected a positive number")
    mean, std = first_distribution(len(generators), horizon, action_dim, config.initial_std, initial)
    trace = []
    for _ in range(config.iterations):
        candidates = around(mean, std, white_noise(config.candidates, horizon, action_dim, generators))
        if bounds is not None:
            candidates = bounds.clamp(candidates)
        costs = rankable(cost(candidates), candidates)
        weights = path_weights(costs, config.temperature)
        mean = (weights[:, :, None, None] * candidates).sum(dim=1)
        variance = (weights[:, :, None, None] * (candidates - mean[:, None]).square()).sum(dim=1)
        std = variance.sqrt().clamp(min=config.min_std)
        trace.append((weights * costs.masked_fill(costs.isinf(), 0)).sum(dim=1))
    return Plan(mean, std, torch.stack(trace, dim=1))


def path_weights(costs: Tensor, temperature: float) -> Tensor:
    """Weights [N, S] that sum to 1; infinite costs weigh nothing, `temperature` is in deviations of the finite ones."""
    exact = costs.double()  # in float32 the square of a large cost overflows, and that of a small one vanishes
    finite = exact.isfinite()
    count = finite.sum(dim=1, keepdim=True)
    centre = exact.masked_fill(~finite, 0).sum(dim=1, keepdim=True) / count
    spread = ((exact - centre).masked_fill(~finite, 0).square().sum(dim=1, keepdim=True) / count).sqrt()
    # Equal costs have no spread, and then equal weights.
    scale = torch.where(spread > 0, temperature * spread, 1)
    return torch.softmax(-(exact - exact.amin(dim=1, keepdim=True)) / scale, dim=1).to(costs.dtype)
