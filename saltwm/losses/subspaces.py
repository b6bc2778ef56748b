"""SIGReg inside random subspaces (Sub-JEPA, arXiv 2605.09241): each asks less of the latents than the whole space does.

    (1/K) sum_k SIGReg(z P_k)        P_k [D, D/K] with orthonormal columns, drawn once, never trained

A direction u of subspace k is the direction P_k u of the whole space, and as long. So this is SIGReg along directions
that lie in the subspaces.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saltwm.ground.checks import check
from saltwm.ground.errors import ShapeError
from saltwm.losses.sigreg import sigreg


class SubspaceSIGReg(nn.Module):
    """The mean of SIGReg over K frozen random subspaces."""

    bases: Tensor
    """P [K, D, D/K]"""

    def __init__(self, dim: int, count: int, knots: int = 17) -> None:
        super().__init__()
        if count < 1 or dim % count:
            raise ShapeError(f"subspaces: expected a latent of a multiple of {count} numbers, found {dim}")
        self.knots = knots
        # A part of what is saved, because another machine's QR may round or sign otherwise.
        self.register_buffer("bases", torch.linalg.qr(torch.randn(count, dim, dim // count)).Q)

    def forward(self, latents: Tensor, projections: Tensor) -> Tensor:
        """Latents [B, T, D], unit projections [D, M] -> scalar; every subspace sees M directions."""
        return sigreg(latents, self.directions(projections), self.knots)

    def directions(self, projections: Tensor) -> Tensor:
        """Projections [D, M] brought into each subspace, as unit directions of the whole space: [D, K M].

        The shadow of a uniform direction in a subspace is uniform there.
        """
        check("projections", projections, "D M", D=self.bases.shape[1], dtype="float")
        with torch.autocast(projections.device.type, enabled=False):
            bases = self.bases.to(projections.dtype)
            inside = F.normalize(bases.mT @ projections, dim=1)  # u [K, D/K, M]
            return (bases @ inside).movedim(0, 1).flatten(1)  # P_k u
