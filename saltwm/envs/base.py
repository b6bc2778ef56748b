"""What every environment offers: exact restoring, goals as states, success as a distance, frames at any size.

An environment is a gymnasium environment whose observation is its full simulation state. Pixels come from `render()`
(gymnasium's AddRenderObservation turns them into the observation), so that a collector pays only for the frames that
it keeps.
"""

import abc
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import gymnasium
import numpy as np
from numpy.typing import NDArray

from saltwm.ground.checks import at_least, check, one_of
from saltwm.ground.config import RenderQuality, Variant, WorldSpec
from saltwm.ground.errors import DamagedError, NonFiniteError, UsageError

State = NDArray[np.float64]
Frame = NDArray[np.uint8]
Action = NDArray[np.float32]
Policy = Callable[[], Action]
"""The next action of a collecting policy; called once before each step of an episode."""


@dataclass(frozen=True)
class StateField:
    """A named part of the state vector, e.g. agent position: what probes read and exported files call a column."""

    name: str
    start: int
    stop: int
    unit: str = ""


def spell_fields(fields: tuple[StateField, ...]) -> str:
    """Names, sizes and units in one line, as a dataset keeps them: joint_angles 2 rad, time 1 s.

    UsageError for fields that `read_fields` could not tell apart again.
    """
    end = 0
    for field in fields:
        if not re.fullmatch(r"[^\s,]+", field.name):
            raise UsageError(f"state field {field.name!r}: expected a name without spaces and commas")
        if "," in field.unit:
            raise UsageError(f"state field {field.name!r}: unit: expected no comma, found {field.unit!r}")
        if field.start != end or field.stop <= end:
            found = f"{field.start} to {field.stop}"
            raise UsageError(f"state field {field.name!r}: expected its numbers from {end} on, found {found}")
        end = field.stop
    return ", ".join(f"{field.name} {field.stop - field.start} {field.unit}".strip() for field in fields)


def read_fields(line: str) -> tuple[StateField, ...]:
    """The fields of such a line; DamagedError if it is none."""
    fields, start = [], 0
    for entry in line.split(", "):
        name, size, unit = [*entry.split(" ", 2), "", ""][:3]
        if not size.isdigit() or int(size) == 0 or not name:
            raise DamagedError(f"state fields {line!r}: expected 'NAME SIZE UNIT, ...', found {entry!r}")
        fields.append(StateField(name, start, start + int(size), unit))
        start += int(size)
    return tuple(fields)


@dataclass(frozen=True)
class StateColumn:
    """A column of the public benchmark's files: its known names, and the consecutive state fields that it holds."""

    names: tuple[str, ...]
    fields: tuple[str, ...]
    dtype: str = "float64"


