"""One self-contained page: no script, no outside address, pictures inline, every name escaped (promise P15)."""

import importlib.metadata
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from saltwm.disk import durable
from saltwm.disk.records import MISMATCH_RATIO, Cell, Comparison, Decoding, Diagnosis, TaskSet, Training
from saltwm.report import figures, tables
from saltwm.report.claims import claims
from saltwm.report.figures import Drawing, Series
from saltwm.report.findings import Findings, Picture, Run, picture_caption, read_findings, short_planner
from saltwm.report.overview import ProbeLine, overview
from saltwm.report.tables import PooledRow, SeedMean, SuccessRow
from saltwm.report.templates import template

T = TypeVar("T")

_EPISODES_SHOWN = 12  # per evaluation: moving pictures are most of the page's weight
_PANELS = (  # title, key in metrics.jsonl, logarithmic, unit
    ("Loss", "loss", True, ""),
    ("Prediction loss", "prediction", True, "mean squared error"),
    ("SIGReg", "sigreg", True, ""),
    ("Validation, one step", "validation_one_step", True, ""),
    ("Validation, rollout", "validation_rollout", True, ""),
    ("Effective rank of latents", "effective_rank", False, "dimensions"),
    ("Spread of latents", "latent_std", False, "standard deviation"),
    ("Largest singular value of A₀", "sigma_max_base", False, ""),
    ("Gradient norm", "gradient_norm", True, "before clipping"),
    ("Learning rate", "learning_rate", False, ""),
)


@dataclass(frozen=True)
class Contest:
    """The methods under one protocol and horizon, with what the paired tests say."""

    title: str
    rows: tuple[SuccessRow, ...]
    means: tuple[SeedMean, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Figure:
    """A drawing and what to say below it."""

    drawing: Drawing
    caption: str


@dataclass(frozen=True)
class PlannedEpisode:
    """The pictures of one episode: moving, as a strip, or both."""

    caption: str
    outcome: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Gallery:
    """Planned episodes of one evaluation."""

    title: str
    cell: str
    episodes: tuple[PlannedEpisode, ...]
    left_out: int


@dataclass(frozen=True)
class DecodedFigure:
    """A run's decoded open-loop predictions and what is seen in them."""

    label: str
    method: str
    picture: Picture
    caption: str


@dataclass(frozen=True)
class TaskTable:
    """How many tasks of each kind were reached: a line for each method and protocol, a column for each kind."""

    kinds: tuple[str, ...]
    lines: tuple[tuple[PooledRow, str, tuple[str, ...]], ...]
    """The row, what it was evaluated under, and `reached of asked` for each kind."""


@dataclass(frozen=True)
class Section:
    """One environment."""

    name: str
    anchor: str
    contests: tuple[Contest, ...]
    galleries: tuple[Gallery, ...]
    steps: tuple[Figure, ...]
    training: tuple[Figure, ...]
    propagation: tuple[Figure, ...]
    diagnoses: tuple[tuple[str, Run], ...]
    probes: tuple[ProbeLine, ...]
    decoded: tuple[DecodedFigure, ...]
    trained: tuple[tuple[str, Training], ...]
    anatomy: tuple[Figure, ...]
    tasks: TaskTable | None


def write_page(results: Path, out: Path) -> Path:
    """Write out/index.html from the records under `results`; returns its path."""
    findings = read_findings(results)
    out = Path(out)
    durable.make_folder(out)
    path = out / "index.html"
    durable.write_text(path, render(findings))
    return path


def render(findings: Findings) -> str:
    """The page's text."""
    rows = tables.success_rows(findings.cells)
    names = sorted(
        {row.environment for row in rows} | {run.environment or "" for run in findings.runs},
        key=tables.environment_order,
    )
    return template("page.html").render(
        title=_title(names, rows),
        sections=[_section(findings, rows, name, i) for i, name in enumerate(names)],
        overview=overview(findings, names) if len(names) > 1 else None,
        unfinished=findings.unfinished,
        notices=_notices(findings),
        claims=_claims(findings, names),
        provenance=_provenance(findings),
        stages=findings.stages,
        facts=_facts(findings, names, rows),
        labels=tables.method_labels(findings.cells),
        results=str(findings.results),
    )


def _claims(findings: Findings, names: Sequence[str]) -> dict[str, Any]:
    """The paper's claims that something is known about, and the environments where it is."""
    known = [claim for claim in claims(findings) if claim.findings]
    there = {finding.environment for claim in known for finding in claim.findings}
    return {"all": known, "environments": [name for name in names if name in there]}


# --- what was run --------------------------------------------------------------------------------------------------


def _title(names: Sequence[str], rows: Sequence[SuccessRow]) -> str:
    methods = sorted({row.method for row in rows}, key=tables.method_order)
    where = _listed([tables.environment_name(name) for name in names])
    return f"{_listed([tables.method_name(m) for m in methods])} on {where}" if methods else where


def _facts(findings: Findings, names: Sequence[str], rows: Sequence[SuccessRow]) -> list[tuple[str, str]]:
    worlds = {s.world.environment: s.world for s in findings.task_sets.values()}
    facts = [("Environments", ", ".join(tables.environment_name(n) + _world(worlds.get(n)) for n in names))]
    datasets = sorted({(s.world.environment, s.dataset_sha256[:12]) for s in findings.task_sets.values()})
    datasets.sort(key=lambda item: tables.environment_order(item[0]))
    facts.append(("Datasets", ", ".join(f"{tables.environment_name(name)} {sha256}" for name, sha256 in datasets)))
    if rows:
        protocols = dict.fromkeys(tables.protocol_name(row) for row in rows)
        facts += [
            ("Protocols", "; ".join(protocols)),
            ("Episodes", f"{sum(row.n for row in rows)} in {len(rows)} evaluations"),
            ("Planners", "; ".join(dict.fromkeys(short_planner(c.evaluation.planner) for c in _planned(findings)))),
        ]
    facts.append(("Tables and figures from", f"the records in {findings.results}, by saltwm report {findings.results}"))
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("saltwm", "numpy", "matplotlib")]
    facts.append(("Page made with", ", ".join([*versions, f"Python {platform.python_version()}"])))
    return [(name, value) for name, value in facts if value]


