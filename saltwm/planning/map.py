"""Plans as posterior modes: the likeliest actions, given what the data's actor does and that the plan ends at the goal.

    minimise |z_H - z_g|^2 + w sum_k |(a_k - m_k) / s_k|^2   over action blocks a_0 .. a_{H-1} inside a box

Up to constants the second term is -2 w log q(a | z, z_g, n) of the action prior, the first -2 w log p(z_g | z, a) of a
model whose last latent has errors of variance w in each dimension. So the minimum is the mode of the posterior
p(a | z, z_g) (MAP), and w says how far the model is trusted: the prior alone for a large w, the model alone for w = 0.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from saltwm.ground.config import MapConfig
from saltwm.ground.errors import UsageError
from saltwm.model.world_model import WorldModel
from saltwm.planning.cem import Bounds, Plan, check_counts
from saltwm.planning.costs import Situation, terminal_cost
from saltwm.planning.gauss_newton import Price, Problem, as_plan, box_of, require_affine, solve
from saltwm.planning.prior import first_blocks


@torch.no_grad()
def posterior_mode(
    model: WorldModel,
    situation: Situation,
    *,
    horizon: int,
    generators: Sequence[torch.Generator],
    config: MapConfig | None = None,
    bounds: Bounds | None = None,
) -> Plan:
    """Plans of `horizon` blocks, one task per generator; each task is solved alone, its starts together.

    `elite_costs` are as Gauss-Newton's.
    """
    config = config or MapConfig()
    require_affine(model, "map", "cem-map")
    counts = {"iterations": config.iterations, "starts": config.starts, "halve_every": config.halve_every}
    check_counts("map", horizon=horizon, **counts)
    check_price("map", config.w)
    situation.check(model.config.latent_dim)
    proposal = first_blocks(situation.proposed(), horizon)
    folded = model.transition.folded(model.action_encoder)
    box = box_of(config.box_std, bounds, model.action_encoder.block_dim)
    warm = situation.warm_start(horizon)
    plans = []
    for task, generator in enumerate(generators):
        mean, std = proposal.mean[task], proposal.std[task]
        x, goal = folded.first_state(situation.history[task], situation.past_conditions[task]), situation.goal[task]
        problem = Problem(folded, x, goal, Price(config.w, mean.to(x), std.to(x)))
        rest = None if warm is None else warm[task]
        plans.append(solve(problem, box.clamp(_starts(mean, std, rest, generator, config)), box, config))
    return as_plan(plans)


def check_price(planner: str, w: float) -> None:
    """UsageError for a price that no minimum has."""
    if not 0 <= w < float("inf"):
        raise UsageError(f"{planner}: w {w}; expected a finite number of at least 0")


def _starts(mean: Tensor, std: Tensor, rest: Tensor | None, generator: torch.Generator, config: MapConfig) -> Tensor:
    """First plans [P, H, A]: the prior's mean, what is left of the last plan, and draws from the prior."""
    starts = mean + std * torch.randn(config.starts, *mean.shape, generator=generator)
    starts[0] = mean
    if rest is not None and config.starts > 1:
        starts[1] = rest
    return starts


@torch.no_grad()
def imitation(
    model: WorldModel, situation: Situation, *, horizon: int, bounds: Bounds | None = None, **_: object
) -> Plan:
    """The prior's mean as a plan, unsearched; `elite_costs` [N, 1] is what the model promises of it."""
    proposal = first_blocks(situation.proposed(), horizon)
    actions = proposal.mean if bounds is None else bounds.clamp(proposal.mean)
    return Plan(actions, proposal.std, terminal_cost(model, situation)(actions[:, None]))
