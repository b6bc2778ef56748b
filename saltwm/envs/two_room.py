"""Two-Room: a disc walks through a door; the geometry of the public benchmark in a world of 224 x 224 units.

`paper` tests collisions at the end point of a step only, as the benchmark does, so a disc can cut the corners of the
door. `clean` moves the disc along its path and stops it at the first contact; in both it slides on along the wall.
"""

import functools
import math
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saltwm.envs.base import Action, Frame, PlanningEnv, Policy, State, StateColumn, StateField
from saltwm.ground.checks import check

WORLD = 224.0
BORDER = 14.0
WALL_CENTRE = 112.0
WALL_HALF = 5.0
DOOR_CENTRE = 49.0
DOOR_HALF = 14.0
RADIUS = 7.0
SPEED = 5.0
"""Units per step and axis at action 1."""
SUCCESS_DISTANCE = 16.0
MIN_PATH_STEPS = 25
"""A random goal lies in the other room, at least this many straight steps away through the door."""

EXPERT_NOISE_STD = 2.0
DOOR_TOLERANCE = 10.5
"""Once this near to the door's centre, the expert turns to the goal."""

PAPER_DOOR_MARGIN = 1.75
PAPER_PUSH_BACK = 0.5
PAPER_LOW, PAPER_HIGH = 14.0, 209.0
"""Where the benchmark lets an episode start: partly inside the border, corrected by its first step."""

LOW, HIGH = BORDER + RADIUS, WORLD - BORDER - RADIUS
WALL_LEFT, WALL_RIGHT = WALL_CENTRE - WALL_HALF - RADIUS, WALL_CENTRE + WALL_HALF + RADIUS
"""Where the disc's centre stops at the wall."""

DOOR = np.array([WALL_CENTRE, DOOR_CENTRE])
RED = 255.0


class TwoRoom(PlanningEnv):
    """State: the disc's centre (x, y), y downwards. Action: displacement / 5 (SPEED), clamped to +-1."""

    name: ClassVar[str] = "two-room"
    title: ClassVar[str] = "Two-Room"
    state_dim: ClassVar[int] = 2
    action_dim: ClassVar[int] = 2
    state_fields: ClassVar[tuple[StateField, ...]] = (StateField("agent_position", 0, 2, "px"),)
    success_radius: ClassVar[str] = "16 units"
    max_episode_steps: ClassVar[int] = 100
    columns: ClassVar[tuple[StateColumn, ...]] = (
        StateColumn(("pos_agent", "proprio"), ("agent_position",), "float32"),
    )
    moved_by_action: ClassVar[str] = "agent_position"
    policies: ClassVar[tuple[str, ...]] = ("expert", "random")

    _position: State = np.array([60.0, 112.0])

    def state(self) -> State:
        """The disc's centre [2]."""
        return self._position.copy()

    def goal_distance(self, states: State, goals: State) -> NDArray[np.float64]:
        """Euclidean distance over 16 units: states [N, 2], goals [N, 2] -> [N]."""
        self.check_pairs(states, goals)
        return np.linalg.norm(states - goals, axis=1) / SUCCESS_DISTANCE

    @classmethod
    def task_kinds(cls, states: State, goals: State) -> list[str]:
        """Whether the way leads through the door."""
        through = (states[:, 0] < WALL_CENTRE) != (goals[:, 0] < WALL_CENTRE)
        return ["through the door" if crosses else "within a room" for crosses in through]

    def draw(self, size: int) -> Frame:
        """The current state as a picture [size, size, 3]."""
        return draw_discs(self._position[None], size)[0]

    def draw_many(self, states: State, size: int) -> Frame:
        """Pictures of many states at once: [N, 2] -> [N, size, size, 3]."""
        check("states", states, "N S", S=self.state_dim)
        return draw_discs(states, size)

    def policy(self, kind: str, rng: np.random.Generator) -> Policy:
        """The noisy expert walks to the door, then to the goal; random is uniform in the action space."""
        if kind != "expert":
            return super().policy(kind, rng)
        return lambda: self._expert_action(rng)

    def _expert_action(self, rng: np.random.Generator) -> Action:
        assert self.goal is not None, "reset() sets the goal"
        position = self._position
        other_room = (position[0] > WALL_CENTRE) != (self.goal[0] > WALL_CENTRE)
        before_door = math.dist(position, DOOR) > DOOR_TOLERANCE
        offset = (DOOR if other_room and before_door else self.goal) - position
        length = math.hypot(*offset)
        direction = offset / length if length > 1e-8 else np.zeros(2)
        noisy = direction + rng.normal(0.0, EXPERT_NOISE_STD, 2)
        return np.clip(noisy, -1.0, 1.0).astype(np.float32)

    def _restore(self, state: State) -> None:
        self._position = state

    def _advance(self, action: Action) -> None:
        displacement = SPEED * np.clip(action.astype(np.float64), -1.0, 1.0)
        move = end_point_move if self.variant == "paper" else swept_move
        self._position = np.array(move(Point(*self._position.tolist()), Point(*displacement.tolist())))

    def _random_start(self, rng: np.random.Generator) -> None:
        self._position = self._random_position(rng)

    def _random_goal(self, rng: np.random.Generator) -> State:
        start = self._position
        while True:
            goal = self._random_position(rng)
            other_room = (goal[0] > WALL_CENTRE) != (start[0] > WALL_CENTRE)
            path = math.dist(start, DOOR) + math.dist(DOOR, goal)
            if other_room and path >= MIN_PATH_STEPS * SPEED:
                return goal

    def _random_position(self, rng: np.random.Generator) -> State:
        """Uniform over both rooms, never in the wall or the door."""
        low, high = (PAPER_LOW, PAPER_HIGH) if self.variant == "paper" else (LOW, HIGH)
        while True:
            position = rng.uniform(low, high, 2)
            if not WALL_LEFT <= position[0] <= WALL_RIGHT:
                return position


