"""Strict JSON: text to values, and values to the dataclasses of the code.

A file supplies values, never structure: duplicate keys, unknown keys, missing keys, wrong types and non-finite numbers
are refused with the place in the file.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin

from saltwm.ground.errors import DamagedError

T = TypeVar("T")

LATER = {"later": True}
"""Marks a field added after files of this format existed: a file may omit it, and its default applies."""
IF_SET = {"later": True, "if_set": True}
"""Marks a field that a file has only where it is not None."""


# --- text ------------------------------------------------------------------------------------------------------------


def parse(text: str) -> Any:
    """The value of a JSON text; ValueError for duplicate keys, NaN, infinities, RecursionError for absurd depth."""
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite_float, object_pairs_hook=_unique_keys)


def _finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits:.40} is too large for a number")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


# --- dataclasses -----------------------------------------------------------------------------------------------------


def to_plain(value: Any) -> Any:
    """Dataclasses, tuples and paths as plain JSON data."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        there = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if not is_left_out(f, value)}
        return {name: to_plain(entry) for name, entry in there.items()}
    if isinstance(value, dict):
        return {key: to_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value


def is_left_out(field: "dataclasses.Field[Any]", value: Any) -> bool:
    """Whether the record's file does not have the field."""
    return "if_set" in field.metadata and getattr(value, field.name) is None


def from_plain(kind: type[T], value: Any, where: str) -> T:
    """The dataclass that `to_plain` wrote; DamagedError naming `where`, the field and what was found."""
    from pydantic import ValidationError

    try:
        result: T = _validator(cast(Any, kind)).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = _telling_error(error.errors())
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            raise DamagedError(f"{where}: {place} is missing") from error
        raise DamagedError(f"{where}: {place or 'the whole'}: {first['msg']}, found {first['input']!r:.80}") from error
    for place in _left_out(result, value):
        raise DamagedError(f"{where}: {place} is missing")
    return result


@functools.cache
def _validator(kind: Any) -> Any:
    """Building one takes far longer than using it."""
    from pydantic import ConfigDict, TypeAdapter

    for cls in _dataclasses_of(kind):
        cls.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)
    return TypeAdapter(kind)


def _telling_error(errors: Any) -> Any:
    """The first error that is not of a union's other members: those only say that `kind` is not theirs."""
    others = [error["loc"][:-1] for error in errors if error["loc"][-1:] == ("kind",)]
    return next((error for error in errors if not any(error["loc"][: len(o)] == o for o in others)), errors[0])


def _dataclasses_of(kind: Any) -> list[Any]:
    """`kind` and the dataclasses among its fields and union members, to any depth."""
    if get_origin(kind) is Annotated:
        kind = kind.__origin__
    if isinstance(kind, UnionType):
        return [inner for member in get_args(kind) for inner in _dataclasses_of(member)]
    if not dataclasses.is_dataclass(kind):
        return []
    return [kind, *(inner for f in dataclasses.fields(kind) for inner in _dataclasses_of(f.type))]


def _left_out(result: Any, value: Any) -> Iterator[str]:
    """Fields that the file omits. Defaults serve the command line; files spell out every field not marked LATER."""
    for f in dataclasses.fields(result):
        found = getattr(result, f.name)
        if f.name not in value:
            yield from () if "later" in f.metadata else (f.name,)
        elif dataclasses.is_dataclass(found):
            yield from (f"{f.name}.{place}" for place in _left_out(found, value[f.name]))


def differing_fields(expected: Any, found: Any) -> list[str]:
    """'image_size: expected 64, found 224' for each field in which two dataclasses of one kind differ, at any depth."""
    return differences(to_plain(expected), to_plain(found))


def differences(expected: Any, found: Any, place: str = "") -> list[str]:
    """'source.seed: expected 6, found 5' for each place in which two plain values differ."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = dict.fromkeys([*expected, *found])
        return [line for key in keys for line in differences(expected.get(key), found.get(key), f"{place}.{key}")]
    return [] if expected == found else [f"{place[1:]}: expected {_short(expected)}, found {_short(found)}"]


def _short(value: Any) -> str:
    """A value as it is written, a SHA-256 by its first twelve digits."""
    return value[:12] if isinstance(value, str) and len(value) == 64 else repr(value)
