"""Costs of candidate plans under a world model: the squared distance of the last latent to the goal (eq. 2)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from saltwm.ground.checks import check
from saltwm.ground.errors import UsageError
from saltwm.model.affine import StateAffine
from saltwm.model.cached_rollout import last_latent as transformer_last_latent
from saltwm.model.transformer import TransformerPredictor
from saltwm.model.world_model import WorldModel
from saltwm.planning.cem import Cost, Proposal

LastLatent = Callable[[int, Tensor], Tensor]
"""(task, its normalised plans [S, H, A]) -> z_H [S, D]."""


@dataclass(frozen=True)
class Situation:
    """Where N tasks stand and where they want to go, in latents."""

    history: Tensor
    """[N, W, D] latents seen, the newest last; W is at most the transition's window."""
    past_conditions: Tensor
    """[N, W-1, D] conditions of the action blocks executed between them."""
    goal: Tensor
    """[N, D]"""
    blocks_left: Tensor | None = None
    """[N] action blocks until the goal is due, as `policy.blocks_left` counts them; None where nobody counts."""
    rest_of_plan: Tensor | None = None
    """[N, R, A] normalised action blocks that the last plan still holds; None if there are none."""
    proposal: Proposal | None = None
    """What an action prior expects of the next blocks; None without one."""

    def check(self, dim: int) -> None:
        """ShapeError unless the fields fit each other and latents of size `dim`."""
        sizes = check("history", self.history, "N W D", D=dim, dtype="float")
        check("past conditions", self.past_conditions, "N P D", N=sizes["N"], P=sizes["W"] - 1, D=dim)
        check("goal", self.goal, "N D", N=sizes["N"], D=dim, dtype="float")
        if self.blocks_left is not None:
            check("blocks left", self.blocks_left, "N", N=sizes["N"])
        if self.rest_of_plan is not None:
            check("rest of the plan", self.rest_of_plan, "N R A", N=sizes["N"], dtype="float")

    def proposed(self) -> Proposal:
        """What the action prior expects; UsageError where there is none."""
        if self.proposal is None:
            raise UsageError(
                "this planner needs an action prior: make one with saltwm prior RUN --data TRAINING_DATASET, "
                "and give it to the agent: Agent(model, planner, prior=saltwm.load_prior(RUN))"
            )
        return self.proposal

    def beyond(self, horizon: int) -> Tensor:
        """Which goals are due after the horizon, so that no plan is to end there [N]."""
        if self.blocks_left is None:
            return torch.zeros(len(self.goal), dtype=torch.bool)
        return self.blocks_left > horizon

    def warm_start(self, horizon: int) -> Tensor | None:
        """The rest of the last plans as first plans [N, H, A], the mean action where it ends; None if there is none."""
        if self.rest_of_plan is None:
            return None
        kept = self.rest_of_plan[:, :horizon]
        return functional.pad(kept, (0, 0, 0, horizon - kept.shape[1]))


def terminal_cost(model: WorldModel, situation: Situation) -> Cost:
    """Mean squared distance of the last predicted latent to the goal.

    Tasks are evaluated one after another in products of one fixed shape, so a plan is the same to the last bit
    whatever tasks share the call. Candidates and costs live on the CPU, the products where the model is.
    """
    if isinstance(model.transition, StateAffine):
        return _distance_to_goal(_affine_last_latent(model, situation), model, situation)
    if isinstance(model.transition, TransformerPredictor):
        return _distance_to_goal(_transformer_last_latent(model, situation), model, situation)
    return rollout_cost(model, situation)


def rollout_cost(model: WorldModel, situation: Situation) -> Cost:
    """The same cost for any transition, by the plain and differentiable rollout."""

    def last_latent(task: int, plans: Tensor) -> Tensor:
        count = len(plans)
        future = model.action_encoder.encode_normalised(plans)
        past = situation.past_conditions[task].expand(count, -1, -1)
        history = situation.history[task].expand(count, -1, -1)
        return model.rollout(history, torch.cat([past, future], dim=1))[:, -1]

    return _distance_to_goal(last_latent, model, situation)


def _distance_to_goal(last_latent: LastLatent, model: WorldModel, situation: Situation) -> Cost:
    situation.check(model.config.latent_dim)
    block, tasks = model.action_encoder.block_dim, len(situation.goal)

    def cost(candidates: Tensor) -> Tensor:
        check("candidates", candidates, "N S H A", N=tasks, A=block, dtype="float")
        there = candidates.to(situation.goal)  # the model's device and dtype
        costs = [
            (last_latent(task, plans) - situation.goal[task]).square().mean(dim=1) for task, plans in enumerate(there)
        ]
        return torch.stack(costs).to(candidates.device)

    return cost


