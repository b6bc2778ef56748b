"""What is shipped: checkpoints/ENV-MODEL beside checkpoints/ENV-data, in the repository or wherever one says."""

from dataclasses import dataclass
from pathlib import Path

from saltwm.config import one_of
from saltwm.envs import ENVIRONMENTS
from saltwm.errors import UsageError
from saltwm.shipping.ship import SHIPMENT_FILE

HERE = Path(__file__).resolve().parents[2] / "checkpoints"
"""Beside the package, as in a checkout with an editable install."""
MODELS = ("salt", "lewm")


@dataclass(frozen=True)
class Item:
    """One shipped model and the held-out dataset of its environment."""

    environment: str
    model: str
    checkpoint: Path
    data: Path


def shelf(directory: Path) -> list[Item]:
    """Every shipped model that has held-out data beside it, by environment."""
    items = [_item(directory, environment, model) for environment in ENVIRONMENTS for model in MODELS]
    return [item for item in items if _is_there(item)]


def take(directory: Path, environment: str, model: str) -> Item:
    """The shipped model; UsageError that says what there is instead, and how to make what is missing."""
    one_of("environment", environment, ENVIRONMENTS)
    one_of("model", model, MODELS)
    item = _item(directory, environment, model)
    if not _is_there(item):
        names = ", ".join(f"{other.environment} {other.model}" for other in shelf(directory)) or "nothing"
        raise UsageError(
            f"no {model} model and held-out data for {environment} under {directory} (there is: {names}); "
            f"make one with: saltwm reproduce {environment} --preset cpu --out work/{environment}, then saltwm ship"
        )
    return item


def _item(directory: Path, environment: str, model: str) -> Item:
    return Item(environment, model, directory / f"{environment}-{model}", directory / f"{environment}-data")


def _is_there(item: Item) -> bool:
    return (item.checkpoint / SHIPMENT_FILE).exists() and item.data.is_dir()
