"""Costs of candidate plans under a world model: the squared distance of the last latent to the goal (eq. 2)."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from saltwm.model.affine import StateAffine
from saltwm.model.world_model import WorldModel
from saltwm.planning.cem import Cost
from saltwm.shapes import check


@dataclass(frozen=True)
class Situation:
    """Where N tasks stand and where they want to go, in latents."""

    history: Tensor
    """[N, W, D] latents seen, the newest last; W is at most the transition's window."""
    past_conditions: Tensor
    """[N, W-1, D] conditions of the action blocks executed between them."""
    goal: Tensor
    """[N, D]"""


def terminal_cost(model: WorldModel, situation: Situation) -> Cost:
    """Mean squared distance of the last predicted latent to the goal.

    Tasks are evaluated one after another in products of one fixed shape, so a plan is the same to the last bit
    whatever tasks share the call.
    """
    if isinstance(model.transition, StateAffine):
        return _affine_cost(model, situation)
    return _rollout_cost(model, situation)


def _rollout_cost(model: WorldModel, situation: Situation) -> Cost:
    """For any transition: encode the actions, roll out, compare."""

    def cost(candidates: Tensor) -> Tensor:
        return torch.stack([one(task, plans) for task, plans in enumerate(candidates)])

    def one(task: int, plans: Tensor) -> Tensor:
        count = len(plans)
        future = model.action_encoder.encode_normalised(plans)
        past = situation.past_conditions[task].expand(count, -1, -1)
        history = situation.history[task].expand(count, -1, -1)
        last = model.rollout(history, torch.cat([past, future], dim=1))[:, -1]
        return (last - situation.goal[task]).square().mean(dim=1)

    return cost


@dataclass(frozen=True)
class FoldedAffine:
    """A state-affine model rearranged for planning: the same numbers up to rounding, in fewer products.

    Between the action encoder's only non-linearity and the transition everything is linear in the hidden features h:
    (W_g c)_r and B c + b are one product with h. The modes are stacked so that A(c) z is one product of
    [g_0 z, g_1 z, ..., g_R z] (g_0 = 1) with [A0; N_1; ...; N_R]: no d x d matrix per candidate, and no pass over
    R+1 results per candidate either.
    """

    hidden_weight: Tensor
    """[A, hidden]"""
    hidden_bias: Tensor
    """[hidden]"""
    effect_weight: Tensor
    """[hidden, R+1 + D]: the gates g (the first is constant), then the update B c + b."""
    effect_bias: Tensor
    """[R+1 + D]"""
    modes: Tensor
    """[(R+1) D, D]: A0^T, N_1^T, ..., N_R^T one below the other."""

    @staticmethod
    def of(model: WorldModel) -> "FoldedAffine":
        """Fold once per plan; a few products of the size of one step."""
        transition, encoder = model.transition, model.action_encoder
        assert isinstance(transition, StateAffine)
        first, hidden, last = encoder.linear_layers
        base, bias = transition.base_matrix(), transition.B.bias
        gates = [transition.W_g.weight] if transition.modes else []
        modes = [transition.N] if transition.modes else []
        constant = torch.zeros(1, transition.condition_dim, dtype=bias.dtype, device=bias.device)
        effect = torch.cat([constant, *gates, transition.B.weight])
        offset = torch.cat([torch.ones_like(bias[:1]), torch.zeros_like(effect[1 : 1 + transition.modes, 0]), bias])
        return FoldedAffine(
            hidden_weight=(hidden.weight @ first.weight).T.contiguous(),
            hidden_bias=hidden.weight @ first.bias + hidden.bias,
            effect_weight=(effect @ last.weight).T.contiguous(),
            effect_bias=effect @ last.bias + offset,
            modes=torch.cat([base[None], *modes]).transpose(1, 2).reshape(-1, transition.dim).contiguous(),
        )

    def last_latent(self, z: Tensor, plans: Tensor) -> Tensor:
        """z_H [S, D] from one latent z [D] under normalised plans [S, H, A]."""
        count, horizon, _ = plans.shape
        dim = len(z)
        blocks = plans.transpose(0, 1).reshape(horizon * count, -1)  # each step's rows lie together
        hidden = functional.silu(torch.addmm(self.hidden_bias, blocks, self.hidden_weight), inplace=True)
        effects = torch.addmm(self.effect_bias, hidden, self.effect_weight).view(horizon, count, -1)
        gates, updates = effects[..., :-dim], effects[..., -dim:]
        # The first step starts from one z for all candidates: R+1 products of it serve them all.
        first = (z @ self.modes.view(-1, dim, dim)).view(-1, dim)
        latents = torch.addmm(updates[0], gates[0], first)
        for gate, update in zip(gates[1:], updates[1:], strict=True):
            weighted = (gate[:, :, None] * latents[:, None]).flatten(1)
            latents = torch.addmm(update, weighted, self.modes)
        return latents


def _affine_cost(model: WorldModel, situation: Situation) -> Cost:
    folded = FoldedAffine.of(model)
    current = situation.history[:, -1]
    check("goal", situation.goal, "N D", N=len(current), D=current.shape[1])

    def cost(candidates: Tensor) -> Tensor:
        per_task = [
            (folded.last_latent(current[task], plans) - situation.goal[task]).square().mean(dim=1)
            for task, plans in enumerate(candidates)
        ]
        return torch.stack(per_task)

    return cost
