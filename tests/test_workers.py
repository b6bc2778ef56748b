"""Workers: items are done once, the dead and the hung are told, errors travel, nobody is left behind."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from processes import is_gone

from saltwm.ground.errors import MismatchError, SaltError
from saltwm.processes import pool as module
from saltwm.processes.pool import WORKER_NUMBER, Event, Workers, signals_held, work_off

pytestmark = pytest.mark.usefixtures("spawned_workers")


def writer(folder):
    """Work for the tests: an item is (name, what to do)."""

    def work(item, report):
        name, deed = item
        if deed == "refuse":
            raise MismatchError("these do not belong together")
        if deed == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if deed == "die once" and not (folder / f"{name}-began").exists():
            (folder / f"{name}-began").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if deed == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        while deed == "loop":
            time.sleep(0.1)
        for _ in range(4 if deed == "advance" else 0):
            report()
            time.sleep(0.3)
        report()
        (folder / name).write_text(str(os.getpid()))

    return work


def run(pool, items):
    """Every event until all items are done or lost."""
    events, todo = [], list(items)
    while todo or pool.busy:
        while todo and pool.free:
            pool.assign(todo.pop(0))
        events += pool.events()
    return [(event.kind, event.item[0], event.why) for event in events]


def test_items_are_done_by_few_processes_that_end_with_the_block(tmp_path):
    with Workers(2, writer, tmp_path) as pool:
        events = run(pool, [(str(i), "write") for i in range(6)])
        pids = {int((tmp_path / str(i)).read_text()) for i in range(6)}
        assert 1 <= len(pids) <= 2
        assert not any(is_gone(pid) for pid in pids)
    assert all(is_gone(pid) for pid in pids)
    for kind in ("part", "done"):
        assert sorted(name for k, name, _ in events if k == kind) == [str(i) for i in range(6)]


def test_a_dead_worker_is_named_and_another_takes_over(tmp_path):
    with Workers(1, writer, tmp_path) as pool:
        events = run(pool, [("a", "die"), ("b", "write")])
    assert events[0] == ("lost", "a", "died (signal SIGKILL)")
    assert events[-1][:2] == ("done", "b")


def numbered(folder):
    """Work for the test below: an item leaves its worker's number, and some kill the worker after that."""

    def work(item, report):
        name, deed = item
        (folder / name).write_text(os.environ[WORKER_NUMBER])
        if deed == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.5)  # so that each worker gets an item
        report()

    return work


def test_workers_are_numbered_and_a_lost_ones_number_goes_to_the_next(tmp_path):
    with Workers(3, numbered, tmp_path) as pool:
        run(pool, [("a", "write"), ("b", "die"), ("c", "write")])
        found = [(tmp_path / name).read_text() for name in "abc"]
        assert found == ["0", "1", "2"]
        run(pool, [("d", "write"), ("e", "write"), ("f", "write")])
        assert sorted((tmp_path / name).read_text() for name in "def") == ["0", "1", "2"]


def test_an_item_whose_worker_is_lost_is_handed_out_again(tmp_path):
    with Workers(1, writer, tmp_path) as pool:
        events = [event for event in work_off(pool, [("a", "die once"), ("b", "write")], str) if event is not None]
    found = [(event.kind, event.item[0]) for event in events if event.kind != "part"]
    assert found == [("lost", "a"), ("done", "a"), ("done", "b")]


class LosingPool:
    """A pool that loses the worker of every item."""

    free = True

    def __init__(self, lost):
        self.lost, self.items = lost, []

    @property
    def busy(self):
        return bool(self.items)

    def assign(self, item):
        self.items.append(item)

    def events(self):
        return [dataclasses.replace(self.lost, item=self.items.pop())]


