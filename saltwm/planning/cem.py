"""The cross-entropy method: a function of a cost function, for many tasks at once (Sec. 3.1, App. B.5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saltwm.config import CEMConfig
from saltwm.errors import NonFiniteError, UsageError
from saltwm.shapes import check

Cost = Callable[[Tensor], Tensor]
"""Candidate plans [N, S, H, A] in normalised actions -> their costs [N, S]."""


@dataclass(frozen=True)
class Bounds:
    """The action space in the normalised actions that a planner searches: low and high, both [A]."""

    low: Tensor
    high: Tensor

    def clamp(self, actions: Tensor) -> Tensor:
        """The nearest actions [..., A] inside."""
        return torch.maximum(torch.minimum(actions, self.high), self.low)


@dataclass(frozen=True)
class Plan:
    """What a planner found for each of N tasks."""

    actions: Tensor
    """[N, H, A] normalised action blocks."""
    std: Tensor
    """[N, H, A] spread of the last elites."""
    elite_costs: Tensor
    """[N, iterations] mean cost of the elites: the trace that failure anatomy reads."""


def cem(
    cost: Cost,
    *,
    horizon: int,
    action_dim: int,
    generators: Sequence[torch.Generator],
    config: CEMConfig | None = None,
    bounds: Bounds | None = None,
) -> Plan:
    """Plans of `horizon` blocks that lower `cost`, one task per generator.

    As the paper runs it: candidate 0 is the current mean, elites give the next mean and standard deviation, nothing
    floors the deviation, and the final mean is returned without being evaluated. Each task draws from its own
    generator, so its plan does not depend on its neighbours.
    """
    config = config or CEMConfig()
    if not 1 <= config.elites <= config.candidates:
        raise UsageError(f"CEM: {config.elites} elites of {config.candidates} candidates; expected 1 to all of them")
    shape = (len(generators), horizon, action_dim)
    mean, std = torch.zeros(shape), torch.full(shape, config.initial_std)
    trace = []
    for _ in range(config.iterations):
        candidates = _sample(mean, std, config.candidates, generators)
        if bounds is not None:
            candidates = bounds.clamp(candidates)
        costs = cost(candidates)
        check("costs", costs, "N S", N=len(generators), S=config.candidates)
        elite_costs, chosen = _finite(costs).topk(config.elites, dim=1, largest=False)
        elites = candidates.gather(1, chosen[:, :, None, None].expand(-1, -1, horizon, action_dim))
        mean, std = _fit(elites, elite_costs.isfinite())
        trace.append(_mean_where(elite_costs, elite_costs.isfinite()))
    return Plan(mean, std, torch.stack(trace, dim=1))


def _sample(mean: Tensor, std: Tensor, count: int, generators: Sequence[torch.Generator]) -> Tensor:
    """[N, S, H, A] candidates, the first of which is the mean."""
    noise = torch.stack([torch.randn(count, *mean.shape[1:], generator=generator) for generator in generators])
    candidates = mean[:, None] + noise * std[:, None]
    candidates[:, 0] = mean
    return candidates


def _finite(costs: Tensor) -> Tensor:
    """Costs [N, S] with non-finite ones last in any ranking; an error if a task has no finite one."""
    finite = costs.isfinite()
    hopeless = (~finite.any(dim=1)).nonzero().flatten().tolist()
    if hopeless:
        raise NonFiniteError(
            f"planning: every candidate of task {hopeless[0]} has a non-finite cost; is the model sound?"
        )
    return costs.masked_fill(~finite, torch.inf)


def _fit(elites: Tensor, usable: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and sample standard deviation [N, H, A] of the usable elites [N, E, H, A]; a single elite has spread 0."""
    weight = usable[:, :, None, None].to(elites.dtype)
    count = weight.sum(dim=1)
    mean = (elites * weight).sum(dim=1) / count
    squares = ((elites - mean[:, None]) ** 2 * weight).sum(dim=1)
    return mean, (squares / (count - 1).clamp(min=1)).sqrt()


def _mean_where(values: Tensor, usable: Tensor) -> Tensor:
    """Mean over the usable entries of each row."""
    return values.masked_fill(~usable, 0).sum(dim=1) / usable.sum(dim=1)
