"""What this machine has and lacks, and how to get it."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "saltwm",
    "torch",
    "lightning-fabric",
    "tensorstore",
    "gymnasium",
    "pymunk",
    "mujoco",
    "dm-control",
    "ogbench",
)
OPTIONAL = {
    "tensorboard": ("saltwm train --log tensorboard", "pip install tensorboard"),
    "wandb": ("saltwm train --log wandb", "pip install wandb"),
    "ray": ("saltwm suite --ray", "in the checkout: pip install -c constraints.txt -e '.[ray]'"),
    "onnxruntime": ("comparing an ONNX export with torch", "pip install onnxruntime"),
}
"""Package -> what needs it and how to get it."""
BACKENDS = ("egl", "osmesa")
RENDER_PROBE = (
    "import mujoco;"
    "m = mujoco.MjModel.from_xml_string('<mujoco><worldbody><geom size=\"1\"/></worldbody></mujoco>');"
    "r = mujoco.Renderer(m, 16, 16); d = mujoco.MjData(m); mujoco.mj_forward(m, d); r.update_scene(d); r.render()"
)


@dataclass(frozen=True)
class Finding:
    """One thing looked at; no remedy means that it is in order."""

    what: str
    found: str
    remedy: str = ""


def examine() -> list[Finding]:
    """All findings, in the order in which a person would ask."""
    packages = [*map(_package, PACKAGES), *map(_optional, OPTIONAL)]
    return [_python(), *packages, *_devices(), _disk(), *map(renderer, BACKENDS)]


def _python() -> Finding:
    found = f"{platform.python_version()} on {platform.platform()}"
    return Finding("python", found, "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer")


def _package(name: str) -> Finding:
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        return Finding(name, "missing", "make .venv/.runtime")


def _optional(name: str) -> Finding:
    needed_by, remedy = OPTIONAL[name]
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        return Finding(name, f"not installed; only for {needed_by}", remedy)


def _devices() -> list[Finding]:
    import torch

    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    count = torch.accelerator.device_count() if accelerator else 0
    return [
        Finding("cores", str(os.cpu_count())),
        Finding("torch threads", str(torch.get_num_threads())),
        Finding("accelerators", f"{count} x {accelerator}" if accelerator else "none: training runs on the CPU"),
    ]


def _disk() -> Finding:
    free = shutil.disk_usage(".").free / 2**30
    return Finding(
        "free disk here", f"{free:.0f} GiB", "" if free > 5 else "free some space: a dataset needs up to 5 GiB"
    )


def renderer(backend: str) -> Finding:
    """Try it in a child process: a broken renderer may take its process with it."""
    remedy = "apt-get install libegl1 libosmesa6 libgl1 (only the MuJoCo environments need it)"
    if importlib.util.find_spec("mujoco") is None:
        return Finding(f"renderer {backend}", "mujoco is missing", "make .venv/.runtime")
    try:
        probe = subprocess.run(
            [sys.executable, "-c", RENDER_PROBE],
            env={**os.environ, "MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend},
            capture_output=True,
            timeout=60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding(f"renderer {backend}", "hangs", remedy)
    if probe.returncode == 0:
        return Finding(f"renderer {backend}", "works")
    lines = probe.stderr.decode(errors="replace").strip().splitlines()
    return Finding(f"renderer {backend}", f"fails: {lines[-1] if lines else probe.returncode}", remedy)
