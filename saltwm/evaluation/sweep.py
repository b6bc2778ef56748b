"""The one small sweep that every objective is granted, written down before its runs.

Each objective names the term whose weight matters most (`Objective.swept`). That weight is tried at the published value
and at a third and three times of it, everything else as the recipe has it. The tuning tasks come from the training
set's held-out episodes, which no evaluation uses, and are planned with a smaller search, the same for all weights. The
weight that reaches the most of them is then evaluated like all others; a tie goes to the published one.
"""

from collections.abc import Mapping

from saltwm.disk.records import TaskSet
from saltwm.ground.config import CEMConfig
from saltwm.ground.errors import MismatchError

FACTORS = (1 / 3, 1.0, 3.0)
"""Multiples of the published weight that are tried."""
ENVIRONMENTS = ("two-room",)
SEED = 7
"""Seed of the tuning tasks."""
TASKS = 50
PLANNER = CEMConfig(candidates=100, iterations=10, elites=10)
"""A ninth of the evaluation's work (App. B.5)."""
FOLDER = "tuning"
"""Under the results: a results folder of its own, so that no tuning task gets into a table of results."""


def scaled(published: float, factor: float) -> float:
    """A weight that is tried, in three digits; the published one as it is."""
    return published if factor == 1 else float(f"{published * factor:.3g}")


def chosen(reached: Mapping[float, int], published: float) -> float:
    """The weight that reaches the most tuning tasks; at a tie the published one, and without it the smallest."""
    best = [weight for weight in sorted(reached) if reached[weight] == max(reached.values())]
    return published if published in best else best[0]


def require_apart(tuning: TaskSet, evaluation: TaskSet) -> None:
    """MismatchError if a weight would be chosen on episodes that it is evaluated on afterwards."""
    if tuning.dataset_sha256 != evaluation.dataset_sha256:
        return
    shared = {task.episode for task in tuning.tasks} & {task.episode for task in evaluation.tasks}
    if shared:
        raise MismatchError(
            f"{len(shared)} episodes of dataset {tuning.dataset_sha256[:12]} have both tuning and evaluation tasks, "
            f"the first is {min(shared)}; evaluate on a dataset of its own, collected with `held_out`"
        )
