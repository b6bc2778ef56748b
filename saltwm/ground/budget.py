"""How much an input may ask for: one budget, checked before anything is allocated.

A file of a few bytes can declare arrays of terabytes. What datasets, HDF5 files, archives and task sets declare is
compared with the budget first. Set SALTWM_BUDGET_GB to allow more where the data are really that large.
"""

import math
import os

from saltwm.ground.errors import DamagedError, UsageError

VARIABLE = "SALTWM_BUDGET_GB"
DEFAULT_GB = 2.0
"""The tables of two million steps take a tenth of this."""
FRAMES_AT_ONCE = 64
"""Frames that reading, planning and drawing hold at a time, about."""
MOST_PARTS = 1_000_000
"""Parts that a dataset may have."""
SMALL_ARCHIVE = 256 * 2**20
UNPACKING_RATIO = 200
"""Plain pictures shrink a hundredfold; a bomb shrinks a thousandfold and more."""


def budget_bytes() -> int:
    """Bytes of memory that one input may take; UsageError for a variable that is not a positive number."""
    text = os.environ.get(VARIABLE, str(DEFAULT_GB))
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = math.nan
    if not 0 < gigabytes < math.inf:
        raise UsageError(f"{VARIABLE}={text!r:.40}: expected a number of gigabytes above 0, such as 8")
    return int(gigabytes * 2**30)


def require(where: object, what: str, size: int) -> None:
    """DamagedError if `what` takes more bytes than the budget has."""
    allowed = budget_bytes()
    if size > allowed:
        raise DamagedError(
            f"{where}: {what} would take {_gigabytes(size)}, more than the {_gigabytes(allowed)} that an input may; "
            f"if it is really that large, set {VARIABLE}"
        )


def require_frames(where: object, image_size: int) -> None:
    """DamagedError if the frames of this size that are held at a time exceed the budget, or if the size is below 1."""
    if image_size < 1:
        raise DamagedError(f"{where}: image_size: expected at least 1, found {image_size}")
    require(where, f"{FRAMES_AT_ONCE} frames of {image_size} pixels", FRAMES_AT_ONCE * 3 * image_size**2)


def unpacked_bytes(packed: int) -> int:
    """Bytes that an archive of `packed` bytes may unpack to."""
    if VARIABLE in os.environ:
        return budget_bytes()
    return max(SMALL_ARCHIVE, UNPACKING_RATIO * packed)


def _gigabytes(size: int) -> str:
    return f"{size / 2**30:.3g} GB"
