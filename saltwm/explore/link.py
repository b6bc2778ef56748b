"""The server's side of the worker: one process that answers, is watched, and is started again when it dies.

Every question holds all that its answer depends on, so a question that a dying worker leaves open is put to the next
one. A question that ends two workers is not put to a third.
"""

import asyncio
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from saltwm.explore.folders import Place
from saltwm.explore.messages import Answer, Message, pack
from saltwm.ground.strict_json import to_plain

SECONDS_PER_ANSWER = 180.0
"""A worker that is silent for longer is ended."""
MOST_OPEN = 64
"""Questions that wait at a time."""
MOST_TRIES = 2
MOST_ANSWER_BYTES = 256 * 1024 * 1024


@dataclass(eq=False)
class _Open:
    """A question without an answer yet."""

    number: int
    ask: str
    request: dict[str, Any]
    answer: asyncio.Future[bytes]
    tries: int = 0


@dataclass
class Link:
    """One worker at a time for the given places; `on_restart` is called when another takes over."""

    places: list[Place]
    on_restart: Callable[[], None] = lambda: None
    restarts: int = 0
    _process: asyncio.subprocess.Process | None = None
    _reader: asyncio.Task[None] | None = None
    _open: dict[int, _Open] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _closed: bool = False
    _heard: float = 0.0
    """When the worker last answered anybody, or was started, by the loop's clock."""

    @property
    def pid(self) -> int | None:
        """Of the worker, if there is one."""
        return None if self._process is None else self._process.pid

    async def ask(self, message: Message) -> bytes:
        """The packed answer to a question; a failure is an answer too."""
        if len(self._open) >= MOST_OPEN:
            return _failed(f"{message.ask}: {MOST_OPEN} questions wait already; ask again later")
        assert message.request is not None
        loop = asyncio.get_running_loop()
        question = _Open(next(self._numbers), message.ask, to_plain(message.request), loop.create_future())
        self._open[question.number] = question
        try:
            await self._put(question)
            return await self._answer_to(question)
        except TimeoutError:
            self.kill()
            self._heard = loop.time()  # those that wait behind it have the next worker's whole time
            return _failed(f"{message.ask}: no answer within {SECONDS_PER_ANSWER:g} s; the worker was ended")
        finally:
            self._open.pop(question.number, None)

    async def _answer_to(self, question: _Open) -> bytes:
        """Its answer; TimeoutError when the worker has been silent for too long over this very question.

        It answers in order: while it answers others, or is silent over an older one, this one only waits its turn.
        """
        loop = asyncio.get_running_loop()
        since = loop.time()
        while True:
            await asyncio.wait([question.answer], timeout=self._patience(since))
            if question.answer.done():
                return question.answer.result()
            if self._patience(since) > 0:
                continue  # somebody was answered meanwhile
            if question.number == min(self._open):
                raise TimeoutError
            since = loop.time()

    def _patience(self, since: float) -> float:
        """Seconds that are left of the worker's silence."""
        return max(since, self._heard) + SECONDS_PER_ANSWER - asyncio.get_running_loop().time()

    def kill(self) -> None:
        """End the worker; the next one takes over what is open."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        """End the worker for good."""
        self._closed = True
        self.kill()
        if self._reader is not None:
            await asyncio.gather(self._reader, return_exceptions=True)

    async def start(self) -> None:
        """Have a worker ready before it is needed."""
        await self._running()

    async def _put(self, question: _Open) -> None:
        question.tries += 1
        if question.tries > MOST_TRIES:
            _settle(question, _failed(f"{question.ask}: the worker ended {MOST_TRIES} times while it answered"))
            return
        process = await self._running()
        line = json.dumps({"id": question.number, "ask": question.ask, "with": question.request})
        assert process.stdin is not None
        # A worker that has just died is noticed by its reader, which puts the question again.
        with contextlib.suppress(ConnectionError):
            process.stdin.write(line.encode() + b"\n")
            await process.stdin.drain()

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is None:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "saltwm.explore.worker",
                    json.dumps([asdict(place) for place in self.places]),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                    start_new_session=True,  # Ctrl-C is for the server, which ends the worker itself
                )
                self._heard = asyncio.get_running_loop().time()
                self._reader = asyncio.create_task(self._read(self._process))
            return self._process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Hand answers on until the worker dies, then put what is open to the next one."""
        assert process.stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = int.from_bytes(await process.stdout.readexactly(4), "little")
                if size > MOST_ANSWER_BYTES:
                    break
                packed = await process.stdout.readexactly(size)
                self._heard = asyncio.get_running_loop().time()
                question = self._open.get(int.from_bytes(packed[:4], "little"))
                if question is not None:
                    _settle(question, packed)
        if process.returncode is None:
            process.kill()
        await process.wait()
        self._process = None
        if self._closed:
            for question in list(self._open.values()):
                _settle(question, _failed("the explorer ends"))
            return
        self.restarts += 1
        self.on_restart()
        for question in list(self._open.values()):
            await self._put(question)


def _settle(question: _Open, packed: bytes) -> None:
    if not question.answer.done():
        question.answer.set_result(packed)


def _failed(why: str) -> bytes:
    return pack(0, Answer({"error": why}))
