"""Frames of a video file, decoded by the ffmpeg that imageio-ffmpeg brings."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import IO

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
MESSAGE_BYTES = 4096
"""Bytes of ffmpeg's words that are looked at, the last ones; a line of a frame's header is far shorter."""


def read_video(file: Path) -> Iterator[NDArray[np.uint8]]:
    """Frames [H, W, 3], upright: none is repeated or dropped to keep a rate."""
    for _, frame in read_timed_video(file):
        yield frame


def read_timed_video(
    file: Path, start_seconds: float = 0.0, count: int | None = None
) -> Iterator[tuple[float, NDArray[np.uint8]]]:
    """Frames as `read_video` has them, from `start_seconds` on, each with the second at which the file shows it."""
    import imageio_ffmpeg

    _require_decodable(file)
    reading, writing = os.pipe()
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *CONFINED]
    command += ["-ss", f"{start_seconds:.6f}"] if start_seconds > 0 else []
    command += ["-copyts", "-i", f"file:{file}", "-map", "0:v:0", "-fps_mode", "passthrough"]
    command += ["-frames:v", str(count)] if count is not None else []
    # A line before each frame: its time in the file and the unit of that. {ti}, the seconds, has six digits only.
    command += ["-stats_enc_pre", f"pipe:{writing}", "-stats_enc_pre_fmt", "{ptsi} {tbi}"]
    # Each frame says its size: ffmpeg turns the video of a phone that was held upright.
    command += ["-f", "image2pipe", "-c:v", "ppm", "-pix_fmt", "rgb24", "-"]
    # Its words go to a file: a pipe that nobody reads is full after 64 kB, and ffmpeg would wait forever.
    with (
        open(reading, "rb") as times,
        open(writing, "wb") as told,
        tempfile.TemporaryFile() as words,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, pass_fds=[writing]) as process,
    ):
        told.close()  # ffmpeg alone holds it now: reading ends where ffmpeg does
        assert process.stdout is not None
        try:
            while (frame := _next_frame(file, process.stdout)) is not None:
                yield _next_time(file, times), frame
            code, said = process.wait(), _last_line(words)
            if code or said:
                raise DamagedError(f"{file}: cannot be decoded ({said or f'ffmpeg ended with {code}'})")
        finally:
            process.kill()


def _next_frame(file: Path, stream: IO[bytes]) -> NDArray[np.uint8] | None:
    """The next picture [H, W, 3] of a stream of PPM; None at its end, or where the last one is cut short."""
    header = b"".join(stream.readline(MESSAGE_BYTES) for _ in range(3))
    if not header:
        return None
    found = re.fullmatch(rb"P6\n(\d+) (\d+)\n255\n", header)
    if found is None:
        raise DamagedError(f"{file}: cannot be decoded (ffmpeg gave {header[:40]!r} for a frame)")
    width, height = map(int, found.groups())
    _require_budget(file, width, height)
    data = stream.read(3 * width * height)
    return np.frombuffer(data, np.uint8).reshape(height, width, 3) if len(data) == 3 * width * height else None


def _next_time(file: Path, stream: IO[bytes]) -> float:
    """The time in seconds of the next frame."""
    line = stream.readline(MESSAGE_BYTES)
    found = re.fullmatch(rb"(-?\d+) (\d+)/([1-9]\d*)\n", line)
    if found is None:
        raise DamagedError(f"{file}: cannot be decoded (ffmpeg gave {line[:40]!r} for the time of a frame)")
    count, above, below = map(int, found.groups())
    return float(Fraction(count * above, below))


def _last_line(words: IO[bytes]) -> str:
    """The last line of what ffmpeg said, shortened; empty if it said nothing."""
    words.seek(max(0, words.seek(0, os.SEEK_END) - MESSAGE_BYTES))
    lines = words.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def _require_decodable(file: Path) -> None:
    """DamagedError unless it is a video whose frames fit into the budget; none is decoded for that."""
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
    _require_budget(file, *map(int, found.groups()))


def _require_budget(file: Path, width: int, height: int) -> None:
    budget.require(file, f"a frame of {width} x {height} pixels", 3 * width * height)
