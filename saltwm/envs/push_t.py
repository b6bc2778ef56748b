"""PushT: a round agent pushes a T-shaped block to a pose (pymunk; constants of the public benchmark).

One control step is a pure function of the state vector: the pymunk space is rebuilt from it each time. A space that
lives on keeps contact impulses and penetration corrections of its last substep, which pymunk neither shows nor sets, so
that no state vector could bring it back exactly.
"""

from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
import pymunk
from numpy.typing import NDArray

from saltwm.envs.base import Action, Frame, PlanningEnv, Policy, State, StateColumn, StateField

WINDOW = 512.0
AGENT_RADIUS = 15.0
SUBSTEPS, SUBSTEP_SECONDS = 10, 0.01  # control at 10 Hz
KP, KV = 100.0, 20.0
ACTION_SCALE = 100.0
POSITION_RADIUS, ANGLE_RADIUS = 20.0, np.pi / 9


class Box(NamedTuple):
    """An upright rectangle: its centre and half its sides."""

    x: float
    y: float
    half_width: float
    half_height: float


# The T at scale 30 in its own frame: the origin is the middle of the bar's outer edge, y runs along the stem.
BAR = Box(x=0.0, y=15.0, half_width=60.0, half_height=15.0)
STEM = Box(x=0.0, y=75.0, half_width=15.0, half_height=45.0)
CENTRE_OF_MASS = np.array([0.0, 45.0])
MASS, INERTIA = 1.0, 3000.0  # the benchmark counts the bar's moment about the origin, 1500, twice

AGENT, BLOCK, ANGLE = slice(0, 2), slice(2, 4), 4
_AGENT_VELOCITY, BLOCK_VELOCITY, _SPIN = slice(5, 7), slice(7, 9), 9

_WALL_OFFSET, _WALL_HALF, _RIM = 250.5, 2.0, 2.0
_WALL_COLOUR = np.array([211, 211, 211], np.float32)
_BLOCK_COLOURS = np.array([[119, 136, 153], [143, 163, 184]], np.float32)  # rim, inside
_AGENT_COLOURS = np.array([[65, 105, 225], [78, 126, 255]], np.float32)
_BLOCK_REACH = 80.0  # from the centre of mass to the farthest corner, and the rim


class PushT(PlanningEnv):
    """Actions move the agent's target by 100 units relative to where it is; a PD controller follows it."""

    name = "push-t"
    title = "PushT"
    state_dim = 10
    action_dim = 2
    state_fields: ClassVar[tuple[StateField, ...]] = (
        StateField("agent_position", 0, 2, "px"),
        StateField("block_position", 2, 4, "px"),
        StateField("block_angle", 4, 5, "rad"),
        StateField("agent_velocity", 5, 7, "px/s"),
        StateField("block_velocity", 7, 9, "px/s"),
        StateField("block_spin", 9, 10, "rad/s"),
    )
    success_radius = "20 units for the positions together, 20 degrees for the block"
    max_episode_steps = 125
    ends_at_goal = False
    policies = ("pusher", "random")
    columns: ClassVar[tuple[StateColumn, ...]] = (
        StateColumn(("state",), ("agent_position", "block_position", "block_angle", "agent_velocity"), "float32"),
    )
    moved_by_action = "agent_position"

    _state: State = np.array([256.0, 400.0, 256.0, 200.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])

    def state(self) -> State:
        """The benchmark's seven numbers, then the block's velocity and spin [10]."""
        return self._state.copy()

    def goal_distance(self, states: State, goals: State) -> NDArray[np.float64]:
        """The larger of: agent and block position together over 20 px, block angle over 20 degrees."""
        self.check_pairs(states, goals)
        position = np.linalg.norm(states[:, :4] - goals[:, :4], axis=1) / POSITION_RADIUS
        angle = np.abs(wrapped(states[:, ANGLE] - goals[:, ANGLE])) / ANGLE_RADIUS
        return np.maximum(position, angle)

    @classmethod
    def task_kinds(cls, states: State, goals: State) -> list[str]:
        """Whether the block must be turned, or only moved, or is where it should be and only the agent is not."""
        turned = np.abs(wrapped(states[:, ANGLE] - goals[:, ANGLE])) >= ANGLE_RADIUS
        moved = np.linalg.norm(states[:, BLOCK] - goals[:, BLOCK], axis=1) >= POSITION_RADIUS
        return np.select([turned, moved], ["turn the block", "move the block"], "move the agent").tolist()

    def draw(self, size: int) -> Frame:
        """Block and agent on white, antialiased; both qualities are the same picture."""
        return picture(self._state, size)

    def policy(self, kind: str, rng: np.random.Generator) -> Policy:
        """The scripted pusher, or uniform actions."""
        if kind != "pusher":
            return super().policy(kind, rng)
        from saltwm.envs.pusher import Pusher

        return Pusher(self, rng)

    def _restore(self, state: State) -> None:
        self._state = state

    def _advance(self, action: Action) -> None:
        if self.variant == "paper":
            target = self._state[AGENT] + ACTION_SCALE * action.astype(np.float64)
        else:
            # The benchmark passes any size on and lets the agent leave the picture, where no planner can see it.
            target = self._state[AGENT] + ACTION_SCALE * np.clip(action, -1, 1).astype(np.float64)
            target = np.clip(target, AGENT_RADIUS, WINDOW - AGENT_RADIUS)
        self._state = _control_step(self._state, target)

    def _random_start(self, rng: np.random.Generator) -> None:
        self._state = random_state(rng)

    def _random_goal(self, rng: np.random.Generator) -> State:
        return random_state(rng)