# --- physics --------------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """A position or a displacement; scalars, because one disc at a time is faster without arrays."""

    x: float
    y: float


class Box(NamedTuple):
    """An axis-aligned rectangle."""

    left: float
    top: float
    right: float
    bottom: float


class Contact(NamedTuple):
    """The fraction of a displacement after which the disc touches, and the surface's outward normal there."""

    time: float
    normal: Point


WALLS = (
    Box(WALL_CENTRE - WALL_HALF, 0.0, WALL_CENTRE + WALL_HALF, DOOR_CENTRE - DOOR_HALF),
    Box(WALL_CENTRE - WALL_HALF, DOOR_CENTRE + DOOR_HALF, WALL_CENTRE + WALL_HALF, WORLD),
)
MAX_CONTACTS = 8
"""Surfaces touched in one step; a displacement of 7 units between these walls meets three at most."""


def end_point_move(start: Point, displacement: Point) -> Point:
    """Where a step ends under the benchmark's rule: only the end point is tested, only x is corrected."""
    x = min(max(start.x + displacement.x, LOW), HIGH)
    y = min(max(start.y + displacement.y, LOW), HIGH)
    in_door = abs(y - DOOR_CENTRE) <= DOOR_HALF + PAPER_DOOR_MARGIN
    if start.x < WALL_CENTRE and x > WALL_LEFT and not in_door:
        return Point(WALL_LEFT - PAPER_PUSH_BACK, y)
    if start.x >= WALL_CENTRE and x < WALL_RIGHT and not in_door:
        return Point(WALL_RIGHT + PAPER_PUSH_BACK, y)
    return Point(x, y)


def swept_move(start: Point, displacement: Point) -> Point:
    """Where a step ends when the disc moves to its first contact and slides on with what is left of the step."""
    position, rest = start, displacement
    for _ in range(MAX_CONTACTS):
        contact = min((c for wall in WALLS if (c := _contact(position, rest, wall))), default=None)
        if contact is None:
            position = Point(position.x + rest.x, position.y + rest.y)
            break
        time, normal = contact
        position = Point(position.x + time * rest.x, position.y + time * rest.y)
        rest = Point((1 - time) * rest.x, (1 - time) * rest.y)
        inward = rest.x * normal.x + rest.y * normal.y
        rest = Point(rest.x - inward * normal.x, rest.y - inward * normal.y)
    # The border is convex and axis-aligned: clamping the end point is the swept rule with sliding.
    return Point(min(max(position.x, LOW), HIGH), min(max(position.y, LOW), HIGH))


def _contact(start: Point, move: Point, box: Box) -> Contact | None:
    """First contact of a disc of RADIUS with the box, if the displacement ends beyond it.

    Exact: the disc's centre meets the box grown by RADIUS, whose corners are quarter circles.
    """
    if _apart(start, move, box):
        return None
    overlap = _overlap(start, box)
    if overlap is not None:
        entering = overlap.x * move.x + overlap.y * move.y < -1e-12
        return Contact(0.0, overlap) if entering else None
    return min((c for c in (*_face_contacts(start, move, box), *_corner_contacts(start, move, box))), default=None)


def _apart(start: Point, move: Point, box: Box) -> bool:
    """Whether the displacement's bounding box misses the grown box."""
    return (
        max(start.x, start.x + move.x) < box.left - RADIUS
        or min(start.x, start.x + move.x) > box.right + RADIUS
        or max(start.y, start.y + move.y) < box.top - RADIUS
        or min(start.y, start.y + move.y) > box.bottom + RADIUS
    )


