"""The paper's transition: affine in the latent, with an action-dependent matrix (Sec. 3.4, App. B.3).

    F(z, c) = A(c) z + B c + b,   A(c) = A0 + sum_r (W_g c)_r N_r                 (eq. 8)
    A0 = U diag(tanh s) V^T,      U = exp(W_u - W_u^T),  V = exp(W_v - W_v^T)

U and V are rotations, so every singular value of A0 is |tanh s_i| < 1. Parameters bear the paper's letters; their
names are also those of the published weights.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from saltwm.ground.checks import check
from saltwm.model.orthogonal import exp_skew
from saltwm.model.transition import Transition

INITIAL_S = 3.0  # Table of App. B.3: A0 = tanh(3) I = 0.9951 I


class StateAffine(Transition):
    """SALT's transition; modes=0 leaves A0 alone (App. F.1), spectral=False makes A0 a free matrix (App. C.4)."""

    window = 1

    def __init__(self, dim: int = 192, condition_dim: int = 192, modes: int = 16, spectral: bool = True) -> None:
        super().__init__(dim, condition_dim)
        self.modes = modes
        self.spectral = spectral
        if spectral:
            self.W_u = nn.Parameter(torch.zeros(dim, dim))
            self.W_v = nn.Parameter(torch.zeros(dim, dim))
            self.s = nn.Parameter(torch.full((dim,), INITIAL_S))
        else:
            self.A_free = nn.Parameter(torch.zeros(dim, dim).fill_diagonal_(math.tanh(INITIAL_S)))
        if modes:
            self.W_g = nn.Linear(condition_dim, modes, bias=False)
            nn.init.uniform_(self.W_g.weight, -(condition_dim**-0.5), condition_dim**-0.5)
            self.N = nn.Parameter(torch.zeros(modes, dim, dim))
        self.B = nn.Linear(condition_dim, dim)
        nn.init.zeros_(self.B.weight)
        nn.init.zeros_(self.B.bias)
        self._cached: tuple[list[Tensor], Tensor] | None = None

    def forward(self, z: Tensor, c: Tensor) -> Tensor:
        """F(z, c), eq. 8: z [B, D], c [B, C] -> [B, D]."""
        sizes = check("z", z, "B D", D=self.dim, dtype="float")
        check("c", c, "B C", B=sizes["B"], C=self.condition_dim, dtype="float")
        return self._rollout(z.unsqueeze(1), c.unsqueeze(1)).squeeze(1)

    def base_matrix(self) -> Tensor:
        """A0 [D, D]."""
        return self._stacked()[: self.dim]

    def matrix(self, c: Tensor) -> Tensor:
        """A(c), eq. 8: c [B, C] -> [B, D, D]; for analysis, the forward pass never builds it."""
        check("c", c, "B C", C=self.condition_dim, dtype="float")
        return torch.einsum("br,rij->bij", self._gates(c), self._stacked().view(-1, self.dim, self.dim))

    def _predict(self, latents: Tensor, conditions: Tensor) -> Tensor:
        return self(latents.flatten(0, 1), conditions.flatten(0, 1)).view_as(latents)

    def _rollout(self, history: Tensor, conditions: Tensor) -> Tensor:
        if torch.is_autocast_enabled(history.device.type):
            # A0 in half precision would be another A0, and this is a small part of a step.
            with torch.autocast(history.device.type, enabled=False):
                return self._rollout(history.to(self.B.weight.dtype), conditions.to(self.B.weight.dtype))
        z = history[:, -1]
        stacked, gates, injected = self._stacked(), self._gates(conditions), self.B(conditions)
        latents = []
        for k in range(conditions.shape[1]):
            every_mode = (z @ stacked.mT).view(len(z), -1, self.dim)  # [A0 z, N_1 z, ..., N_R z]
            z = torch.bmm(gates[:, k, None], every_mode).squeeze(1) + injected[:, k]
            latents.append(z)
        return torch.stack(latents, dim=1)

    def _gates(self, c: Tensor) -> Tensor:
        """[1, W_g c], the weights of A0 and the N_r: [..., C] -> [..., 1 + R]."""
        one = c.new_ones(*c.shape[:-1], 1)
        return torch.cat([one, self.W_g(c)], dim=-1) if self.modes else one

    # --- A0 and the modes as one matrix, computed once ---------------------------------------------------------------

    def _stacked(self) -> Tensor:
        """[A0; N_1; ...; N_R] [(1 + R) D, D]; in evaluation the one computed last, if the parameters are the same.

        The parameters' values are compared, not their version counters: those miss edits through `.data`, and a
        comparison costs a hundredth of the exponential.
        """
        parameters = self._matrix_parameters()
        if self.training or (torch.is_grad_enabled() and any(p.requires_grad for p in parameters)):
            return self._stack()
        if self._cached is None or not _all_equal(self._cached[0], parameters):
            with torch.inference_mode(False), torch.no_grad():  # so that a planner may differentiate through it later
                self._cached = [p.detach().clone() for p in parameters], self._stack().detach().clone()
        return self._cached[1]

    def _stack(self) -> Tensor:
        a0 = self._compose_base() if self.spectral else self.A_free
        return torch.cat([a0, self.N.flatten(0, 1)]) if self.modes else a0

    def _compose_base(self) -> Tensor:
        """U diag(tanh s) V^T [D, D]; never in half precision, which would turn the initial 0.99505 into 0.99609."""
        with torch.autocast(self.s.device.type, enabled=False):
            u, v = exp_skew(torch.stack([self.W_u, self.W_v]))
            return (u * torch.tanh(self.s)) @ v.mT

    def _matrix_parameters(self) -> list[Tensor]:
        base = [self.W_u, self.W_v, self.s] if self.spectral else [self.A_free]
        return [*base, self.N] if self.modes else [*base]


def _all_equal(known: Iterable[Tensor], found: Iterable[Tensor]) -> bool:
    """Whether two lists hold the same values in the same dtypes on the same devices."""
    return all(
        a.dtype == b.dtype and a.device == b.device and torch.equal(a, b) for a, b in zip(known, found, strict=True)
    )
