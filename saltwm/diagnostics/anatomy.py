"""Failure anatomy (Sec. 4.4, App. D): did the model's own costs notice that the first plan had gone wrong?

For each failed episode c_hat is what the first plan promised and c what the second plan found after the first was
executed; both are elite costs in the model's latent space, at different optimisation stages, not physical distances.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saltwm.config import write_config
from saltwm.errors import NonFiniteError
from saltwm.evaluation.statistics import compare, wilson
from saltwm.records import Anatomy, Cell, Comparison, EpisodeRecord, Failure, Rate, read_cells

MISMATCH_RATIO = 5.0  # r > 5 is a mismatch failure (Sec. 4.4)


@dataclass(frozen=True)
class PairedAnatomy:
    """The failures of two methods on the same tasks, and the 2x2 of their outcomes."""

    a: Anatomy
    b: Anatomy
    outcomes: Comparison


def anatomy(episodes: Sequence[EpisodeRecord]) -> Anatomy:
    """The failed episodes by kind, with rates over all episodes (Table anatomy-rate)."""
    failures = tuple(dissect(episode) for episode in episodes if not episode.success)

    def rate(kind: str) -> Rate:
        return wilson(sum(failure.kind == kind for failure in failures), len(episodes))

    return Anatomy(rate("mismatch"), rate("unflagged"), rate("unclassified"), failures)


def paired_anatomy(a: Sequence[Cell], b: Sequence[Cell], seed: int = 0) -> PairedAnatomy:
    """Both methods' failures over the same task sets; MismatchError where the sets differ."""
    outcomes = compare(a, b, seed)
    of_a, of_b = (anatomy([episode for cell in side for episode in cell.episodes]) for side in (a, b))
    return PairedAnatomy(of_a, of_b, outcomes)


def write_anatomies(results: Path) -> None:
    """Leave anatomy.json beside every finished evaluation under `results`."""
    for cell in read_cells(results):
        write_config(Path(results) / "evaluations" / cell.name / "anatomy.json", anatomy(cell.episodes))


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
