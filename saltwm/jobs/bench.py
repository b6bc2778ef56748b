"""Bench: measure speed. A new benchmark is a function in the table below."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from saltwm.disk import durable
from saltwm.ground.checks import one_of
from saltwm.ground.strict_json import to_plain
from saltwm.jobs.job import Aside, AsJson, Job, Maybe, Positional
from saltwm.model.traits import TRANSITIONS

if TYPE_CHECKING:
    from saltwm.bench.timing import Figure
    from saltwm.disk.records import Efficiency

TRAINED = tuple(name for name, traits in TRANSITIONS.items() if not traits.is_frozen)
"""Models whose training is measured: one with a frozen encoder needs another's weights, which are not part of this."""


def _plan(quick: bool) -> "list[Figure]":
    from saltwm.bench.planning import plan_figures

    return plan_figures(horizons=(5,), rounds=1, iterations=2) if quick else plan_figures()


def _train(quick: bool) -> "list[Figure]":
    from saltwm.bench.training import train_figures
    from saltwm.jobs.presets import run_config

    rounds = 4 if quick else 12
    return [f for model in TRAINED for f in train_figures(run_config("cpu", model), rounds=rounds)]


def _collect(quick: bool) -> "list[Figure]":
    from saltwm.bench.data import collect_figures

    return collect_figures(seconds_each=3.0 if quick else 20.0)


def _load(quick: bool) -> "list[Figure]":
    from saltwm.bench.data import load_figures

    return load_figures(episodes=20, rounds=2) if quick else load_figures()


def _explore(quick: bool) -> "list[Figure]":
    from saltwm.bench.explore import explore_figures

    return explore_figures(("two-room",), rounds=5) if quick else explore_figures()


BENCHES: "dict[str, Callable[[bool], list[Figure]]]" = {
    "plan": _plan,
    "train": _train,
    "collect": _collect,
    "load": _load,
    "explore": _explore,
}
"""Name -> the figures it measures; called with `quick`, which trades accuracy for time."""


class Measured(NamedTuple):
    """Figures by benchmark, and the files that they were written to."""

    figures: "dict[str, list[Figure]]"
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Bench(Job):
    """Measure the speed of planning, training, data and the explorer; targets are ratios within one run."""

    name: Positional[str] = "all"
    """plan, train, collect, load, explore, or all of them; efficiency is the paper's Table 2 as one record."""
    out: Aside[Maybe[Path]] = None
    """Directory for a file of figures per benchmark, such as plan.json; nothing is written without it."""
    quick: bool = False
    """A rough look in a minute."""
    json: AsJson = False

    def do(self) -> "Measured | Efficiency":
        """Measure."""
        one_of("benchmark", self.name, [*BENCHES, "all", "efficiency"])
        if self.out is not None:
            durable.check_folder(self.out)
        if self.name == "efficiency":
            return self._efficiency()
        figures, files = dict[str, "list[Figure]"](), list[Path]()
        for name in BENCHES if self.name == "all" else [self.name]:
            figures[name] = BENCHES[name](self.quick)
            files += self._written(plain({name: figures[name]}))  # at once: the next one may fail, or be stopped
        return Measured(figures, tuple(files))

    def _efficiency(self) -> "Efficiency":
        from saltwm.bench.efficiency import efficiency

        quick = {"horizons": (5,), "rounds": 1, "training_rounds": 1} if self.quick else {}
        record = efficiency(**quick)  # type: ignore[arg-type]
        self._written({"efficiency": to_plain(record)})
        return record

    def _written(self, tables: dict[str, Any]) -> tuple[Path, ...]:
        """The files, one for each of the tables; none without a folder for them."""
        if self.out is None:
            return ()
        durable.make_folder(self.out)
        files = {self.out / f"{name}.json": table for name, table in tables.items()}
        for file, table in files.items():
            durable.write_json(file, table)
        return tuple(files)


def plain(figures: "dict[str, list[Figure]]") -> dict[str, list[dict[str, Any]]]:
    """The figures as plain data, each with its verdict."""
    return {name: [dataclasses.asdict(one) | {"met": one.met} for one in some] for name, some in figures.items()}
