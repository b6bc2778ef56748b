"""The protocols: three definitions, their task counts, and the variations that a name may carry."""

import dataclasses

from saltwm.ground.checks import one_of
from saltwm.ground.config import ProtocolConfig
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
            raise UsageError(f"protocol {name!r} draws one start per episode; `last_start` is for paper and long")
        protocol = dataclasses.replace(protocol, name=f"{protocol.name}-len", last_start=True)
    if hold_steps > 1:
        protocol = dataclasses.replace(protocol, name=f"{protocol.name}-hold{hold_steps}", hold_steps=hold_steps)
    return protocol
