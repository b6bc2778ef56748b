"""The job that learns a model's action prior; `prior_learner` does it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from saltwm.ground.config import PriorConfig
from saltwm.jobs.job import Aside, AsJson, Job, Positional, RunFolder

if TYPE_CHECKING:
    from saltwm.jobs.prior_learner import PriorResult

_USUAL = PriorConfig()


@dataclass(frozen=True)
class Prior(Job):
    """Learn a model's action prior on its frozen latents, for the planners map, cem-map, prior and cem-prior.

    It goes to the run's folder `prior`; a stopped or killed job goes on and ends the same.
    """

    run: Positional[RunFolder]
    data: Path
    """The dataset that the model was trained on."""
    horizon: int = _USUAL.horizon_blocks
    """Action blocks that it proposes."""
    farthest: int = _USUAL.farthest_blocks
    """Blocks to the farthest goal that it learns."""
    width: int = _USUAL.width
    """Features of a hidden layer."""
    depth: int = _USUAL.depth
    """Hidden layers."""
    steps: int = _USUAL.steps
    """Optimiser steps."""
    batch_size: int = _USUAL.batch_size
    """Pairs per step."""
    seed: int = _USUAL.seed
    """Seed of weights, pairs and dropout."""
    device: Aside[str] = "auto"
    """Where to encode and learn: auto takes the best there is; or cpu, gpu, cuda:1, mps, ..."""
    json: AsJson = False

    def do(self) -> "PriorResult":
        """Learn it, or go on learning it."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.prior_learner import learn_prior

        return learn_prior(self.run, Dataset.open(self.data, verify="sizes"), self.config(), device=self.device)

    def config(self) -> PriorConfig:
        """The settings with this command's options."""
        return PriorConfig(
            horizon_blocks=self.horizon,
            farthest_blocks=self.farthest,
            width=self.width,
            depth=self.depth,
            steps=self.steps,
            batch_size=self.batch_size,
            seed=self.seed,
        )
