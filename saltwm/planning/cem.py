"""The cross-entropy method: a function of a cost function, for many tasks at once (Sec. 3.1, App. B.5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saltwm.ground.checks import at_least, check, check_tensor
from saltwm.ground.config import CEMConfig
from saltwm.ground.errors import NonFiniteError, UsageError

Cost = Callable[[Tensor], Tensor]
"""Candidate plans [N, S, H, A] in normalised actions -> their costs [N, S], both on the CPU."""


@dataclass(frozen=True)
class Bounds:
    """The action space in the normalised actions that a planner searches: low and high, both [A]."""

    low: Tensor
    high: Tensor

    def clamp(self, actions: Tensor) -> Tensor:
        """The nearest actions [..., A] inside."""
        return torch.maximum(torch.minimum(actions, self.high), self.low)


@dataclass(frozen=True)
class Proposal:
    """Where a search begins: independent Gaussians over the numbers of a plan."""

    mean: Tensor
    """[N, H, A] normalised action blocks."""
    std: Tensor
    """[N, H, A]"""


@dataclass(frozen=True)
class Plan:
    """What a planner found for each of N tasks."""

    actions: Tensor
    """[N, H, A] normalised action blocks."""
    std: Tensor
    """[N, H, A] spread of the last elites; 0 for planners that keep single plans."""
    elite_costs: Tensor
    """[N, iterations] cost of the best plans as optimisation went on: the trace that failure anatomy reads.

    The first entry is what hardly optimised plans promise, the last what the optimised ones do.
    """


def cem(
    cost: Cost,
    *,
    horizon: int,
    action_dim: int,
    generators: Sequence[torch.Generator],
    config: CEMConfig | None = None,
    bounds: Bounds | None = None,
    initial: Proposal | None = None,
) -> Plan:
    """Plans of `horizon` blocks that lower `cost`, one task per generator.

    As the paper runs it, unless `initial` says where to begin: candidate 0 is the current mean, elites give the next
    mean and standard deviation, nothing floors the deviation, and the final mean is returned without being evaluated.
    Each task draws from its own generator, so its plan does not depend on its neighbours.
    """
    config = config or CEMConfig()
    check_counts("CEM", horizon=horizon, iterations=config.iterations)
    check_elites("CEM", config.elites, config.candidates)
    mean, std = first_distribution(len(generators), horizon, action_dim, config.initial_std, initial)
    trace = []
    for _ in range(config.iterations):
        candidates = around(mean, std, white_noise(config.candidates, horizon, action_dim, generators))
        if bounds is not None:
            candidates = bounds.clamp(candidates)
        elites, elite_costs = select(candidates, rankable(cost(candidates), candidates), config.elites)
        mean, std = fit(elites, elite_costs)
        trace.append(mean_finite(elite_costs))
    return Plan(mean, std, torch.stack(trace, dim=1))


# --- the steps of a sampling planner ---------------------------------------------------------------------------------


def check_counts(planner: str, **counts: int) -> None:
    """UsageError unless there is one at least of each of these."""
    for name, count in counts.items():
        at_least(f"{planner}: {name}", count)


def check_elites(planner: str, elites: int, candidates: int) -> None:
    """UsageError unless there are as many candidates as elites, and one at least."""
    if not 1 <= elites <= candidates:
        raise UsageError(f"{planner}: {elites} elites of {candidates} candidates; expected 1 to all of them")


def first_distribution(
    tasks: int, horizon: int, action_dim: int, std: float, initial: Proposal | None
) -> tuple[Tensor, Tensor]:
    """Mean and deviation [N, H, A] that a search begins with: those of `initial`, or the mean action and `std`."""
    shape = (tasks, horizon, action_dim)
    if initial is None:
        return torch.zeros(shape), torch.full(shape, std)
    for name, values in (("mean", initial.mean), ("std", initial.std)):
        check(f"initial {name}", values, "N H A", N=tasks, H=horizon, A=action_dim)
    return initial.mean, initial.std


def white_noise(count: int, horizon: int, action_dim: int, generators: Sequence[torch.Generator]) -> Tensor:
    """Independent standard normal numbers [N, S, H, A], each task's from its own generator."""
    noise = torch.empty(len(generators), count, horizon, action_dim)
    for rows, generator in zip(noise, generators, strict=True):
        torch.randn(rows.shape, generator=generator, out=rows)
    return noise


def around(mean: Tensor, std: Tensor, noise: Tensor) -> Tensor:
    """Candidates [N, S, H, A] about mean and std [N, H, A]; the first of each task is the mean itself."""
    candidates = mean[:, None] + noise * std[:, None]
    candidates[:, 0] = mean
    return candidates


def rankable(costs: Tensor, candidates: Tensor) -> Tensor:
    """Costs [N, S] with infinity for non-finite ones, so that they rank last; an error if a task has no finite one."""
    check_tensor("costs", costs, "N S", N=candidates.shape[0], S=candidates.shape[1])
    finite = costs.isfinite()
    hopeless = (~finite.any(dim=1)).nonzero().flatten().tolist()
    if hopeless:
        raise NonFiniteError(
            f"planning: every candidate of task {hopeless[0]} has a non-finite cost; is the model sound?"
        )
    return torch.where(finite, costs, torch.inf)  # counts become floats


def select(candidates: Tensor, costs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` cheapest candidates [N, E, H, A] and their costs [N, E], cheapest first."""
    elite_costs, chosen = costs.topk(count, dim=1, largest=False)
    return candidates.gather(1, chosen[:, :, None, None].expand(-1, -1, *candidates.shape[2:])), elite_costs


def fit(elites: Tensor, elite_costs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and sample standard deviation [N, H, A] of the elites whose cost is finite; a single one has spread 0."""
    weight = elite_costs.isfinite()[:, :, None, None].to(elites.dtype)
    count = weight.sum(dim=1)
    mean = (elites * weight).sum(dim=1) / count
    squares = ((elites - mean[:, None]) ** 2 * weight).sum(dim=1)
    return mean, (squares / (count - 1).clamp(min=1)).sqrt()


def mean_finite(costs: Tensor) -> Tensor:
    """Mean [N] of each row's finite entries."""
    finite = costs.isfinite()
    return costs.masked_fill(~finite, 0).sum(dim=1) / finite.sum(dim=1)
