"""How one-step errors become rollout errors: the decomposition of Sec. 3.2, measured in float64 (App. C)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from saltwm.diagnostics.jacobians import current_state_jacobian, in_float64
from saltwm.ground.checks import check
from saltwm.model.transition import Transition


@dataclass(frozen=True)
class Propagation:
    """Errors of N trajectories over H steps, float64; index t-1 holds the quantity of step t."""

    epsilon: Tensor
    """One-step errors F(z_{t-1}, c_{t-1}) - z_t [N, H, D]."""
    delta: Tensor
    """Rollout errors, predicted minus encoded latent [N, H, D]."""
    residual: Tensor
    """r_t = delta_t - J_t delta_{t-1} - epsilon_t, eq. 3 [N, H, D]; with a window above 1 it also holds what came
    through the earlier latents."""
    reconstruction: Tensor
    """First-order rollout errors sum_j Phi_{j->t} epsilon_j [N, H, D]."""
    rho: Tensor
    """|delta_t - reconstruction_t| / |delta_t|, eq. 5 [N, H]."""
    propagation_norms: Tensor
    """Spectral norms of Phi_{0->t}, App. C.3 [N, H]."""


@torch.no_grad()
def measure(transition: Transition, latents: Tensor, conditions: Tensor, chunk: int = 16) -> Propagation:
    """Error propagation along encoded trajectories: latents [N, H+1, D], conditions [N, H, C].

    Rollouts start at the first latent. Trajectories are taken `chunk` at a time and Jacobians step by step, so memory
    holds chunk * D * D numbers, never N * H * D * D.
    """
    sizes = check("conditions", conditions, "N H C", C=transition.condition_dim, dtype="float")
    check("latents", latents, "N T D", N=sizes["N"], T=sizes["H"] + 1, D=transition.dim, dtype="float")
    exact = in_float64(transition)
    chunks = zip(latents.double().split(chunk), conditions.double().split(chunk), strict=True)
    parts = [_measure_chunk(exact, z, c) for z, c in chunks]
    return Propagation(*(torch.cat(fields) for fields in zip(*parts, strict=True)))


def _measure_chunk(transition: Transition, latents: Tensor, conditions: Tensor) -> tuple[Tensor, ...]:
    """The fields of Propagation for a few trajectories."""
    targets = latents[:, 1:]
    epsilon = transition.predict(latents[:, :-1], conditions) - targets
    delta = transition.rollout(latents[:, :1], conditions) - targets
    n, horizon, dim = delta.shape
    phi = torch.eye(dim, dtype=delta.dtype, device=delta.device).expand(n, -1, -1)  # Phi_{0->0}
    before = first_order = torch.zeros_like(delta[:, 0])
    residuals, reconstructions, norms = [], [], []
    for t in range(1, horizon + 1):
        jacobian = step_jacobian(transition, latents, conditions, t)
        residuals.append(delta[:, t - 1] - _apply(jacobian, before) - epsilon[:, t - 1])
        before = delta[:, t - 1]
        # sum_j Phi_{j->t} epsilon_j = J_t (sum_j Phi_{j->t-1} epsilon_j) + epsilon_t: no product is formed twice.
        first_order = _apply(jacobian, first_order) + epsilon[:, t - 1]
        reconstructions.append(first_order)
        phi = jacobian @ phi
        norms.append(torch.linalg.matrix_norm(phi, ord=2))
    reconstruction = torch.stack(reconstructions, dim=1)
    rho = (delta - reconstruction).norm(dim=-1) / delta.norm(dim=-1)
    return epsilon, delta, torch.stack(residuals, dim=1), reconstruction, rho, torch.stack(norms, dim=1)


def step_jacobian(transition: Transition, latents: Tensor, conditions: Tensor, step: int) -> Tensor:
    """J_t at the encoded z_{t-1}: latents [N, H+1, D], conditions [N, H, C], 1 <= t <= H -> [N, D, D]."""
    window = slice(max(0, step - transition.window), step)
    return current_state_jacobian(transition, latents[:, window], conditions[:, window])


def phi(jacobians: Tensor, start: int, end: int) -> Tensor:
    """Phi_{j->H} = J_H ... J_{j+1}, eq. 4: jacobians J_1 .. J_T [N, T, D, D], 0 <= j <= H <= T -> [N, D, D]."""
    sizes = check("jacobians", jacobians, "N T D D", dtype="float")
    product = torch.eye(sizes["D"], dtype=jacobians.dtype, device=jacobians.device).repeat(sizes["N"], 1, 1)
    for t in range(start + 1, end + 1):
        product = jacobians[:, t - 1] @ product
    return product


def _apply(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Matrices [N, D, D] times vectors [N, D] -> [N, D]."""
    return (matrices @ vectors.unsqueeze(-1)).squeeze(-1)
