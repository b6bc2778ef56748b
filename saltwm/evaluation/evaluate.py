"""From a run and a dataset to a recorded evaluation: choose or reuse the tasks, make the job, run it, compare."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from saltwm import checkpoint, durable
from saltwm.config import PROTOCOLS, CEMConfig, ProtocolConfig, TrainConfig, one_of
from saltwm.data.store import Dataset
from saltwm.data.windows import held_out_episodes
from saltwm.diagnostics.anatomy import write_anatomies
from saltwm.errors import MismatchError
from saltwm.evaluation.statistics import write_comparisons
from saltwm.evaluation.suite import Job, evaluate
from saltwm.evaluation.tasks import choose_tasks, write_tasks
from saltwm.records import Evaluation

DEFAULT_TASKS = {"paper": 50, "clean": 100, "long": 50}
DEFAULT_FRAMESKIP = 5


@dataclass(frozen=True)
class Request:
    """What a user asks for; None stands for the protocol's or the run's own value."""

    run: Path | None
    """None is the random policy."""
    protocol: str = "clean"
    tasks: int | None = None
    seed: int = 1
    horizon_blocks: int | None = None
    history_frames: int = 1
    method: str | None = None
    planner: CEMConfig = field(default_factory=CEMConfig)


def evaluate_run(
    request: Request, dataset: Dataset, results: Path, *, workers: int = 2, pictures: int = 4
) -> Evaluation:
    """Evaluate into RESULTS/evaluations/CELL, on the tasks that every other method gets, and compare with them."""
    protocol = _protocol(request)
    tasks_file = _freeze_tasks(request, protocol, dataset, results)
    job = _job(request, protocol, dataset, tasks_file)
    cell = f"{dataset.world.environment}-{job.method}-{protocol.name}-seed{request.seed}"
    if protocol.horizon_blocks != PROTOCOLS[protocol.name].horizon_blocks:
        cell += f"-h{protocol.horizon_blocks}"
    evaluation = evaluate(job, results / "evaluations" / cell, workers=workers, pictures=pictures)
    write_comparisons(results)
    write_anatomies(results)
    return evaluation


def _protocol(request: Request) -> ProtocolConfig:
    one_of("protocol", request.protocol, PROTOCOLS)
    protocol = PROTOCOLS[request.protocol]
    if request.horizon_blocks is None:
        return protocol
    return dataclasses.replace(protocol, horizon_blocks=request.horizon_blocks)


def _freeze_tasks(request: Request, protocol: ProtocolConfig, dataset: Dataset, results: Path) -> Path:
    """RESULTS/tasks/ENV-PROTOCOL-seedN.json, the same for every method.

    Held-out means held out of training by the default split, which does not depend on the model.
    """
    count = request.tasks or DEFAULT_TASKS[protocol.name]
    split = TrainConfig()
    held_out = held_out_episodes(len(dataset.lengths), split.split_seed, split.validation_fraction)
    tasks = choose_tasks(dataset, protocol, count, request.seed, held_out)
    horizon = f"-h{protocol.horizon_blocks}" if protocol.name == "long" else ""
    path = results / "tasks" / f"{dataset.world.environment}-{protocol.name}-seed{request.seed}{horizon}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tasks(path, tasks)
    return path


def _job(request: Request, protocol: ProtocolConfig, dataset: Dataset, tasks_file: Path) -> Job:
    common = {
        "tasks_file": str(tasks_file),
        "tasks_sha256": durable.read_json(tasks_file)["sha256"],
        "planner": request.planner,
        "horizon_blocks": protocol.horizon_blocks,
        "history_frames": request.history_frames,
        "seed": request.seed,
    }
    if request.run is None:
        return Job(
            request.method or "random", checkpoint=None, checkpoint_sha256=None, frameskip=DEFAULT_FRAMESKIP, **common
        )
    path = checkpoint.find_checkpoint(request.run)
    info = checkpoint.read_info(path)
    checkpoint.require_same_world(info.world, dataset.world, path)
    if protocol.held_out and info.run.train.split == "episode" and info.dataset_sha256 == dataset.sha256:
        _require_same_split(info.run.train, path)
    return Job(
        request.method or info.run.model.model,
        checkpoint=str(path),
        checkpoint_sha256=durable.sha256(path / durable.MANIFEST),
        frameskip=info.run.model.frameskip,
        **common,
    )


def _require_same_split(train: TrainConfig, path: Path) -> None:
    """The held-out episodes of the tasks must be those that this run did not see."""
    default = TrainConfig()
    if (train.split_seed, train.validation_fraction) != (default.split_seed, default.validation_fraction):
        raise MismatchError(
            f"{path}: trained with split seed {train.split_seed} and fraction {train.validation_fraction}; tasks are "
            f"held out with {default.split_seed} and {default.validation_fraction}, so it may have seen them"
        )
