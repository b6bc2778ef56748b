"""Run a job once more from the file that it left in its folder."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltwm.ground.config import OwnPlannerConfig
from saltwm.ground.errors import UsageError
from saltwm.jobs.collect import Collect
from saltwm.jobs.data import DataImport, maker
from saltwm.jobs.evaluate import Evaluate, PlannerFlag
from saltwm.jobs.job import Aside, Composite, Job, Maybe, Positional, Some, naming_models, spell
from saltwm.jobs.measures import Decode, Diagnose
from saltwm.jobs.train import Train
from saltwm.planning.names import planner_text

AGAIN = Path("work/again")
"""Where printed commands repeat recorded jobs; in its own folder a finished evaluation would not run again."""
READERS: tuple[Callable[[Path], Any], ...] = (
    maker,
    Train.found_in,
    Evaluate.found_in,
    Diagnose.found_in,
    Decode.found_in,
)
"""Each reads the job of one kind of folder; None where it is not of that kind."""


@dataclass(frozen=True)
class Again(Composite):
    """Run a job once more from the file in its folder: one that was stopped goes on, a finished one is repeated.

    Where several jobs filled the folder, such as diagnose and decode, all of them are run.
    """

    folders: Positional[Some[Path]]
    """Folders that jobs filled: datasets, runs, evaluations, diagnoses, ..."""
    out: Aside[Maybe[Path]] = None
    """Where to repeat them; by default where they were, which finishes what was stopped."""
    planner: Aside[Some[PlannerFlag]] = ()
    """Each module:function of your own that their files name: a file does not run code."""

    def jobs(self) -> list[Job]:
        """The jobs of the folders."""
        if not self.folders:
            raise UsageError("again: name a folder that a job filled: a dataset, a run, an evaluation, a diagnosis")
        found = [job for folder in self.folders for job in jobs_of(folder)]
        for planner in self.planner:
            if planner not in own_planners(found):
                raise UsageError(
                    f"again: no file there names the planner {planner_text(planner)}, and none is exchanged"
                )
        if self.out is None:
            return found
        self._require_room(found)
        return [dataclasses.replace(job, out=self.out) for job in found]

    def _require_room(self, found: list[Any]) -> None:
        """UsageError for two datasets or runs in one folder; evaluations and diagnoses have their own below it."""
        alone = [job for job in found if isinstance(job, Collect | DataImport | Train)]
        if len(alone) > 1:
            raise UsageError(
                f"again: expected one dataset or run for {self.out}, found {len(alone)}; repeat each with its own --out"
            )


def jobs_of(folder: Path) -> list[Any]:
    """The jobs whose files are in the folder; UsageError if there is none."""
    found = [job for job in (read(folder) for read in READERS) if job is not None]
    if not found:
        raise UsageError(f"{folder}: no file of a job is there, so there is nothing to repeat")
    return found


def spell_again(folders: Sequence[Path]) -> str:
    """The command that repeats the jobs of these folders in a folder apart, with the code of a user's that it needs."""
    jobs = [job for folder in folders if (job := Evaluate.found_in(folder)) is not None]
    return naming_models(spell(Again(tuple(folders), AGAIN, own_planners(jobs))))


def own_planners(jobs: Iterable[Any]) -> tuple[OwnPlannerConfig, ...]:
    """The planners of users that these jobs name, each once."""
    planners = (getattr(job, "planner", None) for job in jobs)
    return tuple(dict.fromkeys(planner for planner in planners if isinstance(planner, OwnPlannerConfig)))
