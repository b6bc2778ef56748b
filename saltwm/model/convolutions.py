"""Strided convolutions: the small presets' encoder, in place of the paper's vision transformer."""

import torch
from torch import Tensor, nn

from saltwm.ground.config import EncoderConfig
from saltwm.ground.errors import UsageError
from saltwm.model.layers import BatchNorm


class Convolutions(nn.Module):
    """Strided convolutions and one linear layer: the small presets' encoder."""

    def __init__(self, config: EncoderConfig, image_size: int) -> None:
        super().__init__()
        self.stem, grid = stem(config, image_size)
        self.flat = nn.Linear(config.channels[-1] * grid**2, config.width)

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels [N, 3, H, W] -> features [N, width]."""
        features = self.stem(pixels)
        if features.requires_grad:
            # Flattening leaves channels_last, and a gradient in another layout takes the last block four times as long.
            features.register_hook(lambda gradient: gradient.contiguous(memory_format=torch.channels_last))
        return self.flat(features.flatten(1))


def stem(config: EncoderConfig, image_size: int) -> tuple[nn.Sequential, int]:
    """Convolutions that each halve the image, and the side of the grid that remains."""
    halvings = len(config.channels)
    grid = image_size >> halvings
    if not halvings or grid << halvings != image_size:
        raise UsageError(
            f"encoder: {image_size} px frames cannot be halved {halvings} times by channels={config.channels}; "
            "give at least one, and no more than the image size allows"
        )
    layers: list[nn.Module] = []
    for before, after in zip((3, *config.channels), config.channels, strict=False):
        # No bias: the batch normalisation that follows would take it away again.
        layers += [nn.Conv2d(before, after, 4, stride=2, padding=1, bias=False), BatchNorm(after), nn.GELU()]
    return nn.Sequential(*layers), grid
