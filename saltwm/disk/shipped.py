"""Where the models that come with saltwm are: checkpoints/ in a checkout, saltwm/shipped/ in an installed package."""

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


def spoken(path: Path) -> Path:
    """How a person here names the path: as seen from here if it lies below, by its name if that leads to it."""
    if path.is_relative_to(Path.cwd()):
        return path.relative_to(Path.cwd())
    return Path(path.name) if named(path.name) == path else path


def names(ending: str = "") -> list[str]:
    """Names of what is shipped, those that end so."""
    folder = shelf_folder()
    return sorted(entry.name for entry in folder.glob(f"*{ending}") if entry.is_dir()) if folder.is_dir() else []