def _world(world: Any) -> str:
    return f" ({world.image_size} px, {world.renderer} {world.render})" if world else ""


def _planned(findings: Findings) -> list[Cell]:
    return [cell for cell in findings.cells if cell.evaluation.method != "random"]


def _provenance(findings: Findings) -> list[dict[str, Any]]:
    """One entry per evaluation: what a person needs to repeat it, hashes in full."""
    labels = tables.method_labels(findings.cells)
    entries = []
    for cell in findings.cells:
        e = cell.evaluation
        task_set: TaskSet | None = findings.task_sets.get(e.tasks_sha256)
        entries.append(
            {
                "environment": tables.environment_name(e.environment),
                "protocol": f"{e.protocol}, H={e.horizon_blocks}",
                "method": labels[cell.name],
                "seed": e.seed,
                "tasks": e.tasks_sha256,
                "dataset": task_set.dataset_sha256 if task_set else None,
                "pairs": task_set,
                "checkpoint": e.checkpoint,
                "weights": e.checkpoint_sha256,
                "seconds": e.seconds,
            }
        )
    return entries


def _notices(findings: Findings) -> list[str]:
    notices = [
        f"The tasks of {cell.name} ({cell.evaluation.tasks_sha256[:12]}) are not among the files in tasks/: "
        "what they were drawn from cannot be shown."
        for cell in findings.cells
        if cell.evaluation.tasks_sha256 not in findings.task_sets
    ]
    if findings.cells and not findings.comparisons:
        notices.append("No paired comparison is on disk: no two methods met the same tasks, or none was computed.")
    if not findings.cells:
        notices.append("Nothing was evaluated yet: saltwm evaluate RUN --data DATA --out RESULTS.")
    return notices


# --- results -------------------------------------------------------------------------------------------------------


