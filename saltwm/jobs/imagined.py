"""What plans expected of the blocks that were carried out, and pictures that show it.

A latent has no picture of its own. Among states that are known, the one whose latent is nearest stands for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from saltwm.disk import checkpoint
from saltwm.disk.records import Task, TaskSet
from saltwm.envs.base import PlanningEnv, State
from saltwm.evaluation.rollout import Outcome
from saltwm.jobs.evaluate import MODELLESS, Acting

if TYPE_CHECKING:
    from torch import Tensor

    from saltwm.model.world_model import WorldModel

MOST_KNOWN = 512
"""States that can stand for a latent: each is drawn and encoded once."""


@dataclass(frozen=True)
class Expected:
    """What the plan in force expected for a step."""

    step: int
    latent: "Tensor"
    """[D]"""


def expected(model: "WorldModel", outcome: Outcome, look: "Callable[[int], Tensor]", frames: int = 1) -> list[Expected]:
    """What each plan expected after each of its whole blocks that were carried out.

    `look` is phi of what was seen at a step [D]; `frames` is how many of them, a block apart, the planner saw.
    """
    import torch

    skip, block_dim = model.config.frameskip, model.action_encoder.block_dim
    begins = [plan.step for plan in outcome.record.plans]
    found: list[Expected] = []
    for begin, end in zip(begins, [*begins[1:], len(outcome.actions)], strict=True):
        blocks = (end - begin) // skip
        if not blocks:
            continue
        first = begin - (min(frames, begin // skip + 1) - 1) * skip
        actions = torch.from_numpy(outcome.actions[first : begin + blocks * skip]).reshape(1, -1, block_dim)
        history = torch.stack([look(step) for step in range(first, begin + 1, skip)])
        with torch.inference_mode():
            path = model.rollout(history[None], model.condition(actions))[0]
        found += [Expected(begin + (block + 1) * skip, latent) for block, latent in enumerate(path)]
    return found


def repeated(env: PlanningEnv, task: Task, outcome: Outcome) -> State:
    """Recorded actions from a restored state repeat the episode: states [T + 1, S]."""
    env.restore(np.array(task.state))
    return np.stack([env.state(), *(env.step(action)[0] for action in outcome.actions)])


class Imagination:
    """What a model expected, as states that can be drawn."""

    def __init__(self, model: "WorldModel", frames: int, env: PlanningEnv, known: State) -> None:
        self.model, self.frames, self.env, self.known = model, frames, env, known
        self.latents = self._encode(known)

    def during(self, states: State, outcome: Outcome) -> list[State | None]:
        """For each step of an episode the state expected at the end of its block; None where nothing was expected."""
        import torch

        latents = self._encode(states)
        plans = expected(self.model, outcome, lambda step: latents[step], self.frames)
        if not plans:
            return [None] * len(states)
        nearest = torch.cdist(torch.stack([one.latent for one in plans]), self.latents).argmin(dim=1).tolist()
        steps = np.array([one.step for one in plans])
        at = np.searchsorted(steps, np.arange(len(states))).clip(max=len(plans) - 1)
        return [self.known[nearest[place]] for place in at]

    def _encode(self, states: State) -> "Tensor":
        from saltwm.diagnostics.probe import encode_pictures

        return encode_pictures(self.model, self.env.draw_many(states, self.model.world.image_size))


def imagination(job: Acting, tasks: TaskSet, outcomes: Sequence[Outcome], env: PlanningEnv) -> Imagination | None:
    """The imagination of the model that acted; None for a policy without a model, or if the model is gone or changed.

    None too for tasks that begin at pictures of another renderer: what the model saw there cannot be drawn.
    """
    path = Path(job.run)
    if job.run in MODELLESS or tasks.world.renderer == "imported" or not checkpoint.named(path).exists():
        return None
    path = checkpoint.find_checkpoint(path)
    if checkpoint.identity(path) != job.inputs["run"]:
        return None
    model = checkpoint.load(path, world=tasks.world).requires_grad_(False)
    known = _known_states(env, tasks, outcomes, model.config.frameskip)
    return Imagination(model, job.history, env, known)


def _known_states(env: PlanningEnv, tasks: TaskSet, outcomes: Sequence[Outcome], frameskip: int) -> State:
    """Starts and goals of the tasks, and the block ends of as many episodes as there is room for."""
    pairs = [np.array([task.state, task.goal]) for task in tasks.tasks[: MOST_KNOWN // 4]]
    room = MOST_KNOWN - 2 * len(pairs)
    longest = max(len(outcome.actions) for outcome in outcomes) // frameskip + 1
    chosen = np.linspace(0, len(outcomes) - 1, min(len(outcomes), max(1, room // longest))).round().astype(int)
    ways = [repeated(env, tasks.tasks[outcomes[i].record.task], outcomes[i])[::frameskip] for i in chosen]
    return np.concatenate([*pairs, *ways])[:MOST_KNOWN]
