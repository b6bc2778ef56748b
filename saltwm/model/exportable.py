"""Transitions in operations that other runtimes know: latents, conditions [N, T, D] -> the next latent [N, D]."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from saltwm.model.affine import StateAffine
    from saltwm.model.transition import Transition


class AffineValue(nn.Module):
    """Eq. 8 with A0 as a value: latents [N, T, D], conditions [N, T, D] -> F(z, c) of the last of them [N, D].

    Other runtimes know no matrix exponential, and a plan needs none.
    """

    def __init__(self, transition: "StateAffine") -> None:
        super().__init__()
        self.transition = transition
        self.register_buffer("a0", transition.base_matrix().detach().clone())

    def forward(self, latents: Tensor, conditions: Tensor) -> Tensor:
        """The next latent."""
        z, c = latents[:, -1], conditions[:, -1]
        following = z @ self.get_buffer("a0").transpose(0, 1) + self.transition.B(c)
        if self.transition.modes:
            every_mode = torch.einsum("rij,nj->nri", self.transition.N, z)
            following = following + (self.transition.W_g(c).unsqueeze(-1) * every_mode).sum(1)
        return following


class LastPrediction(nn.Module):
    """A transition's prediction after the last of its latents: [N, T, D], [N, T, D] -> [N, D]."""

    def __init__(self, transition: "Transition") -> None:
        super().__init__()
        self.transition = transition

    def forward(self, latents: Tensor, conditions: Tensor) -> Tensor:
        """The next latent."""
        return self.transition.predict(latents, conditions)[:, -1]
