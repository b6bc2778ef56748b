"""What tells a researcher early how a run is doing: measurements, and the files and trackers that receive them.

RUN/metrics.jsonl    what was measured at which step; no clock in it, so repeating a run repeats its bytes
RUN/timing.jsonl     how fast that went, on how many processes
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from saltwm.data.windows import Windows
from saltwm.disk import durable
from saltwm.ground.config import ModelName, ObjectiveName, RunConfig
from saltwm.ground.errors import NonFiniteError
from saltwm.ground.extras import needs
from saltwm.ground.progress import console
from saltwm.ground.strict_json import to_plain
from saltwm.model.affine import StateAffine
from saltwm.model.world_model import WorldModel
from saltwm.objective import effective_rank, prediction_loss
from saltwm.watch import METRICS_FILE, TIMING_FILE, Row, read_rows, sickness

ACTIONS_MEASURED = 8
"""Action blocks whose A(c) is decomposed at each measurement: each costs as much as a forward pass of a few frames."""

AS_ON_OTHERS: dict[ModelName, str] = {
    "salt": "summed in another order, so equal up to rounding",
    "lewm": "but each process draws dropout masks of its own, so alike in distribution only",
}
"""What the same batches give on another number of processes."""

TrackerName = Literal["tensorboard", "wandb"]
Tracker = Callable[[int, dict[str, float]], None]


# --- measuring -------------------------------------------------------------------------------------------------------


def latent_statistics(latents: Tensor) -> dict[str, float]:
    """Spread and effective rank of a batch's latents [B, T, D]; a collapsing run shows here first."""
    flat = latents.detach().float().flatten(0, 1)
    spread = flat.std(dim=0)
    return {
        "latent_std": spread.mean().item(),
        "latent_std_min": spread.min().item(),
        "effective_rank": effective_rank(flat) if flat.isfinite().all() else math.nan,
    }


@torch.no_grad()
def validate(model: WorldModel, windows: Windows, config: RunConfig, device: torch.device) -> dict[str, float]:
    """Errors and singular values on held-out windows, as the planner will see the model: in evaluation mode."""
    was_training = model.training
    model.eval()
    errors, conditions = [], torch.empty(0)
    names: tuple[ObjectiveName, ...] = ("one-step", "rollout")
    batch_size, starts = min(config.train.batch_size, len(windows.validation)), config.objective.starts
    for index in range(config.train.validation_batches):
        batch = windows.batch(windows.validation_ids(index, batch_size))
        latents = model.encode(torch.from_numpy(batch.frames).to(device))
        conditions = model.condition(torch.from_numpy(batch.actions).to(device))
        errors.append([float(prediction_loss(model, latents, conditions, name, starts)) for name in names])
    one_step, rollout = np.mean(errors, axis=0).tolist()
    found = {"validation_one_step": one_step, "validation_rollout": rollout}
    if isinstance(model.transition, StateAffine):
        matrices = model.transition.matrix(conditions.flatten(0, 1)[:ACTIONS_MEASURED])
        found["sigma_max_base"] = _largest_singular_value(model.transition.base_matrix())
        found["sigma_max_action"] = _largest_singular_value(matrices)
    model.train(was_training)
    return found


def _largest_singular_value(matrices: Tensor) -> float:
    """Largest over matrices [..., D, D]; NaN if one is not finite, which the caller then reports."""
    return float(torch.linalg.matrix_norm(matrices.float(), 2).max()) if matrices.isfinite().all() else math.nan


def require_finite(step: int, values: dict[str, float]) -> None:
    """NonFiniteError naming the step and what is not finite; nothing has been saved from it."""
    sick = [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]
    if sick:
        raise NonFiniteError(
            f"step {step}: {', '.join(sick)}; the last checkpoint is intact; try a smaller --learning-rate"
        )


# --- recording -------------------------------------------------------------------------------------------------------


