"""Training: one loop, readable top to bottom.

A step is a function of (config, data, step number): its batch, its learning rate, its projections and its dropout all
derive from the seed and the step, so a run that is killed and started again ends with the same bytes.
"""

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from saltwm import checkpoint, durable
from saltwm.checkpoint import CheckpointInfo, RunInfo
from saltwm.config import ObjectiveConfig, RunConfig
from saltwm.data.store import Dataset
from saltwm.data.windows import Batch, Windows, batches
from saltwm.errors import NonFiniteError, Stopped, UsageError
from saltwm.model.affine import StateAffine
from saltwm.model.world_model import WorldModel
from saltwm.objective import Losses, draw_projections, effective_rank, prediction_loss, training_loss
from saltwm.progress import console, progress
from saltwm.rng import derive, torch_stream

COLLAPSE_RANK = 3.0
"""Below this effective rank the latents no longer tell states apart, and the run says so."""


@dataclass(frozen=True)
class Devices:
    """Where to train; Fabric's words. Under torchrun and Slurm the launcher decides the processes."""

    accelerator: str = "auto"
    devices: int = 1
    strategy: str = "auto"
    num_nodes: int = 1


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


class Learner(nn.Module):
    """Model and objective in one forward pass, which is what a parallel strategy wraps."""

    def __init__(self, model: WorldModel, objective: ObjectiveConfig) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, frames: Tensor, action_blocks: Tensor, projections: Tensor) -> Losses:
        """Losses of a batch: frames [B, K+1, H, W, 3], raw action blocks [B, K, frameskip * A]."""
        return training_loss(self.model, frames, action_blocks, self.objective, projections)