# --- state-affine ----------------------------------------------------------------------------------------------------


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
    modes_beside: Tensor
    """[D, (R+1) D]: the same, side by side; a transposed view."""

    @staticmethod
    def of(model: WorldModel) -> "FoldedAffine":
        """Fold once per plan; a few products of the size of one step."""
        transition, encoder = model.transition, model.action_encoder
        assert isinstance(transition, StateAffine)
        first, hidden, last = encoder.linear_layers
        base, bias = transition.base_matrix(), transition.B.bias
        gates = [transition.W_g.weight] if transition.modes else []
        modes = [transition.N.flatten(0, 1)] if transition.modes else []
        constant = torch.zeros(1, transition.condition_dim, dtype=bias.dtype, device=bias.device)
        effect = torch.cat([constant, *gates, transition.B.weight])
        offset = torch.cat([torch.ones_like(bias[:1]), torch.zeros_like(effect[1 : 1 + transition.modes, 0]), bias])
        stacked = torch.cat([base, *modes])
        return FoldedAffine(
            hidden_weight=(hidden.weight @ first.weight).T.contiguous(),
            hidden_bias=hidden.weight @ first.bias + hidden.bias,
            effect_weight=(effect @ last.weight).T.contiguous(),
            effect_bias=effect @ last.bias + offset,
            modes=stacked.unflatten(0, (-1, transition.dim)).mT.flatten(0, 1).contiguous(),
            modes_beside=stacked.mT,
        )

    @property
    def dim(self) -> int:
        """D, the size of a latent."""
        return self.modes.shape[1]

    def moved(self, z: Tensor) -> Tensor:
        """A0 z, N_1 z, ..., N_R z: z [P, D] -> [P, R+1, D]."""
        return (z @ self.modes_beside).unflatten(1, (-1, self.dim))

    def last_latent(self, z: Tensor, plans: Tensor, buffers: "StepBuffers") -> Tensor:
        """z_H [S, D] from one latent z [D] under normalised plans [S, H, A]; it lies in `buffers`."""
        hidden, effects, weighted, latents = buffers.hidden, buffers.effects, buffers.weighted, buffers.latents
        gates, updates = effects[:, : -self.dim], effects[:, -self.dim :]
        for step, blocks in enumerate(plans.unbind(dim=1)):
            functional.silu(torch.addmm(self.hidden_bias, blocks, self.hidden_weight, out=hidden), inplace=True)
            torch.addmm(self.effect_bias, hidden, self.effect_weight, out=effects)
            if step == 0:
                # The first step starts from one z for all candidates: R+1 products of it serve them all.
                torch.addmm(updates, gates, self.moved(z[None])[0], out=latents)
            else:
                torch.mul(gates[:, :, None], latents[:, None], out=weighted)
                torch.addmm(updates, weighted.flatten(1), self.modes, out=latents)
        return latents


@dataclass(frozen=True)
class StepBuffers:
    """Where one step's results for S candidates go. Fresh memory would cost as much time as the arithmetic on it."""

    hidden: Tensor
    """[S, hidden]"""
    effects: Tensor
    """[S, R+1 + D]"""
    weighted: Tensor
    """[S, R+1, D]: each candidate's latent times each of its gates."""
    latents: Tensor
    """[S, D]"""

    @staticmethod
    def of(folded: FoldedAffine, candidates: int) -> "StepBuffers":
        """Buffers for plans of `candidates` at a time."""
        dim, modes = folded.dim, len(folded.modes) // folded.dim
        shapes = ((len(folded.hidden_bias),), (len(folded.effect_bias),), (modes, dim), (dim,))
        return StepBuffers(*(folded.modes.new_empty(candidates, *shape) for shape in shapes))


@torch.no_grad()
def _affine_last_latent(model: WorldModel, situation: Situation) -> LastLatent:
    folded = FoldedAffine.of(model)
    buffers: dict[int, StepBuffers] = {}

    @torch.no_grad()
    def last_latent(task: int, plans: Tensor) -> Tensor:
        if len(plans) not in buffers:
            buffers[len(plans)] = StepBuffers.of(folded, len(plans))
        return folded.last_latent(situation.history[task, -1], plans, buffers[len(plans)])

    return last_latent


# --- transformer -----------------------------------------------------------------------------------------------------


def _transformer_last_latent(model: WorldModel, situation: Situation) -> LastLatent:
    transition = model.transition
    assert isinstance(transition, TransformerPredictor)

    @torch.no_grad()
    def last_latent(task: int, plans: Tensor) -> Tensor:
        future = model.action_encoder.encode_normalised(plans)
        return transformer_last_latent(transition, situation.history[task], situation.past_conditions[task], future)

    return last_latent
