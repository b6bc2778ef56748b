"""From a run and a dataset, or a frozen task set, to a recorded evaluation: tasks, job, records."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltwm.data.split import held_out, why_seen
from saltwm.disk import checkpoint, durable
from saltwm.disk.dataset import Dataset
from saltwm.disk.records import Evaluation, TaskSet
from saltwm.evaluation.protocols import DEFAULT_TASKS, protocol_for
from saltwm.evaluation.tasks import choose_tasks, write_tasks
from saltwm.ground.checks import at_least
from saltwm.ground.config import (
    CEMConfig,
    GaussNewtonConfig,
    MapConfig,
    ModelConfig,
    PlannerConfig,
    PriorPlanner,
    ProtocolConfig,
)
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.jobs.cell import evaluate, evaluate_here, evaluation_workers
from saltwm.jobs.chunks import Job
from saltwm.model.traits import model_name, traits_of
from saltwm.planning.policy import Policy, require_horizon, require_looks

DEFAULT_FRAMESKIP = 5
DEFAULT_PROTOCOL = "clean"
DEFAULT_SEED = 1


@dataclass(frozen=True)
class Request:
    """What a user asks for; None stands for the default, or for what a frozen task set says itself."""

    run: Path | None
    """None is a policy without a model: the random one, or a user's own."""
    protocol: str | None = None
    tasks: int | None = None
    seed: int | None = None
    """Of the tasks and of the planner."""
    horizon_blocks: int | None = None
    history_frames: int = 1
    method: str | None = None
    planner: PlannerConfig | None = None
    last_start: bool | None = None
    """Variant `len` of the paper's draw."""
    hold_steps: int | None = None
    look_every: int | None = None
    """Blocks executed before the next look; None for all that are planned."""


def evaluate_run(
    request: Request, source: Dataset | TaskSet, results: Path, *, workers: int = 2, pictures: int = 4
) -> Evaluation:
    """Evaluate into RESULTS/evaluations/CELL, on the tasks that every other method gets.

    The tasks are chosen from a dataset, or are a frozen set as it is.
    """
    pool = evaluation_workers(workers)
    at_least("pictures", pictures, 0)
    job, cell = make_job(request, source, results)
    with pool:
        return evaluate(job, cell, pool, pictures=pictures)


def evaluate_policy(
    policy: Policy,
    method: str,
    source: Dataset | TaskSet,
    results: Path,
    request: Request | None = None,
    *,
    pictures: int = 4,
) -> Evaluation:
    """Evaluate anything that decides, under the name `method`, in this process; of the request its tasks count."""
    at_least("pictures", pictures, 0)
    if method == "random":
        raise UsageError("random is the policy that every method is compared with; give your own another name")
    job, cell = make_job(request or Request(run=None), source, results, method)
    return evaluate_here(job, policy, cell, pictures=pictures)


def make_job(request: Request, source: Dataset | TaskSet, results: Path, method: str | None = None) -> tuple[Job, Path]:
    """The job, its tasks frozen in RESULTS/tasks, and the folder that its results go to."""
    results = Path(results)
    require_possible(request)
    if request.run is None and request.look_every is not None:
        raise UsageError("only an agent that plans has a next look to choose: leave out --look-every")
    if request.run is None and method is None and (request.planner is not None or request.history_frames != 1):
        raise UsageError("the random policy neither plans nor looks back: leave out --planner, --mu and --history")
    protocol = protocol_of(request, source)
    dataset = _pictures_of(source)
    model = _find_model(request, protocol, source)
    tasks = source if isinstance(source, TaskSet) else _choose_tasks(request, protocol, source)
    tasks_file = _freeze(tasks, results)
    horizon = request.horizon_blocks or min(protocol.horizon_blocks, model.longest_plan or protocol.horizon_blocks)
    if model.longest_plan is not None:
        require_horizon(model.longest_plan, horizon)
    require_looks(request.look_every, horizon)
    job = Job(
        method=_checked_name(next(name for name in (method, request.method, model.name) if name is not None)),
        tasks_file=str(tasks_file),
        tasks_sha256=tasks.sha256,
        dataset=dataset,
        checkpoint=model.checkpoint,
        checkpoint_sha256=model.checkpoint_sha256,
        planner=model.planner,
        horizon_blocks=horizon,
        frameskip=model.frameskip,
        history_frames=model.history_frames,
        seed=tasks.seed,
        policy=None if method is None else "own",
        look_every=request.look_every,
        prior_sha256=model.prior_sha256,
    )
    cell = f"{tasks.world.environment}-{job.method}-{protocol.name}-seed{tasks.seed}"
    if horizon != protocol.horizon_blocks:
        cell += f"-h{horizon}"
    return job, results / "evaluations" / cell


def require_possible(request: Request) -> None:
    """UsageError for numbers that cannot count anything."""
    at_least("tasks", request.tasks, 1)
    at_least("horizon", request.horizon_blocks, 1)
    at_least("history", request.history_frames, 1)
    at_least("seed", request.seed, 0)


# --- tasks -----------------------------------------------------------------------------------------------------------


