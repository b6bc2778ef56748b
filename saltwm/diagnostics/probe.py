"""What a latent knows, on episodes that training never saw: the physical state, and how far apart two states are."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from saltwm.data.fields import fields_of
from saltwm.data.split import held_out
from saltwm.disk.dataset import Dataset
from saltwm.disk.records import Probe
from saltwm.envs.base import StateField
from saltwm.ground.errors import UsageError
from saltwm.ground.rng import derive, stream
from saltwm.model.world_model import WorldModel

RIDGE = 1e-3
"""Penalty relative to the latents' variance: enough to keep a fit on few frames from exploding, no more."""
FRAMES_PER_PASS = 256
NETWORK_WIDTH, NETWORK_EPOCHS, NETWORK_BATCH = 128, 60, 100


def probe(model: WorldModel, dataset: Dataset, frames: int = 2000) -> list[Probe]:
    """One probe per field of the state that varies, linear and by a network; angles are read as sine and cosine."""
    seen, unseen = fit_and_test_episodes(dataset)
    fit_z, fit_states = _sample(model, dataset, seen, frames, seed=0)
    test_z, test_states = _sample(model, dataset, unseen, frames, seed=1)
    probes = []
    for field in fields_of(dataset):
        parts = [
            (fit_y, test_y)
            for fit_y, test_y in zip(_coordinates(fit_states, field), _coordinates(test_states, field), strict=True)
            if min(fit_y.std(axis=0).max(), test_y.std(axis=0).max()) > 1e-9  # there is something to learn and to score
        ]
        if parts:
            truths = [test_y for _, test_y in parts]
            guesses = [ridge(fit_z, fit_y)(test_z) for fit_y, _ in parts]
            scores = [r_squared(truth, guess) for truth, guess in zip(truths, guesses, strict=True)]
            fit_all, truth = np.hstack([fit_y for fit_y, _ in parts]), np.hstack(truths)
            others = fit_z[stream(0, "probe control").permutation(len(fit_z))]
            network, control = (r_squared(truth, mlp(z, fit_all)(test_z)) for z in (fit_z, others))
            together = r_squared(truth, np.hstack(guesses))
            probes.append(Probe(field.name, together, min(scores), max(scores), network, control))
    return probes


def fit_and_test_episodes(dataset: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Episodes to fit a reader of latents on, and others that neither it nor the model has seen; UsageError if none."""
    unseen = held_out(dataset)
    seen = np.setdiff1d(np.arange(len(dataset.lengths)), unseen)
    if not len(seen):  # a held-out dataset: training saw none of it, and the fit takes one half
        seen, unseen = unseen[::2], unseen[1::2]
    if not len(unseen):
        raise UsageError(
            f"{dataset.path}: of {len(dataset.lengths)} episode(s) none is held out to measure on besides those that "
            "probes are fitted on; collect more, or at least 2 apart with `held_out`"
        )
    return seen, unseen


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


def mlp(x: NDArray[np.float64], y: NDArray[np.float64], seed: int = 0) -> Callable[[NDArray[np.float64]], NDArray]:
    """A small network fitted to x [N, D], y [N, M]: two layers of 128, the epoch that reads a held-back fifth best.

    Both sides are standardised first. The seed decides everything: weights, order, and what is held back.
    """
    x_mean, x_std, y_mean, y_std = x.mean(axis=0), x.std(axis=0) + 1e-9, y.mean(axis=0), y.std(axis=0) + 1e-9
    inputs, targets = (
        torch.from_numpy((v - mean) / std).float() for v, mean, std in ((x, x_mean, x_std), (y, y_mean, y_std))
    )
    order = torch.from_numpy(stream(seed, "probe network").permutation(len(x)))
    held, fitted = order[: max(1, len(x) // 5)], order[max(1, len(x) // 5) :]
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(derive(seed, "probe network"))
        network = nn.Sequential(
            *(nn.Linear(x.shape[1], NETWORK_WIDTH), nn.GELU(), nn.Linear(NETWORK_WIDTH, NETWORK_WIDTH), nn.GELU()),
            nn.Linear(NETWORK_WIDTH, y.shape[1]),
        )
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=0.1)
    least, best = float("inf"), network.state_dict()
    for epoch in range(NETWORK_EPOCHS):
        shuffled = fitted[torch.from_numpy(stream(seed, "probe epoch", epoch).permutation(len(fitted)))]
        for some in shuffled.split(NETWORK_BATCH):
            optimizer.zero_grad()
            F.mse_loss(network(inputs[some]), targets[some]).backward()
            optimizer.step()
        with torch.no_grad():
            loss = float(F.mse_loss(network(inputs[held]), targets[held]))
        if loss < least:
            least, best = loss, copy.deepcopy(network.state_dict())
    network.load_state_dict(best)

    @torch.no_grad()
    def read(latents: NDArray[np.float64]) -> NDArray[np.float64]:
        found = network(torch.from_numpy((latents - x_mean) / x_std).float())
        return found.double().numpy() * y_std + y_mean

    return read


def r_squared(truth: NDArray[np.float64], guess: NDArray[np.float64]) -> float:
    """Explained share of the variance of all columns together: [N, M], [N, M] -> score.

    Not a mean over columns, in which one that hardly varies, as a cosine near its top, would count as much as any.
    """
    unexplained = ((truth - guess) ** 2).sum()
    total = ((truth - truth.mean(axis=0)) ** 2).sum()
    return float(1 - unexplained / total)


def _sample(
    model: WorldModel, dataset: Dataset, episodes: NDArray[np.int64], count: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Latents [N, D] and states [N, S] of random stored frames of these episodes."""
    rng = stream(seed, "probe")
    chosen = rng.choice(episodes, count)
    steps = random_steps(dataset, chosen, rng)
    return encode_frames(model, dataset, chosen, steps), states_at(dataset, chosen, steps)


def random_steps(dataset: Dataset, episodes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """A step of each episode that has a stored frame: [N] -> [N]."""
    return rng.integers(0, dataset.lengths[episodes] // dataset.frame_every + 1) * dataset.frame_every


def encode_frames(
    model: WorldModel, dataset: Dataset, episodes: NDArray[np.int64], steps: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Latents of stored frames: episodes [N], steps [N] -> [N, D]."""
    return encode_pictures(model, dataset.read_frames(episodes, steps)).double().numpy()


@torch.no_grad()
def encode_pictures(model: WorldModel, frames: NDArray[np.uint8]) -> torch.Tensor:
    """Raw frames [N, H, W, 3] -> latents [N, D] on the CPU, a few hundred at a time."""
    parts = torch.from_numpy(frames).split(FRAMES_PER_PASS)
    return torch.cat([model.encode(part[:, None])[:, 0].cpu() for part in parts])


def states_at(dataset: Dataset, episodes: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.float64]:
    """Stored states: episodes [N], steps [N] -> [N, S]."""
    return np.stack([dataset.states(e)[t] for e, t in zip(episodes.tolist(), steps.tolist(), strict=True)])


def _coordinates(states: NDArray[np.float64], field: StateField) -> list[NDArray[np.float64]]:
    """Each coordinate of a field [N, 1], an angle as sine and cosine [N, 2]."""
    values = [states[:, [column]] for column in range(field.start, field.stop)]
    return [np.hstack([np.sin(x), np.cos(x)]) for x in values] if field.unit == "rad" else values
