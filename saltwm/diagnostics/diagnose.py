"""A model measured on held-out episodes: error propagation as the paper does (App. C.1-C.3, C.6), and its latents."""

import itertools
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saltwm import checkpoint, durable
from saltwm.config import TrainConfig, write_config
from saltwm.data.store import Dataset
from saltwm.data.windows import held_out_episodes
from saltwm.diagnostics.jacobians import state_dependence
from saltwm.diagnostics.probe import cost_order, probe
from saltwm.diagnostics.propagation import Propagation, measure
from saltwm.errors import UsageError
from saltwm.model.affine import StateAffine
from saltwm.model.world_model import WorldModel
from saltwm.objective import effective_rank
from saltwm.records import Diagnosis, Probes, Training
from saltwm.rng import stream

ACTION_SEQUENCES = 12  # Fig. 2a
"""With each of which the Jacobian is taken at every state."""


@dataclass(frozen=True)
class Diagnosed:
    """The records that a diagnosis leaves in `folder`."""

    folder: Path
    diagnosis: Diagnosis
    probes: Probes
    training: Training


def diagnose_run(
    run: Path,
    dataset: Dataset,
    results: Path,
    *,
    horizon: int = 20,
    trajectories: int = 16,
    batches: int = 3,
    frames: int = 2000,
) -> Diagnosed:
    """Measure a run and record it under RESULTS/diagnostics/RUN, with its training curves beside it."""
    path = checkpoint.find_checkpoint(run)
    info = checkpoint.read_info(path)
    model = checkpoint.load(path, world=dataset.world)
    trajectory_batches = [encode_trajectories(model, dataset, horizon, trajectories, batch) for batch in range(batches)]
    measured = [measure(model.transition, z, c) for z, c in trajectory_batches]
    z, c = (torch.cat(parts) for parts in zip(*trajectory_batches, strict=True))
    identity: dict[str, Any] = {
        "environment": dataset.world.environment,
        "method": info.run.model.model,
        "objective": info.run.objective.objective,
        "run": str(run),
    }
    diagnosis = Diagnosis(
        **identity,
        trajectories=len(z),
        sigma_max_base=_sigma_max_base(model),
        **summarise(measured, z),
    )
    probes = Probes(
        **identity,
        frames=frames,
        fields=tuple(probe(model, dataset, frames)),
        pairs=frames,
        cost_order=cost_order(model, dataset, frames),
        states=len(z),
        jacobian_spread=jacobian_spread(model, z, c),
    )
    training = Training(
        **identity,
        preset=info.run.preset,
        steps=info.step,
        batch_size=info.run.train.batch_size,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        data=str(dataset.path),
        dataset_sha256=info.dataset_sha256,
        seconds=training_seconds(Path(run)),
    )
    out = results / "diagnostics" / Path(run).name
    out.mkdir(parents=True, exist_ok=True)
    write_config(out / "diagnosis.json", diagnosis)
    write_config(out / "probes.json", probes)
    write_config(out / "training.json", training)
    curves = Path(run) / "metrics.jsonl"
    if curves.exists():
        durable.write_file(out / "metrics.jsonl", lambda file: shutil.copyfile(curves, file))
    return Diagnosed(out, diagnosis, probes, training)


@torch.inference_mode()
def encode_trajectories(
    model: WorldModel, dataset: Dataset, horizon: int, count: int, batch: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents [N, H+1, D] and conditions [N, H, D] of held-out stretches that are long enough."""
    skip = model.config.frameskip
    split = TrainConfig()
    held_out = held_out_episodes(dataset, split.split_seed, split.validation_fraction)
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


def jacobian_spread(model: WorldModel, latents: torch.Tensor, conditions: torch.Tensor) -> float:
    """How much sigma_max of the Jacobian varies with the state, relative to its mean: [N, H+1, D], [N, H, C] -> score.

    The earliest full window of each trajectory, every one with the same few action sequences.
    """
    window = min(model.transition.window, conditions.shape[1])
    sigma = state_dependence(model.transition, latents[:, :window], conditions[:ACTION_SEQUENCES, :window])
    return float((sigma.std(dim=1, correction=0) / sigma.mean(dim=1)).mean())


def training_seconds(run: Path) -> float | None:
    """Wall time of all sessions of a run by its timing.jsonl, each of which counts from its own start.

    A shipped checkpoint has no such file and says it itself.
    """
    shipment = run / "shipment.json"
    if shipment.exists():
        seconds = durable.read_json(shipment).get("training_seconds")
        return None if seconds is None else float(seconds)
    path = run / "timing.jsonl"
    rows = durable.read_json_lines(path) if path.exists() else []
    if not rows:
        return None
    last_of_session = [row for row, after in itertools.pairwise(rows) if after["seconds"] < row["seconds"]]
    return float(sum(row["seconds"] for row in (*last_of_session, rows[-1])))


def _sigma_max_base(model: WorldModel) -> float | None:
    if not isinstance(model.transition, StateAffine):
        return None
    with torch.no_grad():
        return float(torch.linalg.matrix_norm(model.transition.base_matrix().double(), 2))
