"""Suite: many evaluations with one set of processes; resumable, each cell whole or absent."""

import itertools
import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saltwm.disk import durable
from saltwm.disk.records import Evaluation, PlannedCell, TaskSet, read_plan
from saltwm.disk.shipped import data_beside
from saltwm.ground.checks import at_least
from saltwm.ground.config import PlannerConfig, ProtocolName, WorldSpec
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.ground.strict_json import differing_fields, to_plain
from saltwm.jobs.evaluate import (
    Evaluate,
    PlannerFlag,
    Settled,
    can_plan,
    check_options,
    method_name,
    open_source,
    say_unused_history,
    settle,
    shown_history,
)
from saltwm.jobs.job import (
    Aside,
    AsJson,
    Job,
    Maybe,
    MaybeSome,
    Positional,
    ProcessCount,
    RayAddress,
    ResultsFolder,
    Some,
)
from saltwm.model.traits import learnt_name
from saltwm.planning.names import planner_named

if TYPE_CHECKING:
    from saltwm.disk.dataset import Dataset

DEFAULT_PROTOCOLS: tuple[ProtocolName, ...] = ("paper", "clean")
DEFAULT_SEEDS = (1,)
"""What a suite chooses from data by default."""


@dataclass(frozen=True)
class Suite(Job):
    """Evaluate runs and the random policy under several protocols, horizons and seeds; goes on where it stopped."""

    runs: Positional[Some[Path]]
    """Run or checkpoint directories; each is evaluated on the dataset of the world that it learnt."""
    data: Some[Path] = ()
    """Datasets that the tasks are chosen from."""
    task_sets: Some[Path] = ()
    """Frozen tasks instead, such as results/tasks/*.json: they say protocol, seed and number."""
    out: Aside[ResultsFolder] = Path("results")
    protocols: MaybeSome[ProtocolName] = None
    """See saltwm evaluate; paper and clean by default."""
    horizons: Some[int] = ()
    """Planned action blocks; each protocol's own by default."""
    seeds: MaybeSome[int] = None
    """Seeds of the tasks and of the planner; 1 by default, the paper's are 1 2 3."""
    planners: tuple[PlannerFlag, ...] = (planner_named("cem"),)
    """Planners that each run is evaluated with; see saltwm evaluate."""
    look_every: Maybe[int] = None
    """See saltwm evaluate."""
    history: int = 1
    """Frames that LeWM's predictor may look back at; the paper gives it three, its authors' code one."""
    device: str = "cpu"
    """See saltwm evaluate."""
    tasks: Maybe[int] = None
    """Tasks per cell; 50 for paper and long, for clean 100 or as many as there are."""
    no_random: bool = False
    """Skip the random policy."""
    workers: ProcessCount = 2
    ray: RayAddress = None
    pictures: Aside[int] = 4
    """Episodes to film per cell."""
    json: AsJson = False

    def do(self) -> list[Evaluation]:
        """Evaluate what is not evaluated yet, in order; what is planned is on disk before anything runs."""
        from saltwm.jobs.cell import evaluate, evaluation_workers

        pool = evaluation_workers(self.workers, self.ray, self.device)
        at_least("pictures", self.pictures, 0)
        cells = self.cells()
        _say_left_out(self)
        settled = [settle(cell, self.out) for cell in cells]
        for job, _, folder in settled:
            job.require_own(folder)
        say_unused_history(self.history, settled)
        _write_plan(self.out, settled)
        with pool:
            return [evaluate(cell, pool, pictures=self.pictures) for cell in settled]

    def cells(self) -> list[Evaluate]:
        """Every combination, each run on tasks of its world; the random policy is one more method."""
        self._require_one_source()
        sources = [Evaluate("random", data=path, out=self.out) for path in self.data]
        sources += [Evaluate("random", task_set=path, out=self.out) for path in self.task_sets]
        opened = [open_source(source) for source in sources]
        self._require_frames(opened)
        self._require_tasks_for_each([source.world for source in opened])
        cells = [
            replace(method, data=where.data, task_set=where.task_set, **choice)
            for where, source in zip(sources, opened, strict=True)
            for choice, method in itertools.product(self._choices(source), self._methods(source.world))
        ]
        if not cells:
            raise UsageError(
                "a suite without a method, a protocol or a seed evaluates nothing: give at least one of each"
            )
        for cell in cells:
            check_options(cell)
        return cells

    def _choices(self, source: "Dataset | TaskSet") -> list[dict[str, Any]]:
        """Tasks and horizons on a dataset or a task set; None is the protocol's own horizon."""
        horizons = self.horizons or (None,)
        if isinstance(source, TaskSet):
            return [{"horizon": horizon} for horizon in horizons]
        protocols = DEFAULT_PROTOCOLS if self.protocols is None else self.protocols
        seeds = DEFAULT_SEEDS if self.seeds is None else self.seeds
        return [
            {"protocol": protocol, "horizon": horizon, "seed": seed, "tasks": self.tasks}
            for protocol, horizon, seed in itertools.product(protocols, horizons, seeds)
        ]

    def _methods(self, world: WorldSpec) -> list[Evaluate]:
        """Who acts in a world; runs of one model differ by their folders."""
        from saltwm.disk.checkpoint import info_of

        infos = {run: info_of(run) for run in self.runs}
        runs = {run: info.run for run, info in infos.items() if info.world == world}
        models = {run: config.model for run, config in runs.items()}
        shared = Counter(map(learnt_name, runs.values()))

        def name(run: Path, planner: PlannerConfig) -> str:
            model = learnt_name(runs[run])
            words = model if shared[model] == 1 else Path(os.path.abspath(run)).name
            return method_name(words, planner, shown_history(models[run], self.history), self.look_every)

        methods = [] if self.no_random else [Evaluate("random", method="random", out=self.out)]
        methods += [
            Evaluate(
                str(run),
                planner=planner,
                look_every=self.look_every,
                history=shown_history(models[run], self.history),
                device=self.device,
                method=name(run, planner),
                out=self.out,
            )
            for run, planner in itertools.product(models, self.planners)
            if can_plan(models[run], planner)
        ]
        _require_own_names(methods)
        return methods

    def _require_one_source(self) -> None:
        if bool(self.data) == bool(self.task_sets):
            beside = {data_beside(str(run)): None for run in self.runs if not self.data}
            shipped = " ".join(filter(None, beside)) if all(beside) else ""
            hint = f"; what is shipped for these models is --data {shipped}" if shipped else ""
            raise UsageError(f"tasks come from --data DATASETS or from --task-sets FILES: give one of the two{hint}")
        for option in ("protocols", "seeds", "tasks"):
            if self.task_sets and getattr(self, option) is not None:
                raise UsageError(f"--{option} chooses tasks from --data; task sets bring their own: leave it out")

    def _require_frames(self, opened: "list[Dataset | TaskSet]") -> None:
        """UsageError for a task set whose pictures are in a dataset: a suite has no place to name both."""
        for path, source in zip(self.task_sets, opened[len(self.data) :], strict=True):
            if isinstance(source, TaskSet) and source.world.renderer == "imported":
                raise UsageError(
                    f"{path}: its tasks start at pictures of an imported dataset ({source.dataset_sha256[:12]}), which "
                    f"a task set does not hold; give the suite that dataset with --data, or evaluate one method at a "
                    f"time: saltwm evaluate RUN --data DATASET --task-set {path}"
                )

    def _require_tasks_for_each(self, worlds: list[WorldSpec]) -> None:
        from saltwm.disk.checkpoint import info_of

        kind = "task set given with --task-sets" if self.task_sets else "dataset given with --data"
        for run in self.runs:
            world = info_of(run).world
            if world not in worlds:
                nearest = differing_fields(world, worlds[0])
                raise MismatchError(f"{run}: learnt a world that no {kind} is of ({'; '.join(nearest)})")


