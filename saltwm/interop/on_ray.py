"""Chunks of evaluations and parts of collections on a Ray cluster: a pool like `Workers`, with the same bytes.

No filesystem is shared. Task sets and checkpoints travel as bytes through Ray's object store, jobs, outcomes and the
files of parts as plain data, and this process writes every file. What the nodes must have is the same software; where
starts and goals are pictures of an imported dataset, that dataset too, at the same path. We pickle nothing; Ray's own
transport does, so a cluster is to be trusted like a shell on its machines.

Ray tells a dead node or process from a slow one; whoever is lost costs a retry of the item that it was at.
"""

import contextlib
import importlib
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from saltwm.disk import durable
from saltwm.ground.checks import at_least
from saltwm.ground.errors import MismatchError, SaltError, UsageError
from saltwm.ground.extras import needs
from saltwm.processes.pool import ONE_THREAD, Errand, Event, error_named

DOES = {"chunk": "saltwm.jobs.chunks", "part": "saltwm.jobs.collect"}
"""Kind of an errand -> the module whose `prepare_sent` does it on a node; imported there, after the threads are set."""
FAILED_STARTS = 5
"""Processes in a row that may fail to come up before the cluster is given up."""
START_SECONDS = 300.0
"""The cluster counts as full if it starts no process within this time."""
CONNECT_SECONDS = 5.0


# --- here ------------------------------------------------------------------------------------------------------------


@dataclass
class _Actor:
    handle: Any
    answer: Any
    """Ref to what it was last asked for; None when it is free."""
    node: str | None = None
    """Address of its machine, known once it has answered."""
    item: Any = None
    began: float = 0.0


class RayWorkers:
    """Up to `count` processes with a CPU each on the cluster at `address`, as many as it has room for.

    A process gets work once it has answered, so that nothing waits for one that the cluster cannot place. A SaltError
    there is raised here. None outlives the block.
    """

    def __init__(self, address: str, count: int, errand: Errand, *, item_seconds: float) -> None:
        at_least("workers", count)
        self._ray = _import_ray()
        self._address = address
        self._count = count
        self._errand = errand
        self._item_seconds = item_seconds
        self._actors: list[_Actor] = []
        self._failed_starts = 0
        self._useful = time.monotonic()
        self._software = software()
        self._shipped: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._block = contextlib.ExitStack()

    def __enter__(self) -> "RayWorkers":
        # Ray reports dead nodes on standard output, which belongs to --json.
        self._block.enter_context(contextlib.redirect_stdout(sys.stderr))
        try:
            _connect(self._ray, self._address)
        except BaseException:
            self._block.close()
            raise
        self._block.callback(self._ray.shutdown)  # ends the actors of this driver, too
        self._actor_class = self._ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(NodeActor)
        self._hire()
        return self

    def __exit__(self, *_: object) -> None:
        self._actors.clear()
        self._shipped = None
        self._block.close()

    @property
    def busy(self) -> bool:
        """Whether an item is being worked on."""
        return any(actor.item is not None for actor in self._actors)

    @property
    def free(self) -> bool:
        """Whether another item can be assigned."""
        return any(actor.answer is None for actor in self._actors)

    def assign(self, item: Any) -> None:
        """Give an item to a process that has none."""
        actor = next(actor for actor in self._actors if actor.answer is None)
        order, which = self._errand.order(item)
        actor.item, actor.began = item, time.monotonic()
        actor.answer = actor.handle.run.remote(self._errand.kind, order, self._ship(order, item), which)

    def events(self, seconds: float = 0.1) -> list[Event]:
        """What happened since the last look; waits up to `seconds` for something to happen."""
        self._hire()
        asked = {actor.answer: actor for actor in self._actors if actor.answer is not None}
        answered, _ = self._ray.wait(list(asked), timeout=seconds)
        found = [self._hear(asked[answer]) for answer in answered]
        found += [self._stop(actor) for actor in list(self._actors) if self._is_late(actor)]
        return [event for event in found if event is not None]

    # --- one process -----------------------------------------------------------------------------------------------

    def _hire(self) -> None:
        """Ask the cluster for the processes that are missing; they are free when they have said what they run."""
        now = time.monotonic()
        if self.busy or self.free:
            self._useful = now
        elif now - self._useful > START_SECONDS:
            raise SaltError(
                f"{self._address}: no process could be placed for {START_SECONDS:g} s; has the cluster a free CPU?"
            )
        while len(self._actors) < self._count:
            handle = self._actor_class.remote()
            self._actors.append(_Actor(handle, handle.introduce.remote()))

    def _hear(self, actor: _Actor) -> Event | None:
        try:
            answer = self._ray.get(actor.answer)
        except self._ray.exceptions.RayTaskError:
            raise  # a bug, with its traceback on the node
        except self._ray.exceptions.RayError as error:
            return self._lose(actor, f"on {actor.node} was lost ({type(error).__name__})", error)
        actor.answer = None
        if actor.item is None:
            self._welcome(actor, answer)
            return None
        item, actor.item = actor.item, None
        if "error" in answer:
            raise error_named(answer["error"])(answer["message"])
        self._errand.receive(item, answer["result"])
        return Event("done", item)

    def _welcome(self, actor: _Actor, introduction: dict[str, Any]) -> None:
        self._failed_starts = 0
        actor.node = introduction["node"]
        for name, here in self._software.items():
            there = introduction["software"].get(name)
            if there != here:
                raise MismatchError(
                    f"{actor.node}: {name} {there} there, {here} here; install the same on every node of the cluster"
                )

    def _lose(self, actor: _Actor, why: str, error: Exception | None = None) -> Event | None:
        self._ray.kill(actor.handle)
        self._actors.remove(actor)
        if actor.node is None:
            self._failed_starts += 1
            if self._failed_starts == FAILED_STARTS:
                reason = str(error).strip().splitlines()[-1]  # above it stands the node's traceback
                raise SaltError(f"{self._address}: no process comes up; is saltwm installed on every node? ({reason})")
        # Who is idle on a dead node would cost a chunk its retries, one after the other.
        for idle in [other for other in self._actors if other.answer is None]:
            idle.answer = idle.handle.introduce.remote()
        return None if actor.item is None else Event("lost", actor.item, why, hung=error is None)

    def _is_late(self, actor: _Actor) -> bool:
        return actor.item is not None and time.monotonic() - actor.began > self._item_seconds

    def _stop(self, actor: _Actor) -> Event | None:
        return self._lose(actor, f"on {actor.node} hung (not done after {self._item_seconds:g} s) and was stopped")

    def _ship(self, order: dict[str, Any], item: Any) -> dict[str, Any]:
        """{name: ref to its bytes}: the files that the order needs, in the cluster's memory until the next order's."""
        if self._shipped is None or self._shipped[0] != order:
            files = self._errand.files(item)
            self._shipped = order, {name: self._ray.put(durable.read_bytes(file)) for name, file in files.items()}
        return self._shipped[1]


