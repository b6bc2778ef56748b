"""Reproduce: an environment, or all of them, from nothing to the report."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from saltwm.disk import durable
from saltwm.disk.records import Stage, read_stages
from saltwm.evaluation.lineup import HISTORY
from saltwm.ground.checks import at_least, one_of
from saltwm.ground.config import CEMConfig, ImitationConfig, MapConfig, ModelName
from saltwm.ground.errors import UsageError
from saltwm.ground.progress import note
from saltwm.ground.strict_json import to_plain
from saltwm.jobs.data import DataImport
from saltwm.jobs.evaluate import method_name
from saltwm.jobs.job import Aside, Composite, Job, Maybe, Positional, spell
from saltwm.jobs.measures import Decode, Diagnose
from saltwm.jobs.pages import Anatomy, Report, Results
from saltwm.jobs.recipes import RECIPES, recipe
from saltwm.jobs.suite import DEFAULT_PROTOCOLS, Suite
from saltwm.jobs.train import Train

PUBLIC = ("two-room", "push-t", "reacher", "cube")
"""Environments that the benchmark has public files of."""
DRY_STEPS, DRY_BATCH = 2, 2
PICTURES = 3
"""Episodes filmed per evaluation: a row of the report."""
LEWM = method_name("lewm", CEMConfig(), HISTORY, None)
"""What the suites call LeWM, which plans with the paper's three frames (App. B.5)."""


