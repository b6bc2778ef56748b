"""iCEM, MPPI, gradient descent and the table of planners; the field's draw order."""

import dataclasses
from typing import get_args

import numpy as np
import pytest
import torch
from planning_models import SMALL, generators, shaken, situation

from saltwm.ground.config import CEMConfig, GaussNewtonConfig, GradientConfig, ICEMConfig, MPPIConfig, PlannerConfig
from saltwm.ground.errors import DamagedError, NonFiniteError, UsageError
from saltwm.ground.strict_json import from_plain, to_plain
from saltwm.interop.swm_cem import compatible_cem
from saltwm.planning.cem import Bounds
from saltwm.planning.costs import Situation
from saltwm.planning.gradient import gradient_descent
from saltwm.planning.icem import coloured, icem
from saltwm.planning.mppi import mppi, path_weights
from saltwm.planning.planners import PLANNERS, planner_of

CONFIGS = [
    CEMConfig(40, 6, 8),
    ICEMConfig(40, 6, 8),
    MPPIConfig(40, 6),
    GradientConfig(3, 6),
    GaussNewtonConfig(3, 6),
]
SEARCHES = [
    (icem, ICEMConfig(100, 25, 10)),
    (mppi, MPPIConfig(100, 40)),
    (gradient_descent, GradientConfig(2, 80, 0.1)),
]


def quadratic(targets):
    """Cost [N, S] of plans [N, S, H, A]: squared distance to each task's target [N, H, A]."""
    return lambda plans: (plans - targets[:, None]).square().mean(dim=(2, 3))


@pytest.mark.parametrize(("search", "config"), SEARCHES)
def test_each_search_reaches_a_known_optimum_inside_the_bounds(search, config):
    targets = torch.tensor([0.5, -0.3]).expand(2, 3, 2)
    bounds = Bounds(torch.tensor([-1.0, -1.0]), torch.tensor([0.2, 1.0]))
    found = search(
        quadratic(targets), horizon=3, action_dim=2, generators=generators(0, 1), config=config, bounds=bounds
    )
    assert (found.actions <= bounds.high + 1e-6).all()
    np.testing.assert_allclose(found.actions, torch.tensor([0.2, -0.3]).expand(2, 3, 2), atol=0.1)
    assert (found.elite_costs[:, -1] < found.elite_costs[:, 0]).all()


@pytest.mark.parametrize(("search", "config"), SEARCHES[:2])
def test_sampled_searches_never_choose_what_is_not_finite(search, config):
    def cost(plans):
        costs = (plans - 1).square().mean(dim=(2, 3))
        return torch.where(plans[:, :, 0, 0] > 0.5, torch.nan, costs)

    found = search(cost, horizon=2, action_dim=1, generators=generators(0), config=config)
    assert found.actions.isfinite().all()
    assert found.elite_costs.isfinite().all()
    with pytest.raises(NonFiniteError, match="task 0"):
        search(
            lambda plans: torch.full(plans.shape[:2], torch.nan),
            horizon=2,
            action_dim=1,
            generators=generators(0),
            config=config,
        )


def test_coloured_noise_has_unit_variance_and_the_asked_for_spectrum():
    white = torch.randn(1, 20000, 16, 1, generator=torch.Generator().manual_seed(0))
    for beta in (0.0, 2.0):
        noise = coloured(white, beta)
        assert noise.var().item() == pytest.approx(1, abs=0.03)
        power = torch.fft.rfft(noise, dim=2).abs().square().mean(dim=(0, 1, 3))
        slope = np.polyfit(np.log(np.arange(1, 8)), np.log(power[1:8].numpy()), 1)[0]
        assert slope == pytest.approx(-beta, abs=0.1)
    torch.testing.assert_close(coloured(white, 0.0), white)


def test_mppi_weights_favour_cheap_candidates_and_ignore_infinite_ones():
    weights = path_weights(torch.tensor([[0.0, 1.0, torch.inf], [3.0, 3.0, 3.0]]), temperature=0.5)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(2))
    assert weights[0, 0] > weights[0, 1] > weights[0, 2] == 0
    torch.testing.assert_close(weights[1], torch.full((3,), 1 / 3))


def test_mppi_weights_are_those_of_exact_arithmetic_at_every_scale_of_cost():
    """Against the formula in NumPy's float64, row by row, over the finite costs."""
    huge = 1e25  # its square is beyond float32
    rows = [[1, 2, 3, huge], [1, 2, huge, np.inf], [1e-30, 2e-30, 3e-30, 9e-30], [1, 2, 3, 4], [huge, 2 * huge, 0, 0]]
    costs = torch.tensor(rows)
    weights = path_weights(costs, temperature=0.2)
    assert weights.dtype == costs.dtype
    for found, row in zip(weights, costs.double().numpy(), strict=True):
        finite = row[np.isfinite(row)]
        expected = np.exp(-(row - row.min()) / (0.2 * finite.std()))
        np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-5)
    assert weights[0, 3] < 1e-4
    assert weights[1, 3] == 0


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.kind)
def test_every_planner_lowers_the_cost_and_keeps_tasks_apart_to_the_last_bit(config):
    model = shaken(SMALL)
    at = situation(model, 3)
    plan = planner_of(config)
    together = plan(model, at, horizon=2, generators=generators(0, 1, 2))
    one = Situation(at.history[2:], at.past_conditions[2:], at.goal[2:])
    alone = plan(model, one, horizon=2, generators=generators(2))
    assert together.actions.shape == together.std.shape == (3, 2, 10)
    assert torch.equal(together.actions[2], alone.actions[0])
    assert torch.equal(together.elite_costs[2], alone.elite_costs[0])
    assert (together.elite_costs[:, -1] < together.elite_costs[:, 0]).all()


