"""Training: one loop, readable top to bottom.

A step is a function of (config, data, step number): its batch, its learning rate, its projections and its dropout all
derive from the seed and the step, so a run that is killed and started again ends with the same bytes.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from saltwm.data.batches import Batches
from saltwm.data.features import FrozenEncoder, Pictures, features_for
from saltwm.data.windows import Batch, Windows
from saltwm.disk import checkpoint, durable
from saltwm.disk.checkpoint import Origin, RunInfo
from saltwm.disk.claim import require_outside_datasets
from saltwm.disk.dataset import Dataset
from saltwm.disk.journal import Tracker
from saltwm.disk.lineage import Start, check_restarts, is_frozen, load_origin, prolonged
from saltwm.ground.config import ObjectiveConfig, RunConfig
from saltwm.ground.errors import Stopped, UsageError
from saltwm.ground.progress import progress
from saltwm.ground.rng import derive, torch_stream
from saltwm.ground.run_options import check_options
from saltwm.losses.own import code_of
from saltwm.losses.regulariser import Regulariser, require_fitting
from saltwm.losses.sigreg import draw_projections
from saltwm.losses.table import needs_directions
from saltwm.model.world_model import WorldModel
from saltwm.monitors import TrackerName, open_trackers, require_finite
from saltwm.objective import Losses, training_loss
from saltwm.processes.launch import (
    Devices,
    largest_over_processes,
    make_fabric,
    mean_over_processes,
    together,
)
from saltwm.processes.stopping import stop_signal
from saltwm.run_session import Session


@dataclass(frozen=True)
class TrainResult:
    """Where training stands when it returns."""

    run: str
    checkpoint: str
    step: int
    metrics: dict[str, float]
    seconds: float
    frames_per_second: float
    waited_fraction: float
    """Share of the time in which the loop waited for data."""


class _Inputs:
    """A step's tensors. Neither tuple nor dataclass: Fabric would find them there and round them to bfloat16."""

    def __init__(self, frames: Tensor, action_blocks: Tensor, projections: Tensor) -> None:
        self.frames = frames
        """uint8 [B, T, H, W, 3], or features of a frozen encoder [B, T, D]"""
        self.action_blocks = action_blocks
        """Raw, [B, T-1, frameskip * A]"""
        self.projections = projections
        """[D, M]"""


