"""What the numbers of a dataset's states and actions are called."""

from saltwm.disk.dataset import Dataset
from saltwm.envs import env_class
from saltwm.envs.base import StateField, read_fields
from saltwm.ground.errors import DamagedError, UsageError


def fields_of(dataset: Dataset) -> tuple[StateField, ...]:
    """As the dataset says, else as its environment does, else one field for all of them."""
    written = getattr(dataset.recipe.source, "state_fields", None)
    if written is None:
        try:
            return env_class(dataset.world.environment).state_fields
        except UsageError:  # recorded elsewhere, or its simulator is not here
            return (StateField("state", 0, dataset.state_dim),)
    fields = read_fields(written)
    if fields[-1].stop != dataset.state_dim:
        raise DamagedError(f"{dataset.path}: state fields {written!r}: expected {dataset.state_dim} numbers")
    return fields


def action_names_of(dataset: Dataset) -> tuple[str, ...]:
    """As the recording says; none where it does not."""
    written = getattr(dataset.recipe.source, "action_names", None)
    return tuple(written.split(", ")) if written else ()