def test_planning_by_gradient_leaves_no_gradient_in_the_model():
    model = shaken(SMALL)
    planner_of(GradientConfig(2, 2))(model, situation(model, 1), horizon=2, generators=generators(0))
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_the_table_names_every_config_and_nothing_else():
    kinds = {config.kind for config in get_args(PlannerConfig)} - {"own"}
    assert set(PLANNERS) == kinds


@dataclasses.dataclass(frozen=True)
class Carrier:
    planner: PlannerConfig
    seed: int | None


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.kind)
def test_any_planner_config_survives_strict_json(config):
    assert from_plain(Carrier, to_plain(Carrier(config, None)), "here") == Carrier(config, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "genetic"}, "genetic"),
        ({"kind": None}, "kind"),
        ({"candidates": "many"}, r"candidates: .*many"),
        ({"speed": 1}, "speed"),
    ],
)
def test_a_damaged_planner_config_is_refused_by_name(change, message):
    plain = {"planner": to_plain(ICEMConfig()) | change, "seed": 1}
    with pytest.raises(DamagedError, match=message):
        from_plain(Carrier, plain, "here")


def test_a_planner_config_without_its_kind_is_refused():
    plain = {"planner": {"candidates": 5}, "seed": 1}
    with pytest.raises(DamagedError, match=r"planner\.\w+ is missing"):
        from_plain(Carrier, plain, "here")


def test_unusable_settings_are_refused():
    cost = quadratic(torch.zeros(1, 1, 1))
    options = {"horizon": 1, "action_dim": 1, "generators": generators(0)}
    with pytest.raises(UsageError, match="kept"):
        icem(cost, config=ICEMConfig(kept_elites=31), **options)
    with pytest.raises(UsageError, match="temperature"):
        mppi(cost, config=MPPIConfig(temperature=0.0), **options)


NOTHING = [
    *(CEMConfig(iterations=0), ICEMConfig(iterations=0), MPPIConfig(iterations=0), MPPIConfig(candidates=0)),
    *(GradientConfig(iterations=0), GradientConfig(starts=0)),
    *(GaussNewtonConfig(iterations=0), GaussNewtonConfig(starts=0), GaussNewtonConfig(halve_every=0)),
]


@pytest.mark.parametrize("config", NOTHING, ids=str)
def test_a_planner_without_anything_to_try_is_refused_by_name(config):
    model = shaken(SMALL)
    with pytest.raises(UsageError, match=r"\w+ must be at least 1, found 0"):
        planner_of(config)(model, situation(model, 1), horizon=2, generators=generators(0))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.kind)
def test_a_plan_of_no_blocks_is_refused(config):
    model = shaken(SMALL)
    with pytest.raises(UsageError, match="horizon must be at least 1, found 0"):
        planner_of(config)(model, situation(model, 1), horizon=0, generators=generators(0))


# --- the field's solver ----------------------------------------------------------------------------------------------


def reference_solver(costs, tasks, batch, horizon, action_dim, seed, solves):
    """stable-worldmodel's solver as its facts are known: one generator for its life, batches of tasks in turn."""
    rng = torch.Generator().manual_seed(seed)
    answers = []
    for _ in range(solves):
        means = []
        for start in range(0, tasks, batch):
            rows = min(batch, tasks - start)
            mean, var = torch.zeros(rows, horizon, action_dim), torch.ones(rows, horizon, action_dim)
            for _ in range(4):
                samples = torch.randn(rows, 30, horizon, action_dim, generator=rng) * var[:, None] + mean[:, None]
                samples[:, 0] = mean
                order = costs(start, rows, samples).argsort(dim=1)[:, :6]
                best = torch.stack([samples[i, order[i]] for i in range(rows)])
                mean, var = best.mean(dim=1), best.std(dim=1)
            means.append(mean)
        answers.append(torch.cat(means))
    return answers


@pytest.mark.parametrize("batch", [1, 2])
def test_compatible_cem_draws_as_the_field_s_solver_does(batch):
    targets = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(5))

    def costs(start, rows, samples):
        return (samples - targets[start : start + rows, None]).square().sum(dim=(2, 3))

    expected = reference_solver(costs, 3, batch, 2, 2, seed=9, solves=2)
    generator = torch.Generator().manual_seed(9)
    for answer in expected:
        batches = [
            (min(batch, 3 - start), lambda samples, start=start: costs(start, len(samples), samples))
            for start in range(0, 3, batch)
        ]
        found = compatible_cem(batches, horizon=2, action_dim=2, generator=generator, config=CEMConfig(30, 4, 6))
        assert torch.equal(found.actions, answer)
        assert found.elite_costs.shape == (3, 4)


def test_the_field_s_draw_order_depends_on_the_batches_as_theirs_does():
    cost = quadratic(torch.zeros(1, 2, 2))
    options = {"horizon": 2, "action_dim": 2, "config": CEMConfig(30, 4, 6)}
    one_by_one = compatible_cem([(1, cost), (1, cost)], generator=torch.Generator().manual_seed(0), **options)
    at_once = compatible_cem(
        [(2, quadratic(torch.zeros(2, 2, 2)))], generator=torch.Generator().manual_seed(0), **options
    )
    assert not torch.equal(one_by_one.actions, at_once.actions)
