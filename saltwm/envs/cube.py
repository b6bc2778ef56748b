"""Cube and Cube-Double: a robot arm moves cubes on a table (OGBench's own environments and oracle)."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from saltwm.envs.base import Action, Policy, State, StateColumn, StateField
from saltwm.envs.mujoco_base import MujocoEnv

SUCCESS_RADIUS = 0.04
CUBE_HALF = 0.02
ON_TABLE = 0.03
"""A cube whose centre is lower lies on the table, or nearly."""
_KINDS = {  # from the table, onto the table
    (True, True): "move on the table",
    (True, False): "lift",
    (False, True): "put down",
    (False, False): "carry",
}
_ARM_JOINTS, _GRIPPER_JOINTS, _ACTUATORS = 6, 8, 7


def _fields(cubes: int) -> tuple[StateField, ...]:
    """MuJoCo's order: time, positions, velocities, warm start, control."""
    velocities = _ARM_JOINTS + _GRIPPER_JOINTS + 6 * cubes
    parts = [("time", 1, "s"), ("arm_angles", _ARM_JOINTS, "rad"), ("gripper_angles", _GRIPPER_JOINTS, "rad")]
    for cube in range(cubes):
        parts += [(f"cube_{cube}_position", 3, "m"), (f"cube_{cube}_quaternion", 4, "")]
    parts += [("velocities", velocities, ""), ("solver_warm_start", velocities, ""), ("control", _ACTUATORS, "")]
    stops = np.cumsum([size for _, size, _ in parts]).tolist()
    return tuple(
        StateField(name, stop - size, stop, unit) for (name, size, unit), stop in zip(parts, stops, strict=True)
    )


class Cube(MujocoEnv):
    """Actions shift the hand by up to 5 cm in x, y, z, turn it by up to 0.3 rad and move the fingers."""

    name = "cube"
    title = "OGBench-Cube"
    cubes: ClassVar[int] = 1
    action_dim = 5
    state_fields: ClassVar[tuple[StateField, ...]] = _fields(1)
    state_dim = state_fields[-1].stop
    success_radius = "4 cm"
    max_episode_steps = 200
    ends_at_goal = False
    policies = ("oracle", "clumsy", "random")
    columns: ClassVar[tuple[StateColumn, ...]] = (
        StateColumn(("qpos",), ("arm_angles", "gripper_angles", "cube_0_position", "cube_0_quaternion")),
        StateColumn(("qvel",), ("velocities",)),
    )
    camera = "front"  # OGBench's

    def _build(self) -> tuple[Any, Any]:
        from ogbench.manipspace.envs.cube_env import CubeEnv

        self.simulation = CubeEnv(
            env_type={1: "single", 2: "double"}[self.cubes],
            mode="data_collection",
            visualize_info=False,
            terminate_at_goal=False,
        )
        self.simulation.reset(seed=0)  # builds the model and paints the cubes
        self._substeps = round(self.simulation.control_timestep() / self.simulation.physics_timestep())
        return self.simulation.model, self.simulation.data

    def goal_distance(self, states: State, goals: State) -> NDArray[np.float64]:
        """The farthest cube's distance from its place over 4 cm; how cubes are turned does not count."""
        self.check_pairs(states, goals)
        places = [slice(field.start, field.stop) for field in self.state_fields if field.name.endswith("_position")]
        errors = [np.linalg.norm(states[:, place] - goals[:, place], axis=1) for place in places]
        return np.max(errors, axis=0) / SUCCESS_RADIUS

    @classmethod
    def task_kinds(cls, states: State, goals: State) -> list[str]:
        """Where the cube that has farthest to go is, and where it should be: on the table or in the hand."""
        starts = [field.start for field in cls.state_fields if field.name.endswith("_position")]
        ways = np.stack([goals[:, at : at + 3] - states[:, at : at + 3] for at in starts])
        heights = np.array(starts)[np.linalg.norm(ways, axis=2).argmax(0)] + 2
        rows = np.arange(len(states))
        lies, shall_lie = (places[rows, heights] < ON_TABLE for places in (states, goals))
        return [_KINDS[bool(here), bool(there)] for here, there in zip(lies, shall_lie, strict=True)]

    def policy(self, kind: str, rng: np.random.Generator) -> Policy:
        """OGBench's Markov oracle with noise, the same seeing badly, or uniform actions."""
        oracles = {"oracle": Oracle, "clumsy": Clumsy}
        return oracles[kind](self, rng) if kind in oracles else super().policy(kind, rng)

    def refresh(self) -> None:
        """Compute where the hand is from the joint angles alone.

        MuJoCo leaves it as it was before the last 2 ms of a step, which no state vector knows; the controller and the
        oracle read it.
        """
        self._mujoco.mj_kinematics(self._model, self._data)

    def _advance(self, action: Action) -> None:
        if self.variant == "clean":
            # The benchmark passes any size on, so that an unbounded plan can move the hand across the table at once.
            action = np.clip(action, -1, 1)
        self.refresh()
        self.simulation.set_control(action.astype(np.float64))
        self._mujoco.mj_step(self._model, self._data, self._substeps)

    def _random_start(self, rng: np.random.Generator) -> None:
        self.simulation.np_random = rng
        self.simulation.reset()

    def _random_goal(self, rng: np.random.Generator) -> State:
        """The present state with every cube elsewhere on the table, apart from the others."""
        goal = self.state()
        low, high = self.simulation._target_sampling_bounds
        places = rng.uniform(low, high, (self.cubes, 2))
        while self.cubes > 1 and np.linalg.norm(places[0] - places[1]) < 4 * CUBE_HALF:
            places = rng.uniform(low, high, (self.cubes, 2))
        for cube, place in enumerate(places):
            start = next(field.start for field in self.state_fields if field.name == f"cube_{cube}_position")
            goal[start : start + 3] = *place, CUBE_HALF
        return goal


