"""Many cells with one set of processes: resumable, each cell whole or absent, no mean over what is missing."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from saltwm import durable
from saltwm.config import CEMConfig, PlannerConfig, differing_fields, to_plain
from saltwm.data.store import Dataset
from saltwm.errors import MismatchError
from saltwm.evaluation.cell import CHUNK_SECONDS, evaluate, evaluation_workers
from saltwm.evaluation.evaluate import Request, compare_all, make_job
from saltwm.evaluation.on_ray import RayWorkers
from saltwm.evaluation.protocols import protocol_for
from saltwm.records import Evaluation, PlannedCell, read_plan
from saltwm.workers import Workers

if TYPE_CHECKING:
    from saltwm.checkpoint import CheckpointInfo


@dataclass(frozen=True)
class Suite:
    """Every combination of these, each run on the dataset of its world; the random policy is one more method."""

    runs: tuple[Path, ...]
    protocols: tuple[str, ...] = ("paper", "clean")
    horizons: tuple[int | None, ...] = (None,)
    """None is each protocol's own."""
    seeds: tuple[int, ...] = (1,)
    planners: tuple[PlannerConfig, ...] = (CEMConfig(),)
    tasks: int | None = None
    random: bool = True


def run_suite(
    suite: Suite,
    datasets: Sequence[Dataset],
    results: Path,
    *,
    workers: int = 2,
    pictures: int = 4,
    ray: str | None = None,
) -> list[Evaluation]:
    """Evaluate what is not evaluated yet, in the suite's order; what is planned is on disk before anything runs.

    The workers are processes of this machine, or of the Ray cluster at the address `ray`.
    """
    requests = [(dataset, request) for dataset in datasets for request in _requests(suite, dataset)]
    _require_a_dataset_each(suite, datasets)
    jobs = [make_job(request, dataset, results) for dataset, request in requests]
    planned = [
        PlannedCell(
            environment=dataset.world.environment,
            protocol=protocol_for(request.protocol).name,
            horizon_blocks=job.horizon_blocks,
            method=job.method,
            seed=job.seed,
        )
        for (dataset, request), (job, _) in zip(requests, jobs, strict=True)
    ]
    _write_plan(Path(results), planned)
    evaluations = []
    with _workers(workers, ray) as pool:
        for job, cell in jobs:
            evaluations.append(evaluate(job, cell, pool, pictures=pictures))
            compare_all(results)
    return evaluations


def _workers(count: int, ray: str | None) -> Workers | RayWorkers:
    return evaluation_workers(count) if ray is None else RayWorkers(ray, count, item_seconds=CHUNK_SECONDS)


def _requests(suite: Suite, dataset: Dataset) -> list[Request]:
    """The cells on one dataset; runs of one model are told apart by their folders."""
    runs = [run for run in suite.runs if _read_info(run).world == dataset.world]
    models = {run: _read_info(run).run.model.model for run in runs}
    shared = Counter(models.values())

    def name(run: Path, planner: PlannerConfig) -> str | None:
        if shared[models[run]] == 1:
            return None
        return run.name if isinstance(planner, CEMConfig) else f"{run.name}-{planner.kind}"

    methods: list[tuple[Path | None, PlannerConfig, str | None]] = []
    if suite.random:
        methods.append((None, CEMConfig(), None))
    methods += [(run, planner, name(run, planner)) for run in runs for planner in suite.planners]
    return [
        Request(run, protocol, suite.tasks, seed, horizon, method=method, planner=planner)
        for protocol, horizon, seed, (run, planner, method) in itertools.product(
            suite.protocols, suite.horizons, suite.seeds, methods
        )
    ]


def _require_a_dataset_each(suite: Suite, datasets: Sequence[Dataset]) -> None:
    worlds = [dataset.world for dataset in datasets]
    for run in suite.runs:
        world = _read_info(run).world
        if world not in worlds:
            nearest = differing_fields(world, worlds[0])
            raise MismatchError(f"{run}: learnt a world that no dataset given with --data is of ({'; '.join(nearest)})")


def _read_info(run: Path) -> "CheckpointInfo":
    from saltwm import checkpoint  # torch, which a suite of random policies does without

    return checkpoint.read_info(checkpoint.find_checkpoint(run))


def _write_plan(results: Path, planned: list[PlannedCell]) -> None:
    """Add to RESULTS/suite.json what is planned now."""
    together = dict.fromkeys([*read_plan(results), *planned])
    durable.write_json(results / "suite.json", [to_plain(cell) for cell in together])