def _import_ray() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read at import; no usage is reported
    with needs("ray", "`ray`"):
        import ray
    return ray


def _connect(ray: ModuleType, address: str) -> None:
    if ray.is_initialized():
        raise UsageError("this process is connected to a Ray cluster already; call ray.shutdown() before")
    _require_listener(address)
    try:
        with _sigterm_unchanged():
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(f"Ray at {address}: cannot join that cluster: {error}") from error


@contextlib.contextmanager
def _sigterm_unchanged() -> Iterator[None]:
    """Ray takes SIGTERM for itself; whoever handled it before goes on to do so."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _require_listener(address: str) -> None:
    """UsageError unless something listens at HOST:PORT: Ray itself would try for a minute and end the process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"Ray at {address!r}: expected HOST:PORT of the cluster's head node, such as 10.0.0.5:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"Ray at {address}: nobody answers there ({error}); start a cluster with: ray start --head"
        ) from error


# --- on a node -------------------------------------------------------------------------------------------------------


class NodeActor:
    """One process of the cluster: works with one thread. What the last order prepared stays loaded."""

    def __init__(self) -> None:
        os.environ.update(ONE_THREAD)
        self._order: tuple[str, dict[str, Any]] | None = None
        self._do: Callable[[Any], Any]

    def introduce(self) -> dict[str, Any]:
        """Where this is and what it runs."""
        import ray

        return {"node": ray.util.get_node_ip_address(), "software": software()}

    def run(self, kind: str, order: dict[str, Any], files: dict[str, Any], which: Any) -> dict[str, Any]:
        """{"result": of that item of the order}, or {"error": its kind, "message": its text}."""
        try:
            if (kind, order) != self._order:
                self._do = _prepare(kind, order, files)
                self._order = kind, order
            return {"result": self._do(which)}
        except SaltError as error:
            return {"error": type(error).__name__, "message": str(error)}


def _prepare(kind: str, order: dict[str, Any], files: dict[str, Any]) -> Callable[[Any], Any]:
    """Get ready for an order from files that are here only as long as that takes."""
    with tempfile.TemporaryDirectory(prefix="saltwm-") as name:
        for file, ref in files.items():
            import ray

            path = Path(name) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            durable.write_bytes(path, ray.get(ref))
        ready: Callable[[Any], Any] = importlib.import_module(DOES[kind]).prepare_sent(order, Path(name))
        return ready


def software() -> dict[str, str]:
    """What must be equal for equal records: the versions of packages, and our own sources as they are."""
    package = Path(__file__).parents[1]
    sources = {file.relative_to(package).as_posix(): durable.sha256(file) for file in package.rglob("*.py")}
    return {
        **{name: _version(name) for name in ("saltwm", "torch", "numpy", "gymnasium", "pymunk", "mujoco")},
        "sources of saltwm": durable.sha256_json(sources)[:12],
    }


def _version(name: str) -> str:
    """Of a package; simulators are extras, which not every machine has."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
