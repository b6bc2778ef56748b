"""Power cuts: a process ends just before one of its durable steps."""

import contextlib
import itertools

import pytest

from saltwm.disk import durable


class PowerCut(BaseException):
    """Nothing may catch it."""


@contextlib.contextmanager
def power_cut(at, *, tidied=False):
    """Inside, the power fails before a durable step: the one of the number `at`, from 0 on, or of that name.

    Yields a list that holds the step afterwards, and nothing where the end came first. A process that is gone tidies
    nothing, unless it is `tidied`.
    """
    numbers, cut = itertools.count(), []

    def before_step(step, path):
        if at in (next(numbers), step):
            cut.append(step)
            raise PowerCut(step)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(PowerCut):
        patch.setattr(durable, "_before_step", before_step)
        if not tidied:
            patch.setattr(durable, "_remove", lambda path: None)
        yield cut
