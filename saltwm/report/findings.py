"""Everything under results/ as one record; what is unfinished is named, what is damaged is refused."""

import functools
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from saltwm.disk import durable, journal
from saltwm.disk.durable import read_config
from saltwm.disk.records import (
    Cell,
    Decoding,
    Diagnosis,
    Efficiency,
    PlannedCell,
    Probes,
    Stage,
    TaskSet,
    Training,
    filmed,
    read_cells,
    read_decoding,
    read_plan,
    read_stages,
    read_task_sets,
)
from saltwm.evaluation import sweep
from saltwm.evaluation.anatomy import Anatomy, anatomy
from saltwm.evaluation.contests import Comparison, comparisons, contest_of, method_of
from saltwm.ground.errors import DamagedError, UsageError
from saltwm.report.tables import PooledRow, pooled_rows, run_name

T = TypeVar("T")

_REASONS = {
    "budget": "not reached",
    "solved-at-start": "solved at the start",
    "world-ended": "ended by the world",
}
_PICTURE_KINDS = {".gif": "GIF", ".png": "PNG"}


@dataclass(frozen=True)
class Picture:
    """One file, known to be a picture of its kind: of evaluations/CELL/pictures or of diagnostics/RUN."""

    cell: str
    """Its cell, or its run."""
    name: str
    kind: str
    """gif or png."""
    data: bytes
    width: int
    height: int

    @property
    def panels(self) -> tuple[str, ...]:
        """What stands side by side in a film, by its shape: square pictures with gaps between them."""
        if self.kind != "gif":
            return ()
        return {2: ("now", "goal"), 3: ("now", "imagined", "goal")}.get(self.width // self.height, ())


@dataclass(frozen=True)
class Run:
    """A training run as its diagnostics folder tells it; any part may not be there yet."""

    name: str
    environment: str | None
    """None where nothing on disk says it."""
    method: str | None
    diagnosis: Diagnosis | None
    metrics: tuple[dict[str, float], ...]
    probes: Probes | None = None
    training: Training | None = None
    decoded: "_DecodedRollouts | None" = None
    weights: str | None = None
    """Hash of the checkpoint that was diagnosed; none where nothing on disk says it."""


@dataclass(frozen=True)
class _DecodedRollouts:
    """Pictures of open-loop predictions and their record."""

    record: Decoding
    picture: Picture


HOW_TO_COMPARE = (
    "Commands repeat the recorded jobs in a folder of their own: on the same machine the `episodes.jsonl` of an "
    "evaluation has the same bytes, which `cmp` shows."
)


@dataclass(frozen=True)
class Findings:
    """What a report can be made of."""

    results: Path
    cells: tuple[Cell, ...]
    pictures: tuple[Picture, ...]
    comparisons: tuple[Comparison, ...]
    task_sets: dict[str, TaskSet]
    """By hash."""
    runs: tuple[Run, ...]
    planned: tuple[PlannedCell, ...]
    """What suites include, evaluated or not."""
    stages: tuple[Stage, ...]
    """What each step of a reproduction took."""
    efficiency: Efficiency | None
    """What both predictors cost."""
    unfinished: tuple[str, ...]
    """One sentence for each thing that is not whole yet and therefore in no table."""
    tuning: tuple[Cell, ...] = ()
    """Evaluations that chose a weight, on tasks of their own; in no table of results."""
    again: Callable[[Sequence[Path]], str] | None = None
    """Spells the command that repeats the jobs of these folders; without it no commands are shown."""

    @functools.cached_property
    def pooled(self) -> list[PooledRow]:
        """A row per environment, protocol, horizon and method, in the order of every table."""
        return pooled_rows(self.cells, self.planned)

    @functools.cached_property
    def by_name(self) -> dict[str, Cell]:
        """The cells by their names."""
        return {cell.name: cell for cell in self.cells}

    @functools.cached_property
    def _evaluated(self) -> set[tuple[str, str | None]]:
        """Methods, each with a run that it was evaluated with."""
        return {(method_of(cell.evaluation), run_name(cell.evaluation)) for cell in self.cells}

    def anatomy_of(self, cells: Sequence[Cell]) -> Anatomy:
        """The failures of some evaluations together, and successes by what their tasks ask for, where all say that."""
        sets = [self.task_sets.get(cell.evaluation.tasks_sha256) for cell in cells]
        kinds = [task.kind for tasks in sets if tasks for task in tasks.tasks]
        episodes = [episode for cell in cells for episode in cell.episodes]
        return anatomy(episodes, kinds if all(sets) and all(kinds) else ())

    def commands(self, cells: Iterable[Cell]) -> list[str]:
        """The commands that evaluate these cells once more, one for each environment."""
        folders: dict[str, list[Path]] = {}
        for cell in filter(can_be_repeated, cells):
            folders.setdefault(cell.evaluation.environment, []).append(self.results / "evaluations" / cell.name)
        return [self.again(some) for some in folders.values()] if self.again else []

    def papers_runs(self, environment: str, method: str) -> dict[int | None, Run]:
        """The runs that stand for a method of the paper, by training seed: SALT by rollout, LeWM by one-step training.

        A run that departs from its recipe in what a study changes is an ablation and stands for nothing else. Of
        several runs with one seed it is the evaluated one, and of several evaluated ones the first by name.
        """
        objective = {"salt": "rollout", "lewm": "one-step"}[method]
        evaluated = {run for name, run in self._evaluated if name.startswith(method)}
        found: dict[int | None, Run] = {}
        for run in sorted(self.runs, key=lambda run: (run.name not in evaluated, run.name)):
            d = run.diagnosis
            if d is None or (run.environment, run.method, d.objective) != (environment, method, objective):
                continue
            if d.variant is None or not d.variant.departures:
                found.setdefault(d.variant.seed if d.variant else None, run)
        return found

    def papers_run(self, environment: str, method: str) -> Run | None:
        """The one with the smallest training seed."""
        runs = self.papers_runs(environment, method)
        return runs[min(runs, key=lambda seed: -1 if seed is None else seed)] if runs else None


def can_be_repeated(cell: Cell) -> bool:
    """Whether a command evaluates it: a policy that only a program knew was called from there."""
    return cell.evaluation.checkpoint is not None or cell.evaluation.method == "random"


def read_findings(results: Path, again: Callable[[Sequence[Path]], str] | None = None) -> Findings:
    """Read a results folder; UsageError if there is nothing in it, DamagedError naming the file if something is."""
    results = Path(results)
    cells = read_cells(results)
    runs = tuple(
        _read_run(folder, cells) for folder in sorted(results.glob("diagnostics/*")) if _visible_folder(folder)
    )
    runs = tuple(run for run in runs if run.diagnosis or run.metrics or run.decoded)
    if not cells and not runs:
        raise UsageError(f"{results}: no results to report", remedy="evaluate", path=results)
    task_sets = read_task_sets(results)
    planned = read_plan(results)
    return Findings(
        results=results,
        cells=cells,
        pictures=tuple(
            picture
            for cell in cells
            for picture in read_pictures(results / "evaluations" / cell.name / "pictures", cell.name)
        ),
        comparisons=tuple(comparisons(cells)),
        task_sets=task_sets,
        runs=runs,
        planned=planned,
        stages=read_stages(results),
        efficiency=_read_if_there(Efficiency, results / "efficiency.json"),
        unfinished=(
            *_unfinished(results, cells, runs),
            *_undrawn(results, runs),
            *_not_begun(results, cells, planned),
        ),
        tuning=read_cells(results / sweep.FOLDER),
        again=again,
    )


def _visible_folder(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def _read_run(folder: Path, cells: tuple[Cell, ...]) -> Run:
    diagnosis_file, metrics_file = folder / "diagnosis.json", folder / journal.METRICS_FILE
    diagnosis = _read_if_there(Diagnosis, diagnosis_file)
    metrics = tuple(journal.read_rows(metrics_file))
    decoded = _read_decoded(folder)
    if diagnosis is not None:
        probes = _read_if_there(Probes, folder / "probes.json")
        training = _read_if_there(Training, folder / "training.json")
        weights = _diagnosed_weights(folder / "diagnose.json")
        owner = (folder.name, diagnosis.environment, diagnosis.method)
        return Run(*owner, diagnosis, metrics, probes, training, decoded, weights)
    if decoded is not None:
        record = decoded.record
        return Run(folder.name, record.environment, record.method, None, metrics, decoded=decoded)
    for evaluation in (cell.evaluation for cell in cells):
        if run_name(evaluation) == folder.name:
            return Run(folder.name, evaluation.environment, evaluation.method, None, metrics)
    return Run(folder.name, None, None, None, metrics)


def _diagnosed_weights(job: Path) -> str | None:
    """Hash of the checkpoint that a job diagnosed; older diagnoses have no job's file."""
    written = durable.read_json(job) if job.exists() else None
    inputs = written.get("inputs") if isinstance(written, dict) else None
    return inputs.get("run") if isinstance(inputs, dict) else None


def _read_decoded(folder: Path) -> _DecodedRollouts | None:
    """The decoded predictions of a run; none where the picture is not the one that the record was written with."""
    record_file, picture_file = folder / "decoded.json", folder / "decoded.png"
    if not (record_file.exists() and picture_file.exists()):
        return None
    record = read_decoding(record_file)
    if durable.sha256(picture_file) != record.picture_sha256:
        return None
    return _DecodedRollouts(record, _read_picture(picture_file, folder.name, "decode"))


def _read_if_there(kind: type[T], path: Path) -> T | None:
    """A record that older results do not have."""
    return read_config(kind, path) if path.exists() else None


def read_pictures(folder: Path, cell: str, stem: str = "") -> list[Picture]:
    """A cell's pictures by name, or those of them that begin with `stem`."""
    return [
        _read_picture(path, cell, "evaluate")
        for path in sorted(folder.glob("*"))
        if path.suffix in _PICTURE_KINDS and not path.name.startswith(".") and path.name.startswith(stem)
    ]


def _read_picture(path: Path, owner: str, verb: str) -> Picture:
    """A file that only pretends to be a picture is damage: it would be sent to a browser."""
    from PIL import Image

    expected, data = _PICTURE_KINDS[path.suffix], durable.read_bytes(path)
    try:
        with Image.open(io.BytesIO(data), formats=[expected]) as image:
            image.verify()
            size = image.size
    except (OSError, ValueError, SyntaxError) as error:
        raise DamagedError(f"{path}: not a {expected} picture; {verb} again to redraw it") from error
    return Picture(owner, path.name, path.suffix[1:], data, *size)


def picture_caption(stem: str) -> tuple[str, str]:
    """'task-007-reached' -> ('task 7', 'reached'); any other name is its own caption."""
    found = filmed(stem)
    return (stem, "") if found is None else (f"task {found[0]}", _REASONS.get(found[1], found[1]))


def _unfinished(results: Path, cells: tuple[Cell, ...], runs: tuple[Run, ...]) -> tuple[str, ...]:
    finished = {cell.name for cell in cells}
    notes = []
    for folder in sorted(results.glob("evaluations/*")):
        if _visible_folder(folder) and folder.name not in finished:
            done = sum(len(durable.read_json(path)) for path in sorted(folder.glob("chunks/*.json")))
            notes.append(
                f"Evaluation {folder.name} is unfinished ({done} episodes so far) and in no table; "
                "the same evaluation goes on from there."
            )
    notes += [
        f"Run {run.name} has training curves but no diagnosis yet."
        for run in runs
        if run.diagnosis is None and run.metrics
    ]
    return tuple(notes)


def _undrawn(results: Path, runs: tuple[Run, ...]) -> tuple[str, ...]:
    """One sentence for each run whose decoded picture and its record do not belong together."""
    shown = {run.name for run in runs if run.decoded}
    folders = sorted({path.parent.name for path in results.glob("diagnostics/*/decoded.*")} - shown)
    return tuple(
        f"The decoded predictions of {name} are left out: decoded.png is not the picture that decoded.json describes; "
        "decode the run again to make both."
        for name in folders
    )


def _not_begun(results: Path, cells: tuple[Cell, ...], planned: tuple[PlannedCell, ...]) -> tuple[str, ...]:
    """One sentence on the cells of suites that are not there."""
    there = {(contest_of(e), e.method, e.seed) for e in (cell.evaluation for cell in cells)}
    absent = [p for p in planned if (contest_of(p), p.method, p.seed) not in there]
    if not absent:
        return ()
    first = absent[0]
    example = f"{first.method} on {first.environment}, {first.protocol}, H={first.horizon_blocks}, seed {first.seed}"
    return (
        f"{len(absent)} of {len(planned)} evaluations of the suite in {results} are missing ({example}"
        f"{', ...' if len(absent) > 1 else ''}); the same suite goes on.",
    )


def short_planner(planner: dict[str, Any]) -> str:
    """A planner and its settings on one line: cem: candidates 300, elites 30."""
    if not planner:
        return "none"
    settings = ", ".join(
        f"{key.replace('_', ' ')} {value if isinstance(value, str) else json.dumps(value)}"
        for key, value in planner.items()
        if key != "kind"
    )
    return ": ".join(part for part in (planner.get("kind"), settings) if part)  # the prior alone has no settings
