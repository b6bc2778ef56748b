"""Commands side by side, each a process of its own, with its share of the threads: what a study runs in."""

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from saltwm.disk import durable
from saltwm.processes.stopping import stop_signal

POLL_SECONDS = 0.1


class Lanes:
    """Up to `at_once` running commands; of several, each writes to a log of its own and has its share of threads."""

    def __init__(self, at_once: int, logs: Path, stopped_by: Callable[[], int]) -> None:
        self._at_once, self._logs, self._stopped_by = at_once, logs, stopped_by
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def running(self) -> list[str]:
        """The names of the commands under way."""
        return list(self._running)

    @property
    def has_room(self) -> bool:
        """Whether one more may start."""
        return len(self._running) < self._at_once

    def log_of(self, name: str) -> Path | None:
        """Where the command of that name writes; None where it has the terminal to itself."""
        return None if self._at_once == 1 else self._logs / f"{name}.log"

    def start(self, command: str, name: str) -> None:
        """Begin a command as a person types it; no name twice at a time."""
        assert name not in self._running
        words = [sys.executable, "-m", *shlex.split(command)]
        log = self.log_of(name)
        if log is None:
            self._running[name] = subprocess.Popen(words)
            return
        durable.make_folder(log.parent)
        threads = max(1, (os.cpu_count() or 1) // self._at_once)
        with durable.open_log(log) as file:
            self._running[name] = subprocess.Popen(
                words, stdout=file, stderr=file, env={**os.environ, "OMP_NUM_THREADS": str(threads)}
            )

    def next_end(self) -> tuple[str, int]:
        """Wait for one to end, and give its name and exit code; a stop asked of this process is passed on once."""
        has_passed_on = False
        while True:
            for name, process in self._running.items():
                if (code := process.poll()) is not None:
                    del self._running[name]
                    return name, code
            if self._stopped_by() and not has_passed_on:
                has_passed_on = True
                self.stop()
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Ask all of them to stop. SIGTERM: a second SIGINT, after the terminal's own, would not let them save."""
        for process in self._running.values():
            process.terminate()


@contextlib.contextmanager
def lanes(at_once: int, logs: Path) -> Iterator[Lanes]:
    """Lanes that leave no process behind."""
    with stop_signal() as stopped_by:
        some = Lanes(at_once, logs, stopped_by)
        try:
            yield some
        finally:
            some.stop()
            while some.running:
                some.next_end()
