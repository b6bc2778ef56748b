"""An agent as gymnasium users hold it: a goal picture, then a frame in and an action out."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import torch
from planning_models import SMALL, WORLD, shaken

from saltwm.envs import make_env
from saltwm.ground.config import CEMConfig, GaussNewtonConfig
from saltwm.ground.errors import ShapeError, UsageError
from saltwm.planning.agent import Agent
from saltwm.planning.policy import View

QUICK = CEMConfig(20, 2, 5)


def start(env, seed=3):
    """The first frame and the goal picture of a fresh episode."""
    env.reset(seed=seed)
    state = env.state()
    goal = env.draw_many(env.goal[None], env.image_size)[0]
    env.restore(state)
    return env.render(), goal


def episode(agent, env, steps):
    frame, goal = start(env)
    agent.reset(goal)
    actions = []
    for _ in range(steps):
        actions.append(agent.act(frame))
        env.step(actions[-1])
        frame = env.render()
    return np.stack(actions)


@pytest.mark.parametrize("planner", [QUICK, GaussNewtonConfig(2, 2)], ids=lambda config: config.kind)
def test_an_agent_acts_in_two_room_from_frames_alone(planner):
    env = make_env("two-room", image_size=WORLD.image_size)
    assert isinstance(env, gymnasium.Env)
    low, high = env.action_space.low, env.action_space.high
    agent = Agent(shaken(SMALL), planner, horizon_blocks=2, action_low=low, action_high=high)
    actions = episode(agent, env, 23)
    assert actions.shape == (23, 2)
    assert actions.dtype == np.float32
    assert (actions >= low - 1e-5).all()
    assert (actions <= high + 1e-5).all()


def test_a_plan_is_carried_out_before_the_next_one_and_the_goal_is_encoded_with_it():
    env = make_env("two-room", image_size=WORLD.image_size)
    agent = Agent(shaken(SMALL), QUICK, horizon_blocks=2)
    frame, goal = start(env)
    planned = agent.decide(View(frame[None, None], np.empty((1, 0, 10), np.float32), goal[None]), [("episode", 0, 0)])
    assert np.array_equal(episode(agent, env, 10), planned.actions[0])


def test_the_same_seed_repeats_an_episode_and_a_new_episode_draws_anew():
    env = make_env("two-room", image_size=WORLD.image_size)
    agent, again = (Agent(shaken(SMALL), QUICK, horizon_blocks=1) for _ in range(2))
    first = episode(agent, env, 6)
    assert np.array_equal(first, episode(again, env, 6))
    assert not np.array_equal(first, episode(agent, env, 6))


def test_pictures_are_remembered_though_their_array_is_drawn_into_again():
    env = make_env("two-room", image_size=WORLD.image_size)
    agent, again, other = (Agent(shaken(SMALL), GaussNewtonConfig(2, 2), horizon_blocks=1) for _ in range(3))
    frame, _ = start(env)
    goal = 255 - frame
    buffer = goal.copy()
    agent.reset(goal)
    again.reset(buffer)
    other.reset(frame)
    buffer[:] = frame
    action = agent.act(frame)
    assert np.array_equal(action, again.act(buffer))
    assert not np.array_equal(action, other.act(frame))  # the goal matters


def test_a_transformer_gets_its_history_once_there_is_one():
    env = make_env("two-room", image_size=WORLD.image_size)
    model = shaken(dataclasses.replace(SMALL, model="lewm"))
    seen = []

    class Watched(Agent):
        def decide(self, view, keys):
            seen.append((view.frames.shape[1], view.past_blocks.copy()))
            return super().decide(view, keys)

    actions = episode(Watched(model, QUICK, horizon_blocks=1, history_frames=3), env, 20)
    assert [frames for frames, _ in seen] == [1, 2, 3, 3]
    assert np.array_equal(seen[-1][1][0], actions[5:15].reshape(2, 10))


def test_half_a_bound_is_refused_rather_than_ignored():
    for half in ({"action_low": [-1, -1]}, {"action_high": [1, 1]}):
        with pytest.raises(UsageError, match="give both or neither"):
            Agent(shaken(SMALL), **half)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([-1, 2], [1, -2]),
        ([-1, np.nan], [1, 1]),
        ([-1, -1], [1, np.nan]),
        ([-1, np.inf], [1, np.inf]),
        ([-1, -np.inf], [1, -np.inf]),
    ],
)
def test_bounds_that_no_action_fits_into_are_refused_by_component(low, high):
    with pytest.raises(UsageError, match=f"action component 1 has action_low {low[1]} and action_high {high[1]};"):
        Agent(shaken(SMALL), action_low=low, action_high=high)


def test_bounds_may_be_open_or_a_point_and_must_be_one_per_component():
    bounds = Agent(shaken(SMALL), action_low=[-np.inf, 0], action_high=[np.inf, 0]).bounds
    assert (bounds.low[::2] == -torch.inf).all()
    assert (bounds.high[::2] == torch.inf).all()
    assert torch.equal(bounds.low[1::2], bounds.high[1::2])
    with pytest.raises(ShapeError, match="agent: action_high: expected shape"):
        Agent(shaken(SMALL), action_low=[-1, -1], action_high=[1])


@pytest.mark.parametrize("count", ["horizon_blocks", "history_frames"])
def test_an_agent_that_plans_or_sees_nothing_is_refused(count):
    with pytest.raises(UsageError, match=f"{count} must be at least 1, found 0"):
        Agent(shaken(SMALL), **{count: 0})


def test_acting_before_a_goal_and_frames_of_another_size_are_refused():
    agent = Agent(shaken(SMALL), QUICK)
    with pytest.raises(UsageError, match="reset"):
        agent.act(np.zeros((16, 16, 3), np.uint8))
    with pytest.raises(ShapeError, match="goal frame"):
        agent.reset(np.zeros((8, 8, 3), np.uint8))
    agent.reset(np.zeros((16, 16, 3), np.uint8))
    with pytest.raises(ShapeError, match="frame"):
        agent.act(np.zeros((16, 16, 3), np.float32))