def _say_left_out(suite: Suite) -> None:
    """One line about the runs that not every planner of the suite can plan with."""
    from saltwm.disk.checkpoint import info_of
    from saltwm.ground.progress import note

    models = {run: info_of(run).run.model for run in suite.runs}
    left_out = [run for run, model in models.items() if not all(can_plan(model, planner) for planner in suite.planners)]
    if left_out:
        names = ", ".join(map(str, left_out))
        note(f"left out: gauss-newton and map with {names}, for they need a state-affine model (salt)")


def _require_own_names(methods: list[Evaluate]) -> None:
    by_name: dict[str | None, Evaluate] = {}
    for method in methods:
        other = by_name.setdefault(method.method, method)
        if other is not method:
            raise UsageError(
                f"{other.run} and {method.run} would both be {method.method!r} in tables and folders; evaluate one of "
                "them alone with saltwm evaluate --method NAME"
            )


def _write_plan(results: Path, settled: list[Settled]) -> None:
    """Add to RESULTS/suite.json what is planned now."""
    planned = [
        PlannedCell(
            environment=tasks.world.environment,
            protocol=tasks.protocol.name,
            horizon_blocks=job.horizon or tasks.protocol.horizon_blocks,
            method=job.method or job.run,
            seed=tasks.seed,
        )
        for job, tasks, _ in settled
    ]
    together = dict.fromkeys([*read_plan(results), *planned])
    durable.write_json(results / "suite.json", [to_plain(cell) for cell in together])