def _section(findings: Findings, all_rows: Sequence[SuccessRow], name: str, number: int) -> Section:
    rows = [row for row in all_rows if row.environment == name]
    runs = [run for run in findings.runs if (run.environment or "") == name]
    runs.sort(key=lambda run: (tables.method_order(run.method or ""), run.name))
    series = _run_series(runs)
    diagnoses = [(series[run.name], run.diagnosis) for run in runs if run.diagnosis]
    return Section(
        name=tables.environment_name(name),
        anchor=f"environment-{number}",
        contests=tuple(_contests(findings, rows)),
        galleries=tuple(_galleries(findings, rows)),
        steps=tuple(_steps(findings, rows)),
        training=tuple(_training([(series[run.name], run) for run in runs])),
        propagation=tuple(_propagation(diagnoses)),
        diagnoses=tuple((series[run.name].label, run) for run in runs if run.diagnosis),
        probes=tuple(ProbeLine("", series[r.name].label, r.probes.method, r.probes) for r in runs if r.probes),
        decoded=tuple(_decoded([(series[run.name], run) for run in runs])),
        trained=tuple((series[run.name].label, run.training) for run in runs if run.training),
        anatomy=tuple(_anatomy(findings, rows)),
        tasks=_tasks(findings, name),
    )


def _contests(findings: Findings, rows: Sequence[SuccessRow]) -> Iterable[Contest]:
    for title, contest in _grouped(rows, tables.protocol_name).items():
        cells = {row.cell for row in contest}
        comparisons = tuple(c for c in findings.comparisons if cells.issuperset((*c.cells_a, *c.cells_b)))
        yield Contest(title, tuple(contest), tuple(tables.seed_means(contest, findings.planned)), comparisons)


def _steps(findings: Findings, rows: Sequence[SuccessRow]) -> Iterable[Figure]:
    cells = {cell.name: cell for cell in findings.cells}
    for title, contest in _grouped(rows, tables.protocol_name).items():
        methods = []
        for label, mine in _grouped(contest, lambda row: row.label).items():
            episodes = [episode for row in mine for episode in cells[row.cell].episodes]
            steps = [e.steps_to_success for e in episodes if e.steps_to_success is not None]
            methods.append((Series(label, mine[0].method), steps, len(episodes)))
        budget = max(_budget_steps(findings, cells[row.cell]) for row in contest)
        caption = (
            f"When goals were reached under {title}: share of all tasks by environment step, in tenths of the budget. "
            "What is missing to 100 % was never reached. From saltwm evaluate."
        )
        yield Figure(figures.steps_to_success(f"Steps to success, {title}", methods, budget), caption)


def _budget_steps(findings: Findings, cell: Cell) -> int:
    """The protocol's budget, or where its task set is not at hand the most steps that an episode took."""
    task_set = findings.task_sets.get(cell.evaluation.tasks_sha256)
    return task_set.protocol.budget_steps if task_set else max(1, *(e.steps_taken for e in cell.episodes))


def _training(runs: Sequence[tuple[Series, Run]]) -> Iterable[Figure]:
    lines = [(series, run.metrics) for series, run in runs if run.metrics]
    for title, key, log, unit in _PANELS:
        shown = [(series, metrics) for series, metrics in lines if any(key in line for line in metrics)]
        if shown:
            # A logarithm only where every value has one: a loss may touch zero, a rate starts there.
            positive = all(line[key] > 0 for _, metrics in shown for line in metrics if key in line)
            yield Figure(figures.curves(title, key, shown, log=log and positive, unit=unit), "")


def _propagation(runs: Sequence[tuple[Series, Diagnosis]]) -> Iterable[Figure]:
    if not runs:
        return
    yield Figure(
        figures.by_step("Rollout error |δₖ|", "rollout_error", runs, unit="relative to latent spread"),
        "Mean error of the k-th recursive prediction, relative to the spread of the latents.",
    )
    positive = all(value > 0 for _, d in runs for value in (*d.propagation_norm, *d.propagation_low))
    yield Figure(
        figures.by_step(
            "Propagation |Φ(0→k)|",
            "propagation_norm",
            runs,
            log=positive,
            band=("propagation_low", "propagation_high"),
            unit="spectral norm",
        ),
        "How much a one-step error has grown k steps later: geometric mean of the spectral norm; "
        "band: smallest to largest over the measured batches.",
    )
    zeros = sum(value == 0 for _, d in runs for value in d.rho)
    yield Figure(
        figures.by_step(
            "Discrepancy \N{GREEK SMALL LETTER RHO} of the reconstruction",
            "rho",
            runs,
            log=True,
            guide=(1e-10, "10⁻¹⁰"),
        ),
        "Relative discrepancy between the rollout error and its first-order reconstruction from one-step errors, "
        "in float64. For a state-affine transition it is rounding alone."
        + (f" {zeros} exact zeros have no place on this axis." if zeros else ""),
    )


