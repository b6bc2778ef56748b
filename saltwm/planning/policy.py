"""What can be evaluated: anything that turns frames and a goal picture into the next actions. Needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


class Policy(Protocol):
    """Anything that can be evaluated: `decide` is called once per task and replanning."""

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
