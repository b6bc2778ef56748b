"""Protocols as users ask for them: one of the three, with what they may vary in its name."""

import dataclasses
from typing import get_args

from saltwm.ground.config import PROTOCOLS, GaussNewtonConfig, PlannerConfig, ProtocolConfig, one_of
from saltwm.ground.errors import UsageError

DEFAULT_TASKS = {"paper": 50, "clean": 100, "long": 50}


def protocol_for(name: str, *, last_start: bool = False, hold_steps: int = 1) -> ProtocolConfig:
    """The protocol `name`, varied: paper-len also draws the last start, clean-hold3 wants success for three steps.

    A variation changes the name, so that results under different rules never meet in a table or a test.
    """
    one_of("protocol", name, PROTOCOLS)
    protocol = PROTOCOLS[name]
    if hold_steps < 1:
        raise UsageError(f"success must be held for at least 1 step, found {hold_steps}")
    if hold_steps > protocol.budget_steps:
        budget = f"protocol {name!r} ends an episode after {protocol.budget_steps}"
        raise UsageError(f"success cannot be held for {hold_steps} steps: {budget}")
    if last_start:
        if protocol.one_per_episode:
            raise UsageError(f"protocol {name!r} draws one start per episode; variant 'len' is for paper and long")
        protocol = dataclasses.replace(protocol, name=f"{protocol.name}-len", last_start=True)
    if hold_steps > 1:
        protocol = dataclasses.replace(protocol, name=f"{protocol.name}-hold{hold_steps}", hold_steps=hold_steps)
    return protocol


def planner_named(name: str, mu: float | None = None) -> PlannerConfig:
    """The planner `name` with its default settings, or Gauss-Newton with another price of leaving the mean action."""
    planners: dict[str, PlannerConfig] = {kind.kind: kind() for kind in get_args(PlannerConfig)}
    one_of("planner", name, planners)
    planner = planners[name]
    if mu is None:
        return planner
    if not isinstance(planner, GaussNewtonConfig):
        raise UsageError(f"mu is a setting of gauss-newton; the planner asked for is {name}")
    if not 0 <= mu < float("inf"):
        raise UsageError(f"mu must be a finite number of at least 0, found {mu}")
    return dataclasses.replace(planner, mu=mu)