class CubeDouble(Cube):
    """Like cube, with two cubes, which the oracle sometimes stacks."""

    name = "cube-double"
    title = "OGBench-Cube-Double"
    columns = ()
    cubes = 2
    state_fields = _fields(2)
    state_dim = state_fields[-1].stop


class Oracle:
    """OGBench's oracle with the noise that the benchmark's data were made with; a new target when one is done."""

    def __init__(self, env: Cube, rng: np.random.Generator) -> None:
        from ogbench.manipspace.oracles.markov.cube_markov import CubeMarkovOracle

        self.env, self.rng = env, rng
        xi = rng.uniform(0, 0.1)
        self.noise_std = xi * np.array([1, 1, 1, 3, 10])
        self.stack_probability = 0.0 if env.cubes == 1 else rng.uniform(0, 0.25)
        self.oracle = CubeMarkovOracle(env=env.simulation)
        env.simulation.np_random = rng
        self._settle()
        self._new_target()

    def __call__(self) -> Action:
        """The oracle's action for what it sees now, with noise [5]."""
        if self.oracle.done:
            self._new_target()
        action = self.oracle.select_action(None, self._look())
        return np.clip(action + self.rng.normal(0, self.noise_std), -1, 1).astype(np.float32)

    def _look(self) -> dict[str, Any]:
        """The oracle's inputs: hand, fingers, the force between them, cubes, target."""
        mujoco, simulation = self.env._mujoco, self.env.simulation
        mujoco.mj_rnePostConstraint(simulation.model, simulation.data)
        self.env.refresh()
        info: dict[str, Any] = simulation.compute_ob_info()
        return info

    def _settle(self) -> None:
        """Contact forces for a state that was just put in, without changing the state."""
        state = self.env.state()
        self.env._mujoco.mj_forward(self.env.simulation.model, self.env.simulation.data)
        self.env._restore(state)

    def _new_target(self) -> None:
        simulation = self.env.simulation
        simulation.set_new_target(return_info=False, p_stack=self.stack_probability)
        self.oracle.reset(None, None)
        # OGBench draws where the hand rests from NumPy's global generator; an episode must come from its own.
        self.oracle._final_pos = self.rng.uniform(*simulation._arm_sampling_bounds)
        self.oracle._final_yaw = self.rng.uniform(-np.pi, np.pi)


class Clumsy(Oracle):
    """The oracle, in half of its episodes mistaken about where cubes are: it closes its hand beside them, drops them.

    The oracle itself hardly ever misses. The other half of the episodes is its own, number by number, to the bit.
    """

    share = 0.5
    """Of the episodes with mistakes, and of the time in them."""
    error_std = 0.03  # m, beside fingers that open 8.5 cm and cubes of 4 cm
    steps = 25
    """Between one mistake and the next: as long as a grasp takes."""

    def __init__(self, env: Cube, rng: np.random.Generator) -> None:
        super().__init__(env, rng)
        self.mistakes = rng.spawn(1)[0]  # a child, so that the oracle's own draws stay what they are
        self.errs = self.mistakes.random() < self.share
        self.error, self.steps_left = np.zeros(3), 0

    def _look(self) -> dict[str, Any]:
        """The oracle's inputs, with every cube shifted by the current mistake."""
        info = super()._look()
        if not self.errs:
            return info
        if self.steps_left == 0:
            self.error[:2] = self.mistakes.normal(0, self.error_std, 2) * (self.mistakes.random() < self.share)
            self.steps_left = self.steps
        self.steps_left -= 1
        for cube in range(self.env.cubes):
            info[f"privileged/block_{cube}_pos"] = info[f"privileged/block_{cube}_pos"] + self.error
        return info
