"""The current-state Jacobian: how the next latent answers to the latest one, earlier history held fixed (Sec. 3.2)."""

import copy

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from saltwm.ground.checks import check
from saltwm.ground.errors import ShapeError
from saltwm.model.affine import StateAffine
from saltwm.model.transition import Transition


def in_float64(transition: Transition) -> Transition:
    """A frozen float64 copy in evaluation mode, for measuring."""
    return copy.deepcopy(transition).double().eval().requires_grad_(False)


@torch.no_grad()
def current_state_jacobian(transition: Transition, history: Tensor, conditions: Tensor) -> Tensor:
    """J of each history: history [N, W, D], W <= window, conditions [N, W, C] -> [N, D, D].

    Exactly A(c) for a state-affine transition, by automatic differentiation for any other.
    """
    sizes = check("history", history, "N W D", D=transition.dim, dtype="float")
    check("conditions", conditions, "N W C", N=sizes["N"], W=sizes["W"], C=transition.condition_dim, dtype="float")
    if not 1 <= sizes["W"] <= transition.window:
        raise ShapeError(f"history: expected 1 to {transition.window} latents, found {sizes['W']}")
    if isinstance(transition, StateAffine):
        return transition.matrix(conditions[:, -1])

    def next_latent(current: Tensor, earlier: Tensor, their_conditions: Tensor) -> Tensor:
        latents = torch.cat([earlier, current[None]])
        return transition.predict(latents[None], their_conditions[None])[0, -1]

    with sdpa_kernel(SDPBackend.MATH):  # fused attention has no rule for vmap
        return torch.func.vmap(torch.func.jacrev(next_latent))(history[:, -1], history[:, :-1], conditions)


def state_dependence(transition: Transition, latents: Tensor, conditions: Tensor, chunk: int = 16) -> Tensor:
    """sigma_max of the Jacobian for each action sequence and state: latents [N, W, D], conditions [M, W, C] -> [M, N].

    Fig. 2a: a row that varies shows a Jacobian that depends on the state; the rows of an affine transition are
    constant. States are taken `chunk` at a time: differentiating LeWM at the paper's size takes 100 MB for each.
    """
    sizes = check("latents", latents, "N W D", D=transition.dim, dtype="float")
    check("conditions", conditions, "M W C", W=sizes["W"], C=transition.condition_dim, dtype="float")
    exact = in_float64(transition)
    rows = []
    for actions in conditions.double():
        parts = [
            torch.linalg.matrix_norm(current_state_jacobian(exact, some, actions.expand(len(some), -1, -1)), ord=2)
            for some in latents.double().split(chunk)
        ]
        rows.append(torch.cat(parts))
    return torch.stack(rows)