class Learner(nn.Module):
    """Model and objective in one forward pass, which is what a parallel strategy wraps."""

    def __init__(
        self, model: WorldModel, objective: ObjectiveConfig, seed: int = 0, *, encoder_learns: bool = True
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.regulariser = Regulariser(objective, model, seed)
        self._encoder_learns = encoder_learns
        model.encoder.requires_grad_(encoder_learns)

    def train(self, mode: bool = True) -> Self:
        """Training mode, but not of a frozen encoder: its latents are those that planning will see."""
        super().train(mode)
        self.model.encoder.train(mode and self._encoder_learns)
        return self

    def forward(self, inputs: _Inputs) -> Losses:
        """Losses of a batch, in the precision of the weights where autocast does not lower it."""
        precision = self.model.action_encoder.action_mean.dtype
        blocks, projections = inputs.action_blocks.to(precision), inputs.projections.to(precision)
        return training_loss(self.model, inputs.frames, blocks, self.objective, projections, self.regulariser)


def train(
    config: RunConfig,
    dataset: Dataset,
    out: Path | str,
    devices: Devices | None = None,
    trackers: tuple[TrackerName, ...] = (),
    start: Start | None = None,
    frozen: FrozenEncoder | None = None,
) -> TrainResult:
    """Train, or go on training, the run in `out`; returns when all steps are done. One process of many writes.

    A run that is asked for more steps than it was begun with is prolonged; `start` is where a new one starts from.
    `frozen` is the encoder of a model that does not learn its own.
    """
    out, devices = Path(out), devices or Devices()
    config = check_options(config)
    require_outside_datasets(out, remedy="own run folder")
    if (out / checkpoint.RUN_FILE).exists():  # the data as they were when the run began, should they have grown since
        dataset = dataset.as_of(checkpoint.read_run(out).dataset_sha256)
    # No memory, no time: sizes that do not fit together, or the data, are refused before anything is written.
    with torch.device("meta"):
        build_model(config, dataset)
    require_fitting(config, dataset.world)
    fabric = make_fabric(devices, config.train.precision)
    windows = make_windows(config, dataset, features_for(config, dataset, frozen, fabric.world_size))
    if not len(windows.validation):
        raise UsageError(f"{dataset.path}: no window is held out for validation; collect more episodes")
    total_steps = count_steps(config, len(windows.train), fabric.world_size)
    config = prolonged(config, out, total_steps)
    check_restarts(config, total_steps)
    lineage = start.lineage(config.model, dataset.world) if start else None
    info = _run_info(config, dataset, total_steps, start, lineage)
    info = info if frozen is None else replace(info, encoder_weights=str(frozen.source))
    if fabric.global_rank != 0:
        with together(fabric, devices):
            return _train(fabric, info, windows, out, [], frozen)
    with durable.only_writer(out, "train"), open_trackers(trackers, out, config) as open_ones:
        checkpoint.start_run(out, info)
        durable.remove_leftovers(out / "checkpoints")
        with together(fabric, devices):
            return _train(fabric, info, windows, out, open_ones, frozen)


def _train(
    fabric: Any, info: RunInfo, windows: Windows, out: Path, trackers: list[Tracker], frozen: FrozenEncoder | None
) -> TrainResult:
    config, total_steps = info.run, info.total_steps
    model = build_model(config, windows.dataset)
    if info.origin is not None:
        load_origin(model, info)
    if frozen is not None:
        model.encoder.load_state_dict(frozen.read())
    learns = frozen is None and not is_frozen(info)
    learner = Learner(model, config.objective, config.train.seed, encoder_learns=learns)
    wrapped, optimizer = fabric.setup(learner, make_optimizer(learner, config))
    # After the setup, which may change precision.
    session = Session(fabric, info, windows, out, learner.model, learner.regulariser, optimizer, trackers)
    share = (config.train.batch_size, fabric.global_rank, fabric.world_size)
    loader = Batches(windows, config.train.seed, session.done, total_steps, *share)
    with stop_signal() as stopped_by, progress(f"train {out.name}", total_steps, session.done) as advance:
        for step, batch in loader:
            stepped = take_step(fabric, wrapped, optimizer, batch, config, step, total_steps)
            is_last = step + 1 == total_steps
            stop = 0 if is_last else largest_over_processes(fabric, stopped_by())
            frames = batch.frames.shape[0] * batch.frames.shape[1] * fabric.world_size
            session.after_step(stepped.scalars, stepped.latents, frames, loader.waited, stop)
            advance(1, _note(stepped.scalars["loss"], session.metrics))
            if stop:
                raise Stopped(f"stopped at step {step + 1} of {total_steps}, saved; the same command goes on", stop)
    return _result(out, session, loader.waited)


def _result(out: Path, session: Session, waited: float) -> TrainResult:
    watch = session.watch
    return TrainResult(
        run=str(out),
        checkpoint=str(session.saved),
        step=session.done,
        metrics=session.metrics or checkpoint.read_info(session.saved).metrics,
        seconds=watch.seconds,
        frames_per_second=watch.frames / watch.seconds,
        waited_fraction=waited / watch.seconds,
    )


def _note(loss: float, metrics: dict[str, float]) -> str:
    """What the progress bar says: the loss now, and of the last measurement how far the latents spread."""
    rank, spread = metrics.get("effective_rank", 0.0), metrics.get("latent_std", 0.0)
    return f"loss {loss:.3f}  latent spread {spread:.2f}  effective rank {rank:.1f}"


@dataclass(frozen=True)
class _Stepped:
    """What one optimiser step leaves to look at."""

    scalars: dict[str, float]
    """Losses over the global batch, gradient norm before clipping, learning rate."""
    latents: Tensor
    """This process's share [B, T, D], detached."""


def take_step(
    fabric: Any,
    learner: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    config: RunConfig,
    step: int,
    total_steps: int,
) -> _Stepped:
    """One optimiser step; NonFiniteError before the weights are touched if the loss or its gradient is not finite."""
    rate = learning_rate(config, step, total_steps)
    for group in optimizer.param_groups:
        group["lr"] = rate
    seed = config.train.seed
    directions = torch_stream(seed, "projections", step)
    count = config.objective.sigreg_projections if needs_directions(config.objective) else 1
    projections = draw_projections(config.model.latent_dim, count, directions)
    tensors = (torch.from_numpy(batch.frames), torch.from_numpy(batch.actions), projections)
    inputs = _Inputs(*(tensor.to(fabric.device, non_blocking=True) for tensor in tensors))
    torch.manual_seed(derive(seed, "dropout", step, fabric.global_rank))
    learner.train()
    losses: Losses = learner(inputs)
    optimizer.zero_grad(set_to_none=True)
    fabric.backward(losses.total)
    norm = fabric.clip_gradients(learner, optimizer, max_norm=config.train.gradient_clip, error_if_nonfinite=False)
    parts = {"loss": losses.total, "prediction": losses.prediction, **losses.terms}
    means = mean_over_processes(fabric, torch.stack([part.detach() for part in parts.values()]))
    scalars = dict(zip(parts, means, strict=True)) | {"gradient_norm": float(norm)}
    require_finite(step + 1, scalars)
    optimizer.step()
    return _Stepped(scalars | {"learning_rate": rate}, losses.latents.detach())


# --- what a step is made of ------------------------------------------------------------------------------------------


def build_model(config: RunConfig, dataset: Dataset) -> WorldModel:
    """Initial weights from the seed, action scaling from the data."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(config.train.seed, "weights"))
        model = WorldModel(config.model, dataset.world)
    model.action_encoder.set_scaling(torch.from_numpy(dataset.action_mean), torch.from_numpy(dataset.action_std))
    return model


def make_optimizer(learner: Learner, config: RunConfig) -> torch.optim.Optimizer:
    """AdamW over all parameters, weight decay on every one of them (App. B.2)."""
    return torch.optim.AdamW(
        learner.parameters(),
        lr=config.train.learning_rate,
        weight_decay=config.train.weight_decay,
        fused=True,  # a third of the time
    )


def make_windows(config: RunConfig, dataset: Dataset, pictures: Pictures | None = None) -> Windows:
    """The training and held-out windows (App. B.4)."""
    return Windows(
        dataset,
        frames=config.objective.window_blocks + 1,
        frameskip=config.model.frameskip,
        split=config.train.split,
        split_seed=config.train.split_seed,
        validation_fraction=config.train.validation_fraction,
        pictures=pictures,
    )


def count_steps(config: RunConfig, windows: int, processes: int = 1) -> int:
    """Optimiser steps: `steps`, or whole batches of `epochs` passes."""
    batch_size = config.train.batch_size
    if batch_size % processes:
        raise UsageError(f"a batch of {batch_size} windows cannot be shared evenly by {processes} processes")
    if windows < batch_size:
        raise UsageError(f"{windows} training windows are fewer than one `batch_size` of {batch_size}; collect more")
    if config.train.steps is not None:
        return config.train.steps
    steps = int(config.train.epochs * (windows // batch_size))
    if steps < 1:
        raise UsageError(f"`epochs` {config.train.epochs}: less than one step; an epoch has {windows // batch_size}")
    return steps


def learning_rate(config: RunConfig, step: int, total_steps: int) -> float:
    """Linear warm-up from 0, then a cosine to 0; once more after each restart.

    Per step, as the authors' code takes it; App. B.2 calls the schedule epoch-based.
    """
    ends = (*(config.train.restarts or ()), total_steps)
    end = next((end for end in ends if step < end), total_steps)
    first = max((start for start in ends if start <= step < end), default=0)
    step, steps = step - first, end - first
    warmup = max(1, int(config.train.warmup_fraction * steps))
    if step < warmup:
        return config.train.learning_rate * (step + 1) / warmup
    fraction = (step - warmup) / max(1, steps - warmup)
    return config.train.learning_rate * 0.5 * (1 + math.cos(math.pi * fraction))


def _run_info(
    config: RunConfig, dataset: Dataset, total_steps: int, start: Start | None, lineage: tuple[Origin, ...] | None
) -> RunInfo:
    return RunInfo(
        checkpoint.FORMAT,
        config,
        dataset.world,
        str(dataset.path),
        dataset.sha256,
        total_steps,
        checkpoint.package_versions(),
        str(start.checkpoint) if start else None,
        lineage,
        own_code=code_of(config),
    )