def protocol_of(request: Request, source: Dataset | TaskSet) -> ProtocolConfig:
    """The protocol asked for, or that of a frozen set: its tasks are what they are, and no option may say otherwise."""
    if isinstance(source, Dataset):
        hold_steps = 1 if request.hold_steps is None else request.hold_steps
        name = request.protocol or DEFAULT_PROTOCOL
        return protocol_for(name, last_start=bool(request.last_start), hold_steps=hold_steps)
    chosen = {
        "protocol": request.protocol,
        "tasks": request.tasks,
        "seed": request.seed,
        "variant": None if request.last_start is None else "len" if request.last_start else "len-1",
        "hold": request.hold_steps,
    }
    for option, value in chosen.items():
        if value is not None:
            raise UsageError(
                f"--{option} {value} chooses tasks from --data; a frozen task set brings its own "
                f"({source.protocol.name}, seed {source.seed}, {len(source.tasks)} tasks): leave the option out"
            )
    return source.protocol


def _pictures_of(source: Dataset | TaskSet) -> str | None:
    """Path of the dataset whose frames show starts and goals, where they are not what our renderer would draw."""
    if source.world.renderer != "imported":
        return None
    if isinstance(source, TaskSet):
        raise UsageError(
            f"these tasks start at pictures of an imported dataset ({source.dataset_sha256[:12]}), which a task set "
            "does not hold; give that dataset with --data"
        )
    return str(source.path)


def _choose_tasks(request: Request, protocol: ProtocolConfig, dataset: Dataset) -> TaskSet:
    """The same for every method and horizon."""
    count = request.tasks or DEFAULT_TASKS[request.protocol or DEFAULT_PROTOCOL]
    seed = DEFAULT_SEED if request.seed is None else request.seed
    return choose_tasks(dataset, protocol, count, seed, held_out(dataset))


def _freeze(tasks: TaskSet, results: Path) -> Path:
    """RESULTS/tasks/ENV-PROTOCOL-seedN.json."""
    path = results / "tasks" / f"{tasks.world.environment}-{tasks.protocol.name}-seed{tasks.seed}.json"
    durable.make_folder(path.parent)
    write_tasks(path, tasks)
    return path


# --- who decides -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Model:
    """What a job says about who decides, and its name in tables: random, salt, salt-gauss-newton."""

    name: str
    history_frames: int = 1
    """Those asked for that it can look back at: to be offered more is the same job."""
    frameskip: int = DEFAULT_FRAMESKIP
    checkpoint: str | None = None
    checkpoint_sha256: str | None = None
    planner: PlannerConfig | None = None
    prior_sha256: str | None = None
    longest_plan: int | None = None
    """Blocks that its action prior proposes; None for planners without one."""


def _find_model(request: Request, protocol: ProtocolConfig, source: Dataset | TaskSet) -> _Model:
    if request.run is None:
        return _Model("random")

    path = checkpoint.find_checkpoint(request.run)
    info = checkpoint.read_info(path)
    checkpoint.require_same_world(info.world, source.world, path)
    seen = why_seen(info, source) if protocol.held_out else None
    if seen is not None:
        raise MismatchError(
            f"{path}: protocol {protocol.name!r} wants episodes that training did not see, and {seen}; give data of "
            "its own for evaluation (saltwm collect with --held-out), or evaluate with --protocol paper"
        )
    model, planner = info.run.model, request.planner or CEMConfig()
    if not can_plan(model, planner):
        instead = "cem-prior" if isinstance(planner, MapConfig) else "cem"
        why = f"{planner.kind} needs a state-affine model (salt), and this is {model.model}"
        raise UsageError(f"{path}: {why}; use {instead}")
    traits = traits_of(model.model)
    history_frames = min(max(request.history_frames, traits.frames(model)), traits.window(model))
    return _Model(
        name=method_name(model, planner, history_frames, request.look_every),
        history_frames=history_frames,
        frameskip=model.frameskip,
        checkpoint=str(path),
        checkpoint_sha256=checkpoint.identity(path),
        planner=planner,
        **(_prior_facts(path) if isinstance(planner, PriorPlanner) else {}),
    )


def _prior_facts(path: Path) -> dict[str, Any]:
    """What a job says about the checkpoint's own action prior, or an error that says how to make one."""
    from saltwm.planning import prior_files

    folder = prior_files.require_prior(path)
    info = prior_files.read_info(folder)
    prior_files.require_own(info, path, folder)
    return {"prior_sha256": prior_files.identity(folder), "longest_plan": info.prior.horizon_blocks}


def can_plan(model: ModelConfig, planner: PlannerConfig) -> bool:
    """Whether the planner works with such a model: Gauss-Newton goes through A(c), for the posterior mode too."""
    return traits_of(model.model).has_matrix or not isinstance(planner, GaussNewtonConfig | MapConfig)


def method_name(
    model: ModelConfig, planner: PlannerConfig, history_frames: int = 1, look_every: int | None = None
) -> str:
    """What a model with a planner is called unless it is given a name: lewm-history3, salt-gauss-newton-look1."""
    words: list[str] = [model_name(model)]
    words += [] if isinstance(planner, CEMConfig) else [planner.kind]
    words += [] if history_frames <= traits_of(model.model).frames(model) else [f"history{history_frames}"]
    words += [] if look_every is None else [f"look{look_every}"]
    return "-".join(words)


def _checked_name(method: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", method):
        raise UsageError(f"method {method!r}: a name of letters, digits and _.+- is needed, because folders bear it")
    return method
