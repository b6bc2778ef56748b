"""LeWM's predictor and its projection head: a causal transformer over three latents, conditioned by AdaLN-zero.

Modules bear the names of the published weights (`transformer.layers.0.attn.to_qkv`, ...).
"""

import abc

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saltwm.ground.checks import check
from saltwm.ground.config import TransformerConfig
from saltwm.ground.errors import ShapeError, UsageError
from saltwm.model.actions import ActionEncoder
from saltwm.model.layers import ProjectionHead
from saltwm.model.transition import FastRollout, Transition


class Windowed(Transition):
    """A transition that attends to the last `window` latents."""

    def _predict(self, latents: Tensor, conditions: Tensor) -> Tensor:
        steps = latents.shape[1]
        if steps <= self.window:
            return self._project(self._attend(latents, conditions))
        # All windows at once: the first predicts after each of its latents, the others after their last.
        windows, their_conditions = (x.unfold(1, self.window, 1).movedim(-1, 2) for x in (latents, conditions))
        attended = self._attend(windows.flatten(0, 1), their_conditions.flatten(0, 1)).view_as(windows)
        return self._project(torch.cat([attended[:, 0], attended[:, 1:, -1]], dim=1))

    def _rollout(self, history: Tensor, conditions: Tensor) -> Tensor:
        known = history.shape[1]
        latents = list(history.unbind(1))
        for end in range(known, conditions.shape[1] + 1):
            start = max(0, end - self.window)
            attended = self._attend(torch.stack(latents[start:end], dim=1), conditions[:, start:end])
            latents.append(self._project(attended[:, -1:]).squeeze(1))
        return torch.stack(latents[known:], dim=1)

    @abc.abstractmethod
    def _attend(self, latents: Tensor, conditions: Tensor) -> Tensor:
        """What follows each of at most `window` latents, causally: [B, T, D], [B, T, C] -> [B, T, D]."""

    def _project(self, attended: Tensor) -> Tensor:
        """The next latents from that: [B, T, D] -> [B, T, D]."""
        return attended


class TransformerPredictor(Windowed):
    """LeWM's transition: the next latent from up to `window` latents and their action conditions."""

    def __init__(self, dim: int, condition_dim: int, config: TransformerConfig) -> None:
        super().__init__(dim, condition_dim)
        if condition_dim != dim:
            raise UsageError(f"transformer: conditions of {condition_dim} must be as wide as latents of {dim}")
        self.window = config.window
        self.pos_embedding = nn.Parameter(torch.randn(1, config.window, dim))
        self.transformer = Transformer(dim, config)
        self.pred_proj = ProjectionHead(dim, config.projection_dim, dim)

    def forward(self, latents: Tensor, conditions: Tensor) -> Tensor:
        """Next latents from at most `window` latents, causally: [B, T, D], [B, T, C] -> [B, T, D]."""
        sizes = check("latents", latents, "B T D", D=self.dim, dtype="float")
        check("conditions", conditions, "B T C", B=sizes["B"], T=sizes["T"], C=self.condition_dim, dtype="float")
        if not 1 <= sizes["T"] <= self.window:
            raise ShapeError(f"latents: expected 1 to {self.window} latents, found {sizes['T']}")
        return self._project(self._attend(latents, conditions))

    def fast_rollout(self, encoder: ActionEncoder) -> FastRollout:
        """With what came before remembered."""
        from saltwm.model.cached_rollout import last_latent

        @torch.no_grad()
        def of_plans(history: Tensor, past: Tensor, plans: Tensor) -> Tensor:
            return last_latent(self, history, past, encoder.encode_normalised(plans))

        return of_plans

    def next_latent(self, history: Tensor, conditions: Tensor) -> Tensor:
        """Without what the earlier positions would predict."""
        from saltwm.model.cached_rollout import next_latent

        return next_latent(self, history, conditions)

    def _attend(self, latents: Tensor, conditions: Tensor) -> Tensor:
        return self.transformer(latents + self.pos_embedding[:, : latents.shape[1]], conditions)

    def _project(self, attended: Tensor) -> Tensor:
        """The projection head over [B, T, D]; its batch normalisation sees B * T samples."""
        return self.pred_proj(attended.flatten(0, 1)).view_as(attended)


class Transformer(nn.Module):
    """Conditional blocks and a last layer normalisation: [B, T, D] -> [B, T, D]."""

    def __init__(self, dim: int, config: TransformerConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ConditionalBlock(dim, config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, conditions: Tensor) -> Tensor:
        """Latents with positions [B, T, D], conditions [B, T, D] -> [B, T, D]."""
        for layer in self.layers:
            x = layer(x, conditions)
        return self.norm(x)


class ConditionalBlock(nn.Module):
    """Attention and feed-forward, shifted, scaled and gated by the action condition; the identity at first."""

    def __init__(self, dim: int, config: TransformerConfig) -> None:
        super().__init__()
        # These two have no parameters; `attn` and `mlp` begin with a normalisation of their own, as LeWM has it.
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.attn = CausalAttention(dim, config)
        self.mlp = FeedForward(dim, config)
        modulation = nn.Linear(dim, 6 * dim)
        nn.init.zeros_(modulation.weight)
        nn.init.zeros_(modulation.bias)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), modulation)

    def forward(self, x: Tensor, conditions: Tensor) -> Tensor:
        """x [B, T, D], conditions [B, T, D] -> [B, T, D]."""
        modulation = self.adaLN_modulation(conditions)
        attn_shift, attn_scale, attn_gate, mlp_shift, mlp_scale, mlp_gate = modulation.chunk(6, dim=-1)
        x = x + attn_gate * self.attn(self.norm1(x) * (1 + attn_scale) + attn_shift)
        return x + mlp_gate * self.mlp(self.norm2(x) * (1 + mlp_scale) + mlp_shift)


class CausalAttention(nn.Module):
    """Each latent attends to itself and to those before it."""

    def __init__(self, dim: int, config: TransformerConfig) -> None:
        super().__init__()
        inner = config.heads * config.head_dim
        self.heads = config.heads
        self.dropout = config.dropout
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, 3 * inner, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner, dim), nn.Dropout(config.dropout))

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        """x [B, T, D] -> [B, T, D]; `seen` [T, T] says what each may look at, where that is not all before it."""
        q, k, v = self.to_qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(q, k, v, seen, dropout, is_causal=seen is None)
        return self.to_out(attended.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Normalisation, expansion with GELU and contraction, each followed by dropout."""

    def __init__(self, dim: int, config: TransformerConfig) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, config.mlp_dim),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.mlp_dim, dim),
            nn.Dropout(config.dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, D] -> [B, T, D]."""
        return self.net(x)
