"""One method on one task set: spread over processes, resumable, recorded to disk.

A worker does a chunk of tasks at a time with one thread, so that records are the same bytes whatever the number of
workers. Finished chunks are kept beside the result until all are there; a lost worker costs a retry of its chunk.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from saltwm.disk import checkpoint, durable
from saltwm.disk.arrays import write_npy
from saltwm.disk.durable import read_config, write_config
from saltwm.disk.records import Evaluation
from saltwm.evaluation.rollout import Outcome, run_tasks
from saltwm.evaluation.statistics import wilson
from saltwm.ground.errors import DamagedError, SaltError, UsageError
from saltwm.ground.progress import progress
from saltwm.ground.strict_json import to_plain
from saltwm.jobs.chunks import TASKS_PER_CHUNK, Chunks, chunk_of, chunk_writer, read_chunk, surroundings
from saltwm.jobs.evaluate import FRAMESKIP, MODELLESS, Acting, Settled
from saltwm.jobs.imagined import imagination
from saltwm.jobs.pictures import film
from saltwm.jobs.variants import variant_of
from saltwm.planning.policy import Policy
from saltwm.processes.pool import Pool, Workers, work_off

if TYPE_CHECKING:
    from saltwm.interop.on_ray import RayWorkers

PLAN_SECONDS = 3600.0
"""A worker that finishes no plan within this time counts as hung; a large LeWM needs minutes on a CPU."""
CHUNK_SECONDS = 6 * PLAN_SECONDS
"""On Ray, where plans are not reported, a chunk may take this long; an episode of `long` has six plans."""
SECONDS_FILE = "seconds"
"""Beside the chunks: the wall time that they took so far."""


def evaluation_workers(count: int, ray: str | None = None, device: str = "cpu") -> "Workers | RayWorkers":
    """Processes for `evaluate`, here or on a Ray cluster; the cells of a suite share them, for each imports torch."""
    if ray is None:
        return Workers(count, chunk_writer, part_seconds=PLAN_SECONDS)
    if device != "cpu":
        raise UsageError("on a Ray cluster models plan on the processors of its nodes: leave out --device")
    from saltwm.interop.on_ray import RayWorkers

    return RayWorkers(ray, count, Chunks(), item_seconds=CHUNK_SECONDS)


def evaluate(settled: Settled, pool: Pool, *, pictures: int = 4) -> Evaluation:
    """Run the job, or what is left of it, into its folder; an evaluation that is there is returned."""
    job, tasks, out = settled
    with durable.only_writer(out, "evaluate"):
        job.claim(out)
        if (out / "evaluation.json").exists():
            return read_config(Evaluation, out / "evaluation.json")
        outcomes = _run_chunks(job, len(tasks.tasks), out / "chunks", pool)
        return _publish(settled, outcomes, pictures, _read_seconds(out / "chunks"))


def evaluate_here(settled: Settled, policy: Policy, *, pictures: int = 4) -> Evaluation:
    """Run `policy` in this process. Earlier results are discarded: we cannot tell whether the policy has changed."""
    job, tasks, out = settled
    with durable.only_writer(out, "evaluate"):
        job.claim(out)
        (out / "evaluation.json").unlink(missing_ok=True)
        shutil.rmtree(out / "pictures", ignore_errors=True)
        started = time.perf_counter()
        env, look = surroundings(job, tasks)
        outcomes = []
        with contextlib.closing(env), progress(f"evaluate {job.method}", len(tasks.tasks)) as advance:
            for start in range(0, len(tasks.tasks), TASKS_PER_CHUNK):
                chunk = chunk_of(tasks, start)
                outcomes += run_tasks(env, tasks.protocol, chunk, policy, FRAMESKIP, look)
                advance(len(chunk))
        return _publish(settled, outcomes, pictures, time.perf_counter() - started)


# --- chunks ----------------------------------------------------------------------------------------------------------


def _run_chunks(job: Acting, count: int, directory: Path, pool: Pool) -> list[Outcome]:
    """Outcomes of all tasks, in order; chunks that are on disk are not run again."""
    durable.make_folder(directory)
    durable.remove_leftovers(directory)
    files = {start: directory / f"{start:05d}.json" for start in range(0, count, TASKS_PER_CHUNK)}
    todo = [(job, start, file) for start, file in files.items() if not file.exists()]
    sizes = {start: min(TASKS_PER_CHUNK, count - start) for start in files}
    done = count - sum(sizes[start] for _, start, _ in todo)
    with _timed(directory) as note_time, progress(f"evaluate {job.method}", count, done) as advance:
        for event in filter(None, work_off(pool, todo, lambda item: f"{directory.parent}: tasks {item[1]}...")):
            if event.kind == "done":
                note_time()
                advance(sizes[event.item[1]])
    return [outcome for file in files.values() for outcome in read_chunk(file)]


@contextlib.contextmanager
def _timed(directory: Path) -> Iterator[Callable[[], None]]:
    """Yield what writes down the wall time of all sessions so far; it is called at the end too, unless by SIGKILL."""
    before, started = _read_seconds(directory), time.perf_counter()

    def note_time() -> None:
        durable.write_json(directory / SECONDS_FILE, before + time.perf_counter() - started)

    try:
        yield note_time
    finally:
        note_time()


def _read_seconds(directory: Path) -> float:
    """Wall time of all sessions on these chunks; a killed one counts up to its last finished chunk."""
    path = directory / SECONDS_FILE
    seconds = durable.read_json(path) if path.exists() else 0.0
    if not isinstance(seconds, float):
        raise DamagedError(f"{path}: expected a number of seconds, found {seconds!r:.40}; remove it and go on")
    return seconds


# --- results ---------------------------------------------------------------------------------------------------------


def _publish(settled: Settled, outcomes: list[Outcome], pictures: int, seconds: float) -> Evaluation:
    job, tasks, out = settled
    assert job.method is not None
    assert job.horizon is not None
    records = [outcome.record for outcome in outcomes]
    if [record.task for record in records] != [task.index for task in tasks.tasks]:
        raise SaltError(f"{out}: the records do not cover the tasks; evaluate again into an empty folder")
    steps = [record.steps_to_success for record in records if record.steps_to_success is not None]
    evaluation = Evaluation(
        environment=tasks.world.environment,
        method=job.method,
        protocol=tasks.protocol.name,
        horizon_blocks=job.horizon,
        planner=to_plain(job.planner) if job.planner else {},
        tasks_file=f"tasks/{job.task_set.name}" if job.task_set else "",
        tasks_sha256=tasks.sha256,
        checkpoint=None if job.run in MODELLESS else job.run,
        checkpoint_sha256=None if job.run in MODELLESS else job.inputs["run"],
        seed=tasks.seed,
        success=wilson(sum(record.success for record in records), len(records)),
        median_steps_to_success=float(np.median(steps)) if steps else None,
        seconds=seconds,
        look_every=job.look_every,
        variant=None if job.run in MODELLESS else variant_of(checkpoint.read_info(Path(job.run))),
        history_frames=job.history,
        prior_sha256=job.inputs.get("prior"),
    )
    durable.write_text(out / "episodes.jsonl", "".join(durable.json_line(to_plain(record)) for record in records))
    actions = np.concatenate([outcome.actions.reshape(-1, tasks.world.action_dim) for outcome in outcomes])
    write_npy(out / "actions.npy", actions)
    film(tasks, outcomes[:pictures], out / "pictures", partial(imagination, job, tasks, outcomes))
    write_config(out / "evaluation.json", evaluation)
    shutil.rmtree(out / "chunks", ignore_errors=True)
    return evaluation
