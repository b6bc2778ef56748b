"""Failure anatomy (Sec. 4.4, App. D): did the model's own costs notice that the first plan had gone wrong?

For each failed episode c_hat is what the first plan promised and c what the second plan found after the first was
executed; both are elite costs in the model's latent space, at different optimisation stages, not physical distances.
"""

import itertools
import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from saltwm.disk.records import Cell, EpisodeRecord, Rate
from saltwm.evaluation.contests import Comparison, by_contest, compare, may_meet, on_shared_tasks
from saltwm.evaluation.statistics import wilson
from saltwm.ground.checks import one_of
from saltwm.ground.errors import MismatchError, NonFiniteError, UsageError

MISMATCH_RATIO = 5.0
"""A failure with c / c_hat above this is a mismatch (Sec. 4.4)."""


@dataclass(frozen=True)
class Failure:
    """One failed episode, read as the paper's failure anatomy does (Sec. 4.4, App. D)."""

    task: int
    kind: str
    """mismatch (c > 5 c_hat), unflagged, or unclassified (no second plan, or a policy without costs)."""
    predicted_cost: float | None
    """c_hat, mean elite cost after the last iteration of the first plan."""
    observed_cost: float | None
    """c, mean elite cost after the first iteration of the second plan, from what was then seen."""
    ratio: float | None
    """r = c / c_hat; none where either is missing or c_hat is zero."""


@dataclass(frozen=True)
class KindOfTask:
    """How often the tasks that ask for one kind of thing, such as lifting a cube, were reached."""

    kind: str
    reached: Rate


@dataclass(frozen=True)
class Anatomy:
    """The failures of one evaluation by kind; rates are over all its episodes, not only the failed ones."""

    mismatch: Rate
    unflagged: Rate
    unclassified: Rate
    failures: tuple[Failure, ...]
    tasks: tuple[KindOfTask, ...] = ()
    """Successes by what the task asks for; empty where the environment tells no kinds apart."""


@dataclass(frozen=True)
class PairedAnatomy:
    """The failures of two methods on the same tasks, and the 2x2 of their outcomes."""

    a: Anatomy
    b: Anatomy
    outcomes: Comparison


@dataclass(frozen=True)
class FailedEpisode:
    """An episode that one method failed, and what the other did with the same task."""

    cell: Cell
    other_cell: Cell
    failure: Failure
    episode: EpisodeRecord
    other: EpisodeRecord


def failed_episodes(pair: PairedAnatomy, cells: Mapping[str, Cell]) -> Iterator[FailedEpisode]:
    """Every failure of the first method, then every failure of the second; `cells` are theirs by name."""
    c = pair.outcomes
    for anatomy, mine, others in ((pair.a, c.cells_a, c.cells_b), (pair.b, c.cells_b, c.cells_a)):
        failures = iter(anatomy.failures)
        for name, other_name in zip(mine, others, strict=True):
            cell, other = cells[name], cells[other_name]
            for episode, counterpart in zip(cell.episodes, other.episodes, strict=True):
                if not episode.success:
                    yield FailedEpisode(cell, other, next(failures), episode, counterpart)


def anatomy(episodes: Sequence[EpisodeRecord], kinds: Sequence[str] = ()) -> Anatomy:
    """The failed episodes by kind, with rates over all episodes (Table 6).

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


def paired_anatomy(a: Sequence[Cell], b: Sequence[Cell]) -> PairedAnatomy:
    """Both methods' failures over the same task sets; MismatchError where the sets differ."""
    outcomes = compare(a, b)
    episodes = {cell.name: cell.episodes for cell in (*a, *b)}
    # In the order of the comparison's cells, so that the failures can be followed back to their evaluations.
    of_a, of_b = (
        anatomy([episode for name in names for episode in episodes[name]])
        for names in (outcomes.cells_a, outcomes.cells_b)
    )
    return PairedAnatomy(of_a, of_b, outcomes)


def pair_up(results: Path, cells: Collection[Cell], a: str, b: str) -> list[PairedAnatomy]:
    """The paired anatomies of two methods in the cells of `results`, one per environment, protocol and horizon shared.

    Either may also be the name of a single cell.
    """
    if not cells:
        raise UsageError(f"{results}: no evaluations", remedy="evaluate", path=results)
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


def _named(cells: Collection[Cell], name: str, results: Path) -> list[Cell]:
    """The cells of the method `name`, or the one cell of that name."""
    found = [cell for cell in cells if name in (cell.name, cell.evaluation.method)]
    if not found:
        one_of(f"method or cell in {results}", name, {cell.evaluation.method for cell in cells})
    return found


def examples(pairs: Sequence[PairedAnatomy], cells: Mapping[str, Cell], count: int) -> list[list[FailedEpisode]]:
    """About `count` failures to look at, as many of each pair: of each method and kind those nearest its median r.

    The paper shows examples near the median ratio of their type (App. D.3).
    """
    share = -(-count // len(pairs)) if pairs else 0
    return [_typical(list(failed_episodes(pair, cells)), share) for pair in pairs]


def _typical(failed: list[FailedEpisode], count: int) -> list[FailedEpisode]:
    groups: dict[tuple[str, str], list[FailedEpisode]] = {}
    for one in failed:
        groups.setdefault((one.cell.evaluation.method, one.failure.kind), []).append(one)
    ranked = []
    for group in groups.values():
        ratios = [one.failure.ratio for one in group if one.failure.ratio]
        middle = math.log(statistics.median(ratios)) if ratios else 0.0
        group.sort(key=lambda one: abs(math.log(one.failure.ratio) - middle) if one.failure.ratio else math.inf)
        ranked.append(group)
    in_turn = [one for row in itertools.zip_longest(*ranked) for one in row if one is not None]
    return in_turn[:count]


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
