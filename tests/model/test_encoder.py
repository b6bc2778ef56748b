"""Encoders: equality with the reference ViT, sizes, raw frames in, and batch neighbours kept apart."""

import dataclasses

import numpy as np
import pytest
import torch

from saltwm.ground.config import EncoderConfig, ModelConfig, WorldSpec
from saltwm.ground.errors import ShapeError, UsageError
from saltwm.model.encoder import IMAGENET_MEAN, IMAGENET_STD, Encoder
from saltwm.model.world_model import WorldModel

VIT = EncoderConfig(patch_size=4, width=24, depth=3, heads=3, mlp_dim=48, projection_dim=20)
KINDS = {
    "vit": VIT,
    "conv": dataclasses.replace(VIT, kind="conv", channels=(4, 6)),
    "conv-vit": dataclasses.replace(VIT, kind="conv-vit", channels=(4, 6)),
}


def frames(count=5, size=16, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), np.uint8))


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def test_the_vit_equals_transformers_with_the_same_weights():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=48,
        image_size=16,
        patch_size=4,
        hidden_act="gelu",
        layer_norm_eps=1e-12,
    )
    torch.manual_seed(0)
    reference = transformers.ViTModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        for parameter in reference.parameters():  # away from zero biases and unit scales
            parameter.add_(0.1 * torch.randn_like(parameter))
    ours = Encoder(VIT, image_size=16, latent_dim=8).eval()
    _copy_vit(reference, ours.trunk)
    pixels = frames().permute(0, 3, 1, 2) / 255
    mean, std = torch.tensor(IMAGENET_MEAN).view(3, 1, 1), torch.tensor(IMAGENET_STD).view(3, 1, 1)
    expected = reference(pixel_values=(pixels - mean) / std).last_hidden_state[:, 0]
    seen = []
    ours.trunk.register_forward_hook(lambda _module, _inputs, features: seen.append(features))
    ours(frames())
    assert (seen[0] - expected).abs().max() <= 1e-5


def _copy_vit(reference, trunk):
    """Weights of transformers' ViTModel, whose queries, keys and values are apart, into ours."""
    state = reference.state_dict()
    ours = {
        "patches.weight": state["embeddings.patch_embeddings.projection.weight"],
        "patches.bias": state["embeddings.patch_embeddings.projection.bias"],
        "blocks.class_token": state["embeddings.cls_token"],
        "blocks.positions": state["embeddings.position_embeddings"],
        "blocks.norm.weight": state["layernorm.weight"],
        "blocks.norm.bias": state["layernorm.bias"],
    }
    names = {
        "attention.o_proj": "out",
        "mlp.fc1": "mlp_in",
        "mlp.fc2": "mlp_out",
        "layernorm_before": "norm_attention",
        "layernorm_after": "norm_mlp",
    }
    for i in range(len(trunk.blocks.layers)):
        for kind in ("weight", "bias"):
            theirs = [state[f"layers.{i}.attention.{x}_proj.{kind}"] for x in "qkv"]
            ours[f"blocks.layers.{i}.qkv.{kind}"] = torch.cat(theirs)
            for name, our_name in names.items():
                ours[f"blocks.layers.{i}.{our_name}.{kind}"] = state[f"layers.{i}.{name}.{kind}"]
    trunk.load_state_dict(ours)


def test_parameter_counts_are_those_of_the_published_models():
    world = WorldSpec("two-room", action_dim=2, image_size=224)
    lewm = WorldModel(ModelConfig(model="lewm"), world)
    assert parameters(lewm) == 18_034_478
    assert parameters(lewm.encoder.trunk) == 5_501_376
    assert parameters(lewm.encoder.head) == 792_768
    assert parameters(lewm.action_encoder) == 156_206
    salt = WorldModel(ModelConfig(model="salt"), world)
    assert parameters(salt) == 18_034_478 - 11_584_128 + 703_872


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS.keys())
def test_every_kind_encodes_raw_frames(config):
    encoder = Encoder(config, image_size=16, latent_dim=8)
    assert encoder(frames()).shape == (5, 8)
    encoder(frames()).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in encoder.parameters())


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS.keys())
def test_neighbours_in_a_batch_do_not_touch_each_other(config):
    encoder = Encoder(config, image_size=16, latent_dim=8).double().eval()
    batch = frames()
    alone = encoder(batch[:1])
    assert torch.allclose(encoder(batch)[:1], alone, atol=1e-12)


def test_normalisation_is_imagenets():
    encoder = Encoder(KINDS["conv"], image_size=16, latent_dim=8).double()
    seen = []
    encoder.trunk.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    encoder(frames())
    expected = (frames().numpy() / 255 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_STD)
    assert np.allclose(seen[0].permute(0, 2, 3, 1).numpy(), expected, atol=1e-6)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_gradients_of_convolutions_keep_the_faster_layout():
    encoder = Encoder(KINDS["conv"], image_size=16, latent_dim=8)
    seen = []
    last = encoder.trunk.stem[-2]
    last.register_full_backward_hook(lambda _module, _inputs, outputs: seen.append(outputs[0]))
    encoder(frames()).square().sum().backward()
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert not seen[0].is_contiguous()


@pytest.mark.parametrize(
    "config",
    [
        dataclasses.replace(VIT, patch_size=5),
        dataclasses.replace(VIT, heads=5),
        dataclasses.replace(VIT, kind="conv"),
        dataclasses.replace(VIT, kind="conv", channels=(4,) * 5),
        dataclasses.replace(VIT, kind="resnet"),
    ],
)
def test_impossible_configs_are_refused(config):
    with pytest.raises(UsageError):
        Encoder(config, image_size=16, latent_dim=8)


def test_float_frames_are_refused():
    with pytest.raises(ShapeError, match="uint8"):
        Encoder(VIT, image_size=16, latent_dim=8)(frames() / 255)
