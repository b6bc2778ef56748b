"""A scripted pusher for PushT: choose a pose, go round the block, push where it helps most, look again.

It stands in for human demonstrations: contact-rich, goal-directed and noisy, never still. Its pace is about theirs: two
random poses lie 153 px and 89 degrees apart and a public episode has 106 steps, which makes 36 px and 21 degrees in 25.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saltwm.envs.base import Action
from saltwm.envs.push_t import (
    ACTION_SCALE,
    AGENT,
    AGENT_RADIUS,
    ANGLE,
    BLOCK,
    BLOCK_VELOCITY,
    CENTRE_OF_MASS,
    INERTIA,
    MASS,
    WINDOW,
    PushT,
    gaps,
    random_state,
    rotation,
    wrapped,
)

Vector = NDArray[np.float64]

TURN_LENGTH = 60.0
"""Pixels that one radian of misalignment counts for when pushes are compared."""
STAND_OFF = 10.0
"""Gap between agent and block where an approach ends."""
DETOUR_RADIUS = 105.0
"""Of the circle round the block on which the agent changes sides; no part of the T reaches it."""
APPROACH_STEPS, PUSH_STEPS = 40, 40
"""Steps that getting to a contact and pushing there may take."""
PUSH_SPEEDS, APPROACH_SPEEDS = (0.05, 0.16), (0.12, 0.35)
"""Lengths of actions, from which each push draws its own."""
PATIENCE = 125
"""Steps until a target that is not reached gives way to another."""
MARGIN = 22.0
"""Smallest distance of an aim to the window's edge."""


def _contacts() -> tuple[Vector, Vector]:
    """Places on the T's outline where a round agent fits, and outward normals, in the block's frame: [C, 2], [C, 2]."""
    spots = [((x, 0.0), (0.0, -1.0)) for x in (-52.0, -36.0, -18.0, 0.0, 18.0, 36.0, 52.0)]
    for side in (-1.0, 1.0):
        spots += [((side * 60, 15.0), (side, 0.0))]
        spots += [((side * x, 30.0), (0.0, 1.0)) for x in (34, 44, 54)]
        spots += [((side * 15, y), (side, 0.0)) for y in (50.0, 70.0, 90.0, 112.0)]
    spots += [((x, 120.0), (0.0, 1.0)) for x in (-9.0, 0.0, 9.0)]
    places, normals = zip(*spots, strict=True)
    return np.array(places, float), np.array(normals, float)


PLACES, NORMALS = _contacts()


@dataclass
class _Push:
    """One decision: where to push, how far and how fast."""

    contact: int
    travel: float
    push_speed: float
    approach_speed: float
    steps_left: int
    touching: bool = False
    pushed: float = 0.0


