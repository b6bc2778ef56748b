"""Success rates as rows: the same ones for the page, the terminal and JSON."""

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saltwm.disk.records import Cell, Evaluation, ModelVariant, PlannedCell, Probe, Rate, name_of_run
from saltwm.evaluation.contests import (
    Comparison,
    Contested,
    contest_of,
    has_usual_planner,
    have_several_priors,
    method_key,
    method_of,
    training_seed,
)
from saltwm.evaluation.protocols import PROTOCOLS
from saltwm.evaluation.statistics import OverSeeds, over_seeds, over_tasks
from saltwm.ground.strict_json import to_plain
from saltwm.report.table import NONE, Entry, Table, plain_text, terminal

if TYPE_CHECKING:
    from rich.console import Group

METHOD_NAMES = {"salt": "SALT", "lewm": "LeWM", "dino-wm": "DINO-WM", "random": "Random"}
ENVIRONMENT_NAMES = {
    "two-room": "Two-Room",
    "reacher": "Reacher",
    "push-t": "PushT",
    "cube": "OGBench-Cube",
    "cube-double": "OGBench-Cube-Double",
}
PLANNER_NAMES = {
    "gauss-newton": "Gauss-Newton",
    "icem": "iCEM",
    "mppi": "MPPI",
    "gradient": "gradient descent",
    "map": "MAP",
    "prior": "amortised imitation",
    "cem-map": "MAP by CEM",
    "cem-prior": "CEM and prior",
    "icem-prior": "iCEM and prior",
    "mppi-prior": "MPPI and prior",
}


@dataclass(frozen=True)
class SuccessRow:
    """One evaluation: a rate never without its n and interval. Percentages in [0, 100]."""

    environment: str
    protocol: str
    horizon_blocks: int
    method: str
    run: str | None
    """Name of the run's folder; none for a policy without weights."""
    seed: int
    """Seed of the evaluation."""
    training_seed: int | None
    successes: int
    n: int
    percent: float
    low: float
    high: float
    median_steps_to_success: float | None
    cell: str
    label: str
    """The method as people call it, with its run, and its weights, where one name stands for several."""


@dataclass(frozen=True)
class PooledRow:
    """One method in one environment under one protocol and horizon, the episodes of all seeds together."""

    environment: str
    protocol: str
    horizon_blocks: int
    method: str
    label: str
    seeds: tuple[int, ...]
    missing: tuple[int, ...]
    """Seeds that are due and not there: a suite planned them for this method, or another of its trainings has them."""
    elsewhere: tuple[int, ...]
    """Seeds that other methods of the contest have and nobody planned for this one: its mean is not theirs' equal."""
    rate: Rate | None
    """None where a seed is missing."""
    mean: float | None
    """Over seeds, in percent, with its sample deviation; none for one seed, or where one is missing or elsewhere."""
    std: float | None
    training_seeds: tuple[int, ...]
    """Those behind the row; empty for a policy without a model, or where records do not say."""
    over_training: OverSeeds | None
    """Mean and spread of the training seeds' rates; none for a single one. The rate's interval is over tasks."""
    median_steps_to_success: float | None
    cells: tuple[Cell, ...]

    @property
    def percent(self) -> float | None:
        """None where a seed is missing."""
        return self.rate.percent if self.rate else None

    @property
    def evaluation(self) -> Evaluation:
        """The first of those behind the row; all have its model, planner and looks."""
        return self.cells[0].evaluation

    @property
    def has_several_seeds(self) -> bool:
        """Whether a mean over evaluation seeds is due, here or beside it."""
        return len({*self.seeds, *self.missing, *self.elsewhere}) > 1

    @property
    def fewer_seeds(self) -> str:
        """Which seeds it has, where other methods have more: seeds 1, 2 of 1-4."""
        if not self.elsewhere:
            return ""
        own = sorted({*self.seeds, *self.missing})
        return f"seed{'s' * (len(own) > 1)} {_numbers(own)} of {_span(sorted({*own, *self.elsewhere}))}"


