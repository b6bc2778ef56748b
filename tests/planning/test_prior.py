"""The action prior: it recovers a known conditional Gaussian, and says what it does not know."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from saltwm.ground.config import PriorConfig
from saltwm.ground.errors import DamagedError, NonFiniteError, ShapeError, UsageError
from saltwm.ground.rng import stream
from saltwm.planning.cem import Proposal
from saltwm.planning.prior import ActionPrior, first_blocks, product
from saltwm.planning.prior_learning import (
    Journeys,
    beta_nll,
    build_prior,
    draw,
    make_optimizer,
    measure,
    pairs_at,
    take_step,
)

SMALL = PriorConfig(
    horizon_blocks=3, farthest_blocks=6, width=64, depth=2, dropout=0.0, batch_size=256, steps=500, learning_rate=3e-3
)


def walks(episodes=200, blocks=8, seed=0):
    """Random walks z_{i+1} = z_i + a_i in the plane with standard normal steps, and a tenth of them held out.

    A walk that is known to be at z_g after n steps is a bridge: each of its steps is normal with the mean
    (z_g - z) / n and the variance 1 - 1 / n.
    """
    steps = stream(seed, "walks").normal(size=(episodes, blocks, 2)).astype(np.float32)
    latents = np.concatenate([np.zeros((episodes, 1, 2), np.float32), steps.cumsum(axis=1)], axis=1)
    padded = np.concatenate([steps, np.zeros((episodes, 1, 2), np.float32)], axis=1)
    to_end = np.tile(np.arange(blocks, -1, -1), episodes)
    episode = np.repeat(np.arange(episodes), blocks + 1)
    held_out = episode >= 0.9 * episodes
    return Journeys(
        torch.from_numpy(latents).flatten(0, 1),
        torch.from_numpy(padded).flatten(0, 1),
        to_end,
        np.flatnonzero(~held_out & (to_end > 0)),
        np.flatnonzero(held_out & (to_end > 0)),
    )


def learnt(journeys, config=SMALL):
    prior = build_prior(config, journeys)
    optimizer = make_optimizer(prior, config)
    for step in range(config.steps):
        take_step(prior, optimizer, journeys, config, step)
    return prior.eval()


@pytest.fixture(scope="module")
def bridge():
    return learnt(walks())


@pytest.mark.parametrize("n", [2, 3, 5])
def test_it_recovers_the_steps_of_a_bridge(bridge, n):
    latent = torch.zeros(4, 2)
    goal = torch.tensor([[1.0, 0.0], [0.0, -1.5], [1.0, 1.0], [-2.0, 0.5]])
    found = bridge.propose(latent, goal, torch.full((4,), n))
    known = min(n, 3)
    for block in range(known):
        # A small net and a few hundred steps: within a fifth of the deviation of all steps, which is 1.
        torch.testing.assert_close(found.mean[:, block], goal / n, rtol=0, atol=0.2)
        expected = torch.full((4, 2), math.sqrt(1 - 1 / n))
        torch.testing.assert_close(found.std[:, block], expected, rtol=0.2, atol=0)


def test_where_one_block_is_left_it_is_sure(bridge):
    found = bridge.propose(torch.zeros(1, 2), torch.tensor([[0.7, -0.4]]), torch.tensor([1]))
    torch.testing.assert_close(found.mean[0, 0], torch.tensor([0.7, -0.4]), rtol=0, atol=0.1)
    assert (found.std[0, 0] < 0.15).all()


def test_figures_tell_a_prior_that_knows_from_one_that_cannot(bridge):
    journeys = walks()
    known = measure(bridge, journeys, SMALL)
    assert known.explained > 0.3
    assert known.nll < 1.2
    assert abs(known.within_one_std - 0.683) < 0.1
    # The control: steps that have nothing to do with where the walk goes.
    order = torch.from_numpy(stream(1, "shuffle").permutation(len(journeys.blocks)))
    senseless = dataclasses.replace(journeys, blocks=journeys.blocks[order])
    unknown = measure(learnt(senseless, dataclasses.replace(SMALL, steps=150)), senseless, SMALL)
    assert unknown.explained < 0.05
    assert unknown.nll > 1.2


def test_blocks_after_the_goal_are_no_targets():
    journeys = walks(episodes=20)
    pairs = pairs_at(journeys, np.array([0, 0, 0]), np.array([1, 2, 3]), SMALL)
    assert pairs.known[:, :, 0].tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    mean, log_std = torch.zeros(3, 3, 2), torch.zeros(3, 3, 2)
    loss = beta_nll(mean, log_std, pairs, 0.5)
    beyond = dataclasses.replace(pairs, blocks=pairs.blocks.masked_fill(~pairs.known, 1e6))
    assert torch.equal(beta_nll(mean, log_std, beyond, 0.5), loss)
    within = dataclasses.replace(pairs, blocks=pairs.blocks.masked_fill(pairs.known, 1e6))
    assert beta_nll(mean, log_std, within, 0.5) > 1e6  # the control


def test_pairs_stay_within_their_episode_and_the_targets_are_its_blocks():
    journeys = walks(episodes=10)
    rng = stream(0, "test")
    for _ in range(20):
        pairs = draw(journeys, journeys.training, 64, SMALL, rng)
        # In these walks a goal is where the blocks lead: pairs that left their episode would not add up.
        short = pairs.blocks_left <= SMALL.horizon_blocks
        led = pairs.latent + (pairs.blocks * pairs.known).sum(dim=1)
        torch.testing.assert_close(led[short], pairs.goal[short], rtol=0, atol=1e-5)
        assert pairs.blocks_left.min() >= 1
        assert pairs.blocks_left.max() <= SMALL.farthest_blocks


def test_near_share_decides_how_many_goals_lie_within_the_horizon():
    journeys = walks(episodes=50)
    near, far = (
        draw(journeys, journeys.training, 2000, dataclasses.replace(SMALL, near_share=share), stream(0, "x"))
        for share in (1.0, 0.0)
    )
    assert (near.blocks_left <= 3).all()
    assert (far.blocks_left > 3).float().mean() > 0.2


# --- what it proposes ------------------------------------------------------------------------------------------------


def shaken_prior(**changes):
    torch.manual_seed(0)
    return ActionPrior(dataclasses.replace(SMALL, **changes), latent_dim=12, block_dim=10).eval()


def test_nothing_is_known_of_what_follows_the_goal():
    found = shaken_prior().propose(torch.randn(2, 12), torch.randn(2, 12), torch.tensor([1, 2]))
    for task, left in enumerate((1, 2)):
        assert (found.mean[task, left:] == 0).all()
        assert (found.std[task, left:] == 1).all()
        assert (found.mean[task, :left] != 0).all()


def test_a_proposal_does_not_depend_on_its_neighbours():
    prior = shaken_prior()
    latent, goal, left = torch.randn(5, 12), torch.randn(5, 12), torch.tensor([1, 2, 3, 4, 6])
    together = prior.propose(latent, goal, left)
    for task in range(5):
        alone = prior.propose(latent[task : task + 1], goal[task : task + 1], left[task : task + 1])
        assert torch.equal(alone.mean[0], together.mean[task])
        assert torch.equal(alone.std[0], together.std[task])


@pytest.mark.parametrize("left", [0, 7, -1])
def test_a_goal_further_than_it_knows_is_refused(left):
    with pytest.raises(UsageError, match=f"1 to 6 blocks away, this one is {left}"):
        shaken_prior().propose(torch.zeros(1, 12), torch.zeros(1, 12), torch.tensor([left]))


def test_shapes_are_checked():
    prior = shaken_prior()
    with pytest.raises(ShapeError, match="goal"):
        prior.propose(torch.zeros(2, 12), torch.zeros(1, 12), torch.tensor([1, 1]))
    with pytest.raises(ShapeError, match="latent"):
        prior.propose(torch.zeros(1, 11), torch.zeros(1, 12), torch.tensor([1]))


def test_a_prior_that_proposes_nan_is_refused():
    prior = shaken_prior()
    with torch.no_grad():
        prior.head.bias[3] = math.nan
    with pytest.raises(DamagedError, match="proposes numbers that are not finite"):
        prior.propose(torch.zeros(1, 12), torch.zeros(1, 12), torch.tensor([3]))


def test_training_stops_before_a_loss_that_is_not_finite():
    journeys = walks(episodes=20)
    journeys.latents[5] = math.nan
    prior = build_prior(SMALL, walks(episodes=20))
    before = prior.head.weight.clone()
    with pytest.raises(NonFiniteError, match="step 1"):
        take_step(prior, make_optimizer(prior, SMALL), journeys, SMALL, 0)
    assert torch.equal(prior.head.weight, before)


# --- products --------------------------------------------------------------------------------------------------------


def test_a_product_of_gaussians_adds_precisions():
    a = Proposal(torch.full((1, 2, 2), 3.0), torch.full((1, 2, 2), 0.5))
    b = Proposal(torch.full((1, 2, 2), -1.0), torch.full((1, 2, 2), 1.0))
    found = product(a, b)
    # Precisions 4 and 1: the mean is (4 * 3 - 1) / 5, the variance 1 / 5.
    torch.testing.assert_close(found.mean, torch.full((1, 2, 2), 11 / 5))
    torch.testing.assert_close(found.std, torch.full((1, 2, 2), math.sqrt(1 / 5)))


def test_a_product_s_density_is_that_of_its_factors_up_to_a_constant():
    torch.manual_seed(0)
    a, b = (Proposal(torch.randn(1, 1, 1), torch.rand(1, 1, 1) + 0.2) for _ in range(2))
    at = torch.linspace(-2, 2, 9)

    def log_density(q):
        return torch.distributions.Normal(q.mean.flatten(), q.std.flatten()).log_prob(at)

    difference = log_density(a) + log_density(b) - log_density(product(a, b))
    torch.testing.assert_close(difference, difference[:1].expand(9), rtol=0, atol=1e-4)


def test_a_longer_plan_than_it_proposes_is_refused():
    proposal = Proposal(torch.zeros(1, 3, 2), torch.ones(1, 3, 2))
    assert first_blocks(proposal, 2).mean.shape == (1, 2, 2)
    with pytest.raises(UsageError, match="proposes 3 blocks, and a plan of 4"):
        first_blocks(proposal, 4)
