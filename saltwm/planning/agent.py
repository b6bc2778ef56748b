"""Agents: from frames and a goal picture to the next actions."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike

from saltwm.ground.checks import at_least, check
from saltwm.ground.config import PlannerConfig
from saltwm.ground.errors import UsageError
from saltwm.ground.rng import Key, torch_stream
from saltwm.model.modes import evaluating
from saltwm.model.traits import traits_of
from saltwm.model.world_model import WorldModel
from saltwm.planning.cem import Bounds, Plan
from saltwm.planning.costs import Situation
from saltwm.planning.looks import blocks_left, require_looks, split_plan
from saltwm.planning.planners import planner_given, planner_of
from saltwm.planning.policy import Actions, Decision, Frames, View
from saltwm.planning.prior import ActionPrior
from saltwm.planning.with_prior import default_planner, fitting_prior


class Agent:
    """Plans with a world model: encode the view and the goal once, search action blocks, execute them, look again.

    `decide` plans for many tasks at once; `reset` and `act` serve one gymnasium environment, frame by frame.
    """

    def __init__(
        self,
        model: WorldModel,
        planner: PlannerConfig | Callable[..., Plan] | str | None = None,
        *,
        horizon_blocks: int = 5,
        look_every: int | None = None,
        goal_blocks: int | None = None,
        action_low: ArrayLike | None = None,
        action_high: ArrayLike | None = None,
        history_frames: int = 1,
        seed: int = 0,
        prior: ActionPrior | None = None,
    ) -> None:
        """`horizon_blocks` are planned and all executed before the next look, as in the paper, or `look_every` of them.

        An agent that looks more often plans for as many blocks as are left until the goal is due, `horizon_blocks` at
        most (`looks.blocks_left`), and begins with what the last plan still holds. `goal_blocks` is when the goal is
        due, the horizon unless more is known.

        `planner` is a config of one of saltwm's planners, its name with any settings as on the command line, such as
        "map,w=2", or a function of your own (`planning.own` says which).

        `action_low` and `action_high` bound each raw action; without them plans are unbounded, as in the paper.
        A component may be open on either side, with an infinite bound.

        `prior` is what the planners map, cem-map, prior, cem-prior, icem-prior and mppi-prior need; with it map is the
        default for state-affine models and cem-map for others.

        `history_frames` beyond 1 gives a transformer predictor its history; the authors' evaluation gives it one frame.
        A model with memory always sees its last two frames, once there are two.
        """
        if (action_low is None) != (action_high is None):
            raise UsageError("agent: action_low and action_high bound actions together; give both or neither")
        at_least("agent: horizon_blocks", horizon_blocks)
        at_least("agent: history_frames", history_frames)
        self.model = model
        self.planner = planner_given(planner) or default_planner(model, prior)
        self.search = planner_of(self.planner)
        self.prior = fitting_prior(self.planner, model, prior, horizon_blocks)
        self.horizon_blocks = horizon_blocks
        self.goal_blocks = horizon_blocks if goal_blocks is None else goal_blocks
        at_least("agent: goal_blocks", self.goal_blocks)
        self.look_every = look_every
        require_looks(look_every, horizon_blocks)
        self.window = min(model.window, max(history_frames, traits_of(model.config.model).frames(model.config)))
        self.seed = seed
        self.bounds = None if action_low is None or action_high is None else self._bounds(action_low, action_high)
        self._episodes = 0
        self._episode: _Episode | None = None

    def _bounds(self, low: ArrayLike, high: ArrayLike) -> Bounds:
        limits = [np.atleast_1d(np.array(limit, np.float32)) for limit in (low, high)]
        for name, limit in zip(("low", "high"), limits, strict=True):
            check(f"agent: action_{name}", limit, "A", A=self.model.world.action_dim)
        _require_room(*limits)
        blocks = [torch.from_numpy(limit).repeat(self.model.config.frameskip) for limit in limits]
        return Bounds(*(self.model.action_encoder.normalise(block).cpu() for block in blocks))

    # --- many tasks at once ------------------------------------------------------------------------------------------

    @torch.no_grad()
    def decide(self, view: View, keys: Sequence[tuple[Key, ...]]) -> Decision:
        """Plan for each task; its random numbers depend on the agent's seed and the task's key alone."""
        config, world, block = self.model.config, self.model.world, self.model.action_encoder.block_dim
        sizes = check("frames", view.frames, "N W S S 3", S=world.image_size, dtype="uint8")
        check("past_blocks", view.past_blocks, "N W A", N=sizes["N"], W=sizes["W"] - 1, A=block)
        check("goals", view.goals, "N S S 3", N=sizes["N"], S=world.image_size, dtype="uint8")
        generators = [torch_stream(self.seed, "plan", *key) for key in keys]
        with evaluating(self.model):
            situation = self.situation(view)
            horizon = self.blocks_to_plan(situation)
            found = self.search(self.model, situation, horizon=horizon, generators=generators, bounds=self.bounds)
        executed = None if self.look_every is None else min(self.look_every, horizon) * config.frameskip
        return Decision(self.raw(found.actions), found.elite_costs.double().numpy(), executed)

    def raw(self, plans: torch.Tensor) -> Actions:
        """Normalised plans [N, H, block] as raw actions [N, steps, A]."""
        raw = self.model.action_encoder.denormalise(plans).cpu()
        return raw.reshape(len(raw), -1, self.model.world.action_dim).numpy().astype(np.float32)

    def blocks_to_plan(self, situation: Situation) -> int:
        """All, or with a look in between no more than are left until the goal is due."""
        if self.look_every is None:
            return self.horizon_blocks
        assert situation.blocks_left is not None
        left = sorted(set(situation.blocks_left.tolist()))
        if len(left) > 1:
            raise UsageError(
                f"agent: tasks with {left} blocks left in one decision, which plans equally many for all; "
                "decide for each of them apart"
            )
        return min(left[0], self.horizon_blocks)

    def situation(self, view: View) -> Situation:
        """The view in latents: each task is encoded alone, so that its latents do not depend on its neighbours."""
        latents, goals, conditions = [], [], []
        for frames, blocks, goal in zip(view.frames, view.past_blocks, view.goals, strict=True):
            pictures = torch.from_numpy(np.concatenate([frames, goal[None]]))
            encoded = self.model.encode(pictures[None])[0]
            latents.append(encoded[:-1])
            goals.append(encoded[-1])
            none = encoded.new_empty(0, self.model.transition.condition_dim)
            conditions.append(self.model.condition(torch.from_numpy(blocks)[None])[0] if len(blocks) else none)
        executed = [0] * len(latents) if view.executed_blocks is None else view.executed_blocks.tolist()
        left = [blocks_left(count, self.goal_blocks) for count in executed]
        history, goal, due = torch.stack(latents), torch.stack(goals), torch.tensor(left)
        proposal = None if self.prior is None else self.prior.propose(history[:, -1], goal, due.to(goal.device))
        return Situation(history, torch.stack(conditions), goal, due, self._normalised_rest(view), proposal)

    def _normalised_rest(self, view: View) -> torch.Tensor | None:
        """What the last plans still hold [N, R, block], for planners, which live on the CPU."""
        if view.rest_of_plan is None or self.look_every is None:
            return None
        block = self.model.action_encoder.block_dim
        raw = torch.from_numpy(view.rest_of_plan).reshape(len(view.rest_of_plan), -1, block)
        return self.model.action_encoder.normalise(raw).cpu()

    # --- one gymnasium environment -----------------------------------------------------------------------------------

    def reset(self, goal_frame: Frames) -> None:
        """Begin an episode towards a goal picture [S, S, 3]."""
        check("goal frame", goal_frame, "S S 3", S=self.model.world.image_size, dtype="uint8")
        self._episode = _Episode(self._episodes, np.array(goal_frame), deque(maxlen=self.window))
        self._episodes += 1

    def act(self, frame: Frames) -> Actions:
        """The next raw action [A] from the current frame [S, S, 3]; plans again when the last plan is used up."""
        episode = self._episode
        if episode is None:
            raise UsageError("agent: act before reset; give it a goal first: agent.reset(goal_frame)")
        check("frame", frame, "S S 3", S=self.model.world.image_size, dtype="uint8")
        if len(episode.taken) % self.model.config.frameskip == 0:
            episode.frames.append(np.array(frame))
        if not episode.queue:
            decision = self.decide(self._view(episode), [("episode", episode.number, len(episode.taken))])
            now, episode.rest = split_plan(decision)
            episode.queue.extend(now[0])
        episode.taken.append(episode.queue.popleft())
        return episode.taken[-1].copy()

    def _view(self, episode: "_Episode") -> View:
        skip, between = self.model.config.frameskip, len(episode.frames) - 1
        executed = episode.taken[len(episode.taken) - between * skip :]
        blocks = np.array(executed, np.float32).reshape(1, between, skip * self.model.world.action_dim)
        done = np.array([len(episode.taken) // skip])
        return View(np.stack(episode.frames)[None], blocks, episode.goal[None], done, episode.rest)


def _require_room(low: Actions, high: Actions) -> None:
    """UsageError for the first component that no finite number fits into; no comparison holds for NaN."""
    has_room = (low <= high) & (low < np.inf) & (high > -np.inf)
    if not has_room.all():
        component = int(np.argmin(has_room))
        raise UsageError(
            f"agent: action component {component} has action_low {low[component]:g} and action_high "
            f"{high[component]:g}; expected numbers with a low that is not above the high"
        )


@dataclass
class _Episode:
    """What an agent remembers while it acts in one environment."""

    number: int
    goal: Frames
    frames: deque[Frames]
    """The newest last, one per action block."""
    queue: deque[Actions] = field(default_factory=deque)
    """Actions to take before the next look."""
    rest: Actions | None = None
    """[1, steps, A] what the last plan holds beyond them."""
    taken: list[Actions] = field(default_factory=list)