def success_rows(cells: Iterable[Cell]) -> list[SuccessRow]:
    """One row per finished evaluation, by environment, protocol and horizon; SALT, LeWM, others, then random."""
    cells = list(cells)
    labels = method_labels(cells)
    rows = [_row(cell, labels[cell.name]) for cell in cells]
    return sorted(rows, key=lambda row: (contest_order(row), method_order(row.method), row.label, row.seed, row.cell))


def method_labels(cells: Iterable[Cell]) -> dict[str, str]:
    """What to call each cell's method: its name, and where that means several things as much more as it takes.

    Under one protocol and horizon a label is one method, with one recipe (or set of weights) and one planner.
    """
    cells = list(cells)
    labels = {cell.name: label_of(cell.evaluation) for cell in cells}
    for more in (_run, _run_and_weights, lambda cell: cell.name):
        ambiguous = _ambiguous(cells, labels)
        for cell in cells:
            if (labels[cell.name], cell.evaluation.environment) in ambiguous:
                labels[cell.name] = f"{label_of(cell.evaluation)} ({more(cell)})"
    return labels


def label_of(evaluation: Evaluation) -> str:
    """The method as people call it, by what was recorded about it: SALT, R 0 with Gauss-Newton, 3 frames."""
    e = evaluation
    if e.variant is None:
        return method_title(e.method)
    kind = str(e.planner.get("function", e.planner.get("kind", ""))).rpartition(":")[2]  # a user's own has a function
    planner = "" if kind in ("", "cem") else f" with {PLANNER_NAMES.get(kind, kind)}"
    parts = [model_title(e.variant.model, e.variant) + planner, *map(_departure, e.variant.departures)]
    parts += [] if e.history_frames == 1 else [f"{e.history_frames} frames"]
    parts += [] if e.look_every is None else [_looks(e.look_every)]
    return ", ".join(parts) if has_usual_planner(e) else f"{', '.join(parts)} ({e.method})"


def _departure(recorded: str) -> str:
    """A departure as people read it; most are recorded so."""
    if recorded == "memory yes":
        return "with memory"
    return f"begun {recorded}" if recorded.startswith("from ") else recorded


def _looks(every: int) -> str:
    return "a look after each block" if every == 1 else f"a look after {every} blocks"


def looks(every: int | None) -> str:
    """How often an agent looks, for a column of that name."""
    return "blind" if every is None else "each block" if every == 1 else f"every {every} blocks"


def _ambiguous(cells: Iterable[Cell], labels: Mapping[str, str]) -> set[tuple[str, str]]:
    """Label and environment where several methods have it under one protocol, or several cells on the same tasks."""
    methods: dict[tuple[Any, ...], list[Cell]] = {}
    meetings: Counter[tuple[Any, ...]] = Counter()
    for cell in cells:
        e, label = cell.evaluation, labels[cell.name]
        methods.setdefault((label, *contest_of(e)), []).append(cell)
        meetings[label, e.environment, e.tasks_sha256, e.horizon_blocks, e.seed, training_seed(e)] += 1
    several = {
        contest[:2]
        for contest, some in methods.items()
        if len({method_key(cell.evaluation) for cell in some}) > 1 or have_several_priors(some)
    }
    return several | {meeting[:2] for meeting, count in meetings.items() if count > 1}


def _run(cell: Cell) -> str:
    return run_name(cell.evaluation) or "no run"


def _run_and_weights(cell: Cell) -> str:
    """For a run that was trained on, or a checkpoint that was shipped again, between two evaluations."""
    sha256 = cell.evaluation.checkpoint_sha256
    return f"{_run(cell)}, weights {sha256[:8]}" if sha256 else _run(cell)


def _due_seeds(rows: Sequence[SuccessRow], cells: Mapping[str, Cell], planned: Iterable[PlannedCell]) -> list[int]:
    """The evaluation seeds of one method: those that a suite planned for it, and those that it has."""
    here = {(contest_of(row), cells[row.cell].evaluation.method) for row in rows}
    return sorted({cell.seed for cell in planned if (contest_of(cell), cell.method) in here} | {r.seed for r in rows})


