"""Pictures of failed episodes, drawn when somebody wants to look at them."""

from collections.abc import Iterable
from pathlib import Path

from saltwm.disk.records import FailedEpisode, read_tasks
from saltwm.ground.progress import progress
from saltwm.jobs.chunks import read_outcomes
from saltwm.jobs.pictures import film, picture_name


def film_failures(results: Path, failed: Iterable[FailedEpisode], out: Path) -> None:
    """Film these failures, and what the other method did there, into OUT/CELL; what is filmed already stays."""
    results = Path(results)
    cells = {cell.name: cell for one in failed for cell in (one.cell, one.other_cell)}
    wanted = {(cell.name, one.episode.task) for one in failed for cell in (one.cell, one.other_cell)}
    with progress("film failures", len(wanted)) as advance:
        for name, cell in sorted(cells.items()):
            folder = results / "evaluations" / name
            if not (folder / "actions.npy").exists():
                continue  # evaluated before actions were kept; the page says so
            tasks = read_tasks(results / cell.evaluation.tasks_file)
            for outcome in read_outcomes(folder):
                if (name, outcome.record.task) in wanted:
                    picture = f"{picture_name(outcome.record)}.png"
                    if not any((place / picture).exists() for place in (folder / "pictures", out / name)):
                        film(tasks, [outcome], out / name)
                    advance()
