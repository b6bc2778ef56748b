"""DINO-WM's transition: what it sees, what it predicts, and that its cost is over patches."""

import pytest
import torch

from saltwm.ground.config import EncoderConfig, ModelConfig, TransformerConfig, WorldSpec
from saltwm.ground.errors import UsageError
from saltwm.model.patches import PatchPredictor, frames_seen
from saltwm.model.world_model import WorldModel
from saltwm.planning.costs import Situation, terminal_cost

SMALL = TransformerConfig(window=3, depth=2, heads=2, head_dim=4, mlp_dim=16)
PATCHES, WIDTH, CONDITION = 4, 5, 3


@pytest.fixture
def predictor():
    torch.manual_seed(0)
    return PatchPredictor(PATCHES, WIDTH, CONDITION, SMALL).double().eval()


def inputs(count, frames, seed=1):
    drawn = torch.Generator().manual_seed(seed)
    latents = torch.randn(count, frames, PATCHES * WIDTH, dtype=torch.float64, generator=drawn)
    return latents, torch.randn(count, frames, CONDITION, dtype=torch.float64, generator=drawn)


def test_a_patch_sees_all_patches_of_its_frame_and_of_earlier_ones():
    seen = frames_seen(3, 2)
    for token in range(6):
        assert seen[token].tolist() == [other // 2 <= token // 2 for other in range(6)]


def test_a_prediction_depends_on_every_patch_and_action_so_far_and_on_none_that_follows(predictor):
    latents, conditions = inputs(1, 3)
    latents.requires_grad_()
    conditions.requires_grad_()
    one_patch = predictor.predict(latents, conditions)[0, 1, :WIDTH]
    by_latents, by_conditions = torch.autograd.grad(one_patch.square().sum(), [latents, conditions])
    moved = by_latents[0].unflatten(-1, (PATCHES, WIDTH)).abs().amax(-1)
    assert (moved[:2] > 1e-9).all()
    assert (moved[2] == 0).all()
    assert (by_conditions[0, :2].abs().amax(-1) > 1e-9).all()
    assert (by_conditions[0, 2] == 0).all()


def test_a_long_sequence_is_predicted_window_by_window_and_a_rollout_feeds_its_predictions_back(predictor):
    latents, conditions = inputs(2, 6)
    found = predictor.predict(latents, conditions)
    for t in range(6):
        start = max(0, t - 2)
        alone = predictor.predict(latents[:, start : t + 1], conditions[:, start : t + 1])[:, -1]
        torch.testing.assert_close(found[:, t], alone, rtol=0, atol=1e-12)
    rolled = predictor.rollout(latents[:, :1], conditions[:, :3])
    known = [latents[:, 0]]
    for k in range(3):
        known.append(predictor.predict(torch.stack(known, 1), conditions[:, : k + 1])[:, -1])
    torch.testing.assert_close(rolled, torch.stack(known[1:], 1), rtol=0, atol=1e-12)


def model_of(grid=2, width=6, latent_dim=None):
    encoder = EncoderConfig(kind="dinov2", patch_size=4, width=width, depth=1, heads=2, mlp_dim=12, grid=grid)
    latent_dim = grid**2 * width if latent_dim is None else latent_dim
    config = ModelConfig("dino-wm", latent_dim, 5, CONDITION, encoder, transformer=SMALL)
    torch.manual_seed(0)
    return WorldModel(config, WorldSpec("two-room", 2, 16)).eval()


def test_the_cost_of_a_plan_is_the_mean_squared_error_over_patches_and_features():
    model = model_of()
    frames = torch.randint(0, 256, (1, 2, 16, 16, 3), dtype=torch.uint8)
    z = model.encode(frames)
    plans = torch.randn(1, 7, 2, 10)
    with torch.no_grad():
        cost = terminal_cost(model, Situation(z[:, :1], torch.empty(1, 0, CONDITION), z[:, 1]))(plans)
        last = model.rollout(z[:, :1].expand(7, -1, -1), model.action_encoder.encode_normalised(plans[0]))[:, -1]
    patches = (last - z[:, 1]).unflatten(-1, (4, 6)).square().mean(-1)  # of each patch
    torch.testing.assert_close(cost[0], patches.mean(-1), rtol=1e-5, atol=1e-6)
    assert cost.std() > 0


def test_only_the_predictor_and_the_actions_learn():
    model = model_of()
    assert {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad} == {
        "action_encoder",
        "transition",
    }


def test_a_latent_that_is_not_its_patches_is_refused():
    with pytest.raises(
        UsageError, match="expected an encoder dinov2 and a `latent_dim` of 4 patches of 6, found dinov2"
    ):
        model_of(latent_dim=25)
