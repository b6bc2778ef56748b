"""Looking again before a plan is used up: the horizon shrinks, the rest of the plan starts the next search."""

import dataclasses

import numpy as np
import pytest
import torch
from planning_models import SMALL, WORLD, generators, shaken, situation

from saltwm.disk.records import Task
from saltwm.envs import make_env
from saltwm.evaluation.protocols import PROTOCOLS
from saltwm.evaluation.rollout import run_tasks
from saltwm.ground.config import CEMConfig, GaussNewtonConfig, GradientConfig, ICEMConfig, MPPIConfig
from saltwm.ground.errors import UsageError
from saltwm.planning import planners
from saltwm.planning.agent import Agent
from saltwm.planning.looks import blocks_left
from saltwm.planning.policy import View

QUICK = GaussNewtonConfig(starts=2, iterations=2)
FAR = Task(0, 0, 0, (40.0, 150.0), (190.0, 40.0), 10.0)


def looks(goal_blocks, horizon, every, budget):
    """(blocks left, planned, executed) of each decision."""
    executed, found = 0, []
    while executed < budget:
        left = blocks_left(executed, goal_blocks)
        planned = min(left, horizon)
        found.append((left, planned, min(every, planned)))
        executed += found[-1][-1]
    return found


def test_the_horizon_counts_down_to_the_goal_and_begins_again_when_it_has_run_out():
    assert [planned for _, planned, _ in looks(5, 5, 1, 10)] == [5, 4, 3, 2, 1, 5, 4, 3, 2, 1]
    assert looks(5, 5, 2, 10) == [(5, 5, 2), (3, 3, 2), (1, 1, 1), (5, 5, 2), (3, 3, 2), (1, 1, 1)]


def test_a_goal_beyond_the_horizon_is_counted_though_not_planned_to():
    found = looks(20, 5, 1, 26)
    assert [left for left, _, _ in found] == [*range(20, 0, -1), *range(20, 14, -1)]
    assert [planned for _, planned, _ in found] == [5] * 16 + [4, 3, 2, 1] + [5] * 6


class Watched(Agent):
    """An agent that remembers each situation and decision."""

    def decide(self, view, keys):
        self.decisions = [*getattr(self, "decisions", []), super().decide(view, keys)]
        return self.decisions[-1]

    def situation(self, view):
        self.views = [*getattr(self, "views", []), view]
        self.situations = [*getattr(self, "situations", []), super().situation(view)]
        return self.situations[-1]


def evaluated(agent, task=FAR):
    env = make_env("two-room", variant="clean", image_size=WORLD.image_size)
    return run_tasks(env, PROTOCOLS["clean"], [task], agent, frameskip=5)[0]


@pytest.mark.parametrize("planner", [QUICK, CEMConfig(10, 2, 4)], ids=lambda config: config.kind)
def test_an_evaluated_agent_looks_after_each_block_with_the_rest_of_its_plan(planner):
    agent = Watched(shaken(SMALL), planner, horizon_blocks=5, look_every=1)
    outcome = evaluated(agent)
    assert [plan.step for plan in outcome.record.plans] == list(range(0, 50, 5))
    assert [at.blocks_left.item() for at in agent.situations] == [5, 4, 3, 2, 1, 5, 4, 3, 2, 1]
    rests = [None if at.rest_of_plan is None else at.rest_of_plan.shape[1] for at in agent.situations]
    assert rests == [None, 4, 3, 2, 1, None, 4, 3, 2, 1]
    assert all(view.frames.shape[:2] == (1, 1) for view in agent.views)


def test_a_look_after_two_blocks_carries_out_no_more_than_are_left():
    agent = Watched(shaken(SMALL), QUICK, horizon_blocks=5, look_every=2)
    outcome = evaluated(agent)
    assert [at.blocks_left.item() for at in agent.situations] == [5, 3, 1, 5, 3, 1]
    assert [decision.execute_steps for decision in agent.decisions] == [10, 10, 5, 10, 10, 5]
    assert [plan.step for plan in outcome.record.plans] == [0, 10, 20, 25, 35, 45]


def test_the_rest_of_a_plan_comes_back_in_the_planner_s_own_units():
    model = shaken(SMALL)
    agent = Watched(model, QUICK, horizon_blocks=5, look_every=1)
    evaluated(agent)
    planned = torch.from_numpy(agent.decisions[0].actions[:, 5:]).reshape(1, 4, -1)
    rest = agent.situations[1].rest_of_plan
    assert torch.allclose(rest, model.action_encoder.normalise(planned))
    assert not torch.allclose(rest, planned, atol=0.1)  # the control


