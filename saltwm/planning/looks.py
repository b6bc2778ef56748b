"""The closed loop: when an agent looks again, and what is left of its plan and of its time. Needs no torch."""

from saltwm.ground.checks import at_least
from saltwm.ground.errors import UsageError
from saltwm.planning.policy import Actions, Decision


def blocks_left(executed_blocks: int, goal_blocks: int) -> int:
    """Action blocks until the goal is due, at least 1.

    They count down from the goal's distance in the data, `goal_blocks`. When they have run out, the goal was missed,
    and they count down from there again. Nothing else is known of the goal.
    """
    return goal_blocks - executed_blocks % goal_blocks


def split_plan(decision: Decision) -> tuple[Actions, Actions | None]:
    """The actions to execute before the next look [N, steps, A], and those planned beyond them, if there are any."""
    steps = decision.actions.shape[1] if decision.execute_steps is None else decision.execute_steps
    rest = decision.actions[:, steps:]
    return decision.actions[:, :steps], rest if rest.shape[1] else None


def require_looks(look_every: int | None, horizon_blocks: int) -> None:
    """UsageError unless there is a look within the plan, or none."""
    at_least("look_every", look_every)
    if look_every is not None and horizon_blocks == 1:
        raise UsageError("`look_every`: a plan of one block has no look within it; leave it out")
    if look_every is not None and look_every >= horizon_blocks:
        raise UsageError(
            f"look_every {look_every}: a plan has {horizon_blocks} blocks, and all of them are executed before the "
            f"next look by default; expected 1 to {horizon_blocks - 1}, or leave it out"
        )


def require_horizon(proposed: int, horizon: int) -> None:
    """UsageError for a plan of more blocks than an action prior proposes."""
    if horizon > proposed:
        raise UsageError(
            f"the action prior proposes {proposed} blocks, and a plan of {horizon} was asked for; "
            f"plan with a `horizon` of {proposed}, or fewer"
        )
