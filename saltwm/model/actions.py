"""Action blocks to conditions, with the dataset's action scaling as buffers, so that a checkpoint is complete."""

import torch
from torch import Tensor, nn

from saltwm.ground.checks import check
from saltwm.ground.errors import NonFiniteError, UsageError


class ActionEncoder(nn.Module):
    """psi: blocks of `frameskip` raw actions side by side to conditions c (Sec. 3.1)."""

    action_mean: Tensor
    action_std: Tensor

    def __init__(self, action_dim: int, frameskip: int, smoothed_dim: int, latent_dim: int) -> None:
        super().__init__()
        self.action_dim = action_dim
        self.frameskip = frameskip
        self.block_dim = frameskip * action_dim
        self.register_buffer("action_mean", torch.zeros(action_dim))
        self.register_buffer("action_std", torch.ones(action_dim))
        self.patch_embed = nn.Linear(self.block_dim, smoothed_dim)
        self.embed = nn.Sequential(
            nn.Linear(smoothed_dim, 4 * latent_dim), nn.SiLU(), nn.Linear(4 * latent_dim, latent_dim)
        )

    @property
    def linear_layers(self) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
        """Its three products; the only non-linearity, SiLU, stands before the last."""
        hidden, last = self.embed[0], self.embed[2]
        assert isinstance(hidden, nn.Linear)
        assert isinstance(last, nn.Linear)
        return self.patch_embed, hidden, last

    @torch.no_grad()
    def set_scaling(self, mean: Tensor, std: Tensor) -> None:
        """Mean and standard deviation of the dataset's raw actions, [action_dim] each."""
        check("action mean", mean, "A", A=self.action_dim)
        check("action std", std, "A", A=self.action_dim)
        if not (torch.isfinite(mean).all() and torch.isfinite(std).all()):
            raise NonFiniteError(f"action scaling: mean {mean.tolist()} and std {std.tolist()} must be finite")
        if not (std > 0).all():
            raise UsageError(
                f"action scaling: std {std.tolist()} must be positive; an action that never varies teaches nothing"
            )
        self.action_mean.copy_(mean)
        self.action_std.copy_(std)

    def normalise(self, blocks: Tensor) -> Tensor:
        """Raw to normalised action blocks, where the weights are: [..., frameskip * action_dim] -> the same shape."""
        actions = self._actions(blocks).to(self.action_mean)
        return ((actions - self.action_mean) / self.action_std).flatten(-2)

    def denormalise(self, blocks: Tensor) -> Tensor:
        """Normalised to raw action blocks: [..., frameskip * action_dim] -> the same shape."""
        return (self._actions(blocks).to(self.action_mean) * self.action_std + self.action_mean).flatten(-2)

    def encode_normalised(self, blocks: Tensor) -> Tensor:
        """Normalised action blocks [..., frameskip * action_dim] -> c [..., D]; planners search here."""
        self._actions(blocks)
        return self.embed(self.patch_embed(blocks))

    def forward(self, blocks: Tensor) -> Tensor:
        """Raw action blocks [..., frameskip * action_dim] -> c [..., D]."""
        return self.encode_normalised(self.normalise(blocks))

    def _actions(self, blocks: Tensor) -> Tensor:
        """Single actions of blocks: [..., frameskip * action_dim] -> [..., frameskip, action_dim]."""
        leading = [f"dim{axis}" for axis in range(getattr(blocks, "ndim", 1) - 1)]
        check("action blocks", blocks, " ".join([*leading, "F"]), F=self.block_dim, dtype="float")
        return blocks.unflatten(-1, (self.frameskip, self.action_dim))
