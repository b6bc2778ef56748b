"""A plain gymnasium environment with rgb_array frames as one that saltwm collects, trains and, if it can, plans in."""

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from saltwm.envs.base import Action, Frame, PlanningEnv, Policy, State, StateField
from saltwm.envs.mujoco_render import choose_backend
from saltwm.ground.errors import UsageError
from saltwm.ground.frames import Fit, square

GymEnv = gymnasium.Env[Any, Any]
GetState = Callable[[GymEnv], NDArray[Any]]
PutState = Callable[[GymEnv, State], None]
Distance = Callable[[State, State], NDArray[np.float64]]
Acting = Callable[[GymEnv, np.random.Generator], Any]
"""(env, rng) -> action, or a class whose objects return actions."""
USUAL_STEPS = 200
"""Of a collected episode, where the environment has no limit of its own."""


def adapt(
    make: str | Callable[[], GymEnv] | GymEnv,
    *,
    name: str,
    title: str = "",
    state: GetState | None = None,
    restore: PutState | None = None,
    distance: Distance | None = None,
    fields: tuple[StateField, ...] = (),
    policies: dict[str, Acting] | None = None,
    max_episode_steps: int | None = None,
    fit: Fit = "pad",
) -> type[PlanningEnv]:
    """The class of an environment that gymnasium makes.

    `make` is a gymnasium id, a class or function that makes the environment, or one that gymnasium.make made.
    `state(env)` is everything that decides the future, `restore(env, state)` puts it back. They are found by
    themselves where the environment has methods state and restore or get_state and set_state, or is simulated by
    MuJoCo. Without them the observation stands for the state, and the environment can be recorded but not planned in.
    `distance(states, goals)`, [N, S], [N, S] -> [N], is in success radii: below 1 the goal is reached.
    `policies` are collecting policies, policy(env, rng) -> action; uniform actions are always among them. A class
    instead of a function is made once per episode, and its object called for each action: it may remember the episode.
    """
    build = _builder(name, make)
    probe = build()
    try:
        low, high = _bounds(name, probe)
        observation, _ = probe.reset(seed=0)
        get, put = (state, restore) if state is not None else _found_state(probe)
        values = _observed(observation) if get is None else _vector(name, get(probe))
        limit = getattr(probe.spec, "max_episode_steps", None) if probe.spec else None
        square(name, probe.render(), 8, fit)  # refuses an environment that draws nothing
    finally:
        probe.close()
    described = fields or (StateField("state" if get else "observation", 0, len(values)),)
    if [field.start for field in described] + [len(values)] != [0, *(field.stop for field in described)]:
        raise UsageError(f"{name}: its fields do not name each of the {len(values)} numbers of the state once")
    members: dict[str, Any] = {
        "__doc__": f"{title or name}, adapted from gymnasium.",
        "name": name,
        "title": title,
        "state_dim": len(values),
        "action_dim": len(low),
        "state_fields": described,
        "action_low": tuple(low.tolist()),
        "action_high": tuple(high.tolist()),
        "max_episode_steps": max_episode_steps or limit or USUAL_STEPS,
        "ends_at_goal": False,
        "policies": (*(policies or {}), "random"),
        "restores": put is not None,
        "measures": distance is not None,
        "ways": Ways(build, get, put, distance, policies or {}, fit),
    }
    return type("".join(word.capitalize() for word in name.split("-")), (Adapted,), members)


@dataclass(frozen=True)
class Ways:
    """How to build an environment, and to use it where gymnasium has no word for it."""

    build: Callable[[], GymEnv]
    get: GetState | None
    put: PutState | None
    distance: Distance | None
    policies: dict[str, Acting]
    fit: Fit


class Adapted(PlanningEnv):
    """What `adapt` makes subclasses of."""

    ways: ClassVar[Ways]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.env = self.ways.build()
        self._observation, _ = self.env.reset(seed=0)  # gymnasium restores and steps nothing before its first reset
        self._over = False

    @property
    def renderer(self) -> str:
        """gymnasium: the environment draws as it likes."""
        return "gymnasium"

    @property
    def over(self) -> bool:
        """Whether the environment has ended the episode."""
        return self._over

    def state(self) -> State:
        """What decides the future, or the observation where that is not known [state_dim]."""
        get = self.ways.get
        return _observed(self._observation) if get is None else _vector(self.name, get(self.env))

    def goal_distance(self, states: State, goals: State) -> NDArray[np.float64]:
        """Distance in success radii: [N, S], [N, S] -> [N]; UsageError where `adapt` was given none."""
        self.check_pairs(states, goals)
        if self.ways.distance is None:
            raise UsageError(f"{self.name}: has no goal distance; give adapt a `distance` to set and judge tasks")
        return np.asarray(self.ways.distance(states, goals), np.float64)

    def succeeded(self) -> bool:
        """Whether the current state reaches the goal; never where no distance is known."""
        return self.measures and super().succeeded()

    def draw(self, size: int) -> Frame:
        """The environment's own picture, made square."""
        return square(self.name, self.env.render(), size, self.ways.fit)

    def policy(self, kind: str, rng: np.random.Generator) -> Policy:
        """One of the policies that `adapt` was given, or uniform actions."""
        if kind not in self.ways.policies:
            return super().policy(kind, rng)
        act = self.ways.policies[kind]
        if isinstance(act, type):
            of_this_episode = act(self.env, rng)
            return lambda: np.asarray(of_this_episode(), np.float32)
        return lambda: np.asarray(act(self.env, rng), np.float32)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _restore(self, state: State) -> None:
        if self.ways.put is None:
            raise UsageError(f"{self.name}: cannot be put into a stored state; give adapt `state` and `restore`")
        self.ways.put(self.env, state)
        self._over = False

    def _advance(self, action: Action) -> None:
        dtype = self.env.action_space.dtype
        self._observation, _, terminated, _, _ = self.env.step(np.asarray(action, dtype))
        self._over = bool(terminated)  # truncated is a time limit, which is the caller's business

    def _random_start(self, rng: np.random.Generator) -> None:
        self._observation, _ = self.env.reset(seed=int(rng.integers(2**31)))
        self._over = False

    def _random_goal(self, rng: np.random.Generator) -> State:
        """Where another random start would be; the present state where none can be visited and left again."""
        here = self.state()
        if not self.restores:
            return here
        self._random_start(rng)
        goal = self.state()
        self._restore(here)
        return goal


