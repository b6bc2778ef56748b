"""Frames of a video file, decoded by the ffmpeg that imageio-ffmpeg brings."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saltwm.ground import budget
from saltwm.ground.errors import DamagedError

CONFINED = (
    "-nostdin",
    "-protocol_whitelist",
    "file",
    "-format_whitelist",  # no playlist, which would name other files to read
    "mov,mp4,avi,matroska,webm,gif",
)
"""What ffmpeg may open."""


def read_video(file: Path, start_seconds: float = 0.0, count: int | None = None) -> Iterator[NDArray[np.uint8]]:
    """Frames [H, W, 3] from `start_seconds` on, as they are stored: none is repeated or dropped to keep a rate."""
    import imageio_ffmpeg

    width, height = video_size(file)
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *CONFINED]
    command += ["-ss", f"{start_seconds:.6f}"] if start_seconds > 0 else []
    command += ["-i", f"file:{file}", "-map", "0:v:0", "-fps_mode", "passthrough"]
    command += ["-frames:v", str(count)] if count is not None else []
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    size = width * height * 3
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            while len(data := process.stdout.read(size)) == size:
                yield np.frombuffer(data, np.uint8).reshape(height, width, 3)
            said = process.stderr.read().decode(errors="replace").strip()
            if process.wait() or said:
                last = said.splitlines()[-1] if said else f"ffmpeg ended with {process.returncode}"
                raise DamagedError(f"{file}: cannot be decoded ({last[:200]})")
        finally:
            process.kill()


def video_size(file: Path) -> tuple[int, int]:
    """Width and height in pixels; DamagedError unless it is a video."""
    import imageio_ffmpeg

    if not file.is_file():
        raise DamagedError(f"{file}: missing")
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", *CONFINED]
    said = subprocess.run([*command, "-i", f"file:{file}"], capture_output=True, check=False).stderr
    lines = said.decode(errors="replace").strip().splitlines()  # it ends with an error: no output was asked for
    found = next((size for line in lines if (size := re.search(r"Video: .*?, (\d+)x(\d+)", line))), None)
    if found is None:
        raise DamagedError(
            f"{file}: cannot be decoded as a video ({lines[-1][:200] if lines else 'ffmpeg said nothing'})"
        )
    width, height = map(int, found.groups())
    budget.require(file, f"a frame of {width} x {height} pixels", 3 * width * height)
    return width, height
