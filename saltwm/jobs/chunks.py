"""What an evaluation worker does: a chunk of a job's tasks, run with one thread and written to a file.

Imported by every worker, so it imports little: torch only where a model plans.
"""

import contextlib
import functools
import io
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from saltwm.disk import checkpoint, durable
from saltwm.disk.dataset import Dataset
from saltwm.disk.records import EpisodeRecord, Task, TaskSet, read_cell, read_tasks
from saltwm.envs import make_env
from saltwm.envs.base import PlanningEnv
from saltwm.evaluation.rollout import Look, Outcome, drawn, run_tasks, stored
from saltwm.evaluation.tasks import require_possible
from saltwm.ground.errors import DamagedError, MismatchError, UsageError
from saltwm.ground.strict_json import from_plain, to_plain
from saltwm.ground.terminal import printable
from saltwm.jobs.evaluate import FRAMESKIP, MODELLESS, Acting, Settled
from saltwm.planning.policy import Policy, RandomPolicy
from saltwm.processes.pool import Report, Work

if TYPE_CHECKING:
    from saltwm.planning.prior import ActionPrior

TASKS_PER_CHUNK = 5


def chunk_writer() -> Work:
    """In a worker: what runs one chunk of a job and writes its outcomes. The last job's model stays loaded.

    Each round of plans is a part of the chunk.
    """
    prepared = functools.lru_cache(maxsize=1)(_prepare)

    def work(item: tuple[Acting, int, Path], report: Report) -> None:
        job, start, file = item
        tasks, run = prepared(job)
        durable.write_json(file, _plain(run(tasks=chunk_of(tasks, start), report=report)))

    return work


class Chunks:
    """Chunks that another machine runs: the job, its tasks and its checkpoint go there, outcomes come back."""

    kind = "chunk"

    def order(self, item: tuple[Acting, int, Path]) -> tuple[dict[str, Any], int]:
        """The job, and the task that the chunk starts with."""
        return to_plain(item[0]), item[1]

    def files(self, item: tuple[Acting, int, Path]) -> dict[str, Path]:
        """The task set, the checkpoint and the action prior, which may lie in the run that the checkpoint is one of."""
        job, folder = item[0], Path(item[0].run)
        assert job.task_set is not None
        found = sorted(file for file in folder.rglob("*") if file.is_file())
        has_checkpoint = (folder / durable.MANIFEST).exists()
        sent = {f"checkpoint/{file.relative_to(folder).as_posix()}": file for file in found} if has_checkpoint else {}
        return {"tasks.json": job.task_set, **sent, **(_prior_files(folder) if "prior" in job.inputs else {})}

    def receive(self, item: tuple[Acting, int, Path], result: list[dict[str, Any]]) -> None:
        """Write the outcomes."""
        durable.write_json(item[2], result)


def _prior_files(model: Path) -> dict[str, Path]:
    """The files of a checkpoint's action prior, as the checkpoint itself would hold them."""
    from saltwm.planning.prior_files import FOLDER, require_prior

    return {f"checkpoint/{FOLDER}/{file.name}": file for file in sorted(require_prior(model).iterdir())}


def prepare_sent(order: dict[str, Any], folder: Path) -> Callable[[int], list[dict[str, Any]]]:
    """On another machine: what runs a chunk of the job, whose files are in the folder."""
    from saltwm.jobs.evaluate import Evaluate

    job = from_plain(Evaluate, order, "the job")
    run = str(folder / "checkpoint") if (folder / "checkpoint").exists() else job.run
    tasks, run_chunk = _prepare(replace(job, task_set=folder / "tasks.json", run=run))
    return lambda start: _plain(run_chunk(tasks=chunk_of(tasks, start)))


def _prepare(job: Acting) -> tuple[TaskSet, Callable[..., list[Outcome]]]:
    """Read all that the job needs: its tasks, and `run_tasks` that waits only for some of them."""
    tasks = _read_own_tasks(job)
    env, look = surroundings(job, tasks)
    policy, frameskip = _make_policy(job, tasks, env)
    return tasks, functools.partial(run_tasks, env, tasks.protocol, policy=policy, frameskip=frameskip, look=look)


def chunk_of(tasks: TaskSet, start: int) -> list[Task]:
    """The tasks of the chunk that begins with this one."""
    return list(tasks.tasks[start : start + TASKS_PER_CHUNK])


def run_one(settled: Settled, task: int) -> Outcome:
    """One task of the job in this process, with the outcome that an evaluation records for it."""
    job, tasks, _ = settled
    if not 0 <= task < len(tasks.tasks):
        raise UsageError(f"no task {task}; there are tasks 0 to {len(tasks.tasks) - 1}")
    env, look = surroundings(job, tasks, any_renderer=True)
    with contextlib.closing(env):
        policy, frameskip = _make_policy(job, tasks, env)
        return run_tasks(env, tasks.protocol, [tasks.tasks[task]], policy, frameskip, look)[0]


def _read_own_tasks(job: Acting) -> TaskSet:
    """The job's tasks; MismatchError if others have taken their place since it was planned."""
    assert job.task_set is not None
    tasks = read_tasks(job.task_set)
    if tasks.sha256 != job.inputs["task_set"]:
        raise MismatchError(f"{job.task_set}: changed since this evaluation was planned; run the command again")
    require_possible(tasks, job.task_set)
    return tasks


