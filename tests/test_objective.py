"""What is minimised: both prediction losses, SIGReg against a slow reference, and the monitor of collapse."""

import numpy as np
import pytest
import torch

from saltwm.ground.config import AffineConfig, EncoderConfig, ModelConfig, ObjectiveConfig, TransformerConfig, WorldSpec
from saltwm.ground.errors import ShapeError, UsageError
from saltwm.losses.sigreg import draw_projections, sigreg
from saltwm.model.traits import TRANSITIONS
from saltwm.model.world_model import WorldModel
from saltwm.monitors import effective_rank
from saltwm.objective import prediction_loss, training_loss

LEARNING = [name for name, traits in TRANSITIONS.items() if not traits.is_frozen]
"""Models that learn their encoder."""

D, SIZE, K = 6, 8, 5


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def world_model(kind="salt"):
    torch.manual_seed(0)
    encoder = EncoderConfig(kind="conv", channels=(4,), width=8, projection_dim=8)
    transformer = TransformerConfig(depth=1, heads=2, head_dim=4, mlp_dim=8, projection_dim=8, dropout=0.0)
    config = ModelConfig(kind, D, 2, 3, encoder, AffineConfig(modes=2), transformer)
    model = WorldModel(config, WorldSpec("two-room", action_dim=2, image_size=SIZE)).double()
    with torch.no_grad():
        for parameter in model.transition.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def batch(count=4, blocks=K):
    generator = torch.Generator().manual_seed(1)
    frames = torch.randint(0, 256, (count, blocks + 1, SIZE, SIZE, 3), dtype=torch.uint8, generator=generator)
    return frames, torch.randn(count, blocks, 4, dtype=torch.float64, generator=generator)


def projections(count=16, dim=D):
    return draw_projections(dim, count, torch.Generator().manual_seed(2)).double()


# --- prediction ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LEARNING)
def test_the_rollout_loss_supervises_every_prediction_made_from_the_first_latent(kind):
    model = world_model(kind).eval()
    z, c = torch.randn(3, K + 1, D, dtype=torch.float64), torch.randn(3, K, D, dtype=torch.float64)
    history, errors = z[:, :1], []
    for k in range(1, K + 1):
        prediction = model.transition.predict(history, c[:, :k])[:, -1]
        errors.append((prediction - z[:, k]).detach().numpy() ** 2)
        history = torch.cat([history, prediction[:, None]], dim=1)
    assert np.isclose(prediction_loss(model, z, c, "rollout").item(), np.mean(errors), rtol=1e-12)


@pytest.mark.parametrize("kind", LEARNING)
def test_the_one_step_loss_predicts_the_same_targets_from_encoded_latents(kind):
    model = world_model(kind).eval()
    z, c = torch.randn(3, K + 1, D, dtype=torch.float64), torch.randn(3, K, D, dtype=torch.float64)
    errors = []
    for k in range(1, K + 1):
        known = slice(max(0, k - model.window), k)
        prediction = model.transition.predict(z[:, known], c[:, known])[:, -1]
        errors.append((prediction - z[:, k]).detach().numpy() ** 2)
    assert np.isclose(prediction_loss(model, z, c, "one-step").item(), np.mean(errors), rtol=1e-12)


@pytest.mark.parametrize("objective", ["rollout", "one-step"])
def test_gradients_flow_into_the_targets(objective):
    model = world_model()
    z = torch.randn(3, K + 1, D, dtype=torch.float64, requires_grad=True)
    c = torch.randn(3, K, D, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(prediction_loss(model, z, c, objective), z)
    predictions = model.rollout(z[:, :1], c) if objective == "rollout" else model.transition.predict(z[:, :-1], c)
    (detached,) = torch.autograd.grad((predictions - z[:, 1:].detach()).square().mean(), z)
    into_targets = -2 * (predictions - z[:, 1:]).detach() / predictions.numel()
    assert torch.allclose(gradient[:, 1:] - detached[:, 1:], into_targets, atol=1e-14)
    assert torch.allclose(gradient[:, 0], detached[:, 0], atol=1e-14)
    assert into_targets.abs().max() > 1e-3


def test_the_encoder_learns_through_the_targets():
    model, (frames, blocks) = world_model(), batch()

    def encoder_gradient(detach):
        latents = model.encode(frames)
        targets = latents[:, 1:].detach() if detach else latents[:, 1:]
        latents = torch.cat([latents[:, :1], targets], dim=1)
        loss = prediction_loss(model, latents, model.condition(blocks), "rollout")
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.encoder.parameters()))])

    whole = training_loss(model, frames, blocks, ObjectiveConfig(sigreg_weight=0.0), projections())
    found = torch.cat([g.flatten() for g in torch.autograd.grad(whole.total, list(model.encoder.parameters()))])
    assert torch.allclose(found, encoder_gradient(detach=False), atol=1e-12)
    assert (found - encoder_gradient(detach=True)).norm() > 0.1 * found.norm()


