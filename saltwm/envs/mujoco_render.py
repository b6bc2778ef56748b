"""MuJoCo without a screen: which OpenGL to use, and pictures of a model from one of its cameras."""

import atexit
import copy
import ctypes
import ctypes.util
import os
import sys
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saltwm.envs.base import Frame
from saltwm.ground.config import RenderQuality
from saltwm.ground.errors import UsageError

MESH_CELL = 0.01
"""Metres; on a table seen at 64 px, a pixel is as wide."""
SOFT_OVERSAMPLING = 2
"""`soft` draws at this multiple of the size and averages; it costs little, because meshes dominate small pictures."""
_EGL_PLATFORM_DEVICE = 0x313F
_MAX_DEVICES = 16


def load_mujoco() -> Any:
    """The mujoco module, imported after MUJOCO_GL is decided, because it looks at it only once."""
    if "mujoco" not in sys.modules and "MUJOCO_GL" not in os.environ:
        os.environ["MUJOCO_GL"] = choose_backend()
    try:
        import mujoco
    except RuntimeError as error:  # a word in MUJOCO_GL that it does not know
        raise UsageError(f"{str(error).splitlines()[0]}; unset it to have one chosen") from error

    return mujoco


def choose_backend() -> str:
    """egl where a device can be opened, else osmesa; the platform's own on macOS and Windows."""
    native = {"darwin": "cgl", "win32": "wgl"}.get(sys.platform)
    if native is not None:
        return native
    if _egl_opens():
        return "egl"
    if ctypes.util.find_library("OSMesa") is not None:
        return "osmesa"
    raise UsageError(
        "MuJoCo has nothing to draw with: expected libEGL with a device, or libOSMesa; "
        "run `sudo apt-get install libegl1 libegl-mesa0 libosmesa6`, or set MUJOCO_GL yourself"
    )


def _egl_opens() -> bool:
    """Whether an EGL device opens. Asked with ctypes, because PyOpenGL, once loaded for EGL, cannot go to OSMesa."""
    try:
        egl = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return False
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    egl.eglGetProcAddress.argtypes = [ctypes.c_char_p]
    egl.eglInitialize.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    query_address = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    display_address = egl.eglGetProcAddress(b"eglGetPlatformDisplayEXT")
    if not query_address or not display_address:
        return False
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(query_address)
    display_of = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)(display_address)
    devices, count = (ctypes.c_void_p * _MAX_DEVICES)(), ctypes.c_int()
    if not query(_MAX_DEVICES, devices, ctypes.byref(count)):
        return False
    displays = (display_of(_EGL_PLATFORM_DEVICE, device, None) for device in devices[: count.value])
    return any(display and egl.eglInitialize(display, None, None) for display in displays)


