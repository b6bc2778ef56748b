"""A start and a goal that a person set, as a set of one task."""

import contextlib
import dataclasses
from pathlib import Path

import numpy as np

from saltwm.disk import checkpoint
from saltwm.disk.records import Task, TaskSet
from saltwm.envs import make_env
from saltwm.evaluation.protocols import CLEAN_PROTOCOL
from saltwm.evaluation.tasks import require_possible, with_kinds
from saltwm.ground import strict_json
from saltwm.ground.checks import at_least
from saltwm.ground.errors import DamagedError, UsageError
from saltwm.jobs.evaluate import DEFAULT_SEED, MODELLESS, Play

BY_HAND_STEPS = 200
"""Steps that an agent may take towards a goal that a person set."""


def task_by_hand(job: Play) -> TaskSet | None:
    """A start and a goal of a person's own as a set of one task; None if the job names none."""
    if job.start is None and job.goal is None:
        if job.unbounded:
            raise UsageError("--unbounded is for --start and --goal; a protocol has bounds or has none")
        return None
    if job.start is None or job.goal is None or job.data is not None or job.task_set is not None or job.task != 0:
        raise UsageError("--start and --goal are a task together: give both, and no --data, --task-set or --task")
    if job.run in MODELLESS:
        raise UsageError("--start and --goal need a model, which says what world they are of")
    at_least("horizon", job.horizon, 1)
    at_least("seed", job.seed, 0)
    info = checkpoint.info_of(Path(job.run))
    horizon = job.horizon or CLEAN_PROTOCOL.horizon_blocks
    protocol = dataclasses.replace(  # `clean`, due at the horizon, with a budget to err in
        CLEAN_PROTOCOL,
        name="by-hand",
        goal_offset_steps=horizon * info.run.model.frameskip,
        budget_steps=BY_HAND_STEPS,
        horizon_blocks=horizon,
        held_out=False,
        one_per_episode=False,
        min_distance=0.0,
        bound_actions=not job.unbounded,
    )
    seed = DEFAULT_SEED if job.seed is None else job.seed
    start, goal = _state("--start", job.start), _state("--goal", job.goal)
    lone = Task(index=0, episode=0, start_step=0, state=start, goal=goal, distance=0.0)
    tasks = TaskSet(info.world, protocol, seed, "", 1, 0, 0, (lone,))  # of no dataset
    try:
        require_possible(tasks, "--start and --goal")
    except DamagedError as error:  # of a file it would be damage
        raise UsageError(str(error)) from error
    with contextlib.closing(make_env(info.world.environment, variant=protocol.variant)) as env:
        distance = float(env.goal_distance(np.array([start]), np.array([goal]))[0])
    return with_kinds(dataclasses.replace(tasks, tasks=(dataclasses.replace(lone, distance=distance),)))


def _state(flag: str, text: str) -> tuple[float, ...]:
    """The numbers of a JSON list."""
    try:
        numbers = strict_json.parse(text)
    except ValueError as error:
        raise UsageError(f"{flag}: expected a JSON list of numbers, found {text!r:.80}") from error
    if not isinstance(numbers, list) or not all(type(number) in (int, float) for number in numbers):
        raise UsageError(f"{flag}: expected a JSON list of numbers, found {text!r:.80}")
    try:
        return tuple(map(float, numbers))
    except OverflowError as error:
        raise UsageError(f"{flag}: a number is too large, found {text!r:.80}") from error
