"""A transition of one's own: one class in one file, named on the command line as module:Class.

    class Mine(Transition):
        def _predict(self, latents, conditions) -> Tensor: ...
        def _rollout(self, history, conditions) -> Tensor: ...

It is made by the sizes of a latent and of an action condition. A module is imported because a person named it, in a
command, in SALTWM_MODELS or by `name_model`. A file that names one is refused: no file runs code.
"""

import contextlib
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from saltwm.ground import own_code
from saltwm.ground.config import ModelConfig
from saltwm.ground.errors import SaltError, UsageError
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
        build=lambda config: _built(place, cls, config.latent_dim),
        window=lambda config: cls.window,
        frames=lambda config: cls.window,
        has_matrix=cls.has_matrix,
    )


def _built(place: str, cls: "type[Transition]", latent_dim: int) -> "Transition":
    try:
        made = cls(latent_dim, latent_dim)
    except Exception as error:
        raise own_code.failed("model", place, cls, error) from error
    made.named_as = place
    return made


@contextlib.contextmanager
def errors_in_one_line(transition: "Transition") -> Iterator[None]:
    """What a user's own transition raises as one line that names the line of their file; of any other as it is."""
    try:
        yield
    except SaltError:
        raise
    except Exception as error:
        if transition.named_as is None:
            raise
        raise own_code.failed("model", transition.named_as, transition, error) from error


def rehearse(config: ModelConfig) -> None:
    """Try a user's own transition on random latents: what it gets wrong is found before a run is begun."""
    import torch

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        transition, dim = traits(config.model).build(config), config.latent_dim
        for looking_back in range(1, transition.window + 1):
            history, conditions = torch.randn(2, looking_back, dim), torch.randn(2, looking_back + 1, dim)
            transition.rollout(history, conditions)
            transition.predict(history, conditions[:, 1:])


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
