"""How one-step errors become rollout errors: the decomposition of Sec. 3.2, measured in float64 (App. C).

A transition that looks back at W latents is measured in two ways. The paper differentiates by the latest latent and
holds the earlier ones fixed (App. C.1). Beyond it stands the Jacobian by the whole history, the augmented state: with
it only the nonlinear residual is left. For W = 1 both are the same.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from saltwm.diagnostics.jacobians import (
    history_jacobians,
    in_float64,
    lipschitz_along_errors,
    spectral_norms,
)
from saltwm.ground.checks import check
from saltwm.ground.errors import ShapeError
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
    augmented_residual: Tensor
    """r_t with the errors of the whole history propagated: what is not linear [N, H, D]."""
    augmented_rho: Tensor
    """rho with the whole history propagated [N, H]."""
    augmented_norms: Tensor
    """Spectral norms of z_t's derivative by all latents that the rollout starts from [N, H]."""


@torch.no_grad()
def measure(
    transition: Transition, latents: Tensor, conditions: Tensor, *, start: int | None = None, chunk: int = 16
) -> Propagation:
    """Error propagation along encoded trajectories: latents [N, W+H, D], conditions [N, W-1+H, C].

    Rollouts start from the first W latents: the transition's whole window (App. C.1) unless `start` names fewer.
    Trajectories are taken `chunk` at a time and Jacobians step by step, so memory holds chunk * W * D * D numbers,
    never N * H * D * D.
    """
    known = _start(transition, start)
    sizes = check("conditions", conditions, "N T C", C=transition.condition_dim, dtype="float")
    if sizes["T"] < known:
        raise ShapeError(
            f"conditions: expected at least {known} action blocks to start from {known}, found {sizes['T']}"
        )
    check("latents", latents, "N T D", N=sizes["N"], T=sizes["T"] + 1, D=transition.dim, dtype="float")
    exact = in_float64(transition)
    chunks = zip(latents.double().split(chunk), conditions.double().split(chunk), strict=True)
    parts = [_measure_chunk(exact, z, c, known) for z, c in chunks]
    return Propagation(*(torch.cat(fields) for fields in zip(*parts, strict=True)))


def _start(transition: Transition, start: int | None) -> int:
    known = transition.window if start is None else start
    if not 1 <= known <= transition.window:
        raise ShapeError(f"start: expected 1 to {transition.window} latents, found {known}")
    return known


def _measure_chunk(transition: Transition, latents: Tensor, conditions: Tensor, known: int) -> tuple[Tensor, ...]:
    """The fields of Propagation for a few trajectories."""
    targets = latents[:, known:]
    epsilon = transition.predict(latents[:, :-1], conditions)[:, known - 1 :] - targets
    delta = transition.rollout(latents[:, :known], conditions) - targets
    n, horizon, dim = delta.shape
    eye = torch.eye(dim, dtype=delta.dtype, device=delta.device).expand(n, -1, -1)
    zero = torch.zeros_like(delta[:, 0])
    phi = eye  # Phi_{0->0}
    first_order, residuals, reconstructions, norms = zero, [], [], []
    # Of each latent z_{1-W} .. z_t: error, first-order error, and derivative by the W that the rollout starts from.
    errors, linear = [zero] * known, [zero] * known
    derivatives = list(
        torch.eye(known * dim, dtype=delta.dtype, device=delta.device).expand(n, -1, -1).split(dim, dim=1)
    )
    augmented_residuals, augmented_linear, augmented_norms = [], [], []
    alone = transition.window == 1  # then the whole history is the latest latent, and its products are known already
    for t in range(1, horizon + 1):
        channels = step_jacobians(transition, latents, conditions, known - 1 + t)
        jacobian, seen = channels[:, -1], channels.shape[1]
        residuals.append(delta[:, t - 1] - _apply(jacobian, errors[-1]) - epsilon[:, t - 1])  # r_t, eq. 3
        # sum_j Phi_{j->t} epsilon_j = J_t (sum_j Phi_{j->t-1} epsilon_j) + epsilon_t: no product is formed twice.
        first_order = _apply(jacobian, first_order) + epsilon[:, t - 1]
        reconstructions.append(first_order)
        phi = jacobian @ phi  # Phi_{0->t} = J_t ... J_1, eq. 4
        norms.append(spectral_norms(phi))

        carried = _sum_apply(channels, errors[-seen:])
        augmented_residuals.append(delta[:, t - 1] - carried - epsilon[:, t - 1])
        linear.append(_sum_apply(channels, linear[-seen:]) + epsilon[:, t - 1])
        augmented_linear.append(linear[-1])
        derivatives.append(phi if alone else sum(channels[:, w] @ derivatives[w - seen] for w in range(seen)))
        augmented_norms.append(norms[-1] if alone else spectral_norms(derivatives[-1]))
        errors.append(delta[:, t - 1])
    reconstruction = torch.stack(reconstructions, dim=1)
    size = delta.norm(dim=-1)
    return (
        epsilon,
        delta,
        torch.stack(residuals, dim=1),
        reconstruction,
        (delta - reconstruction).norm(dim=-1) / size,  # rho_H, eq. 5
        torch.stack(norms, dim=1),
        torch.stack(augmented_residuals, dim=1),
        (delta - torch.stack(augmented_linear, dim=1)).norm(dim=-1) / size,
        torch.stack(augmented_norms, dim=1),
    )


def step_jacobians(transition: Transition, latents: Tensor, conditions: Tensor, step: int) -> Tensor:
    """The prediction of latents[:, step] by each latent that it sees, at the encoded ones -> [N, W, D, D]."""
    window = slice(max(0, step - transition.window), step)
    return history_jacobians(transition, latents[:, window], conditions[:, window])


@torch.no_grad()
def lipschitz(transition: Transition, latents: Tensor, conditions: Tensor, found: Propagation) -> Tensor:
    """L along the way from each true history to the predicted one, after each step but the first [N, H-1].

    `found` was measured on these trajectories from the full window. With the largest of them for L, Proposition 1 says
    |r_t| <= L / 2 * |e_{t-1}|^2, where e_{t-1} is the error of the history: `history_errors`.
    """
    exact, errors = in_float64(transition), history_errors(found, transition.window)
    latents, conditions, window = latents.double(), conditions.double(), transition.window
    columns = [
        lipschitz_along_errors(exact, latents[:, t : t + window], errors[:, t], conditions[:, t : t + window])
        for t in range(1, errors.shape[1])
    ]
    return torch.stack(columns, dim=1)


def history_errors(found: Propagation, window: int) -> Tensor:
    """Errors of the W latents that each step's prediction sees: [N, H, W, D]; those of the start are zero."""
    start = torch.zeros_like(found.delta[:, :1]).expand(-1, window, -1)
    return torch.cat([start, found.delta[:, :-1]], dim=1).unfold(1, window, 1).transpose(2, 3)


def _apply(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Matrices [N, D, D] times vectors [N, D] -> [N, D]."""
    return (matrices @ vectors.unsqueeze(-1)).squeeze(-1)


def _sum_apply(matrices: Tensor, vectors: list[Tensor]) -> Tensor:
    """Sum over w of matrices [N, W, D, D] times the W vectors [N, D] -> [N, D]."""
    return torch.einsum("nwij,nwj->ni", matrices, torch.stack(vectors, dim=1))
