"""The environments: those of the package as a table, and those of users; each is imported only when it is made."""

import importlib
from typing import Any

import gymnasium

from saltwm.envs import users
from saltwm.envs.base import PlanningEnv
from saltwm.ground.checks import one_of
from saltwm.ground.errors import UsageError
from saltwm.ground.extras import needs

__all__ = [
    "ENVIRONMENTS",
    "PlanningEnv",
    "adapt",
    "env_class",
    "has_simulator",
    "introduce",
    "make_env",
    "register",
    "spelled",
]

_WHERE = {
    "two-room": ("saltwm.envs.two_room", "TwoRoom"),
    "push-t": ("saltwm.envs.push_t", "PushT"),
    "reacher": ("saltwm.envs.reacher", "Reacher"),
    "cube": ("saltwm.envs.cube", "Cube"),
    "cube-double": ("saltwm.envs.cube", "CubeDouble"),
}
ENVIRONMENTS = tuple(_WHERE)
"""Those of the package."""


def make_env(name: str, **options: Any) -> PlanningEnv:
    """The environment called `name`; options as for PlanningEnv."""
    with needs("sim", f"environment {name}"):  # MuJoCo and OGBench are imported when a world is built
        env: PlanningEnv = env_class(name)(**options)
    return env


def env_class(name: str) -> type[PlanningEnv]:
    """Its class, for what is known without building it.

    The name may come from a file. It is looked up, never imported: a class of a user's is found if the user has named
    it (`introduce`, SALTWM_ENVIRONMENTS) or has installed a package that offers it under this name.
    """
    name = spelled(name)
    if name not in _WHERE:
        found = users.find(name)
        if found is not None:
            return found
        one_of("environment", name, [*ENVIRONMENTS, *users.names()], remedy="name your environment")
    module, attribute = _WHERE[name]
    with needs("sim", f"environment {name}"):
        cls: type[PlanningEnv] = getattr(importlib.import_module(module), attribute)
    return cls


def has_simulator(name: str) -> bool:
    """Whether there is an environment of this name: the package's, or one that the user has brought in."""
    return name in ENVIRONMENTS or name in users.names()


def introduce(word: str) -> str:
    """The name of the environment that a user's own word stands for.

    `my_module:MyEnv` imports that class and enters it under its name, in this process and in those that it starts.
    Spellings such as pusht and TwoRoom are understood. Never call it with a word from a file.
    """
    if ":" in word:
        return users.enter(word, taken=ENVIRONMENTS)
    if "." in word and (question := users.nearest_place(word)):
        raise UsageError(f"unknown environment {word!r}{question}", remedy="name your environment")
    return spelled(word)


def spelled(word: str) -> str:
    """The name that spellings such as pusht and TwoRoom stand for; another word as it is. Imports nothing."""
    if word in ENVIRONMENTS:  # before installed packages are looked at
        return word
    plain = {_squashed(name): name for name in ENVIRONMENTS}
    return word if word in users.names() else plain.get(_squashed(word), word)


def _squashed(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "").removeprefix("ogbench").removeprefix("ogb")


def adapt(make: Any, **options: Any) -> type[PlanningEnv]:
    """A plain gymnasium environment as one of ours; `saltwm.envs.adapter.adapt` says how."""
    from saltwm.envs.adapter import adapt as adapted

    return adapted(make, **options)


def register() -> None:
    """Enter the environments into gymnasium's registry, once; imports none of them."""
    for module, attribute in _WHERE.values():
        if f"saltwm/{attribute}-v0" not in gymnasium.registry:
            gymnasium.register(f"saltwm/{attribute}-v0", entry_point=f"{module}:{attribute}")


# Importing this room is how gymnasium learns the names: gymnasium.make("saltwm.envs:saltwm/TwoRoom-v0") does it itself.
register()
