"""A misspelt word for an option with a closed list of words: one line that names the nearest, as for other names."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from saltwm.ground.checks import one_of
from saltwm.jobs.job import flag


def require_known_choices(job: Any, words: Sequence[str]) -> None:
    """UsageError for the first word after an option that is none of the option's own."""
    if not dataclasses.is_dataclass(job):
        return
    options = {flag(name): _choices(kind) for name, kind in get_type_hints(job).items()}
    known = {option: choices for option, choices in options.items() if choices is not None}
    for place, word in enumerate(words):
        option = "--" + word[2:].replace("_", "-")
        if option in known:
            choices, several = known[option]
            given = list(itertools.takewhile(lambda one: not one.startswith("--"), words[place + 1 :]))
            for one in given if several else given[:1]:
                one_of(option[2:].removesuffix("s" if several else ""), one, choices)


def _choices(kind: Any) -> tuple[list[str], bool] | None:
    """The words that an option of this type takes, and whether it takes more than one; None where any word will do."""
    if get_origin(kind) is Literal:
        return list(get_args(kind)), False
    found = [_choices(part) for part in get_args(kind) if part not in (type(None), ...)]
    if len(found) != 1 or found[0] is None:
        return None
    return found[0][0], found[0][1] or get_origin(kind) is tuple
