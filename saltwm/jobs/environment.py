"""Jobs on environments: is a class one that saltwm can collect from, and plan in?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from saltwm.jobs.job import AsJson, Job, Positional

if TYPE_CHECKING:
    from saltwm.envs.check import Checked


@dataclass(frozen=True)
class EnvCheck(Job):
    """Try an environment: exact restoring, frames, distances, seeds; says what is missing and what works without it."""

    VERB = "env check"

    environment: Positional[str]
    """A name, or module:Class for a class of your own, such as my_module:MyEnv."""
    image_size: int = 64
    """Height and width of a frame in pixels."""
    json: AsJson = False

    def do(self) -> "Checked":
        """Every promise with what was found."""
        from saltwm.envs import env_class, introduce
        from saltwm.envs.check import check_environment

        return check_environment(env_class(introduce(self.environment)), self.image_size)


@dataclass(frozen=True)
class EnvList(Job):
    """List the environments that are known here, the package's and those of installed packages."""

    VERB = "env list"

    json: AsJson = False

    def do(self) -> "dict[str, str]":
        """Name -> what it is."""
        from saltwm.envs import ENVIRONMENTS, env_class, users
        from saltwm.ground.errors import UsageError

        found = {}
        for name in [*ENVIRONMENTS, *users.names()]:
            try:
                cls = env_class(name)
            except UsageError as error:  # its simulator is not installed
                found[name] = str(error)
                continue
            about = (cls.__doc__ or "").strip().partition("\n")[0]
            found[name] = (
                f"{cls.title or name}: {about} {cls.action_dim} {'number' if cls.action_dim == 1 else 'numbers'} in an "
                f"action; {cls.state_dim} in a state."
            )
        return found


@dataclass(frozen=True)
class Env:
    """List environments, or try one of your own."""

    VERB = "env"

    job: Annotated[EnvCheck, tyro.conf.subcommand("check")] | Annotated[EnvList, tyro.conf.subcommand("list")]
