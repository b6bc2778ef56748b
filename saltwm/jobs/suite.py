"""Many cells with one set of processes: resumable, each cell whole or absent, no mean over what is missing."""

import itertools
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from saltwm.disk import durable
from saltwm.disk.dataset import Dataset
from saltwm.disk.records import Evaluation, PlannedCell, TaskSet, read_plan
from saltwm.ground.checks import at_least
from saltwm.ground.config import CEMConfig, PlannerConfig, WorldSpec
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.ground.progress import console
from saltwm.ground.strict_json import differing_fields, to_plain
from saltwm.interop.on_ray import RayWorkers
from saltwm.jobs.cell import CHUNK_SECONDS, evaluate, evaluation_workers, require_own_folder
from saltwm.jobs.evaluate import (
    Request,
    can_plan,
    make_job,
    method_name,
    protocol_of,
    require_possible,
)
from saltwm.processes.pool import Workers

if TYPE_CHECKING:
    from saltwm.disk.checkpoint import CheckpointInfo


@dataclass(frozen=True)
class Suite:
    """Every combination of these, each run on tasks of its world; the random policy is one more method."""

    runs: tuple[Path, ...]
    protocols: tuple[str, ...] = ("paper", "clean")
    """With datasets, like seeds and tasks; a frozen task set brings its own."""
    horizons: tuple[int | None, ...] = (None,)
    """None is each protocol's own."""
    seeds: tuple[int, ...] = (1,)
    planners: tuple[PlannerConfig, ...] = (CEMConfig(),)
    tasks: int | None = None
    random: bool = True
    look_every: int | None = None


def run_suite(
    suite: Suite,
    sources: Sequence[Dataset] | Sequence[TaskSet],
    results: Path,
    *,
    workers: int = 2,
    pictures: int = 4,
    ray: str | None = None,
) -> list[Evaluation]:
    """Evaluate what is not evaluated yet, in the suite's order; what is planned is on disk before anything runs.

    Tasks are chosen from datasets, or are frozen sets as they are. The workers are processes of this machine, or of the
    Ray cluster at the address `ray`.
    """
    pool = _workers(workers, ray)
    at_least("pictures", pictures, 0)
    _require_tasks_for_each(suite, sources)
    requests = [(source, request) for source in sources for request in _requests(suite, source)]
    if not requests:
        raise UsageError("a suite without a method, a protocol or a seed evaluates nothing: give at least one of each")
    for _, request in requests:
        require_possible(request)
    _say_left_out(suite)
    jobs = [make_job(request, source, results) for source, request in requests]
    for job, cell in jobs:
        require_own_folder(job, cell)
    planned = [
        PlannedCell(
            environment=source.world.environment,
            protocol=protocol_of(request, source).name,
            horizon_blocks=job.horizon_blocks,
            method=job.method,
            seed=job.seed,
        )
        for (source, request), (job, _) in zip(requests, jobs, strict=True)
    ]
    _write_plan(Path(results), planned)
    evaluations = []
    with pool:
        for job, cell in jobs:
            evaluations.append(evaluate(job, cell, pool, pictures=pictures))
    return evaluations


def _workers(count: int, ray: str | None) -> Workers | RayWorkers:
    return evaluation_workers(count) if ray is None else RayWorkers(ray, count, item_seconds=CHUNK_SECONDS)


@dataclass(frozen=True)
class _Method:
    """Who acts, by its name in tables: a run with a planner, or the random policy."""

    name: str = "random"
    run: Path | None = None
    planner: PlannerConfig | None = None
    look_every: int | None = None


def _requests(suite: Suite, source: Dataset | TaskSet) -> list[Request]:
    """The cells on a dataset or a task set."""
    methods = _methods(suite, source.world)
    if isinstance(source, TaskSet):
        return [
            Request(
                method.run,
                horizon_blocks=horizon,
                method=method.name,
                planner=method.planner,
                look_every=method.look_every,
            )
            for horizon, method in itertools.product(suite.horizons, methods)
        ]
    return [
        Request(
            method.run,
            protocol,
            suite.tasks,
            seed,
            horizon,
            method=method.name,
            planner=method.planner,
            look_every=method.look_every,
        )
        for protocol, horizon, seed, method in itertools.product(suite.protocols, suite.horizons, suite.seeds, methods)
    ]


def _methods(suite: Suite, world: WorldSpec) -> list[_Method]:
    """Who acts in a world; runs of one model are told apart by their folders."""
    models = {run: _read_info(run).run.model for run in suite.runs if _read_info(run).world == world}
    shared = Counter(model.model for model in models.values())

    def name(run: Path, planner: PlannerConfig) -> str:
        if shared[models[run].model] == 1:
            return method_name(models[run], planner, look_every=suite.look_every)
        words = [Path(os.path.abspath(run)).name]
        words += [] if isinstance(planner, CEMConfig) else [planner.kind]
        words += [] if suite.look_every is None else [f"look{suite.look_every}"]
        return "-".join(words)

    pairs = [(run, planner) for run in models for planner in suite.planners]
    methods = [
        _Method(name(run, planner), run, planner, suite.look_every)
        for run, planner in pairs
        if can_plan(models[run], planner)
    ]
    methods = [_Method(), *methods] if suite.random else methods
    _require_own_names(methods)
    return methods


def _say_left_out(suite: Suite) -> None:
    """One line about the runs that not every planner of the suite can plan with."""
    models = {run: _read_info(run).run.model for run in suite.runs}
    left_out = [run for run, model in models.items() if not all(can_plan(model, planner) for planner in suite.planners)]
    if left_out:
        names = ", ".join(map(str, left_out))
        line = f"left out: gauss-newton with {names}, for it needs a state-affine model (salt)"
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _require_own_names(methods: list[_Method]) -> None:
    by_name: dict[str, _Method] = {}
    for method in methods:
        other = by_name.setdefault(method.name, method)
        if other is not method:
            raise UsageError(
                f"{other.run or 'the random policy'} and {method.run} would both be {method.name!r} in tables and "
                "folders; evaluate one of them alone with saltwm evaluate --method NAME"
            )


def _require_tasks_for_each(suite: Suite, sources: Sequence[Dataset] | Sequence[TaskSet]) -> None:
    if not sources:
        raise UsageError("a suite needs tasks: give datasets or task sets")
    worlds = [source.world for source in sources]
    kind = "task set given with --task-sets" if isinstance(sources[0], TaskSet) else "dataset given with --data"
    for run in suite.runs:
        world = _read_info(run).world
        if world not in worlds:
            nearest = differing_fields(world, worlds[0])
            raise MismatchError(f"{run}: learnt a world that no {kind} is of ({'; '.join(nearest)})")


def _read_info(run: Path) -> "CheckpointInfo":
    from saltwm.disk import checkpoint  # torch, which a suite of random policies does without

    return checkpoint.read_info(checkpoint.find_checkpoint(run))


def _write_plan(results: Path, planned: list[PlannedCell]) -> None:
    """Add to RESULTS/suite.json what is planned now."""
    together = dict.fromkeys([*read_plan(results), *planned])
    durable.write_json(results / "suite.json", [to_plain(cell) for cell in together])