class Camera:
    """Draws joint positions, and nothing else: a picture does not depend on how the simulation got there.

    It has simulation data of its own, because the forward pass that a picture needs would change the solver's
    warm start, which belongs to the state.
    """

    def __init__(self, model: Any, camera: str, quality: RenderQuality) -> None:
        self._mujoco = load_mujoco()
        self._model = copy.deepcopy(model)
        self._plain = quality != "full"
        if self._plain:
            self._model.vis.quality.offsamples = 0
            coarsen_meshes(self._model, MESH_CELL)
        self._oversampling = SOFT_OVERSAMPLING if quality == "soft" else 1
        self._camera = camera
        self._data = self._mujoco.MjData(self._model)
        self._renderers: dict[int, Any] = {}

    @property
    def backend(self) -> str:
        """The OpenGL that draws: egl, osmesa, cgl, wgl, or mujoco's own choice, if it was imported before saltwm."""
        return os.environ.get("MUJOCO_GL", "glfw").lower()

    def draw(self, qpos: NDArray[np.float64], size: int) -> Frame:
        """Joint positions [nq] -> picture [size, size, 3]."""
        return _averaged(self._draw(qpos, size * self._oversampling), self._oversampling)

    def _draw(self, qpos: NDArray[np.float64], size: int) -> Frame:
        renderer = self._renderers.get(size) or self._open(size)
        self._data.qpos[:] = qpos
        self._mujoco.mj_kinematics(self._model, self._data)
        self._mujoco.mj_comPos(self._model, self._data)
        self._mujoco.mj_camlight(self._model, self._data)
        renderer.update_scene(self._data, camera=self._camera)
        if self._plain:
            for flag in (self._mujoco.mjtRndFlag.mjRND_SHADOW, self._mujoco.mjtRndFlag.mjRND_REFLECTION):
                renderer.scene.flags[flag] = False
        frame: Frame = renderer.render()
        return frame

    def close(self) -> None:
        """Give the OpenGL contexts back."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()

    def _open(self, size: int) -> Any:
        if not hasattr(self._mujoco, "Renderer"):  # mujoco leaves it out when its OpenGL cannot be loaded
            platform = os.environ.get("PYOPENGL_PLATFORM", "unset")
            raise UsageError(
                f"MuJoCo cannot draw with MUJOCO_GL={self.backend} (PYOPENGL_PLATFORM is {platform}); "
                "unset both to let saltwm choose"
            )
        self._model.vis.global_.offwidth = self._model.vis.global_.offheight = size
        self._renderers[size] = self._mujoco.Renderer(self._model, size, size)
        # Registered after every library's own shutdown of EGL, so run before it: contexts that outlive EGL complain.
        # The second environment may have brought such a library.
        atexit.unregister(_close_open_cameras)
        atexit.register(_close_open_cameras)
        _OPEN.add(self)
        return self._renderers[size]


def _averaged(frame: Frame, cell: int) -> Frame:
    """Each square of `cell` pixels as one of their mean: [cell * H, cell * W, 3] -> [H, W, 3]."""
    if cell == 1:
        return frame
    height, width, channels = frame.shape
    squares = frame.reshape(height // cell, cell, width // cell, cell, channels)
    return squares.mean(axis=(1, 3)).round().astype(np.uint8)


def coarsen_meshes(model: Any, cell: float) -> None:
    """Merge the vertices of each mesh that share a cube of side `cell` metres, in place; fewer faces draw faster.

    Corners keep their normals, so that shading stays smooth. Only for a model that is drawn and not simulated.
    """
    for mesh in range(model.nmesh):
        vertices = model.mesh_vert[model.mesh_vertadr[mesh] :][: model.mesh_vertnum[mesh]]
        faces = slice(model.mesh_faceadr[mesh], model.mesh_faceadr[mesh] + model.mesh_facenum[mesh])
        _, first, group = np.unique(_ranks(np.floor(vertices / cell)), return_index=True, return_inverse=True)
        merged = first[group][model.mesh_face[faces]]
        _, distinct = np.unique(_ranks(np.sort(merged, axis=1)), return_index=True)
        kept = distinct[(np.diff(np.sort(merged[distinct], axis=1), axis=1) > 0).all(1)]
        last = faces.start + len(kept)
        model.mesh_face[faces.start : last] = merged[kept]
        for corners in (model.mesh_facenormal, model.mesh_facetexcoord):
            corners[faces.start : last] = corners[faces][kept]
        model.mesh_facenum[mesh] = len(kept)


def _ranks(rows: NDArray[Any]) -> NDArray[np.int64]:
    """One number for each row [N, 3], alike and ordered as the rows are.

    np.unique sorts numbers ten times faster than rows, and every simulator that draws an arm waits for it.
    """
    ranks = np.zeros(len(rows), np.int64)
    for column in rows.T:
        values, places = np.unique(column, return_inverse=True)
        ranks = ranks * len(values) + places
    return ranks


_OPEN: "weakref.WeakSet[Camera]" = weakref.WeakSet()


def _close_open_cameras() -> None:
    for camera in list(_OPEN):
        camera.close()
