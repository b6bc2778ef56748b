"""LeWM's predictor: sizes and names of the published weights, causality, AdaLN-zero, and the shared interface."""

import pytest
import torch

from saltwm.ground.config import TransformerConfig
from saltwm.model.transformer import TransformerPredictor

SMALL = TransformerConfig(depth=2, heads=2, head_dim=4, mlp_dim=12, projection_dim=10)
DIM = 6


def scrambled(config=SMALL, seed=0):
    """A predictor far from its initialisation, in float64 and evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    predictor = TransformerPredictor(DIM, DIM, config).double().eval()
    with torch.no_grad():
        for value in predictor.parameters():
            value.add_(0.4 * torch.randn(value.shape, generator=generator, dtype=torch.float64))
    return predictor


def sequence(steps, batch=3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, batch, steps, DIM, generator=generator, dtype=torch.float64)


def test_parameter_count_is_the_papers():
    predictor = TransformerPredictor(192, 192, TransformerConfig())
    assert sum(p.numel() for p in predictor.parameters()) == 11_584_128


def test_tensors_bear_the_published_names_and_shapes():
    state = TransformerPredictor(192, 192, TransformerConfig()).state_dict()
    assert len(state) == 81 + 9
    shapes = {
        "pos_embedding": (1, 3, 192),
        "transformer.norm.weight": (192,),
        "transformer.layers.5.attn.norm.bias": (192,),
        "transformer.layers.5.attn.to_qkv.weight": (3072, 192),
        "transformer.layers.5.attn.to_out.0.weight": (192, 1024),
        "transformer.layers.5.mlp.net.0.weight": (192,),
        "transformer.layers.5.mlp.net.1.weight": (2048, 192),
        "transformer.layers.5.mlp.net.4.weight": (192, 2048),
        "transformer.layers.5.adaLN_modulation.1.weight": (1152, 192),
        "pred_proj.net.0.weight": (2048, 192),
        "pred_proj.net.1.running_var": (2048,),
        "pred_proj.net.3.weight": (192, 2048),
    }
    assert {name: tuple(state[name].shape) for name in shapes} == shapes
    assert "transformer.layers.0.attn.to_qkv.bias" not in state


def test_blocks_are_the_identity_at_first():
    predictor = TransformerPredictor(DIM, DIM, SMALL).double().eval()
    latents, conditions = sequence(3)
    assert torch.equal(predictor.transformer(latents, conditions), predictor.transformer.norm(latents))
    changed = scrambled()
    assert not torch.allclose(changed.transformer(latents, conditions), changed.transformer.norm(latents))


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_prediction_does_not_see_what_comes_later(position):
    predictor = scrambled()
    latents, conditions = sequence(3)
    before = predictor(latents, conditions)
    later_latents, later_conditions = latents.clone(), conditions.clone()
    other = torch.linspace(-1, 1, DIM, dtype=torch.float64)  # not uniform: layer normalisation would take that away
    later_latents[:, position + 1 :] += other
    later_conditions[:, position + 1 :] += other
    after = predictor(later_latents, later_conditions)
    assert torch.allclose(after[:, : position + 1], before[:, : position + 1], atol=1e-12)
    # Negative control: a change at the position itself is seen.
    latents[:, position] += other
    assert not torch.allclose(predictor(latents, conditions)[:, position], before[:, position])


def test_each_prediction_is_made_from_the_last_three_latents():
    predictor = scrambled()
    latents, conditions = sequence(7)
    predictions = predictor.predict(latents, conditions)
    for t in range(7):
        window = slice(max(0, t - 2), t + 1)
        alone = predictor(latents[:, window], conditions[:, window])[:, -1]
        assert torch.allclose(predictions[:, t], alone, atol=1e-12)


@pytest.mark.parametrize("known", [1, 2, 3])
def test_a_rollout_feeds_predictions_back_through_its_history(known):
    predictor = scrambled()
    latents, conditions = sequence(8)
    found = predictor.rollout(latents[:, :known], conditions)
    past = latents[:, :known]
    for t in range(known, 9):
        step = predictor.predict(past, conditions[:, :t])[:, -1:]
        past = torch.cat([past, step], dim=1)
    assert torch.allclose(found, past[:, known:], atol=1e-12)


@pytest.mark.parametrize("known", [1, 2, 3])
def test_the_next_latent_is_the_last_prediction_and_has_its_gradients(known):
    predictor = scrambled()
    latents, conditions = (x[:, :known].clone().requires_grad_() for x in sequence(3))
    alone, last = predictor.next_latent(latents, conditions), predictor.predict(latents, conditions)[:, -1]
    assert torch.allclose(alone, last, atol=1e-12)
    for by in (latents, conditions):
        found, expected = (torch.autograd.grad(x.square().sum(), by, retain_graph=True)[0] for x in (alone, last))
        assert torch.allclose(found, expected, atol=1e-11)


def test_neighbours_in_a_batch_do_not_touch_each_other():
    predictor = scrambled()
    latents, conditions = sequence(6)
    together = predictor.rollout(latents[:, :1], conditions)
    alone = predictor.rollout(latents[:1, :1], conditions[:1])
    assert torch.allclose(together[:1], alone, atol=1e-12)


def test_gradients_are_those_of_finite_differences():
    predictor = scrambled()
    latents, conditions = (x[:, :4].clone().requires_grad_() for x in sequence(4, batch=1))
    assert torch.autograd.gradcheck(lambda z, c: predictor.rollout(z[:, :2], c), (latents, conditions))


def test_dropout_works_in_training_only():
    predictor = scrambled()
    latents, conditions = sequence(3)
    assert torch.equal(predictor(latents, conditions), predictor(latents, conditions))
    predictor.train()
    assert not torch.equal(predictor(latents, conditions), predictor(latents, conditions))
