"""What makes two records the same thing: their values, without those that decide nothing."""

import dataclasses
from typing import Annotated, Any, TypeVar

from saltwm.ground.strict_json import is_left_out, to_plain

T = TypeVar("T")

_ASIDE, _MEMO = "aside", "memo"
Aside = Annotated[T, _ASIDE]
"""Type of a field that decides nothing and is not written down: an output folder, a number of processes."""
Memo = Annotated[T, _MEMO]
"""Type of a field that is written down and decides nothing: where an input lay, which is known by its hash."""


def filed(value: Any) -> Any:
    """The plain data of a record that its file holds."""
    return _without(value, {_ASIDE})


def identity(value: Any) -> Any:
    """The plain data of a record that make it what it is."""
    return _without(value, {_ASIDE, _MEMO})


def _without(value: Any, marks: set[str]) -> Any:
    """The plain data of a record without the fields that bear one of the marks, at any depth."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return to_plain(value)
    fields = [f for f in dataclasses.fields(value) if marks.isdisjoint(_marks(f)) and not is_left_out(f, value)]
    return {f.name: _without(getattr(value, f.name), marks) for f in fields}


def _marks(field: "dataclasses.Field[Any]") -> list[str]:
    return [mark for mark in getattr(field.type, "__metadata__", ()) if isinstance(mark, str)]
