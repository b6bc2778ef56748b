"""DINO-WM's encoder: the patch features of a frozen DINOv2 (arXiv 2411.04983), whose weights come from elsewhere.

DINOv2 is the vision transformer of encoder.py with two more things: a factor on what each layer adds to its tokens, and
positions for another grid. Neither learns here, so both are worked into the weights when they are read
(interop/weights/dinov2.py).
"""

from torch import Tensor, nn
from torch.nn import functional

from saltwm.ground.config import EncoderConfig
from saltwm.ground.errors import UsageError
from saltwm.model.encoder import TokenBlocks

LAYER_NORM_EPS = 1e-6


class FrozenPatches(nn.Module):
    """Frames resized to `grid` x `grid` patches; the features of all patches side by side are the latent."""

    def __init__(self, config: EncoderConfig, image_size: int) -> None:
        super().__init__()
        if not config.grid or config.grid < 1:
            raise UsageError(f"encoder: `patches` {config.grid}: expected at least 1 patch along a side")
        self.size = config.grid * config.patch_size
        self.patches = nn.Conv2d(3, config.width, config.patch_size, config.patch_size)
        self.blocks = TokenBlocks(config, config.grid**2, LAYER_NORM_EPS)
        for positions in (self.blocks.class_token, self.blocks.positions):
            nn.init.zeros_(positions)
        self.requires_grad_(False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels [N, 3, H, W] -> features [N, grid^2 * width], patch by patch, row by row."""
        resized = functional.interpolate(pixels, size=(self.size, self.size), mode="bilinear", antialias=True)
        tokens = self.blocks.mixed(self.patches(resized).flatten(2).transpose(1, 2))
        return self.blocks.norm(tokens[:, 1:]).flatten(1)