@dataclass(frozen=True)
class Reproduce(Composite):
    """Collect, train, evaluate, diagnose and report an environment, or all, from nothing; goes on where it stopped.

    SALT also gets an action prior, and is evaluated with it and a look after each block.
    """

    environment: Positional[str]
    """two-room, push-t, reacher, cube or cube-double; or all of the preset, one after another."""
    out: Aside[Path]
    """Directory for everything: data, runs, results and report; for all, data and runs stand in a folder for each."""
    preset: Literal["full-size", "cpu", "quick"] = "cpu"
    """quick: SALT and random in minutes; cpu: SALT, LeWM and random; full-size: the paper's sizes, on a public file."""
    source: Maybe[Path] = None
    """full-size: the public benchmark's file of the environment, which is imported (docs/data.md)."""
    accelerator: str = "auto"
    """full-size: where to train, plan and measure: cpu, gpu, mps, ...; auto takes the best there is."""
    dry_run: bool = False
    """full-size: a few steps and one task instead, to see that everything runs."""
    workers: Aside[int] = 2
    """Processes for collecting and evaluating."""

    def jobs(self) -> Iterator[Job]:
        """Each environment in turn, then what is made of all together."""
        at_least("workers", self.workers)
        for environment in self.environments():
            yield from self.of(environment)
        yield from self.closing()

    @contextlib.contextmanager
    def around(self, job: Job) -> Iterator[None]:
        """Time what is made of nothing; say what the trainings will take once their data are there."""
        whose = next((name for name in self.environments() if job in self.of(name)), None)
        with contextlib.nullcontext() if whose is None else timed(self.results, whose, spell(job)):
            yield
        if isinstance(job, DataImport):
            note(self.estimate(job.out))

    @property
    def results(self) -> Path:
        """One folder for all environments, so that the report shows them side by side."""
        return self.out / "results"

    def environments(self) -> list[str]:
        """What is reproduced, in the paper's order."""
        from saltwm.report.tables import environment_order

        if self.preset == "full-size":
            return [self._papers_environment()]
        if self.source is not None or self.dry_run:
            raise UsageError("--source and --dry-run are for --preset full-size; other presets collect their own data")
        if self.accelerator != Reproduce.accelerator:
            raise UsageError("--accelerator is for --preset full-size; others take the best there is: leave it out")
        if self.environment != "all":
            return [self.environment]
        return sorted((name for preset, name in RECIPES if preset == self.preset), key=environment_order)

    def models(self) -> tuple[ModelName, ...]:
        """What is trained."""
        return ("salt",) if self.preset == "quick" else ("salt", "lewm")

    def _papers_environment(self) -> str:
        one_of("environment with public files", self.environment, PUBLIC)
        if self.source is None:
            raise UsageError(
                "--preset full-size trains on the public benchmark's data: give its file for "
                f"{self.environment} with --source FILE (docs/data.md)"
            )
        return self.environment

    def estimate(self, data: Path) -> str:
        """What the trainings ahead will take, measured here, and on the paper's accelerator by its own rates."""
        from saltwm.bench.cost import training_cost
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.presets import run_config

        dataset = Dataset.open(data, verify="sizes")
        return "\n".join(training_cost(run_config("paper", model), dataset) for model in self.models())

    def _at_the_papers_size(self, environment: str) -> Iterator[Job]:
        """The paper's sizes on the paper's data: its protocol with its three seeds, its decoder."""
        data, small = self.out / "data", self.dry_run
        assert self.source is not None
        yield DataImport(self.source, env=environment, out=data)
        runs = [self.out / "runs" / f"{environment}-{model}" for model in self.models()]
        size = {"steps": DRY_STEPS, "batch_size": DRY_BATCH} if small else {}
        for run, model in zip(runs, self.models(), strict=True):
            yield Train(data, run, "full-size", model, accelerator=self.accelerator, **size)  # type: ignore[arg-type]
        yield Suite(
            tuple(runs[:1] if small else runs),  # a plan of LeWM's takes minutes on a CPU
            (data,),
            out=self.results,
            protocols=("paper",),
            history=HISTORY,  # App. B.5
            seeds=(1,) if small else (1, 2, 3),  # App. B.5
            tasks=1 if small else 50,
            device=self.accelerator,
            workers=self.workers,
            pictures=1 if small else PICTURES,
        )
        few = {"horizon": 2, "windows": (2,), "trajectories": 2, "batches": 1, "frames": 8} if small else {}
        for run in runs:
            yield Diagnose(run, data, self.results, device=self.accelerator, **few)  # type: ignore[arg-type]
        if not small:
            yield Decode(runs[0], data, self.results, decoder="attention", device=self.accelerator)

    def of(self, environment: str) -> Iterator[Job]:
        """What is done for one environment, in order."""
        if self.preset == "full-size":
            yield from self._at_the_papers_size(environment)
            return
        usual = recipe(self.preset, environment)
        home = self.out / environment if self.environment == "all" else self.out
        data = home / "data"
        yield replace(usual.collect, out=data, workers=self.workers)
        runs = tuple(home / "runs" / f"{environment}-{model}" for model in self.models())
        for run, model in zip(runs, self.models(), strict=True):
            yield replace(usual.train, dataset=data, out=run, model=model)
        yield replace(usual.prior, run=runs[0], data=data)
        suites = [
            replace(suite, runs=runs, data=(data,), out=self.results, workers=self.workers, pictures=PICTURES)
            for suite in usual.suites
        ]
        yield from suites
        yield replace(
            next(suite for suite in suites if "clean" in (suite.protocols or DEFAULT_PROTOCOLS)),
            runs=runs[:1],
            protocols=("clean",),
            planners=(MapConfig(), ImitationConfig()),
            look_every=1,
            no_random=True,
        )
        for run in runs:
            yield Diagnose(run, data, self.results)
        if self.preset != "quick":
            yield Decode(runs[0], data, self.results)

    def closing(self) -> Iterator[Job]:
        """What is made of everything together."""
        if "lewm" in self.models() and not self.dry_run:
            yield Anatomy(self.results, "salt", LEWM, self.out / "anatomy")
        yield Report(self.results, self.out / "report")
        yield Results(self.results, self.out / "results.md")


@contextlib.contextmanager
def timed(results: Path, environment: str, command: str) -> Iterator[None]:
    """Add the wall time of what is done inside to RESULTS/stages.json.

    A step that was finished before is not timed again: repeating it only finds that there is nothing to do. A session
    that was killed, rather than stopped, counts as one but without its time.
    """
    stages = {(stage.environment, stage.command): stage for stage in read_stages(results)}
    stage = stages.get((environment, command), Stage(environment, command, 0.0, 0, finished=False))
    if stage.finished:
        yield
        return

    def write(changed: Stage) -> None:
        stages[environment, command] = changed
        durable.write_json(results / "stages.json", [to_plain(one) for one in stages.values()])

    durable.make_folder(results)
    write(replace(stage, sessions=stage.sessions + 1))
    started, finished = time.perf_counter(), False
    try:
        yield
        finished = True
    finally:
        seconds = stage.seconds + time.perf_counter() - started
        write(Stage(environment, command, seconds, stage.sessions + 1, finished))
