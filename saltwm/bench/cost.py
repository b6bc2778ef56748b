"""What a training of the paper's size will take, before it is begun."""

import dataclasses
import time

import torch

from saltwm.bench.training import TrainingStep
from saltwm.disk.dataset import Dataset
from saltwm.ground.config import RunConfig
from saltwm.report.paper_figures import EFFICIENCY
from saltwm.train import make_windows

TIMED_WINDOWS = 2
"""Windows of the timed step: it takes time in proportion to them, and a whole batch would take minutes here."""


def training_cost(config: RunConfig, dataset: Dataset) -> str:
    """One line: steps, hours on this machine by a measured step, and hours by the paper's rate."""
    windows = len(make_windows(config, dataset).train)
    steps = max(1, int(config.train.epochs * windows / config.train.batch_size))
    seconds = _step_seconds(config, dataset)
    paper = EFFICIENCY[config.model.model]
    rate = paper.rollout_iterations if config.objective.objective == "rollout" else paper.one_step_iterations
    return (
        f"{config.model.model}: {steps} steps of {config.train.batch_size} windows; on {torch.get_num_threads()} "
        f"thread(s) of this CPU about {_hours(steps * seconds)} ({seconds:.0f} s a step, from one of {TIMED_WINDOWS} "
        f"windows), on the paper's accelerator {_hours(steps / rate)} ({rate} steps a second, Table 2)"
    )


def _step_seconds(config: RunConfig, dataset: Dataset) -> float:
    """Seconds of one training step on this CPU, in float32: what emulates bfloat16 takes longer still."""
    few = dataclasses.replace(config.train, batch_size=TIMED_WINDOWS, precision="32-true")
    step = TrainingStep(dataclasses.replace(config, train=few), dataset)
    step.loop()
    started = time.perf_counter()
    step.loop()
    return (time.perf_counter() - started) * config.train.batch_size / TIMED_WINDOWS


def _hours(seconds: float) -> str:
    """48 minutes, 3.4 hours, 12 days."""
    for unit, size, most in (("minutes", 60, 90 * 60), ("hours", 3600, 72 * 3600)):
        if seconds < most:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86400:.0f} days"
