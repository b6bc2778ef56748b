"""Suites on a real Ray cluster of two nodes on the loopback device, one of which is killed while it works."""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from saltwm.evaluation.protocols import planner_named
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.interop import on_ray
from saltwm.interop.on_ray import ChunkActor, RayWorkers
from saltwm.jobs.suite import Suite

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra ray is not installed")

# `ray start` turns 127.0.0.1 into the machine's own address; with this Ray stays on the loopback device.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}

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
        """{pid: (whether it is of the second node, title)} of the processes that run chunks."""
        found = processes().items()
        return {pid: (parent == self.raylet, title) for pid, (parent, _, title) in found if "ChunkActor" in title}

    def halt_first(self):
        """Halt the first node's processes, so that the chunks are left to the second; returns them."""
        first = [pid for pid, (second, _) in self.actors().items() if not second]
        for pid in first:
            os.kill(pid, signal.SIGSTOP)
        return first

    def second_works(self):
        """Whether a process of the second node is running a chunk."""
        return any(second and "ChunkActor.run" in title for second, title in self.actors().values())

    def kill_second(self):
        """Its raylet and workers together, as when a machine loses power."""
        kill_all(lambda pid, parent, session: self.raylet in (pid, parent))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short: sockets are made in it
    log = tmp_path_factory.mktemp("cluster") / "log"
    with open(log, "w") as errors:
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
        line = process.stdout.readline().split()
        assert line[:1] == ["ready"], log.read_text()
        yield TwoNodes(process, *line[1:])
    finally:
        kill_all(lambda pid, parent, session: session == process.pid)
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def suite_on(cluster, dataset, out, *words):
    """The verb as typed, in a process of its own: Ray leaves threads and handlers in whoever connects."""
    command = ["suite", *words, "--data", str(dataset.path), "--out", str(out), "--protocols", "paper", "--json"]
    return subprocess.Popen(
        [sys.executable, "-c", "from saltwm.cli import main; main()", *command, "--ray", cluster.address],
        env={**os.environ, **LOOPBACK},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def records(results):
    """The bytes of every record that has no clock in it."""
    kept = ("episodes.jsonl", "actions.npy")
    return {path.relative_to(results): path.read_bytes() for path in results.rglob("*") if path.name in kept}


def test_a_killed_node_costs_a_retry_and_changes_no_byte(cluster, dataset, tmp_path):
    local = {"out": tmp_path / "local", "workers": 1, "pictures": 0, "protocols": ("paper",)}
    Suite((), (dataset.path,), seeds=(1, 2), tasks=50, **local).do()
    process = suite_on(cluster, dataset, tmp_path / "ray", "--seeds", "1", "2", "--tasks", "50", "--pictures", "0")
    halted = []
    while not cluster.second_works():
        assert process.poll() is None, process.communicate()
        halted += cluster.halt_first()
        time.sleep(0.005)
    cluster.kill_second()
    for pid in set(halted):
        os.kill(pid, signal.SIGCONT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "a worker on 127.0.0.1 was lost" in errors
    assert [row["n"] for row in json.loads(output)["rows"]] == [50, 50]
    assert len(records(tmp_path / "ray")) == 4
    assert records(tmp_path / "ray") == records(tmp_path / "local")


def test_a_checkpoint_travels_to_a_node_and_a_model_plans_there_as_here(cluster, dataset, run, tmp_path):
    words = ("--planners", "gauss-newton", "--tasks", "6", "--no-random", "--workers", "1", "--pictures", "0")
    process = suite_on(cluster, dataset, tmp_path / "ray", str(run), *words)
    local = {"out": tmp_path / "local", "workers": 1, "pictures": 0, "protocols": ("paper",)}
    Suite((run,), (dataset.path,), planners=(planner_named("gauss-newton"),), tasks=6, no_random=True, **local).do()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert len(records(tmp_path / "ray")) == 2
    assert records(tmp_path / "ray") == records(tmp_path / "local")


# --- without a cluster -----------------------------------------------------------------------------------------------


def pool(address="127.0.0.1:1"):
    return RayWorkers(address, 1, item_seconds=60.0)


def test_without_ray_the_user_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'saltwm\[ray\]'"):
        pool()


@pytest.mark.parametrize(
    ("address", "message"),
    [("127.0.0.1:1", "nobody answers there"), ("nowhere", "expected HOST:PORT"), ("a:99999", "nobody answers there")],
)
def test_an_address_without_a_cluster_is_refused_at_once(address, message):
    with pytest.raises(UsageError, match=message), pool(address):
        pass


def test_a_node_with_other_software_is_refused_by_name():
    other = {"node": "10.0.0.7", "software": {**on_ray.software(), "torch": "1.0"}}
    with pytest.raises(MismatchError, match=r"10.0.0.7: torch 1.0 there, 2.* here; install the same"):
        pool()._welcome(on_ray._Actor(None, None), other)
    same = {"node": "10.0.0.7", "software": on_ray.software()}
    pool()._welcome(on_ray._Actor(None, None), same)


def test_an_error_on_a_node_comes_back_as_its_kind_and_its_line(monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))  # an actor's process is its own
    answer = ChunkActor().run({"method": "random"}, {}, 0)
    assert answer == {"error": "DamagedError", "message": "the job: run is missing"}
