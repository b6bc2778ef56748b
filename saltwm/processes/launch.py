"""Where training runs: one process or many, started here or by torchrun or Slurm, on whatever Fabric finds.

Fabric's own launcher kills the main process without a word when another one fails. Here every process is started,
watched and ended by `together`, which says which one died; and on one machine nothing listens beyond 127.0.0.1.
"""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, distributed

from saltwm.ground.config import PrecisionName
from saltwm.ground.errors import NonFiniteError, SaltError, Stopped, UsageError
from saltwm.processes.pool import environment, signals_held

if TYPE_CHECKING:
    from lightning_fabric import Fabric

LOOPBACK = "127.0.0.1"
ARRIVED = "processes that found the main one"
GRACE_SECONDS = 20.0
"""How long the main process may need to notice by itself that another one died."""
FINISHING_SECONDS = 5.0
"""How long the others may need to end when the main process is done."""


@dataclass(frozen=True)
class Devices:
    """Where to train; Fabric's words."""

    accelerator: str = "auto"
    devices: int | None = None
    """Processes on each node; None: one, or as many as torchrun or Slurm started."""
    strategy: Literal["auto", "ddp"] = "auto"
    num_nodes: int = 1
    timeout_seconds: float = 600.0
    """How long processes wait for one another before the run ends."""


class _LostProcessError(SaltError):
    """A training process died or stopped answering; the others ended."""


def make_fabric(wanted: Devices, precision: PrecisionName) -> "Fabric":
    """Fabric before its launch: it knows its rank, nothing else has happened yet."""
    from lightning_fabric import Fabric
    from lightning_fabric.strategies import DDPStrategy

    devices = _as_launched(wanted)
    assert devices.devices is not None
    if devices.devices < 1 or devices.num_nodes < 1:
        raise UsageError(f"`devices` {devices.devices} and `num_nodes` {devices.num_nodes}: each must be at least 1")
    if not 0 < devices.timeout_seconds < timedelta.max.total_seconds():
        raise UsageError(f"`timeout` {devices.timeout_seconds:g}: seconds above 0 are needed, such as 600")
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it announces every process that joins
    strategy: Any = devices.strategy
    if devices.devices * devices.num_nodes > 1 or strategy == "ddp":
        # Statistics of batch normalisation are global, so every process holds the same buffers without being sent them.
        strategy = DDPStrategy(timeout=timedelta(seconds=devices.timeout_seconds), forward_sync_buffers=False)
    try:
        return Fabric(
            accelerator=devices.accelerator,
            devices=devices.devices,
            strategy=strategy,
            num_nodes=devices.num_nodes,
            precision=precision,
        )
    except (ValueError, RuntimeError) as error:  # an unknown word, or an accelerator that this machine lacks
        raise UsageError(f"cannot train there: {str(error).splitlines()[0]}", remedy="examine") from error


