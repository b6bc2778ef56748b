"""DINO-WM's transition: a transformer over the patches of up to `window` frames (arXiv 2411.04983).

A token is a patch's features with its frame's action condition behind them. A patch attends to all patches of its own
frame and of those before. The squared distance of two latents is the sum over patches and features, so the planner's
cost is DINO-WM's. It has no proprioception here: pictures are all that any model of this house sees.
"""

import torch
from torch import Tensor, nn

from saltwm.ground.config import TransformerConfig
from saltwm.model.transformer import CausalAttention, FeedForward, Windowed


class PatchPredictor(Windowed):
    """The next frame's patch features from those of up to `window` frames and their action conditions."""

    def __init__(self, patches: int, width: int, condition_dim: int, config: TransformerConfig) -> None:
        super().__init__(patches * width, condition_dim)
        self.patches, self.width, self.window = patches, width, config.window
        token = width + condition_dim
        self.pos_embedding = nn.Parameter(torch.randn(1, config.window * patches, token))
        self.layers = nn.ModuleList(_PatchBlock(token, config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(token)

    def _attend(self, latents: Tensor, conditions: Tensor) -> Tensor:
        patches = latents.unflatten(-1, (self.patches, self.width))
        actions = conditions.unsqueeze(2).expand(-1, -1, self.patches, -1)
        x = torch.cat([patches, actions], dim=-1).flatten(1, 2)
        x = x + self.pos_embedding[:, : x.shape[1]]
        seen = frames_seen(latents.shape[1], self.patches).to(x.device)
        for layer in self.layers:
            x = layer(x, seen)
        # What follows the features is the action's place, which nobody predicts.
        return self.norm(x)[..., : self.width].reshape_as(latents)


class _PatchBlock(nn.Module):
    """Attention and feed-forward, each with a normalisation of its own and added to what it saw."""

    def __init__(self, dim: int, config: TransformerConfig) -> None:
        super().__init__()
        self.attn = CausalAttention(dim, config)
        self.mlp = FeedForward(dim, config)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """Tokens [B, L, D], what each may look at [L, L] -> [B, L, D]."""
        x = x + self.attn(x, seen)
        return x + self.mlp(x)


def frames_seen(frames: int, patches: int) -> Tensor:
    """Which tokens each may attend to: those of its own frame and of earlier ones [T * P, T * P]."""
    earlier = torch.ones(frames, frames, dtype=torch.bool).tril()
    return earlier.repeat_interleave(patches, 0).repeat_interleave(patches, 1)
