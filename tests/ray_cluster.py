"""A real Ray cluster of two nodes on the loopback device, for tests; the second node can be killed."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# `ray start` turns 127.0.0.1 into the machine's own address; with this Ray stays on the loopback device.
LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "150",  # ten seconds are too few where other things run as well
    "OMP_NUM_THREADS": "1",
}

CLUSTER = """
import sys

from ray.cluster_utils import Cluster

node = dict(node_ip_address="127.0.0.1", num_cpus=1, object_store_memory=80_000_000)
cluster = Cluster()  # gone with this process, however it ends
cluster.add_node(**node, include_dashboard=False, include_log_monitor=False)
second = cluster.add_node(**node)
raylet = second.all_processes["raylet"][0].process.pid
print("ready", cluster.gcs_address, raylet, flush=True)
sys.stdin.readline()
"""


def processes():
    """{pid: (parent, session, title)} of everything that runs."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if fields[0] != "Z":
                    found[int(entry.name)] = (int(fields[1]), int(fields[3]), title)
    return found


def kill_all(chosen):
    """SIGKILL the processes for which chosen(pid, parent, session) holds, until there are none."""
    deadline = time.monotonic() + 20
    while found := [pid for pid, (parent, session, _) in processes().items() if chosen(pid, parent, session)]:
        assert time.monotonic() < deadline, f"{found} do not die"
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


class TwoNodes:
    """A cluster whose second node can be killed."""

    def __init__(self, process, address, raylet):
        self.process, self.address, self.raylet = process, address, int(raylet)

    def actors(self):
        """{pid: (whether it is of the second node, title)} of the processes that work for us."""
        found = processes().items()
        return {pid: (parent == self.raylet, title) for pid, (parent, _, title) in found if "NodeActor" in title}

    def halt_first(self):
        """Halt the first node's processes, so that the chunks are left to the second; returns them."""
        first = [pid for pid, (second, _) in self.actors().items() if not second]
        for pid in first:
            os.kill(pid, signal.SIGSTOP)
        return first

    def second_works(self):
        """Whether a process of the second node is at work."""
        return any(second and "NodeActor.run" in title for second, title in self.actors().values())

    def kill_second(self):
        """Its raylet and workers together, as when a machine loses power."""
        kill_all(lambda pid, parent, session: self.raylet in (pid, parent))


STARTS = 2
"""A node that does not come up on a busy machine gets a second chance."""


@contextlib.contextmanager
def two_nodes(log):
    """A cluster as long as the block lasts; `log` takes what it complains of."""
    with contextlib.ExitStack() as tries:
        for _ in range(STARTS):
            process, line = tries.enter_context(_started(log))
            if line[:1] == ["ready"]:
                break
            tries.close()
        assert line[:1] == ["ready"], log.read_text()
        yield TwoNodes(process, *line[1:])


@contextlib.contextmanager
def _started(log):
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short: sockets are made in it
    with open(log, "a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER],
            env={**os.environ, **LOOPBACK, "RAY_TMPDIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        yield process, process.stdout.readline().split()
    finally:
        kill_all(lambda pid, parent, session: session == process.pid)
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)
