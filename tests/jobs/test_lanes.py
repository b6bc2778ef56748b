"""Commands side by side: they really run at once, are stopped together, and leave no process behind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from saltwm.ground.errors import DamagedError, MismatchError
from saltwm.jobs import lanes as lanes_module
from saltwm.jobs.lanes import Lanes, lanes
from saltwm.jobs.study import Step, ready

PATIENCE = 60


def waiting(mine, other):
    """A command that leaves a file and ends when it finds the other's."""
    loop = f"while not Path({str(other)!r}).exists(): time.sleep(0.05)"
    return f'timeit -n 1 -r 1 "from pathlib import Path; import time; Path({str(mine)!r}).touch()" "{loop}"'


def sleeping(seconds=PATIENCE):
    return f"timeit -n 1 -r 1 'import time; time.sleep({seconds})'"


def test_two_commands_run_at_the_same_time(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    with lanes(2, tmp_path / "logs") as some:
        some.start(waiting(a, b), "first")
        assert some.has_room
        some.start(waiting(b, a), "second")
        assert not some.has_room
        assert {some.next_end()[1], some.next_end()[1]} == {0}
    assert "loop" in (tmp_path / "logs" / "first.log").read_text()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("lay", [os.symlink, os.link, lambda precious, log: os.mkfifo(log)])
def test_a_log_is_not_written_through_a_link_a_second_name_or_a_pipe(tmp_path, lay):
    (tmp_path / "logs").mkdir()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    lay(precious, tmp_path / "logs" / "first.log")
    with lanes(2, tmp_path / "logs") as some, pytest.raises(DamagedError, match=r"first\.log: a link, a pipe"):
        some.start(sleeping(), "first")
    assert precious.read_text() == "mine"


def test_each_has_its_share_of_the_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(lanes_module.os, "cpu_count", lambda: 8)
    seen = tmp_path / "seen"
    code = f"import os; open({str(seen)!r}, 'w').write(os.environ['OMP_NUM_THREADS'])"
    with lanes(2, tmp_path / "logs") as some:
        some.start(f'timeit -n 1 -r 1 "{code}"', "first")
        some.next_end()
    assert seen.read_text() == "4"


def test_a_stop_is_passed_on_to_all(tmp_path):
    some = Lanes(2, tmp_path / "logs", lambda: signal.SIGTERM)
    some.start(sleeping(), "first")
    some.start(sleeping(PATIENCE + 1), "second")
    began = time.monotonic()
    codes = [some.next_end()[1], some.next_end()[1]]
    assert codes == [-signal.SIGTERM] * 2
    assert time.monotonic() - began < PATIENCE / 2


def test_an_error_leaves_no_process_behind(tmp_path):
    children = []

    def fail():
        with lanes(2, tmp_path / "logs") as some:
            some.start(sleeping(), "first")
            children.extend(some._running.values())
            raise MismatchError("something else")

    with pytest.raises(MismatchError):
        fail()
    assert [child.poll() for child in children] == [-signal.SIGTERM]


def test_a_killed_study_stops_what_it_runs(tmp_path):
    script = (
        "from pathlib import Path; from saltwm.jobs.lanes import lanes\n"
        f"with lanes(1, Path({str(tmp_path)!r})) as some:\n"
        f"    some.start({sleeping()!r}, 'first'); print(next(iter(some._running.values())).pid, flush=True)\n"
        "    print(some.next_end()[1], flush=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=PATIENCE / 2)[0].strip() == str(-signal.SIGTERM)


# --- which steps may begin -------------------------------------------------------------------------------------------


class Named:
    """A job that is known by its command alone."""

    VERB = "noop"

    def __init__(self, name):
        self.name = name


def step(name, *strand):
    return type("Named", (Step,), {"command": property(lambda self: name)})(Named(name), False, None, strand)


def test_a_step_waits_for_its_data_and_for_its_own_variant_alone():
    missing = [
        step("collect reacher", "reacher"),
        step("train reacher salt", "reacher", "salt"),
        step("train cube salt", "cube", "salt"),
        step("evaluate cube salt", "cube", "salt"),
        step("train cube lewm", "cube", "lewm"),
    ]
    names = [one.command for one in ready(missing, [])]
    assert names == ["collect reacher", "train cube salt", "train cube lewm"]
    assert [one.command for one in ready(missing, ["train cube salt"])] == ["collect reacher", "train cube lewm"]
    assert [one.command for one in ready(missing[1:], [])] == [
        "train reacher salt",
        "train cube salt",
        "train cube lewm",
    ]
