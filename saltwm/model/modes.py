"""Evaluation mode for a while: what plans with a model leaves it as it found it."""

import contextlib
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards each module is in its own mode again, a frozen one among learning ones too."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True  # train() would reach the modules inside it