def wrapped(angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same angle in [-pi, pi)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def rotation(angle: float) -> NDArray[np.float64]:
    """Matrix that turns block coordinates into window coordinates [2, 2]."""
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cos, -sin], [sin, cos]])


def gaps(points: NDArray[np.float64], state: State) -> NDArray[np.float64]:
    """Distance from an agent at each point to the block, negative inside: points [N, 2] -> [N]."""
    local = (points - state[BLOCK]) @ rotation(state[ANGLE])
    return np.minimum(_box_distance(local, BAR), _box_distance(local, STEM)) - AGENT_RADIUS


def _box_distance(points: NDArray[np.float64], box: Box) -> NDArray[np.float64]:
    """Signed distance to a box: points [N, 2] -> [N]."""
    x = np.abs(points[:, 0] - box.x) - box.half_width
    y = np.abs(points[:, 1] - box.y) - box.half_height
    return np.hypot(np.maximum(x, 0), np.maximum(y, 0)) + np.minimum(np.maximum(x, y), 0)


def _corners(box: Box) -> NDArray[np.float64]:
    """In order round the box [4, 2]."""
    signs = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    return np.array([box.x, box.y]) + signs * np.array([box.half_width, box.half_height])


def random_state(rng: np.random.Generator) -> State:
    """Agent and block at rest, apart, where the benchmark puts them."""
    while True:
        state = np.zeros(PushT.state_dim)
        state[AGENT] = rng.uniform(50, 450, 2)
        state[BLOCK] = rng.uniform(100, 400, 2)
        state[ANGLE] = rng.uniform(0, 2 * np.pi)
        if gaps(state[None, AGENT], state)[0] > 5 and _inside(state):
            return state


def _inside(state: State) -> bool:
    """Whether the whole block is off the walls."""
    corners = np.concatenate([_corners(BAR), _corners(STEM)])
    placed = state[BLOCK] + corners @ rotation(state[ANGLE]).T
    return bool((placed > 10).all() and (placed < WINDOW - 10).all())


# --- physics -----------------------------------------------------------------------------------------------------


def _control_step(state: State, target: NDArray[np.float64]) -> State:
    """The state 0.1 s later, with the agent's controller drawn to `target` [2]."""
    space, agent, block = _build(state)
    target_x, target_y = float(target[0]), float(target[1])
    for _ in range(SUBSTEPS):
        (x, y), (vx, vy) = agent.position, agent.velocity
        agent.velocity = (
            vx + (KP * (target_x - x) - KV * vx) * SUBSTEP_SECONDS,
            vy + (KP * (target_y - y) - KV * vy) * SUBSTEP_SECONDS,
        )
        space.step(SUBSTEP_SECONDS)
    after = np.empty_like(state)
    after[AGENT], after[_AGENT_VELOCITY] = agent.position, agent.velocity
    after[BLOCK] = np.array(block.position) - rotation(block.angle) @ CENTRE_OF_MASS
    after[ANGLE] = block.angle % (2 * np.pi)
    after[BLOCK_VELOCITY], after[_SPIN] = block.velocity, block.angular_velocity
    return after


