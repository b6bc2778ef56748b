"""A model's error propagation on held-out episodes, measured as the paper does (App. C.1-C.3, C.6)."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saltwm import checkpoint, durable
from saltwm.config import TrainConfig, write_config
from saltwm.data.store import Dataset
from saltwm.data.windows import held_out_episodes
from saltwm.diagnostics.propagation import Propagation, measure
from saltwm.errors import UsageError
from saltwm.model.affine import StateAffine
from saltwm.model.world_model import WorldModel
from saltwm.objective import effective_rank
from saltwm.records import Diagnosis
from saltwm.rng import stream


def diagnose_run(
    run: Path, dataset: Dataset, results: Path, *, horizon: int = 20, trajectories: int = 16, batches: int = 3
) -> tuple[Diagnosis, Path]:
    """Measure a run and record it under RESULTS/diagnostics/RUN, with its training curves beside it."""
    path = checkpoint.find_checkpoint(run)
    info = checkpoint.read_info(path)
    model = checkpoint.load(path, world=dataset.world)
    measured, latents = [], []
    for batch in range(batches):
        z, c = encode_trajectories(model, dataset, horizon, trajectories, batch)
        measured.append(measure(model.transition, z, c))
        latents.append(z)
    diagnosis = Diagnosis(
        environment=dataset.world.environment,
        method=info.run.model.model,
        objective=info.run.objective.objective,
        run=str(run),
        trajectories=trajectories * batches,
        sigma_max_base=_sigma_max_base(model),
        **summarise(measured, torch.cat(latents)),
    )
    out = results / "diagnostics" / Path(run).name
    out.mkdir(parents=True, exist_ok=True)
    write_config(out / "diagnosis.json", diagnosis)
    curves = Path(run) / "metrics.jsonl"
    if curves.exists():
        durable.write_file(out / "metrics.jsonl", lambda file: shutil.copyfile(curves, file))
    return diagnosis, out / "diagnosis.json"


@torch.inference_mode()
def encode_trajectories(
    model: WorldModel, dataset: Dataset, horizon: int, count: int, batch: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents [N, H+1, D] and conditions [N, H, D] of held-out stretches that are long enough."""
    skip = model.config.frameskip
    split = TrainConfig()
    held_out = held_out_episodes(len(dataset.lengths), split.split_seed, split.validation_fraction)
    long_enough = held_out[dataset.lengths[held_out] >= horizon * skip]
    if len(long_enough) == 0:
        longest = int(dataset.lengths[held_out].max() // skip)
        raise UsageError(
            f"no held-out episode has {horizon} action blocks; the longest has {longest}: use --horizon {longest}"
        )
    rng = stream(split.seed, "diagnose", batch)
    episodes = rng.choice(long_enough, count, replace=count > len(long_enough))
    last_starts = (dataset.lengths[episodes] - horizon * skip) // dataset.frame_every
    starts = rng.integers(0, last_starts + 1) * dataset.frame_every
    steps = starts[:, None] + skip * np.arange(horizon + 1)
    frames = dataset.read_frames(np.repeat(episodes, horizon + 1), steps.flatten())
    frames = frames.reshape(count, horizon + 1, *frames.shape[1:])
    blocks = np.stack(
        [
            dataset.actions(episode)[start : start + horizon * skip].reshape(horizon, -1)
            for episode, start in zip(episodes.tolist(), starts.tolist(), strict=True)
        ]
    )
    return model.encode(torch.from_numpy(frames)), model.condition(torch.from_numpy(blocks))


def summarise(measured: list[Propagation], latents: torch.Tensor) -> dict[str, Any]:
    """The numbers of a Diagnosis that come from measurements; errors are relative to the latents' spread."""
    flat = latents.double().flatten(0, 1)
    spread = float((flat - flat.mean(dim=0)).norm(dim=1).mean())
    epsilon = torch.cat([m.epsilon for m in measured])
    delta = torch.cat([m.delta for m in measured])
    norms = [m.propagation_norms.log().mean(dim=0).exp() for m in measured]  # geometric means, App. C.3
    stacked = torch.stack(norms)
    return {
        "one_step_error": float(epsilon.norm(dim=-1).mean()) / spread,
        "rollout_error": tuple((delta.norm(dim=-1).mean(dim=0) / spread).tolist()),
        "propagation_norm": tuple(stacked.log().mean(dim=0).exp().tolist()),
        "propagation_low": tuple(stacked.amin(dim=0).tolist()),
        "propagation_high": tuple(stacked.amax(dim=0).tolist()),
        "rho": tuple(torch.cat([m.rho for m in measured]).mean(dim=0).tolist()),
        "effective_rank": effective_rank(flat),
    }


def _sigma_max_base(model: WorldModel) -> float | None:
    if not isinstance(model.transition, StateAffine):
        return None
    with torch.no_grad():
        return float(torch.linalg.matrix_norm(model.transition.base_matrix().double(), 2))
