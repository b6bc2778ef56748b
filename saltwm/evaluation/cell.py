"""One method on one task set: spread over processes, resumable, recorded to disk.

A worker does a chunk of tasks at a time with one thread, so that records are the same bytes whatever the number of
workers. Finished chunks are kept beside the result until all are there; a lost worker costs a retry of its chunk.
"""

import functools
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saltwm import durable
from saltwm.config import PlannerConfig, from_plain, read_config, to_plain, write_config
from saltwm.data.store import Dataset
from saltwm.envs import make_env
from saltwm.envs.base import PlanningEnv
from saltwm.errors import DamagedError, MismatchError, SaltError
from saltwm.evaluation.pictures import film
from saltwm.evaluation.rollout import Look, Outcome, drawn, run_tasks, stored
from saltwm.evaluation.statistics import wilson
from saltwm.planning.agent import Agent, Policy, RandomPolicy
from saltwm.progress import console, progress
from saltwm.records import EpisodeRecord, Evaluation, TaskSet, read_cell, read_tasks
from saltwm.workers import Report, Work, Workers

TASKS_PER_CHUNK = 5
RETRIES = 2
"""How often a chunk is tried again after its worker was lost."""
CHUNK_SECONDS = 3600.0
"""A chunk that takes longer is taken for hung; at the paper's sizes LeWM takes minutes for one on a CPU."""
_PATHS = ("tasks_file", "checkpoint", "dataset")


@dataclass(frozen=True)
class Job:
    """Everything that decides an evaluation; two jobs that differ in paths alone give equal records."""

    method: str
    tasks_file: str
    tasks_sha256: str
    dataset: str | None
    """Dataset whose frames show starts and goals, where they are not pictures that our renderer would draw."""
    checkpoint: str | None
    """Checkpoint directory, or None for a policy without a model."""
    checkpoint_sha256: str | None
    planner: PlannerConfig | None
    horizon_blocks: int
    frameskip: int
    history_frames: int
    seed: int


def evaluation_workers(count: int) -> Workers:
    """Processes for `evaluate`, to be shared by all cells of a suite: each imports torch once."""
    return Workers(count, _chunk_writer, item_seconds=CHUNK_SECONDS)


def evaluate(job: Job, out: Path, pool: Workers, *, pictures: int = 4) -> Evaluation:
    """Run the job, or what is left of it, into the cell directory `out`; an evaluation that is there is returned."""
    with durable.only_writer(out, "evaluate"):
        _claim(job, out)
        if (out / "evaluation.json").exists():
            return read_config(Evaluation, out / "evaluation.json")
        started = time.perf_counter()
        tasks = read_tasks(Path(job.tasks_file))
        outcomes = _run_chunks(job, len(tasks.tasks), out / "chunks", pool)
        return _publish(job, tasks, outcomes, out, pictures, time.perf_counter() - started)


def evaluate_here(job: Job, policy: Policy, out: Path, *, pictures: int = 4) -> Evaluation:
    """Run `policy` on the job's tasks in this process, always anew: it may not be the one of last time."""
    with durable.only_writer(out, "evaluate"):
        _claim(job, out)
        _clear(out)
        started = time.perf_counter()
        tasks = read_tasks(Path(job.tasks_file))
        env, look = _surroundings(job, tasks)
        outcomes = []
        with progress(f"evaluate {job.method}", len(tasks.tasks)) as advance:
            for start in range(0, len(tasks.tasks), TASKS_PER_CHUNK):
                chunk = list(tasks.tasks[start : start + TASKS_PER_CHUNK])
                outcomes += run_tasks(env, tasks.protocol, chunk, policy, job.frameskip, look)
                advance(len(chunk))
        return _publish(job, tasks, outcomes, out, pictures, time.perf_counter() - started)


def make_policy(job: Job, tasks: TaskSet, env: PlanningEnv) -> Policy:
    """The agent or random policy that the job names."""
    low, high = env.action_space.low, env.action_space.high
    if job.checkpoint is None:
        return RandomPolicy(low, high, steps=job.horizon_blocks * job.frameskip, seed=job.seed)
    from saltwm.checkpoint import load

    bounds = {"action_low": low, "action_high": high} if tasks.protocol.bound_actions else {}
    return Agent(
        load(job.checkpoint, world=tasks.world),
        job.planner,
        horizon_blocks=job.horizon_blocks,
        history_frames=job.history_frames,
        seed=job.seed,
        **bounds,
    )


