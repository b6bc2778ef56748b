"""The action prior q(a_0 .. a_{H-1} | z, z_g, n): what the data's actor does at z if it is at z_g n blocks later.

A Gaussian over normalised action blocks with deviations of its own: small where the data agree on what to do, near 1
(the spread of all actions) where they do not. It sees latents alone, so every model that encodes pictures can have one.
It is imitation; what planning adds to it is for `map` and the sampling planners to show.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from saltwm.ground.checks import at_least, check
from saltwm.ground.config import PriorConfig
from saltwm.ground.errors import DamagedError, UsageError
from saltwm.planning.cem import Proposal
from saltwm.planning.looks import require_horizon

LEAST_STD, MOST_STD = 0.02, 3.0
"""Deviations stay between these, in deviations of all actions."""


def checked(proposal: Proposal) -> Proposal:
    """The proposal, if it is a Gaussian: finite means, finite deviations above 0."""
    if proposal.mean.isfinite().all() and proposal.std.isfinite().all() and (proposal.std > 0).all():
        return proposal
    raise DamagedError(
        "action prior: it proposes numbers that are not finite, or a deviation that is not above 0",
        remedy="learn a prior",
    )


def first_blocks(proposal: Proposal, horizon: int) -> Proposal:
    """The first `horizon` of the proposed blocks."""
    require_horizon(proposal.mean.shape[1], horizon)
    return Proposal(proposal.mean[:, :horizon], proposal.std[:, :horizon])


def product(a: Proposal, b: Proposal) -> Proposal:
    """The Gaussian that two Gaussians agree on, up to its scale: precisions add, each mean weighs by its own."""
    precision_a, precision_b = a.std.square().reciprocal(), b.std.square().reciprocal()
    total = precision_a + precision_b
    return Proposal((a.mean * precision_a + b.mean * precision_b) / total, total.rsqrt())


class ActionPrior(nn.Module):
    """Latents of now and of the goal, and the blocks left between them, to a Gaussian over the next H action blocks."""

    latent_mean: Tensor
    latent_std: Tensor
    checkpoint_sha256: str | None = None
    """Of the model whose latents it learnt on, where it was read from a file."""

    def __init__(self, config: PriorConfig, latent_dim: int, block_dim: int) -> None:
        super().__init__()
        _check_sizes(config)
        self.config, self.latent_dim, self.block_dim = config, latent_dim, block_dim
        self.register_buffer("latent_mean", torch.zeros(latent_dim))
        self.register_buffer("latent_std", torch.ones(latent_dim))
        width = config.width
        inputs = [2 * latent_dim + config.farthest_blocks, *[width] * (config.depth - 1)]
        layers = [
            nn.Sequential(nn.Linear(size, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(config.dropout))
            for size in inputs
        ]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, 2 * config.horizon_blocks * block_dim)

    def forward(self, latent: Tensor, goal: Tensor, blocks_left: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log deviations [N, H, A] from latents [N, D], goals [N, D] and n [N]."""
        z, z_goal = ((x - self.latent_mean) / self.latent_std for x in (latent, goal))
        left = functional.one_hot(blocks_left - 1, self.config.farthest_blocks).to(z.dtype)
        features = self.body(torch.cat([z, z_goal - z, left], dim=1))
        mean, log_std = self.head(features).view(len(z), 2, self.config.horizon_blocks, self.block_dim).unbind(dim=1)
        return mean, log_std.clamp(math.log(LEAST_STD), math.log(MOST_STD))

    @torch.no_grad()
    def propose(self, latent: Tensor, goal: Tensor, blocks_left: Tensor) -> Proposal:
        """The Gaussian over the next H blocks: latents [N, D], goals [N, D], blocks left to the goal [N].

        Where n is larger than H these are the first H blocks of a longer way. Where it is smaller, nothing is known of
        what follows the goal, and the blocks after n have the mean 0 and the deviation 1 of all actions. Each task is
        looked at alone, so that its proposal does not depend on its neighbours.
        """
        count = check("latent", latent, "N D", D=self.latent_dim, dtype="float")["N"]
        check("goal", goal, "N D", N=count, D=self.latent_dim, dtype="float")
        check("blocks left", blocks_left, "N", N=count, dtype="int")
        self._require_known(blocks_left)
        tasks = [self(*(x[task : task + 1] for x in (latent, goal, blocks_left))) for task in range(count)]
        mean, log_std = (torch.cat(parts) for parts in zip(*tasks, strict=True))
        before_goal = known_blocks(blocks_left, self.config.horizon_blocks)
        return checked(Proposal(mean.where(before_goal, 0.0).cpu(), log_std.exp().where(before_goal, 1.0).cpu()))

    def _require_known(self, blocks_left: Tensor) -> None:
        farthest = self.config.farthest_blocks
        for blocks in blocks_left.tolist():
            if not 1 <= blocks <= farthest:
                raise UsageError(
                    f"the action prior knows goals 1 to {farthest} blocks away, this one is {blocks}; "
                    "learn it with a `farthest` of more"
                )


def known_blocks(blocks_left: Tensor, horizon: int) -> Tensor:
    """Which of the next H blocks come before the goal: [N] -> [N, H, 1]."""
    steps = torch.arange(horizon, device=blocks_left.device)
    return (steps < blocks_left[:, None])[:, :, None]


def _check_sizes(config: PriorConfig) -> None:
    for name in ("horizon_blocks", "farthest_blocks", "width", "depth"):
        at_least(f"prior: {name}", getattr(config, name))
    if not 0 <= config.dropout < 1:
        raise UsageError(f"prior: dropout {config.dropout}; expected a share from 0 to less than 1")
