"""What is shipped: checkpoints/ENV-MODEL beside checkpoints/ENV-data, in the repository or wherever one says."""

import difflib
from dataclasses import dataclass
from pathlib import Path

from saltwm.disk.checkpoint import read_info
from saltwm.disk.shipped import shelf_folder, spoken
from saltwm.envs import ENVIRONMENTS, introduce
from saltwm.ground.checks import one_of
from saltwm.ground.config import RenderQuality
from saltwm.ground.errors import UsageError
from saltwm.jobs.collect import Collect
from saltwm.jobs.job import Job, spell
from saltwm.jobs.recipes import recipe
from saltwm.jobs.shipment import SHIPMENT_FILE
from saltwm.model.traits import TRANSITIONS

HERE = shelf_folder()
"""Beside the package in a checkout, inside it where it is installed."""
MODELS = (*TRANSITIONS, *(f"{name}-memory" for name, traits in TRANSITIONS.items() if traits.has_matrix))
"""As `model_name` calls them. A shelf may hold others, under whatever names they were shipped."""
IN_RECIPES = tuple(name for name, traits in TRANSITIONS.items() if not traits.is_frozen)
"""Models that `saltwm reproduce` trains."""
HELD_OUT_SEED = 1000
"""Seed of the episodes that no model is trained on; training data have seeds from 0 on."""
HELD_OUT_FRAME_EVERY = 5
"""Tasks need no frames but those at the frameskip."""


@dataclass(frozen=True)
class Item:
    """One shipped model and the held-out dataset of its environment."""

    environment: str
    model: str
    checkpoint: Path
    data: Path


def shelf(directory: Path) -> list[Item]:
    """Every shipped model that has held-out data beside it, by environment."""
    items = [
        _item(directory, environment, model)
        for environment in ENVIRONMENTS
        for model in _models(directory, environment)
    ]
    return [item for item in items if _is_there(item)]


def _models(directory: Path, environment: str) -> list[str]:
    """The usual models, then those of other names in folders; a cube-double's is none of cube's."""
    others = {path.name.removeprefix(f"{environment}-") for path in directory.glob(f"{environment}-*")}
    longer = [name.removeprefix(f"{environment}-") for name in ENVIRONMENTS if name.startswith(f"{environment}-")]
    mine = {name for name in others if not any(name.startswith(f"{other}-") for other in longer)}
    return [*MODELS, *sorted(mine.difference(MODELS))]


def of_recipes(directory: Path) -> list[Item]:
    """Those that every environment's recipe makes; others, as a model with memory, are beside them."""
    return [item for item in shelf(directory) if item.model in IN_RECIPES]


def take(directory: Path, environment: str, model: str) -> Item:
    """The shipped model; UsageError that says what there is instead, and how to make what is missing."""
    environment = introduce(environment)
    one_of("environment", environment, ENVIRONMENTS)
    shipped = shelf(directory)
    item = _item(directory, environment, model)
    here = [other.model for other in shipped if other.environment == environment]
    if here and model not in (*here, *IN_RECIPES):
        near = difflib.get_close_matches(model, here, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"no {model} model of {environment} is shipped{hint} ({environment} has: {', '.join(here)})")
    one_of("model", model, dict.fromkeys((*IN_RECIPES, *(item.model for item in shipped))))
    if not _is_there(item):
        names = ", ".join(f"{other.environment} {other.model}" for other in shipped) or "nothing"
        steps = f"; make what is missing with: {' && '.join(_missing_steps(item, directory))}"
        raise UsageError(
            f"no {model} model and held-out data for {environment} under {spoken(directory)} (there is: {names})"
            f"{steps if model in IN_RECIPES else ''}"  # no recipe makes the others
        )
    return item


def _missing_steps(item: Item, directory: Path) -> list[str]:
    """The commands that put what is not there of an item onto the shelf, or onto one of the user's own."""
    from saltwm.jobs.reproduce import Reproduce
    from saltwm.jobs.shipping import SHIPPED, Demo, Ship

    steps: list[Job] = []
    then: list[Job] = []
    if directory == HERE and not HERE.is_relative_to(Path.cwd()):  # nothing of a user's goes into the package
        item = _item(SHIPPED, item.environment, item.model)
        then.append(Demo(item.environment, item.model, checkpoints=SHIPPED))
    if not (item.checkpoint / SHIPMENT_FILE).exists():
        home = Path("work") / item.environment
        run = home / "runs" / f"{item.environment}-{item.model}"  # where reproduce leaves it
        steps += [Reproduce(item.environment, home), Ship(run, item.checkpoint)]
    if not item.data.is_dir():
        steps.append(held_out_data(item.environment, *_pictures(item), item.data))
    return [spell(job) for job in [*steps, *then]]


def _pictures(item: Item) -> tuple[int, RenderQuality]:
    """Size and quality of the pictures that the model was, or by its recipe will be, trained on."""
    if (item.checkpoint / SHIPMENT_FILE).exists():
        world = read_info(item.checkpoint).world
        return world.image_size, world.render
    usual = recipe("cpu", item.environment).collect
    return usual.image_size, usual.render


def held_out_data(environment: str, image_size: int, render: RenderQuality, out: Path) -> Collect:
    """What collects the held-out data that belong beside the shipped models of a world."""
    return Collect(
        environment,
        out,
        seed=HELD_OUT_SEED,
        image_size=image_size,
        render=render,
        frame_every=HELD_OUT_FRAME_EVERY,
        held_out=True,
    )


def _item(directory: Path, environment: str, model: str) -> Item:
    return Item(environment, model, directory / f"{environment}-{model}", directory / f"{environment}-data")


def _is_there(item: Item) -> bool:
    return (item.checkpoint / SHIPMENT_FILE).exists() and item.data.is_dir()
