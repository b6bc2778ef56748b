"""Acting on tasks: success, budget, holding, looking back, and independence of neighbours."""

import dataclasses

import numpy as np
import pytest

from saltwm.disk.records import Task
from saltwm.envs import make_env
from saltwm.envs.two_room import TwoRoom
from saltwm.evaluation.protocols import PROTOCOLS
from saltwm.evaluation.rollout import run_tasks
from saltwm.ground.errors import ShapeError, UsageError
from saltwm.planning.policy import Decision, RandomPolicy

CLEAN, PAPER = PROTOCOLS["clean"], PROTOCOLS["paper"]
LEFT, RIGHT = (40.0, 150.0), (90.0, 150.0)


class Constant:
    """Goes one way, and remembers what it was shown."""

    def __init__(self, action, steps=25, window=1):
        self.action, self.steps, self.window = action, steps, window
        self.views = []

    def decide(self, view, keys):
        self.views.append(view)
        actions = np.tile(np.array(self.action, np.float32), (len(keys), self.steps, 1))
        return Decision(actions, np.empty((len(keys), 0)))


def task(start=LEFT, goal=RIGHT, index=0):
    distance = float(np.hypot(*np.subtract(start, goal))) / 16
    return Task(index, 0, 0, start, goal, distance)


def act(tasks, policy, protocol=CLEAN):
    return run_tasks(
        make_env("two-room", variant=protocol.variant, image_size=16), protocol, tasks, policy, frameskip=5
    )


def test_an_episode_ends_when_the_goal_is_reached():
    outcome = act([task()], Constant((1, 0)))[0]
    # 50 units at 5 a step, and success within 16: after 7 steps 15 units are left.
    assert outcome.record.success
    assert outcome.record.reason == "reached"
    assert outcome.record.steps_to_success == outcome.record.steps_taken == len(outcome.actions) == 7


def test_an_unreachable_goal_ends_with_the_budget():
    outcome = act([task()], Constant((-1, 0)))[0]
    assert not outcome.record.success
    assert outcome.record.reason == "budget"
    assert outcome.record.steps_to_success is None
    assert outcome.record.steps_taken == CLEAN.budget_steps
    assert [plan.step for plan in outcome.record.plans] == [0, 25]
    assert outcome.record.final_distance > outcome.record.start_distance
    assert outcome.record.closest_distance == outcome.record.start_distance


def test_a_goal_that_is_reached_already_is_said_in_clean_and_stepped_in_paper():
    solved = task(goal=(41.0, 150.0))
    assert act([solved], Constant((1, 0)))[0].record.reason == "solved-at-start"
    record = act([solved], Constant((0, 0)), PAPER)[0].record
    assert (record.reason, record.steps_to_success) == ("reached", 1)


def test_holding_asks_for_consecutive_steps():
    holding = dataclasses.replace(CLEAN, hold_steps=3)
    assert act([task()], Constant((1, 0)), holding)[0].record.steps_to_success == 9
    # Passing through the goal at full speed takes 7 steps inside it, so 8 are never held.
    too_long = dataclasses.replace(CLEAN, hold_steps=8)
    assert not act([task(goal=(75.0, 150.0))], Constant((1, 0)), too_long)[0].record.success


class BackAndForth(Constant):
    """Into the goal and out of it again, one step each."""

    def decide(self, view, keys):
        decision = super().decide(view, keys)
        decision.actions[:, 7::2] *= -1
        return decision


def test_steps_inside_the_goal_with_gaps_between_them_are_not_held():
    assert act([task()], BackAndForth((1, 0)))[0].record.success
    held = dataclasses.replace(CLEAN, hold_steps=2, budget_steps=25)  # one plan
    record = act([task()], BackAndForth((1, 0)), held)[0].record
    assert not record.success
    assert record.reason == "budget"


class Walled(TwoRoom):
    """A world that ends the episode beyond x = 60, and moves no more after that."""

    @property
    def over(self):
        return self.state()[0] > 60

    def _advance(self, action):
        assert not self.over
        super()._advance(action)


def walled(goal, **changes):
    env, protocol = Walled(image_size=16), dataclasses.replace(CLEAN, **changes)
    return run_tasks(env, protocol, [task(goal=goal)], Constant((1, 0)), frameskip=5)[0]