def _whole(rows: Sequence[SuccessRow], due: Sequence[int]) -> tuple[list[SuccessRow], tuple[int, ...]]:
    """The rows of the training seeds that have every evaluation seed; if none has, all rows and what the best lacks."""
    lacking = {
        training: tuple(seed for seed in due if seed not in {row.seed for row in rows if row.training_seed == training})
        for training in dict.fromkeys(row.training_seed for row in rows)
    }
    whole = [row for row in rows if not lacking[row.training_seed]]
    return (whole, ()) if whole else (list(rows), min(lacking.values(), key=len))


def pooled_rows(cells: Iterable[Cell], planned: Iterable[PlannedCell] = ()) -> list[PooledRow]:
    """A row per environment, protocol, horizon and method, in the order of `success_rows`."""
    cells, planned = list(cells), list(planned)
    by_name, pooled = {cell.name: cell for cell in cells}, []
    for _, rows in contests(success_rows(cells)):
        methods = {row.label: [other for other in rows if other.label == row.label] for row in rows}
        due = {label: _due_seeds(mine, by_name, planned) for label, mine in methods.items()}
        of_any = {seed for seeds in due.values() for seed in seeds}
        for label, mine in methods.items():
            whole, missing = _whole(mine, due[label])
            elsewhere = tuple(sorted(of_any.difference(due[label])))
            pooled.append(_pooled(whole, missing, elsewhere, [by_name[row.cell] for row in whole]))
    return pooled


def _pooled(
    rows: Sequence[SuccessRow], missing: tuple[int, ...], elsewhere: tuple[int, ...], cells: Sequence[Cell]
) -> PooledRow:
    first = rows[0]
    steps = [e.steps_to_success for cell in cells for e in cell.episodes if e.steps_to_success is not None]
    trained = sorted({row.training_seed for row in rows if row.training_seed is not None})
    successes, n = sum(row.successes for row in rows), sum(row.n for row in rows)
    seeds = tuple(dict.fromkeys(row.seed for row in rows))
    by_seed = [statistics.fmean(row.percent for row in rows if row.seed == seed) for seed in sorted(seeds)]
    over_evaluation = over_seeds(by_seed) if len(by_seed) > 1 and not (missing or elsewhere) else None
    by_training = [
        100 * sum(row.successes for row in rows if row.training_seed == seed)
        / sum(row.n for row in rows if row.training_seed == seed)
        for seed in trained
    ]  # fmt: skip
    return PooledRow(
        environment=first.environment,
        protocol=first.protocol,
        horizon_blocks=first.horizon_blocks,
        method=first.method,
        label=first.label,
        seeds=seeds,
        missing=missing,
        elsewhere=elsewhere,
        rate=None if missing else over_tasks(successes, n, n // max(1, len(trained))),
        mean=over_evaluation.mean if over_evaluation else None,
        std=over_evaluation.std if over_evaluation else None,
        training_seeds=tuple(trained),
        over_training=over_seeds(by_training) if len(trained) > 1 and not missing else None,
        median_steps_to_success=statistics.median(steps) if steps else None,
        cells=tuple(cells),
    )


def contests(rows: Iterable[SuccessRow]) -> list[tuple[str, list[SuccessRow]]]:
    """The rows of each environment, protocol and horizon, with a heading."""
    found: dict[str, list[SuccessRow]] = {}
    for row in rows:
        found.setdefault(contest_name(row), []).append(row)
    return list(found.items())


def json_means(cells: Iterable[Cell], planned: Iterable[PlannedCell] = ()) -> list[dict[str, Any]]:
    """The means over seeds as plain data, for JSON."""
    fields = ("label", "method", "seeds", "missing", "elsewhere", "mean", "std")
    return [
        {"contest": contest_name(row), **{name: to_plain(getattr(row, name)) for name in fields}}
        for row in pooled_rows(cells, planned)
        if row.has_several_seeds
    ]


def success_table(
    cells: Iterable[Cell], comparisons: Iterable[Comparison] = (), planned: Iterable[PlannedCell] = ()
) -> "Group":
    """The success rows for the terminal: a table per environment, protocol and horizon, with its tests."""
    from rich.console import Group

    cells, comparisons = list(cells), list(comparisons)
    labels, pooled = method_labels(cells), pooled_rows(cells, planned)
    parts: list[Any] = []
    for title, rows in contests(success_rows(cells)):
        means = [row for row in pooled if row.has_several_seeds and contest_name(row) == title]
        names = {row.cell for row in rows}
        tests = [c for c in comparisons if names.issuperset((*c.cells_a, *c.cells_b))]
        parts += [plain_text(title, "bold"), terminal(_rows_table(rows, seeds=bool(means)))]
        parts += [plain_text(f"  {_mean_sentence(mean)}") for mean in means]
        parts += [plain_text(f"  {verdict_sentence(c, labels)}") for c in tests]
        parts.append("")
    return Group(*parts[:-1])


def _rows_table(rows: Sequence[SuccessRow], *, seeds: bool) -> Table:
    trained = len({row.training_seed for row in rows} - {None}) > 1
    more = [*(["seed"] if seeds else []), *(["training"] if trained else [])]
    lines: tuple[tuple[Entry | str, ...], ...] = tuple(
        (
            Entry(row.label, mark=row.method),
            *([str(row.seed)] if seeds else []),
            *([NONE if row.training_seed is None else str(row.training_seed)] if trained else []),
            f"{row.successes}/{row.n}",
            f"{row.percent:.1f}",
            f"{row.low:.1f} to {row.high:.1f}",
            NONE if row.median_steps_to_success is None else f"{row.median_steps_to_success:g}",
        )
        for row in rows
    )
    header = ("method", *more, "reached", "percent", "95 % interval", "median steps")
    return Table("", header, lines)


def _mean_sentence(row: PooledRow) -> str:
    """A mean over seeds as the paper prints it, or why there is none."""
    if row.missing:
        return f"{row.label}: no mean, because seed {_numbers(row.missing)} is missing"
    if row.mean is None:
        return f"{row.label}: no mean to set beside the others', because it has {row.fewer_seeds}"
    return f"{row.label}: {row.mean:.1f} ± {row.std:.1f} over seeds {_numbers(row.seeds)}"


def _numbers(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, seeds))


