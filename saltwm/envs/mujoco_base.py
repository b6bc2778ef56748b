"""What the MuJoCo environments share: the simulator's own state vector, and pictures from one camera."""

import abc
from typing import Any, ClassVar

import numpy as np

from saltwm.envs.base import Frame, PlanningEnv, State
from saltwm.envs.mujoco_render import Camera, load_mujoco


class MujocoEnv(PlanningEnv):
    """A MuJoCo model that is stepped, saved, restored and drawn; subclasses build it and act on it."""

    camera: ClassVar[str]
    """The model's camera that frames are drawn from."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._mujoco = load_mujoco()
        kinds = self._mujoco.mjtState
        # All that mj_step reads, less applied forces (always zero here) and markers of targets (nothing touches them).
        self._kinds = int(kinds.mjSTATE_FULLPHYSICS | kinds.mjSTATE_WARMSTART | kinds.mjSTATE_CTRL)
        self._model, self._data = self._build()
        self._camera = Camera(self._model, self.camera, self.render_quality)

    @abc.abstractmethod
    def _build(self) -> tuple[Any, Any]:
        """The MjModel and its MjData."""

    @property
    def renderer(self) -> str:
        """The OpenGL that MuJoCo draws with."""
        return self._camera.backend

    def state(self) -> State:
        """Time, positions, velocities, the solver's warm start and the last control [state_dim]."""
        state = np.empty(self.state_dim)
        self._mujoco.mj_getState(self._model, self._data, state, self._kinds)
        return state

    def draw(self, size: int) -> Frame:
        """What the camera sees."""
        return self._camera.draw(self._data.qpos, size)

    def close(self) -> None:
        """Give the OpenGL contexts back."""
        self._camera.close()

    def _restore(self, state: State) -> None:
        self._mujoco.mj_setState(self._model, self._data, state, self._kinds)
