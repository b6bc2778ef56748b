"""The paper's transition: affine in the latent, with an action-dependent matrix (Sec. 3.4, App. B.3).

    F(z, c) = A(c) z + B c + b,   A(c) = A0 + sum_r (W_g c)_r N_r                 (eq. 8)
    A0 = U diag(tanh s) V^T,      U = exp(W_u - W_u^T),  V = exp(W_v - W_v^T)

U and V are rotations, so every singular value of A0 is |tanh s_i| < 1. Parameters bear the paper's letters; their
names are also those of the published weights.

One picture does not show how fast things move. With `memory` the state is what the last two pictures and the action
between them say, x_t = [z_t, z_t - z_{t-1}, c_{t-1}], and A(c), now [D, 3D], acts on x: z_{t+1} = A(c) x_t + B c + b.
The next x follows from it, so the transition is affine in x (Prop. 2 holds for x). Where nothing is remembered yet the
memory is 0: z_{t-1} = z_t and no action.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from saltwm.ground.checks import check
from saltwm.ground.errors import UsageError
from saltwm.model.actions import ActionEncoder
from saltwm.model.exportable import AffineValue
from saltwm.model.folded import FoldedAffine, FoldedRollout
from saltwm.model.orthogonal import exp_skew
from saltwm.model.transition import FastRollout, Transition

INITIAL_S = 3.0  # Table 5 (App. B.3): A0 = tanh(3) I = 0.9951 I


class StateAffine(Transition):
    """SALT's transition; modes=0 leaves A0 alone (App. F.1), spectral=False makes A0 a free matrix (App. C.4)."""

    has_matrix = True

    def __init__(
        self, dim: int = 192, condition_dim: int = 192, modes: int = 16, spectral: bool = True, memory: bool = False
    ) -> None:
        super().__init__(dim, condition_dim)
        self.modes = modes
        self.spectral = spectral
        self.memory = memory
        self.window = self.start_latents = 2 if memory else 1
        self.state_dim = 2 * dim + condition_dim if memory else dim
        if spectral:
            self.W_u = nn.Parameter(torch.zeros(dim, dim))
            self.W_v = nn.Parameter(torch.zeros(dim, dim))
            self.s = nn.Parameter(torch.full((dim,), INITIAL_S))
        else:
            self.A_free = nn.Parameter(torch.zeros(dim, dim).fill_diagonal_(math.tanh(INITIAL_S)))
        if memory:
            self.M = nn.Parameter(torch.zeros(dim, self.state_dim - dim))
        if modes:
            self.W_g = nn.Linear(condition_dim, modes, bias=False)
            nn.init.uniform_(self.W_g.weight, -(condition_dim**-0.5), condition_dim**-0.5)
            self.N = nn.Parameter(torch.zeros(modes, dim, self.state_dim))
        self.B = nn.Linear(condition_dim, dim)
        nn.init.zeros_(self.B.weight)
        nn.init.zeros_(self.B.bias)
        self._cached: tuple[list[Tensor], Tensor] | None = None
        self._folded: tuple[list[Tensor], FoldedAffine] | None = None

    def forward(self, z: Tensor, c: Tensor) -> Tensor:
        """F(z, c), eq. 8, with nothing remembered: z [B, D], c [B, C] -> [B, D]."""
        sizes = check("z", z, "B D", D=self.dim, dtype="float")
        check("c", c, "B C", B=sizes["B"], C=self.condition_dim, dtype="float")
        return self._rollout(z.unsqueeze(1), c.unsqueeze(1)).squeeze(1)

    def base_matrix(self) -> Tensor:
        """A0 [D, D]."""
        return self._stacked()[: self.dim, : self.dim]

    def matrix(self, c: Tensor) -> Tensor:
        """A(c), eq. 8: c [B, C] -> [B, D, X], X = D without memory; for analysis, the forward pass never builds it."""
        check("c", c, "B C", C=self.condition_dim, dtype="float")
        modes = self._stacked().view(-1, self.dim, self.state_dim)
        return torch.einsum("br,rij->bij", self._gates(c), modes)  # eq. 8, A(c)

    def history_jacobians(self, history: Tensor, conditions: Tensor) -> Tensor:
        """d z_{t+1} / d z_t = A(c); with memory the derivative by z_{t-1} stands before it.

        history [B, W, D], conditions [B, W, C] -> [B, W, D, D]
        """
        matrix = self.matrix(conditions[:, -1])
        latest, change = matrix[..., : self.dim], matrix[..., self.dim : 2 * self.dim]
        return torch.stack([-change, latest + change] if history.shape[1] > 1 else [latest], dim=1)

    def fast_rollout(self, encoder: ActionEncoder) -> FastRollout:
        """Eq. 8 and the action encoder in as few products as it takes."""
        return FoldedRollout(self.folded(encoder))

    @torch.no_grad()
    def folded(self, encoder: ActionEncoder) -> FoldedAffine:
        """Transition and action encoder rearranged for planning; the last one, if the parameters are the same."""
        gates = self.W_g.weight if self.modes else self.B.weight[:0]
        layers = [p for layer in encoder.linear_layers for p in (layer.weight, layer.bias)]
        parameters = [*self._matrix_parameters(), gates, self.B.weight, self.B.bias, *layers]
        if self._folded is None or not _all_equal(self._folded[0], parameters):
            with torch.inference_mode(False), torch.no_grad():
                modes = self._stacked().view(-1, self.dim, self.state_dim)
                folded = FoldedAffine.of(encoder, modes, gates, self.B, self.memory)
                self._folded = [p.detach().clone() for p in parameters], folded
        return self._folded[1]

    def exportable(self) -> nn.Module:
        """With A0 as its value."""
        if self.memory:
            raise UsageError(
                "a transition with memory has no ONNX form here: its first step sees one latent and the others two"
            )
        return AffineValue(self)

    # --- steps -------------------------------------------------------------------------------------------------------

    def _predict(self, latents: Tensor, conditions: Tensor) -> Tensor:
        if not self.memory:
            return self(latents.flatten(0, 1), conditions.flatten(0, 1)).view_as(latents)
        # One rollout of one step from each latent: the first remembers nothing, the others their predecessor.
        first = self._rollout(latents[:, :1], conditions[:, :1])
        if latents.shape[1] == 1:
            return first
        pairs, their_conditions = (x.unfold(1, 2, 1).mT.flatten(0, 1) for x in (latents, conditions))
        return torch.cat([first, self._rollout(pairs, their_conditions).view_as(latents[:, 1:])], dim=1)

    def _rollout(self, history: Tensor, conditions: Tensor) -> Tensor:
        if torch.is_autocast_enabled(history.device.type):
            # A0 in half precision would be another A0, and this is a small part of a step.
            with torch.autocast(history.device.type, enabled=False):
                return self._rollout(history.to(self.B.weight.dtype), conditions.to(self.B.weight.dtype))
        known = history.shape[1] - 1
        x, conditions = self._first_state(history, conditions[:, :known]), conditions[:, known:]
        stacked, gates, injected = self._stacked(), self._gates(conditions), self.B(conditions)
        latents = []
        for k in range(conditions.shape[1]):
            every_mode = (x @ stacked.mT).view(len(x), -1, self.dim)  # [A0 x, N_1 x, ..., N_R x]
            z = torch.bmm(gates[:, k, None], every_mode).squeeze(1) + injected[:, k]  # eq. 8: A(c) x + B c + b
            x = self._next_state(x, z, conditions[:, k])
            latents.append(z)
        return torch.stack(latents, dim=1)

    def _first_state(self, history: Tensor, past: Tensor) -> Tensor:
        """x [B, X] from the last latents [B, W, D] and the conditions between them [B, W-1, C]."""
        z = history[:, -1]
        if not self.memory:
            return z
        if history.shape[1] == 1:
            return functional.pad(z, (0, self.state_dim - self.dim))
        return torch.cat([z, z - history[:, -2], past[:, -1]], dim=1)

    def _next_state(self, x: Tensor, z: Tensor, c: Tensor) -> Tensor:
        """x_{t+1} [B, X] from x_t, z_{t+1} and c_t."""
        return torch.cat([z, z - x[:, : self.dim], c], dim=1) if self.memory else z

    def _gates(self, c: Tensor) -> Tensor:
        """[1, W_g c], the weights of A0 and the N_r: [..., C] -> [..., 1 + R]."""
        one = c.new_ones(*c.shape[:-1], 1)
        return torch.cat([one, self.W_g(c)], dim=-1) if self.modes else one

    # --- A0 and the modes as one matrix, computed once ---------------------------------------------------------------

    def _stacked(self) -> Tensor:
        """[A0; N_1; ...; N_R] [(1 + R) D, X]; in evaluation the one computed last, if the parameters are the same.

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
        a0 = torch.cat([a0, self.M], dim=1) if self.memory else a0
        return torch.cat([a0, self.N.flatten(0, 1)]) if self.modes else a0

    def _compose_base(self) -> Tensor:
        """U diag(tanh s) V^T [D, D]; never in half precision, which would turn the initial 0.99505 into 0.99609."""
        with torch.autocast(self.s.device.type, enabled=False):
            u, v = exp_skew(torch.stack([self.W_u, self.W_v]))
            return (u * torch.tanh(self.s)) @ v.mT  # App. B.3: A0 = U diag(tanh s) V^T

    def _matrix_parameters(self) -> list[Tensor]:
        base = [self.W_u, self.W_v, self.s] if self.spectral else [self.A_free]
        return [*base, *([self.M] if self.memory else []), *([self.N] if self.modes else [])]


def _all_equal(known: Iterable[Tensor], found: Iterable[Tensor]) -> bool:
    """Whether two lists hold the same values in the same dtypes on the same devices."""
    return all(
        a.dtype == b.dtype and a.device == b.device and torch.equal(a, b) for a, b in zip(known, found, strict=True)
    )