def run_one(job: Job, task: int) -> tuple[TaskSet, Outcome]:
    """One task of the job in this process, with the outcome that an evaluation records for it."""
    tasks = read_tasks(Path(job.tasks_file))
    if not 0 <= task < len(tasks.tasks):
        raise SaltError(f"{job.tasks_file}: no task {task}; it has tasks 0 to {len(tasks.tasks) - 1}")
    env, look = _surroundings(job, tasks)
    policy = make_policy(job, tasks, env)
    return tasks, run_tasks(env, tasks.protocol, [tasks.tasks[task]], policy, job.frameskip, look)[0]


def _surroundings(job: Job, tasks: TaskSet) -> tuple[PlanningEnv, Look]:
    """The environment of the tasks, and where the pictures of their starts and goals come from."""
    world = tasks.world
    env = make_env(
        world.environment, variant=tasks.protocol.variant, image_size=world.image_size, render_quality=world.render
    )
    if job.dataset is None:
        return env, drawn(env)
    dataset = Dataset.open(job.dataset, verify="sizes")
    if dataset.sha256 != tasks.dataset_sha256:
        raise MismatchError(f"{job.dataset}: not the dataset that the tasks of {job.tasks_file} were drawn from")
    return env, stored(dataset, tasks.protocol.goal_offset_steps)


# --- whose folder it is ----------------------------------------------------------------------------------------------


def _claim(job: Job, out: Path) -> None:
    """Take the folder for this job, or refuse: what another model or planner recorded here is not thrown away."""
    if not (out / "job.json").exists():
        write_config(out / "job.json", job)
        return
    there, here = durable.read_json(out / "job.json"), to_plain(job)
    differing = [key for key in here if key not in _PATHS and there.get(key) != here[key]]
    if differing:
        found = "; ".join(f"{key}: {_short(there.get(key))} there, {_short(here[key])} here" for key in differing)
        raise MismatchError(
            f"{out}: holds another evaluation ({found}; its model: {there.get('checkpoint')}); "
            "give this one a name of its own with --method NAME, or remove that folder"
        )


def _short(value: Any) -> str:
    return str(value)[:12] if isinstance(value, str) else str(value)


def _clear(out: Path) -> None:
    (out / "evaluation.json").unlink(missing_ok=True)
    shutil.rmtree(out / "pictures", ignore_errors=True)


# --- chunks ----------------------------------------------------------------------------------------------------------


def _run_chunks(job: Job, count: int, directory: Path, pool: Workers) -> list[Outcome]:
    """Outcomes of all tasks, in order; chunks that are on disk are not run again."""
    directory.mkdir(exist_ok=True)
    durable.remove_leftovers(directory)
    files = {start: directory / f"{start:05d}.json" for start in range(0, count, TASKS_PER_CHUNK)}
    todo = [start for start, file in files.items() if not file.exists()][::-1]
    sizes = {start: min(TASKS_PER_CHUNK, count - start) for start in files}
    losses: Counter[int] = Counter()
    with progress(f"evaluate {job.method}", count, count - sum(sizes[start] for start in todo)) as advance:
        while todo or pool.busy:
            while todo and pool.free:
                start = todo.pop()
                pool.assign((job, start, files[start]))
            for event in pool.events():
                _, start, _ = event.item
                if event.kind == "done":
                    advance(sizes[start])
                elif event.kind == "lost":
                    losses[start] += 1
                    _say_loss(start, losses[start], event.why)
                    todo.append(start)
    return [outcome for file in files.values() for outcome in _read_chunk(file)]


def _say_loss(start: int, losses: int, why: str) -> None:
    if losses > RETRIES:
        raise SaltError(f"tasks {start}...: their worker {why}, {losses} times in a row; is memory short?")
    console.print(f"a worker {why}; its tasks are tried again", highlight=False, soft_wrap=True)


