"""A planner of one's own, as the text of a module: the best of twenty random plans."""

SHOOTING = """
import torch
from saltwm import Plan


def shooting(cost, *, horizon, action_dim, generators, bounds=None):
    plans = torch.stack([torch.randn(20, horizon, action_dim, generator=g) for g in generators])
    plans = plans if bounds is None else bounds.clamp(plans)
    costs, best = cost(plans).min(dim=1)
    actions = plans[torch.arange(len(plans)), best]
    return Plan(actions, torch.zeros_like(actions), costs[:, None])
"""
