"""P17 to P20 of docs/promises.md: impossible goals, lost workers, killed suites, any number of workers."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from processes import wait_until_gone, workers_of

from saltwm.disk.records import Task, read_cells, read_plan
from saltwm.envs import make_env
from saltwm.evaluation.contests import comparisons
from saltwm.evaluation.protocols import PROTOCOLS
from saltwm.evaluation.rollout import run_tasks
from saltwm.ground.config import CEMConfig
from saltwm.planning.policy import RandomPolicy
from saltwm.report.tables import pooled_rows, success_table

FAST = CEMConfig(candidates=12, iterations=2, elites=4)
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


# --- P17 --------------------------------------------------------------------------------------------------------------

ODD_GOALS = {
    "two-room": (
        lambda state: state,  # start is goal
        lambda state: np.clip(state + 3.0, 20.0, 100.0),  # reached already
        lambda _: np.array([112.0, 150.0]),  # inside the wall
        lambda _: np.array([5000.0, -5000.0]),  # outside the world
        lambda state: 224.0 - state,  # farther than the budget can take
    ),
    "push-t": (
        lambda state: state,
        lambda state: state + np.eye(len(state))[2] * 1e4,  # the block far outside
        lambda state: state + np.eye(len(state))[4] * np.pi,  # turned over
    ),
    "reacher": (
        lambda state: state,
        lambda state: state + np.eye(len(state))[state_index("reacher", "joint_angles") + 1] * 4.0,  # past its stop
    ),
    "cube": (
        lambda state: state,
        lambda state: state - np.eye(len(state))[state_index("cube", "cube_0_position") + 2] * 0.5,  # under the table
    ),
}


def state_index(environment, field):
    fields = {f.name: f.start for f in make_env(environment, image_size=16).state_fields}
    return fields[field]


def odd_tasks(env, count):
    """Tasks from random starts to goals that are unreachable, degenerate or solved, all kinds in turn."""
    goals, tasks = ODD_GOALS[env.name], []
    for index in range(count):
        env.reset(seed=index)
        state = env.state()
        goal = np.asarray(goals[index % len(goals)](state), np.float64)
        distance = float(env.goal_distance(state[None], goal[None])[0])
        tasks.append(Task(index, 0, 0, tuple(state.tolist()), tuple(goal.tolist()), distance))
    return tasks


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ("two-room", 12),
        ("push-t", 6),
        ("reacher", 2),
        *(
            pytest.param(name, count, marks=[pytest.mark.full, pytest.mark.timeout(900)])
            for name, count in [("two-room", 50), ("push-t", 20), ("reacher", 20), ("cube", 10)]
        ),
    ],
)
@pytest.mark.parametrize("protocol", ["clean", "paper"])
def test_p17_odd_goals_end_within_the_budget_with_a_reason(environment, count, protocol):
    protocol = PROTOCOLS[protocol]
    env = make_env(environment, variant=protocol.variant, image_size=16)
    policy = RandomPolicy(env.action_space.low, env.action_space.high, steps=25)
    tasks = odd_tasks(env, count)
    outcomes = run_tasks(env, protocol, tasks, policy, frameskip=5)
    env.close()
    for task, outcome in zip(tasks, outcomes, strict=True):
        record = outcome.record
        assert record.reason in ("reached", "budget", "solved-at-start")
        assert record.success == (record.reason != "budget")
        assert record.steps_taken <= protocol.budget_steps
        assert np.isfinite([record.start_distance, record.final_distance, record.closest_distance]).all()
        if protocol.name == "clean":
            assert (record.reason == "solved-at-start") == (task.distance < 1)


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.full)])
def test_p17_a_planning_agent_ends_with_a_reason_too(run, count):
    from saltwm.disk.checkpoint import load
    from saltwm.planning.agent import Agent

    env = make_env("two-room", image_size=16)
    agent = Agent(load(run), FAST, action_low=env.action_space.low, action_high=env.action_space.high)
    for outcome in run_tasks(env, PROTOCOLS["clean"], odd_tasks(env, count), agent, frameskip=5):
        assert outcome.record.reason in ("reached", "budget", "solved-at-start")
        assert np.isfinite([cost for plan in outcome.record.plans for cost in plan.elite_costs]).all()


# --- real processes ---------------------------------------------------------------------------------------------------


def start(*words):
    """A saltwm command as a user's process, in a process group of its own."""
    command = [sys.executable, "-m", "saltwm", *map(str, words)]
    return subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def finish(process, code=0):
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, (process.returncode, err)
    return out


def records(results):
    return {path.parent.name: path.read_bytes() for path in sorted(results.glob("evaluations/*/episodes.jsonl"))}


class Listener(threading.Thread):
    """Reads a process's standard error and notes when each line came."""

    def __init__(self, process):
        super().__init__(daemon=True)
        self.process, self.lines = process, []
        self.start()

    def run(self):
        for line in self.process.stderr:
            self.lines.append((time.monotonic(), line))

    def losses(self):
        return [moment for moment, line in self.lines if "a worker died (signal SIGKILL)" in line]


