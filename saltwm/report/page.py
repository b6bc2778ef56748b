"""One page with its pictures in a folder beside it: no script, no outside address, every name escaped (promise P15)."""

import hashlib
import importlib.metadata
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from saltwm.disk import durable
from saltwm.disk.records import Cell, Diagnosis
from saltwm.evaluation.anatomy import MISMATCH_RATIO, PairedAnatomy, examples, pair_up
from saltwm.report import decoded, figures, sections, tables
from saltwm.report.anatomy import remove_earlier, write_anatomy
from saltwm.report.claims import PAPERS_LEWM, claims, with_papers_lewm
from saltwm.report.figures import Drawing, Series
from saltwm.report.findings import Findings, Picture, Run, picture_caption, read_findings, short_planner
from saltwm.report.frames import changed_by_frames
from saltwm.report.imitation import imitation
from saltwm.report.overview import bands, in_words, verdicts
from saltwm.report.paper_drawings import paper_drawings
from saltwm.report.studies import HOW, efficiency, study_reports
from saltwm.report.table import Table, listed
from saltwm.report.tables import SuccessRow
from saltwm.report.templates import template

T = TypeVar("T")

_TASKS_SHOWN = 6  # per protocol and seed
_EPISODES_NOTE = (
    "Now: what the agent sees. Imagined: what the plan in force expects at the end of the present block of actions, "
    "shown as the known state of the world (a start, a goal or a moment of these episodes) whose latent is nearest. "
    "Goal: the picture that it plans towards. The methods on one task stand side by side. Drawn from the recorded "
    "actions."
)
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


_SHOWN = {"tables", "figures", "galleries", "decoded"}
"""What a part must have one of to be there."""

MEDIA = "media"
"""Folder beside the page: pictures and figures, named by their content."""
_MEDIUM = re.compile(r"[0-9a-f]{16}\.(gif|png|svg)", re.ASCII)


@dataclass(frozen=True)
class Figure:
    """A drawing and what to say below it."""

    drawing: Drawing
    caption: str
    name: str = ""
    """What stands above it, if something does."""


@dataclass(frozen=True)
class Filmed:
    """One method on one task."""

    label: str
    method: str
    outcome: str
    moving: Picture | None
    strip: Picture | None


@dataclass(frozen=True)
class Meeting:
    """The methods that were filmed on one task, side by side."""

    caption: str
    filmed: tuple[Filmed, ...]


@dataclass(frozen=True)
class Gallery:
    """Planned episodes under one protocol and evaluation seed."""

    title: str
    meetings: tuple[Meeting, ...]
    left_out: int


@dataclass(frozen=True)
class DecodedFigure:
    """A run's decoded open-loop predictions and what is seen in them."""

    label: str
    method: str
    picture: Picture
    caption: str


@dataclass(frozen=True)
class Part:
    """What folds: tables, figures, films."""

    title: str
    anchor: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    galleries: tuple[Gallery, ...] = ()
    decoded: tuple[DecodedFigure, ...] = ()
    note: str = ""
    is_open: bool = False


@dataclass(frozen=True)
class Section:
    """One environment."""

    name: str
    anchor: str
    words: tuple[str, ...]
    success: tuple[Table, ...]
    parts: tuple[Part, ...]


class Media:
    """Files beside the page; a name comes from the content, never from a record."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def picture(self, picture: Picture) -> str:
        """Address of a picture."""
        return self._add(picture.data, picture.kind)

    def svg(self, text: str) -> str:
        """Address of a drawing. Inside an <img> an SVG is a picture: it runs nothing and fetches nothing."""
        return self._add(text.encode(), "svg")

    def _add(self, data: bytes, kind: str) -> str:
        name = f"{MEDIA}/{hashlib.sha256(data).hexdigest()[:16]}.{kind}"
        self.files[name] = data
        return name


def write_page(results: Path, out: Path) -> Path:
    """Write out/index.html with its media, and the anatomy of SALT and LeWM, from the records under `results`."""
    findings, media, out = read_findings(results), Media(), Path(out)
    durable.make_folder(out)
    pairs = _anatomy_pairs(findings)
    text = render(findings, media, anatomy=bool(pairs))
    if pairs:
        shown = examples(pairs, findings.by_name, 2 * len(pairs))
        write_anatomy(results, findings.by_name, pairs, out / "anatomy", shown)
    durable.make_folder(out / MEDIA)
    for name, data in media.files.items():
        if not (out / name).exists():
            durable.write_bytes(out / name, data)
    path = out / "index.html"
    durable.write_text(path, text)
    # Not before: until the new page is there, the old one shows them.
    remove_earlier(out / MEDIA, _MEDIUM, {Path(name).name for name in media.files})
    return path


def _anatomy_pairs(findings: Findings) -> list[PairedAnatomy]:
    """SALT and the paper's LeWM wherever they met."""
    methods = {cell.evaluation.method for cell in findings.cells}
    met = {c.method_b for c in findings.comparisons if c.method_a == "salt"} & methods if "salt" in methods else set()
    pairs = [
        pair for lewm in PAPERS_LEWM if lewm in met for pair in pair_up(findings.results, findings.cells, "salt", lewm)
    ]
    shown = with_papers_lewm(pair.outcomes for pair in pairs)
    return [pair for pair in pairs if pair.outcomes in shown]


