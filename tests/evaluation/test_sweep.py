"""The sweep's rule: which weights are tried, which is chosen, and on which tasks it may not be."""

import dataclasses

import pytest

from saltwm.disk.records import read_tasks
from saltwm.evaluation import sweep
from saltwm.ground.errors import MismatchError
from saltwm.losses.table import OBJECTIVES

TASK_SET = "results/tasks/two-room-clean-seed1.json"


def test_a_third_and_three_times_the_published_weight_are_tried():
    assert [sweep.scaled(18.0, factor) for factor in sweep.FACTORS] == [6.0, 18.0, 54.0]
    assert [sweep.scaled(0.1, factor) for factor in sweep.FACTORS] == [0.0333, 0.1, 0.3]


@pytest.mark.parametrize(
    ("reached", "chosen"),
    [
        ({6.0: 30, 18.0: 40, 54.0: 39}, 18.0),
        ({6.0: 41, 18.0: 40, 54.0: 39}, 6.0),
        ({6.0: 30, 18.0: 40, 54.0: 40}, 18.0),  # a tie goes to the published one
        ({6.0: 40, 18.0: 30, 54.0: 40}, 6.0),  # and without it to the smallest
        ({6.0: 0, 18.0: 0, 54.0: 0}, 18.0),
    ],
)
def test_the_weight_that_reaches_most_is_chosen_and_ties_go_to_the_published(reached, chosen):
    assert sweep.chosen(reached, 18.0) == chosen


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if OBJECTIVES[name].terms])
def test_the_swept_weight_is_of_a_term_that_counts_in_every_environment_of_the_sweep(name):
    row = OBJECTIVES[name]
    (term,) = (term for term in row.terms if term.name == row.swept)
    assert all(term.weight_in(environment, 0.3) > 0 for environment in sweep.ENVIRONMENTS)


def test_tuning_tasks_share_no_episode_with_the_evaluation():
    tasks = read_tasks(TASK_SET)
    other_data = dataclasses.replace(tasks, dataset_sha256="f" * 64)
    other_episodes = dataclasses.replace(
        tasks, tasks=tuple(dataclasses.replace(task, episode=task.episode + 10_000) for task in tasks.tasks)
    )
    sweep.require_apart(other_data, tasks)
    sweep.require_apart(other_episodes, tasks)
    with pytest.raises(MismatchError, match=r"100 episodes of dataset 3ad082bb2b2e .*tuning and evaluation.*held_out"):
        sweep.require_apart(tasks, tasks)
