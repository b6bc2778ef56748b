"""Posterior modes: the closed form on a linear-Gaussian problem, and the two ends of trust."""

import dataclasses
import math

import pytest
import torch
from planning_models import SMALL, generators, in_double, shaken, situation

import saltwm
from saltwm.ground.config import (
    AffineConfig,
    CEMConfig,
    CEMMapConfig,
    CEMPriorConfig,
    ICEMConfig,
    ICEMPriorConfig,
    ImitationConfig,
    MapConfig,
    MPPIConfig,
    MPPIPriorConfig,
    PriorConfig,
)
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.planning import with_prior
from saltwm.planning.agent import Agent
from saltwm.planning.cem import Bounds, Proposal, cem
from saltwm.planning.map import posterior_mode
from saltwm.planning.planners import planner_of
from saltwm.planning.prior import ActionPrior

WIDE = 1e6
HORIZON = 3


def proposed(at, horizon=HORIZON, left=None, seed=0):
    """The situation with a prior's proposal."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(at.goal), horizon, 10)
    mean = torch.randn(shape, generator=generator, dtype=at.goal.dtype)
    std = 0.2 + torch.rand(shape, generator=generator, dtype=at.goal.dtype)
    blocks_left = torch.full((len(at.goal),), horizon if left is None else left)
    return dataclasses.replace(at, proposal=Proposal(mean, std), blocks_left=blocks_left)


def linear_model():
    model = shaken(dataclasses.replace(SMALL, affine=AffineConfig(modes=0))).double()
    with torch.no_grad():
        model.action_encoder.linear_layers[1].bias.fill_(60.0)  # SiLU(x) = x up there, so psi is linear too
    return model


def test_on_a_linear_gaussian_problem_the_mode_is_the_closed_form_posterior_mean():
    model = linear_model()
    at = proposed(in_double(situation(model, 1)))
    w = 0.7
    with torch.no_grad():
        zero = torch.zeros(1, HORIZON, 10, dtype=torch.float64)
        last, rows = model.transition.folded(model.action_encoder).last_latent_and_jacobian(at.history[0, -1], zero)
    jacobian = rows[0].mT
    mean, precision = at.proposal.mean[0].flatten(), at.proposal.std[0].flatten() ** -2
    # Bayes' rule for a linear observation z_g = z_H(0) + J a + noise of variance w, prior N(m, s^2).
    posterior_precision = jacobian.mT @ jacobian / w + torch.diag(precision)
    best = torch.linalg.solve(posterior_precision, jacobian.mT @ (at.goal[0] - last[0]) / w + precision * mean)
    config = MapConfig(w=w, iterations=30, box_std=WIDE)
    found = posterior_mode(model, at, horizon=HORIZON, generators=generators(0), config=config)
    # Steps are taken as long as they lower the objective, which near its minimum resolves sqrt(1e-16) of the plan.
    torch.testing.assert_close(found.actions[0].flatten(), best, rtol=0, atol=1e-6)


def test_a_large_w_leaves_the_prior_and_a_small_one_reaches_the_goal():
    model = shaken(SMALL).double()
    at = proposed(in_double(situation(model, 2)))
    ends = {}
    for w in (1e9, 1.0, 1e-6):
        config = MapConfig(w=w, iterations=30, box_std=WIDE)
        ends[w] = posterior_mode(model, at, horizon=HORIZON, generators=generators(0, 1), config=config)
    torch.testing.assert_close(ends[1e9].actions, at.proposal.mean, rtol=0, atol=1e-4)
    costs = [ends[w].elite_costs[:, -1] for w in (1e9, 1.0, 1e-6)]
    assert (costs[0] > costs[1]).all()
    assert (costs[1] > costs[2]).all()
    assert (ends[1e-6].actions - at.proposal.mean).abs().max() > 0.1


def test_where_the_prior_is_sure_the_plan_follows_it():
    model = shaken(SMALL).double()
    at = proposed(in_double(situation(model, 1)))
    std = torch.ones_like(at.proposal.std)
    std[:, 0] = 1e-4
    sure = dataclasses.replace(at, proposal=Proposal(at.proposal.mean, std))
    found = posterior_mode(model, sure, horizon=HORIZON, generators=generators(0), config=MapConfig(box_std=WIDE))
    moved = (found.actions - at.proposal.mean).abs().amax(dim=(0, 2))
    assert moved[0] < 1e-4
    assert moved[1] > 1e-2


def test_plans_stay_inside_the_bounds():
    model = shaken(SMALL)
    at = proposed(situation(model, 2))
    bounds = Bounds(torch.full((10,), -0.3), torch.full((10,), 0.2))
    found = planner_of(MapConfig())(model, at, horizon=HORIZON, generators=generators(0, 1), bounds=bounds)
    assert (found.actions >= bounds.low).all()
    assert (found.actions <= bounds.high).all()
    assert (found.actions == bounds.high).any()


SEARCHES = [
    MapConfig(),
    ImitationConfig(),
    CEMPriorConfig(CEMConfig(40, 4, 5)),
    ICEMPriorConfig(ICEMConfig(40, 4, 5)),
    MPPIPriorConfig(MPPIConfig(40, 4)),
    CEMMapConfig(candidates=40, iterations=4, elites=5),
]
by_kind = pytest.mark.parametrize("config", SEARCHES, ids=lambda config: config.kind)


@by_kind
def test_a_plan_does_not_depend_on_its_neighbours(config):
    model = shaken(SMALL)
    at = proposed(situation(model, 3))
    together = planner_of(config)(model, at, horizon=HORIZON, generators=generators(0, 1, 2))
    alone = dataclasses.replace(
        at,
        history=at.history[1:2],
        past_conditions=at.past_conditions[1:2],
        goal=at.goal[1:2],
        blocks_left=at.blocks_left[1:2],
        proposal=Proposal(at.proposal.mean[1:2], at.proposal.std[1:2]),
    )
    found = planner_of(config)(model, alone, horizon=HORIZON, generators=generators(1))
    assert torch.equal(found.actions[0], together.actions[1])
    assert torch.equal(found.elite_costs[0], together.elite_costs[1])


@by_kind
def test_a_goal_beyond_the_horizon_is_left_to_the_prior(config):
    model = shaken(SMALL)
    at = proposed(situation(model, 2))
    mixed = dataclasses.replace(at, blocks_left=torch.tensor([HORIZON + 1, HORIZON]))
    found = planner_of(config)(model, mixed, horizon=HORIZON, generators=generators(0, 1))
    assert torch.equal(found.actions[0], at.proposal.mean[0])
    near = planner_of(config)(model, at, horizon=HORIZON, generators=generators(0, 1))
    assert torch.equal(found.actions[1], near.actions[1])
    far = dataclasses.replace(at, blocks_left=torch.tensor([HORIZON + 1, 20]))
    led = planner_of(config)(model, far, horizon=HORIZON, generators=generators(0, 1))
    assert torch.equal(led.actions, at.proposal.mean)


@by_kind
def test_without_a_prior_it_says_which_command_makes_one(config):
    model = shaken(SMALL)
    with pytest.raises(UsageError, match="needs an action prior"):
        planner_of(config)(model, situation(model, 1), horizon=HORIZON, generators=generators(0))
    with pytest.raises(UsageError, match="needs an action prior"):
        Agent(model, config)


def test_map_needs_a_matrix_to_go_through():
    model = shaken(dataclasses.replace(SMALL, model="lewm"))
    with pytest.raises(UsageError, match=r"map needs a state-affine model .*cem-map"):
        planner_of(MapConfig())(model, proposed(situation(model, 1)), horizon=HORIZON, generators=generators(0))


@pytest.mark.parametrize("config", SEARCHES[2:], ids=lambda config: config.kind)
def test_a_sure_prior_holds_the_samples_and_an_unsure_one_leaves_them_free(config):
    model = shaken(SMALL)
    at = proposed(situation(model, 1))
    sure, unsure = (
        planner_of(config)(
            model,
            dataclasses.replace(at, proposal=Proposal(at.proposal.mean, torch.full_like(at.proposal.std, std))),
            horizon=HORIZON,
            generators=generators(0),
        )
        for std in (1e-3, 10.0)
    )
    # MPPI keeps a least deviation of 0.05 and wanders about the prior by that much.
    assert (sure.actions - at.proposal.mean).abs().max() < 0.3
    assert (unsure.actions - at.proposal.mean).abs().max() > 0.5


def test_the_prior_product_without_knowledge_is_the_plain_search():
    model = shaken(SMALL)
    at = proposed(situation(model, 1))
    nothing = dataclasses.replace(
        at, proposal=Proposal(torch.zeros_like(at.proposal.mean), torch.full_like(at.proposal.std, 1e6))
    )
    inner = CEMConfig(40, 4, 5)
    fused = planner_of(CEMPriorConfig(inner))(model, nothing, horizon=HORIZON, generators=generators(0))
    plain = planner_of(inner)(model, situation(model, 1), horizon=HORIZON, generators=generators(0))
    torch.testing.assert_close(fused.actions, plain.actions, rtol=0, atol=1e-5)


def test_cem_finds_the_mode_that_map_finds():
    model = shaken(SMALL)
    at = proposed(situation(model, 2))
    exact = planner_of(MapConfig(starts=4, iterations=30))(model, at, horizon=HORIZON, generators=generators(0, 1))
    thorough = CEMMapConfig(w=1.0, candidates=400, iterations=60, elites=40)
    sampled = planner_of(thorough)(model, at, horizon=HORIZON, generators=generators(0, 1))
    torch.testing.assert_close(sampled.actions, exact.actions, rtol=0, atol=0.02)
    torch.testing.assert_close(sampled.elite_costs[:, -1], exact.elite_costs[:, -1], rtol=0.02, atol=1e-3)


def test_a_warm_cem_map_begins_where_the_prior_and_the_rest_of_the_last_plan_agree(monkeypatch):
    model = shaken(SMALL)
    at, rest = proposed(situation(model, 1)), torch.randn(1, 2, 10)
    begun = []

    def watched(*arguments, initial, **options):
        begun.append(initial)
        return cem(*arguments, initial=initial, **options)

    monkeypatch.setattr(with_prior, "cem", watched)
    for now in (at, dataclasses.replace(at, rest_of_plan=rest)):
        planner_of(CEMMapConfig(candidates=8, iterations=1, elites=2))(
            model, now, horizon=HORIZON, generators=generators(0)
        )
    mean, precision = at.proposal.mean, at.proposal.std**-2
    torch.testing.assert_close(begun[0].mean, mean)
    kept = torch.cat([rest, torch.zeros(1, 1, 10)], dim=1)  # with a deviation of 1
    torch.testing.assert_close(begun[1].mean, (mean * precision + kept) / (precision + 1))


def test_without_a_price_cem_forgets_the_prior_and_with_one_it_does_not():
    model = shaken(SMALL)
    at = proposed(situation(model, 1))
    free, held = (
        planner_of(CEMMapConfig(w=w, candidates=200, iterations=30, elites=20))(
            model, at, horizon=HORIZON, generators=generators(0)
        )
        for w in (0.0, 1e4)
    )
    away = [((found.actions - at.proposal.mean) / at.proposal.std).abs().max() for found in (free, held)]
    assert away[0] > 1
    assert away[1] < 0.1


def test_a_price_that_no_minimum_has_is_refused():
    model = shaken(SMALL)
    at = proposed(situation(model, 1))
    for config in (MapConfig(w=-1.0), CEMMapConfig(w=float("nan"))):
        with pytest.raises(UsageError, match=f"{config.kind}: w .* finite number of at least 0"):
            planner_of(config)(model, at, horizon=HORIZON, generators=generators(0))


# --- an agent with a prior -------------------------------------------------------------------------------------------


def small_prior(latent_dim=12, block_dim=10, horizon=5):
    torch.manual_seed(0)
    config = PriorConfig(horizon_blocks=horizon, farthest_blocks=20, width=16, depth=1)
    return ActionPrior(config, latent_dim, block_dim)


def test_an_agent_with_a_prior_plans_with_map_and_without_a_matrix_with_cem():
    assert Agent(shaken(SMALL), prior=small_prior()).planner == MapConfig()
    assert Agent(shaken(dataclasses.replace(SMALL, model="lewm")), prior=small_prior()).planner == CEMMapConfig()
    assert Agent(shaken(SMALL)).planner == CEMConfig()


@pytest.mark.parametrize("sizes", [{"latent_dim": 11}, {"block_dim": 5}])
def test_an_agent_refuses_a_prior_of_other_sizes(sizes):
    with pytest.raises(MismatchError, match="the model has 12 and 10"):
        Agent(shaken(SMALL), MapConfig(), prior=small_prior(**sizes))


def test_an_agent_refuses_the_prior_of_another_checkpoint_though_its_sizes_fit():
    model, prior = shaken(SMALL), small_prior()
    model.checkpoint_sha256, prior.checkpoint_sha256 = "a" * 64, "a" * 64
    assert Agent(model, MapConfig(), prior=prior).prior is prior
    prior.checkpoint_sha256 = "b" * 64
    with pytest.raises(MismatchError, match="is that of checkpoint bbbbbbbbbbbb, the model is aaaaaaaaaaaa"):
        Agent(model, MapConfig(), prior=prior)
    assert Agent(model, CEMConfig(), prior=prior).prior is None  # it is not used


def test_shipped_models_take_their_own_priors_and_no_others():
    model = saltwm.load("two-room-salt")
    assert Agent(model, prior=saltwm.load_prior("two-room-salt")).planner == MapConfig()
    with pytest.raises(MismatchError, match="load both from one run"):
        Agent(model, prior=saltwm.load_prior("two-room-lewm"))


def test_a_prior_is_refused_once_the_encoder_that_it_knows_has_learnt_more():
    """The model still names the checkpoint that it was read from, and its latents mean something else now."""
    model, prior = saltwm.load("two-room-salt"), saltwm.load_prior("two-room-salt")
    frames = torch.randint(256, (1, 4, 64, 64, 3), dtype=torch.uint8)
    for part in ("transition", "encoder"):
        steps = torch.optim.SGD(getattr(model, part).parameters(), lr=1e-6)
        latents = model.encode(frames)
        predicted = model.transition.predict(latents, model.condition(torch.zeros(1, 4, 10)))
        (predicted - latents).square().mean().backward()
        assert Agent(model, prior=prior).prior is prior  # a transition may learn: the prior knows latents alone
        steps.step()
    with pytest.raises(MismatchError, match="encoder was changed since it was read from checkpoint"):
        Agent(model, prior=prior)
    assert Agent(model).prior is None
    tracked = saltwm.load("two-room-salt").train()
    tracked.encode(frames)  # running statistics decide latents as weights do
    with pytest.raises(MismatchError, match="encoder was changed"):
        Agent(tracked, prior=prior)


def test_an_agent_refuses_a_horizon_that_the_prior_does_not_propose():
    with pytest.raises(UsageError, match="proposes 5 blocks, and a plan of 10"):
        Agent(shaken(SMALL), MapConfig(), prior=small_prior(), horizon_blocks=10)


@pytest.mark.parametrize("w", [-1.0, math.nan, math.inf])
def test_a_price_that_is_no_price_is_refused(w):
    model = shaken(SMALL)
    with pytest.raises(UsageError, match="w "):
        posterior_mode(model, proposed(situation(model, 1)), horizon=2, generators=generators(0), config=MapConfig(w=w))