def render(findings: Findings, media: Media | None = None, *, anatomy: bool = False) -> str:
    """The page's text; what it shows is left in `media`."""
    rows = tables.success_rows(findings.cells)
    names = sorted(
        {row.environment for row in rows} | {run.environment or "" for run in findings.runs},
        key=tables.environment_order,
    )
    judged = [claim for claim in claims(findings) if claim.findings]
    built, elements = _Built(findings), sections.elements(findings)
    return template("page.html").render(
        title=_title(names, rows),
        sections=[_section(findings, built, rows, name, i, len(names) == 1) for i, name in enumerate(names)],
        several=len(names) > 1,
        verdicts=verdicts(findings),
        bands=bands(findings, names) if len(names) > 1 else [],
        main_table=sections.main_table(findings) if len(names) > 1 else None,
        unfinished=findings.unfinished,
        notices=_notices(findings),
        claims=[(claim, sections.claim_table(claim)) for claim in judged],
        claims_overview=sections.claims_overview(judged),
        changed_by_frames=changed_by_frames(findings, judged),
        studies=built.judged_studies,
        how_studied=HOW,
        costs=[one for one in (efficiency(findings), sections.transition_parameters(findings)) if one],
        elements=elements,
        few_elements=elements is not None
        and 2 * sum(sections.NOT_RUN in line for line in elements.rows) > len(elements.rows),
        paper_figures=[*paper_drawings(findings), *built.study_figures],
        provenance=sections.provenance(findings),
        stages=sections.stages(findings),
        facts=_facts(findings, names, rows),
        results=str(findings.results),
        media=media or Media(),
        anatomy=anatomy,
    )


class _Built:
    """The tables of all environments and the figures of studies, built once."""

    def __init__(self, findings: Findings) -> None:
        protocols = sorted({cell.evaluation.protocol for cell in findings.cells}, key=tables.protocol_order)
        self.success = [*(sections.success(findings, protocol) for protocol in protocols), sections.paired(findings)]
        self.search = [sections.search(findings), imitation(findings), sections.variants(findings)]
        studied = study_reports(findings)
        self.studies = [report.table for report in studied]
        # Figures 4, 7 and 8 of the paper among them.
        self.study_figures = [Figure(report.drawing, report.table.title) for report in studied]
        self.judged_studies = [(one.claim, one.sentences, sections.claim_table(one.claim)) for one in studied]
        self.failures = [sections.kinds(findings), sections.anatomy(findings)]
        self.errors = [sections.propagation(findings), sections.residuals(findings), sections.one_frame(findings)]
        self.probes = [sections.probes(findings)]
        self.training = [sections.training(findings)]


def _of(built: Iterable[Table | None], name: str) -> tuple[Table, ...]:
    found = (one.of(name) for one in built if one is not None)
    return tuple(one for one in found if one is not None)


# --- what was run --------------------------------------------------------------------------------------------------


def _title(names: Sequence[str], rows: Sequence[SuccessRow]) -> str:
    # Who, not how: the searches, views and variants of one model are rows of its tables.
    in_order = sorted(rows, key=lambda row: tables.method_order(tables.known_model(row.method)))
    who = dict.fromkeys(_model_of(row) for row in in_order)
    where = listed([tables.environment_name(name) for name in names])
    return f"{listed(list(who))} on {where}" if who else where


