"""Inverse dynamics: two successive latents tell which actions led from one to the other.

    I       = mean (g([z_t, z_{t+1}]) - a_t)^2          PLDM; SMWM, arXiv 2606.20104
    I_delta = mean (g(z_{t+1} - z_t) - a_t)^2           Delta-JEPA, arXiv 2606.31232

a_t is the normalised action block between the two frames, g a network that is learnt with the model and needed no more
after training.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saltwm.ground.checks import check


class InverseDynamics(nn.Module):
    """g and its error: an MLP with ReLU on a pair of latents, or on their difference."""

    def __init__(
        self, dim: int, block_dim: int, of: Literal["pair", "difference"], hidden: tuple[int, ...] = (256, 256)
    ) -> None:
        super().__init__()
        self.of = of
        widths = (2 * dim if of == "pair" else dim, *hidden)
        layers: list[nn.Module] = []
        for wide, narrow in zip(widths, hidden, strict=False):
            layers += [nn.Linear(wide, narrow), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Linear(widths[-1], block_dim))

    def forward(self, latents: Tensor, actions: Tensor) -> Tensor:
        """I, a mean over all elements: latents [B, T, D], normalised action blocks [B, T-1, F] -> scalar."""
        sizes = check("action blocks", actions, "B N F", dtype="float")
        check("latents", latents, "B T D", B=sizes["B"], T=sizes["N"] + 1, dtype="float")
        before, after = latents[:, :-1], latents[:, 1:]
        seen = torch.cat([before, after], dim=-1) if self.of == "pair" else after - before
        return F.mse_loss(self.net(seen).to(actions.dtype), actions)
