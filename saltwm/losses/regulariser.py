"""The terms of one objective, built for one model; what they learn is learnt with it and not needed for planning."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from saltwm.ground.checks import one_of
from saltwm.ground.config import ObjectiveConfig, RunConfig, WorldSpec
from saltwm.ground.errors import UsageError
from saltwm.ground.own_code import imported, is_place
from saltwm.ground.rng import derive
from saltwm.losses import own
from saltwm.losses.sigreg import draw_projections
from saltwm.losses.table import Seen, Sizes, Term, is_own, row_of, weights_of
from saltwm.model.own import rehearse
from saltwm.model.world_model import WorldModel


class Regulariser(nn.Module):
    """What an objective adds to the prediction loss: terms by name."""

    def __init__(self, objective: ObjectiveConfig, model: WorldModel, seed: int = 0) -> None:
        super().__init__()
        sizes = Sizes(
            model.config.latent_dim,
            model.action_encoder.block_dim,
            model.world.environment,
            objective.sigreg_knots,
        )
        self.learnt = nn.ModuleDict()
        """What has tensors of its own, by the term's name."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(seed, "regulariser"))
            self._all_terms, self._weights = self._built(objective, sizes)

    def forward(self, seen: Seen) -> dict[str, Tensor]:
        """Each term's scalar, before its weight."""
        return self._all_terms(seen)

    def weight(self, name: str) -> float:
        """What a term counts by in the sum. A term that a user's own objective names counts by 1, unless changed."""
        return self._weights.get(name, 1.0)

    def _built(
        self, objective: ObjectiveConfig, sizes: Sizes
    ) -> tuple[Callable[[Seen], dict[str, Tensor]], dict[str, float]]:
        if is_own(objective.regulariser):
            place = str(objective.regulariser)
            function = self._kept("own", own.built(place, sizes))
            weights = objective.weights or {}
            return partial(own.terms, place, function, weights), weights
        weights = weights_of(objective, sizes.environment)
        built = {
            term: self._kept(term.name, term.build(sizes)) for term in row_of(objective).terms if _counts(term, weights)
        }
        return partial(_values, built), weights

    def _kept(self, name: str, part: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(part, nn.Module):
            self.learnt[name] = part
        return part


def _counts(term: Term, weights: dict[str, float]) -> bool:
    """Whether a term is computed: one of weight 0 is not. SIGReg is, for its curve shows what lambda = 0 does."""
    return weights[term.name] != 0 or term.weight is None


def _values(built: dict[Term, Callable[..., Tensor]], seen: Seen) -> dict[str, Tensor]:
    return {term.name: part(*(getattr(seen, name) for name in term.looks_at)) for term, part in built.items()}


def require_fitting(config: RunConfig, world: WorldSpec) -> None:
    """UsageError that names what an objective needs and these windows, batches or sizes do not have."""
    objective, name = config.objective, config.objective.word
    if is_place(config.model.model):
        rehearse(config.model)
    for changed, weight in (objective.weights or {}).items():
        if not 0 <= weight < float("inf"):
            raise UsageError(f"`weights` {changed}={weight}: must be a number of at least 0")
    frames, windows = objective.window_blocks + 1, config.train.batch_size
    if is_own(objective.regulariser):
        found = imported("objective", str(objective.regulariser))
        _require(name, "it", getattr(found, "frames", 1), frames, getattr(found, "windows", 1), windows)
        _rehearse(config, world)
        return
    weights = weights_of(objective, world.environment)
    for changed in objective.weights or {}:
        one_of(f"term of objective {name!r}", changed, weights)
    sizes = _sizes(config, world)
    for term in row_of(objective).terms:
        if _counts(term, weights):
            _require(name, term.name, term.frames, frames, term.windows, windows)
            if reason := term.refusal(sizes):
                raise UsageError(f"objective {name}: {term.name} needs {reason}")


def _rehearse(config: RunConfig, world: WorldSpec) -> None:
    """Try a user's own objective on random latents: what it gets wrong is found before a run is begun."""
    objective, place, sizes = config.objective, str(config.objective.regulariser), _sizes(config, world)
    windows, blocks = config.train.batch_size, objective.window_blocks
    with torch.random.fork_rng(devices=[]):
        latents = torch.randn(windows, blocks + 1, sizes.latent_dim, requires_grad=True)
        actions = torch.randn(windows, blocks, sizes.block_dim)
        along = draw_projections(sizes.latent_dim, objective.sigreg_projections, torch.Generator())
        own.terms(place, own.built(place, sizes), objective.weights or {}, Seen(latents, actions, along))


def _sizes(config: RunConfig, world: WorldSpec) -> Sizes:
    block = config.model.frameskip * world.action_dim
    return Sizes(config.model.latent_dim, block, world.environment, config.objective.sigreg_knots)


def _require(name: str, term: str, least_frames: int, frames: int, least_windows: int, windows: int) -> None:
    if frames < least_frames:
        raise UsageError(
            f"objective {name}: {term} needs {least_frames} frames in a window, and `rollout_steps` and `starts` make "
            f"{frames}; raise one of them"
        )
    if windows < least_windows:
        raise UsageError(f"objective {name}: {term} needs a `batch_size` of {least_windows}, found {windows}")
