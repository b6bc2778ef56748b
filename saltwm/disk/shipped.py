"""Where the models that come with saltwm are: checkpoints/ in a checkout, saltwm/shipped/ in an installed package."""

import difflib
import re
from importlib.resources import files
from pathlib import Path

from saltwm.ground.errors import UsageError

MODELS_OF_A_CHECKOUT = (
    *(
        f"{environment}-{model}"
        for environment in ("two-room", "push-t", "reacher", "cube")
        for model in ("salt", "lewm")
    ),
    "push-t-salt-two-stage",
    "reacher-salt-memory",
)
"""Models in checkpoints/ of the repository; setup.py puts some of them into a wheel."""


def shelf_folder() -> Path:
    """The folder with NAME-salt, NAME-lewm and NAME-data."""
    package = Path(str(files("saltwm")))
    installed = package / "shipped"
    return installed if installed.is_dir() else package.parent / "checkpoints"


def named(path: Path | str) -> Path:
    """The path, or what is shipped under that name if it is a bare name and nothing of the user's lies there."""
    path = Path(path)
    if path.exists() or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", str(path)):
        return path
    shipped = shelf_folder() / path
    return shipped if shipped.is_dir() else path


def require_no_misnomer(path: Path, what: str, ending: str) -> None:
    """UsageError for a name that leads nowhere, where it is nearly that of something shipped, or an environment's.

    `what` is wanted: a training run, whose shipped names end with -salt, or a dataset, whose names end with -data.
    """
    if path.exists() or len(path.parts) > 1:
        return
    if path.name in MODELS_OF_A_CHECKOUT:
        raise UsageError(f"{path}: a checkout of saltwm has this model, and this installation has not")
    of_environment = f"{_environment(path.name)}{ending}"
    if of_environment in names():
        shipped = "shipped data of it are" if ending == "-data" else "a shipped model of it is"
        raise UsageError(f"{path}: an environment, not a {what}; {shipped} {of_environment}")
    near = difflib.get_close_matches(path.name, names(), n=1, cutoff=0.8)
    if near:
        raise UsageError(f"{path}: no such {what}; did you mean {near[0]}, which is shipped?")


def _environment(word: str) -> str | None:
    """The environment of the package that a word stands for."""
    from saltwm.envs import ENVIRONMENTS, spelled

    name = spelled(word)
    return name if name in ENVIRONMENTS else None


def data_beside(name: str) -> str | None:
    """The held-out data that are shipped for the environment of a shipped model, by name."""
    fitting = [data for data in names("-data") if name in names() and name.startswith(data.removesuffix("data"))]
    return max(fitting, key=len, default=None)


def spoken(path: Path) -> Path:
    """How a person here names the path: as seen from here if it lies below, by its name if that leads to it."""
    if path.is_relative_to(Path.cwd()):
        return path.relative_to(Path.cwd())
    return Path(path.name) if named(path.name) == path else path


def names(ending: str = "") -> list[str]:
    """Names of what is shipped that end with `ending`."""
    folder = shelf_folder()
    return sorted(entry.name for entry in folder.glob(f"*{ending}") if entry.is_dir()) if folder.is_dir() else []
