"""What this machine has and lacks, and how to get it."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from saltwm.ground.extras import install
from saltwm.jobs.job import AsJson, Job

PACKAGES = (
    "saltwm",
    "torch",
    "lightning-fabric",
    "tensorstore",
    "gymnasium",
)
OPTIONAL = {
    "pymunk": ("sim", "PushT"),
    "mujoco": ("sim", "Reacher and Cube"),
    "dm-control": ("sim", "Reacher"),
    "ogbench": ("sim", "Cube"),
    "tensorboard": ("log", "saltwm train --log tensorboard"),
    "wandb": ("log", "saltwm train --log wandb"),
    "ray": ("ray", "work on a Ray cluster"),
    "starlette": ("explore", "saltwm explore"),
    "uvicorn": ("explore", "saltwm explore"),
    "websockets": ("explore", "saltwm explore"),
    "onnx": ("export", "saltwm export --format onnx"),
    "onnxruntime": ("export", "comparing an ONNX export with torch"),
    "pyarrow": ("lerobot", "data in LeRobot's format"),
    "pylance": ("lance", "data in Lance's format"),
    "minari": ("minari", "data in Minari's format"),
}
"""Package -> the extra that brings it, and what needs it."""
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


@dataclass(frozen=True)
class Doctor(Job):
    """Check whether this machine has what is needed: versions, devices, renderers; how to get what is missing."""

    json: AsJson = False

    def do(self) -> list[Finding]:
        """All findings, in the order in which a person would ask."""
        packages = map(_package, (*PACKAGES, *OPTIONAL))
        findings = [_python(), *packages, *_devices(), _disk(), *map(_renderer, BACKENDS), _shelf()]
        return [*findings, verdict(findings)]


def verdict(findings: Sequence[Finding]) -> Finding:
    """What all of it means: which environments work here, or what must be done first."""
    remedies = {finding.what: finding.remedy for finding in findings}
    for needed in ("python", *PACKAGES):
        if remedies[needed]:
            return Finding("verdict", f"nothing works without {needed}", remedies[needed])
    draws = any(not remedies[f"renderer {backend}"] for backend in BACKENDS)
    works = {
        "Two-Room": True,
        "PushT": not remedies["pymunk"],
        "Reacher": draws and not (remedies["mujoco"] or remedies["dm-control"]),
        "Cube": draws and not (remedies["mujoco"] or remedies["ogbench"]),
    }
    missing = [name for name, can in works.items() if not can]
    ready = f"ready for {', '.join(name for name, can in works.items() if can)}"
    return Finding("verdict", ready, f"for {', '.join(missing)} see above" if missing else "")


def _shelf() -> Finding:
    from saltwm.jobs.shelf import HERE, shelf

    found = [item.checkpoint.name for item in shelf(HERE)]
    if not found:
        return Finding("shipped models", "none", "saltwm demo needs them: install the wheel, or work in a checkout")
    return Finding("shipped models", ", ".join(found))


def _python() -> Finding:
    found = f"{platform.python_version()} on {platform.platform()}"
    return Finding("python", found, "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer")


def _package(name: str) -> Finding:
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        if name in PACKAGES:
            return Finding(name, "missing", "pip install . in the folder of saltwm")
        extra, needed_by = OPTIONAL[name]
        return Finding(name, f"not installed; only for {needed_by}", install(extra))


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


@cache
def has_renderer() -> bool:
    """Whether MuJoCo can draw here."""
    return any(not _renderer(backend).remedy for backend in BACKENDS)


def _renderer(backend: str) -> Finding:
    """Try it in a child process: a broken renderer may take its process with it."""
    remedy = "apt-get install libegl1 libosmesa6 libgl1 (only the MuJoCo environments need it)"
    if importlib.util.find_spec("mujoco") is None:
        return Finding(f"renderer {backend}", "mujoco is missing", install("sim"))
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
