"""Moving pictures as files: GIF and MP4."""

import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from saltwm.disk import durable
from saltwm.ground.errors import UsageError

Frame = NDArray[np.uint8]
"""[H, W, 3]"""
FRAME_SECONDS = 0.08
REST_SECONDS = 1.2
"""How long a film stays on its last frame."""
PALETTE_FRAMES = 8


def write_film(path: Path, frames: Sequence[Frame], frame_seconds: float = FRAME_SECONDS) -> None:
    """Frames as a gif or mp4, by the path's ending; both rest on the last frame."""
    writers = {".gif": _save_gif, ".mp4": _save_mp4}
    if path.suffix not in writers:
        raise UsageError(f"{path}: moving pictures are written as {' or '.join(writers)}")
    durable.write_file(path, partial(writers[path.suffix], frames, frame_seconds))


def _save_gif(frames: Sequence[Frame], frame_seconds: float, path: Path) -> None:
    # One palette for all frames: what does not move then stays the same, and is stored once. An octree keeps the
    # colour of small things; a median cut, the default, paints a red cube grey.
    chosen = np.linspace(0, len(frames) - 1, min(PALETTE_FRAMES, len(frames))).round().astype(int)
    seen = Image.fromarray(np.concatenate([frames[index] for index in chosen]))
    palette = seen.quantize(64, method=Image.Quantize.FASTOCTREE)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    durations = [round(1000 * frame_seconds)] * (len(images) - 1) + [round(1000 * REST_SECONDS)]
    options: dict[str, Any] = {"save_all": True, "append_images": images[1:], "duration": durations, "loop": 0}
    images[0].save(path, "GIF", optimize=True, **options)


def _save_mp4(frames: Sequence[Frame], frame_seconds: float, path: Path) -> None:
    import imageio_ffmpeg

    # Players want even sides; a white edge does no harm.
    height, width = frames[0].shape[:2]
    padded = [np.pad(f, ((0, height % 2), (0, width % 2), (0, 0)), constant_values=255) for f in frames]
    rest = [padded[-1]] * round(REST_SECONDS / frame_seconds)
    size = (padded[0].shape[1], padded[0].shape[0])
    encoder = imageio_ffmpeg.write_frames(str(path), size, fps=1 / frame_seconds, macro_block_size=2)
    with contextlib.closing(encoder) as writer:
        writer.send(None)
        for frame in [*padded, *rest]:
            writer.send(np.ascontiguousarray(frame))