@pytest.mark.parametrize("objective", ["rollout", "one-step"])
def test_prediction_losses_have_the_gradient_of_finite_differences(objective):
    model = world_model()
    z = torch.randn(2, 3, D, dtype=torch.float64, requires_grad=True)
    c = torch.randn(2, 2, D, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z, c: prediction_loss(model, z, c, objective), (z, c))


@pytest.mark.parametrize("kind", LEARNING)
def test_the_total_is_prediction_and_weighted_sigreg(kind):
    model, (frames, blocks) = world_model(kind), batch()
    losses = training_loss(model, frames, blocks, ObjectiveConfig(sigreg_weight=0.3), projections())
    assert losses.latents.shape == (4, K + 1, D)
    assert torch.equal(losses.total, losses.prediction + 0.3 * losses.terms["sigreg"])
    assert torch.allclose(losses.terms["sigreg"], sigreg(losses.latents, projections()))
    losses.total.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_an_unknown_objective_is_refused():
    with pytest.raises(UsageError, match="one-step"):
        prediction_loss(world_model(), torch.zeros(1, 2, D).double(), torch.zeros(1, 1, D).double(), "one_step")


# --- many starts in one window ---------------------------------------------------------------------------------------


def long_window(starts):
    """Latents [3, K + starts, D] and conditions, both with gradients."""
    z = torch.randn(3, K + starts, D, dtype=torch.float64, requires_grad=True)
    c = torch.randn(3, K + starts - 1, D, dtype=torch.float64, requires_grad=True)
    return z, c


def value_and_gradients(loss, *sources):
    gradients = torch.autograd.grad(loss, sources, allow_unused=True)
    return [loss.detach(), *(torch.zeros(()) if gradient is None else gradient for gradient in gradients)]


@pytest.mark.parametrize("kind", LEARNING)
@pytest.mark.parametrize("starts", [2, 3, 7])
def test_rollouts_from_every_start_are_the_mean_over_the_windows_inside_the_window(kind, starts):
    """In evaluation mode; in training, LeWM's batch normalisation takes its statistics over all starts together."""
    model, (z, c) = world_model(kind).eval(), long_window(starts)
    sources = z, c, *model.transition.parameters()
    inside = [prediction_loss(model, z[:, s : s + K + 1], c[:, s : s + K], "rollout") for s in range(starts)]
    found = value_and_gradients(prediction_loss(model, z, c, "rollout", starts), *sources)
    expected = value_and_gradients(torch.stack(inside).mean(), *sources)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(found[0], inside[0], rtol=1e-3), "one start alone would do, so nothing was compared"


