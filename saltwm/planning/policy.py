"""What can be evaluated: anything that turns frames and a goal picture into the next actions. Needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from saltwm.ground.checks import at_least
from saltwm.ground.errors import UsageError
from saltwm.ground.rng import Key, stream

Frames = NDArray[np.uint8]
Actions = NDArray[np.float32]


@dataclass(frozen=True)
class View:
    """What an agent sees of N tasks when it decides."""

    frames: Frames
    """[N, W, H, W, 3] the newest last, one frame per action block."""
    past_blocks: Actions
    """[N, W-1, frameskip * A] raw action blocks executed between them."""
    goals: Frames
    """[N, H, W, 3]"""
    executed_blocks: NDArray[np.int64] | None = None
    """[N] action blocks executed since each task began; None at its beginning."""
    rest_of_plan: Actions | None = None
    """[N, steps, A] raw actions that the last decision planned and that were not executed; None if there are none."""


@dataclass(frozen=True)
class Decision:
    """Planned raw actions, how many of them to execute before the next look, and how planning went."""

    actions: Actions
    """[N, steps, A]"""
    elite_costs: NDArray[np.float64]
    """[N, iterations]; no columns if nothing was optimised."""
    execute_steps: int | None = None
    """Steps to execute before the next look; None for all of them."""


def blocks_left(executed_blocks: int, goal_blocks: int) -> int:
    """Action blocks until the goal is due, at least 1.

    They count down from the goal's distance in the data, `goal_blocks`. When they have run out, the goal was missed,
    and they count down from there again. Nothing else is known of the goal.
    """
    return goal_blocks - executed_blocks % goal_blocks


def split_plan(decision: Decision) -> tuple[Actions, Actions | None]:
    """The actions to execute before the next look [N, steps, A], and those planned beyond them, if there are any."""
    steps = decision.actions.shape[1] if decision.execute_steps is None else decision.execute_steps
    rest = decision.actions[:, steps:]
    return decision.actions[:, :steps], rest if rest.shape[1] else None


def require_looks(look_every: int | None, horizon_blocks: int) -> None:
    """UsageError unless there is a look within the plan, or none."""
    at_least("look_every", look_every)
    if look_every is not None and look_every >= horizon_blocks:
        raise UsageError(
            f"look_every {look_every}: a plan has {horizon_blocks} blocks, and all of them are executed before the "
            f"next look by default; expected 1 to {horizon_blocks - 1}, or leave it out"
        )


def require_horizon(proposed: int, horizon: int) -> None:
    """UsageError for a plan of more blocks than an action prior proposes."""
    if horizon > proposed:
        raise UsageError(
            f"the action prior proposes {proposed} blocks, and a plan of {horizon} was asked for; "
            f"plan with a `horizon` of {proposed}, or fewer"
        )


class Policy(Protocol):
    """Anything that can be evaluated: it is asked once per task and replanning."""

    @property
    def window(self) -> int:
        """Frames of history it wants to see, at most."""
        ...

    def decide(self, view: View, keys: Sequence[tuple[Key, ...]]) -> Decision:
        """The next actions of each task; `keys` name the tasks' random streams."""
        ...


class RandomPolicy:
    """Uniform actions: the row that every table needs."""

    window = 1

    def __init__(self, low: ArrayLike, high: ArrayLike, *, steps: int, seed: int = 0) -> None:
        self.low, self.high = np.asarray(low, np.float32), np.asarray(high, np.float32)
        self.steps = steps
        self.seed = seed

    def decide(self, view: View, keys: Sequence[tuple[Key, ...]]) -> Decision:
        """`steps` uniform actions for each task."""
        shape = (self.steps, len(self.low))
        actions = [stream(self.seed, "random-policy", *key).uniform(self.low, self.high, shape) for key in keys]
        return Decision(np.stack(actions).astype(np.float32), np.empty((len(keys), 0)))
