"""What a latent knows: linear probes from z to the physical state, scored on episodes that training never saw."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from saltwm.config import TrainConfig
from saltwm.data.store import Dataset
from saltwm.data.windows import held_out_episodes
from saltwm.envs import env_class
from saltwm.envs.base import StateField
from saltwm.model.world_model import WorldModel
from saltwm.rng import stream

RIDGE = 1e-3
"""Penalty relative to the latents' variance: enough to keep a fit on few frames from exploding, no more."""
FRAMES_PER_PASS = 256


@dataclass(frozen=True)
class Probe:
    """How well one part of the state can be read linearly from z."""

    field: str
    r2: float
    """Share of the held-out variance explained; 1 is perfect, 0 no better than the mean, below 0 worse."""


def probe(model: WorldModel, dataset: Dataset, frames: int = 2000, seed: int = 0) -> list[Probe]:
    """One probe per field of the state that varies; angles are read as sine and cosine."""
    split = TrainConfig()
    held_out = held_out_episodes(len(dataset.lengths), split.split_seed, split.validation_fraction)
    seen = np.setdiff1d(np.arange(len(dataset.lengths)), held_out)
    fit_z, fit_states = _sample(model, dataset, seen, frames, seed)
    test_z, test_states = _sample(model, dataset, held_out, frames, seed + 1)
    probes = []
    for field in env_class(dataset.world.environment).state_fields:
        fit_y, test_y = _targets(fit_states, field), _targets(test_states, field)
        varies = fit_y.std(axis=0) > 1e-9
        if varies.any():
            score = r_squared(test_y[:, varies], ridge(fit_z, fit_y[:, varies])(test_z))
            probes.append(Probe(field.name, score))
    return probes


def ridge(x: NDArray[np.float64], y: NDArray[np.float64]) -> "Linear":
    """Least squares with a small penalty: x [N, D], y [N, M]."""
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    centred = x - x_mean
    gram = centred.T @ centred
    penalty = RIDGE * np.trace(gram) / len(gram)
    weights = np.linalg.solve(gram + penalty * np.eye(len(gram)), centred.T @ (y - y_mean))
    return Linear(weights, y_mean - x_mean @ weights)


@dataclass(frozen=True)
class Linear:
    """x [N, D] -> x W + b [N, M]."""

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The fitted values."""
        return x @ self.weights + self.bias


def r_squared(truth: NDArray[np.float64], guess: NDArray[np.float64]) -> float:
    """Explained share of the variance, the mean over columns: [N, M], [N, M] -> score."""
    unexplained = ((truth - guess) ** 2).sum(axis=0)
    total = ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    return float(np.mean(1 - unexplained / total))


@torch.inference_mode()
def _sample(
    model: WorldModel, dataset: Dataset, episodes: NDArray[np.int64], count: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Latents [N, D] and states [N, S] of random stored frames of these episodes."""
    rng = stream(seed, "probe")
    chosen = rng.choice(episodes, count)
    steps = rng.integers(0, dataset.lengths[chosen] // dataset.frame_every + 1) * dataset.frame_every
    states = np.stack([dataset.states(e)[t] for e, t in zip(chosen.tolist(), steps.tolist(), strict=True)])
    frames = torch.from_numpy(dataset.read_frames(chosen, steps))
    latents = [model.encode(part[:, None])[:, 0] for part in frames.split(FRAMES_PER_PASS)]
    return torch.cat(latents).double().numpy(), states


def _targets(states: NDArray[np.float64], field: StateField) -> NDArray[np.float64]:
    values = states[:, field.start : field.stop]
    return np.concatenate([np.sin(values), np.cos(values)], axis=1) if field.unit == "rad" else values
