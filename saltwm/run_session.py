"""One session of a run: resume from the newest checkpoint, measure, save, note the speed.

The first process of many reads and writes; the others only compute.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saltwm.data.windows import Windows
from saltwm.disk import checkpoint
from saltwm.disk.checkpoint import CheckpointInfo, RunInfo
from saltwm.disk.journal import Journal, Tracker, sickness
from saltwm.ground.errors import NonFiniteError, UsageError
from saltwm.ground.progress import console
from saltwm.model.traits import traits_of
from saltwm.model.world_model import WorldModel
from saltwm.monitors import Stopwatch, latent_statistics, require_finite, validate
from saltwm.processes.launch import gather_batch


@dataclass(frozen=True)
class _Schedule:
    """What is due after how many finished steps."""

    total_steps: int
    save_every: int
    validate_every: int
    restarts: tuple[int, ...] = ()

    def saves(self, done: int) -> bool:
        """Whether a checkpoint is due."""
        return done in (self.total_steps, *self.restarts) or done % self.save_every == 0

    def measures(self, done: int) -> bool:
        """Whether a measurement is due: with each checkpoint, after the first step, and in between."""
        return self.saves(done) or done == 1 or done % self.validate_every == 0


class Session:
    """Model, optimiser and files of a run from one start of training to its end."""

    def __init__(
        self,
        fabric: Any,
        info: RunInfo,
        windows: Windows,
        out: Path,
        model: WorldModel,
        regulariser: nn.Module,
        optimizer: torch.optim.Optimizer,
        trackers: Sequence[Tracker],
    ) -> None:
        config, options = info.run, info.run.train
        self.schedule = _Schedule(info.total_steps, options.save_every, options.validate_every, options.restarts or ())
        self._lineage, self._own_code = info.lineage, info.own_code
        self._fabric, self._config, self._windows, self._out = fabric, config, windows, out
        self._model, self._regulariser, self._optimizer = model, regulariser, optimizer
        self._names = [name for name, _ in model.named_parameters()]
        self._names += [f"regulariser.{name}" for name, _ in regulariser.named_parameters()]
        self._is_main = fabric.global_rank == 0
        self.done = self._resume()
        """Steps finished."""
        self.metrics: dict[str, float] = {}
        """Last measured in this session."""
        self.watch = Stopwatch()
        self.saved = out / "checkpoints" / checkpoint.directory_name(self.done)
        """Last checkpoint."""
        self._journal = self._open_journal(trackers) if self._is_main else None
        self._has_warned = False

    # --- resuming --------------------------------------------------------------------------------------------------

    def _resume(self) -> int:
        """Load the newest readable checkpoint and return its step; 0 if there is none yet."""
        newest = checkpoint.newest_readable(self._out, console.print if self._is_main else lambda _: None)
        done = 0
        if newest is not None:
            info, weights, state = checkpoint.read_checkpoint(newest)
            checkpoint.load_weights(self._model, weights, newest)
            checkpoint.load_weights(self._regulariser, checkpoint.read_regulariser(newest), newest)
            checkpoint.restore_optimizer(self._optimizer, self._names, state)
            done = info.step
        main_done = self._fabric.broadcast(done)
        if done != main_done:
            raise UsageError(
                f"{self._out}: process {self._fabric.global_rank} finds step {done} where process 0 finds {main_done}; "
                "put the run on a disk that all nodes share"
            )
        return done

    def _open_journal(self, trackers: Sequence[Tracker]) -> Journal:
        processes = self._fabric.world_size
        journal = Journal(self._out, self.done, processes, trackers)
        if journal.processes_before not in (None, processes):
            console.print(
                f"resuming on {processes} process(es) what {journal.processes_before} began: the same batches, "
                f"{traits_of(self._config.model.model).on_other_processes}",
                soft_wrap=True,
            )
        if self.done < self.schedule.total_steps:
            journal.started(self.done)
        return journal

    # --- after a step ----------------------------------------------------------------------------------------------

    def after_step(self, scalars: dict[str, float], latents: Tensor, frames: int, waited: float, stop: int) -> None:
        """Do what is due after one more step over `frames` frames: measure, save and note the speed, or `stop` early.

        A checkpoint that a stop asks for is not measured: a run that was stopped must end with the same metrics.
        """
        self.done += 1
        self.watch.step(frames)
        is_measured = self.schedule.measures(self.done)
        if is_measured:
            self._measure(scalars, latents)
        if self.schedule.saves(self.done) or stop:
            self._save(self.metrics if is_measured else {})
        if self._journal and (is_measured or stop):
            self._journal.timed(self.done, self.watch.speed(self.schedule.total_steps - self.done, waited))

    def _measure(self, scalars: dict[str, float], latents: Tensor) -> None:
        metrics = scalars | latent_statistics(gather_batch(self._fabric, latents))
        metrics |= validate(self._model, self._windows, self._config)
        require_finite(self.done, metrics)
        self.metrics = metrics
        if self._journal:
            self._journal.measured(self.done, metrics)
            self._warn_of_collapse()

    def _warn_of_collapse(self) -> None:
        """Warn once in a session."""
        if traits_of(self._config.model.model).is_frozen:
            return  # its latents are what they are
        sick = sickness({"step": self.done, **self.metrics})
        if sick and not self._has_warned:
            self._has_warned = True
            option = "weight of its terms" if self._config.objective.regulariser else "lambda"
            hint = f"A larger {option} or batch spreads them."
            console.print(f"warning: step {self.done}: {sick}. {hint}", soft_wrap=True)

    def _save(self, metrics: dict[str, float]) -> None:
        if self._journal is None:
            return
        self._journal.sync()
        weights = self._model.state_dict()
        sick = [name for name, tensor in weights.items() if not tensor.isfinite().all()]
        if sick:
            raise NonFiniteError(f"step {self.done}: {sick[0]} is not finite; not saved, the last checkpoint is intact")
        dataset = self._windows.dataset
        info = CheckpointInfo(
            checkpoint.FORMAT,
            self.done,
            self._config,
            dataset.world,
            dataset.sha256,
            metrics,
            checkpoint.package_versions(),
            dataset.recipe.source,
            tuple(ancestor.sha256 for ancestor in dataset.lineage) or None,
            self._lineage,
            self._own_code,
        )
        state = checkpoint.optimizer_tensors(self._optimizer, self._names)
        learnt = self._regulariser.state_dict()
        self.saved = checkpoint.save(self._out, info, weights, state, self._config.train.keep, learnt)
