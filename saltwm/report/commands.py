"""The commands that evaluate recorded cells again: the very tasks, the same settings, a folder of their own."""

import itertools
import shlex
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from saltwm.disk import durable
from saltwm.disk.records import Cell, Evaluation
from saltwm.evaluation.protocols import PROTOCOLS
from saltwm.ground.config import PlannerConfig
from saltwm.ground.strict_json import to_plain

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)

AGAIN = Path("work/again")
"""Never the folder of the records themselves: there a finished evaluation is not done again."""
HOW_TO_COMPARE = (
    f"The commands write the same records into `{AGAIN}`: on the same machine the `episodes.jsonl` of an evaluation "
    "has the same bytes, which `cmp` shows."
)


@dataclass(frozen=True)
class _Grid:
    """What one suite evaluates its checkpoints on: every task set with every horizon."""

    environment: str
    protocol: str
    planner: str
    tasks_files: tuple[str, ...]
    horizons: tuple[int, ...]

    @property
    def places(self) -> set[tuple[str, int]]:
        return set(itertools.product(self.tasks_files, self.horizons))


def evaluation_commands(results: Path, cells: Iterable[Cell]) -> list[str]:
    """What evaluates exactly these cells of `results` again: suites where they can, single evaluations elsewhere."""
    cells = list(cells)
    suites = _suites(cell.evaluation for cell in cells if _is_of_a_suite(results, cell))
    randoms = {_place(cell.evaluation) for cell in cells if cell.evaluation.method == "random"}
    covered = {place for grid in suites if grid.places <= randoms for place in grid.places}
    commands = [_suite(results, grid, runs, random=grid.places <= randoms) for grid, runs in suites.items()]
    for cell in cells:
        if cell.evaluation.method == "random":
            commands += [] if _place(cell.evaluation) in covered else [_evaluate(results, cell)]
        elif not _is_of_a_suite(results, cell):
            commands.append(_evaluate(results, cell))
    return commands


def _suites(evaluations: Iterable[Evaluation]) -> dict[_Grid, tuple[str, ...]]:
    """Checkpoints by what they were all evaluated on, so that a suite of them does that and no more."""
    tasks_files = _gathered(
        (((e.environment, e.protocol, str(e.planner["kind"])), str(e.checkpoint), e.horizon_blocks), e.tasks_file)
        for e in evaluations
    )
    horizons = _gathered(((where, run, files), horizon) for (where, run, horizon), files in tasks_files.items())
    return _gathered((_Grid(*where, files, blocks), run) for (where, run, files), blocks in horizons.items())


def _gathered(pairs: Iterable[tuple[K, V]]) -> dict[K, tuple[V, ...]]:
    """The values of each key, once each, in the order in which they came."""
    found: dict[K, dict[V, None]] = {}
    for key, value in pairs:
        found.setdefault(key, {})[value] = None
    return {key: tuple(values) for key, values in found.items()}


def _suite(results: Path, grid: _Grid, checkpoints: Iterable[str], *, random: bool) -> str:
    words: list[object] = ["saltwm", "suite", *checkpoints]
    words += ["--task-sets", *(results / file for file in grid.tasks_files)]
    words += [] if grid.horizons == (_own_horizon(grid.protocol),) else ["--horizons", *grid.horizons]
    words += [] if grid.planner == "cem" else ["--planners", grid.planner]
    words += [] if random else ["--no-random"]
    return _line(*words, "--out", AGAIN)


def _evaluate(results: Path, cell: Cell) -> str:
    e = cell.evaluation
    settings = _planner_options(e.planner)
    if settings is None or (e.checkpoint is None and e.method != "random"):
        return f"# {cell.name}: evaluated from Python, with what no option of saltwm evaluate says; see its job.json"
    words: list[object] = ["saltwm", "evaluate", e.checkpoint or "random", "--task-set", results / e.tasks_file]
    words += [] if e.horizon_blocks == _own_horizon(e.protocol) else ["--horizon", e.horizon_blocks]
    words += settings
    history = _history(results, cell)
    words += [] if history == 1 else ["--history", history]
    words += [] if e.look_every is None else ["--look-every", e.look_every]
    words += [] if e.method in _default_names(e) else ["--method", e.method]
    return _line(*words, "--out", AGAIN)


def _line(*words: object) -> str:
    return shlex.join(map(str, words))


def _planner_options(planner: dict[str, Any]) -> list[object] | None:
    """The options that give this planner; none where there are no such options."""
    if not planner:
        return []
    kind = planner["kind"]
    default = _default_planner(kind)
    if planner.keys() != default.keys():
        return None
    changed = [f"{name}={value}" for name, value in planner.items() if value != default[name]]
    return [] if kind == "cem" and not changed else ["--planner", ",".join([kind, *changed])]


def _is_of_a_suite(results: Path, cell: Cell) -> bool:
    """Whether a suite of its checkpoint gives this cell: a usual planner, one context frame, the model's own name."""
    e = cell.evaluation
    return (
        e.checkpoint is not None
        and e.planner == _default_planner(e.planner["kind"])
        and e.method in _default_names(e)
        and _history(results, cell) == 1
        and e.look_every is None
    )


def _default_planner(kind: str) -> dict[str, Any]:
    return next((to_plain(planner()) for planner in get_args(PlannerConfig) if planner.kind == kind), {})


def _default_names(evaluation: Evaluation) -> tuple[str, ...]:
    """What an evaluation may be called without --method."""
    if evaluation.checkpoint is None:
        return ("random",)
    kind = evaluation.planner["kind"]
    look = "" if evaluation.look_every is None else f"-look{evaluation.look_every}"
    return tuple((model if kind == "cem" else f"{model}-{kind}") + look for model in ("salt", "lewm"))


def _history(results: Path, cell: Cell) -> int:
    """Context frames that the model was given, which the job says; one where there is no job."""
    job = results / "evaluations" / cell.name / "job.json"
    return _frames(durable.read_json(job)) if job.exists() else 1


def _own_horizon(protocol: str) -> int | None:
    """What is planned without --horizon; none for a variation, where it is always said."""
    return PROTOCOLS[protocol].horizon_blocks if protocol in PROTOCOLS else None


def _place(evaluation: Evaluation) -> tuple[str, int]:
    return evaluation.tasks_file, evaluation.horizon_blocks


def _frames(job: dict[str, Any]) -> int:
    return int(job.get("history", job.get("history_frames", 1)))
