"""Everything under results/ as one record; what is unfinished is named, what is damaged is refused."""

import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltwm import durable
from saltwm.config import from_plain, read_config
from saltwm.errors import DamagedError, UsageError
from saltwm.records import Anatomy, Cell, Comparison, Diagnosis, TaskSet, read_cells

_PICTURE_KINDS = {".gif": "GIF", ".png": "PNG"}


@dataclass(frozen=True)
class Picture:
    """One file of evaluations/CELL/pictures, known to be a picture of its kind."""

    cell: str
    name: str
    kind: str
    """gif or png."""
    data: bytes
    width: int
    height: int


@dataclass(frozen=True)
class Run:
    """A training run as its diagnostics folder tells it; either part may not be there yet."""

    name: str
    environment: str | None
    """None where nothing on disk says it."""
    method: str | None
    diagnosis: Diagnosis | None
    metrics: tuple[dict[str, float], ...]


@dataclass(frozen=True)
class Findings:
    """What a report can be made of."""

    results: Path
    cells: tuple[Cell, ...]
    anatomies: dict[str, Anatomy]
    """By cell."""
    pictures: tuple[Picture, ...]
    comparisons: tuple[Comparison, ...]
    task_sets: dict[str, TaskSet]
    """By hash."""
    runs: tuple[Run, ...]
    unfinished: tuple[str, ...]
    """One sentence for each thing that is not whole yet and therefore in no table."""


def read_findings(results: Path) -> Findings:
    """Read a results folder; UsageError if there is nothing in it, DamagedError naming the file if something is."""
    results = Path(results)
    cells = read_cells(results)
    runs = tuple(
        _read_run(folder, cells) for folder in sorted(results.glob("diagnostics/*")) if _visible_folder(folder)
    )
    runs = tuple(run for run in runs if run.diagnosis or run.metrics)
    if not cells and not runs:
        raise UsageError(
            f"{results}: no results to report; make some with: saltwm evaluate RUN --data DATA --out {results}"
        )
    folder = results / "evaluations"
    return Findings(
        results=results,
        cells=cells,
        anatomies={
            cell.name: read_config(Anatomy, folder / cell.name / "anatomy.json")
            for cell in cells
            if (folder / cell.name / "anatomy.json").exists()
        },
        pictures=tuple(picture for cell in cells for picture in _read_pictures(folder / cell.name)),
        comparisons=_read_comparisons(results / "comparisons.json", cells),
        task_sets=_read_task_sets(results),
        runs=runs,
        unfinished=_unfinished(results, cells, runs),
    )


def _visible_folder(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def _read_run(folder: Path, cells: tuple[Cell, ...]) -> Run:
    diagnosis_file, metrics_file = folder / "diagnosis.json", folder / "metrics.jsonl"
    diagnosis = read_config(Diagnosis, diagnosis_file) if diagnosis_file.exists() else None
    metrics = _read_metrics(metrics_file) if metrics_file.exists() else ()
    if diagnosis is not None:
        return Run(folder.name, diagnosis.environment, diagnosis.method, diagnosis, metrics)
    for evaluation in (cell.evaluation for cell in cells):
        if evaluation.checkpoint and Path(evaluation.checkpoint).name == folder.name:
            return Run(folder.name, evaluation.environment, evaluation.method, None, metrics)
    return Run(folder.name, None, None, None, metrics)


def _read_metrics(path: Path) -> tuple[dict[str, float], ...]:
    """The lines of a metrics file; each has a step, any other key may be absent from a line."""
    lines = []
    for number, line in enumerate(durable.read_json_lines(path), start=1):
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            raise DamagedError(f"{path}: line {number}: expected an object with an integer step, found {line!r:.80}")
        lines.append({key: float(value) for key, value in line.items() if _is_number(value)})
    return tuple(lines)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _read_comparisons(path: Path, cells: tuple[Cell, ...]) -> tuple[Comparison, ...]:
    if not path.exists():
        return ()
    items = durable.read_json(path)
    if not isinstance(items, list):
        raise DamagedError(f"{path}: expected a list of comparisons, found {type(items).__name__}")
    found = tuple(from_plain(Comparison, item, f"{path}: entry {i}") for i, item in enumerate(items))
    names = {cell.name for cell in cells}
    for comparison in found:
        for name in (*comparison.cells_a, *comparison.cells_b):
            if name not in names:
                raise DamagedError(f"{path}: compares {name}, which is no finished evaluation here; evaluate again")
    return found


def _read_task_sets(results: Path) -> dict[str, TaskSet]:
    sets = (read_config(TaskSet, path) for path in sorted(results.glob("tasks/*.json")))
    return {task_set.sha256: task_set for task_set in sets}


def _read_pictures(cell: Path) -> list[Picture]:
    """The cell's pictures by name. A file that only pretends to be one is damage: it would be sent to a browser."""
    from PIL import Image

    pictures = []
    for path in sorted((cell / "pictures").glob("*")):
        expected = _PICTURE_KINDS.get(path.suffix)
        if expected is None or path.name.startswith("."):
            continue
        data = durable.read_bytes(path)
        try:
            with Image.open(io.BytesIO(data), formats=[expected]) as image:
                image.verify()
                size = image.size
        except (OSError, ValueError, SyntaxError) as error:
            raise DamagedError(f"{path}: not a {expected} picture; evaluate again to draw it anew") from error
        pictures.append(Picture(cell.name, path.name, path.suffix[1:], data, *size))
    return pictures


def _unfinished(results: Path, cells: tuple[Cell, ...], runs: tuple[Run, ...]) -> tuple[str, ...]:
    finished = {cell.name for cell in cells}
    notes = []
    for folder in sorted(results.glob("evaluations/*")):
        if _visible_folder(folder) and folder.name not in finished:
            path = folder / "episodes.jsonl"
            done = len(durable.read_json_lines(path)) if path.exists() else 0
            notes.append(
                f"Evaluation {folder.name} is unfinished ({done} episodes so far) and in no table; "
                "the same saltwm evaluate command goes on from there."
            )
    notes += [
        f"Run {run.name} has training curves but no diagnosis; make it with saltwm diagnose."
        for run in runs
        if run.diagnosis is None
    ]
    return tuple(notes)


def short_planner(planner: dict[str, Any]) -> str:
    """A planner's settings on one line."""
    if not planner:
        return "none"
    return ", ".join(
        f"{key} {value if isinstance(value, str) else json.dumps(value)}" for key, value in planner.items()
    )
