"""Costs of candidate plans under a world model: the squared distance of the last latent to the goal (eq. 2)."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from saltwm.ground.checks import check
from saltwm.ground.errors import UsageError
from saltwm.model.transition import FastRollout
from saltwm.model.world_model import WorldModel
from saltwm.planning.cem import Cost, Proposal


@dataclass(frozen=True)
class Situation:
    """Where N tasks stand and where they want to go, in latents."""

    history: Tensor
    """[N, W, D] latents seen, the newest last; W is at most the transition's window."""
    past_conditions: Tensor
    """[N, W-1, C] conditions of the action blocks executed between them."""
    goal: Tensor
    """[N, D]"""
    blocks_left: Tensor | None = None
    """[N] action blocks until the goal is due, as `looks.blocks_left` counts them; None where nobody counts."""
    rest_of_plan: Tensor | None = None
    """[N, R, A] normalised action blocks that the last plan still holds; None if there are none."""
    proposal: Proposal | None = None
    """What an action prior expects of the next blocks; None without one."""

    def check(self, dim: int) -> None:
        """ShapeError unless the fields fit each other and latents of size `dim`."""
        sizes = check("history", self.history, "N W D", D=dim, dtype="float")
        check("past conditions", self.past_conditions, "N P C", N=sizes["N"], P=sizes["W"] - 1)
        check("goal", self.goal, "N D", N=sizes["N"], D=dim, dtype="float")
        if self.blocks_left is not None:
            check("blocks left", self.blocks_left, "N", N=sizes["N"])
        if self.rest_of_plan is not None:
            check("rest of the plan", self.rest_of_plan, "N R A", N=sizes["N"], dtype="float")

    def proposed(self) -> Proposal:
        """What the action prior expects; UsageError where there is none."""
        if self.proposal is None:
            raise UsageError(
                "this planner needs an action prior: Agent(model, planner, prior=saltwm.load_prior(RUN))",
                remedy="learn a prior",
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

    def warm_gaussian(self, horizon: int, std: float = 1.0) -> Proposal | None:
        """The same as the first Gaussian of a search, as uncertain as one that starts afresh; None if there is none."""
        mean = self.warm_start(horizon)
        return None if mean is None else Proposal(mean, torch.full_like(mean, std))


def terminal_cost(model: WorldModel, situation: Situation) -> Cost:
    """Mean squared distance of the last predicted latent to the goal.

    Tasks are evaluated one after another in products of one fixed shape, so a plan is the same to the last bit
    whatever tasks share the call. Candidates and costs live on the CPU, the products where the model is.
    """
    return _distance_to_goal(model.transition.fast_rollout(model.action_encoder), model, situation)


def rollout_cost(model: WorldModel, situation: Situation) -> Cost:
    """The same cost by the plain rollout, through which gradients flow to the candidates."""
    return _distance_to_goal(partial(model.transition.last_latent, model.action_encoder), model, situation)


def _distance_to_goal(last_latent: FastRollout, model: WorldModel, situation: Situation) -> Cost:
    situation.check(model.config.latent_dim)
    block, tasks = model.action_encoder.block_dim, len(situation.goal)

    def cost(candidates: Tensor) -> Tensor:
        check("candidates", candidates, "N S H A", N=tasks, A=block, dtype="float")
        there = candidates.to(situation.goal)  # the model's device and dtype
        tasks_of = zip(situation.history, situation.past_conditions, situation.goal, there, strict=True)
        # eq. 2: the distance of z_H to the goal, as a mean over its D numbers
        costs = [(last_latent(seen, past, plans) - goal).square().mean(dim=1) for seen, past, goal, plans in tasks_of]
        return torch.stack(costs).to(candidates.device)

    return cost
