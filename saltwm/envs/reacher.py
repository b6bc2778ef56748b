"""Reacher: a two-link arm turned by torques in the plane (dm_control's own model, target removed)."""

import importlib.util
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from saltwm.envs.base import Action, Policy, State, StateColumn, StateField
from saltwm.envs.mujoco_base import MujocoEnv
from saltwm.ground.errors import UsageError

ACTION_REPEAT = 2  # of dm_control's timestep, 0.02 s
ANGLE_RADIUS = 0.05
WRIST_LIMIT = np.deg2rad(160)
QPOS = slice(1, 3)


class Reacher(MujocoEnv):
    """Actions are the torques of shoulder and wrist; the goal is a pair of joint angles."""

    name = "reacher"
    title = "Reacher"
    state_dim = 9
    action_dim = 2
    state_fields: ClassVar[tuple[StateField, ...]] = (
        StateField("time", 0, 1, "s"),
        StateField("joint_angles", 1, 3, "rad"),
        StateField("joint_velocities", 3, 5, "rad/s"),
        StateField("solver_warm_start", 5, 7, "rad/s^2"),
        StateField("control", 7, 9),
    )
    success_radius = "0.05 rad in each joint"
    max_episode_steps = 200
    ends_at_goal = False
    policies = ("random", "smooth")
    columns: ClassVar[tuple[StateColumn, ...]] = (
        StateColumn(("qpos",), ("joint_angles",)),
        StateColumn(("qvel",), ("joint_velocities",)),
    )
    moved_by_action = "joint_velocities"
    camera = "fixed"  # above the arm

    def _build(self) -> tuple[Any, Any]:
        spec = self._mujoco.MjSpec.from_file(str(_model_file()))
        spec.delete(spec.geom("target"))  # the goal is never in the picture
        model = spec.compile()
        return model, self._mujoco.MjData(model)

    def goal_distance(self, states: State, goals: State) -> NDArray[np.float64]:
        """The larger joint error over 0.05 rad; `clean` ignores full turns of the shoulder."""
        self.check_pairs(states, goals)
        error = states[:, QPOS] - goals[:, QPOS]
        if self.variant == "clean":
            error[:, 0] = (error[:, 0] + np.pi) % (2 * np.pi) - np.pi
        return np.abs(error).max(1) / ANGLE_RADIUS

    def policy(self, kind: str, rng: np.random.Generator) -> Policy:
        """Uniform torques at each step, as the benchmark's data were made, or torques that change slowly."""
        return _Smooth(rng) if kind == "smooth" else super().policy(kind, rng)

    def _advance(self, action: Action) -> None:
        self._data.ctrl[:] = action  # the model itself limits controls to +-1
        self._mujoco.mj_step(self._model, self._data, ACTION_REPEAT)

    def _random_start(self, rng: np.random.Generator) -> None:
        self._restore(_resting(rng))

    def _random_goal(self, rng: np.random.Generator) -> State:
        return _resting(rng)


class _Smooth:
    """Torques held for a random number of steps, so that the arm swings instead of trembling."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.steps_left = np.zeros(2, int)
        self.torques = np.zeros(2)

    def __call__(self) -> Action:
        """Each joint draws a new torque when its old one has run out [2]."""
        for joint in np.flatnonzero(self.steps_left == 0):
            self.steps_left[joint] = self.rng.integers(1, 7)
            self.torques[joint] = self.rng.uniform(-1, 1)
        self.steps_left -= 1
        return self.torques.astype(np.float32)


def _resting(rng: np.random.Generator) -> State:
    """The arm at rest at random angles, as dm_control starts it."""
    state = np.zeros(Reacher.state_dim)
    state[QPOS] = rng.uniform(-np.pi, np.pi), rng.uniform(-WRIST_LIMIT, WRIST_LIMIT)
    return state


def _model_file() -> Path:
    """dm_control's reacher.xml, found without importing dm_control, which would load every domain of its suite."""
    package = importlib.util.find_spec("dm_control")
    if package is None or not package.submodule_search_locations:
        raise UsageError(
            "reacher: its model belongs to dm_control, which is not installed; run `pip install dm_control`"
        )
    return Path(package.submodule_search_locations[0]) / "suite" / "reacher.xml"