def _span(seeds: Sequence[int]) -> str:
    """1-4 where none is left out between, otherwise each of them."""
    is_whole = len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1
    return f"{seeds[0]}-{seeds[-1]}" if is_whole else _numbers(seeds)


def verdict_sentence(comparison: Comparison, labels: Mapping[str, str]) -> str:
    """What the paired test says, as one line: SALT against Random: better, +97.5 points (+92.1 to +99.0), p 2e-13."""
    c = comparison
    a = labels.get(c.cells_a[0], method_title(c.method_a))
    b = labels.get(c.cells_b[0], method_title(c.method_b))
    return f"{a} against {b}: {c.verdict}, {c.difference:+.1f} points ({c.low:+.1f} to {c.high:+.1f}), p {p_value(c.p)}"


_MODELS = "|".join(map(re.escape, sorted(METHOD_NAMES, key=len, reverse=True)))
_MODEL = re.compile(rf"(?P<model>{_MODELS})(?=-|$)", re.ASCII)
_METHOD = re.compile(
    _MODEL.pattern + r"(-(?P<planner>[a-z-]+?))?(-history(?P<history>[0-9]+))?(-look(?P<look>[0-9]+))?", re.ASCII
)


def known_model(method: str) -> str:
    """The model that a method's name begins with: salt, lewm, dino-wm, random; the name itself where it is none."""
    found = _MODEL.match(method)
    return found["model"] if found else method


def method_title(method: str) -> str:
    """The method as the paper writes it; a model with another planner than CEM bears the planner's name too."""
    named = _METHOD.fullmatch(method)
    if named is None or (named["planner"] or "cem") not in {"cem", *PLANNER_NAMES}:
        return method
    name = METHOD_NAMES[named["model"]]
    name += f" with {PLANNER_NAMES[named['planner']]}" if named["planner"] else ""
    name += f", {named['history']} frames" if named["history"] else ""
    name += f", {_looks(int(named['look']))}" if named["look"] else ""
    return name


