"""The verb that measures speed. A new benchmark is a function in the table below."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from saltwm.cli.printing import Maybe, say, show
from saltwm.disk import durable
from saltwm.ground.checks import one_of
from saltwm.jobs.job import Job
from saltwm.model.traits import TRANSITIONS

if TYPE_CHECKING:
    from saltwm.bench.timing import Figure


def _plan(quick: bool) -> "list[Figure]":
    from saltwm.bench.planning import plan_figures

    return plan_figures(horizons=(5,), rounds=1, iterations=2) if quick else plan_figures()


def _train(quick: bool) -> "list[Figure]":
    from saltwm.bench.training import train_figures
    from saltwm.jobs.presets import run_config

    rounds = 4 if quick else 12
    return [f for model in TRANSITIONS for f in train_figures(run_config("cpu", model), rounds=rounds)]


def _collect(quick: bool) -> "list[Figure]":
    from saltwm.bench.data import collect_figures

    return collect_figures(seconds_each=3.0 if quick else 20.0)


def _load(quick: bool) -> "list[Figure]":
    from saltwm.bench.data import load_figures

    return load_figures(episodes=20, rounds=2) if quick else load_figures()


def _explore(quick: bool) -> "list[Figure]":
    from saltwm.bench.explore import explore_figures

    return explore_figures(rounds=5) if quick else explore_figures()


BENCHES: "dict[str, Callable[[bool], list[Figure]]]" = {
    "plan": _plan,
    "train": _train,
    "collect": _collect,
    "load": _load,
    "explore": _explore,
}
"""Name -> the figures it measures; called with `quick`, which trades accuracy for time."""


@dataclass(frozen=True)
class Bench(Job):
    """Measure speed; what is wanted of a figure is a ratio within this run, so it holds on any machine."""

    VERB = "bench"

    job: tyro.conf.Positional[str] = "all"
    """plan, train, collect, load, explore, or all of them; efficiency is the paper's Table 2 as one record."""
    out: Maybe[Path] = None
    """Directory for a file of figures per benchmark, such as plan.json; nothing is written without it."""
    quick: bool = False
    """A rough look in a minute."""
    json: bool = False
    """Print the figures as JSON."""

    def do(self) -> None:
        """Measure and print."""
        one_of("benchmark", self.job, [*BENCHES, "all", "efficiency"])
        if self.out is not None:
            durable.check_folder(self.out)
        if self.job == "efficiency":
            self._efficiency()
            return
        measured = {name: BENCHES[name](self.quick) for name in (BENCHES if self.job == "all" else [self.job])}
        plain = {
            name: [dataclasses.asdict(figure) | {"met": figure.met} for figure in figures]
            for name, figures in measured.items()
        }
        if self.out is not None:
            self._write(plain, self.out)
        if self.json:
            print(json.dumps(plain))
            return
        for figures in measured.values():
            say(_table(figures))
        if self.out is not None:
            say(f"written: {', '.join(str(self.out / f'{name}.json') for name in plain)}")

    def _efficiency(self) -> None:
        from saltwm.bench.efficiency import efficiency
        from saltwm.ground.strict_json import to_plain

        quick = {"horizons": (5,), "rounds": 1, "training_rounds": 1} if self.quick else {}
        record = to_plain(efficiency(**quick))  # type: ignore[arg-type]
        if self.out is not None:
            durable.make_folder(self.out)
            durable.write_json(self.out / "efficiency.json", record)
        if self.json:
            print(json.dumps(record))
            return
        for row in record["predictors"]:
            show(False, {name: value for name, value in row.items() if name != "planning"})
        say(record["how"] if self.out is None else f"written: {self.out / 'efficiency.json'}")

    def _write(self, plain: dict[str, list[dict[str, object]]], out: Path) -> None:
        durable.make_folder(out)
        for name, figures in plain.items():
            durable.write_json(out / f"{name}.json", figures)


def _table(figures: "list[Figure]") -> object:
    from rich.table import Table

    table = Table("what", "measured", "wanted", "", "note", box=None, header_style="bold")
    table.columns[1].justify = "right"
    for figure in figures:
        wanted = [f">= {figure.at_least:g}"] if figure.at_least is not None else []
        wanted += [f"<= {figure.at_most:g}"] if figure.at_most is not None else []
        verdict = {None: "", True: "met", False: "MISSED"}[figure.met]
        table.add_row(figure.what, f"{figure.value:.3g} {figure.unit}", " ".join(wanted), verdict, figure.note)
    return table
