"""The environments, as a closed table; each is imported only when it is made."""

import importlib
from typing import Any

import gymnasium

from saltwm.envs.base import PlanningEnv
from saltwm.ground.checks import one_of
from saltwm.ground.extras import needs

_WHERE = {
    "two-room": ("saltwm.envs.two_room", "TwoRoom"),
    "push-t": ("saltwm.envs.push_t", "PushT"),
    "reacher": ("saltwm.envs.reacher", "Reacher"),
    "cube": ("saltwm.envs.cube", "Cube"),
    "cube-double": ("saltwm.envs.cube", "CubeDouble"),
}
ENVIRONMENTS = tuple(_WHERE)


def make_env(name: str, **options: Any) -> PlanningEnv:
    """The environment called `name`; options as for PlanningEnv."""
    env: PlanningEnv = env_class(name)(**options)
    return env


def env_class(name: str) -> type[PlanningEnv]:
    """Its class, for what is known without building it."""
    one_of("environment", name, ENVIRONMENTS)
    module, attribute = _WHERE[name]
    with needs("sim", f"environment {name}"):
        cls: type[PlanningEnv] = getattr(importlib.import_module(module), attribute)
    return cls


def register() -> None:
    """Enter the environments into gymnasium's registry, once."""
    for module, attribute in _WHERE.values():
        if f"saltwm/{attribute}-v0" not in gymnasium.registry:
            gymnasium.register(f"saltwm/{attribute}-v0", entry_point=f"{module}:{attribute}")


# Importing this room is how gymnasium learns the names: gymnasium.make("saltwm.envs:saltwm/TwoRoom-v0") does it itself.
register()
