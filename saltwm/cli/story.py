"""Verbs about the whole: the machine, and an environment from nothing to its report."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from saltwm.cli.acting import Diagnose, Report, Suite
from saltwm.cli.data import Collect
from saltwm.cli.learning import Train
from saltwm.cli.printing import next_command, print_results, say, spell
from saltwm.config import ModelName

PICTURES = 3
"""Episodes filmed per evaluation: a row of the report."""


@dataclass(frozen=True)
class Reproduce:
    """Collect, train, evaluate, diagnose and report an environment from nothing; goes on where it stopped."""

    environment: tyro.conf.Positional[str]
    """two-room, push-t, reacher, cube or cube-double."""
    out: Path
    """Directory for everything."""
    preset: Literal["cpu", "quick"] = "cpu"
    """quick: SALT and random in minutes; cpu: SALT, LeWM and random."""
    workers: int = 2
    """Processes for collecting and evaluating."""

    def run(self) -> None:
        """The verbs one after another; each can be run by hand as printed."""
        for verb in self.verbs():
            say(f"\n[bold]$ {spell(verb)}[/bold]")
            verb.run()
        print_results(self.out / "results")
        next_command(f"open {self.out / 'report' / 'index.html'} in a browser")

    def verbs(self) -> Iterator[Any]:
        """What will be run, in order."""
        from saltwm.presets import recipe

        plan = recipe(self.preset, self.environment)
        data, results = self.out / "data", self.out / "results"
        yield Collect(
            self.environment,
            data,
            plan.episodes,
            policy=plan.policy,
            image_size=plan.image_size,
            frame_every=plan.frame_every,
            workers=self.workers,
        )
        models: tuple[ModelName, ...] = ("salt",) if self.preset == "quick" else ("salt", "lewm")
        runs = [self.out / "runs" / f"{self.environment}-{model}" for model in models]
        for run, model in zip(runs, models, strict=True):
            yield Train(data, run, self.preset, model, steps=plan.steps)
        for asked in plan.questions:
            yield Suite(
                tuple(runs),
                (data,),
                results,
                protocols=asked.protocols,
                horizons=asked.horizons,
                seeds=asked.seeds,
                tasks=asked.tasks,
                workers=self.workers,
                pictures=PICTURES,
            )
        for run in runs:
            yield Diagnose(run, data, results)
        yield Report(results, self.out / "report")


@dataclass(frozen=True)
class Doctor:
    """Check the machine: versions, threads, devices, renderers; what is missing and how to get it."""

    json: bool = False
    """Print as JSON."""

    def run(self) -> None:
        """Print the findings."""
        from saltwm.doctor import examine

        findings = examine()
        if self.json:
            print(json.dumps([dataclasses.asdict(finding) for finding in findings]))
            return
        from rich.table import Table

        table = Table("what", "found", "what to do", box=None, header_style="bold")
        for finding in findings:
            table.add_row(finding.what, finding.found, finding.remedy)
        say(table)
