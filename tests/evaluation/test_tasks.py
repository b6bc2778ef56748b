"""Tasks: the same for everybody, held out where promised, and drawn as the authors draw them where promised."""

import dataclasses

import numpy as np
import pytest

from saltwm.data.split import held_out_episodes
from saltwm.disk.records import read_tasks
from saltwm.envs import make_env
from saltwm.evaluation.protocols import PROTOCOLS
from saltwm.evaluation.tasks import choose_tasks, write_tasks
from saltwm.ground.errors import DamagedError, MismatchError, UsageError

PAPER, CLEAN = PROTOCOLS["paper"], PROTOCOLS["clean"]


@pytest.fixture(scope="module")
def held_out(dataset):
    return held_out_episodes(dataset, 3072, 0.5)


def test_clean_tasks_are_held_out_one_per_episode_and_far_enough(dataset, held_out):
    chosen = choose_tasks(dataset, CLEAN, 8, 1, held_out)
    episodes = [task.episode for task in chosen.tasks]
    assert len(set(episodes)) == 8
    assert set(episodes) <= set(held_out.tolist())
    assert all(task.distance >= CLEAN.min_distance for task in chosen.tasks)
    assert chosen.pairs_considered == 8 + chosen.pairs_solved_at_start + chosen.pairs_too_near


def test_a_task_is_a_start_and_the_state_that_its_episode_reached_later(dataset, held_out):
    env = make_env("two-room")
    for task in choose_tasks(dataset, CLEAN, 5, 1, held_out).tasks:
        states, actions = dataset.states(task.episode), dataset.actions(task.episode)
        goal_step = task.start_step + CLEAN.goal_offset_steps
        assert task.state == tuple(states[task.start_step])
        assert task.goal == tuple(states[goal_step])
        # The dataset's own actions reach the goal, so every task can be solved within the budget.
        env.reset(seed=0, options={"state": np.array(task.state), "goal": np.array(task.goal)})
        for action in actions[task.start_step : goal_step]:
            env.step(action)
        assert env.succeeded()


def test_tasks_depend_on_the_seed_and_on_nothing_else(dataset, held_out):
    first, again, other = (choose_tasks(dataset, CLEAN, 5, seed, held_out) for seed in (1, 1, 2))
    assert first.sha256 == again.sha256
    assert first.sha256 != other.sha256


def test_paper_tasks_are_the_rows_that_the_published_code_draws(dataset):
    """An independent re-telling: number the rows of the file that have a goal 25 rows later, draw, sort."""
    rows = [
        (episode, step)
        for episode, length in enumerate(dataset.lengths.tolist())
        for step in range(length + 1)
        if step <= (length + 1) - 25 - 1
    ]
    drawn = np.sort(np.random.default_rng(2).choice(len(rows) - 1, size=12, replace=False))
    chosen = choose_tasks(dataset, PAPER, 12, 2)
    assert [(task.episode, task.start_step) for task in chosen.tasks] == [rows[index] for index in drawn]
    assert chosen.pairs_solved_at_start == sum(task.distance < 1 for task in chosen.tasks)


def test_too_many_tasks_say_how_many_there_are(dataset, held_out):
    with pytest.raises(UsageError, match=r"(\d+) of 10000 tasks fit in \d+ episodes; ask for no more than those \1"):
        choose_tasks(dataset, CLEAN, 10_000, 1, held_out)
    with pytest.raises(UsageError, match="too few"):
        choose_tasks(dataset, PAPER, 10_000_000, 1)


def test_where_fewer_will_do_all_that_fit_are_taken_and_are_those_that_the_number_asks_for(dataset, held_out):
    fewer = choose_tasks(dataset, CLEAN, 10_000, 1, held_out, or_fewer=True)
    assert 0 < len(fewer.tasks) <= len(held_out)
    assert fewer.sha256 == choose_tasks(dataset, CLEAN, len(fewer.tasks), 1, held_out).sha256
    with pytest.raises(UsageError, match="0 of 5 tasks fit"):
        choose_tasks(dataset, dataclasses.replace(CLEAN, min_distance=1e9), 5, 1, held_out, or_fewer=True)


def test_clean_tasks_need_held_out_episodes(dataset):
    with pytest.raises(UsageError, match="`held_out`"):
        choose_tasks(dataset, CLEAN, 5, 1, None)


def test_frozen_tasks_come_back_and_edited_ones_are_refused(dataset, held_out, tmp_path):
    chosen = choose_tasks(dataset, CLEAN, 3, 1, held_out)
    path = tmp_path / "tasks.json"
    write_tasks(path, chosen)
    assert read_tasks(path) == chosen
    write_tasks(path, chosen)
    with pytest.raises(MismatchError, match=r"belongs to another job \(tasks: expected"):
        write_tasks(path, dataclasses.replace(chosen, seed=9))
    path.write_text(path.read_text().replace('"start_step": ', '"start_step": 1'))
    with pytest.raises(DamagedError, match="edited"):
        read_tasks(path)