def _chunk_writer() -> Work:
    """In a worker: what runs one chunk of a job and writes its outcomes. The last job's model stays loaded."""
    import torch

    torch.set_num_threads(1)
    prepare = functools.lru_cache(maxsize=1)(_prepare)

    def work(item: tuple[Job, int, Path], report: Report) -> None:
        job, start, file = item
        tasks, env, look, policy = prepare(job)
        chunk = list(tasks.tasks[start : start + TASKS_PER_CHUNK])
        outcomes = run_tasks(env, tasks.protocol, chunk, policy, job.frameskip, look)
        durable.write_json(file, [_plain(outcome) for outcome in outcomes])

    return work


def _prepare(job: Job) -> tuple[TaskSet, PlanningEnv, Look, Policy]:
    tasks = read_tasks(Path(job.tasks_file))
    env, look = _surroundings(job, tasks)
    return tasks, env, look, make_policy(job, tasks, env)


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {"record": to_plain(outcome.record), "actions": outcome.actions.tolist()}


def _read_chunk(path: Path) -> list[Outcome]:
    def outcome(row: dict[str, Any]) -> Outcome:
        actions: NDArray[np.float32] = np.array(row["actions"], np.float32)
        return Outcome(from_plain(EpisodeRecord, row["record"], str(path)), actions)

    return [outcome(row) for row in durable.read_json(path)]


# --- results ---------------------------------------------------------------------------------------------------------


def _publish(job: Job, tasks: TaskSet, outcomes: list[Outcome], out: Path, pictures: int, seconds: float) -> Evaluation:
    records = [outcome.record for outcome in outcomes]
    if [record.task for record in records] != [task.index for task in tasks.tasks]:
        raise SaltError(f"{out}: the records do not cover the tasks; nothing is averaged over holes")
    steps = [record.steps_to_success for record in records if record.steps_to_success is not None]
    evaluation = Evaluation(
        environment=tasks.world.environment,
        method=job.method,
        protocol=tasks.protocol.name,
        horizon_blocks=job.horizon_blocks,
        planner=to_plain(job.planner) if job.planner else {},
        tasks_file=f"tasks/{Path(job.tasks_file).name}",
        tasks_sha256=job.tasks_sha256,
        checkpoint=job.checkpoint,
        checkpoint_sha256=job.checkpoint_sha256,
        seed=job.seed,
        success=wilson(sum(record.success for record in records), len(records)),
        median_steps_to_success=float(np.median(steps)) if steps else None,
        seconds=seconds,
    )
    durable.write_text(out / "episodes.jsonl", "".join(durable.json_line(to_plain(record)) for record in records))
    actions = np.concatenate([outcome.actions.reshape(-1, tasks.world.action_dim) for outcome in outcomes])
    durable.write_file(out / "actions.npy", partial(_save_array, actions))
    film(tasks, outcomes[:pictures], out / "pictures")
    write_config(out / "evaluation.json", evaluation)
    shutil.rmtree(out / "chunks", ignore_errors=True)
    return evaluation


def _save_array(array: NDArray[np.float32], path: Path) -> None:
    with open(path, "wb") as file:  # a name would be given the ending .npy
        np.save(file, array, allow_pickle=False)


def read_outcomes(folder: Path) -> list[Outcome]:
    """The episodes of a finished cell with their actions; DamagedError if the two do not fit."""
    episodes = read_cell(folder).episodes
    path = folder / "actions.npy"
    try:
        actions = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise DamagedError(f"{path}: missing; evaluate again into an empty folder") from error
    except (ValueError, OSError, EOFError) as error:
        raise DamagedError(f"{path}: not an array of actions ({error})") from error
    ends = np.cumsum([episode.steps_taken for episode in episodes])
    if actions.ndim != 2 or actions.dtype != np.float32 or len(actions) != ends[-1]:
        raise DamagedError(
            f"{path}: expected float32 actions of {ends[-1]} steps, found {actions.dtype} {actions.shape}"
        )
    parts = np.split(actions, ends[:-1])
    return [Outcome(episode, part) for episode, part in zip(episodes, parts, strict=True)]