def surroundings(job: Acting, tasks: TaskSet, *, any_renderer: bool = False) -> tuple[PlanningEnv, Look]:
    """The environment of the tasks, and where the pictures of their starts and goals come from.

    Records come from the renderer that the tasks' world names; to look at an episode any will do, and is named.
    """
    world = tasks.world
    env = make_env(
        world.environment, variant=tasks.protocol.variant, image_size=world.image_size, render_quality=world.render
    )
    if job.data is None:
        _require_renderer(env, world.renderer, any_renderer)
        return env, drawn(env)
    dataset = Dataset.open(job.data, verify="sizes").as_of(tasks.dataset_sha256)
    if dataset.sha256 != tasks.dataset_sha256:
        raise MismatchError(f"{job.data}: not the dataset that the tasks of {job.task_set} were drawn from")
    return env, stored(dataset, tasks.protocol.goal_offset_steps)


def _require_renderer(env: PlanningEnv, renderer: str, any_renderer: bool) -> None:
    if env.renderer == renderer:
        return
    difference = f"pictures are drawn with {env.renderer} here, those of the tasks and models with {renderer}"
    if not any_renderer:
        env.close()
        raise MismatchError(f"{difference}; set MUJOCO_GL={renderer}, or collect and train with {env.renderer}")
    print(f"saltwm: {printable(difference, keep='')}; the model may see them otherwise", file=sys.stderr)


def _make_policy(job: Acting, tasks: TaskSet, env: PlanningEnv) -> tuple[Policy, int]:
    """The agent or random policy that the job names, and the steps in one of its action blocks."""
    assert job.horizon is not None
    low, high = env.action_space.low, env.action_space.high
    if job.run in MODELLESS:
        return RandomPolicy(low, high, steps=job.horizon * FRAMESKIP, seed=tasks.seed), FRAMESKIP
    import torch

    from saltwm.disk.checkpoint import load
    from saltwm.planning.agent import Agent
    from saltwm.processes.device import device_of_worker

    if checkpoint.identity(Path(job.run)) != job.inputs["run"]:
        raise MismatchError(f"{job.run}: changed since this evaluation was planned; run the command again")
    torch.set_num_threads(1)  # faster where there is a worker per core, and results do not depend on their number
    bounds = {"action_low": low, "action_high": high} if tasks.protocol.bound_actions else {}
    model = load(job.run, world=tasks.world).to(device_of_worker(job.device))
    agent = Agent(
        model,
        job.planner,
        horizon_blocks=job.horizon,
        look_every=job.look_every,
        goal_blocks=math.ceil(tasks.protocol.goal_offset_steps / model.config.frameskip),
        history_frames=job.history,
        seed=tasks.seed,
        prior=_own_prior(job) if "prior" in job.inputs else None,
        **bounds,
    )
    return agent, model.config.frameskip


def _own_prior(job: Acting) -> "ActionPrior":
    """The prior that the job names."""
    from saltwm.planning.prior_files import identity, load_prior, require_prior

    model = Path(job.run)
    if identity(require_prior(model)) != job.inputs["prior"]:
        raise MismatchError(f"{model}: its action prior changed since this evaluation was planned; repeat the command")
    return load_prior(model)


# --- files -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stored:
    """An outcome as JSON."""

    record: EpisodeRecord
    actions: list[list[float]]


def _plain(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    return [to_plain(_Stored(outcome.record, outcome.actions.tolist())) for outcome in outcomes]


def read_chunk(path: Path) -> list[Outcome]:
    """The outcomes that a worker wrote."""
    rows = durable.read_json(path)
    if not isinstance(rows, list):
        raise DamagedError(f"{path}: expected a list of outcomes, found {type(rows).__name__}; remove it and go on")
    stored_rows = [from_plain(_Stored, row, str(path)) for row in rows]
    return [Outcome(row.record, np.array(row.actions, np.float32)) for row in stored_rows]


def read_outcomes(folder: Path) -> list[Outcome]:
    """The episodes of a finished cell with their actions; DamagedError if the two do not fit."""
    episodes = read_cell(folder).episodes
    path = folder / "actions.npy"
    try:
        actions = np.load(io.BytesIO(durable.read_bytes(path)), allow_pickle=False)
    except UsageError as error:
        raise DamagedError(f"{path}: missing; evaluate again into an empty folder") from error
    except (ValueError, OSError, EOFError, MemoryError) as error:  # MemoryError: of a size that the header declares
        raise DamagedError(f"{path}: not an array of actions ({error})") from error
    ends = np.cumsum([episode.steps_taken for episode in episodes])
    if actions.ndim != 2 or actions.dtype != np.float32 or len(actions) != ends[-1]:
        raise DamagedError(
            f"{path}: expected float32 actions of {ends[-1]} steps, found {actions.dtype} {actions.shape}"
        )
    parts = np.split(actions, ends[:-1])
    return [Outcome(episode, part) for episode, part in zip(episodes, parts, strict=True)]
