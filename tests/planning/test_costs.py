"""Terminal costs: the folded arithmetic equals the plain rollout, and no task sees another."""

import dataclasses

import numpy as np
import pytest
import torch
from planning_models import SMALL, in_double, shaken, situation

from saltwm.ground.config import AffineConfig, CEMConfig
from saltwm.ground.errors import ShapeError
from saltwm.planning.agent import Agent
from saltwm.planning.costs import Situation, rollout_cost, terminal_cost
from saltwm.planning.policy import RandomPolicy, View


@pytest.mark.parametrize(
    "affine", [AffineConfig(modes=3), AffineConfig(modes=0), AffineConfig(modes=2, spectral=False)]
)
def test_the_folded_cost_is_the_rollout_cost(affine):
    model = shaken(dataclasses.replace(SMALL, affine=affine)).double()
    at = in_double(situation(model, 2))
    plans = torch.randn(2, 7, 4, 10, dtype=torch.float64)
    with torch.inference_mode():
        folded = terminal_cost(model, at)(plans)
        conditions = model.action_encoder.encode_normalised(plans.flatten(0, 1))
        start = at.history.repeat_interleave(7, dim=0)
        last = model.rollout(start, conditions)[:, -1].unflatten(0, (2, 7))
        expected = (last - at.goal[:, None]).square().mean(dim=2)
    # Float64 and the same sums in another order.
    torch.testing.assert_close(folded, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("horizon", [1, 2, 6])
def test_remembering_the_prefix_does_not_change_the_transformer_s_cost(window, horizon):
    deep = dataclasses.replace(SMALL.transformer, depth=3)
    model = shaken(dataclasses.replace(SMALL, model="lewm", transformer=deep)).double()
    at = in_double(situation(model, 2, window))
    plans = torch.randn(2, 5, horizon, 10, dtype=torch.float64)
    with torch.no_grad():
        fast, plain = terminal_cost(model, at)(plans), rollout_cost(model, at)(plans)
        other_past = Situation(at.history, at.past_conditions + 1, at.goal)
        changed = terminal_cost(model, other_past)(plans)
    torch.testing.assert_close(fast, plain, rtol=1e-11, atol=1e-12)
    assert torch.equal(fast, changed) == (window == 1)  # negative control: the history is really attended to


@pytest.mark.parametrize("name", ["salt", "lewm"])
def test_costs_come_back_in_the_candidates_precision_and_place(name):
    model = shaken(dataclasses.replace(SMALL, model=name)).double()
    cost = terminal_cost(model, in_double(situation(model, 1)))
    with torch.inference_mode():
        costs = cost(torch.zeros(1, 3, 2, 10))
    assert costs.shape == (1, 3)
    assert costs.device.type == "cpu"


def test_a_cost_called_twice_does_not_overwrite_what_it_returned():
    model = shaken(SMALL)
    cost = terminal_cost(model, situation(model, 1))
    first = cost(torch.zeros(1, 3, 2, 10))
    kept = first.clone()
    cost(torch.ones(1, 3, 2, 10))
    assert torch.equal(first, kept)


def test_misshapen_candidates_and_situations_are_refused():
    model = shaken(SMALL)
    at = situation(model, 2)
    with pytest.raises(ShapeError, match="candidates"):
        terminal_cost(model, at)(torch.zeros(1, 3, 2, 10))
    with pytest.raises(ShapeError, match="goal"):
        terminal_cost(model, Situation(at.history, at.past_conditions, at.goal[:1]))


def test_folding_depends_on_every_weight_of_the_transition():
    """Negative control: if a weight were left out of the fold, shaking it would not change the cost."""
    model = shaken(SMALL)
    at, plans = situation(model, 1), torch.randn(1, 5, 3, 10)
    with torch.no_grad():
        before = terminal_cost(model, at)(plans)
        for parameter in [*model.transition.parameters(), *model.action_encoder.parameters()]:
            saved = parameter.clone()
            parameter.add_(0.5 * torch.randn_like(parameter))
            assert not torch.allclose(terminal_cost(model, at)(plans), before)
            parameter.copy_(saved)
        assert torch.equal(terminal_cost(model, at)(plans), before)


@pytest.mark.parametrize("name", ["salt", "lewm"])
def test_costs_do_not_depend_on_the_neighbours_to_the_last_bit(name):
    model = shaken(dataclasses.replace(SMALL, model=name))
    window = model.window
    at = situation(model, 3, window)
    plans = torch.randn(3, 6, 2, 10)
    with torch.inference_mode():
        together = terminal_cost(model, at)(plans)
        one = Situation(at.history[1:2], at.past_conditions[1:2], at.goal[1:2])
        alone = terminal_cost(model, one)(plans[1:2])
    assert torch.equal(together[1], alone[0])


def test_no_matrix_per_candidate_is_built():
    model = shaken(SMALL)
    folded = model.transition.folded(model.action_encoder)
    dim, modes = SMALL.latent_dim, SMALL.affine.modes
    assert folded.modes.shape == ((modes + 1) * dim, dim)


def view(tasks, window=1):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (tasks, window, 16, 16, 3), dtype=np.uint8)
    return View(frames, rng.normal(size=(tasks, window - 1, 10)).astype(np.float32), frames[:, 0])


@pytest.mark.parametrize(("name", "window"), [("salt", 1), ("lewm", 1), ("lewm", 3)])
def test_an_agent_decides_the_same_alone_and_in_company(name, window):
    model = shaken(dataclasses.replace(SMALL, model=name))
    agent = Agent(model, CEMConfig(20, 3, 5), horizon_blocks=2, history_frames=window)
    sight = view(3, window)
    together = agent.decide(sight, [(0, 0), (1, 0), (2, 0)])
    alone = agent.decide(View(sight.frames[2:], sight.past_blocks[2:], sight.goals[2:]), [(2, 0)])
    assert together.actions.shape == (3, 10, 2)
    assert np.array_equal(together.actions[2], alone.actions[0])
    assert np.array_equal(together.elite_costs[2], alone.elite_costs[0])


def test_bounded_agents_act_inside_the_action_space_and_unbounded_ones_need_not():
    model = shaken(SMALL)
    model.action_encoder.set_scaling(torch.zeros(2), torch.full((2,), 3.0))
    keys = [(task, 0) for task in range(4)]
    free = Agent(model, CEMConfig(20, 3, 5), horizon_blocks=2).decide(view(4), keys)
    bounded = Agent(model, CEMConfig(20, 3, 5), horizon_blocks=2, action_low=[-1, -1], action_high=[1, 1])
    assert np.abs(free.actions).max() > 1
    assert np.abs(bounded.decide(view(4), keys).actions).max() <= 1 + 1e-5


def test_an_agent_refuses_views_of_another_shape():
    agent = Agent(shaken(SMALL), CEMConfig(20, 3, 5))
    sight = view(1)
    with pytest.raises(ShapeError, match="frames"):
        agent.decide(View(sight.frames[:, :, :8], sight.past_blocks, sight.goals), [(0, 0)])
    with pytest.raises(ShapeError, match="goals"):
        agent.decide(View(sight.frames, sight.past_blocks, sight.goals[0]), [(0, 0)])


def test_random_actions_fill_the_action_space_and_repeat_with_the_key():
    policy = RandomPolicy([-1, 0], [1, 2], steps=500)
    first, again, other = (policy.decide(view(1), [key]).actions[0] for key in [(0, 0), (0, 0), (0, 1)])
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    np.testing.assert_allclose(first.mean(axis=0), [0, 1], atol=0.1)
    assert first.min(axis=0)[1] >= 0
