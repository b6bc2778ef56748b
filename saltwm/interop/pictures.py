"""Still pictures of recordings: PNG and JPEG, whose declared size is looked at before they are decoded."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from saltwm.disk import durable
from saltwm.ground import budget
from saltwm.ground.errors import DamagedError

KINDS = ("PNG", "JPEG")
"""No others: some of Pillow's decoders start programs."""
EIGHT_BIT_MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
"""No others: depth and infrared of 16 bits would become white, because Pillow clips them at 255."""


def read_picture(where: str, source: Any) -> NDArray[np.uint8]:
    """A file or its bytes as RGB [H, W, 3]; DamagedError that begins with `where` if it is no such picture."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the budget decides
            opened = durable.open_input(source) if isinstance(source, Path) else io.BytesIO(source)
            with opened, Image.open(opened, formats=KINDS) as picture:
                width, height = picture.size
                budget.require(where, f"a picture of {width} x {height} pixels", 3 * width * height)
                if picture.mode not in EIGHT_BIT_MODES:
                    found = f"expected a picture of 8 bits, found Pillow's mode {picture.mode}, such as of depth"
                    raise DamagedError(f"{where}: {found}; scale it to 0 ... 255 first")
                return np.asarray(picture.convert("RGB"))
    except (OSError, TypeError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DamagedError(f"{where}: cannot be decoded as a picture ({error})") from error
