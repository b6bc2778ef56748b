"""Action blocks: scaling as part of the model, there and back again."""

import numpy as np
import pytest
import torch

from saltwm.ground.errors import NonFiniteError, ShapeError, UsageError
from saltwm.model.actions import ActionEncoder


def encoder():
    torch.manual_seed(0)
    actions = ActionEncoder(action_dim=2, frameskip=5, smoothed_dim=10, latent_dim=8).double()
    actions.set_scaling(torch.tensor([1.0, -2.0]), torch.tensor([0.5, 4.0]))
    return actions


def test_each_action_of_a_block_is_scaled_by_its_own_dimension():
    blocks = torch.randn(3, 4, 10, dtype=torch.float64)
    expected = (blocks.numpy().reshape(3, 4, 5, 2) - [1, -2]) / [0.5, 4]
    assert np.allclose(encoder().normalise(blocks).numpy(), expected.reshape(3, 4, 10), atol=1e-15)


def test_denormalising_undoes_normalising():
    actions, blocks = encoder(), torch.randn(3, 4, 10, dtype=torch.float64)
    assert torch.allclose(actions.denormalise(actions.normalise(blocks)), blocks, atol=1e-14)


def test_raw_and_normalised_blocks_have_the_same_condition():
    actions, blocks = encoder(), torch.randn(3, 4, 10, dtype=torch.float64)
    assert torch.equal(actions(blocks), actions.encode_normalised(actions.normalise(blocks)))
    assert actions(blocks).shape == (3, 4, 8)


def test_the_encoder_is_two_linear_layers_silu_and_one_more():
    actions, blocks = encoder(), torch.randn(6, 10, dtype=torch.float64)
    w = {name: p.detach().numpy() for name, p in actions.named_parameters()}
    x = blocks.numpy() @ w["patch_embed.weight"].T + w["patch_embed.bias"]
    x = x @ w["embed.0.weight"].T + w["embed.0.bias"]
    x = x / (1 + np.exp(-x)) @ np.eye(32) @ w["embed.2.weight"].T + w["embed.2.bias"]
    assert np.allclose(actions.encode_normalised(blocks).detach().numpy(), x, atol=1e-12)


def test_scaling_is_part_of_the_state():
    fresh = ActionEncoder(2, 5, 10, 8).double()
    fresh.load_state_dict(encoder().state_dict())
    assert fresh.action_std.tolist() == [0.5, 4.0]


@pytest.mark.parametrize(
    ("mean", "std", "error"),
    [
        ([0.0], [1.0], ShapeError),
        ([0.0, float("nan")], [1.0, 1.0], NonFiniteError),
        ([0.0, 0.0], [1.0, float("inf")], NonFiniteError),
        ([0.0, 0.0], [1.0, 0.0], UsageError),
        ([0.0, 0.0], [1.0, -1.0], UsageError),
    ],
)
def test_impossible_scaling_is_refused_and_changes_nothing(mean, std, error):
    actions = encoder()
    with pytest.raises(error):
        actions.set_scaling(torch.tensor(mean), torch.tensor(std))
    assert actions.action_mean.tolist() == [1.0, -2.0]
