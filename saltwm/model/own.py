"""A transition of one's own: one class in one file, named on the command line as module:Class.

    class Mine(Transition):
        def _predict(self, latents, conditions) -> Tensor: ...
        def _rollout(self, history, conditions) -> Tensor: ...

It is made by the sizes of a latent and of an action condition. A module is imported because a person named it, in a
command, in SALTWM_MODELS or by `name_model`. A file that names one is refused: no file runs code.
"""

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING

from saltwm.ground import own_code
from saltwm.ground.errors import UsageError
from saltwm.model.traits import TRANSITIONS, Traits, model_key

if TYPE_CHECKING:
    from saltwm.model.transition import Transition

VARIABLE = "SALTWM_MODELS"
"""Classes that a person has named, as module:Class, separated by commas; processes that are started inherit it."""


def name_model(place: str) -> str:
    """Make the class `module:Class` that a person asks for known; UsageError unless it is a transition."""
    if not own_code.is_place(place):
        raise UsageError(f"model {place!r}: expected module:Class, such as my_module:MyModel")
    _imported(place)
    if place not in named():
        os.environ[VARIABLE] = ",".join([*named(), place])
    return place


def named() -> list[str]:
    """The classes that a person has named, here or where this process was started."""
    return [word.strip() for word in os.environ.get(VARIABLE, "").split(",") if word.strip()]


def require_named(place: str, where: Path | None = None) -> None:
    """UsageError for a model of one's own that was read from a file, at `where`, and that nobody named."""
    if place not in named():
        at = "" if where is None else f"{where}: "
        message = f"{at}model {place}: a file does not run code; name it yourself, as in {VARIABLE}={place}"
        raise UsageError(message, remedy="name your model", path=Path(place))


def traits(place: str) -> Traits:
    """What a row of the table would say of a class that a person named."""
    require_named(place)
    cls = _imported(place)
    return Traits(
        title=cls.__name__,
        what="A latent world model with a transition of a user's own",
        objective="rollout",
        build=lambda config: cls(config.latent_dim, config.latent_dim),
        window=lambda config: cls.window,
        frames=lambda config: cls.window,
        has_matrix=cls.has_matrix,
    )


def source(place: str) -> Path:
    """The file that holds a class that a person named."""
    require_named(place)
    return Path(inspect.getfile(_imported(place)))


def _imported(place: str) -> "type[Transition]":
    from saltwm.model.transition import Transition

    cls = own_code.imported("model", place)
    if not isinstance(cls, type) or not issubclass(cls, Transition):
        raise UsageError(f"model {place}: expected a class that is a saltwm.model.transition.Transition, found {cls}")
    if inspect.isabstract(cls):
        raise UsageError(f"model {place}: lacks {', '.join(sorted(cls.__abstractmethods__))}")
    try:
        inspect.signature(cls).bind(1, 1)
    except TypeError as error:
        message = f"model {place}: expected a class that is made by the sizes dim and condition_dim: {error}"
        raise UsageError(message) from error
    if model_key(place) in (*TRANSITIONS, "random"):
        raise UsageError(f"model {place}: the name {model_key(place)!r} is taken in saltwm; choose another")
    return cls
