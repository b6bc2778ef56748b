"""What of an environment's state can be moved by hand, and where planned actions lead in its picture."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from saltwm.envs import two_room
from saltwm.envs.base import PlanningEnv, State

Trails = NDArray[np.float64]
"""[plans, steps + 1, 2], in shares of the picture's width and height."""


@dataclass(frozen=True)
class Handle:
    """Something in the picture that can be dragged."""

    name: str
    x: int
    """Index of its horizontal place in the state."""
    y: int
    scale: float
    """World units along a side of the picture."""
    radius: float
    """How near a pointer must come, in world units."""
    angle: int | None = None
    """Index of its angle, if it can be turned."""
    offset: tuple[float, float] = (0.0, 0.0)
    """From its place to its middle, in its own turned frame."""


@dataclass(frozen=True)
class Slider:
    """A number of the state with the range that data show of it."""

    name: str
    index: int
    unit: str


@dataclass(frozen=True)
class Scene:
    """How a person takes hold of an environment."""

    actions: tuple[str, ...] = ()
    """What each number of an action does, in a word or two; empty where it is unknown."""
    handles: tuple[Handle, ...] = ()
    sliders: tuple[Slider, ...] = ()
    settle: Callable[[State], State] = field(default=lambda state: state)
    """The nearest state that the world allows, at rest."""
    trails: Callable[[PlanningEnv, State, NDArray[np.float32]], Trails] | None = None
    """Where actions [plans, steps, A] lead, if they have a place in the picture."""


def scene_of(environment: str) -> Scene:
    """The scene of an environment; one without handles for those that nobody described."""
    return SCENES.get(environment, Scene)()


def action_names(environment: str, action_dim: int, recorded: tuple[str, ...] = ()) -> list[str]:
    """What each number of an action is called: in its world, in its recording, or by its place."""
    named = recorded or scene_of(environment).actions
    return list(named) if len(named) == action_dim else [f"action {part}" for part in range(1, action_dim + 1)]


# --- Two-Room --------------------------------------------------------------------------------------------------------


def _settle_two_room(state: State) -> State:
    """Inside the border, and beside the wall rather than in it."""
    x, y = np.clip(state, two_room.LOW, two_room.HIGH)
    in_door = abs(y - two_room.DOOR_CENTRE) <= two_room.DOOR_HALF - two_room.RADIUS
    if two_room.WALL_LEFT < x < two_room.WALL_RIGHT and not in_door:
        x = two_room.WALL_LEFT if x < two_room.WALL_CENTRE else two_room.WALL_RIGHT
    return np.array([x, y])


def _two_room_trails(env: PlanningEnv, state: State, plans: NDArray[np.float32]) -> Trails:
    """By the world's own physics: a plan that meets a wall is seen to."""
    trails = np.empty((len(plans), plans.shape[1] + 1, 2))
    for trail, actions in zip(trails, plans, strict=True):
        env.restore(state)
        trail[0] = state
        for step, action in enumerate(actions, start=1):
            trail[step] = env.step(action)[0]
    return trails / two_room.WORLD


# --- PushT -----------------------------------------------------------------------------------------------------------


def _settle_push_t(state: State) -> State:
    """Agent and block on the table, at rest."""
    from saltwm.envs import push_t

    settled = state.copy()
    settled[push_t.AGENT] = state[push_t.AGENT].clip(push_t.AGENT_RADIUS, push_t.WINDOW - push_t.AGENT_RADIUS)
    settled[push_t.BLOCK] = state[push_t.BLOCK].clip(60.0, push_t.WINDOW - 60.0)
    settled[push_t.ANGLE] = state[push_t.ANGLE] % (2 * np.pi)
    settled[push_t.ANGLE + 1 :] = 0.0
    return settled


def _push_t_trails(env: PlanningEnv, state: State, plans: NDArray[np.float32]) -> Trails:
    """The agent's way, which the block does not change: its controller alone, for all plans at once."""
    from saltwm.envs import push_t

    del env
    places = np.repeat(state[None, push_t.AGENT], len(plans), axis=0)
    speeds = np.repeat(state[None, 5:7], len(plans), axis=0)
    trail = [places]
    for actions in plans.transpose(1, 0, 2):
        low, high = push_t.AGENT_RADIUS, push_t.WINDOW - push_t.AGENT_RADIUS
        targets = np.clip(places + push_t.ACTION_SCALE * np.clip(actions, -1, 1), low, high)
        for _ in range(push_t.SUBSTEPS):
            pull = push_t.KP * (targets - places) - push_t.KV * speeds
            speeds = speeds + pull * push_t.SUBSTEP_SECONDS
            places = places + speeds * push_t.SUBSTEP_SECONDS
        trail.append(places)
    return np.stack(trail, axis=1) / push_t.WINDOW


# --- MuJoCo ----------------------------------------------------------------------------------------------------------


def _settle_reacher(state: State) -> State:
    """At rest: time, velocities, the solver's memory and the control are zero."""
    settled = np.zeros_like(state)
    settled[1:3] = state[1:3]
    return settled


_CUBE_AXES = (Slider("cube x", 15, "m"), Slider("cube y", 16, "m"), Slider("cube z", 17, "m"))
_OTHER_CUBE = (Slider("second x", 22, "m"), Slider("second y", 23, "m"), Slider("second z", 24, "m"))


_ACROSS = ("right", "down")
_HAND = ("hand x", "hand y", "hand z", "hand turn", "grip")


def _two_room() -> Scene:
    agent = Handle("agent", 0, 1, two_room.WORLD, 2 * two_room.RADIUS)
    return Scene(_ACROSS, handles=(agent,), settle=_settle_two_room, trails=_two_room_trails)


def _push_t() -> Scene:
    from saltwm.envs import push_t

    agent = Handle("agent", 0, 1, push_t.WINDOW, 2 * push_t.AGENT_RADIUS)
    block = Handle("block", 2, 3, push_t.WINDOW, 70.0, angle=push_t.ANGLE, offset=(0.0, 45.0))
    return Scene(_ACROSS, handles=(agent, block), settle=_settle_push_t, trails=_push_t_trails)


def _reacher() -> Scene:
    joints = (Slider("shoulder", 1, "rad"), Slider("wrist", 2, "rad"))
    return Scene(("shoulder", "wrist"), sliders=joints, settle=_settle_reacher)


SCENES: dict[str, Callable[[], Scene]] = {  # made when needed: their simulators may not be installed
    "two-room": _two_room,
    "push-t": _push_t,
    "reacher": _reacher,
    "cube": lambda: Scene(_HAND, sliders=_CUBE_AXES),
    "cube-double": lambda: Scene(_HAND, sliders=(*_CUBE_AXES, *_OTHER_CUBE)),
}
