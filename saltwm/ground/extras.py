"""Packages that only some verbs need: what to install when one is missing, in one line."""

import contextlib
import importlib.util
from collections.abc import Iterator

from saltwm.ground.errors import UsageError

EXTRAS: dict[str, tuple[str, ...]] = {
    "sim": ("pymunk", "mujoco", "dm_control", "ogbench"),
    "export": ("onnx", "onnxruntime"),
    "log": ("tensorboard", "wandb"),
    "ray": ("ray",),
    "explore": ("starlette", "uvicorn", "websockets"),
    "lerobot": ("pyarrow",),
    "lance": ("lance",),
    "minari": ("minari",),
}
"""Extra of pyproject.toml -> the modules that it brings."""


@contextlib.contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Inside, a missing module of `extra` becomes one line that says what needs it and how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = [module for module in EXTRAS[extra] if module in (error.name or "").split(".")]
        if not missing:
            raise  # a package of ours, or of theirs, that should be there: the traceback helps
        raise UsageError(_advice(extra, what, missing[0])) from error


def require(extra: str, what: str, module: str) -> None:
    """UsageError unless `module` of `extra` is installed; looks without importing it."""
    if importlib.util.find_spec(module) is None:
        raise UsageError(_advice(extra, what, module))


def install(extra: str) -> str:
    """The command that gets an extra; saltwm is on no index, so it is installed from its folder."""
    return f"pip install '.[{extra}]' in the folder of saltwm"


def _advice(extra: str, what: str, module: str) -> str:
    """What is missing, and the command that gets it."""
    return f"{what} needs {module}, which is not installed; get it with: {install(extra)}"
