"""How an action prior is learnt: on frozen latents, from pairs (i, i + n) of the same episode.

A step is a function of (config, data, step number), as in training: its pairs and its dropout derive from the seed and
the step, so a job that is killed and started again ends with the same bytes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saltwm.data.split import held_out
from saltwm.data.windows import Windows
from saltwm.disk.dataset import Dataset
from saltwm.ground.config import PriorConfig
from saltwm.ground.errors import NonFiniteError, UsageError
from saltwm.ground.rng import derive, stream
from saltwm.model.world_model import WorldModel
from saltwm.planning.prior import ActionPrior, known_blocks

FRAMES_AT_ONCE = 256
WARMUP_STEPS = 50
GRADIENT_CLIP = 1.0
HELD_OUT_PAIRS = 4096

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Journeys:
    """Episodes as a prior sees them: a latent per block boundary, the blocks between, one episode after another.

    Its tensors are where the model was that encoded them, and the prior is learnt there.
    """

    latents: Tensor
    """[R, D]"""
    blocks: Tensor
    """[R, A] the normalised action block that leaves each boundary; 0 at the last of an episode, which none leaves."""
    blocks_to_end: Rows
    """[R] blocks until the episode ends."""
    training: Rows
    """Boundaries of training episodes with a block to go, ascending."""
    held_out: Rows
    """The same of episodes that neither the model nor the prior is trained on."""


@dataclass(frozen=True)
class Pairs:
    """Inputs of a prior and the actions that it should predict."""

    latent: Tensor
    """[B, D]"""
    goal: Tensor
    """[B, D] the latent n blocks later."""
    blocks_left: Tensor
    """n [B]"""
    blocks: Tensor
    """[B, H, A] normalised."""
    known: Tensor
    """[B, H, 1] which of them come before the goal; only these are targets."""


@dataclass(frozen=True)
class Figures:
    """A prior on held-out pairs, per number of an action block that comes before the goal."""

    nll: float
    """Negative log likelihood in nats; 1.419 for a standard normal, which knows nothing but the spread of actions."""
    explained: float
    """Share of the variance that the mean explains."""
    within_one_std: float
    """Share of targets within one deviation of the mean; 0.683 if the deviations are right."""


# --- the data --------------------------------------------------------------------------------------------------------


def blocks_of(dataset: Dataset, frameskip: int) -> Rows:
    """Whole action blocks of each episode [E]; UsageError for held-out data, or frames that do not fit the blocks."""
    Windows(dataset, frames=2, frameskip=frameskip)  # for what it refuses
    return dataset.lengths // frameskip


@torch.inference_mode()
def encode(model: WorldModel, dataset: Dataset, advance: Callable[[int], None]) -> Journeys:
    """Encode each block boundary once; `advance(frames)` is called as it goes on, and may raise to stop."""
    skip = model.config.frameskip
    blocks = blocks_of(dataset, skip)
    episodes = np.repeat(np.arange(len(dataset)), blocks + 1)
    to_end = np.concatenate([np.arange(count, -1, -1) for count in blocks])
    steps = (blocks[episodes] - to_end) * skip
    latents = []
    for first in range(0, len(steps), FRAMES_AT_ONCE):
        part = slice(first, first + FRAMES_AT_ONCE)
        frames = torch.from_numpy(dataset.read_frames(episodes[part], steps[part]))
        latents.append(model.encode(frames[None])[0])
        advance(len(frames))
    found = torch.cat(latents).clone()
    if not found.isfinite().all():
        row = int((~found.isfinite().all(dim=1)).nonzero()[0])
        raise NonFiniteError(f"{dataset.path}: episode {episodes[row]}, step {steps[row]}: its latent is not finite")
    is_held_out = np.isin(episodes, held_out(dataset))
    return Journeys(
        latents=found,
        blocks=_blocks(model, dataset, episodes, steps, to_end),
        blocks_to_end=to_end,
        training=np.flatnonzero(~is_held_out & (to_end > 0)),
        held_out=np.flatnonzero(is_held_out & (to_end > 0)),
    )


def _blocks(model: WorldModel, dataset: Dataset, episodes: Rows, steps: Rows, to_end: Rows) -> Tensor:
    """Journeys.blocks."""
    encoder = model.action_encoder
    rows = np.flatnonzero(to_end > 0)
    first = dataset.first_step[episodes[rows]] + steps[rows]
    raw = dataset.all_actions[first[:, None] + np.arange(encoder.frameskip)].reshape(len(rows), encoder.block_dim)
    blocks = torch.zeros(len(to_end), encoder.block_dim)
    blocks[rows] = encoder.normalise(torch.from_numpy(raw)).cpu()
    return blocks.to(model.device)


def draw(journeys: Journeys, rows: Rows, count: int, config: PriorConfig, rng: np.random.Generator) -> Pairs:
    """Pairs that begin at random ones of `rows`: `near_share` of the goals within the horizon, the others anywhere."""
    first = rng.choice(rows, count)
    farthest = np.minimum(journeys.blocks_to_end[first], config.farthest_blocks)
    near = np.minimum(farthest, config.horizon_blocks)
    n = 1 + rng.integers(0, np.where(rng.random(count) < config.near_share, near, farthest))
    return pairs_at(journeys, first, n, config)


def pairs_at(journeys: Journeys, first: Rows, n: Rows, config: PriorConfig) -> Pairs:
    """The pairs (first, first + n) [B]."""
    device = journeys.latents.device
    start, blocks_left = torch.from_numpy(first).to(device), torch.from_numpy(n).to(device)
    # Blocks after the goal may be another episode's, or wrap to the last row; `known` leaves them out.
    after = (start[:, None] + torch.arange(config.horizon_blocks, device=device)).clamp(max=len(journeys.blocks) - 1)
    return Pairs(
        latent=journeys.latents[start],
        goal=journeys.latents[start + blocks_left],
        blocks_left=blocks_left,
        blocks=journeys.blocks[after],
        known=known_blocks(blocks_left, config.horizon_blocks),
    )


# --- learning --------------------------------------------------------------------------------------------------------


def build_prior(config: PriorConfig, journeys: Journeys) -> ActionPrior:
    """Initial weights from the seed, the scale of its inputs from the training latents."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(config.seed, "prior-weights"))
        prior = ActionPrior(config, journeys.latents.shape[1], journeys.blocks.shape[1])
    latents = journeys.latents[torch.from_numpy(journeys.training)]
    spread = latents.std(dim=0)
    prior.latent_mean.copy_(latents.mean(dim=0))
    prior.latent_std.copy_(torch.where(spread > 0, spread, 1.0))  # a dead dimension says nothing, whatever its scale
    return prior.to(latents.device)


