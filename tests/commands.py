"""`saltwm ...` in a process of its own, forked from a server that has torch imported already.

It is a real process with its own streams, signals and exit code, and it starts in a tenth of the time that the imports
of an interpreter take. Tests of the start itself run `python -m saltwm`.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from forked import FORKSERVER, hear_signals


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class Command:
    """A verb at work."""

    def __init__(self, *words, cwd=None):
        self._streams = Path(tempfile.mkdtemp(prefix="saltwm-command-"))
        arguments = (self._streams, os.fspath(cwd or os.getcwd()), [str(word) for word in words])
        self._process = FORKSERVER.Process(target=_main, args=arguments)
        self._process.start()
        self.pid = self._process.pid

    def send(self, number):
        os.kill(self.pid, number)

    def end(self, seconds=240.0):
        """Wait for its end; one that takes longer is killed."""
        self._process.join(seconds)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        streams = [(self._streams / name).read_text() for name in ("stdout", "stderr")]
        shutil.rmtree(self._streams)
        return Ended(self._process.exitcode, *streams)


def saltwm(*words, check=True, cwd=None):
    """The verb, run to its end; an exit code other than 0 is an error unless `check` is off."""
    ended = Command(*words, cwd=cwd).end()
    if check:
        assert ended.returncode == 0, ended.stderr
    return ended


def _main(streams, cwd, words):
    """In the process: what `python -m saltwm` does once it has imported itself."""
    import torch

    from saltwm.cli import main

    os.chdir(cwd)
    os.environ["COLUMNS"] = "100"
    torch.set_num_threads(1)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(streams / name, os.O_WRONLY | os.O_CREAT), descriptor)
    hear_signals()
    main(words)
