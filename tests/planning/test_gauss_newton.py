"""Gauss-Newton: the Jacobian is autograd's, the optimum is the closed form's, the box is respected."""

import dataclasses

import pytest
import torch
from planning_models import SMALL, generators, in_double, shaken, situation

from saltwm.ground.config import AffineConfig, CEMConfig, GaussNewtonConfig
from saltwm.ground.errors import NonFiniteError, UsageError
from saltwm.planning.cem import Bounds, cem
from saltwm.planning.costs import Situation, terminal_cost
from saltwm.planning.gauss_newton import gauss_newton

WIDE = 1e6


@pytest.mark.parametrize("affine", [AffineConfig(modes=3), AffineConfig(modes=0)])
def test_the_jacobian_of_the_last_latent_is_autograd_s(affine):
    model = shaken(dataclasses.replace(SMALL, affine=affine)).double()
    z = in_double(situation(model, 1)).history[0, -1]
    plans = torch.randn(3, 4, 10, dtype=torch.float64)

    def last(plan):
        return model.rollout(z[None, None], model.action_encoder.encode_normalised(plan)[None])[0, -1]

    with torch.no_grad():
        found, jacobian = model.transition.folded(model.action_encoder).last_latent_and_jacobian(z, plans)
    for plan, latent, rows in zip(plans, found, jacobian, strict=True):
        exact = torch.autograd.functional.jacobian(last, plan).flatten(1)
        torch.testing.assert_close(latent, last(plan).detach(), rtol=0, atol=1e-11)
        torch.testing.assert_close(rows.mT, exact, rtol=0, atol=1e-10)


def test_a_linear_problem_is_solved_to_its_closed_form():
    model = shaken(dataclasses.replace(SMALL, affine=AffineConfig(modes=0))).double()
    with torch.no_grad():
        model.action_encoder.linear_layers[1].bias.fill_(60.0)  # SiLU(x) = x up there, so psi is linear too
    at = in_double(situation(model, 1))
    mu, horizon = 0.3, 3
    with torch.no_grad():
        zero = torch.zeros(1, horizon, 10, dtype=torch.float64)
        last, rows = model.transition.folded(model.action_encoder).last_latent_and_jacobian(at.history[0, -1], zero)
    jacobian = rows[0].mT
    ridge = jacobian.mT @ jacobian + mu * torch.eye(horizon * 10, dtype=torch.float64)
    best = torch.linalg.solve(ridge, jacobian.mT @ (at.goal[0] - last[0]))
    config = GaussNewtonConfig(starts=3, iterations=20, mu=mu, box_std=WIDE)
    plan = gauss_newton(model, at, horizon=horizon, generators=generators(0), config=config)
    # Steps are taken as long as they lower the objective, which near its minimum resolves sqrt(1e-16) of the plan.
    torch.testing.assert_close(plan.actions[0].flatten(), best, rtol=0, atol=1e-6)


def regularised(model, at, mu):
    """Gauss-Newton's objective as a cost that CEM can search, on the same scale as the terminal cost."""
    cost = terminal_cost(model, at)
    return lambda plans: cost(plans) + mu / model.config.latent_dim * plans.square().sum(dim=(2, 3))


def test_it_finds_plans_at_least_as_good_as_cem_s():
    model = shaken(SMALL)
    tasks = 6
    at = situation(model, tasks)
    config = GaussNewtonConfig()
    box = Bounds(torch.full((10,), -config.box_std), torch.full((10,), config.box_std))
    objective = regularised(model, at, config.mu)
    with torch.inference_mode():
        newton = gauss_newton(model, at, horizon=4, generators=generators(*range(tasks)), config=config)
        sampled = cem(
            objective,
            horizon=4,
            action_dim=10,
            generators=generators(*range(tasks)),
            config=CEMConfig(200, 20, 20),
            bounds=box,
        )
        ours, theirs = (objective(plan.actions[:, None])[:, 0] for plan in (newton, sampled))
    # Both stop near an optimum, not at it: a dozen steps leave a few parts in a thousand.
    assert (ours <= 1.005 * theirs).all()
    assert (ours < theirs).double().mean() > 0.5


def test_plans_do_not_depend_on_the_neighbours_to_the_last_bit():
    model = shaken(SMALL)
    at = situation(model, 3)
    together = gauss_newton(model, at, horizon=3, generators=generators(0, 1, 2))
    one = Situation(at.history[1:2], at.past_conditions[1:2], at.goal[1:2])
    alone = gauss_newton(model, one, horizon=3, generators=generators(1))
    assert torch.equal(together.actions[1], alone.actions[0])
    assert torch.equal(together.elite_costs[1], alone.elite_costs[0])


def test_the_trace_starts_before_the_first_step_and_ends_at_the_plan_s_terminal_cost():
    model = shaken(SMALL)
    at = situation(model, 2)
    config = GaussNewtonConfig(iterations=9)
    plan = gauss_newton(model, at, horizon=3, generators=generators(0, 1), config=config)
    assert plan.elite_costs.shape == (2, 10)
    final = terminal_cost(model, at)(plan.actions[:, None])[:, 0]
    torch.testing.assert_close(plan.elite_costs[:, -1], final, rtol=1e-4, atol=1e-6)
    assert (plan.elite_costs[:, -1] < plan.elite_costs[:, 0]).all()


def test_plans_stay_in_the_box_and_inside_the_bounds():
    model = shaken(SMALL)
    at = situation(model, 2)
    at = Situation(at.history, at.past_conditions, 30 * at.goal)  # far away: pushes against every edge
    bounds = Bounds(torch.full((10,), -0.5), torch.cat([torch.full((5,), 0.25), torch.full((5,), 9.0)]))
    plan = gauss_newton(model, at, horizon=3, generators=generators(0, 1), bounds=bounds)
    assert (plan.actions >= -0.5).all()
    assert (plan.actions <= torch.cat([torch.full((5,), 0.25), torch.full((5,), 1.75)])).all()
    assert ((plan.actions == 0.25) | (plan.actions == -0.5)).any()


def test_held_actions_do_not_spoil_the_others():
    """At a bounded optimum every free coordinate has no gradient left and every held one is pressed outwards."""
    model = shaken(SMALL).double()
    at = in_double(situation(model, 1))
    config = GaussNewtonConfig(starts=1, iterations=60, box_std=0.1)
    plan = gauss_newton(model, at, horizon=2, generators=generators(0), config=config)
    actions = plan.actions.clone().requires_grad_()
    conditions = model.action_encoder.encode_normalised(actions)
    last = model.rollout(at.history, conditions)[:, -1]
    ((last - at.goal).square().sum() + config.mu * actions.square().sum()).backward()
    gradient = actions.grad.flatten()
    flat = plan.actions.flatten()
    at_low, at_high = flat <= -0.1, flat >= 0.1
    assert (at_low | at_high).any()
    assert gradient[~(at_low | at_high)].abs().max() < 1e-6
    assert (gradient[at_low] > 0).all()
    assert (gradient[at_high] < 0).all()


def test_it_needs_a_state_affine_model_and_finite_numbers():
    transformer = shaken(dataclasses.replace(SMALL, model="lewm"))
    with pytest.raises(UsageError, match="state-affine"):
        gauss_newton(transformer, situation(transformer, 1), horizon=2, generators=generators(0))
    model = shaken(SMALL)
    at = situation(model, 2)
    at.goal[1] = torch.nan
    with pytest.raises(NonFiniteError, match="task 1"):
        gauss_newton(model, at, horizon=2, generators=generators(0, 1))
