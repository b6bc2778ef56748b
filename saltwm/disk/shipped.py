"""Where the models that come with saltwm are: checkpoints/ in a checkout, saltwm/shipped/ in an installed package."""

import difflib
import re
from importlib.resources import files
from pathlib import Path


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


def did_you_mean(path: Path) -> str:
    """A question to end an error with, where a name that leads nowhere is nearly that of something shipped."""
    near = (
        [] if path.exists() or len(path.parts) > 1 else difflib.get_close_matches(path.name, names(), n=1, cutoff=0.8)
    )
    return f"; did you mean {near[0]}, which is shipped?" if near else ""


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