def evaluate_words(who, dataset, results, workers, tasks=200):
    tail = ("--protocol", "paper", "--tasks", tasks, "--workers", workers, "--pictures", 0)
    return ("evaluate", who, "--data", dataset.path, "--out", results, *tail)


@pytest.fixture(scope="module")
def calm(dataset, tmp_path_factory):
    """What the random policy records on 200 tasks when nobody disturbs it, with one worker."""
    results = tmp_path_factory.mktemp("calm")
    finish(start(*evaluate_words("random", dataset, results, workers=1)))
    return results


# --- P18 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounds", "kills"), [(1, 2), pytest.param(10, 2, marks=[pytest.mark.full, pytest.mark.timeout(1200)])]
)
def test_p18_a_killed_worker_is_found_at_once_and_changes_nothing(calm, dataset, tmp_path, rounds, kills):
    chance = random.Random(1)
    for number in range(rounds):
        process = start(*evaluate_words("random", dataset, tmp_path / str(number), workers=2))
        listener = Listener(process)
        for kill in range(kills):
            while len(workers_of(process.pid)) < 2:
                assert process.poll() is None, listener.lines
                time.sleep(0.02)
            time.sleep(chance.uniform(0.0, 0.5))
            killed = time.monotonic()
            os.kill(chance.choice(workers_of(process.pid)), signal.SIGKILL)
            while len(listener.losses()) <= kill:
                assert time.monotonic() - killed < 5.0, "the dead worker was not found in 5 s"
                time.sleep(0.02)
        assert process.wait(timeout=300) == 0, listener.lines
        assert not wait_until_gone(process.pid)
        process.stdout.close()
        listener.join()
        process.stderr.close()
        assert records(tmp_path / str(number)) == records(calm)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_p18_a_stopped_evaluation_leaves_nobody_behind_and_goes_on(calm, dataset, tmp_path, number, code):
    words = evaluate_words("random", dataset, tmp_path, workers=1)
    process = start(*words)
    while not list(tmp_path.glob("evaluations/*/chunks/*.json")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    os.kill(process.pid, number)
    finish(process, code)
    assert not wait_until_gone(process.pid)
    assert records(tmp_path) == {}
    if number == signal.SIGKILL:  # the hardest of the three
        finish(start(*words))
        assert records(tmp_path) == records(calm)


# --- P19 --------------------------------------------------------------------------------------------------------------


def printed(results):
    from io import StringIO

    from rich.console import Console

    buffer = StringIO()
    Console(file=buffer, width=200).print(
        success_table(read_cells(results), comparisons(read_cells(results)), read_plan(results))
    )
    return buffer.getvalue()


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=[pytest.mark.full, pytest.mark.timeout(1800)])])
def test_p19_a_killed_suite_repeats_no_finished_cell_and_prints_no_partial_mean(dataset, tmp_path, kills):
    seeds = tuple(range(1, 2 * kills + 2))
    tail = ("--protocols", "paper", "--seeds", *seeds, "--tasks", 60, "--workers", 1, "--pictures", 0)
    words = ("suite", "--data", dataset.path, "--out", tmp_path, *tail)
    kept = {}
    for _ in range(kills):
        process = start(*words)
        before = len(kept)
        while len(list(tmp_path.glob("evaluations/*/evaluation.json"))) <= before:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        finish(process, -signal.SIGKILL)
        finished = {path: path.read_bytes() for path in tmp_path.glob("evaluations/*/evaluation.json")}
        # Byte for byte the same, its seconds included: no finished cell was run again.
        assert {path: finished[path] for path in kept} == kept
        kept = finished
        assert len(kept) < len(seeds), "the suite was through before it could be killed"
        assert all(row.mean is None for row in pooled_rows(read_cells(tmp_path), read_plan(tmp_path)))
        assert "±" not in printed(tmp_path)
        assert "no mean, because seed" in printed(tmp_path)
    finish(start(*words))
    assert {path: path.read_bytes() for path in kept} == kept
    assert f"over seeds {', '.join(map(str, seeds))}" in printed(tmp_path)


# --- P20 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [4, pytest.param(2, marks=pytest.mark.full)])
def test_p20_any_number_of_workers_records_the_same_bytes(calm, dataset, tmp_path, workers):
    finish(start(*evaluate_words("random", dataset, tmp_path, workers)))
    assert records(tmp_path) == records(calm)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("planner", ["cem", "gauss-newton"])
def test_p20_planned_episodes_do_not_depend_on_the_workers_either(run, dataset, tmp_path, planner):
    found = []
    for workers in (1, 2, 4):
        words = evaluate_words(run, dataset, tmp_path / str(workers), workers, tasks=23)
        finish(start(*words, "--planner", planner))
        found.append(records(tmp_path / str(workers)))
    assert found[0] == found[1] == found[2]