class Journal:
    """The run's curves and speed: written by one process, cut back to the checkpoint that a resumed run starts from."""

    def __init__(self, run: Path, model: ModelName, done: int, processes: int, trackers: list[Tracker]) -> None:
        self._metrics, self._timing = run / METRICS_FILE, run / TIMING_FILE
        _keep_rows(self._metrics, lambda row: row["step"] <= done)
        before = _keep_rows(self._timing, lambda row: True)
        if before and before[-1]["processes"] != processes:
            console.print(
                f"resuming on {processes} process(es) what {before[-1]['processes']} began: the same batches, "
                f"{AS_ON_OTHERS[model]}",
                soft_wrap=True,
            )
        self._processes = processes
        self._trackers = trackers
        self._warned = False

    def measured(self, step: int, metrics: dict[str, float]) -> None:
        """Append a measurement, and warn once when the latents collapse."""
        durable.append_json_line(self._metrics, {"step": step, **metrics})
        for track in self._trackers:
            track(step, metrics)
        sick = sickness({"step": step, **metrics})
        if sick and not self._warned:
            self._warned = True
            console.print(f"warning: step {step}: {sick}. A larger --lambda or batch spreads them.", soft_wrap=True)

    def started(self, step: int) -> None:
        """Append where this session starts; its clock does at 0, by which sessions are told apart."""
        standing = dict.fromkeys(("seconds", "frames_per_second", "waited_fraction", "seconds_left"), 0.0)
        durable.append_json_line(self._timing, {"step": step, "processes": self._processes, **standing})

    def timed(self, step: int, speed: dict[str, float]) -> None:
        """Append how fast it goes."""
        durable.append_json_line(self._timing, {"step": step, "processes": self._processes, **speed})
        for track in self._trackers:
            track(step, speed)

    def sync(self) -> None:
        """Wait until the curves are on the disk: a checkpoint must not outlive the measurements that led to it."""
        if self._metrics.exists():
            durable.sync_file(self._metrics)


def _keep_rows(path: Path, wanted: Callable[[Row], bool]) -> list[Row]:
    """Rewrite a JSON-lines file without a half-written last line and without rows that are not wanted."""
    rows = [row for row in read_rows(path) if wanted(row)]
    durable.write_text(path, "".join(durable.json_line(row) for row in rows))
    return rows


class Stopwatch:
    """Speed since the last look, and the time that is left at the pace so far."""

    def __init__(self) -> None:
        self.started = self._last = time.perf_counter()
        self.frames = 0
        self._steps = self._last_frames = 0
        self._last_waited = 0.0

    def step(self, frames: int) -> None:
        """One step over so many frames is done."""
        self._steps += 1
        self.frames += frames

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self.started

    def speed(self, steps_left: int, waited: float) -> dict[str, float]:
        """A row of timing.jsonl; `waited` is the time spent waiting for data since the start."""
        now = time.perf_counter()
        interval = now - self._last
        row = {
            "seconds": now - self.started,
            "frames_per_second": (self.frames - self._last_frames) / interval,
            "waited_fraction": (waited - self._last_waited) / interval,
            "seconds_left": steps_left * (now - self.started) / self._steps,
        }
        self._last, self._last_frames, self._last_waited = now, self.frames, waited
        return row


# --- trackers --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_trackers(names: tuple[TrackerName, ...], run: Path, config: RunConfig) -> Iterator[list[Tracker]]:
    """Functions that take (step, values); UsageError if the package is not installed."""
    with contextlib.ExitStack() as stack:
        yield [TRACKERS[name](run, config, stack) for name in names]


def _tensorboard(run: Path, config: RunConfig, stack: contextlib.ExitStack) -> Tracker:
    with needs("log", "--log tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    writer = stack.enter_context(SummaryWriter(str(run / "tensorboard")))

    def track(step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return track


def _wandb(run: Path, config: RunConfig, stack: contextlib.ExitStack) -> Tracker:
    with needs("log", "--log wandb"):
        import wandb  # type: ignore[import-not-found]
    # One identity per directory, so that a resumed run goes on in the same place.
    identity = durable.sha256_json(str(run.resolve()))[:16]
    tracked = wandb.init(
        project="saltwm", name=run.name, id=identity, resume="allow", dir=str(run), config=to_plain(config)
    )
    stack.callback(tracked.finish)
    return lambda step, values: tracked.log(values, step=step)


TRACKERS: dict[str, Callable[[Path, RunConfig, contextlib.ExitStack], Tracker]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}