def _overlap(centre: Point, box: Box) -> Point | None:
    """The outward normal where the disc already touches or overlaps the box (rounding, or a `paper` state)."""
    nearest = Point(min(max(centre.x, box.left), box.right), min(max(centre.y, box.top), box.bottom))
    away = Point(centre.x - nearest.x, centre.y - nearest.y)
    distance = math.hypot(*away)
    if distance > RADIUS + 1e-9:
        return None
    if distance > 0.0:
        return Point(away.x / distance, away.y / distance)
    return Point(-1.0 if centre.x < WALL_CENTRE else 1.0, 0.0)


def _face_contacts(start: Point, move: Point, box: Box) -> list[Contact]:
    contacts = []
    for surface, sign in ((box.left - RADIUS, -1.0), (box.right + RADIUS, 1.0)):
        if move.x * sign < 0:
            time = (surface - start.x) / move.x
            if 0 <= time <= 1 and box.top <= start.y + time * move.y <= box.bottom:
                contacts.append(Contact(time, Point(sign, 0.0)))
    for surface, sign in ((box.top - RADIUS, -1.0), (box.bottom + RADIUS, 1.0)):
        if move.y * sign < 0:
            time = (surface - start.y) / move.y
            if 0 <= time <= 1 and box.left <= start.x + time * move.x <= box.right:
                contacts.append(Contact(time, Point(0.0, sign)))
    return contacts


def _corner_contacts(start: Point, move: Point, box: Box) -> list[Contact]:
    contacts = []
    for corner in ((box.left, box.top), (box.right, box.top), (box.left, box.bottom), (box.right, box.bottom)):
        away = Point(start.x - corner[0], start.y - corner[1])
        # |away + time * move| = RADIUS, the earlier root
        a = move.x**2 + move.y**2
        half_b = away.x * move.x + away.y * move.y
        discriminant = half_b**2 - a * (away.x**2 + away.y**2 - RADIUS**2)
        if half_b < 0 and discriminant >= 0:
            time = (-half_b - math.sqrt(discriminant)) / a
            if 0 <= time <= 1:
                normal = Point((away.x + time * move.x) / RADIUS, (away.y + time * move.y) / RADIUS)
                contacts.append(Contact(time, normal))
    return contacts


# --- pictures -------------------------------------------------------------------------------------------------------


def draw_discs(positions: State, size: int) -> Frame:
    """The benchmark's picture, a red dot with a Gaussian edge on white, black walls: [N, 2] -> [N, size, size, 3].

    At 224 pixels it is the benchmark's own frame; at other sizes walls are averaged over each pixel's area.
    """
    centres = _pixel_centres(size)
    columns = _gaussian(centres - positions[:, 0:1])
    rows = _gaussian(centres - positions[:, 1:2])
    dot = rows[:, :, None] * columns[:, None, :]
    dark = _background(size) * (1.0 - dot)
    frames = np.empty((*dark.shape, 3), np.uint8)
    frames[..., 0] = dark + RED * dot
    frames[..., 1] = frames[..., 2] = dark
    return frames


def _gaussian(offsets: NDArray[np.float64]) -> NDArray[np.float32]:
    """exp(-offset^2 / 2 RADIUS^2) along one axis, scaled to a peak of 1 as the benchmark does: [N, size]."""
    values = np.exp(-(offsets**2) / (2 * RADIUS**2))
    peak = values.max(axis=1, keepdims=True)
    # Far outside the picture the peak is zero, and so is what is seen of the disc.
    return np.divide(values, peak, out=np.zeros_like(values), where=peak > 0).astype(np.float32)


def _pixel_centres(size: int) -> NDArray[np.float64]:
    """World coordinates of the pixels' centres; at 224 pixels the benchmark's 0, 1, 2, ..."""
    return (np.arange(size, dtype=np.float64) + 0.5) * (WORLD / size) - 0.5


@functools.lru_cache(maxsize=8)
def _background(size: int) -> NDArray[np.float32]:
    """Brightness of the empty rooms [size, size]; the benchmark's pixels 10-13, 107-117 and 210-213 are walls."""
    border = _coverage(size, 9.5, 13.5) + _coverage(size, 209.5, 213.5)
    wall = _coverage(size, 106.5, 117.5)
    door = _coverage(size, 34.5, 63.5)
    white = (1 - wall[None, :] * (1 - door[:, None])) * (1 - border[None, :]) * (1 - border[:, None])
    return (255.0 * white).astype(np.float32)


def _coverage(size: int, low: float, high: float) -> NDArray[np.float64]:
    """Share of each pixel's width that lies in [low, high]: [size]."""
    half = WORLD / size / 2
    centres = _pixel_centres(size)
    overlap = np.minimum(centres + half, high) - np.maximum(centres - half, low)
    return np.maximum(overlap, 0.0) / (2 * half)
