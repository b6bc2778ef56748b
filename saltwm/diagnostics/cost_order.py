"""Does the planner's cost order states as the environment does?"""

import contextlib

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from saltwm.data.split import held_out
from saltwm.diagnostics.probe import encode_frames, random_steps, states_at
from saltwm.disk.dataset import Dataset
from saltwm.envs import make_env
from saltwm.ground.errors import UsageError
from saltwm.ground.rng import stream
from saltwm.model.world_model import WorldModel


def cost_order(model: WorldModel, dataset: Dataset, pairs: int = 2000) -> float | None:
    """Does the planner's cost order states by their true distance? Over pairs of frames of one held-out episode.

    A planner minimises |z - z_g|^2; where that does not rank states as the environment's own distance does, no
    accuracy of the transition can help it.
    """
    rng = stream(0, "cost order")
    episodes = rng.choice(held_out(dataset), pairs)
    starts, goals = (random_steps(dataset, episodes, rng) for _ in range(2))
    z, z_goal = (encode_frames(model, dataset, episodes, steps) for steps in (starts, goals))
    try:
        env = make_env(dataset.world.environment, variant="clean")
    except UsageError:  # recorded, or its simulator is not here: nobody knows the true distance
        return None
    with contextlib.closing(env):
        if not env.measures:
            return None
        distances = env.goal_distance(states_at(dataset, episodes, starts), states_at(dataset, episodes, goals))
    return rank_correlation(((z - z_goal) ** 2).sum(axis=1), distances)


def rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """Spearman's correlation: [N], [N] -> score in [-1, 1]; none where one side never varies, as in a collapse."""
    if min(np.ptp(a), np.ptp(b)) == 0:
        return None
    return float(stats.spearmanr(a, b).statistic)