def _as_launched(devices: Devices) -> Devices:
    """With the counts of torchrun or Slurm where they are not given."""
    if devices.devices is not None:
        return devices
    from lightning_fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment

    if TorchElasticEnvironment.detect():
        local = int(os.environ["LOCAL_WORLD_SIZE"])
        return replace(devices, devices=local, num_nodes=int(os.environ["WORLD_SIZE"]) // local)
    if SLURMEnvironment.detect() and "SLURM_NTASKS_PER_NODE" in os.environ:
        nodes = int(os.environ.get("SLURM_NNODES", devices.num_nodes))
        return replace(devices, devices=int(os.environ["SLURM_NTASKS_PER_NODE"]), num_nodes=nodes)
    return replace(devices, devices=1)


# --- many processes --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def together(fabric: "Fabric", wanted: Devices) -> Iterator[None]:
    """Inside, all processes run and are connected; LostProcessError, naming which, if one of them goes away."""
    cluster = getattr(fabric.strategy, "cluster_environment", None)
    if cluster is None:
        fabric.launch()
        yield
        return
    if cluster.creates_processes_externally:
        with _agreed_ends_are_quiet(fabric), _lost_processes_named(fabric, None):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # held since `_siblings` started this process
            if "SALTWM_SIBLING" in os.environ:
                _connect_to_main(fabric, wanted)
            with _stoppable(Siblings({})):
                fabric.launch()
            yield
        return
    with _siblings(fabric, wanted) as siblings, _lost_processes_named(fabric, siblings):
        with _stoppable(siblings):
            fabric.launch()
        yield


@contextlib.contextmanager
def _stoppable(siblings: "Siblings") -> Iterator[None]:
    """Inside, Ctrl-C and SIGTERM end this process and its siblings at once.

    Waiting for other machines happens inside torch, where Python's handlers would be heard only after the timeout.
    Python writes the signal's number to a file at once, though, and nothing has been trained that could be lost.
    """
    if threading.current_thread() is not threading.main_thread():  # no signal ever reaches another one
        yield
        return
    heard, told = socket.socketpair()
    told.setblocking(False)
    before = signal.set_wakeup_fd(told.fileno())
    listener = threading.Thread(target=_end_when_told, args=(heard, siblings), daemon=True, name="stop the wait")
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        told.close()
        listener.join()
        heard.close()


def _end_when_told(heard: socket.socket, siblings: "Siblings") -> None:
    for number in iter(lambda: heard.recv(1), b""):
        if number[0] in (signal.SIGINT, signal.SIGTERM):
            siblings.end(wait_seconds=0.0)
            print("saltwm: stopped while waiting for the other processes", file=sys.stderr, flush=True)
            os._exit(128 + number[0])


class Siblings:
    """The other processes of this machine, started by this one; a thread watches them."""

    def __init__(self, processes: dict[int, "subprocess.Popen[bytes]"], grace_seconds: float = GRACE_SECONDS) -> None:
        self.processes = processes
        self._grace_seconds = grace_seconds
        self._ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True, name="watch training processes")
        self._watcher.start()

    def dead(self, wait_seconds: float = 0.0) -> str | None:
        """'process 1 was killed by SIGKILL' for the first that ended badly, after `wait_seconds` at most; or None."""
        until = time.monotonic() + wait_seconds
        while True:
            for rank, process in list(self.processes.items()):
                code = process.poll()
                if code:
                    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                    return f"process {rank} {how}"
            if time.monotonic() >= until:
                return None
            time.sleep(0.05)

    def _watch(self) -> None:
        """End this process if it does not notice by itself: it may wait for a connection, or inside a driver."""
        while not self._ending.wait(0.5):
            dead = self.dead()
            if dead and not self._ending.wait(self._grace_seconds):
                print(f"saltwm: {_lost(dead)}", file=sys.stderr, flush=True)
                os._exit(_LostProcessError.exit_code)

    def end(self, wait_seconds: float) -> None:
        """Wait up to `wait_seconds` for those that are finishing, then end the others."""
        self._ending.set()
        until = time.monotonic() + wait_seconds
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()  # a stopped process, or one inside a driver, does not answer to less
                process.wait()


