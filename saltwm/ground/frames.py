"""Frames of any size as square frames of one size: what simulators and cameras give, as models take it."""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from saltwm.ground import budget
from saltwm.ground.checks import one_of
from saltwm.ground.errors import ShapeError

Fit = Literal["pad", "crop", "stretch"]
"""How an oblong frame becomes square: black bars, the middle alone, or squeezed."""


def square(where: str, frame: Any, size: int, fit: Fit = "pad") -> NDArray[np.uint8]:
    """A frame [H, W, 3] as a new one [size, size, 3], averaged; ShapeError that begins with `where` for others."""
    one_of("fit", fit, get_args(Fit))
    frame = np.asarray(frame)
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8 or 0 in frame.shape:
        hint = "; channels come last" if frame.ndim == 3 and frame.shape[0] == 3 else ""
        raise ShapeError(f"{where}: frame: expected uint8 [H, W, 3], found {frame.dtype} {list(frame.shape)}{hint}")
    height, width = frame.shape[:2]
    if fit == "crop":
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        frame = frame[top : top + side, left : left + side]
    elif fit == "pad" and height != width:
        side = max(height, width)
        budget.require(where, f"a frame of {width} x {height} pixels made square", 3 * side**2)
        padded = np.zeros((side, side, 3), np.uint8)
        top, left = (side - height) // 2, (side - width) // 2
        padded[top : top + height, left : left + width] = frame
        frame = padded
    if frame.shape[:2] == (size, size):
        return frame.copy()  # whoever gave it may draw the next one into it
    # BOX averages the pixels that become one; enlarging repeats them.
    return np.asarray(Image.fromarray(frame).resize((size, size), Image.Resampling.BOX))
