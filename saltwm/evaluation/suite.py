"""One method on one task set: spread over processes, resumable, recorded to disk.

A worker does a chunk of tasks at a time with one thread, so that records are the same bytes whatever the number of
workers. Finished chunks are kept beside the result until all are there; a dead worker costs a retry of its chunk.
"""

import multiprocessing
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saltwm import durable
from saltwm.config import CEMConfig, from_plain, read_config, to_plain, write_config
from saltwm.envs import make_env
from saltwm.errors import SaltError
from saltwm.evaluation.rollout import Outcome, run_tasks
from saltwm.evaluation.statistics import wilson
from saltwm.evaluation.tasks import read_tasks
from saltwm.planning.agent import Agent, Policy, RandomPolicy
from saltwm.progress import console, progress
from saltwm.records import EpisodeRecord, Evaluation, TaskSet

TASKS_PER_CHUNK = 5
RETRIES = 2
"""How often a chunk is tried again after its worker died."""


@dataclass(frozen=True)
class Job:
    """Everything that decides an evaluation; two equal jobs give equal records."""

    method: str
    tasks_file: str
    tasks_sha256: str
    checkpoint: str | None
    """Checkpoint directory, or None for the random policy."""
    checkpoint_sha256: str | None
    planner: CEMConfig
    horizon_blocks: int
    frameskip: int
    history_frames: int
    seed: int


def evaluate(job: Job, out: Path, *, workers: int = 2, pictures: int = 4) -> Evaluation:
    """Run the job, or what is left of it, into the cell directory `out`; an evaluation that is there is returned."""
    with durable.only_writer(out, "evaluate"):
        finished = _finished(job, out)
        if finished is not None:
            return finished
        started = time.perf_counter()
        tasks = read_tasks(Path(job.tasks_file))
        chunks = _run_chunks(job, len(tasks.tasks), out / "chunks", workers)
        outcomes = [outcome for chunk in chunks for outcome in chunk]
        return _publish(job, tasks, outcomes, out, pictures, time.perf_counter() - started)


def _finished(job: Job, out: Path) -> Evaluation | None:
    """The evaluation that lies in `out` if it is of this very job; anything else there is cleared for the new one."""
    if (out / "job.json").exists() and durable.read_json(out / "job.json") == to_plain(job):
        return read_config(Evaluation, out / "evaluation.json") if (out / "evaluation.json").exists() else None
    for stale in ("evaluation.json", "episodes.jsonl"):
        (out / stale).unlink(missing_ok=True)
    for stale in ("chunks", "pictures"):
        shutil.rmtree(out / stale, ignore_errors=True)
    write_config(out / "job.json", job)
    return None


# --- workers ------------------------------------------------------------------------------------------------------


def _run_chunks(job: Job, count: int, directory: Path, workers: int) -> list[list[Outcome]]:
    """Outcomes of all chunks, in order; those on disk are not run again."""
    directory.mkdir(exist_ok=True)
    starts = range(0, count, TASKS_PER_CHUNK)
    todo = [start for start in starts if not (directory / f"{start:05d}.json").exists()]
    title = f"evaluate {job.method}"
    with progress(title, count, count - sum(min(TASKS_PER_CHUNK, count - start) for start in todo)) as advance:
        for start, chunk in _in_parallel(job, todo, workers):
            durable.write_json(directory / f"{start:05d}.json", [_plain(outcome) for outcome in chunk])
            advance(len(chunk))
    return [_read_chunk(directory / f"{start:05d}.json") for start in starts]


