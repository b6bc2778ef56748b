"""A score for those who have no simulator: would the model have chosen what the recorded actor did?

Three questions on held-out stretches of H action blocks, each from a picture to the picture H blocks later; a model
whose training may have seen them is scored with a warning:

1. rank: of the plans that the actor carried out elsewhere, how many promise to come nearer to that picture than the
   plan that did lead there? 0 is best, 0.5 is what a model that knows nothing reaches.
2. error: how far from the true latent does the recorded plan end in the model, against "nothing moves"? Below 1 is
   better than predicting no change.
3. prior: how likely are the recorded actions under the model's action prior, and are its deviations honest?

The scores of the shipped models stand beside their recorded success, to see whether they order models as planning does.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saltwm.data.split import held_out
from saltwm.data.stretches import read_stretches
from saltwm.diagnostics.cost_order import rank_correlation
from saltwm.diagnostics.probe import encode_pictures
from saltwm.disk import checkpoint
from saltwm.disk.dataset import Dataset
from saltwm.disk.records import Cell, Rate
from saltwm.disk.shipped import data_beside
from saltwm.ground.checks import at_least
from saltwm.ground.errors import UsageError
from saltwm.ground.rng import stream
from saltwm.jobs.card import measured
from saltwm.jobs.measures import warn_if_seen
from saltwm.jobs.score import Score
from saltwm.jobs.shelf import MODELS, Item
from saltwm.model.world_model import WorldModel
from saltwm.planning.prior_files import find_prior, load_prior

CANDIDATES = 64
"""Plans from elsewhere that each recorded plan is compared with, at most."""


@dataclass(frozen=True)
class OfflineScore:
    """What was found on held-out stretches."""

    run: str
    data: str
    pairs: int
    horizon_blocks: int
    candidates: int
    rank: float
    """Mean share of other plans that promise to come nearer than the recorded one: 0 best, 0.5 by chance."""
    rank_interval: tuple[float, float]
    """95 %, over pairs"""
    error_against_stillness: float
    """Squared error of the predicted last latent over that of the first one: below 1 beats "nothing moves"."""
    prior_nll: float | None
    """Nats per number of the recorded actions; 1.419 for a prior that knows only their spread; none without a prior."""
    prior_within_one_std: float | None
    """Share of recorded numbers within one deviation of the prior's mean; 0.683 if its deviations are honest."""


def score(job: Score) -> OfflineScore:
    """Measure a model on held-out stretches of the job's dataset."""
    if job.data is None:
        beside = data_beside(str(job.run))
        hint = f"; --data {beside} is shipped for it" if beside else ""
        raise UsageError(f"{job.run}: give --data DATASET, whose held-out episodes it is scored on{hint}")
    for name in ("horizon", "pairs", "history"):
        at_least(name, getattr(job, name), 2 if name == "pairs" else 1)
    dataset = Dataset.open(job.data, verify="sizes")
    path = checkpoint.find_checkpoint(job.run)
    model = checkpoint.load(path, world=dataset.world)
    warn_if_seen(checkpoint.read_info(path), dataset, path)
    stretches = _encoded(model, dataset, job)
    return OfflineScore(
        run=str(job.run),
        data=str(job.data),
        pairs=len(stretches.latents),
        horizon_blocks=job.horizon,
        **_ranked(model, stretches, job.seed),
        error_against_stillness=_against_stillness(model, stretches),
        **_prior_figures(path, model, stretches),
    )


@dataclass(frozen=True)
class Encoded:
    """Held-out stretches as the model sees them; the history comes first."""

    latents: Tensor
    """[N, W + H, D]"""
    conditions: Tensor
    """[N, W - 1 + H, D]"""
    blocks: Tensor
    """[N, H, A], normalised action blocks that lead from the last frame of the history to the goal"""
    window: int


def _encoded(model: WorldModel, dataset: Dataset, job: Score) -> Encoded:
    skip, window, unseen = model.config.frameskip, min(job.history, model.window), held_out(dataset)
    horizon = job.horizon
    length = window - 1 + horizon
    long_enough = unseen[dataset.lengths[unseen] >= length * skip]
    if not len(long_enough):
        longest = int(dataset.lengths[unseen].max()) // skip - window + 1 if len(unseen) else 0
        raise UsageError(
            f"{dataset.path}: no held-out episode has {length} action blocks; "
            + (f"--horizon {longest} fits" if longest > 0 else "it has no held-out episode that is long enough")
        )
    found = read_stretches(dataset, long_enough, length, skip, job.pairs, stream(job.seed, "score"))
    with torch.inference_mode():
        blocks = torch.from_numpy(found.blocks)
        z = encode_pictures(model, found.frames.reshape(-1, *found.frames.shape[2:])).unflatten(0, (job.pairs, -1))
        encoder = model.action_encoder
        mean, std = encoder.action_mean.repeat(skip), encoder.action_std.repeat(skip)
        return Encoded(z, model.condition(blocks), (blocks[:, -horizon:] - mean) / std, window)