@pytest.mark.parametrize(
    ("lost", "hint"),
    [
        (Event("lost", None, "died (signal SIGKILL)"), "is memory short?"),
        (Event("lost", None, "hung and was stopped", hung=True), "is the machine too busy for as many `workers`?"),
    ],
)
def test_an_item_that_keeps_losing_its_worker_is_given_up(capsys, lost, hint):
    words = f"part 5: a worker {lost.why}, 3 times in a row ({hint}); what is complete is kept"
    with pytest.raises(SaltError, match=re.escape(words)):
        list(work_off(LosingPool(lost), [5], lambda item: f"part {item}"))
    assert capsys.readouterr().err.count("tried again") == 2


@pytest.mark.parametrize(("deed", "why"), [("freeze", "hung (no sign of life"), ("loop", "hung (nothing finished")])
def test_a_hung_worker_is_stopped(tmp_path, monkeypatch, deed, why):
    monkeypatch.setattr(module, "SILENCE_SECONDS", 6.0 if deed == "loop" else 2.0)
    with Workers(1, writer, tmp_path, part_seconds=60.0 if deed == "freeze" else 1.0) as pool:
        events = run(pool, [("a", deed)])
        assert [event[:2] for event in events] == [("lost", "a")]
        assert why in events[0][2]
        assert not pool.busy


def test_a_worker_that_finishes_parts_may_take_longer_than_one_part_may(tmp_path, monkeypatch):
    true_clock, added = time.monotonic, []
    monkeypatch.setattr(module.time, "monotonic", lambda: true_clock() + sum(added))
    monkeypatch.setattr(module, "SILENCE_SECONDS", 1e9)
    monkeypatch.setattr(module, "ABSENCE_SECONDS", 1e9)
    kinds = []
    with Workers(1, writer, tmp_path, part_seconds=100.0) as pool:
        pool.assign(("a", "advance"))
        while pool.busy:
            found = [event.kind for event in pool.events()]
            kinds += found
            added += [60.0] * len(found)  # as if the next part took a minute
    assert kinds == ["part"] * 5 + ["done"]


def test_an_absence_of_the_parent_counts_against_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SILENCE_SECONDS", 2.0)
    monkeypatch.setattr(module, "ABSENCE_SECONDS", 1.0)
    with Workers(1, writer, tmp_path) as pool:
        run(pool, [("a", "write")])
        pid = int((tmp_path / "a").read_text())
        os.kill(pid, signal.SIGSTOP)
        pool.events()
        time.sleep(2.5)  # as if the terminal had suspended all of us
        os.kill(pid, signal.SIGCONT)
        run(pool, [("b", "write")])
        assert int((tmp_path / "b").read_text()) == pid


def test_an_error_of_a_known_kind_arrives_with_its_message(tmp_path):
    with Workers(1, writer, tmp_path) as pool, pytest.raises(MismatchError, match="these do not belong together"):
        run(pool, [("a", "refuse")])


INTERRUPTED = """
import os, signal, sys, time
from saltwm.processes.pool import Workers
from tests_support import make

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: None)  # the parent has its own idea of Ctrl-C
    with Workers(2, make) as pool:
        pool.assign(0)
        for _ in range(40):
            os.killpg(0, signal.SIGINT)  # as a terminal does, from the child's first moment on
            time.sleep(0.02)
        while pool.busy:
            for event in pool.events():
                print(event.kind, flush=True)
"""
SUPPORT = """
import time
time.sleep(0.4)  # an import that takes its time

def make():
    return lambda item, report: None
"""


def test_held_signals_wait_though_another_thread_could_take_them():
    idle = threading.Event()
    other = threading.Thread(target=idle.wait)  # started before the block: the system may hand the signal to it
    other.start()
    inside = []

    def interrupted_inside():
        with signals_held(signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(20):
                time.sleep(0.01)  # where Python would hear of it
            inside.append("undisturbed")

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted_inside()
    finally:
        idle.set()
        other.join()
    assert inside == ["undisturbed"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_a_worker_is_starting_leaves_it_to_the_parent(tmp_path):
    (tmp_path / "main.py").write_text(INTERRUPTED)
    (tmp_path / "tests_support.py").write_text(SUPPORT)
    command = [sys.executable, str(tmp_path / "main.py")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True, timeout=60)
    assert result.stderr == ""
    assert result.stdout.split() == ["done"]
