"""What a training step costs and where its time goes.

Shares are of processor seconds of one thread, of jobs that take turns in one run: they hold on any machine, also on a
busy one. What the loop costs is measured inside its own steps: forward and backward passes repeated outside of them
ask the system for memory in another pattern, which alone is worth several per cent, either way. Frames per second are
this machine's, with all its threads.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from saltwm.bench.timing import Figure, one_thread, take_turns
from saltwm.data.batches import Batches
from saltwm.disk.dataset import Dataset
from saltwm.ground.config import RunConfig
from saltwm.ground.rng import torch_stream
from saltwm.jobs.collect import Collect
from saltwm.losses.sigreg import draw_projections, sigreg
from saltwm.model.traits import traits_of
from saltwm.objective import prediction_loss
from saltwm.processes.launch import Devices, make_fabric
from saltwm.train import Learner, build_model, make_optimizer, make_windows, take_step

LOOP_COST = 1.05
"""What a step of the loop may cost over the forward and backward pass in it."""
METHOD_SHARE = 0.15
"""What SALT's transition and SIGReg together may take of a step."""
DATA_SHARE = 0.05
"""What waiting for data may take of a step."""
MANY_STEPS = 1_000_000  # a schedule that never leaves its warm-up, so the weights stay where they are


def train_figures(config: RunConfig, episodes: int = 100, rounds: int = 12) -> list[Figure]:
    """Frames per second, the loop against its forward and backward passes, and the split, on Two-Room at 64 px."""
    with tempfile.TemporaryDirectory() as directory:
        dataset = Collect("two-room", Path(directory) / "data", episodes, frame_every=5, workers=1).do()
        step = TrainingStep(config, dataset)
        speed = _speed(step, rounds)
        with one_thread():
            return [*speed, _loop_cost(step, rounds), *_split(step, rounds)]


class TrainingStep:
    """One training step and its parts, each a function without arguments."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        self.config = config
        self.name = f"{config.preset}, {config.model.model}"
        self._fabric = _ClockedFabric(make_fabric(Devices("cpu", 1), config.train.precision))
        self._learner = Learner(build_model(config, dataset), config.objective)
        self._wrapped, self._optimizer = self._fabric.setup(self._learner, make_optimizer(self._learner, config))
        self._fabric.clock_forward(self._wrapped)
        self.loader = Batches(make_windows(config, dataset), 0, 0, MANY_STEPS, config.train.batch_size)
        self._reader = iter(self.loader)
        _, batch = next(self._reader)
        self._frames, self._actions = torch.from_numpy(batch.frames), torch.from_numpy(batch.actions)
        dim, count = config.model.latent_dim, config.objective.sigreg_projections
        self._projections = draw_projections(dim, count, torch_stream(0, "projections", 0))
        windows, frames = self._frames.shape[:2]
        self._latents = torch.randn(windows, frames, dim, requires_grad=True)
        self._conditions = torch.randn(windows, frames - 1, dim, requires_grad=True)

    @property
    def frames(self) -> int:
        """Frames of a batch."""
        return self._frames.shape[0] * self._frames.shape[1]

    def loop(self) -> None:
        """All that training does between two measurements, data included."""
        step, batch = next(self._reader)
        take_step(self._fabric, self._wrapped, self._optimizer, batch, self.config, step, MANY_STEPS)

    def loop_cost(self) -> float:
        """Processor time of one step, its readers' included, over that of the forward and backward pass in it."""
        started, computed = time.process_time(), self._fabric.computed
        self.loop()
        return (time.process_time() - started) / (self._fabric.computed - computed)

    def encoder(self) -> None:
        """Forward and backward of the encoder."""
        self._learner.model.encode(self._frames).sum().backward()

    def transition(self) -> None:
        """Forward and backward of the predictions."""
        objective = self.config.objective
        model = self._learner.model
        prediction_loss(model, self._latents, self._conditions, objective.objective, objective.starts).backward()

    def sigreg(self) -> None:
        """Forward and backward of the regularisation."""
        sigreg(self._latents, self._projections, self.config.objective.sigreg_knots).backward()

    def optimiser(self) -> None:
        """Clipping and the update."""
        torch.nn.utils.clip_grad_norm_(self._learner.parameters(), self.config.train.gradient_clip)
        self._optimizer.step()


class _ClockedFabric:
    """Fabric that sums the processor seconds which this thread spends in forward and backward passes.

    On a CPU a backward pass runs in the thread that asks for it; what other threads do meanwhile, which is reading the
    next batches, does not count.
    """

    def __init__(self, fabric: Any) -> None:
        self._fabric = fabric
        self._started = 0.0
        self.computed = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fabric, name)

    def clock_forward(self, module: torch.nn.Module) -> None:
        """Clock the module's forward passes from now on."""
        module.register_forward_pre_hook(lambda *_: self._start())
        module.register_forward_hook(lambda *_: self._stop())

    def backward(self, loss: torch.Tensor) -> None:
        """Fabric's backward pass, clocked."""
        self._start()
        self._fabric.backward(loss)
        self._stop()

    def _start(self) -> None:
        self._started = time.thread_time()

    def _stop(self) -> None:
        self.computed += time.thread_time() - self._started


def _speed(step: TrainingStep, rounds: int) -> list[Figure]:
    """The loop alone, by the clock on the wall."""
    step.loop()
    started, waited = time.perf_counter(), step.loader.waited
    for _ in range(rounds):
        step.loop()
    seconds = time.perf_counter() - started
    share = (step.loader.waited - waited) / seconds
    threads = f"{step.frames} frames a step, {torch.get_num_threads()} thread(s)"
    return [
        Figure(f"{step.name}: training", rounds * step.frames / seconds, "frames/s", note=threads),
        Figure(f"{step.name}: waiting for data", share, "of a step", at_most=DATA_SHARE),
    ]


def _loop_cost(step: TrainingStep, rounds: int) -> Figure:
    """What reading, projections, clipping and the optimiser add; measuring and saving every few hundred steps not."""
    step.loop()
    cost = statistics.median(step.loop_cost() for _ in range(rounds))
    what = f"{step.name}: loop / forward and backward"
    return Figure(what, cost, "x", at_most=LOOP_COST, note="with data, projections, clipping, optimiser")


def _split(step: TrainingStep, rounds: int) -> list[Figure]:
    """The parts of a step."""
    parts: dict[str, Callable[[], None]] = {
        "encoder": step.encoder,
        "transition": step.transition,
        "SIGReg": step.sigreg,
        "optimiser": step.optimiser,
    }
    timings = take_turns({"loop": step.loop} | parts, rounds, time.process_time)
    shares = {part: timings.ratio(part, "loop") for part in parts}
    wanted = METHOD_SHARE if traits_of(step.config.model.model).has_matrix else None
    return [
        *(Figure(f"{step.name}: {part}", share, "of a step") for part, share in shares.items()),
        Figure(
            f"{step.name}: transition + SIGReg", shares["transition"] + shares["SIGReg"], "of a step", at_most=wanted
        ),
    ]
