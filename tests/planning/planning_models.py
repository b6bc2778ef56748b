"""Small models whose every parameter matters, and situations for them."""

import torch

from saltwm.ground.config import AffineConfig, EncoderConfig, ModelConfig, TransformerConfig, WorldSpec
from saltwm.ground.rng import torch_stream
from saltwm.model.world_model import WorldModel
from saltwm.planning.costs import Situation

WORLD = WorldSpec("two-room", 2, image_size=16)
SMALL = ModelConfig(
    latent_dim=12,
    encoder=EncoderConfig(kind="conv", channels=(4, 8), width=16, projection_dim=24),
    affine=AffineConfig(modes=3),
    transformer=TransformerConfig(depth=1, heads=2, head_dim=8, mlp_dim=16, projection_dim=16, dropout=0.0),
)


def shaken(config):
    """A model whose every parameter matters: the paper's initialisation leaves most of them at zero."""
    torch.manual_seed(0)
    model = WorldModel(config, WORLD).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.action_encoder.set_scaling(torch.tensor([0.1, -0.2]), torch.tensor([0.5, 0.7]))
    return model


def situation(model, tasks, window=1):
    generator = torch.Generator().manual_seed(1)
    dim = model.config.latent_dim
    return Situation(
        torch.randn(tasks, window, dim, generator=generator),
        torch.randn(tasks, window - 1, dim, generator=generator),
        torch.randn(tasks, dim, generator=generator),
    )


def in_double(at):
    return Situation(at.history.double(), at.past_conditions.double(), at.goal.double())


def generators(*keys):
    return [torch_stream(0, "test", key) for key in keys]
