"""An objective of one's own: one function or class in one file, named on the command line as module:name.

    def terms(seen) -> dict[str, Tensor]        scalars by name, added to the prediction loss
    class Terms(nn.Module):                     the same with something to learn
        def __init__(self, sizes): ...
        def forward(self, seen) -> dict[str, Tensor]: ...

`seen` and `sizes` are those of losses/table.py. Attributes `frames` and `windows` say how many of them a window and a
batch need at least. A module is imported because a person named it; no file runs code.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from saltwm.ground.checks import one_of
from saltwm.ground.errors import UsageError
from saltwm.ground.own_code import imported
from saltwm.losses.table import Seen, Sizes

if TYPE_CHECKING:
    from torch import Tensor


def built(place: str, sizes: Sizes) -> Callable[[Seen], "dict[str, Tensor]"]:
    """The function as it is, or the class made for these sizes."""
    found = imported("objective", place)
    made: Callable[[Seen], dict[str, Tensor]] = found(sizes) if isinstance(found, type) else found
    return made


def terms(
    place: str, function: Callable[[Seen], "dict[str, Tensor]"], weights: dict[str, float], seen: Seen
) -> "dict[str, Tensor]":
    """What it adds; UsageError unless it returns scalars by name, and one for each of the weights."""
    from torch import Tensor

    found = function(seen)
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) and t.ndim == 0 for t in found.values()):
        raise UsageError(f"objective {place}: expected a dict of scalar tensors by name, found {found!r:.80}")
    for name in weights:
        one_of(f"term of objective {place!r}", name, found)
    return found
