"""A running explorer, asked as a page asks it, and files that lie outside of what it may show."""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from websockets.sync.client import connect

from saltwm.explore.messages import unpack

ROOT = Path(__file__).parents[2]
SECRET = "a-secret-that-lies-outside"


@dataclass
class Running:
    """A server in a process of its own."""

    process: subprocess.Popen
    address: str
    numbers: itertools.count = field(default_factory=lambda: itertools.count(1))

    @property
    def parts(self):
        return urlsplit(self.address)

    @property
    def origin(self):
        return f"http://{self.parts.netloc}"

    @contextlib.contextmanager
    def page(self, **options):
        """A socket as the page opens it."""
        options = {"origin": self.origin, "max_size": None, "proxy": None, **options}
        with connect(f"ws://{self.parts.netloc}{self.parts.path}live", **options) as socket:
            yield Page(socket, self.numbers)

    def workers(self):
        """Its worker processes."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]


@dataclass
class Page:
    socket: object
    numbers: object

    def send(self, ask, **options):
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "ask": ask, "with": options}))
        return number

    def receive(self, number, seconds=120):
        """The answer to one question; others and events are passed over."""
        deadline = time.monotonic() + seconds
        while True:
            data = self.socket.recv(timeout=deadline - time.monotonic())
            if isinstance(data, bytes):
                found, answer = unpack(data)
                if found == number:
                    return answer

    def ask(self, ask, **options):
        return self.receive(self.send(ask, **options))


@contextlib.contextmanager
def exploring(*given, **environment):
    """`saltwm explore` until the block ends, by Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-m", "saltwm", "explore", *map(str, given), "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "300", **environment},
        start_new_session=True,
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+/", line)
        assert found, f"the explorer did not start: {line}"
        running = Running(process, found[0])
        _wait_until_listening(running)
        yield running
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)
        process.stdout.close()


def _wait_until_listening(running, seconds=180):
    deadline = time.monotonic() + seconds
    while True:
        try:
            with running.page() as page:
                page.ask("catalogue")
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