class PlanningEnv(gymnasium.Env[State, Action], abc.ABC):
    """A world that can be put into any stored state, with a goal that is itself a state.

    `variant` chooses physics and success rule: `paper` does what the public benchmark does, `clean` what it means to
    do; docs/environments.md lists each difference.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}  # type: ignore[misc]
    action_space: gymnasium.spaces.Box[Any]
    name: ClassVar[str]
    """The environment's name on the command line and in files."""
    title: ClassVar[str] = ""
    """The name that people read, in tables and figures; `name` if it is empty."""
    named_by: ClassVar[str] = ""
    """module:Class, if a user has named it so."""
    state_dim: ClassVar[int]
    action_dim: ClassVar[int]
    state_fields: ClassVar[tuple[StateField, ...]]
    success_radius: ClassVar[str] = ""
    """What a distance of 1 is, for people: 16 units."""
    max_episode_steps: ClassVar[int]
    """Steps of one collected episode, at most."""
    ends_at_goal: ClassVar[bool] = True
    """Whether a collected episode ends when its goal is reached."""
    policies: ClassVar[tuple[str, ...]] = ("random",)
    """Collecting policies; the first is the default."""
    action_low: ClassVar[float | tuple[float, ...]] = -1.0
    action_high: ClassVar[float | tuple[float, ...]] = 1.0
    """Bounds of an action, one for all numbers or one for each."""
    restores: ClassVar[bool] = True
    """Whether it can be put into a stored state; without it episodes can be collected, and no task can be set."""
    measures: ClassVar[bool] = True
    """Whether it knows how far a state is from a goal; without it nothing can be evaluated."""
    columns: ClassVar[tuple[StateColumn, ...]] = ()
    """What the benchmark's files hold of the state; a field that no column holds is zero, as when it restores a row."""
    moved_by_action: ClassVar[str] = ""
    """Field that an action moves at once: correlating the two tells whether action[t] leaves row t of a file."""

    def __init__(
        self,
        *,
        variant: Variant = "clean",
        image_size: int = 64,
        render_quality: RenderQuality = "fast",
        render_mode: str | None = "rgb_array",
    ) -> None:
        one_of(f"{self.name} variant", variant, get_args(Variant))
        one_of("render quality", render_quality, get_args(RenderQuality))
        at_least("image_size", image_size)
        self.variant = variant
        self.image_size = image_size
        self.render_quality = render_quality
        self.render_mode = render_mode
        self.goal: State | None = None
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (self.state_dim,), np.float64)
        low, high = (
            np.broadcast_to(np.asarray(b, np.float32), self.action_dim) for b in (self.action_low, self.action_high)
        )
        self.action_space = gymnasium.spaces.Box(low.copy(), high.copy(), dtype=np.float32)

    @property
    def renderer(self) -> str:
        """What draws the frames; part of the world's identity, because renderers differ in pixels."""
        return "numpy"

    @property
    def over(self) -> bool:
        """Whether the world itself has ended the episode, as when a robot falls; never so in ours."""
        return False

    @property
    def world(self) -> WorldSpec:
        """What a dataset from here, and a checkpoint trained on it, must share with this environment."""
        return WorldSpec(self.name, self.action_dim, self.image_size, self.render_quality, self.renderer)

    # --- gymnasium -----------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[State, dict[str, Any]]:
        """A random start and goal from `seed`, or those of options={"state": ..., "goal": ...}."""
        super().reset(seed=seed)
        options = options or {}
        state, goal = options.get("state"), options.get("goal")
        if state is None:
            self._random_start(self.np_random)
        else:
            self.restore(state)
        self.set_goal(self._random_goal(self.np_random) if goal is None else goal)
        return self.state(), {"success": self.succeeded()}

    def step(self, action: Action) -> tuple[State, float, bool, bool, dict[str, Any]]:
        """One control step: terminated when the goal is reached now, truncated when the world ends the episode.

        Time limits are the caller's business.
        """
        check("action", action, "A", A=self.action_dim)
        if not np.isfinite(action).all():
            raise NonFiniteError(f"{self.name}: action {np.asarray(action).tolist()} is not finite")
        self._advance(np.asarray(action, np.float32))
        reached = self.succeeded()
        return self.state(), float(reached), reached, self.over, {"success": reached}

    def render(self) -> Frame:
        """The current frame [image_size, image_size, 3]."""
        return self.draw(self.image_size)

    # --- restoring and goals ---------------------------------------------------------------------------------------

    def restore(self, state: State) -> None:
        """Put the simulation exactly into `state`: the same actions then give the same states, bit for bit."""
        check("state", state, "S", S=self.state_dim, dtype="float64")
        if not np.isfinite(state).all():
            raise NonFiniteError(f"{self.name}: the state to restore is not finite")
        self._restore(np.array(state))

    def set_goal(self, goal: State) -> None:
        """The state to reach; what of it counts is the business of `goal_distance`."""
        check("goal", goal, "S", S=self.state_dim, dtype="float64")
        self.goal = np.array(goal)

    def succeeded(self) -> bool:
        """Whether the current state reaches the goal."""
        return self.goal is not None and bool(self.goal_distance(self.state()[None], self.goal[None])[0] < 1.0)

    def draw_many(self, states: State, size: int) -> Frame:
        """Pictures of many states: [N, S] -> [N, size, size, 3]. Leaves the simulation in the last of them."""
        check("states", states, "N S", S=self.state_dim)
        frames = np.empty((len(states), size, size, 3), np.uint8)
        for frame, state in zip(frames, states, strict=True):
            self.restore(state)
            frame[:] = self.draw(size)
        return frames

    def policy(self, kind: str, rng: np.random.Generator) -> Policy:
        """A collecting policy for the episode that has just been reset."""
        one_of(f"{self.name} policy", kind, self.policies)
        low, high = self.action_space.low, self.action_space.high
        return lambda: rng.uniform(low, high).astype(np.float32)

    def check_pairs(self, states: State, goals: State) -> None:
        """Refuse anything but states [N, S] with as many goals [N, S]; `goal_distance` begins with it."""
        count = check("states", states, "N S", S=self.state_dim)["N"]
        check("goals", goals, "N S", N=count, S=self.state_dim)

    @classmethod
    def task_kinds(cls, states: State, goals: State) -> list[str]:
        """What each pair asks for, in a word or two: states [N, S], goals [N, S] -> N; empty words tell none apart."""
        del goals
        return [""] * len(states)

    # --- what an environment supplies ------------------------------------------------------------------------------

    @abc.abstractmethod
    def state(self) -> State:
        """Copy of everything that decides the future [state_dim]."""

    @abc.abstractmethod
    def goal_distance(self, states: State, goals: State) -> NDArray[np.float64]:
        """Distance in success radii: states [N, S], goals [N, S] -> [N]; below 1 the goal is reached.

        A function of its arguments and `variant` alone, so that tasks can be chosen without simulating.
        """

    @abc.abstractmethod
    def draw(self, size: int) -> Frame:
        """The current state as a picture [size, size, 3]; the goal is never in it."""

    @abc.abstractmethod
    def _restore(self, state: State) -> None: ...

    @abc.abstractmethod
    def _advance(self, action: Action) -> None: ...

    @abc.abstractmethod
    def _random_start(self, rng: np.random.Generator) -> None: ...

    @abc.abstractmethod
    def _random_goal(self, rng: np.random.Generator) -> State: ...
