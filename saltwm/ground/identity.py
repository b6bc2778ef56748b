"""What makes two records the same thing: their values, without those that are written down only as a memory aid."""

import dataclasses
from typing import Annotated, Any, TypeVar

from saltwm.ground.strict_json import to_plain

T = TypeVar("T")

_ASIDE = "aside"
Aside = Annotated[T, _ASIDE]
"""Type of a field that decides nothing: where something lies, how many processes work on it, how it is printed."""


def is_aside(field: "dataclasses.Field[Any]") -> bool:
    """Whether the field is no part of what its record is."""
    return _ASIDE in getattr(field.type, "__metadata__", ())


def identity(value: Any) -> Any:
    """The plain data of a record without what is aside, at any depth."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: identity(getattr(value, f.name)) for f in dataclasses.fields(value) if not is_aside(f)}
    return to_plain(value)


def differences(expected: Any, found: Any, place: str = "") -> list[str]:
    """'source.seed: expected 6, found 5' for each field in which two identities differ, at any depth."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = dict.fromkeys([*expected, *found])
        return [line for key in keys for line in differences(expected.get(key), found.get(key), f"{place}.{key}")]
    return [] if expected == found else [f"{place[1:]}: expected {_short(expected)}, found {_short(found)}"]


def _short(value: Any) -> str:
    """A value as it is written, a SHA-256 by its first twelve digits."""
    return value[:12] if isinstance(value, str) and len(value) == 64 else repr(value)
