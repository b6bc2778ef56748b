"""Failure anatomy (Sec. 4.4, App. D): did the model's own costs notice that the first plan had gone wrong?

For each failed episode c_hat is what the first plan promised and c what the second plan found after the first was
executed; both are elite costs in the model's latent space, at different optimisation stages, not physical distances.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from saltwm.disk.durable import write_config
from saltwm.disk.records import (
    MISMATCH_RATIO,
    Anatomy,
    Cell,
    EpisodeRecord,
    Failure,
    KindOfTask,
    PairedAnatomy,
    Rate,
    read_cells,
    read_tasks,
)
from saltwm.envs import ENVIRONMENTS, env_class
from saltwm.evaluation.statistics import by_contest, compare, may_meet, on_shared_tasks, wilson
from saltwm.ground.checks import one_of
from saltwm.ground.errors import MismatchError, NonFiniteError, UsageError


def anatomy(episodes: Sequence[EpisodeRecord], kinds: Sequence[str] = ()) -> Anatomy:
    """The failed episodes by kind, with rates over all episodes (Table anatomy-rate).

    `kinds` are those of the episodes' tasks, in the same order; success is then counted by them too.
    """
    failures = tuple(dissect(episode) for episode in episodes if not episode.success)

    def rate(kind: str) -> Rate:
        return wilson(sum(failure.kind == kind for failure in failures), len(episodes))

    return Anatomy(rate("mismatch"), rate("unflagged"), rate("unclassified"), failures, _by_task(episodes, kinds))


def _by_task(episodes: Sequence[EpisodeRecord], kinds: Sequence[str]) -> tuple[KindOfTask, ...]:
    if not any(kinds):  # an environment whose tasks are all alike
        return ()
    outcomes: dict[str, list[bool]] = {kind: [] for kind in sorted(set(kinds))}
    for kind, episode in zip(kinds, episodes, strict=True):
        outcomes[kind].append(episode.success)
    return tuple(KindOfTask(kind, wilson(sum(of), len(of))) for kind, of in outcomes.items())


def paired_anatomy(a: Sequence[Cell], b: Sequence[Cell], seed: int = 0) -> PairedAnatomy:
    """Both methods' failures over the same task sets; MismatchError where the sets differ."""
    outcomes = compare(a, b, seed)
    episodes = {cell.name: cell.episodes for cell in (*a, *b)}
    # In the order of the comparison's cells, so that the failures can be followed back to their evaluations.
    of_a, of_b = (
        anatomy([episode for name in names for episode in episodes[name]])
        for names in (outcomes.cells_a, outcomes.cells_b)
    )
    return PairedAnatomy(of_a, of_b, outcomes)


def pair_up(results: Path, a: str, b: str) -> list[PairedAnatomy]:
    """The paired anatomies of two methods under `results`, one per environment, protocol and horizon they share.

    Either may also be the name of a single cell.
    """
    cells = read_cells(results)
    if not cells:
        raise UsageError(f"{results}: no evaluations; make some with: saltwm evaluate RUN --data DATA --out {results}")
    if a == b:
        raise UsageError(f"{a} against itself: name two methods, or two evaluations, in {results}")
    side_a, side_b = (by_contest(_named(cells, name, results)) for name in (a, b))
    pairs = []
    for contest in sorted(side_a.keys() & side_b.keys()):
        # Two runs under one name are two methods: their episodes are never pooled.
        for in_a, in_b in itertools.product(side_a[contest], side_b[contest]):
            met_a, met_b = on_shared_tasks(in_a, in_b)
            if met_a and may_meet(met_a, met_b):
                pairs.append(paired_anatomy(met_a, met_b))
    if not pairs:
        raise MismatchError(f"{results}: {a} and {b} were never evaluated on the same tasks; evaluate both again")
    return pairs


def _named(cells: Sequence[Cell], name: str, results: Path) -> list[Cell]:
    """The cells of the method `name`, or the one cell of that name."""
    found = [cell for cell in cells if name in (cell.name, cell.evaluation.method)]
    if not found:
        one_of(f"method or cell in {results}", name, {cell.evaluation.method for cell in cells})
    return found


def write_anatomies(results: Path) -> None:
    """Leave anatomy.json beside every finished evaluation under `results`."""
    results, kinds = Path(results), dict[str, list[str]]()
    for cell in read_cells(results):
        tasks = cell.evaluation.tasks_sha256
        if tasks not in kinds:
            kinds[tasks] = _task_kinds(results / cell.evaluation.tasks_file, tasks)
        write_config(results / "evaluations" / cell.name / "anatomy.json", anatomy(cell.episodes, kinds[tasks]))


def _task_kinds(path: Path, sha256: str) -> list[str]:
    """What each task of the set asks for; nothing if the set is gone, another one's, or of a foreign environment."""
    tasks = read_tasks(path) if path.exists() else None
    if tasks is None or tasks.sha256 != sha256 or tasks.world.environment not in ENVIRONMENTS:
        return []
    states, goals = (np.array([getattr(task, part) for task in tasks.tasks]) for part in ("state", "goal"))
    return env_class(tasks.world.environment).task_kinds(states, goals)


def dissect(episode: EpisodeRecord) -> Failure:
    """One failed episode. A budget that ended before a second plan leaves it unclassified, and counted as such."""
    predicted, observed = _elite_cost(episode, plan=0, iteration=-1), _elite_cost(episode, plan=1, iteration=0)
    if predicted is None or observed is None:
        return Failure(episode.task, "unclassified", predicted, observed, None)
    # c > 5 c_hat rather than c / c_hat > 5: a plan that promised a cost of zero is classified too.
    kind = "mismatch" if observed > MISMATCH_RATIO * predicted else "unflagged"
    return Failure(episode.task, kind, predicted, observed, observed / predicted if predicted > 0 else None)


def _elite_cost(episode: EpisodeRecord, plan: int, iteration: int) -> float | None:
    """Mean elite cost of one iteration of one plan; none if there was no such plan or its policy has no costs."""
    if len(episode.plans) <= plan or not episode.plans[plan].elite_costs:
        return None
    cost = episode.plans[plan].elite_costs[iteration]
    if not math.isfinite(cost):
        raise NonFiniteError(f"task {episode.task}: plan {plan} has the elite cost {cost}; evaluate this task again")
    return cost
