"""Pictures of failed episodes, drawn when somebody wants to look at them."""

from collections.abc import Sequence
from pathlib import Path

from saltwm.disk.records import PairedAnatomy, failed_episodes, read_cell, read_tasks
from saltwm.ground.progress import progress
from saltwm.jobs.chunks import read_outcomes
from saltwm.jobs.pictures import film, picture_name


def film_failures(results: Path, pairs: Sequence[PairedAnatomy], count: int) -> None:
    """Film the first `count` failures of the pairs, and what the other method did there, unless that is done."""
    results = Path(results)
    names = {name for pair in pairs for name in (*pair.outcomes.cells_a, *pair.outcomes.cells_b)}
    cells = {name: read_cell(results / "evaluations" / name) for name in names}
    failed = [one for pair in pairs for one in failed_episodes(pair, cells)][:count]
    wanted = {(cell.name, one.episode.task) for one in failed for cell in (one.cell, one.other_cell)}
    with progress("film failures", len(wanted)) as advance:
        for name in sorted({name for name, _ in wanted}):
            folder = results / "evaluations" / name
            if not (folder / "actions.npy").exists():
                continue  # evaluated before actions were kept; the page says so
            tasks = read_tasks(results / cells[name].evaluation.tasks_file)
            for outcome in read_outcomes(folder):
                if (name, outcome.record.task) in wanted:
                    if not (folder / "pictures" / f"{picture_name(outcome.record)}.png").exists():
                        film(tasks, [outcome], folder / "pictures")
                    advance()
