"""Jacobians of a transition: by the latest latent, as the paper takes them (Sec. 3.2), and by the whole history."""

import copy

import torch
from torch import Tensor

from saltwm.ground.checks import check
from saltwm.ground.errors import ShapeError
from saltwm.model.transition import Transition

ROWS_AT_ONCE = 32
"""Of a Jacobian in one backward pass: few enough to stay near a core's cache, enough to make its products wide."""


def in_float64(transition: Transition) -> Transition:
    """A frozen float64 copy in evaluation mode, for measuring."""
    return copy.deepcopy(transition).double().eval().requires_grad_(False)


@torch.no_grad()
def history_jacobians(transition: Transition, history: Tensor, conditions: Tensor) -> Tensor:
    """The next latent by every latent that it sees: history [N, W, D], conditions [N, W, C] -> [N, W, D, D].

    Entry w is by history[:, w]; the last one is the paper's Jacobian, the others are the channels that it leaves out
    (App. C.1). Exactly A(c) for a state-affine transition, by automatic differentiation for any other.
    """
    sizes = check("history", history, "N W D", D=transition.dim, dtype="float")
    check("conditions", conditions, "N W C", N=sizes["N"], W=sizes["W"], C=transition.condition_dim, dtype="float")
    if not 1 <= sizes["W"] <= transition.window:
        raise ShapeError(f"history: expected 1 to {transition.window} latents, found {sizes['W']}")
    known = transition.history_jacobians(history, conditions)
    return differentiated(transition, history, conditions) if known is None else known


@torch.enable_grad()
def differentiated(transition: Transition, history: Tensor, conditions: Tensor) -> Tensor:
    """The same by backward passes, each for a few of the D numbers of the next latent.

    Predictions do not see one another, so the gradient of a sum over them holds a row of every Jacobian.
    """
    at = history.clone().requires_grad_()
    numbers = transition.next_latent(at, conditions.clone()).sum(dim=0)
    rows = [
        torch.autograd.grad(numbers, at, some, retain_graph=True, is_grads_batched=True, materialize_grads=True)[0]
        for some in torch.eye(len(numbers), dtype=at.dtype, device=at.device).split(ROWS_AT_ONCE)
    ]
    return torch.cat(rows).permute(1, 2, 0, 3)


def spectral_norms(matrices: Tensor) -> Tensor:
    """Largest singular values: [..., M, K], M <= K -> [...], by the smaller Gram matrix, which beats an SVD."""
    return torch.linalg.eigvalsh(matrices @ matrices.mT)[..., -1].clamp_min(0).sqrt()


def state_dependence(transition: Transition, latents: Tensor, conditions: Tensor, chunk: int = 16) -> Tensor:
    """sigma_max of the Jacobian for each action sequence and state: latents [N, W, D], conditions [M, W, C] -> [M, N].

    Figure 1a: a row that varies shows a Jacobian that depends on the state; the rows of an affine transition are
    constant. Each state comes with its own true history. States are taken `chunk` at a time: differentiating LeWM at
    the paper's size takes 100 MB for each.
    """
    sizes = check("latents", latents, "N W D", D=transition.dim, dtype="float")
    check("conditions", conditions, "M W C", W=sizes["W"], C=transition.condition_dim, dtype="float")
    exact = in_float64(transition)
    rows = []
    for actions in conditions.double():
        parts = [
            # Differentiated even where A(c) is known: that it is constant is what this shows.
            spectral_norms(differentiated(exact, some, actions.expand(len(some), -1, -1))[:, -1])
            for some in latents.double().split(chunk)
        ]
        rows.append(torch.cat(parts))
    return torch.stack(rows)


def lipschitz_along_errors(transition: Transition, history: Tensor, errors: Tensor, conditions: Tensor) -> Tensor:
    """How fast the full Jacobian changes from true histories towards predicted ones: [N, W, D] twice, [N, W, C] -> [N].

    The largest |J(x + s e) - J(x)| / |s e| over s = 0.5 and 1: what the proof of Proposition 1 needs of L, and a lower
    bound of it, because the segment is looked at in a few places only. Zero where there is no error.
    """
    n, window, dim = history.shape
    size = errors.flatten(1).norm(dim=1)
    if transition.has_matrix:
        return torch.zeros_like(size)
    at_truth = history_jacobians(transition, history, conditions)
    found = torch.zeros_like(size)
    for share in (0.5, 1.0):
        change = history_jacobians(transition, history + share * errors, conditions) - at_truth
        norm = spectral_norms(change.transpose(1, 2).reshape(n, dim, window * dim))
        found = torch.maximum(found, torch.where(size > 0, norm / (share * size).clamp_min(1e-300), 0.0))
    return found
