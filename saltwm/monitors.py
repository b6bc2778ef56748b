"""What tells a researcher early how a run is doing: measurements, speed, and trackers besides the run's journal."""

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
from saltwm.disk.journal import Tracker
from saltwm.ground.checks import check
from saltwm.ground.config import RunConfig
from saltwm.ground.errors import NonFiniteError
from saltwm.ground.extras import needs
from saltwm.ground.strict_json import to_plain
from saltwm.model.world_model import WorldModel
from saltwm.objective import one_step_loss, rollout_loss

ACTIONS_MEASURED = 8
"""Action blocks whose A(c) is decomposed at each measurement: each costs as much as a forward pass of a few frames."""

TrackerName = Literal["tensorboard", "wandb"]


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
def effective_rank(latents: Tensor) -> float:
    """Number of directions that latents [N, D] use: the exponential of their covariance spectrum's entropy, 1 to D."""
    check("latents", latents, "N D", dtype="float")
    centred = (latents - latents.mean(0)).double()
    few = len(centred) < centred.shape[1]  # the smaller of the two Gram matrices has the same spectrum but for zeros
    spectrum = torch.linalg.eigvalsh(centred @ centred.mT if few else centred.mT @ centred).clamp(min=0)
    total = spectrum.sum()
    if total == 0:
        return 1.0
    share = spectrum / total
    return math.exp(-torch.special.xlogy(share, share).sum().item())


@torch.no_grad()
def validate(model: WorldModel, windows: Windows, config: RunConfig) -> dict[str, float]:
    """Errors and singular values on held-out windows, as the planner will see the model: in evaluation mode."""
    was_training = model.training
    model.eval()
    errors, conditions = [], torch.empty(0)
    batch_size, starts = min(config.train.batch_size, len(windows.validation)), config.objective.starts
    for index in range(config.train.validation_batches):
        batch = windows.batch(windows.validation_ids(index, batch_size))
        latents = model.latents_of(torch.from_numpy(batch.frames))
        conditions = model.condition(torch.from_numpy(batch.actions))
        one_step = one_step_loss(model, latents, conditions)
        rollout = rollout_loss(model, latents, conditions, starts)
        errors.append([float(one_step), float(rollout)])
    means: list[float] = np.mean(errors, axis=0).tolist()
    found = dict(zip(("validation_one_step", "validation_rollout"), means, strict=True))
    base = model.transition.base_matrix()
    if base is not None:
        matrices = model.transition.matrix(conditions.flatten(0, 1)[:ACTIONS_MEASURED])
        found["sigma_max_base"] = _largest_singular_value(base)
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
            f"step {step}: {', '.join(sick)}; the last checkpoint is intact; try a smaller `learning_rate`"
        )


# --- speed ----------------------------------------------------------------------------------------------------------


class Stopwatch:
    """Speed since the last look, and the time that is left at the pace so far."""

    def __init__(self) -> None:
        self.started = self._last = time.perf_counter()
        self.frames = 0
        self._steps = self._last_frames = 0
        self._last_waited = 0.0

    def step(self, frames: int) -> None:
        """Count one step over `frames` frames."""
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
    with needs("log", "`log` tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    writer = stack.enter_context(SummaryWriter(str(run / "tensorboard")))

    def track(step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return track


def _wandb(run: Path, config: RunConfig, stack: contextlib.ExitStack) -> Tracker:
    with needs("log", "`log` wandb"):
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
