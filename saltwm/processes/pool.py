"""A pool of watched worker processes: it reports which worker died or hung, and leaves none running after its block.

Results go to files; what passes between the processes is small, so that a worker that stops in the middle of a
message cannot hold up its parent.
"""

import contextlib
import multiprocessing
import os
import platform
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Protocol

from saltwm.ground import errors
from saltwm.ground.checks import at_least
from saltwm.ground.errors import SaltError
from saltwm.ground.progress import note

Report = Callable[[], None]
Work = Callable[[Any, Report], None]
"""work(item, report): do one item, and call report() as its parts are finished."""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LP_NUM_THREADS"), "1")
"""Environment of a worker: one thread for arithmetic and software rendering, because there is a worker per core."""

SAME_ARITHMETIC = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",  # by the names of numpy 2.4; others would be ignored
    "OPENBLAS_CORETYPE": "Haswell",
}
"""Environment of a worker whose numbers enter a dataset's hash: numpy and OpenBLAS do without AVX-512.

With it some functions are rounded differently in the last digit, and contacts make another episode of that.
"""

WORKER_NUMBER = "SALTWM_WORKER"
"""In a worker's environment: which of its pool it is, from 0; one that is lost leaves its number to the next."""

RETRIES = 2
"""How often an item is tried again after its worker was lost."""
BEAT_SECONDS = 1.0
SILENCE_SECONDS = 30.0
"""A worker that sends no heartbeat for this long counts as hung; importing torch takes seconds on a busy machine."""
ABSENCE_SECONDS = 5.0
"""If the parent itself did not look for this long (it was suspended), the time counts against no worker."""


@dataclass(frozen=True)
class Event:
    """What happened to an item: a part of it or all of it is done, or its worker is lost and `why` says how."""

    kind: Literal["part", "done", "lost"]
    item: Any
    why: str = ""
    hung: bool = False
    """Whether a lost worker was stopped by us because nothing came from it; else it died."""


class Pool(Protocol):
    """Whatever does items one at a time, somewhere, and tells what became of them."""

    @property
    def busy(self) -> bool:
        """Whether an item is being worked on."""

    @property
    def free(self) -> bool:
        """Whether another item can be assigned."""

    def assign(self, item: Any) -> None:
        """Give an item to a worker that has none."""

    def events(self, seconds: float = 0.1) -> list[Event]:
        """What happened since the last look; waits up to `seconds` for something to happen."""


class Errand(Protocol):
    """What a pool on other machines needs to know of its items: what to send there, and what to do with the answer."""

    kind: str
    """A word from the pool's own table; nothing that is sent names code."""

    def order(self, item: Any) -> tuple[dict[str, Any], Any]:
        """Plain data of what is to be done, the same for many items, and which of it this item is."""

    def files(self, item: Any) -> dict[str, Path]:
        """Files that the order needs, by the names that it has for them there."""

    def receive(self, item: Any, result: Any) -> None:
        """Write what came back where a process of this machine would have written it."""


def work_off(pool: Pool, items: Sequence[Any], name: Callable[[Any], str]) -> Iterator[Event | None]:
    """Hand out the items until all are done; yield what happens to them, and None after each look.

    An item whose worker was lost is handed out again; SaltError with its name when that happened too often.
    """
    todo, losses = list(range(len(items)))[::-1], Counter[int]()
    while todo or pool.busy:
        while todo and pool.free:
            pool.assign(items[todo.pop()])
        for event in pool.events():
            if event.kind == "lost":
                number = items.index(event.item)
                losses[number] += 1
                if losses[number] > RETRIES:
                    raise _given_up(name(event.item), event, losses[number])
                note(f"a worker {event.why}; its work is tried again")
                todo.append(number)
            yield event
        yield None


def _given_up(name: str, lost: Event, times: int) -> SaltError:
    hint = "is the machine too busy for as many `workers`?" if lost.hung else "is memory short?"
    why = f"a worker {lost.why}, {times} times in a row ({hint})"
    return SaltError(f"{name}: {why}; what is complete is kept", remedy="go on")


@dataclass
class _Worker:
    process: Any
    connection: Connection
    number: int
    item: Any = None
    heard: float = 0.0
    advanced: float = 0.0
    """When it was given its item, or reported the last part of it."""


