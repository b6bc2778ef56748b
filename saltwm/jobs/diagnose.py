"""A model measured on held-out episodes: error propagation as the paper does (App. C.1-C.3, C.6), and its latents."""

import itertools
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from saltwm.data.split import held_out, why_seen
from saltwm.diagnostics.jacobians import state_dependence
from saltwm.diagnostics.probe import cost_order, fit_and_test_episodes, probe
from saltwm.diagnostics.propagation import Propagation, measure
from saltwm.disk import checkpoint, durable
from saltwm.disk.dataset import Dataset
from saltwm.disk.durable import read_config, write_config
from saltwm.disk.records import Decoding, Diagnosis, Probes, Training
from saltwm.ground.checks import at_least
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.ground.progress import console
from saltwm.ground.rng import stream
from saltwm.model.affine import StateAffine
from saltwm.model.world_model import WorldModel
from saltwm.objective import effective_rank
from saltwm.watch import METRICS_FILE

SEED = 0
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
    counts = {"horizon": horizon, "trajectories": trajectories, "batches": batches, "frames": frames}
    for name, value in counts.items():
        at_least(name, value)
    path = checkpoint.find_checkpoint(run)
    info = checkpoint.read_info(path)
    out = records_folder(results, run)
    fit_and_test_episodes(dataset)  # refuses a dataset that is too small, before anything is measured
    warn_if_seen(info, dataset, path)
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
    found = Diagnosed(out, diagnosis, probes, training)
    _write(found, curves=Path(run) / METRICS_FILE)
    return found


def records_folder(results: Path, run: Path) -> Path:
    """RESULTS/diagnostics/RUN: the run's name alone, so what is recorded of another of that name is not replaced.

    A recorded path that leads nowhere may be relative to another working directory, or the run was moved: then the
    curves beside it say whose it is.
    """
    folder = Path(results) / "diagnostics" / Path(os.path.abspath(run)).name
    durable.check_folder(folder)
    kinds: dict[str, type[Diagnosis] | type[Decoding]] = {"diagnosis": Diagnosis, "decoded": Decoding}
    for name, kind in kinds.items():
        path = folder / f"{name}.json"
        there = read_config(kind, path).run if path.exists() else str(run)
        is_elsewhere = os.path.exists(there) or not _are_its_curves(folder / METRICS_FILE, run)
        if os.path.abspath(there) != os.path.abspath(run) and is_elsewhere:
            raise MismatchError(f"{folder}: holds the {name}.json of {there}, not of {run}; use another --out")
    return folder


def _are_its_curves(recorded: Path, run: Path) -> bool:
    """Whether a copy of a run's curves is of this run, now or earlier; no two trainings measure the same numbers."""
    own = Path(run) / METRICS_FILE
    if not (recorded.exists() and own.exists()):
        return False
    rows = durable.read_json_lines(recorded)
    return bool(rows) and durable.read_json_lines(own)[: len(rows)] == rows


def warn_if_seen(info: checkpoint.CheckpointInfo, dataset: Dataset, path: Path) -> None:
    """A warning and no refusal, as `clean` has: a run that splits as the paper does has no other episodes of its own.

    Its diagnosis still compares transitions with one another; it only says less about new data.
    """
    seen = why_seen(info, dataset)
    if seen is not None:
        line = f"{path}: measured on episodes that training may have seen: {seen}; saltwm collect has --held-out"
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _write(found: Diagnosed, curves: Path) -> None:
    """Replace what an earlier diagnosis left, all of it; a crash leaves files missing, never those of two together."""
    durable.make_folder(found.folder)
    for name in ("diagnosis.json", "probes.json", "training.json", METRICS_FILE):
        (found.folder / name).unlink(missing_ok=True)
    if curves.exists():
        durable.write_file(found.folder / METRICS_FILE, lambda file: shutil.copyfile(curves, file))
    write_config(found.folder / "training.json", found.training)
    write_config(found.folder / "probes.json", found.probes)
    write_config(found.folder / "diagnosis.json", found.diagnosis)


@torch.inference_mode()
def encode_trajectories(
    model: WorldModel, dataset: Dataset, horizon: int, count: int, batch: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents [N, H+1, D] and conditions [N, H, D] of held-out stretches that are long enough."""
    skip = model.config.frameskip
    unseen = held_out(dataset)
    long_enough = unseen[dataset.lengths[unseen] >= horizon * skip]
    if len(long_enough) == 0:
        longest = int(dataset.lengths[unseen].max() // skip)
        raise UsageError(
            f"no held-out episode has {horizon} action blocks; the longest has {longest}: use --horizon {longest}"
        )
    stretches = read_stretches(dataset, long_enough, horizon, skip, count, stream(SEED, "diagnose", batch))
    return model.encode(torch.from_numpy(stretches.frames)), model.condition(torch.from_numpy(stretches.blocks))


@dataclass(frozen=True)
class Stretches:
    """N pieces of episodes: K+1 frames and the K action blocks between them."""

    episodes: NDArray[np.int64]
    """[N]"""
    starts: NDArray[np.int64]
    """[N], step of the first frame"""
    frames: NDArray[np.uint8]
    """[N, K + 1, H, W, 3]"""
    blocks: NDArray[np.float32]
    """[N, K, frameskip * A]"""


def read_stretches(
    dataset: Dataset, long_enough: NDArray[np.int64], blocks: int, skip: int, count: int, rng: np.random.Generator
) -> Stretches:
    """Stretches of `blocks` action blocks at random places of random episodes, each of another one if there are enough.

    Every episode of `long_enough` has at least blocks * skip steps.
    """
    episodes = rng.choice(long_enough, count, replace=count > len(long_enough))
    last_starts = (dataset.lengths[episodes] - blocks * skip) // dataset.frame_every
    starts = rng.integers(0, last_starts + 1) * dataset.frame_every
    steps = starts[:, None] + skip * np.arange(blocks + 1)
    frames = dataset.read_frames(np.repeat(episodes, blocks + 1), steps.flatten())
    actions = np.stack(
        [
            dataset.actions(episode)[start : start + blocks * skip].reshape(blocks, -1)
            for episode, start in zip(episodes.tolist(), starts.tolist(), strict=True)
        ]
    )
    return Stretches(episodes, starts, frames.reshape(count, blocks + 1, *frames.shape[1:]), actions)


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
    """Wall time of all sessions of a run by its timing.jsonl, each of which counts from its own start, a row of 0.

    A session that was killed counts to its last row. A shipped checkpoint has no such file and says it itself.
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
