"""Films of recorded episodes, drawn again from their actions: now, what the plan in force expected, and the goal."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from saltwm.disk.durable import read_config
from saltwm.disk.records import Evaluation, filmed, read_tasks
from saltwm.evaluation.anatomy import FailedEpisode
from saltwm.ground.errors import UsageError
from saltwm.ground.progress import progress
from saltwm.jobs.chunks import read_outcomes
from saltwm.jobs.evaluate import Evaluate
from saltwm.jobs.imagined import imagination
from saltwm.jobs.pictures import film

PICTURES = "pictures"
FIRST = (0, 1, 2, 3)
"""Tasks that are filmed where nothing was filmed and nobody says which."""


def recorded_folders(given: Iterable[Path]) -> list[Path]:
    """Folders of finished evaluations: those given, and those with films in the results directories given."""
    found: list[Path] = []
    for path in given:
        if (path / "evaluation.json").exists():
            found.append(path)
        elif (path / "evaluations").is_dir():
            films = [films for films in sorted(path.glob(f"evaluations/*/{PICTURES}")) if filmed_tasks(films)]
            if not films:
                raise UsageError(f"{path}: nothing is filmed yet; name the evaluations to film: {path}/evaluations/*")
            found += [each.parent for each in films]
        else:
            raise UsageError(f"{path}: neither an evaluation nor a results directory", remedy="evaluate", path=path)
    return found


def filmed_tasks(pictures: Path) -> list[int]:
    """Tasks that a folder of pictures has a film of."""
    found = (filmed(path.stem) for path in pictures.glob("*.gif"))
    return sorted({task for task, _ in filter(None, found)})


def film_recorded(folder: Path, wanted: Sequence[int], out: Path) -> list[Path]:
    """Film these tasks of an evaluation into OUT."""
    if not wanted:
        return []
    evaluation = read_config(Evaluation, folder / "evaluation.json")
    tasks = read_tasks(folder.parents[1] / evaluation.tasks_file)
    outcomes = read_outcomes(folder)
    chosen = [outcome for outcome in outcomes if outcome.record.task in set(wanted)]
    if lacking := sorted(set(wanted) - {outcome.record.task for outcome in chosen}):
        raise UsageError(f"{folder}: no task {lacking[0]}; there are tasks 0 to {len(outcomes) - 1}")
    job = Evaluate.found_in(folder)
    imagine = (lambda env: None) if job is None else partial(imagination, job, tasks, outcomes)
    return film(tasks, chosen, out, imagine)


def film_failures(results: Path, failed: Sequence[FailedEpisode], out: Path) -> None:
    """Film these failures, and what the other method did there, into OUT/CELL; what is filmed already stays."""
    wanted: dict[str, dict[int, str]] = {}
    for one in failed:
        for cell, episode in ((one.cell, one.episode), (one.other_cell, one.other)):
            wanted.setdefault(cell.name, {})[episode.task] = f"{episode.picture}.png"
    with progress("film failures", sum(map(len, wanted.values()))) as advance:
        for name, pictures in sorted(wanted.items()):
            folder = Path(results) / "evaluations" / name
            places = (folder / PICTURES, out / name)
            lacking = [task for task, file in pictures.items() if not any((place / file).exists() for place in places)]
            if (folder / "actions.npy").exists():  # else evaluated before actions were kept; the page says so
                film_recorded(folder, lacking, out / name)
            advance(len(pictures))
