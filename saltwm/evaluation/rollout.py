"""Acting on tasks: plan for all of them together, execute each in turn, look again, until it is over."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from saltwm.disk.dataset import Dataset
from saltwm.disk.records import EpisodeRecord, PlanRecord, Task
from saltwm.envs.base import Frame, PlanningEnv, State
from saltwm.ground.checks import at_least, check
from saltwm.ground.config import ProtocolConfig
from saltwm.ground.errors import UsageError
from saltwm.planning.looks import split_plan
from saltwm.planning.policy import Decision, Policy, View


@dataclass(frozen=True)
class Outcome:
    """What is recorded of an episode, and the actions that repeat it."""

    record: EpisodeRecord
    actions: NDArray[np.float32]
    """[steps taken, A]"""


@dataclass
class _Attempt:
    """A task under way. One simulator serves all tasks: an attempt carries its state between its turns."""

    task: Task
    state: State
    goal: State
    goal_frame: Frame
    frames: list[Frame]
    distance: float
    closest: float
    actions: list[NDArray[np.float32]] = field(default_factory=list)
    plans: list[PlanRecord] = field(default_factory=list)
    rest: NDArray[np.float32] | None = None
    """[steps, A] what the last plan holds beyond what was executed."""
    held: int = 0
    reason: str | None = None


Look = Callable[[Task], tuple[Frame, Frame]]
"""The pictures of a task's start and of its goal."""


def drawn(env: PlanningEnv) -> Look:
    """Starts and goals drawn from their states: the very pictures that a collected dataset holds."""

    def look(task: Task) -> tuple[Frame, Frame]:
        start, goal = env.draw_many(np.array([task.state, task.goal]), env.image_size)
        return start, goal

    return look


def stored(dataset: Dataset, goal_offset_steps: int) -> Look:
    """Starts and goals as an imported dataset shows them: its pictures were drawn by another renderer."""

    def look(task: Task) -> tuple[Frame, Frame]:
        steps = np.array([task.start_step, task.start_step + goal_offset_steps])
        start, goal = dataset.read_frames(np.array([task.episode, task.episode]), steps)
        return start, goal

    return look


def run_tasks(
    env: PlanningEnv,
    protocol: ProtocolConfig,
    tasks: list[Task],
    policy: Policy,
    frameskip: int,
    look: Look | None = None,
    report: Callable[[], None] | None = None,
) -> list[Outcome]:
    """One outcome per task, in order; each depends on its task, the protocol and the policy alone.

    `look` shows starts and goals, `drawn(env)` by default; what follows a start is rendered. `report` is called after
    each round of plans, for whoever waits.
    """
    look = look or drawn(env)
    attempts = [_begin(env, protocol, task, look) for task in tasks]
    while active := [attempt for attempt in attempts if attempt.reason is None]:
        view = _view(active, policy.window, frameskip, env.action_dim)
        decision = policy.decide(view, [(attempt.task.index, len(attempt.plans)) for attempt in active])
        _require_usable(policy, decision, len(active), env.action_dim, frameskip)
        actions, rest = split_plan(decision)
        for number, attempt in enumerate(active):
            attempt.plans.append(PlanRecord(len(attempt.actions), tuple(decision.elite_costs[number].tolist())))
            attempt.rest = None if rest is None else rest[number]
            _execute(env, protocol, attempt, actions[number], frameskip if policy.window > 1 else None)
        if report is not None:
            report()
    return [_outcome(attempt) for attempt in attempts]


def _require_usable(policy: Policy, decision: Decision, tasks: int, action_dim: int, frameskip: int) -> None:
    """Actions for every task, or the episode would never end; whole blocks of them, if the policy looks back."""
    name = type(policy).__name__
    steps = check(f"{name}: actions", decision.actions, "N T A", N=tasks, A=action_dim)["T"]
    check(f"{name}: elite costs", decision.elite_costs, "N I", N=tasks)
    at_least(f"{name}: decided actions", steps)
    if decision.execute_steps is not None:
        if not 1 <= decision.execute_steps <= steps:
            raise UsageError(f"{name}: decided {steps} actions and to execute {decision.execute_steps} of them")
        steps = decision.execute_steps
    if policy.window > 1 and steps % frameskip:
        raise UsageError(
            f"{name}: decided {steps} actions; a policy with a window of {policy.window} frames, one "
            f"every {frameskip} steps, must decide a multiple of {frameskip}"
        )


def _begin(env: PlanningEnv, protocol: ProtocolConfig, task: Task, look: Look) -> _Attempt:
    state, goal = np.array(task.state), np.array(task.goal)
    frame, goal_frame = look(task)
    distance = float(env.goal_distance(state[None], goal[None])[0])
    attempt = _Attempt(task, state, goal, goal_frame, [frame], distance, distance)
    # The published evaluation looks only after a step; `clean` says plainly that there was nothing to do.
    if protocol.variant == "clean" and distance < 1:
        attempt.reason = "solved-at-start"
    return attempt


def _view(active: list[_Attempt], window: int, frameskip: int, action_dim: int) -> View:
    """What the policy sees: the last frames, one per action block, and the blocks between them."""
    count = min(window, *(len(attempt.frames) for attempt in active))
    frames = np.stack([np.stack(attempt.frames[-count:]) for attempt in active])
    # reshape, because there may be no past block at all
    steps = (count - 1) * frameskip
    blocks = [
        np.array(attempt.actions[len(attempt.actions) - steps :], np.float32).reshape(count - 1, frameskip * action_dim)
        for attempt in active
    ]
    rests = [attempt.rest for attempt in active if attempt.rest is not None]
    return View(
        frames,
        np.stack(blocks),
        np.stack([attempt.goal_frame for attempt in active]),
        np.array([len(attempt.actions) // frameskip for attempt in active]),
        np.stack(rests) if rests else None,
    )


def _execute(
    env: PlanningEnv,
    protocol: ProtocolConfig,
    attempt: _Attempt,
    actions: NDArray[np.float32],
    frame_every: int | None,
) -> None:
    """Carry out actions [steps, A], or as many as success, world and budget allow; a frame last, or every few steps."""
    env.restore(attempt.state)
    env.set_goal(attempt.goal)
    for action in actions:
        _, _, reached, over, _ = env.step(action)
        attempt.actions.append(action)
        attempt.distance = float(env.goal_distance(env.state()[None], attempt.goal[None])[0])
        attempt.closest = min(attempt.closest, attempt.distance)
        attempt.held = attempt.held + 1 if reached else 0
        if attempt.held == protocol.hold_steps:
            attempt.reason = "reached"
        elif over:
            attempt.reason = "world-ended"
        elif len(attempt.actions) == protocol.budget_steps:
            attempt.reason = "budget"
        if attempt.reason is not None:
            break
        if frame_every is not None and len(attempt.actions) % frame_every == 0:
            attempt.frames.append(np.array(env.render()))  # the next may be drawn into the same array
    attempt.state = env.state()
    if frame_every is None and attempt.reason is None:
        attempt.frames = [np.array(env.render())]


def _outcome(attempt: _Attempt) -> Outcome:
    success = attempt.reason in ("reached", "solved-at-start")
    record = EpisodeRecord(
        task=attempt.task.index,
        success=success,
        steps_to_success=len(attempt.actions) if success else None,
        steps_taken=len(attempt.actions),
        reason=attempt.reason or "",
        start_distance=attempt.task.distance,
        final_distance=attempt.distance,
        closest_distance=attempt.closest,
        plans=tuple(attempt.plans),
    )
    return Outcome(record, np.array(attempt.actions, np.float32))