def _model_of(row: SuccessRow) -> str:
    """A model's name without its search and variant; one of a user's own is called what its label begins with."""
    return tables.METHOD_NAMES.get(tables.known_model(row.method)) or re.split(r", | with | \(", row.label)[0]


def _facts(findings: Findings, names: Sequence[str], rows: Sequence[SuccessRow]) -> list[tuple[str, str]]:
    worlds = {s.world.environment: s.world for s in findings.task_sets.values()}
    facts = [("Environments", ", ".join(tables.environment_name(n) + _world(worlds.get(n)) for n in names))]
    datasets = sorted({(s.world.environment, s.dataset_sha256[:12]) for s in findings.task_sets.values()})
    datasets.sort(key=lambda item: tables.environment_order(item[0]))
    facts.append(("Datasets", ", ".join(f"{tables.environment_name(name)} {sha256}" for name, sha256 in datasets)))
    if rows:
        protocols = dict.fromkeys(tables.protocol_name(row) for row in rows)
        evaluated = [cell.evaluation for cell in findings.cells]
        facts += [
            ("Protocols", "; ".join(protocols)),
            ("Episodes", f"{sum(row.n for row in rows)} in {len(rows)} evaluations"),
            ("Planners", "; ".join(dict.fromkeys(short_planner(e.planner) for e in evaluated if e.method != "random"))),
        ]
    facts.append(("Tables and figures from", f"the records in {findings.results}"))
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("saltwm", "numpy", "matplotlib")]
    facts.append(("Page made with", ", ".join([*versions, f"Python {platform.python_version()}"])))
    return [(name, value) for name, value in facts if value]


def _world(world: Any) -> str:
    return f" ({world.image_size} px, {world.renderer} {world.render})" if world else ""


def _notices(findings: Findings) -> list[str]:
    notices = [
        f"The tasks of {cell.name} ({cell.evaluation.tasks_sha256[:12]}) are not among the files in tasks/: "
        "what they were drawn from cannot be shown."
        for cell in findings.cells
        if cell.evaluation.tasks_sha256 not in findings.task_sets
    ]
    if findings.cells and not findings.comparisons:
        notices.append("There is no paired comparison: no two methods met the same tasks.")
    if not findings.cells:
        notices.append("Nothing was evaluated yet.")
    return notices


# --- results -------------------------------------------------------------------------------------------------------


def _section(
    findings: Findings, built: _Built, all_rows: Sequence[SuccessRow], name: str, number: int, alone: bool
) -> Section:
    rows = [row for row in all_rows if row.environment == name]
    runs = [run for run in findings.runs if (run.environment or "") == name]
    runs.sort(key=lambda run: (tables.method_order(run.method or ""), run.name))
    series = _run_series(runs)
    drawn = [(series[run.name], run) for run in runs]
    diagnoses = [(line, run.diagnosis) for line, run in drawn if run.diagnosis]
    title, anchor = tables.environment_name(name), f"environment-{number}"
    parts: list[tuple[str, dict[str, Any]]] = [
        (
            "Planned episodes",  # several environments show theirs side by side above
            {"galleries": tuple(_galleries(findings, rows)), "note": _EPISODES_NOTE, "is_open": alone},
        ),
        ("Search and variants", {"tables": _of(built.search, title), "is_open": not _has_papers(findings, name)}),
        ("Studies", {"tables": _of(built.studies, title)}),
        ("Failures", {"tables": _of(built.failures, title), "figures": tuple(_anatomy(findings, name))}),
        ("Steps to success", {"figures": tuple(_steps(findings, rows))}),
        ("Error propagation", {"figures": tuple(_propagation(diagnoses)), "tables": _of(built.errors, title)}),
        ("What the latents know", {"tables": _of(built.probes, title)}),
        ("Decoded open-loop predictions", {"decoded": tuple(_decoded(drawn)), "note": decoded.NOTE}),
        ("Training", {"tables": _of(built.training, title), "figures": tuple(_training(drawn))}),
    ]
    there = [(heading, fields) for heading, fields in parts if any(fields[key] for key in fields.keys() & _SHOWN)]
    return Section(
        name=title,
        anchor=anchor,
        words=tuple(in_words(findings, name)) if rows else (),
        success=_of(built.success, title),
        parts=tuple(Part(heading, f"{anchor}-{i}", **fields) for i, (heading, fields) in enumerate(there)),
    )