class Pusher:
    """Policy for one episode; its first target is the environment's goal, later ones are random."""

    def __init__(self, env: PushT, rng: np.random.Generator) -> None:
        self.env, self.rng = env, rng
        self.target: Vector = random_state(rng) if env.goal is None else env.goal
        self.patience = PATIENCE
        self.noise_std = rng.uniform(0.01, 0.06)
        self.push: _Push | None = None

    def __call__(self) -> Action:
        """Action towards the current aim, with noise [2]."""
        state = self.env.state()
        self._keep_target(state)
        aim, speed = self._aim(state)
        aim = np.clip(aim, MARGIN, WINDOW - MARGIN)
        step = (aim - state[AGENT]) / ACTION_SCALE
        length = np.linalg.norm(step)
        if length > speed:
            step *= speed / length
        noisy = np.clip(step + self.rng.normal(0, self.noise_std, 2), -1, 1)
        # Inside by a pixel, so that the variants, of which one keeps the target in the window, give the same data.
        inside = np.clip(state[AGENT] + ACTION_SCALE * noisy, AGENT_RADIUS + 1, WINDOW - AGENT_RADIUS - 1)
        return ((inside - state[AGENT]) / ACTION_SCALE).astype(np.float32)

    def _keep_target(self, state: Vector) -> None:
        """A new pose when this one is reached, has taken too long, or needs a contact that cannot be reached."""
        self.patience -= 1
        position, angle = _pose_error(state, self.target)
        reached = np.linalg.norm(position) < 12 and abs(angle) < 0.15
        stuck = self.push is not None and not self.push.touching and self.push.steps_left <= 0
        if reached or stuck or self.patience < 0:
            self.target, self.patience, self.push = random_state(self.rng), PATIENCE, None

    def _aim(self, state: Vector) -> tuple[Vector, float]:
        """Where the agent should head now and how fast: window position [2], action length."""
        push = self.push
        if push is None or push.steps_left <= 0 or push.pushed >= push.travel:
            push = self.push = self._choose(state)
        push.steps_left -= 1
        turn = rotation(state[ANGLE])
        place, outward = state[BLOCK] + turn @ PLACES[push.contact], turn @ NORMALS[push.contact]
        if not push.touching:
            stand = place + outward * (AGENT_RADIUS + STAND_OFF)
            if np.linalg.norm(stand - state[AGENT]) > 8:
                return _way(state, stand), push.approach_speed
            push.touching, push.steps_left = True, PUSH_STEPS
        seat = place + outward * AGENT_RADIUS
        push.pushed += max(0.0, -float(outward @ state[BLOCK_VELOCITY])) * 0.1
        return seat - outward * ACTION_SCALE * push.push_speed, push.push_speed

    def _choose(self, state: Vector) -> _Push:
        """The contact whose push brings the block nearest to the target, less the way there, with some caprice."""
        turn = rotation(state[ANGLE])
        position, angle = _pose_error(state, self.target)
        inward = -NORMALS @ turn.T
        lever = _cross((PLACES - CENTRE_OF_MASS) @ turn.T, inward)
        # Motion of the centre of mass and turn (in pixels) per pixel that a frictionless contact is driven inwards.
        reach = 1 + lever**2 * MASS / INERTIA
        twist = np.column_stack([inward, TURN_LENGTH * lever * MASS / INERTIA]) / reach[:, None]
        error = np.array([*position, TURN_LENGTH * angle])
        along = twist @ error
        travel = along / (twist**2).sum(1)
        gain = np.where(along > 0, along * travel, 0) / max(float(error @ error), 1.0)
        stands = state[BLOCK] + (PLACES + NORMALS * (AGENT_RADIUS + STAND_OFF)) @ turn.T
        outside = ((stands < MARGIN) | (stands > WINDOW - MARGIN)).any(1)
        way = np.linalg.norm(stands - state[AGENT], axis=1) / WINDOW
        score = gain - 0.5 * way - 10.0 * outside + 0.1 * self.rng.gumbel(size=len(gain))
        best = int(np.argmax(score))
        return _Push(
            contact=best,
            travel=float(np.clip(travel[best], 10, 150)),
            push_speed=self.rng.uniform(*PUSH_SPEEDS),
            approach_speed=self.rng.uniform(*APPROACH_SPEEDS),
            steps_left=APPROACH_STEPS,
        )


def _pose_error(state: Vector, target: Vector) -> tuple[Vector, float]:
    """From the block's centre of mass and angle to the target's: [2], rad in [-pi, pi)."""
    centre, goal = (s[BLOCK] + rotation(s[ANGLE]) @ CENTRE_OF_MASS for s in (state, target))
    return goal - centre, float(wrapped(target[ANGLE] - state[ANGLE]))


def _way(state: Vector, stand: Vector) -> Vector:
    """The next aim on a way to `stand` that does not touch the block: straight, or along the circle round it."""
    agent = state[AGENT]
    line = agent + np.linspace(0.1, 1, 16)[:, None] * (stand - agent)
    clear = gaps(line, state)
    if clear.min() > min(3.0, clear[0] + 1.0):
        return stand
    centre = state[BLOCK] + rotation(state[ANGLE]) @ CENTRE_OF_MASS
    here, there = (np.arctan2(*(point - centre)[::-1]) for point in (agent, stand))
    short = float(wrapped(there - here))
    ways = [short, short - np.copysign(2 * np.pi, short)]
    turn = min(ways, key=lambda way: _circle_cost(centre, here, way))
    angle = here + np.clip(turn, -0.6, 0.6)
    return centre + DETOUR_RADIUS * np.array([np.cos(angle), np.sin(angle)])


def _circle_cost(centre: Vector, start: float, turn: float) -> float:
    """Length of an arc in radians; parts outside the window count heavily."""
    angles = start + np.linspace(0, turn, 16)
    points = centre + DETOUR_RADIUS * np.column_stack([np.cos(angles), np.sin(angles)])
    outside = ((points < MARGIN) | (points > WINDOW - MARGIN)).any(1).mean()
    return abs(turn) * (1 + 5 * float(outside))


def _cross(a: Vector, b: Vector) -> Vector:
    """The third component of the cross product, row by row: [N, 2], [N, 2] -> [N]."""
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
