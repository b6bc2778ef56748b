"""Functions and classes of a user's own, imported because a person named them: module:name. No file runs code."""

import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from saltwm.ground.errors import SaltError, UsageError, out_of_memory


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
    except Exception as error:  # whatever a file does when it is imported
        raise UsageError(f"{what} {place}: importing {module} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(here)
    if here not in sys.path:
        sys.path.append(here)  # for what it imports while it runs; last, so that nothing installed is hidden
    if not callable(found):
        raise UsageError(f"{what} {place}: module {module} has no function or class {name!r}")
    return found


def failed(what: str, place: str, code: Callable[..., Any], error: Exception) -> SaltError:
    """One line on an error of a user's own code; it names the last line of their file that the error came through."""
    if isinstance(error, MemoryError | RuntimeError) and (lack := out_of_memory(error)):
        return lack  # the machine's, not the code's
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file_of(code)]
    at = f" ({Path(file_of(code)).name}, line {lines[-1]})" if lines else ""
    return UsageError(f"{what} {place}{at}: {type(error).__name__}: {error}")


def file_of(code: Callable[..., Any]) -> str:
    """Where a function, a class or a class's object was written; nothing for one that was not written in Python."""
    written = inspect.unwrap(code)
    try:
        return inspect.getfile(written if inspect.isroutine(written) or isinstance(written, type) else type(written))
    except (TypeError, OSError):
        return ""