def test_an_episode_that_the_world_ends_is_over_and_not_reached():
    outcome = walled((90.0, 150.0))
    assert (outcome.record.success, outcome.record.reason) == (False, "world-ended")
    assert outcome.record.steps_taken == len(outcome.actions) == 5  # from 40 by 5 a step: 65 is the first beyond 60
    assert outcome.record.steps_to_success is None


def test_a_goal_that_is_reached_where_the_world_ends_counts_if_it_need_not_be_held_longer():
    assert walled((80.0, 150.0)).record.reason == "reached"  # at the step to 65, which ends the world too
    assert walled((80.0, 150.0), hold_steps=2).record.reason == "world-ended"


class Buffered(TwoRoom):
    """Draws each frame into the array of the one before."""

    buffer = np.zeros((16, 16, 3), np.uint8)

    def draw(self, size):
        self.buffer[:] = super().draw(size)
        return self.buffer


@pytest.mark.parametrize("window", [1, 3])
def test_frames_of_an_environment_that_draws_them_into_one_array_are_kept_apart(window):
    tasks, seen = [task(), task(start=(60.0, 60.0), goal=(110.0, 60.0), index=1)], []
    for env in (TwoRoom(image_size=16), Buffered(image_size=16)):
        policy = Constant((-0.5, 0.25), window=window)
        run_tasks(env, CLEAN, tasks, policy, frameskip=5)
        seen.append(policy.views[-1].frames)
    np.testing.assert_array_equal(*seen)


@pytest.mark.parametrize("window", [1, 3])
def test_a_policy_sees_frames_one_block_apart_and_the_blocks_between(window):
    policy = Constant((-0.5, 0.25), window=window)
    act([task()], policy)
    first, second = policy.views
    assert first.frames.shape[:2] == (1, 1)
    assert second.frames.shape[:2] == (1, window)
    assert second.past_blocks.shape == (1, window - 1, 10)
    env = make_env("two-room", image_size=16)
    env.restore(np.array(LEFT))
    seen = []
    for step in range(1, 26):
        env.step(np.array([-0.5, 0.25], np.float32))
        if step % 5 == 0:
            seen.append(env.render())
    np.testing.assert_array_equal(second.frames[0], np.stack(seen[-window:]))
    np.testing.assert_array_equal(second.past_blocks, np.tile([-0.5, 0.25], (1, window - 1, 5)))


def test_a_policy_that_looks_back_decides_whole_blocks():
    with pytest.raises(UsageError, match=r"Constant: decided 7 actions; .* window of 3 frames.* multiple of 5"):
        act([task()], Constant((-0.5, 0.25), steps=7, window=3))
    act([task()], Constant((-0.5, 0.25), steps=7))  # without a past there is nothing to misalign


def test_a_policy_that_decides_nothing_ends_with_its_name_and_not_never():
    with pytest.raises(UsageError, match="Constant: decided actions must be at least 1, found 0"):
        act([task()], Constant((-0.5, 0.25), steps=0))


def test_a_policy_that_decides_actions_of_another_size_is_refused_by_name():
    with pytest.raises(ShapeError, match=r"Constant: actions: expected shape \[N=2, T, A=2\], found \[2, 25, 3\]"):
        act([task(), task(index=1)], Constant((-0.5, 0.25, 0.0)))


def test_outcomes_do_not_depend_on_company_or_order():
    tasks = [task(), task(goal=(60.0, 60.0), index=1), task(start=(150.0, 100.0), index=2)]
    policy = RandomPolicy([-1, -1], [1, 1], steps=25)
    together = act(tasks, policy)
    alone = [act([one], policy)[0] for one in reversed(tasks)][::-1]
    assert [outcome.record for outcome in together] == [outcome.record for outcome in alone]


def test_recorded_actions_repeat_the_episode():
    one = task(goal=(60.0, 60.0))
    outcome = act([one], RandomPolicy([-1, -1], [1, 1], steps=25))[0]
    env = make_env("two-room", image_size=16)
    env.restore(np.array(one.state))
    env.set_goal(np.array(one.goal))
    for action in outcome.actions:
        env.step(action)
    distance = env.goal_distance(env.state()[None], np.array(one.goal)[None])[0]
    assert distance == outcome.record.final_distance
