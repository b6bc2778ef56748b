"""Runs written on the spot, without training: small models whose every tensor is away from its initial value."""

import torch

from saltwm.disk import checkpoint
from saltwm.disk.checkpoint import FORMAT, CheckpointInfo, RunInfo
from saltwm.ground.config import EncoderConfig, ModelConfig, RunConfig, TransformerConfig, WorldSpec
from saltwm.model.world_model import WorldModel

WORLD = WorldSpec("two-room", action_dim=2, image_size=16)
VIT = EncoderConfig(patch_size=4, width=24, depth=2, heads=3, mlp_dim=40, projection_dim=20)
SMALL = ModelConfig(latent_dim=12, encoder=VIT, transformer=TransformerConfig(depth=2, heads=2, head_dim=8, mlp_dim=20))


def small_model(config=SMALL, world=WORLD, seed=0):
    torch.manual_seed(seed)
    model = WorldModel(config, world)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.rand_like(tensor) if "var" in name else 0.1 * torch.randn_like(tensor))
        model.action_encoder.set_scaling(torch.linspace(-0.2, 0.3, world.action_dim), torch.ones(world.action_dim))
    return model


def run_info(config=SMALL, world=WORLD, **changes):
    values = {"format": FORMAT, "run": RunConfig("test", config), "world": world, "dataset": "data/rooms"}
    return RunInfo(**(values | {"dataset_sha256": "a" * 64, "total_steps": 9, "versions": {"torch": "2"}} | changes))


def checkpoint_info(step=0, config=SMALL, world=WORLD, **metrics):
    return CheckpointInfo(FORMAT, step, RunConfig("test", config), world, "a" * 64, metrics, {"torch": "2"})


def write_run(path, config=SMALL, world=WORLD, steps=(0,)):
    """A run with a checkpoint per step, the seed of each being its step; the newest one's path."""
    checkpoint.start_run(path, run_info(config, world))
    for step in steps:
        weights = small_model(config, world, seed=step).state_dict()
        saved = checkpoint.save(path, checkpoint_info(step, config, world), weights, {}, keep=len(steps))
    return saved
