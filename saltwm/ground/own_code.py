"""Functions and classes of a user's own, imported because a person named them: module:name. No file runs code."""

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from saltwm.ground.errors import UsageError


def is_place(word: str) -> bool:
    """Whether a word names something of a user's: module:name."""
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", word, re.ASCII) is not None


def imported(what: str, place: str) -> Callable[..., Any]:
    """The function or class at `module:name`, found from the working directory too; `what` it is to be, for errors."""
    module, _, name = place.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), name, None)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{what} {place}: {error}; expected module:name, importable from {here}") from error
    finally:
        sys.path.remove(here)
    if not callable(found):
        raise UsageError(f"{what} {place}: module {module} has no function or class {name!r}")
    return found
