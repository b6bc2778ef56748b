"""iCEM (Pinneri et al., 2020): CEM with noise correlated in time, remembered elites and the best plan seen."""

from collections.abc import Sequence

import torch
from torch import Tensor

from saltwm.ground.config import ICEMConfig
from saltwm.ground.errors import UsageError
from saltwm.planning.cem import (
    Bounds,
    Cost,
    Plan,
    Proposal,
    around,
    check_counts,
    check_elites,
    first_distribution,
    fit,
    mean_finite,
    rankable,
    select,
    white_noise,
)


def icem(
    cost: Cost,
    *,
    horizon: int,
    action_dim: int,
    generators: Sequence[torch.Generator],
    config: ICEMConfig | None = None,
    bounds: Bounds | None = None,
    initial: Proposal | None = None,
) -> Plan:
    """Plans of `horizon` blocks that lower `cost`, one task per generator; each is the cheapest candidate evaluated."""
    config = config or ICEMConfig()
    check_counts("iCEM", horizon=horizon, iterations=config.iterations)
    check_elites("iCEM", config.elites, config.candidates)
    if not 0 <= config.kept_elites <= config.elites:
        raise UsageError(f"iCEM: {config.kept_elites} kept of {config.elites} elites; expected 0 to all of them")
    mean, std = first_distribution(len(generators), horizon, action_dim, config.initial_std, initial)
    kept = torch.empty(len(generators), 0, horizon, action_dim)
    best, best_cost = mean, torch.full((len(generators),), torch.inf)
    trace = []
    for _ in range(config.iterations):
        noise = coloured(white_noise(config.candidates, horizon, action_dim, generators), config.noise_beta)
        candidates = around(mean, std, noise)
        if bounds is not None:
            candidates = bounds.clamp(candidates)
        candidates = torch.cat([candidates, kept], dim=1)
        elites, elite_costs = select(candidates, rankable(cost(candidates), candidates), config.elites)
        new_mean, new_std = fit(elites, elite_costs)
        mean, std = mean.lerp(new_mean, 1 - config.momentum), std.lerp(new_std, 1 - config.momentum)
        kept = elites[:, : config.kept_elites]
        trace.append(mean_finite(elite_costs))
        better = elite_costs[:, 0] < best_cost
        best = torch.where(better[:, None, None], elites[:, 0], best)
        best_cost = torch.where(better, elite_costs[:, 0], best_cost)
    return Plan(best, std, torch.stack(trace, dim=1))


def coloured(white: Tensor, beta: float) -> Tensor:
    """Noise over the horizon with power 1 / f^beta and unit variance from white noise: [N, S, H, A] -> the same shape.

    The constant part, whose frequency is 0, gets the power of the lowest frequency that the horizon holds.
    """
    horizon = white.shape[2]
    frequencies = torch.fft.rfftfreq(horizon).clamp(min=1 / horizon)
    amplitude = frequencies ** (-beta / 2)
    # Every frequency but 0 and, if the horizon is even, the highest stands for itself and its mirror image.
    copies = torch.full_like(amplitude, 2)
    copies[0] = 1
    if horizon % 2 == 0:
        copies[-1] = 1
    amplitude = amplitude * (horizon / (copies * amplitude.square()).sum()).sqrt()
    return torch.fft.irfft(torch.fft.rfft(white, dim=2) * amplitude[:, None], n=horizon, dim=2)
