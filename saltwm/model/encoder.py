"""Frames to latents: a vision transformer or strided convolutions, and a projection head."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saltwm.ground.checks import check, one_of
from saltwm.ground.config import EncoderConfig
from saltwm.ground.errors import UsageError
from saltwm.model.convolutions import Convolutions, stem
from saltwm.model.layers import ProjectionHead

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
LAYER_NORM_EPS = 1e-12


class Encoder(nn.Module):
    """phi: raw frames to latents z, the projection head included (Sec. 3.1)."""

    def __init__(self, config: EncoderConfig, image_size: int, latent_dim: int) -> None:
        super().__init__()
        self.image_size = image_size
        self.trunk, self.head = _trunk_and_head(config, image_size, latent_dim)
        # (x / 255 - mean) / std as one multiplication and one addition.
        mean, std = np.array(IMAGENET_MEAN, np.float32), np.array(IMAGENET_STD, np.float32)
        self.register_buffer("pixel_scale", torch.tensor(1 / (255 * std)).view(3, 1, 1), persistent=False)
        self.register_buffer("pixel_shift", torch.tensor(-mean / std).view(3, 1, 1), persistent=False)

    def forward(self, frames: Tensor) -> Tensor:
        """Raw frames uint8 [N, H, W, 3] -> z [N, D]."""
        return self.head(self.trunk(self.normalise(frames)))

    def normalise(self, frames: Tensor) -> Tensor:
        """Raw frames uint8 [N, H, W, 3] -> normalised pixels [N, 3, H, W]."""
        check("frames", frames, "N H W 3", H=self.image_size, W=self.image_size, dtype="uint8")
        scale, shift = self.get_buffer("pixel_scale"), self.get_buffer("pixel_shift")
        # A view of [N, H, W, 3] as [N, 3, H, W] is channels_last, the faster layout for convolutions on a CPU.
        pixels = frames.permute(0, 3, 1, 2).to(scale.dtype)
        return pixels.mul_(scale).add_(shift)  # in place: fresh memory would cost more than the arithmetic


class VisionTransformer(nn.Module):
    """Patches, position embeddings and pre-norm blocks; the features are those of the class token."""

    def __init__(self, config: EncoderConfig, image_size: int) -> None:
        super().__init__()
        if image_size % config.patch_size:
            raise UsageError(
                f"encoder: {image_size} px frames cannot be cut into patches of {config.patch_size} px; "
                f"collect with an `image_size` that is a multiple of {config.patch_size}"
            )
        self.patches = nn.Conv2d(3, config.width, config.patch_size, config.patch_size)
        self.blocks = TokenBlocks(config, tokens=(image_size // config.patch_size) ** 2)
        _initialise(self)

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels [N, 3, H, W] -> features [N, width]."""
        return self.blocks(self.patches(pixels).flatten(2).transpose(1, 2))


class ConvolutionsThenTransformer(nn.Module):
    """Strided convolutions whose grid of features are the tokens of transformer blocks."""

    def __init__(self, config: EncoderConfig, image_size: int) -> None:
        super().__init__()
        self.stem, grid = stem(config, image_size)
        self.tokens = nn.Linear(config.channels[-1], config.width)
        self.blocks = TokenBlocks(config, tokens=grid**2)
        _initialise(self.blocks)

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels [N, 3, H, W] -> features [N, width]."""
        return self.blocks(self.tokens(self.stem(pixels).flatten(2).transpose(1, 2)))


TRUNKS = {"vit": VisionTransformer, "conv": Convolutions, "conv-vit": ConvolutionsThenTransformer}


def _trunk_and_head(config: EncoderConfig, image_size: int, latent_dim: int) -> tuple[nn.Module, nn.Module]:
    if config.kind == "dinov2":  # its patches are the latent
        from saltwm.model.dinov2 import FrozenPatches

        return FrozenPatches(config, image_size), nn.Identity()
    one_of("encoder", config.kind, TRUNKS)
    return TRUNKS[config.kind](config, image_size), ProjectionHead(config.width, config.projection_dim, latent_dim)


class TokenBlocks(nn.Module):
    """Class token, position embeddings, blocks and a last layer normalisation: [N, tokens, width] -> [N, width]."""

    def __init__(self, config: EncoderConfig, tokens: int, eps: float = LAYER_NORM_EPS) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.empty(1, 1, config.width))
        self.positions = nn.Parameter(torch.empty(1, tokens + 1, config.width))
        self.layers = nn.ModuleList(
            _Block(config.width, config.heads, config.mlp_dim, eps) for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.width, eps=eps)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [N, L, width] -> the class token's features [N, width]."""
        return self.norm(self.mixed(tokens)[:, 0])

    def mixed(self, tokens: Tensor) -> Tensor:
        """Class token and tokens [N, L, width] after all blocks [N, 1 + L, width], not normalised."""
        x = torch.cat([self.class_token.expand(tokens.shape[0], -1, -1), tokens], dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return x


class _Block(nn.Module):
    """Pre-norm attention and feed-forward with exact GELU."""

    def __init__(self, width: int, heads: int, mlp_dim: int, eps: float = LAYER_NORM_EPS) -> None:
        super().__init__()
        if width % heads:
            raise UsageError(f"encoder: width {width} cannot be shared by {heads} heads; choose a multiple")
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width, eps=eps)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width, eps=eps)
        self.mlp_in = nn.Linear(width, mlp_dim)
        self.mlp_out = nn.Linear(mlp_dim, width)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [N, L, width] -> [N, L, width]."""
        q, k, v = self.qkv(self.norm_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp_out(F.gelu(self.mlp_in(self.norm_mlp(x))))


def _initialise(module: nn.Module) -> None:
    """The usual ViT initialisation: truncated normal of 0.02, zero biases."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            nn.init.trunc_normal_(part.weight, std=0.02)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, TokenBlocks):
            nn.init.trunc_normal_(part.class_token, std=0.02)
            nn.init.trunc_normal_(part.positions, std=0.02)