# --- what gymnasium gives -------------------------------------------------------------------------------------------


def _builder(name: str, make: str | Callable[[], GymEnv] | GymEnv) -> Callable[[], GymEnv]:
    """What makes the environment, in each process its own, where MuJoCo can draw without a screen."""
    if "mujoco" not in sys.modules and "MUJOCO_GL" not in os.environ:
        with contextlib.suppress(UsageError):  # nothing to draw with: only a MuJoCo environment will mind
            os.environ["MUJOCO_GL"] = choose_backend()
    if callable(make):
        return make
    spec = make.spec if isinstance(make, gymnasium.Env) else make
    if spec is None:
        raise UsageError(f"{name}: give adapt the class or function that makes it; each process makes its own")

    def build() -> GymEnv:
        try:
            return gymnasium.make(spec, render_mode="rgb_array")
        except gymnasium.error.Error as error:
            raise UsageError(f"{name}: gymnasium cannot make {make}: {error}") from error

    return build


def _bounds(name: str, env: GymEnv) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    space = env.action_space
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise UsageError(f"{name}: actions are {space}; saltwm plans vectors of real numbers, a Box of one dimension")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise UsageError(f"{name}: actions have no finite bounds; wrap it in gymnasium.wrappers.RescaleAction")
    return space.low.astype(np.float32), space.high.astype(np.float32)


def _found_state(env: GymEnv) -> tuple[GetState | None, PutState | None]:
    inner = env.unwrapped
    for getter, putter in (("state", "restore"), ("get_state", "set_state")):
        if callable(getattr(inner, getter, None)) and callable(getattr(inner, putter, None)) and not _is_mujoco(inner):
            return (
                lambda made, name=getter: getattr(made.unwrapped, name)(),
                lambda made, values, name=putter: getattr(made.unwrapped, name)(values),
            )  # fmt: skip
    return (_mujoco_state, _put_mujoco_state) if _is_mujoco(inner) else (None, None)


def _is_mujoco(inner: Any) -> bool:
    kinds = {part: type(getattr(inner, part, None)).__name__ for part in ("model", "data")}
    return kinds == {"model": "MjModel", "data": "MjData"}


def _mujoco_state(env: GymEnv) -> NDArray[np.float64]:
    import mujoco

    inner: Any = env.unwrapped
    kind = mujoco.mjtState.mjSTATE_INTEGRATION  # all that a step reads, the solver's warm start included
    values = np.empty(mujoco.mj_stateSize(inner.model, kind))
    mujoco.mj_getState(inner.model, inner.data, values, kind)
    return values


def _put_mujoco_state(env: GymEnv, state: State) -> None:
    import mujoco

    inner: Any = env.unwrapped
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(inner.model, inner.data, state, kind)
    mujoco.mj_forward(inner.model, inner.data)  # what pictures are drawn from; it changes the warm start,
    mujoco.mj_setState(inner.model, inner.data, state, kind)  # which is put back


def _vector(name: str, values: Any) -> State:
    vector = np.array(values, np.float64).ravel()
    if not len(vector) or not np.isfinite(vector).all():
        raise UsageError(f"{name}: its state is {values!r}; expected at least one number, all finite")
    return vector


def _observed(observation: Any) -> State:
    """The numbers of an observation, one after another; a picture counts as none, and then the state is one zero."""
    if isinstance(observation, dict):
        parts = [_observed(observation[key]) for key in sorted(observation)]
    elif isinstance(observation, tuple):
        parts = [_observed(part) for part in observation]
    else:
        values = np.asarray(observation)
        return np.zeros(1) if values.ndim > 1 or values.dtype.kind not in "fiub" else values.astype(np.float64).ravel()
    return np.concatenate(parts) if parts else np.zeros(1)
