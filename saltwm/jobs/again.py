"""Run a job once more from the file that it left in its folder."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltwm.ground.errors import UsageError
from saltwm.jobs.data import maker
from saltwm.jobs.evaluate import Evaluate
from saltwm.jobs.job import Aside, Job, Maybe, Positional
from saltwm.jobs.train import Train

READERS: tuple[Callable[[Path], Any], ...] = (maker, Train.found_in, Evaluate.found_in)
"""Each reads the job of one kind of folder; None where it is not of that kind."""


@dataclass(frozen=True)
class Again(Job):
    """Run a job once more from the file in its folder: one that was stopped goes on, a finished one is repeated."""

    VERB = "again"

    folder: Positional[Path]
    """Folder that the job filled: a dataset, a run, an evaluation, ..."""
    out: Aside[Maybe[Path]] = None
    """Where to repeat it; by default where it was, which finishes what was stopped."""

    def job(self) -> Job:
        """The job of the folder."""
        found: Job | None = next(filter(None, (read(self.folder) for read in READERS)), None)
        if found is None:
            raise UsageError(f"{self.folder}: no file of a job is there, so there is nothing to repeat")
        return found if self.out is None else dataclasses.replace(found, out=self.out)  # type: ignore[call-arg]
