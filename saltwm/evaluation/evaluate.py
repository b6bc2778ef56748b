"""From a run and a dataset to a recorded evaluation: choose or reuse the tasks, make the job, run it, compare."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from saltwm import durable
from saltwm.config import CEMConfig, PlannerConfig, ProtocolConfig, TrainConfig
from saltwm.data.store import Dataset
from saltwm.data.windows import held_out_episodes
from saltwm.diagnostics.anatomy import write_anatomies
from saltwm.errors import MismatchError, UsageError
from saltwm.evaluation.cell import evaluate, evaluate_here, evaluation_workers
from saltwm.evaluation.chunks import Job
from saltwm.evaluation.protocols import DEFAULT_TASKS, protocol_for
from saltwm.evaluation.tasks import choose_tasks, write_tasks
from saltwm.planning.policy import Policy
from saltwm.records import Evaluation
from saltwm.statistics import write_comparisons

DEFAULT_FRAMESKIP = 5


@dataclass(frozen=True)
class Request:
    """What a user asks for; None stands for the protocol's or the run's own value."""

    run: Path | None
    """None is a policy without a model: the random one, or a user's own."""
    protocol: str = "clean"
    tasks: int | None = None
    seed: int = 1
    """Of the tasks and of the planner."""
    horizon_blocks: int | None = None
    history_frames: int = 1
    method: str | None = None
    planner: PlannerConfig = field(default_factory=CEMConfig)
    last_start: bool = False
    """Variant `len` of the paper's draw."""
    hold_steps: int = 1


def evaluate_run(
    request: Request, dataset: Dataset, results: Path, *, workers: int = 2, pictures: int = 4
) -> Evaluation:
    """Evaluate into RESULTS/evaluations/CELL, on the tasks that every other method gets, and compare with them."""
    job, cell = make_job(request, dataset, results)
    with evaluation_workers(workers) as pool:
        evaluation = evaluate(job, cell, pool, pictures=pictures)
    compare_all(results)
    return evaluation


def evaluate_policy(
    policy: Policy, method: str, dataset: Dataset, results: Path, request: Request | None = None, *, pictures: int = 4
) -> Evaluation:
    """Evaluate anything that decides, under the name `method`, in this process; of the request its tasks count."""
    job, cell = make_job(request or Request(run=None), dataset, results, method)
    evaluation = evaluate_here(job, policy, cell, pictures=pictures)
    compare_all(results)
    return evaluation


def compare_all(results: Path) -> None:
    """Renew the paired tests and failure anatomies of everything under RESULTS."""
    write_comparisons(results)
    write_anatomies(results)


def make_job(request: Request, dataset: Dataset, results: Path, method: str | None = None) -> tuple[Job, Path]:
    """The job, its tasks frozen in RESULTS/tasks, and the folder that its results go to."""
    results = Path(results)
    for name, value in (("tasks", request.tasks), ("horizon", request.horizon_blocks)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, found {value}")
    protocol = protocol_for(request.protocol, last_start=request.last_start, hold_steps=request.hold_steps)
    horizon = request.horizon_blocks or protocol.horizon_blocks
    model = _find_model(request, protocol, dataset)
    tasks_file = _freeze_tasks(request, protocol, dataset, results)
    job = Job(
        method=_checked_name(method or request.method or model.name),
        tasks_file=str(tasks_file),
        tasks_sha256=durable.read_json(tasks_file)["sha256"],
        dataset=str(dataset.path) if dataset.world.renderer == "imported" else None,
        checkpoint=model.checkpoint,
        checkpoint_sha256=model.checkpoint_sha256,
        planner=model.planner,
        horizon_blocks=horizon,
        frameskip=model.frameskip,
        history_frames=request.history_frames,
        seed=request.seed,
    )
    cell = f"{dataset.world.environment}-{job.method}-{protocol.name}-seed{request.seed}"
    if horizon != protocol.horizon_blocks:
        cell += f"-h{horizon}"
    return job, results / "evaluations" / cell


def _freeze_tasks(request: Request, protocol: ProtocolConfig, dataset: Dataset, results: Path) -> Path:
    """RESULTS/tasks/ENV-PROTOCOL-seedN.json, the same for every method and horizon.

    Held-out means held out of training by the default split, which does not depend on the model, or by a dataset that
    no model is trained on.
    """
    count = request.tasks or DEFAULT_TASKS[request.protocol]
    split = TrainConfig()
    held_out = held_out_episodes(dataset, split.split_seed, split.validation_fraction)
    tasks = choose_tasks(dataset, protocol, count, request.seed, held_out)
    path = results / "tasks" / f"{dataset.world.environment}-{protocol.name}-seed{request.seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tasks(path, tasks)
    return path


@dataclass(frozen=True)
class _Model:
    """What a job says about who decides, and its name in tables: random, salt, salt-gauss-newton."""

    name: str
    frameskip: int = DEFAULT_FRAMESKIP
    checkpoint: str | None = None
    checkpoint_sha256: str | None = None
    planner: PlannerConfig | None = None


def _find_model(request: Request, protocol: ProtocolConfig, dataset: Dataset) -> _Model:
    if request.run is None:
        return _Model("random")
    from saltwm import checkpoint

    path = checkpoint.find_checkpoint(request.run)
    info = checkpoint.read_info(path)
    checkpoint.require_same_world(info.world, dataset.world, path)
    if protocol.held_out and info.run.train.split == "episode" and info.dataset_sha256 == dataset.sha256:
        _require_same_split(info.run.train, path)
    model, planner = info.run.model, request.planner
    return _Model(
        name=model.model if isinstance(planner, CEMConfig) else f"{model.model}-{planner.kind}",
        frameskip=model.frameskip,
        checkpoint=str(path),
        checkpoint_sha256=durable.sha256(path / durable.MANIFEST),
        planner=planner,
    )


def _checked_name(method: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", method):
        raise UsageError(f"method {method!r}: a name of letters, digits and _.+- is needed, because folders bear it")
    return method


def _require_same_split(train: TrainConfig, path: Path) -> None:
    """The held-out episodes of the tasks must be those that this run did not see."""
    default = TrainConfig()
    if (train.split_seed, train.validation_fraction) != (default.split_seed, default.validation_fraction):
        raise MismatchError(
            f"{path}: trained with split seed {train.split_seed} and fraction {train.validation_fraction}; tasks are "
            f"held out with {default.split_seed} and {default.validation_fraction}, so it may have seen them"
        )
