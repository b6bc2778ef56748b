"""SALT with memory: affine in [z_t, z_t - z_{t-1}, c_{t-1}], exactly decomposed, planned with like plain SALT."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saltwm.diagnostics.jacobians import history_jacobians
from saltwm.diagnostics.propagation import measure
from saltwm.ground.config import AffineConfig, EncoderConfig, ModelConfig, ObjectiveConfig, WorldSpec
from saltwm.ground.errors import ShapeError, UsageError
from saltwm.ground.strict_json import from_plain, to_plain
from saltwm.model.affine import StateAffine
from saltwm.model.world_model import WorldModel
from saltwm.objective import prediction_loss
from saltwm.planning.costs import Situation, rollout_cost, terminal_cost
from saltwm.planning.gauss_newton import gauss_newton

D, C = 6, 5
CONFIG = ModelConfig(
    latent_dim=D,
    encoder=EncoderConfig(kind="conv", channels=(4, 8), width=16, projection_dim=24),
    affine=AffineConfig(modes=3, memory=True),
)


def transition(seed=0, **options):
    torch.manual_seed(seed)
    found = StateAffine(D, C, **{"modes": 3, "memory": True} | options).double().eval().requires_grad_(False)
    for parameter in found.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    return found


def sequence(batch, steps, seed=1):
    """Latents [B, steps + 1, D] and conditions [B, steps, C]."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return draw(batch, steps + 1, D), draw(batch, steps, C)


def world_model(config=CONFIG):
    torch.manual_seed(0)
    model = WorldModel(config, WorldSpec("two-room", 2, image_size=16)).double().eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def by_hand(salt, z, before, c, past):
    """Eq. 8 on x, written out."""
    x = torch.cat([z, z - before, past])
    matrix = torch.cat([salt._compose_base(), salt.M], dim=1) + torch.einsum("r,rij->ij", salt.W_g.weight @ c, salt.N)
    return matrix @ x + salt.B.weight @ c + salt.B.bias


# --- the transition --------------------------------------------------------------------------------------------------


def test_a_step_is_eq_8_on_the_last_two_latents_and_the_action_between_them():
    salt, (z, c) = transition(), sequence(1, 2)
    found = salt.rollout(z[:, :2], c)[0, 0]
    torch.testing.assert_close(found, by_hand(salt, z[0, 1], z[0, 0], c[0, 1], c[0, 0]), rtol=0, atol=1e-12)


def test_a_rollout_remembers_its_own_predictions_and_their_actions():
    salt, (z, c) = transition(), sequence(1, 4)
    before, now, expected = z[0, 0], z[0, 1], []
    for k in range(1, 4):
        before, now = now, by_hand(salt, now, before, c[0, k], c[0, k - 1])
        expected.append(now)
    torch.testing.assert_close(salt.rollout(z[:, :2], c)[0], torch.stack(expected), rtol=0, atol=1e-11)