def model_title(model: str, variant: ModelVariant | None) -> str:
    """A model as people write it: a user's own as its record does."""
    return (variant and variant.title) or METHOD_NAMES.get(model) or method_title(model)


def method_order(method: str) -> tuple[int, int, str]:
    """SALT, LeWM, other searches and variants of theirs, a user's own methods by name, then the random policy."""
    known = {"salt": 0, "lewm": 1, "random": 3}
    return known.get(method, 2), known.get(known_model(method), 2), method


def environment_name(name: str) -> str:
    """An environment as the paper writes it."""
    return ENVIRONMENT_NAMES.get(name, name) or "Runs of unknown environment"


def environment_order(environment: str) -> tuple[int, str]:
    """The paper's order, then others by name."""
    known = list(ENVIRONMENT_NAMES)
    return known.index(environment) if environment in known else len(known), environment


def protocol_order(protocol: str) -> tuple[int, str]:
    """The paper's, ours, long horizons, then others by name."""
    known = ["paper", "clean", "long"]
    return known.index(protocol) if protocol in known else len(known), protocol


def contest_order(row: Contested) -> tuple[Any, ...]:
    """By environment, protocol (the paper's first) and horizon."""
    return environment_order(row.environment), protocol_order(row.protocol), row.horizon_blocks


def contest_name(row: Contested) -> str:
    """Two-Room, clean, H=5."""
    return f"{environment_name(row.environment)}, {protocol_name(row)}"


def protocol_name(row: Contested) -> str:
    """The protocol with its planning horizon."""
    return f"{row.protocol}, H={row.horizon_blocks}"


def has_own_horizon(row: Contested) -> bool:
    """Whether the horizon is the protocol's own, which a table of protocols alone shows."""
    known = PROTOCOLS.get(row.protocol)
    return known is None or row.horizon_blocks == known.horizon_blocks


def interval(rate: Rate) -> str:
    """90.1 to 98.0, in percent."""
    return f"{100 * rate.low:.1f} to {100 * rate.high:.1f}"


def reached(rate: Rate) -> str:
    """97/100."""
    return f"{rate.successes}/{rate.n}"


def p_value(p: float) -> str:
    """A p-value as people print it: three decimals, or its power of ten."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}".replace("e-0", "e-")


def probe_scores(probe: Probe) -> str:
    """R^2 of a field, its worst and best coordinate where they differ, and a network's: 0.61 (-0.03 to 0.99; 0.72)."""
    worst, best = f"{probe.worst:.2f}", f"{probe.best:.2f}"
    more = [] if worst == best else [f"{worst} to {best}"]
    more += [] if probe.network is None else [f"network {probe.network:.2f}, control {probe.network_control:.2f}"]
    return f"{probe.r2:.2f} ({'; '.join(more)})" if more else f"{probe.r2:.2f}"


def duration(seconds: float) -> str:
    """Seconds as people say them: 48 s, 12 min, 3.4 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _row(cell: Cell, label: str) -> SuccessRow:
    e = cell.evaluation
    rate = e.success
    return SuccessRow(
        environment=e.environment,
        protocol=e.protocol,
        horizon_blocks=e.horizon_blocks,
        method=method_of(e),
        run=run_name(cell.evaluation),
        seed=e.seed,
        training_seed=training_seed(e),
        successes=rate.successes,
        n=rate.n,
        percent=rate.percent,
        low=100 * rate.low,
        high=100 * rate.high,
        median_steps_to_success=e.median_steps_to_success,
        cell=cell.name,
        label=label,
    )


def run_name(evaluation: Evaluation) -> str | None:
    """Name of the run's folder: `salt` for runs/salt/checkpoints/step-000200 and for runs/salt."""
    return None if evaluation.checkpoint is None else name_of_run(Path(evaluation.checkpoint))