def _ranked(model: WorldModel, stretches: Encoded, seed: int) -> dict[str, Any]:
    """Ranks of the recorded plans among those of other stretches."""
    z, c, window = stretches.latents, stretches.conditions, stretches.window
    count, horizon = len(z), stretches.blocks.shape[1]
    others = min(CANDIDATES, count - 1)
    rng, ranks = stream(seed, "score", "others"), []
    with torch.inference_mode():
        for pair in range(count):
            chosen = rng.choice(count - 1, others, replace=False)
            chosen = chosen + (chosen >= pair)  # never itself
            plans = torch.cat([c[pair : pair + 1, -horizon:], c[torch.from_numpy(chosen), -horizon:]])
            past = c[pair : pair + 1, : window - 1].expand(len(plans), -1, -1)
            history = z[pair : pair + 1, :window].expand(len(plans), -1, -1)
            last = model.rollout(history, torch.cat([past, plans], dim=1))[:, -1]
            costs = (last - z[pair, -1]).square().mean(dim=1)
            # A tie counts half, so that a model that tells no plans apart reaches 0.5.
            better, tied = (costs[1:] < costs[0]).double(), (costs[1:] == costs[0]).double()
            ranks.append(float((better + 0.5 * tied).mean()))
    found = torch.tensor(ranks, dtype=torch.float64)
    half = 1.96 * float(found.std()) / count**0.5
    mean = float(found.mean())
    return {"candidates": others, "rank": mean, "rank_interval": (mean - half, mean + half)}


def _against_stillness(model: WorldModel, stretches: Encoded) -> float:
    z, window = stretches.latents, stretches.window
    with torch.inference_mode():
        last = model.rollout(z[:, :window], stretches.conditions)[:, -1]
    error, still = (last - z[:, -1]).square().sum(dim=1), (z[:, window - 1] - z[:, -1]).square().sum(dim=1)
    return float(error.double().mean() / still.double().mean())


def _prior_figures(path: Path, model: WorldModel, stretches: Encoded) -> dict[str, Any]:
    """Likelihood and honesty of the model's action prior; none without one."""
    if find_prior(path) is None:
        return {"prior_nll": None, "prior_within_one_std": None}
    prior = load_prior(path)
    z, blocks, window = stretches.latents, stretches.blocks, stretches.window
    horizon = min(blocks.shape[1], prior.config.horizon_blocks)
    left = torch.full((len(z),), min(blocks.shape[1], prior.config.farthest_blocks))
    proposal = prior.propose(z[:, window - 1], z[:, window - 1 + int(left[0])], left)
    in_stds = (blocks[:, :horizon] - proposal.mean[:, :horizon]) / proposal.std[:, :horizon]
    nll = 0.5 * in_stds.square() + proposal.std[:, :horizon].log() + 0.5 * math.log(2 * math.pi)
    return {
        "prior_nll": float(nll.double().mean()),
        "prior_within_one_std": float((in_stds.abs() < 1).double().mean()),
    }


# --- does the score order models as planning does? --------------------------------------------------------------------

MEASURES = ("rank", "error_against_stillness", "prior_nll")
"""Figures of a score; small is good in each. Only models with a prior have the last."""


@dataclass(frozen=True)
class _Scored:
    """One model."""

    model: str
    environment: str
    score: OfflineScore
    success: Rate
    """`clean`, CEM, blind: the one search that every shipped model was evaluated with."""


@dataclass(frozen=True)
class _Order:
    """How well one figure of the score orders models; a good score is a small one, so the sign is turned."""

    measure: str
    correlation: float | None
    """Spearman's, with success, over all models."""
    agreeing: int
    """Pairs of models of one environment that the figure orders as success does; a tie agrees with nothing."""
    pairs: int


@dataclass(frozen=True)
class Ordered:
    """All models, and the verdict on each figure."""

    models: tuple[_Scored, ...]
    orders: tuple[_Order, ...]


def require_success(items: Sequence[Item], cells: Sequence[Cell], results: Path) -> list[tuple[Item, Rate]]:
    """Each model with its rate under `clean` with CEM; UsageError names one that the records do not know."""
    found = []
    for item in items:
        rows = [one.row for one in measured(item.checkpoint, cells)]
        wanted = ("clean", 5, item.model)  # with CEM, and no variation of the model, as with more frames
        mine = [row for row in rows if (row.protocol, row.horizon_blocks, row.method) == wanted]
        if len(mine) != 1 or mine[0].rate is None:
            raise UsageError(f"{results}: expected one evaluation of {item.checkpoint.name}, clean with cem")
        found.append((item, mine[0].rate))
    return found


def ordered(scores: Mapping[str, tuple[OfflineScore, Rate]]) -> Ordered:
    """The verdict on scores that stand beside success; models are called ENVIRONMENT-KIND."""
    models = tuple(_Scored(name, _environment(name), score, rate) for name, (score, rate) in scores.items())
    return Ordered(models, tuple(_order(models, measure) for measure in MEASURES))


def _environment(name: str) -> str:
    """two-room of two-room-salt and of two-room-dino-wm."""
    kinds = [kind for kind in MODELS if name.endswith(f"-{kind}")]
    return name.removesuffix(f"-{max(kinds, key=len)}") if kinds else name


def _order(models: Sequence[_Scored], measure: str) -> _Order:
    models = [model for model in models if getattr(model.score, measure) is not None]
    goodness = np.array([-getattr(model.score, measure) for model in models])
    success = np.array([model.success.successes / model.success.n for model in models])
    pairs = [
        (goodness[a] - goodness[b], success[a] - success[b])
        for a, b in combinations(range(len(models)), 2)
        if models[a].environment == models[b].environment
    ]
    agreeing = sum(bool(by_score * by_success > 0) for by_score, by_success in pairs)
    correlation = rank_correlation(goodness, success) if len(models) > 1 else None
    return _Order(measure, correlation, agreeing, len(pairs))