@pytest.mark.parametrize("kind", LEARNING)
@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_one_start_is_the_papers_rollout_to_the_last_bit(kind, mode):
    model, (z, c) = world_model(kind).train(mode == "training"), long_window(1)
    sources = z, c, *model.transition.parameters()
    plain = torch.nn.functional.mse_loss(model.rollout(z[:, :1], c), z[:, 1:])
    found = value_and_gradients(prediction_loss(model, z, c, "rollout"), *sources)
    for one, other in zip(found, value_and_gradients(plain, *sources), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", LEARNING)
def test_single_steps_are_counted_once_however_many_starts_a_window_has(kind):
    """So the one-step loss is not the mean over overlapping windows, which would count the inner steps more often."""
    model, (z, c) = world_model(kind).eval(), long_window(K + 1)
    loss = prediction_loss(model, z, c, "one-step", K + 1)
    assert torch.equal(loss, prediction_loss(model, z, c, "one-step"))
    halves = [prediction_loss(model, z[:, s : s + K + 1], c[:, s : s + K], "one-step") for s in (0, K)]
    # SALT looks at one latent, so two windows side by side are as good; LeWM also looks back across the seam.
    assert torch.allclose(loss, torch.stack(halves).mean(), rtol=1e-12) == (model.window == 1)


@pytest.mark.parametrize("kind", LEARNING)
@pytest.mark.parametrize("objective", ["rollout", "one-step"])
def test_a_long_window_is_encoded_once(kind, objective):
    model, (frames, blocks) = world_model(kind), batch(blocks=K + 2)
    counts = []
    model.encoder.register_forward_hook(lambda module, inputs, latents: counts.append(len(latents)))
    losses = training_loss(model, frames, blocks, ObjectiveConfig(objective, K, starts=3), projections())
    assert counts == [4 * (K + 3)]
    assert losses.latents.shape == (4, K + 3, D)
    expected = prediction_loss(model, losses.latents, model.condition(blocks), objective, 3)
    assert torch.allclose(losses.prediction, expected, rtol=1e-12)
    with pytest.raises(ShapeError, match="action blocks"):
        training_loss(model, frames, blocks, ObjectiveConfig(objective, K, starts=2), projections())


@pytest.mark.parametrize("starts", [-1, 0, K + 1])
def test_more_starts_than_action_blocks_or_none_are_refused(starts):
    z, c = long_window(1)
    with pytest.raises(ShapeError, match=f"starts: expected 1 to 5 in a window of 6 frames, found {starts}"):
        prediction_loss(world_model(), z, c, "rollout", starts)


# --- SIGReg ----------------------------------------------------------------------------------------------------------


def reference_sigreg(latents, directions, knots=17):
    """The statistic of each frame and direction, one at a time."""
    t = np.linspace(0, 3, knots)
    weights = np.full(knots, 2 * (t[1] - t[0]))
    weights[[0, -1]] = t[1] - t[0]
    statistics = []
    for frame in np.moveaxis(latents, 1, 0):
        for direction in directions.T:
            x = frame @ direction
            characteristic = np.exp(1j * t[:, None] * x).mean(axis=1)
            error = np.abs(characteristic - np.exp(-(t**2) / 2)) ** 2
            statistics.append(len(x) * np.sum(weights * np.exp(-(t**2) / 2) * error))
    return np.mean(statistics)


@pytest.mark.parametrize("knots", [2, 3, 6, 17])
@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 20.0])
def test_sigreg_equals_the_slow_reference(knots, scale):
    latents = scale * torch.randn(9, 3, D, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    expected = reference_sigreg(latents.numpy(), projections().numpy(), knots)
    assert np.isclose(sigreg(latents, projections(), knots).item(), expected, rtol=1e-11)


def test_sigreg_in_blocks_equals_the_slow_reference():
    latents = torch.randn(2100, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    directions = projections(90, dim=3)  # 180 columns in blocks of 64
    assert np.isclose(
        sigreg(latents, directions).item(), reference_sigreg(latents.numpy(), directions.numpy()), rtol=1e-11
    )


def test_sigreg_has_the_gradient_of_finite_differences():
    latents = torch.randn(4, 2, D, dtype=torch.float64, requires_grad=True)
    directions = projections(3).requires_grad_()
    assert torch.autograd.gradcheck(lambda z, p: sigreg(z, p, 17), (latents, directions))


def test_sigreg_in_float32_is_as_good_as_float32_allows():
    latents = torch.randn(64, 2, 32, generator=torch.Generator().manual_seed(5))
    directions = draw_projections(32, 64, torch.Generator().manual_seed(6))
    single, double = latents.clone().requires_grad_(), latents.double().requires_grad_()
    values = sigreg(single, directions), sigreg(double, directions.double())
    for value in values:
        value.backward()
    assert abs(values[0].item() / values[1].item() - 1) < 1e-5
    assert (single.grad - double.grad).norm() < 1e-5 * double.grad.norm()


def test_sigreg_is_small_for_gaussian_latents_and_large_for_collapsed_ones():
    generator = torch.Generator().manual_seed(7)
    directions = draw_projections(32, 256, generator)
    gaussian = torch.randn(256, 4, 32, generator=generator)
    collapsed = torch.zeros_like(gaussian)
    one_dimensional = gaussian[..., :1].expand_as(gaussian)
    too_wide = 3 * gaussian
    small = sigreg(gaussian, directions).item()
    # The statistic's mean under N(0, I) does not depend on N: integral of (1 - exp(-t^2)) exp(-t^2 / 2), about 1.06.
    assert 0.9 < small < 1.2
    for other in (collapsed, one_dimensional, too_wide):
        assert sigreg(other, directions).item() > 20 * small


def test_sigreg_looks_at_each_frame_on_its_own():
    generator = torch.Generator().manual_seed(8)
    directions = draw_projections(8, 64, generator)
    # Constant within each frame, Gaussian over all: only a statistic per frame can see it.
    stuck = torch.randn(1, 64, 8, generator=generator).expand(64, -1, -1)
    assert (
        sigreg(stuck, directions).item() > 10 * sigreg(torch.randn(64, 64, 8, generator=generator), directions).item()
    )


def test_projections_are_unit_directions_and_a_function_of_the_generator():
    drawn = draw_projections(12, 7, torch.Generator().manual_seed(9))
    assert torch.allclose(drawn.norm(dim=0), torch.ones(7))
    assert torch.equal(drawn, draw_projections(12, 7, torch.Generator().manual_seed(9)))
    assert not torch.equal(drawn, draw_projections(12, 7, torch.Generator().manual_seed(10)))


def test_fewer_than_two_knots_are_refused():
    with pytest.raises(ShapeError, match="knots"):
        sigreg(torch.zeros(2, 1, D).double(), projections(), knots=1)


# --- the monitor -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_effective_rank_counts_the_directions_that_latents_use(rank):
    basis = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0]
    latents = torch.cat([torch.eye(rank), -torch.eye(rank)]).double() @ basis[:rank]
    assert abs(effective_rank(latents + 5) - rank) < 1e-9


def test_effective_rank_of_equal_latents_is_one():
    assert effective_rank(torch.ones(10, 4)) == 1.0
