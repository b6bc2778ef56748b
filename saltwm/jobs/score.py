"""A score for those who have no simulator: would the model have chosen what the recorded actor did?

Three questions on held-out stretches of H action blocks, each from a picture to the picture H blocks later; a model
whose training may have seen them is scored with a warning:

1. rank: of the plans that the actor carried out elsewhere, how many promise to come nearer to that picture than the
   plan that did lead there? 0 is best, 0.5 is what a model that knows nothing reaches.
2. error: how far from the true latent does the recorded plan end in the model, against "nothing moves"? Below 1 is
   better than predicting no change.
3. prior: how likely are the recorded actions under the model's action prior, and are its deviations honest?
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saltwm.ground.checks import at_least
from saltwm.ground.errors import UsageError
from saltwm.jobs.job import Aside, AsJson, Job, Maybe, Positional

if TYPE_CHECKING:
    from torch import Tensor

    from saltwm.jobs.score_order import Ordered
    from saltwm.model.world_model import WorldModel

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


@dataclass(frozen=True)
class Score(Job):
    """Score a model on recordings alone: rank of the recorded actions, error against stillness, the prior's honesty."""

    run: Positional[Path]
    """Run or checkpoint directory; all, with --against: every shipped model on its shipped data."""
    data: Maybe[Path] = None
    """Dataset; its held-out episodes are used."""
    against: Maybe[Path] = None
    """With all: results directory; the scores stand beside the success that these records give the models."""
    horizon: int = 5
    """Action blocks from a picture to the goal picture."""
    pairs: int = 256
    """Stretches to look at."""
    history: int = 1
    """Frames that LeWM's predictor may look back at; as in an evaluation."""
    seed: int = 0
    """Seed of the choice of stretches."""
    out: Maybe[Aside[Path]] = None
    """File for the score as JSON."""
    json: AsJson = False

    def do(self) -> "OfflineScore | Ordered":
        """Measure, and write the file if one is asked for."""
        from saltwm.disk import durable
        from saltwm.ground.strict_json import to_plain

        if (str(self.run) == "all") != (self.against is not None):
            raise UsageError("score all and --against RESULTS go together: every shipped model beside its success")
        found = self._score() if self.against is None else self._of_all(self.against)
        if self.out is not None:
            durable.write_json(self.out, to_plain(found))
        return found

    def _of_all(self, results: Path) -> "Ordered":
        """Scores of all shipped models, and whether they order them as planning does."""
        from saltwm.disk.records import read_cells
        from saltwm.jobs.score_order import ordered, require_success
        from saltwm.jobs.shelf import HERE, of_recipes

        rates = require_success(of_recipes(HERE), read_cells(results), results)
        return ordered(
            {
                item.checkpoint.name: (replace(self, run=item.checkpoint, data=item.data, against=None)._score(), rate)
                for item, rate in rates
            }
        )

    def _score(self) -> OfflineScore:
        from saltwm.disk import checkpoint
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.diagnose import warn_if_seen

        if self.data is None:
            raise UsageError(f"{self.run}: name a dataset whose held-out episodes are used with --data")
        for name in ("horizon", "pairs", "history"):
            at_least(name, getattr(self, name), 2 if name == "pairs" else 1)
        dataset = Dataset.open(self.data, verify="sizes")
        path = checkpoint.find_checkpoint(self.run)
        model = checkpoint.load(path, world=dataset.world)
        warn_if_seen(checkpoint.read_info(path), dataset, path)
        stretches = _encoded(model, dataset, self)
        return OfflineScore(
            run=str(self.run),
            data=str(self.data),
            pairs=len(stretches.latents),
            horizon_blocks=self.horizon,
            **_ranked(model, stretches, self.seed),
            error_against_stillness=_against_stillness(model, stretches),
            **_prior_figures(path, model, stretches),
        )


@dataclass(frozen=True)
class Stretches:
    """Held-out stretches as the model sees them; the history comes first."""

    latents: "Tensor"
    """[N, W + H, D]"""
    conditions: "Tensor"
    """[N, W - 1 + H, D]"""
    blocks: "Tensor"
    """[N, H, A], normalised action blocks that lead from the last frame of the history to the goal"""
    window: int


def _encoded(model: "WorldModel", dataset: Any, job: Score) -> Stretches:
    import torch

    from saltwm.data.split import held_out
    from saltwm.diagnostics.probe import encode_pictures
    from saltwm.ground.rng import stream
    from saltwm.jobs.diagnose import read_stretches

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
        return Stretches(z, model.condition(blocks), (blocks[:, -horizon:] - mean) / std, window)


def _ranked(model: "WorldModel", stretches: Stretches, seed: int) -> dict[str, Any]:
    """Ranks of the recorded plans among those of other stretches."""
    import torch

    from saltwm.ground.rng import stream

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


def _against_stillness(model: "WorldModel", stretches: Stretches) -> float:
    import torch

    z, window = stretches.latents, stretches.window
    with torch.inference_mode():
        last = model.rollout(z[:, :window], stretches.conditions)[:, -1]
    error, still = (last - z[:, -1]).square().sum(dim=1), (z[:, window - 1] - z[:, -1]).square().sum(dim=1)
    return float(error.double().mean() / still.double().mean())


def _prior_figures(path: Path, model: "WorldModel", stretches: Stretches) -> dict[str, Any]:
    """Likelihood and honesty of the model's action prior; none without one."""
    import math

    import torch

    from saltwm.planning.prior_files import find_prior, load_prior

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