class Workers:
    """Up to `count` processes, started when they are needed; each builds its work by `make(*arguments)` once.

    A worker that beats but finishes no part of its item for `part_seconds` is taken for hung; without them, it may
    take its time. `settings` are added to its environment. A SaltError in a worker is raised in the parent. None
    outlives the block, nor the parent, however that ends.
    """

    def __init__(
        self,
        count: int,
        make: Callable[..., Work],
        *arguments: Any,
        part_seconds: float | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:
        at_least("workers", count)
        self._environment = ONE_THREAD | (settings or {})
        self._count = count
        self._make = (make, arguments)
        self._part_seconds = part_seconds
        self._workers: list[_Worker] = []
        self._looked = time.monotonic()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()
        self._workers.clear()

    @property
    def busy(self) -> bool:
        """Whether an item is being worked on."""
        return any(worker.item is not None for worker in self._workers)

    @property
    def free(self) -> bool:
        """Whether another item can be assigned."""
        return sum(worker.item is not None for worker in self._workers) < self._count

    def assign(self, item: Any) -> None:
        """Give an item to a worker that has none, or to a new one."""
        worker = next((worker for worker in self._workers if worker.item is None), None) or self._start()
        worker.item, worker.advanced = item, time.monotonic()
        with contextlib.suppress(OSError):  # it died idle; `events` will find that and say so
            worker.connection.send(item)

    def events(self, seconds: float = 0.1) -> list[Event]:
        """What happened since the last look; waits up to `seconds` for something to happen."""
        self._forgive_absence()
        ready = wait([worker.connection for worker in self._workers], timeout=seconds)
        found = []
        for worker in list(self._workers):
            event = self._receive(worker) if worker.connection in ready else self._overdue(worker)
            if event is not None and event.item is not None:
                found.append(event)
        return found

    # --- one worker ------------------------------------------------------------------------------------------------

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_live, args=(theirs,), daemon=True)
        resource_tracker.ensure_running()  # else the first child starts it, and that lets interrupts through again
        number = min(set(range(self._count)) - {worker.number for worker in self._workers})
        with environment(self._environment | {WORKER_NUMBER: str(number)}), signals_held(signal.SIGINT):
            process.start()
        theirs.close()
        worker = _Worker(process, ours, number, heard=time.monotonic())
        self._workers.append(worker)
        # Through the pipe and not as an argument: the child watches its parent before it imports anything slow.
        ours.send(self._make)
        return worker

    def _receive(self, worker: _Worker) -> Event | None:
        try:
            kind, *values = worker.connection.recv()
        except (EOFError, OSError):
            return self._lose(worker, f"died ({_exit_code(worker.process)})")
        worker.heard = time.monotonic()
        if kind == "alive":
            return None
        if kind == "error":
            raise error_named(values[0])(values[1])
        worker.advanced = worker.heard
        event = Event(kind, worker.item)
        if kind == "done":
            worker.item = None
        return event

    def _overdue(self, worker: _Worker) -> Event | None:
        now = time.monotonic()
        if now - worker.heard > SILENCE_SECONDS:
            return self._lose(worker, f"hung (no sign of life for {SILENCE_SECONDS:g} s) and was stopped", hung=True)
        if self._part_seconds and worker.item is not None and now - worker.advanced > self._part_seconds:
            return self._lose(
                worker, f"hung (nothing finished for {self._part_seconds:g} s) and was stopped", hung=True
            )
        return None

    def _lose(self, worker: _Worker, why: str, *, hung: bool = False) -> Event:
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        self._workers.remove(worker)
        return Event("lost", worker.item, why, hung)

    def _forgive_absence(self) -> None:
        now = time.monotonic()
        if now - self._looked > ABSENCE_SECONDS:
            for worker in self._workers:
                worker.heard += now - self._looked
                worker.advanced += now - self._looked
        self._looked = now


def _exit_code(process: Any) -> str:
    process.join(timeout=5)
    code = process.exitcode
    return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def error_named(name: str) -> type[SaltError]:
    """The kind of SaltError that a worker named; a plain one for an unknown name."""
    kind = getattr(errors, name, SaltError)
    return kind if isinstance(kind, type) and issubclass(kind, SaltError) else SaltError


# --- in the worker ---------------------------------------------------------------------------------------------------


def _live(connection: Connection) -> None:
    """A worker's life: how to work comes in once, then items; ("part",), ("done",), ("alive",) and errors go out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    _die_with_parent()
    lock = threading.Lock()

    def send(*message: str) -> None:
        with lock:
            connection.send(message)

    _beat(send)
    try:
        make, arguments = connection.recv()
        work = make(*arguments)
        while True:
            item = connection.recv()
            work(item, lambda: send("part"))
            send("done")
    except SaltError as error:
        send("error", type(error).__name__, str(error))
    except (MemoryError, RuntimeError) as error:
        shortage = errors.out_of_memory(error)
        if shortage is None:
            raise
        send("error", type(shortage).__name__, str(shortage))
    except (EOFError, BrokenPipeError):
        pass  # the parent is done


def _beat(send: Callable[[str], None]) -> None:
    def beat() -> None:
        with contextlib.suppress(OSError):  # the parent is gone, and so will we be
            while True:
                send("alive")
                time.sleep(BEAT_SECONDS)

    threading.Thread(target=beat, daemon=True).start()


def _die_with_parent() -> None:
    """End this process when its parent dies, even by SIGKILL: an orphan must not write beside the next writer."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def signals_held(*numbers: signal.Signals) -> Iterator[None]:
    """These signals wait: a child inherits the block, so that it is not interrupted among its imports.

    The block is this thread's alone. A signal that the system hands to another one would still interrupt Python here,
    perhaps between the start of a child and its being written down; it is kept and sent again.
    """
    kept: list[int] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    handlers = _handlers_replaced(numbers, lambda number, frame: kept.append(number))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in kept:
            signal.raise_signal(late)


def _handlers_replaced(
    numbers: Sequence[signal.Signals], keep: Callable[[int, FrameType | None], None]
) -> dict[signal.Signals, Any]:
    """Install `keep` for these signals; returns the previous handlers. Ignored ones stay so: children inherit that."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    heard = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    return {number: signal.signal(number, keep) for number in heard}


def same_arithmetic() -> dict[str, str]:
    """`SAME_ARITHMETIC` where the processor has what it falls back to, AVX2; nothing elsewhere."""
    flags = Path("/proc/cpuinfo")
    has_avx2 = platform.machine() == "x86_64" and flags.exists() and " avx2 " in flags.read_text()
    return SAME_ARITHMETIC if has_avx2 else {}


@contextlib.contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """os.environ with these values, which children started inside inherit, and as before afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