def _build(state: State) -> tuple[pymunk.Space, pymunk.Body, pymunk.Body]:
    """A space with walls, the kinematic agent and the block, always in the same order."""
    space = pymunk.Space()
    space.damping = 0  # the table's friction: what is not pushed stops
    low, high = 5.0, 506.0
    corners = [(low, low), (high, low), (high, high), (low, high)]
    space.add(*(pymunk.Segment(space.static_body, corners[i - 1], corners[i], _WALL_HALF) for i in range(4)))

    agent = pymunk.Body(body_type=pymunk.Body.KINEMATIC)
    agent.position, agent.velocity = tuple(state[AGENT].tolist()), tuple(state[_AGENT_VELOCITY].tolist())
    space.add(agent, pymunk.Circle(agent, AGENT_RADIUS))

    # The body's own origin is its centre of mass: pymunk then stores the position as given, without rounding.
    block = pymunk.Body(MASS, INERTIA)
    angle = float(state[ANGLE])
    block.angle = angle
    block.position = tuple((state[BLOCK] + rotation(angle) @ CENTRE_OF_MASS).tolist())
    block.velocity, block.angular_velocity = tuple(state[BLOCK_VELOCITY].tolist()), float(state[_SPIN])
    space.add(block, *(pymunk.Poly(block, (_corners(box) - CENTRE_OF_MASS).tolist()) for box in (BAR, STEM)))
    return space, agent, block


# --- drawing -----------------------------------------------------------------------------------------------------


def picture(state: State, size: int) -> Frame:
    """The state seen from above [size, size, 3]; edges are blended by their distance to the pixel's centre."""
    canvas, unit = _empty_table(size).copy(), size / WINDOW
    turn = rotation(state[ANGLE])
    part, x, y = _crop(canvas, state[BLOCK] + turn @ CENTRE_OF_MASS, _BLOCK_REACH)
    x, y = x - state[BLOCK][0], y - state[BLOCK][1]
    along, down = x * turn[0, 0] + y * turn[1, 0], x * turn[0, 1] + y * turn[1, 1]
    for box in (BAR, STEM):
        outside = np.maximum(np.abs(along - box.x) - box.half_width, np.abs(down - box.y) - box.half_height)
        _paint(part, (outside - _RIM) * unit, _BLOCK_COLOURS[0])
        _paint(part, (outside + _RIM) * unit, _BLOCK_COLOURS[1])
    part, x, y = _crop(canvas, state[AGENT], AGENT_RADIUS)
    outside = np.hypot(x - state[AGENT][0], y - state[AGENT][1]) - AGENT_RADIUS
    _paint(part, outside * unit, _AGENT_COLOURS[0])
    _paint(part, (outside + 2 * _RIM) * unit, _AGENT_COLOURS[1])
    return np.rint(canvas).astype(np.uint8)


def _crop(
    canvas: NDArray[np.float32], centre: NDArray[np.float64], reach: float
) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float64]]:
    """A view of the square round `centre`, and its pixels' window coordinates: [H, W, 3], [1, W], [H, 1]."""
    size = len(canvas)
    pixel = WINDOW / size
    low = np.clip(((centre - reach) / pixel).astype(int) - 1, 0, size)
    high = np.clip(((centre + reach) / pixel).astype(int) + 2, low, size)
    x, y = ((np.arange(first, last) + 0.5) * pixel for first, last in zip(low, high, strict=True))
    return canvas[low[1] : high[1], low[0] : high[0]], x[None, :], y[:, None]


def _paint(part: NDArray[np.float32], distance: NDArray[np.float64], colour: NDArray[np.float32]) -> None:
    """Lay a shape over the picture: part [H, W, 3] in place, distance to the shape in pixels [H, W], colour [3]."""
    cover = np.clip(0.5 - distance, 0, 1).astype(np.float32)
    part += cover[..., None] * (colour - part)


@lru_cache(maxsize=8)
def _empty_table(size: int) -> NDArray[np.float32]:
    """White with the four walls [size, size, 3]."""
    canvas = np.full((size, size, 3), 255, np.float32)
    edge = np.abs((np.arange(size) + 0.5) * (WINDOW / size) - WINDOW / 2)
    outside = np.abs(np.maximum(edge[:, None], edge) - _WALL_OFFSET) - _WALL_HALF
    _paint(canvas, outside * size / WINDOW, _WALL_COLOUR)
    canvas.flags.writeable = False
    return canvas
