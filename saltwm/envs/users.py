"""Environments that are not part of the package: named by the user as module:Class, or offered by an installed package.

A word of the user's (a command, SALTWM_ENVIRONMENTS, a call of `introduce`) imports a module. A word in a file never
does: it is a name, and is found only among those that the user has brought in.
"""

import importlib
import os
import re
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

import gymnasium

from saltwm.envs.base import PlanningEnv
from saltwm.ground.errors import UsageError

VARIABLE = "SALTWM_ENVIRONMENTS"
"""Classes that the user has named, as module:Class, separated by commas; processes that are started inherit it."""
GROUP = "saltwm.environments"
"""Entry points of installed packages: name = "module:Class"."""

_PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_entered: dict[str, type[PlanningEnv]] = {}


def find(name: str) -> type[PlanningEnv] | None:
    """The user's class of this name, or None."""
    _enter_named()
    if name not in _entered and name in (offered := _offered()):
        _entered[name] = _checked(f"entry point {name}", offered[name].load())
    return _entered.get(name)


def names() -> list[str]:
    """Names of the users' classes that are there."""
    _enter_named()
    return sorted({*_entered, *_offered()})


def word_of(name: str) -> str:
    """The word by which the user named the class of this name; empty for one that a package offers."""
    found = find(name)
    return found.named_by if found else ""


def enter(word: str, taken: Iterable[str] = ()) -> str:
    """Import the class that the user has named as module:Class, and enter it under its own name, which is returned."""
    module_name, _, attribute = word.partition(":")
    if not _PLACE.fullmatch(word) or module_name.endswith(".py"):
        raise UsageError(f"{word!r}: expected module:Class, such as my_module:MyEnv{nearest_place(word)}")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does: the module usually lies in the working directory
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise  # the module is there, and something that it imports is not: its traceback helps
        raise UsageError(f"{word}: no module {module_name!r} in {here} or among the installed packages") from error
    if not hasattr(module, attribute):
        own = [key for key, value in vars(module).items() if _is_environment(value) and value is not PlanningEnv]
        raise UsageError(f"{word}: {module_name} has no {attribute!r}; it has {', '.join(own) or 'no environment'}")
    cls = _checked(word, getattr(module, attribute))
    if cls.name in taken:
        raise UsageError(f"{word}: the name {cls.name!r} is that of an environment of saltwm; choose another")
    _require_free(word, cls)
    _entered[cls.name] = cls
    cls.named_by = word
    if word not in _words():
        os.environ[VARIABLE] = ",".join([*_words(), word])
    return cls.name


def _require_free(word: str, cls: type[PlanningEnv]) -> None:
    """UsageError if another word has brought in another class of this name: the name would mean now one, now the other.

    The same word may bring in its class again, as after a reload; a person's word goes before a package's offer.
    """
    other = _entered.get(cls.name)
    if other is not None and other is not cls and other.named_by not in ("", word):
        raise UsageError(
            f"{word}: the name {cls.name!r} is that of {other.named_by}, which you have named too; "
            "give one of them another name, or name one of them only"
        )


def nearest_place(word: str) -> str:
    """A question to end an error with, where a word is nearly module:Class: `slide.py:Slide` or `slide.Slide`."""
    place = re.sub(r"(\.py)?[:.](?=\w*$)", ":", word).replace("/", ".")
    return f"; did you mean {place}?" if _PLACE.fullmatch(place) else ""


def _enter_named() -> None:
    """Enter the classes that the user has named to this process, or to the one that started it."""
    known = {cls.named_by for cls in _entered.values()}
    for word in _words():
        if word not in known:
            enter(word)


def _words() -> list[str]:
    return [word.strip() for word in os.environ.get(VARIABLE, "").split(",") if word.strip()]


def _offered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _is_environment(found: object) -> bool:
    """Whether it is a gymnasium environment or a class of such."""
    return isinstance(found, gymnasium.Env) or (isinstance(found, type) and issubclass(found, gymnasium.Env))


def _checked(word: str, found: object) -> type[PlanningEnv]:
    """The class, if it is an environment and says what an environment must say of itself."""
    if not isinstance(found, type) or not issubclass(found, PlanningEnv):
        if _is_environment(found):
            module, _, made = word.partition(":")
            raise UsageError(
                f"{word}: a plain gymnasium environment; write MyEnv = saltwm.envs.adapt({made}, name='my-env') "
                f"into its module, and name {module}:MyEnv"
            )
        kind = found.__name__ if isinstance(found, type) else type(found).__name__
        raise UsageError(f"{word}: expected a class that extends saltwm.envs.PlanningEnv, found {kind}")
    lacking = [field for field in ("name", "state_dim", "action_dim", "max_episode_steps") if not hasattr(found, field)]
    lacking += sorted(getattr(found, "__abstractmethods__", ()))
    if lacking:
        raise UsageError(f"{word}: lacks {', '.join(lacking)}; docs/environments.md shows a complete class")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", found.name):
        raise UsageError(f"{word}: name {found.name!r}: expected lower-case words joined by hyphens, such as dot-maze")
    if not getattr(found, "state_fields", None):
        raise UsageError(f"{word}: lacks state_fields; docs/environments.md shows a complete class")
    return found
