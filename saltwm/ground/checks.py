"""Checks of arguments: shapes against a written pattern, names against a closed list, numbers against their least.

Shapes are never broadcast. NumPy arrays and torch tensors are checked alike, so that every room can use this without
importing either.
"""

import difflib
from collections.abc import Iterable
from typing import Any

from saltwm.ground.errors import ShapeError, UsageError


def check(name: str, array: Any, pattern: str, *, dtype: str | None = None, **sizes: int) -> dict[str, int]:
    """Sizes by letter: check("z", z, "B W D", D=192) -> {"B": 8, "W": 1, "D": 192}; ShapeError if it does not fit.

    A letter bound in `sizes`, or met before in the pattern, must have that size; a number stands for itself.
    `dtype` is the start of the dtype's short name: "float" admits float32 and float64, "uint8" only itself.
    """
    found = getattr(array, "shape", None)
    if found is None:
        raise ShapeError(f"{name}: expected an array of shape [{pattern}], found {type(array).__name__}")
    letters = pattern.split()
    bound = dict(sizes)
    fits = len(letters) == len(found)
    for letter, size in zip(letters, found, strict=False):
        expected = int(letter) if letter.isdigit() else bound.setdefault(letter, int(size))
        fits = fits and expected == size
    if not fits:
        raise ShapeError(f"{name}: expected shape [{_spell(letters, sizes)}], found {list(found)}")
    if dtype is not None and not _short_dtype(array).startswith(dtype):
        raise ShapeError(f"{name}: expected {dtype} values, found {_short_dtype(array)}")
    return bound


def check_tensor(name: str, array: Any, pattern: str, *, dtype: str | None = None, **sizes: int) -> dict[str, int]:
    """`check` where only a torch tensor will do: ShapeError for an array of NumPy too."""
    bound = check(name, array, pattern, dtype=dtype, **sizes)
    if not str(array.dtype).startswith("torch."):
        found = type(array).__name__
        raise ShapeError(f"{name}: expected a torch tensor, found {found}; make it one with torch.as_tensor")
    return bound


def _short_dtype(array: Any) -> str:
    """'float32' for both numpy.float32 and torch.float32."""
    return str(array.dtype).removeprefix("torch.")


def _spell(letters: list[str], sizes: dict[str, int]) -> str:
    return ", ".join(f"{letter}={sizes[letter]}" if letter in sizes else letter for letter in letters)


def one_of(what: str, name: str, known: Iterable[str], remedy: str | None = None, beside: str = "") -> None:
    """UsageError with the nearest known name unless `name` is one of them; `beside` says what else could be given."""
    names = sorted(known)
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    all_of_it = ", ".join([*names, f"or {beside}"] if beside else names)
    raise UsageError(f"unknown {what} {name!r}{hint} (known: {all_of_it})", remedy=remedy)


def at_least(what: str, value: float | None, least: int = 1) -> None:
    """UsageError for a number below the least that makes sense; None passes."""
    if value is not None and not value >= least:  # NaN is not
        raise UsageError(f"{what} must be at least {least}, found {value}")