def test_a_first_step_remembers_that_nothing_moved_and_no_action():
    salt, (z, c) = transition(), sequence(1, 1)
    expected = by_hand(salt, z[0, 0], z[0, 0], c[0, 0], torch.zeros_like(c[0, 0]))
    torch.testing.assert_close(salt.rollout(z[:, :1], c)[0, 0], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(salt(z[:, 0], c[:, 0])[0], expected, rtol=0, atol=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_one_step_predictions_are_rollouts_of_one_step(seed, steps):
    salt, (z, c) = transition(), sequence(3, steps, seed)
    found = salt.predict(z[:, :-1], c)
    for t in range(steps):
        first = max(0, t - 1)
        alone = salt.rollout(z[:, first : t + 1], c[:, first : t + 1])[:, 0]
        torch.testing.assert_close(found[:, t], alone, rtol=0, atol=1e-11)


@given(st.integers(0, 10_000), st.floats(-2, 2))
@settings(max_examples=20, deadline=None)
def test_the_last_latent_is_affine_in_both_latents_of_the_start(seed, share):
    salt = transition()
    (a, c), (b, _) = sequence(2, 6, seed), sequence(2, 6, seed + 1)
    mixed = share * a + (1 - share) * b
    ends = [salt.rollout(z[:, :2], c)[:, -1] for z in (a, b, mixed)]
    torch.testing.assert_close(ends[2], share * ends[0] + (1 - share) * ends[1], rtol=1e-9, atol=1e-9)


def test_a_new_memory_is_silent_so_training_starts_as_plain_salt():
    torch.manual_seed(0)
    salt = StateAffine(D, C, modes=3, memory=True).double()
    z, c = sequence(4, 5)
    alone = salt.rollout(z[:, 1:2], c[:, 1:])
    torch.testing.assert_close(salt.rollout(z[:, :2], c), alone, rtol=0, atol=1e-12)


def test_without_memory_nothing_changed():
    torch.manual_seed(0)
    salt = StateAffine(D, C, modes=3)
    assert (salt.window, salt.start_latents, salt.state_dim) == (1, 1, D)
    assert "M" not in salt.state_dict()


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [None, 1])
@pytest.mark.parametrize("options", [{}, {"modes": 0}, {"spectral": False}], ids=str)
def test_rollout_error_is_the_sum_of_propagated_one_step_errors_of_the_state(options, start):
    z, c = sequence(5, 20)
    found = measure(transition(**options), z, c, start=start)
    assert found.augmented_rho.max() <= 1e-10
    assert found.augmented_residual.abs().max() <= 1e-10 * found.delta.abs().max()


def test_negative_control_the_latest_latent_alone_does_not_carry_the_errors():
    assert measure(transition(), *sequence(5, 20)).rho[:, 5:].min() > 1e-3


def test_the_jacobians_are_autograd_s():
    salt, (z, c) = transition(), sequence(1, 2)
    exact = torch.autograd.functional.jacobian(lambda pair: salt.predict(pair[None], c)[0, -1], z[0, :2])
    found = history_jacobians(salt, z[:, :2], c)[0]
    torch.testing.assert_close(found.transpose(0, 1), exact, rtol=0, atol=1e-11)


# --- planning --------------------------------------------------------------------------------------------------------


def situation(model, tasks, known):
    z, c = (x[:tasks] for x in sequence(tasks, 3))
    c = torch.cat([c, c[..., :1]], dim=-1)  # conditions are as wide as latents here
    return Situation(z[:, :known], c[:, : known - 1], z[:, -1])


@pytest.mark.parametrize("known", [1, 2])
@pytest.mark.parametrize("modes", [0, 3])
def test_the_fast_rollout_is_the_plain_one(known, modes):
    model = world_model(dataclasses.replace(CONFIG, affine=AffineConfig(modes, memory=True)))
    at, plans = situation(model, 2, known), torch.randn(2, 7, 4, 10, dtype=torch.float64)
    fast, plain = terminal_cost(model, at), rollout_cost(model, at)
    for horizon in (1, 2, 4):  # one after another: buffers are used again
        some = plans[:, :, :horizon]
        torch.testing.assert_close(fast(some), plain(some), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("known", [1, 2])
def test_the_jacobian_of_the_last_latent_is_autograd_s(known):
    model = world_model()
    at, plans = situation(model, 1, known), torch.randn(3, 4, 10, dtype=torch.float64)
    folded = model.transition.folded(model.action_encoder)
    x = folded.first_state(at.history[0], at.past_conditions[0])
    found, rows = folded.last_latent_and_jacobian(x, plans)

    def last(plan):
        return model.transition.last_latent(model.action_encoder, at.history[0], at.past_conditions[0], plan[None])[0]

    for plan, latent, jacobian in zip(plans, found, rows, strict=True):
        torch.testing.assert_close(latent, last(plan), rtol=0, atol=1e-11)
        exact = torch.autograd.functional.jacobian(last, plan).flatten(1)
        torch.testing.assert_close(jacobian.mT, exact, rtol=0, atol=1e-10)


def test_gauss_newton_plans_with_what_is_remembered():
    model = world_model()
    generators = lambda: [torch.Generator().manual_seed(0)]  # noqa: E731
    at = situation(model, 1, 2)
    remembered = gauss_newton(model, at, horizon=3, generators=generators())
    forgotten = dataclasses.replace(at, history=at.history[:, 1:], past_conditions=at.past_conditions[:, 1:])
    assert remembered.elite_costs[0, -1] < remembered.elite_costs[0, 0]
    assert not torch.equal(
        remembered.actions, gauss_newton(model, forgotten, horizon=3, generators=generators()).actions
    )


# --- learning and files ----------------------------------------------------------------------------------------------


def test_training_rolls_out_once_from_one_latent_and_then_from_two():
    model = world_model()
    z, c = sequence(3, 4)
    c = torch.cat([c, c[..., :1]], dim=-1)
    errors = [model.rollout(z[:, :1], c[:, :2]) - z[:, 1:3]]
    errors += [model.rollout(z[:, s - 1 : s + 1], c[:, s - 1 : s + 2]) - z[:, s + 1 : s + 3] for s in (1, 2)]
    expected = torch.stack(errors).square().mean()
    torch.testing.assert_close(prediction_loss(model, z, c, "rollout", starts=3), expected, rtol=1e-12, atol=0)
    with pytest.raises(ShapeError, match="starts"):
        prediction_loss(model, z, c, "rollout", starts=1)


def test_a_config_from_before_memory_reads_as_one_without():
    old = to_plain(CONFIG)
    del old["affine"]["memory"]
    assert not from_plain(ModelConfig, old, "run.json").affine.memory


def test_an_onnx_form_is_refused():
    with pytest.raises(UsageError, match="memory has no ONNX form"):
        transition().exportable()


def test_the_objective_s_windows_are_as_long_as_without_memory():
    assert ObjectiveConfig(starts=2).window_blocks == 6