def _in_parallel(job: Job, todo: list[int], workers: int) -> Iterator[tuple[int, list[Outcome]]]:
    """Chunks as they finish. A pool whose worker died is replaced, and its unfinished chunks are tried again."""
    left = dict.fromkeys(todo, 0)
    while left:
        pool = ProcessPoolExecutor(min(workers, len(left)), multiprocessing.get_context("spawn"), _one_thread, ())
        futures: dict[Future[list[Outcome]], int] = {pool.submit(_work, job, start): start for start in left}
        try:
            waiting = set(futures)
            while waiting:
                ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    yield futures[future], future.result()
                    del left[futures[future]]
        except BrokenProcessPool as error:
            left = {start: tries + 1 for start, tries in left.items()}
            if max(left.values()) > RETRIES:
                raise SaltError(f"evaluation workers keep dying on tasks {min(left)}...; is memory short?") from error
            console.print("a worker died; its tasks are tried again")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _one_thread() -> None:
    """Before torch is imported: one thread per worker is faster, and makes results independent of their number."""
    os.environ["OMP_NUM_THREADS"] = "1"


_policies: dict[Job, tuple[Policy, TaskSet, Any]] = {}


def _work(job: Job, start: int) -> list[Outcome]:
    """In a worker: the outcomes of one chunk. The model is loaded once per process."""
    if job not in _policies:
        _policies[job] = _prepare(job)
    policy, tasks, env = _policies[job]
    return run_tasks(env, tasks.protocol, list(tasks.tasks[start : start + TASKS_PER_CHUNK]), policy, job.frameskip)


def _prepare(job: Job) -> tuple[Policy, TaskSet, Any]:
    import torch

    from saltwm.checkpoint import load

    torch.set_num_threads(1)
    tasks = read_tasks(Path(job.tasks_file))
    world, protocol = tasks.world, tasks.protocol
    env = make_env(
        world.environment, variant=protocol.variant, image_size=world.image_size, render_quality=world.render
    )
    low, high = env.action_space.low, env.action_space.high
    if job.checkpoint is None:
        return RandomPolicy(low, high, steps=job.horizon_blocks * job.frameskip, seed=job.seed), tasks, env
    agent = Agent(
        load(job.checkpoint, world=world),
        job.planner,
        horizon_blocks=job.horizon_blocks,
        action_low=low if protocol.bound_actions else None,
        action_high=high if protocol.bound_actions else None,
        history_frames=job.history_frames,
        seed=job.seed,
    )
    return agent, tasks, env


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {"record": to_plain(outcome.record), "actions": outcome.actions.tolist()}


def _read_chunk(path: Path) -> list[Outcome]:
    def outcome(row: dict[str, Any]) -> Outcome:
        actions: NDArray[np.float32] = np.array(row["actions"], np.float32)
        return Outcome(from_plain(EpisodeRecord, row["record"], str(path)), actions)

    return [outcome(row) for row in durable.read_json(path)]


# --- results ------------------------------------------------------------------------------------------------------


def _publish(job: Job, tasks: TaskSet, outcomes: list[Outcome], out: Path, pictures: int, seconds: float) -> Evaluation:
    from saltwm.evaluation.pictures import film

    records = [outcome.record for outcome in outcomes]
    if [record.task for record in records] != [task.index for task in tasks.tasks]:
        raise SaltError(f"{out}: the records do not cover the tasks; nothing is averaged over holes")
    steps = [record.steps_to_success for record in records if record.steps_to_success is not None]
    evaluation = Evaluation(
        environment=tasks.world.environment,
        method=job.method,
        protocol=tasks.protocol.name,
        horizon_blocks=job.horizon_blocks,
        planner=to_plain(job.planner) if job.checkpoint else {},
        tasks_file=job.tasks_file,
        tasks_sha256=job.tasks_sha256,
        checkpoint=job.checkpoint,
        checkpoint_sha256=job.checkpoint_sha256,
        seed=job.seed,
        success=wilson(sum(record.success for record in records), len(records)),
        median_steps_to_success=float(np.median(steps)) if steps else None,
        seconds=seconds,
    )
    durable.write_text(out / "episodes.jsonl", "".join(durable.json_line(to_plain(record)) for record in records))
    film(tasks, outcomes[:pictures], out / "pictures")
    write_config(out / "evaluation.json", evaluation)
    shutil.rmtree(out / "chunks")
    return evaluation