def test_a_blind_agent_knows_what_is_left_and_keeps_its_horizon():
    agent = Watched(shaken(SMALL), QUICK, horizon_blocks=5, goal_blocks=20)
    evaluated(agent)
    assert [at.blocks_left.item() for at in agent.situations] == [20, 15]
    assert all(at.rest_of_plan is None for at in agent.situations)


def test_closed_loop_in_gymnasium_takes_the_actions_of_the_evaluation():
    model, settings = shaken(SMALL), {"horizon_blocks": 5, "look_every": 2}

    class AsEvaluated(Agent):
        def decide(self, view, keys):
            return super().decide(view, [("episode", 0, 5 * int(view.executed_blocks[0]))])

    outcome = evaluated(AsEvaluated(model, QUICK, **settings))
    env = make_env("two-room", variant="clean", image_size=WORLD.image_size)
    agent = Agent(model, QUICK, **settings)
    agent.reset(env.draw_many(np.array([FAR.goal]), env.image_size)[0])
    env.restore(np.array(FAR.state))
    env.set_goal(np.array(FAR.goal))
    taken = []
    for _ in range(len(outcome.actions)):
        taken.append(agent.act(env.render()))
        env.step(taken[-1])
    np.testing.assert_array_equal(np.stack(taken), outcome.actions)


def test_a_history_of_frames_stays_one_per_block():
    lewm = dataclasses.replace(SMALL, model="lewm")
    agent = Watched(shaken(lewm), CEMConfig(10, 2, 4), look_every=1, history_frames=3)
    evaluated(agent)
    assert [view.frames.shape[1] for view in agent.views[:5]] == [1, 2, 3, 3, 3]
    assert [view.past_blocks.shape[1] for view in agent.views[:5]] == [0, 1, 2, 2, 2]


# --- warm starts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        CEMConfig(8, 1, 1, initial_std=1e-6),
        ICEMConfig(8, 1, 1, initial_std=1e-6, kept_elites=0),
        MPPIConfig(8, 1, initial_std=1e-6),
    ],
    ids=lambda config: config.kind,
)
def test_a_sampling_search_begins_at_the_rest_of_the_last_plan(config):
    model = shaken(SMALL)
    rest = torch.randn(2, 2, 10)
    at = dataclasses.replace(situation(model, 2), rest_of_plan=rest)
    found = planners.planner_of(config)(model, at, horizon=3, generators=generators(0, 1))
    torch.testing.assert_close(found.actions[:, :2], rest, rtol=0, atol=1e-4)
    torch.testing.assert_close(found.actions[:, 2], torch.zeros(2, 10), rtol=0, atol=1e-4)
    blind = planners.planner_of(config)(model, situation(model, 2), horizon=3, generators=generators(0, 1))
    torch.testing.assert_close(blind.actions, torch.zeros(2, 3, 10), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "config", [GaussNewtonConfig(starts=3, iterations=1, mu=0.0), GradientConfig(3, 2)], ids=lambda config: config.kind
)
def test_a_descent_from_the_best_plan_never_ends_worse_than_it(config):
    model = shaken(SMALL)
    at = situation(model, 1)
    thorough = GaussNewtonConfig(starts=32, iterations=40, mu=0.0)
    best = planners.planner_of(thorough)(model, at, horizon=3, generators=generators(0))
    warm = dataclasses.replace(at, rest_of_plan=best.actions)
    fresh, again = (planners.planner_of(config)(model, x, horizon=3, generators=generators(1)) for x in (at, warm))
    assert again.elite_costs[0, -1] < fresh.elite_costs[0, -1]


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("every", "found"), [(0, "at least 1, found 0"), (5, "expected 1 to 4"), (9, "5 blocks")])
def test_a_look_that_is_not_within_the_plan_is_refused(every, found):
    with pytest.raises(UsageError, match=found):
        Agent(shaken(SMALL), QUICK, horizon_blocks=5, look_every=every)


def test_one_decision_for_tasks_that_stand_at_different_blocks_is_refused():
    agent = Agent(shaken(SMALL), QUICK, look_every=1)
    frames = np.zeros((2, 1, 16, 16, 3), np.uint8)
    view = View(frames, np.empty((2, 0, 10), np.float32), frames[:, 0], np.array([0, 3]))
    with pytest.raises(UsageError, match=r"\[2, 5\] blocks left in one decision"):
        agent.decide(view, [(0,), (1,)])
