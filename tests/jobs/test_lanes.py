"""Commands side by side: they really run at once, are stopped together, and leave no process behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from saltwm.ground.errors import DamagedError, MismatchError
from saltwm.jobs import lanes as lanes_module
from saltwm.jobs.collect import Collect
from saltwm.jobs.evaluate import Evaluate
from saltwm.jobs.lanes import Lanes, lanes
from saltwm.jobs.shipping import Card
from saltwm.jobs.study import Step, ready
from saltwm.jobs.train import Train

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


DATA, RUN = Path("data"), Path("run")


def step(job, *strand, record=None):
    return Step(job, False, None, strand, record and Path("results") / record / "evaluation.json")


def test_a_step_waits_for_its_data_and_for_its_own_variant_alone():
    missing = [
        step(Collect("reacher", DATA), "reacher"),
        step(Train(DATA, RUN), "reacher", "salt"),
        step(Train(DATA, RUN), "cube", "salt"),
        step(Evaluate("run"), "cube", "salt", record="cube-salt-clean-seed1"),
        step(Train(DATA, RUN), "cube", "lewm"),
    ]
    collect, of_reacher, of_cube, _, of_lewm = missing
    assert ready(missing, []) == [collect, of_cube, of_lewm]
    assert ready(missing, ["cube-salt-train"]) == [collect, of_lewm]
    assert ready(missing[1:], []) == [of_reacher, of_cube, of_lewm]


def test_evaluations_of_one_run_need_not_wait_for_each_other_and_its_card_waits_for_all():
    first = step(Evaluate("run", seed=1), "cube", "salt", record="cube-salt-long-seed1")
    second = step(Evaluate("run", seed=2), "cube", "salt", record="cube-salt-long-seed2")
    card = step(Card("run"), "cube", "salt")
    assert ready([first, second, card], []) == [first, second]
    assert ready([second, card], ["cube-salt-long-seed2-evaluate"]) == []
    assert ready([card], []) == [card]


def test_an_evaluation_under_way_is_not_begun_again_under_the_spelling_that_it_has_once_its_tasks_are_written():
    first = step(Evaluate("run", data=DATA, seed=2), "cube", "salt", record="cube-salt-long-seed2")
    again = step(Evaluate("run", task_set=Path("tasks.json")), "cube", "salt", record="cube-salt-long-seed2")
    assert first.command != again.command
    assert ready([again], [first.name]) == []
