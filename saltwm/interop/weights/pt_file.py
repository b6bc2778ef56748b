"""Public .pt files: the only place where a pickle is opened, and it is opened in another process (see pt_child)."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from torch import Tensor

from saltwm.disk.checkpoint import read_tensors
from saltwm.ground.errors import DamagedError, UsageError

LARGEST_FILE = 4 << 30
"""Bytes; the published files have 72 million."""
SPARE_MEMORY = 256 << 20
WALL_SECONDS = 120
_CHILD = Path(__file__).with_name("pt_child.py")


def read_pt(path: Path) -> dict[str, Tensor]:
    """Named tensors of a weights-only .pt file, wrappers taken off; DamagedError for anything else."""
    if not path.is_file():  # nor a directory, nor a pipe that would never end
        raise UsageError(f"{path}: no such file")
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise DamagedError(f"{path}: {size} bytes; weights of a world model have at most {LARGEST_FILE}")
    with tempfile.TemporaryDirectory(prefix="saltwm-pt-") as folder:
        target = Path(folder) / "tensors.safetensors"
        # The file once as torch holds it, once copied, once on its way out, and room for torch itself.
        _read_in_child(path.resolve(), target, memory=4 * size + SPARE_MEMORY)
        return read_tensors(target)


def _read_in_child(source: Path, target: Path, memory: int) -> None:
    # -P: neither the current folder nor this package's may shadow a module that the child imports.
    command = [sys.executable, "-P", str(_CHILD), str(source), str(target), str(memory)]
    messages = target.with_name("messages")
    with open(messages, "wb") as stderr:
        try:
            status = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=target.parent,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                timeout=WALL_SECONDS,
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise DamagedError(f"{source}: refused: not read within {WALL_SECONDS} s") from error
    if status != 0:
        raise DamagedError(f"{source}: not a weights-only file: {_refusal(messages, status)}")


def _refusal(messages: Path, status: int) -> str:
    """What the child said, made safe to print, or how it ended."""
    lines = messages.read_bytes()[-10_000:].decode(errors="replace").splitlines()
    said = [line.removeprefix("refused: ") for line in lines if line.startswith("refused: ")]
    if not said:
        return f"its reader ended with status {status}"
    return "".join(letter if letter.isprintable() else "?" for letter in said[-1])[:300]