@contextlib.contextmanager
def _siblings(fabric: "Fabric", wanted: Devices) -> Iterator[Siblings]:
    """Start this command again for the other ranks of this node, and connect.

    Ctrl-C reaches all processes of a terminal; the main one alone decides, so the others never see it.
    """
    strategy: Any = fabric.strategy
    local = wanted.num_nodes == 1
    values = {"LOCAL_RANK": "0", "WORLD_SIZE": str(fabric.world_size)}
    listener = None
    if local:
        listener = socket.create_server((LOOPBACK, 0))
        port = str(listener.getsockname()[1])
        values |= {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": port, "SALTWM_SIBLING": str(os.getpid())}
        values |= _loopback_only()
    with environment(values):
        siblings, first_rank = Siblings({}), strategy.node_rank * strategy.num_processes
        all_are_ending = False
        try:
            with signals_held(signal.SIGINT, signal.SIGTERM):
                for rank in range(1, strategy.num_processes):
                    process = subprocess.Popen(_this_command(), env={**os.environ, "LOCAL_RANK": str(rank)})
                    siblings.processes[first_rank + rank] = process
            if listener is not None:
                _connect_siblings(listener, siblings, fabric.world_size, wanted)
            yield siblings
            all_are_ending = True
        except (NonFiniteError, Stopped):
            all_are_ending = distributed.is_initialized()
            raise
        finally:
            if not all_are_ending:
                siblings.end(wait_seconds=0.0)  # before each of them notices and has something to say about it
            if distributed.is_initialized():
                distributed.destroy_process_group()
            siblings.end(FINISHING_SECONDS)


def _connect_siblings(listener: socket.socket, siblings: Siblings, processes: int, wanted: Devices) -> None:
    """The main process's side; Fabric would listen on every network interface."""
    port = listener.getsockname()[1]
    timeout = timedelta(seconds=wanted.timeout_seconds)
    store = distributed.TCPStore(
        LOOPBACK,
        port,
        processes,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    until = time.monotonic() + wanted.timeout_seconds
    while store.add(ARRIVED, 0) < processes - 1:  # not inside the store, where Ctrl-C would have to wait for them too
        dead = siblings.dead(wait_seconds=0.05)
        if dead or time.monotonic() > until:
            raise _LostProcessError(_lost(dead or "a process did not start in time"))
    distributed.init_process_group(store=store, rank=0, world_size=processes, timeout=timeout)


def _connect_to_main(fabric: "Fabric", wanted: Devices) -> None:
    """The other processes' side."""
    rank, processes, timeout = fabric.global_rank, fabric.world_size, timedelta(seconds=wanted.timeout_seconds)
    if os.getppid() != int(os.environ["SALTWM_SIBLING"]):
        raise _LostProcessError(f"process {rank}: the main process is gone, so this one ends")
    port = int(os.environ["MASTER_PORT"])
    store = distributed.TCPStore(LOOPBACK, port, processes, is_master=False, timeout=timeout, wait_for_workers=False)
    store.add(ARRIVED, 1)
    distributed.init_process_group(store=store, rank=rank, world_size=processes, timeout=timeout)


def _loopback_only() -> dict[str, str]:
    """Gloo's word for the interface to use, unless the user chose one."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return {}
    return {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}


def _this_command() -> list[str]:
    """The command line that started this process."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m saltwm
        return [sys.executable, "-m", main.__spec__.name, *sys.argv[1:]]
    return [sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:]]


@contextlib.contextmanager
def _agreed_ends_are_quiet(fabric: "Fabric") -> Iterator[None]:
    """A stop or a divergence ends all processes at the same step; process 0 reports it, the others just leave."""
    try:
        yield
    except (NonFiniteError, Stopped):
        if fabric.global_rank == 0:
            raise
        sys.exit(0)


@contextlib.contextmanager
def _lost_processes_named(fabric: "Fabric", siblings: Siblings | None) -> Iterator[None]:
    """Turn the errors of a broken or silent connection into one line that says what happened."""
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if not isinstance(error, distributed.DistError) and not any(w in text for w in ("gloo", "NCCL", "TCPStore")):
            raise
        if fabric.global_rank != 0:
            raise _LostProcessError(f"process {fabric.global_rank} lost the others and ends") from error
        dead = siblings.dead(wait_seconds=2.0) if siblings else None
        silent = "a process stopped answering" if "imed out" in text else "the connection to a process broke"
        raise _LostProcessError(_lost(dead or silent)) from error


def _lost(what: str) -> str:
    return f"{what}, so training ended; what was saved is intact, the same command goes on from there"


def mean_over_processes(fabric: "Fabric", values: Tensor) -> list[float]:
    """The mean of every process's values [n], known to all of them."""
    if fabric.world_size > 1:
        distributed.all_reduce(values)
    return (values / fabric.world_size).tolist()


def gather_batch(fabric: "Fabric", share: Tensor) -> Tensor:
    """The global batch from every process's equal share of it: [B, ...] -> [processes * B, ...]."""
    if fabric.world_size == 1:
        return share
    shares = [torch.empty_like(share) for _ in range(fabric.world_size)]
    distributed.all_gather(shares, share.contiguous())
    return torch.cat(shares)


def largest_over_processes(fabric: "Fabric", value: int) -> int:
    """The largest of every process's values, known to all of them."""
    if fabric.world_size == 1:
        return value
    largest = torch.tensor(value, device=fabric.device)
    distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
    return int(largest)


def is_main_process() -> bool:
    """Whether this is process 0, which alone writes and prints."""
    from lightning_fabric.utilities import rank_zero_only

    return getattr(rank_zero_only, "rank", 0) == 0
