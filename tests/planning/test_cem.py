"""CEM: finds known optima, keeps tasks apart, never chooses what is not finite."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saltwm.ground.config import CEMConfig
from saltwm.ground.errors import NonFiniteError, ShapeError, UsageError
from saltwm.ground.rng import torch_stream
from saltwm.planning.cem import Bounds, cem

SMALL = CEMConfig(candidates=64, iterations=12, elites=8)


def generators(*keys):
    return [torch_stream(0, "test", key) for key in keys]


def quadratic(targets):
    """Cost [N, S] of plans [N, S, H, A]: squared distance to each task's target [N, H, A]."""
    return lambda plans: (plans - targets[:, None]).square().mean(dim=(2, 3))


def test_cem_reaches_the_closed_form_least_squares_plan():
    rng = np.random.default_rng(0)
    matrix, target = rng.normal(size=(12, 6)), rng.normal(size=12)
    best, *_ = np.linalg.lstsq(matrix, target, rcond=None)
    a, y = torch.from_numpy(matrix).float(), torch.from_numpy(target).float()
    plan = cem(
        lambda plans: (plans.flatten(2) @ a.T - y).square().mean(dim=2),
        horizon=3,
        action_dim=2,
        generators=generators(0),
        config=CEMConfig(candidates=300, iterations=60, elites=30),
    )
    # The elites' spread shrinks geometrically; after 60 iterations it is below single precision's resolution here.
    np.testing.assert_allclose(plan.actions[0].flatten().numpy(), best, atol=2e-3)


def test_a_task_plans_the_same_alone_and_among_neighbours():
    targets = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(1))
    together = cem(quadratic(targets), horizon=4, action_dim=2, generators=generators(5, 6, 7), config=SMALL)
    alone = cem(quadratic(targets[1:2]), horizon=4, action_dim=2, generators=generators(6), config=SMALL)
    assert torch.equal(together.actions[1], alone.actions[0])
    assert torch.equal(together.elite_costs[1], alone.elite_costs[0])


def test_the_first_candidate_is_the_mean_and_the_trace_has_an_entry_per_iteration():
    seen = []

    def cost(plans):
        seen.append(plans[:, 0].clone())
        return plans.square().mean(dim=(2, 3))

    plan = cem(cost, horizon=2, action_dim=3, generators=generators(0), config=SMALL)
    assert torch.equal(seen[0], torch.zeros(1, 2, 3))
    assert plan.elite_costs.shape == (1, SMALL.iterations)
    assert plan.elite_costs[0, -1] < plan.elite_costs[0, 0]


def test_candidates_that_cost_nan_or_infinity_are_never_chosen():
    def cost(plans):
        costs = (plans - 1).square().mean(dim=(2, 3))
        costs[:, ::2] = torch.nan
        costs[:, 1::4] = -torch.inf
        return costs

    plan = cem(cost, horizon=2, action_dim=2, generators=generators(0), config=SMALL)
    assert plan.actions.isfinite().all()
    assert (plan.actions - 1).abs().max() < 0.2


def test_fewer_finite_candidates_than_elites_still_give_a_plan():
    def cost(plans):
        costs = plans.square().mean(dim=(2, 3))
        costs[:, 3:] = torch.nan
        return costs

    plan = cem(cost, horizon=1, action_dim=1, generators=generators(0), config=SMALL)
    assert plan.actions.isfinite().all()
    assert plan.std.isfinite().all()
    assert plan.elite_costs.isfinite().all()


def test_only_non_finite_costs_are_an_error():
    with pytest.raises(NonFiniteError, match="task 1"):
        cem(
            lambda plans: torch.stack([plans[0].square().mean(dim=(1, 2)), torch.full((64,), torch.nan)]),
            horizon=1,
            action_dim=1,
            generators=generators(0, 1),
            config=SMALL,
        )


def test_costs_may_be_counts_and_must_be_tensors():
    def plan(cost):
        return cem(cost, horizon=2, action_dim=2, generators=generators(0), config=SMALL)

    counted = plan(lambda plans: (plans > 0).sum(dim=(2, 3)))
    assert torch.equal(counted.actions, plan(lambda plans: (plans > 0).sum(dim=(2, 3)).float()).actions)
    assert counted.elite_costs.dtype == torch.float32
    with pytest.raises(ShapeError, match="costs: expected a torch tensor, found ndarray"):
        plan(lambda plans: plans.square().sum(dim=(2, 3)).numpy())


def test_a_single_elite_has_no_spread_and_no_nan():
    plan = cem(
        quadratic(torch.ones(1, 2, 2)), horizon=2, action_dim=2, generators=generators(0), config=CEMConfig(50, 5, 1)
    )
    assert torch.equal(plan.std, torch.zeros_like(plan.std))
    assert plan.actions.isfinite().all()


@settings(max_examples=20, deadline=None)
@given(low=st.floats(-2, -0.1), high=st.floats(0.1, 2), target=st.floats(-5, 5))
def test_bounded_plans_stay_inside_and_go_to_the_nearest_edge(low, high, target):
    bounds = Bounds(torch.tensor([low, low]), torch.tensor([high, high]))
    plan = cem(
        quadratic(torch.full((1, 2, 2), target)),
        horizon=2,
        action_dim=2,
        generators=generators(0),
        config=SMALL,
        bounds=bounds,
    )
    # The mean of values inside the bounds can leave them by rounding alone.
    assert (plan.actions >= low - 1e-5).all()
    assert (plan.actions <= high + 1e-5).all()
    np.testing.assert_allclose(plan.actions.numpy(), np.clip(target, low, high), atol=0.15)


def test_unusable_settings_and_misshapen_costs_are_refused():
    with pytest.raises(UsageError, match="elites"):
        cem(
            quadratic(torch.zeros(1, 1, 1)),
            horizon=1,
            action_dim=1,
            generators=generators(0),
            config=CEMConfig(5, 1, 6),
        )
    with pytest.raises(ShapeError, match="costs"):
        cem(lambda plans: plans.sum(), horizon=1, action_dim=1, generators=generators(0), config=SMALL)