def _decoded(runs: Sequence[tuple[Series, Run]]) -> Iterable[DecodedFigure]:
    for series, run in runs:
        if run.decoded:
            caption = decoded_caption(run.decoded.record)
            yield DecodedFigure(series.label, series.method, run.decoded.picture, caption)


def decoded_caption(record: Decoding) -> str:
    """How far the pictures can be believed, in pixel errors."""
    first, last = record.times[record.context], record.times[-1]
    mean, true = (sum(errors) / len(errors) for errors in (record.mean_mse, record.true_mse))
    errors = (
        f"Pixel MSE on {record.stretches} held-out stretches: {true:.2g} of decoded true frames, "
        f"{record.predicted_mse[0]:.2g} of decoded predictions at t = {first} and {record.predicted_mse[-1]:.2g} at "
        f"t = {last}; {mean:.2g} of the mean picture, which knows nothing of the frame."
    )
    doubt = " The decoder draws true frames no better than that: nothing can be read from its pictures."
    return errors if record.tells_frames_apart else errors + doubt


def _anatomy(findings: Findings, rows: Sequence[SuccessRow]) -> Iterable[Figure]:
    for title, contest in _grouped(rows, tables.protocol_name).items():
        # A random policy has no costs, so its failures say nothing here.
        shown = [
            (Series(row.label if len({r.seed for r in contest}) == 1 else f"{row.label}, seed {row.seed}", row.method),
             findings.anatomies[row.cell])
            for row in contest
            if row.cell in findings.anatomies and row.method != "random"
        ]  # fmt: skip
        if not any(anatomy.failures for _, anatomy in shown):
            continue
        size = (4.2, 1.75 + 0.36 * len(shown))
        yield Figure(
            figures.failure_bars(f"Failures by kind, {title}", shown, size=size),
            "Failed episodes as shares of all episodes. Mismatch: the second plan's first elite cost c is more than "
            "five times what the first plan promised, ĉ. Unflagged: it is not. Unclassified: no second plan was made.",
        )
        if any(f.ratio for _, anatomy in shown for f in anatomy.failures):
            yield Figure(
                figures.failure_ratios(f"Cost ratio of failures, {title}", shown, MISMATCH_RATIO, size=size),
                "r = c / ĉ for each failed episode with two plans. One mark is one episode.",
            )


def _tasks(findings: Findings, environment: str) -> TaskTable | None:
    rows = [row for row in tables.pooled_rows(findings.cells, findings.planned) if row.environment == environment]
    found = tables.task_rows(rows, findings.anatomies)
    kinds = tuple(sorted({kind.kind for _, of in found for kind in of}))
    lines = []
    for row, of in found:
        reached = {kind.kind: f"{kind.reached.successes} of {kind.reached.n}" for kind in of}
        lines.append((row, tables.protocol_name(row), tuple(reached.get(kind, "-") for kind in kinds)))
    return TaskTable(kinds, tuple(lines)) if lines else None


def _galleries(findings: Findings, rows: Sequence[SuccessRow]) -> Iterable[Gallery]:
    for row in rows:
        pictures = [picture for picture in findings.pictures if picture.cell == row.cell]
        episodes = []
        for stem, shown in _grouped(pictures, lambda picture: Path(picture.name).stem).items():
            caption, outcome = picture_caption(stem)
            moving_first = sorted(shown, key=lambda picture: picture.kind)
            episodes.append(PlannedEpisode(caption, outcome, tuple(moving_first)))
        if episodes:
            left_out = max(0, len(episodes) - _EPISODES_SHOWN)
            title = f"{row.label}, {tables.protocol_name(row)}"
            yield Gallery(title, row.cell, tuple(episodes[:_EPISODES_SHOWN]), left_out)


# --- parts -----------------------------------------------------------------------------------------------------------


def _run_series(runs: Sequence[Run]) -> dict[str, Series]:
    """How each run is drawn: called by its method, and by its own name too where the method has several runs."""
    series = {}
    for method, same in _grouped(runs, lambda run: run.method or run.name).items():
        for i, run in enumerate(same):
            label = tables.method_name(method) if len(same) == 1 else f"{tables.method_name(method)} ({run.name})"
            series[run.name] = Series(label, method, i)
    return series


def _grouped(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