def _has_papers(findings: Findings, environment: str) -> bool:
    """Whether a model was evaluated there as the paper does; otherwise what is folded is all that there is."""
    return any(sections.is_papers(cell) for cell in findings.cells if cell.evaluation.environment == environment)


def _steps(findings: Findings, rows: Sequence[SuccessRow]) -> Iterable[Figure]:
    cells = findings.by_name
    for title, contest in _grouped(rows, tables.protocol_name).items():
        by_label, methods = _grouped(contest, lambda row: row.label), []
        for series in figures.told_apart((label, mine[0].method) for label, mine in by_label.items()):
            episodes = [episode for row in by_label[series.label] for episode in cells[row.cell].episodes]
            steps = [e.steps_to_success for e in episodes if e.steps_to_success is not None]
            methods.append((series, steps, len(episodes)))
        budget = max(_budget_steps(findings, cells[row.cell]) for row in contest)
        caption = (
            f"When goals were reached under {title}: share of all tasks by environment step, in tenths of the budget. "
            "What is missing to 100 % was never reached."
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
            caption = decoded.caption(run.decoded.record)
            yield DecodedFigure(series.label, series.method, run.decoded.picture, caption)


def _anatomy(findings: Findings, environment: str) -> Iterable[Figure]:
    """One figure pair per protocol and horizon, the seeds of a method together; a random policy has no costs."""
    rows = [row for row in findings.pooled if row.environment == environment and row.method != "random"]
    rows = list(filter(sections.has_whole_plans, rows))
    for title, contest in _grouped(rows, tables.protocol_name).items():
        series = figures.told_apart((row.label, row.method) for row in contest)
        shown = [(one, findings.anatomy_of(row.cells)) for one, row in zip(series, contest, strict=True)]
        if not any(one.failures for _, one in shown):
            continue
        size = (4.2, 1.75 + 0.36 * len(shown))
        yield Figure(figures.failure_bars(f"Failures by kind, {title}", shown, size=size), "Shares of all episodes.")
        if any(f.ratio for _, one in shown for f in one.failures):
            yield Figure(
                figures.failure_ratios(f"Cost ratio of failures, {title}", shown, MISMATCH_RATIO, size=size),
                "r = c / ĉ for each failed episode with two plans. One mark is one episode.",
            )


def _galleries(findings: Findings, rows: Sequence[SuccessRow]) -> Iterable[Gallery]:
    """Films by protocol and evaluation seed; the methods on one task stand side by side."""
    pictures = _grouped(findings.pictures, lambda picture: picture.cell)
    for title, contest in _grouped(rows, lambda row: f"{tables.protocol_name(row)}, seed {row.seed}").items():
        meetings: dict[str, list[Filmed]] = {}
        called = Counter(row.label for row in contest)
        for row in contest:
            label = row.label if called[row.label] == 1 else f"{row.label}, training seed {row.training_seed}"
            for stem, shown in _grouped(pictures.get(row.cell, []), lambda picture: Path(picture.name).stem).items():
                caption, outcome = picture_caption(stem)
                by_kind = {picture.kind: picture for picture in shown}
                filmed = Filmed(label, row.method, outcome, by_kind.get("gif"), by_kind.get("png"))
                meetings.setdefault(caption, []).append(filmed)
        if meetings:
            chosen = sorted(meetings.items(), key=lambda item: -len(item[1]))[:_TASKS_SHOWN]
            shown_meetings = tuple(Meeting(caption, tuple(filmed)) for caption, filmed in chosen)
            yield Gallery(title, shown_meetings, len(meetings) - len(chosen))


# --- parts -----------------------------------------------------------------------------------------------------------


def _run_series(runs: Sequence[Run]) -> dict[str, Series]:
    """How each run is drawn: called by its method, and by its own name too where the method has several runs."""
    methods = [run.method or run.name for run in runs]
    labels = []
    for run, method in zip(runs, methods, strict=True):
        title = tables.model_title(method, run.diagnosis.variant if run.diagnosis else None)
        labels.append(title if methods.count(method) == 1 else f"{title} ({run.name})")
    drawn = figures.told_apart(zip(labels, methods, strict=True))
    return {run.name: series for run, series in zip(runs, drawn, strict=True)}


def _grouped(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