def train(config: RunConfig, dataset: Dataset, out: Path, devices: Devices | None = None) -> TrainResult:
    """Train, or go on training, the run in `out`; returns when all steps are done."""
    from lightning_fabric import Fabric

    devices = devices or Devices()
    fabric = Fabric(
        accelerator=devices.accelerator,
        devices=devices.devices,
        strategy=devices.strategy,
        num_nodes=devices.num_nodes,
        precision=config.train.precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    if fabric.global_rank != 0:
        return _train(fabric, config, dataset, out)
    with durable.only_writer(out, "train"):
        return _train(fabric, config, dataset, out)


def _train(fabric: Any, config: RunConfig, dataset: Dataset, out: Path) -> TrainResult:
    windows = make_windows(config, dataset)
    total_steps = count_steps(config, len(windows.train))
    learner = Learner(build_model(config, dataset), config.objective)
    optimizer = torch.optim.AdamW(
        learner.parameters(), lr=config.train.learning_rate, weight_decay=config.train.weight_decay
    )
    names = [name for name, _ in learner.model.named_parameters()]
    is_main = fabric.global_rank == 0
    if is_main:
        checkpoint.start_run(out, _run_info(config, dataset, total_steps))
        (out / "checkpoints").mkdir(exist_ok=True)
        durable.remove_leftovers(out / "checkpoints")
    fabric.barrier()

    done = _resume(out, learner.model, optimizer, names, is_main)
    wrapped, optimizer = fabric.setup(learner, optimizer)
    log = MetricsLog(out, done) if is_main else None
    state = _Progress(started=time.perf_counter())
    loader = batches(
        windows, config.train.seed, done, total_steps, config.train.batch_size, fabric.global_rank, fabric.world_size
    )
    metrics: dict[str, float] = {}
    saved = out / "checkpoints" / f"step-{done:06d}"
    with _finish_the_step() as stop, progress(f"train {out.name}", total_steps, done) as advance:
        for step, batch in loader:
            losses, norm = _step(fabric, wrapped, optimizer, batch, config, step, total_steps)
            done = step + 1
            state.frames += batch.frames.shape[0] * batch.frames.shape[1]
            is_save = done == total_steps or done % config.train.save_every == 0
            is_measure = is_save or step == 0 or done % config.train.validate_every == 0
            stopping = stop.signal_number is not None and done < total_steps
            if is_measure:
                metrics = measure(learner.model, losses, norm, learning_rate(config, step, total_steps))
                metrics |= validate(learner.model, windows, config, fabric.device)
                _require_finite(done, metrics)
                if log is not None:
                    log.write(done, metrics)
            if is_main and (is_save or stopping):
                # What a stop saves is not measured: a run that was stopped must end with the same metrics.
                scores = metrics if is_measure else {}
                saved = _save(out, config, dataset, done, scores, learner.model, optimizer, names)
            advance(1, f"loss {losses.total.item():.3f}  rank {metrics.get('effective_rank', 0.0):.1f}")
            if stopping:
                message = f"stopped at step {done} of {total_steps}, saved; the same command goes on"
                raise Stopped(message, stop.signal_number or signal.SIGINT)
    seconds = time.perf_counter() - state.started
    return TrainResult(
        run=str(out),
        checkpoint=str(saved),
        step=done,
        metrics=metrics or checkpoint.read_info(saved).metrics,
        seconds=seconds,
        frames_per_second=state.frames * fabric.world_size / seconds,
        waited_fraction=loader.waited / seconds,
    )


@dataclass
class _Progress:
    started: float
    frames: int = 0


def _step(
    fabric: Any,
    learner: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    config: RunConfig,
    step: int,
    total: int,
) -> tuple[Losses, float]:
    """One optimiser step; NonFiniteError before the weights are touched if the loss or its gradient is not finite."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(config, step, total)
    frames = torch.from_numpy(batch.frames).to(fabric.device, non_blocking=True)
    blocks = torch.from_numpy(batch.actions).to(fabric.device, non_blocking=True)
    seed = config.train.seed
    directions = torch_stream(seed, "projections", step)
    projections = draw_projections(config.model.latent_dim, config.objective.sigreg_projections, directions)
    torch.manual_seed(derive(seed, "dropout", step, fabric.global_rank))
    learner.train()
    losses: Losses = learner(frames, blocks, projections.to(fabric.device))
    optimizer.zero_grad(set_to_none=True)
    fabric.backward(losses.total)
    norm = fabric.clip_gradients(learner, optimizer, max_norm=config.train.gradient_clip, error_if_nonfinite=False)
    _require_finite(step + 1, {"loss": losses.total.item(), "gradient norm": float(norm)})
    optimizer.step()
    return losses, float(norm)


def _require_finite(step: int, metrics: dict[str, float]) -> None:
    """NonFiniteError naming the step and what is not finite; nothing has been saved from it."""
    sick = [f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value)]
    if sick:
        raise NonFiniteError(
            f"step {step}: {', '.join(sick)}; the last checkpoint is intact; try a smaller --learning-rate"
        )


# --- what a step is made of ------------------------------------------------------------------------------------------


def build_model(config: RunConfig, dataset: Dataset) -> WorldModel:
    """Initial weights from the seed, action scaling from the data."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(config.train.seed, "weights"))
        model = WorldModel(config.model, dataset.world)
    model.action_encoder.set_scaling(torch.from_numpy(dataset.action_mean), torch.from_numpy(dataset.action_std))
    return model


def make_windows(config: RunConfig, dataset: Dataset) -> Windows:
    """The training and held-out windows of K+1 frames (App. B.4)."""
    return Windows(
        dataset,
        frames=config.objective.rollout_steps + 1,
        frameskip=config.model.frameskip,
        split=config.train.split,
        split_seed=config.train.split_seed,
        validation_fraction=config.train.validation_fraction,
    )


def count_steps(config: RunConfig, windows: int) -> int:
    """Optimiser steps: `steps`, or whole batches of `epochs` passes."""
    if windows < config.train.batch_size:
        raise UsageError(
            f"{windows} training windows are fewer than one batch of {config.train.batch_size}; collect more"
        )
    if config.train.steps is not None:
        return config.train.steps
    return int(config.train.epochs * (windows // config.train.batch_size))


def learning_rate(config: RunConfig, step: int, total_steps: int) -> float:
    """Linear warm-up from 0, then a cosine to 0, per step (App. B.2)."""
    warmup = max(1, int(config.train.warmup_fraction * total_steps))
    if step < warmup:
        return config.train.learning_rate * (step + 1) / warmup
    fraction = (step - warmup) / max(1, total_steps - warmup)
    return config.train.learning_rate * 0.5 * (1 + math.cos(math.pi * fraction))


# --- monitors ---------------------------------------------------------------------------------------------------------


def measure(model: WorldModel, losses: Losses, gradient_norm: float, rate: float) -> dict[str, float]:
    """What tells a researcher early how a run is doing, from the step just made."""
    latents = losses.latents.detach().float().flatten(0, 1)
    spread = latents.std(dim=0)
    metrics = {
        "loss": losses.total.item(),
        "prediction": losses.prediction.item(),
        "sigreg": losses.sigreg.item(),
        "gradient_norm": gradient_norm,
        "learning_rate": rate,
        "latent_std": spread.mean().item(),
        "latent_std_min": spread.min().item(),
        "effective_rank": effective_rank(latents),
    }
    if isinstance(model.transition, StateAffine):
        metrics["sigma_max_base"] = _largest_singular_value(model.transition.base_matrix().detach().float())
    return metrics


def _largest_singular_value(matrix: Tensor) -> float:
    """NaN for a matrix that is not finite, which `_require_finite` then reports."""
    return float(torch.linalg.matrix_norm(matrix, 2)) if matrix.isfinite().all() else math.nan


@torch.no_grad()
def validate(model: WorldModel, windows: Windows, config: RunConfig, device: torch.device) -> dict[str, float]:
    """One-step and rollout error on held-out windows, as the planner will see the model: in evaluation mode."""
    was_training = model.training
    model.eval()
    rows = []
    batch_size = min(config.train.batch_size, len(windows.validation))
    for index in range(config.train.validation_batches):
        batch = windows.batch(windows.validation_ids(index, batch_size))
        latents = model.encode(torch.from_numpy(batch.frames).to(device))
        conditions = model.condition(torch.from_numpy(batch.actions).to(device))
        rows.append(
            [float(prediction_loss(model, latents, conditions, objective)) for objective in ("one-step", "rollout")]
        )
    model.train(was_training)
    one_step, rollout = np.mean(rows, axis=0).tolist()
    return {"validation_one_step": one_step, "validation_rollout": rollout}


class MetricsLog:
    """RUN/metrics.jsonl: one line per measurement, cut back to the checkpoint that a resumed run starts from."""

    def __init__(self, run: Path, done: int) -> None:
        self.path = run / "metrics.jsonl"
        kept = [row for row in durable.read_json_lines(self.path) if row["step"] <= done] if self.path.exists() else []
        lines = [durable.json_line(row) for row in kept]
        durable.write_text(self.path, "".join(lines))
        self.warned = False

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Append, and warn once when the latents collapse."""
        durable.append_json_line(self.path, {"step": step, **metrics})
        if step > 1 and metrics["effective_rank"] < COLLAPSE_RANK and not self.warned:
            self.warned = True
            console.print(
                f"warning: step {step}: the latents use {metrics['effective_rank']:.1f} dimensions; "
                "they are collapsing. A larger --lambda or batch spreads them."
            )


# --- stopping and resuming --------------------------------------------------------------------------------------------


def _resume(out: Path, model: WorldModel, optimizer: torch.optim.Optimizer, names: list[str], is_main: bool) -> int:
    """Load the newest readable checkpoint and return its step; 0 if there is none yet."""
    newest = checkpoint.newest_readable(out, console.print if is_main else lambda _: None)
    if newest is None:
        return 0
    info, weights, state = checkpoint.read_checkpoint(newest)
    checkpoint.load_weights(model, weights, newest)
    checkpoint.restore_optimizer(optimizer, names, state)
    return info.step


def _save(
    out: Path,
    config: RunConfig,
    dataset: Dataset,
    step: int,
    metrics: dict[str, float],
    model: WorldModel,
    optimizer: torch.optim.Optimizer,
    names: list[str],
) -> Path:
    info = CheckpointInfo(
        checkpoint.FORMAT, step, config, dataset.world, dataset.sha256, metrics, checkpoint.package_versions()
    )
    state = checkpoint.optimizer_tensors(optimizer, names)
    return checkpoint.save(out, info, model.state_dict(), state, config.train.keep)


def _run_info(config: RunConfig, dataset: Dataset, total_steps: int) -> RunInfo:
    return RunInfo(
        checkpoint.FORMAT,
        config,
        dataset.world,
        str(dataset.path),
        dataset.sha256,
        total_steps,
        checkpoint.package_versions(),
    )


@dataclass
class _Stop:
    signal_number: int | None = None


@contextmanager
def _finish_the_step() -> Iterator[_Stop]:
    """The first Ctrl-C or SIGTERM lets the step finish and be saved; a second Ctrl-C is obeyed at once."""
    stop = _Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.signal_number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal_number = number

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