def make_optimizer(prior: ActionPrior, config: PriorConfig) -> torch.optim.Optimizer:
    """AdamW; its learning rate is set by each step."""
    return torch.optim.AdamW(prior.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)


def take_step(
    prior: ActionPrior, optimizer: torch.optim.Optimizer, journeys: Journeys, config: PriorConfig, step: int
) -> float:
    """One optimiser step; returns its loss, NonFiniteError before the weights are touched if that is not finite."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(config, step)
    pairs = draw(journeys, journeys.training, config.batch_size, config, stream(config.seed, "prior-pairs", step))
    torch.manual_seed(derive(config.seed, "prior-dropout", step))
    prior.train()
    mean, log_std = prior(pairs.latent, pairs.goal, pairs.blocks_left)
    loss = beta_nll(mean, log_std, pairs, config.beta)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(prior.parameters(), GRADIENT_CLIP)
    if not (loss.isfinite() and norm.isfinite()):
        raise NonFiniteError(f"prior, step {step + 1}: loss {loss:.3g}, gradient norm {norm:.3g}; stopped before it")
    optimizer.step()
    return float(loss.detach())


def learning_rate(config: PriorConfig, step: int) -> float:
    """A short linear warm-up, times a cosine from 1 to 0."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / config.steps))
    return config.learning_rate * cosine * min(1.0, (step + 1) / WARMUP_STEPS)


def beta_nll(mean: Tensor, log_std: Tensor, pairs: Pairs, beta: float) -> Tensor:
    """Negative log likelihood of the known blocks, each number weighed by its variance to the power of beta.

    With beta 0 the mean is hardly fitted where the deviation is large; with 1 the deviation does not matter to it.
    """
    errors = 0.5 * ((pairs.blocks - mean) / log_std.exp()).square() + log_std
    weighted = (2 * beta * log_std.detach()).exp() * errors
    return weighted[pairs.known.expand_as(weighted)].mean()


# --- how good it is --------------------------------------------------------------------------------------------------


@torch.no_grad()
def measure(prior: ActionPrior, journeys: Journeys, config: PriorConfig) -> Figures:
    """On held-out pairs, the same for every prior of the data with this seed; goals within the horizon."""
    if not len(journeys.held_out):
        raise UsageError("prior: no held-out episode has an action block; collect more episodes")
    rng = stream(config.seed, "prior-held-out")
    first = rng.choice(journeys.held_out, HELD_OUT_PAIRS)
    most = np.minimum(journeys.blocks_to_end[first], min(config.horizon_blocks, config.farthest_blocks))
    pairs = pairs_at(journeys, first, 1 + rng.integers(0, most), config)
    prior.eval()
    mean, log_std = prior(pairs.latent, pairs.goal, pairs.blocks_left)
    known = pairs.known.expand_as(mean)
    errors, targets, log_std = (pairs.blocks - mean)[known], pairs.blocks[known], log_std[known]
    in_stds = errors / log_std.exp()
    return Figures(
        nll=float((0.5 * in_stds.square() + log_std).mean() + 0.5 * math.log(2 * math.pi)),
        explained=float(1 - errors.square().mean() / (targets - targets.mean()).square().mean()),
        within_one_std=float((in_stds.abs() < 1).double().mean()),
    )
