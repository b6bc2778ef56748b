"""An objective of one's own: one function or class in one file, named on the command line as module:name.

    def terms(seen) -> dict[str, Tensor]        scalars by name, added to the prediction loss
    class Terms(nn.Module):                     the same with something to learn
        def __init__(self, sizes): ...
        def forward(self, seen) -> dict[str, Tensor]: ...

`seen` and `sizes` are those of losses/table.py. Attributes `frames` and `windows` say how many of them a window and a
batch need at least. It is tried on random latents before a run is begun. A module is imported because a person named
it; no file runs code.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from saltwm.disk import durable
from saltwm.ground.checks import one_of
from saltwm.ground.config import RunConfig
from saltwm.ground.errors import SaltError, UsageError
from saltwm.ground.own_code import failed, file_of, imported, is_place
from saltwm.losses.table import Seen, Sizes

if TYPE_CHECKING:
    from torch import Tensor


MEASURED = (
    "step",
    "loss",
    "prediction",
    "gradient_norm",
    "learning_rate",
    "latent_std",
    "latent_std_min",
    "effective_rank",
    "validation_one_step",
    "validation_rollout",
    "sigma_max_base",
    "sigma_max_action",
)
"""What metrics.jsonl has of every run: a term of such a name would stand in its place."""


def built(place: str, sizes: Sizes) -> Callable[[Seen], "dict[str, Tensor]"]:
    """The function as it is, or the class made for these sizes."""
    found = imported("objective", place)
    if not isinstance(found, type):
        return found
    try:
        made: Callable[[Seen], dict[str, Tensor]] = found(sizes)
    except Exception as error:
        raise failed("objective", place, found, error) from error
    return made


def code_of(config: RunConfig) -> dict[str, str] | None:
    """SHA-256 of the file behind each module:name that a run learns by, a model's too; None if saltwm has it all.

    What was typed into an interpreter is in no file, and so not among them.
    """
    words = {"model": config.model.model, "objective": config.objective.regulariser or ""}
    files = {place: Path(file_of(imported(what, place))) for what, place in words.items() if is_place(place)}
    return {place: durable.sha256(file) for place, file in files.items() if file.is_file()} or None


def terms(
    place: str, function: Callable[[Seen], "dict[str, Tensor]"], weights: dict[str, float], seen: Seen
) -> "dict[str, Tensor]":
    """What it adds; UsageError unless it returns scalars by names of their own, and one for each of the weights."""
    from torch import Tensor

    try:
        found = function(seen)
    except SaltError:
        raise
    except Exception as error:
        raise failed("objective", place, function, error) from error
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) and t.ndim == 0 for t in found.values()):
        raise UsageError(f"objective {place}: expected a dict of scalar tensors by name, found {found!r:.80}")
    if taken := [name for name in found if name in MEASURED]:
        raise UsageError(f"objective {place}: {taken[0]!r} is measured of every run; give the term another name")
    for name in weights:
        one_of(f"term of objective {place!r}", name, found)
    return found
