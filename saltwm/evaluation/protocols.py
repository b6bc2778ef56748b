"""The protocols: three definitions, their task counts, and the variations that a name may carry."""

import dataclasses
from typing import Any, get_args

from saltwm.ground.checks import one_of
from saltwm.ground.config import OwnPlannerConfig, PlannerConfig, ProtocolConfig
from saltwm.ground.errors import UsageError

PAPER_PROTOCOL = ProtocolConfig(
    name="paper", held_out=False, one_per_episode=False, min_distance=0.0, variant="paper", bound_actions=False
)
CLEAN_PROTOCOL = ProtocolConfig(name="clean")
# Sec. 4.5, App. E.1; H is 10, 15 or 20
LONG_PROTOCOL = dataclasses.replace(
    PAPER_PROTOCOL, name="long", goal_offset_steps=100, budget_steps=300, horizon_blocks=10
)
PROTOCOLS: dict[str, ProtocolConfig] = {p.name: p for p in (PAPER_PROTOCOL, CLEAN_PROTOCOL, LONG_PROTOCOL)}
BY_HAND_STEPS = 200
"""Steps that an agent may take towards a goal that a person set."""
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


def by_hand(horizon_blocks: int, frameskip: int, bounded: bool = True) -> ProtocolConfig:
    """How a start and a goal that a person set are tried: `clean`, due at the horizon, with a budget to err in."""
    return dataclasses.replace(
        CLEAN_PROTOCOL,
        name="by-hand",
        goal_offset_steps=horizon_blocks * frameskip,
        budget_steps=BY_HAND_STEPS,
        horizon_blocks=horizon_blocks,
        held_out=False,
        one_per_episode=False,
        min_distance=0.0,
        bound_actions=bounded,
    )


def planner_named(text: str) -> PlannerConfig:
    """The planner of a text such as `cem`, or with settings of its own `gauss-newton,mu=0.1`."""
    name, *settings = text.split(",")
    planners: dict[str, PlannerConfig] = {
        kind.kind: kind() for kind in get_args(PlannerConfig) if kind is not OwnPlannerConfig
    }
    one_of("planner", name, planners)
    planner: Any = planners[name]
    search = getattr(planner, "search", planner)  # what the settings of cem-prior, icem-prior and mppi-prior are about
    search = dataclasses.replace(search, **dict(_setting(name, search, setting) for setting in settings))
    return dataclasses.replace(planner, search=search) if hasattr(planner, "search") else search


def _setting(planner: str, search: Any, text: str) -> tuple[str, float]:
    """`mu=0.1` as a name and a number of the setting's kind."""
    name, _, digits = text.partition("=")
    known = {field.name: field.type for field in dataclasses.fields(search) if field.name != "kind"}
    one_of(f"setting of {planner}", name, known)
    whole = known[name] is int
    try:
        number = int(digits) if whole else float(digits)
    except ValueError as error:
        raise UsageError(f"{planner}: {name} must be a number, found {digits!r}") from error
    if not int(whole) <= number < float("inf"):
        raise UsageError(f"{planner}: {name} must be a finite number of at least {int(whole)}, found {digits}")
    return name, number


def planner_text(planner: PlannerConfig) -> str:
    """The text that `planner_named` reads, without settings that have their default."""
    if isinstance(planner, OwnPlannerConfig):
        return planner.function
    search = getattr(planner, "search", planner)
    changed = [f for f in dataclasses.fields(search) if getattr(search, f.name) != f.default]
    return ",".join([planner.kind, *(f"{f.name}={getattr(search, f.name)}" for f in changed)])
