"""Tasks: starts and goals chosen once from stored episodes, frozen to JSON with a hash, shared by all methods."""

import contextlib
import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saltwm.data.split import require_some
from saltwm.disk import durable
from saltwm.disk.claim import require_same
from saltwm.disk.dataset import Dataset
from saltwm.disk.records import Task, TaskSet, read_tasks
from saltwm.envs import env_class, make_env
from saltwm.envs.base import PlanningEnv
from saltwm.evaluation.protocols import protocol_for
from saltwm.ground.config import ProtocolConfig
from saltwm.ground.errors import DamagedError, MismatchError, UsageError
from saltwm.ground.rng import stream
from saltwm.ground.strict_json import differing_fields, to_plain

LARGEST_STATE = 1e6
"""Positions, angles and velocities of every environment stay far below this."""


@dataclass(frozen=True)
class _Drawn:
    """Start-goal pairs in the order in which they were looked at, and what became of them."""

    tasks: list[Task]
    considered: int
    solved: int
    too_near: int


def choose_tasks(
    dataset: Dataset,
    protocol: ProtocolConfig,
    count: int,
    seed: int,
    held_out: NDArray[np.int64] | None = None,
    or_fewer: bool = False,
) -> TaskSet:
    """`count` tasks of the protocol; `held_out` are the episodes that training did not see, where the protocol asks.

    With `or_fewer` a protocol of one task per episode takes what there is.

    One rule for all models: the choice depends on the data, the protocol and the seed alone.
    """
    with contextlib.closing(make_env(dataset.world.environment, variant=protocol.variant)) as env:
        if protocol.one_per_episode:
            episodes = require_some(held_out, protocol.name) if protocol.held_out else np.arange(len(dataset))
            drawn = _one_per_episode(dataset, env, protocol, count, seed, episodes)
            if len(drawn.tasks) < count and not (or_fewer and drawn.tasks):
                raise UsageError(
                    f"protocol {protocol.name!r}: {len(drawn.tasks)} of {count} tasks fit in {len(episodes)} episodes; "
                    f"ask for no more than those {len(drawn.tasks)}, or collect more episodes"
                )
        else:
            drawn = _as_the_authors_draw(dataset, env, protocol, count, seed)
    chosen = TaskSet(
        world=dataset.world,
        protocol=protocol,
        seed=seed,
        dataset_sha256=dataset.sha256,
        pairs_considered=drawn.considered,
        pairs_solved_at_start=drawn.solved,
        pairs_too_near=drawn.too_near,
        tasks=tuple(drawn.tasks),
    )
    return with_kinds(chosen)


def with_kinds(tasks: TaskSet) -> TaskSet:
    """The set with what each task asks for, by its environment's rule."""
    states, goals = (np.array([getattr(task, part) for task in tasks.tasks]) for part in ("state", "goal"))
    kinds = env_class(tasks.world.environment).task_kinds(states, goals)
    named = (dataclasses.replace(task, kind=kind) for task, kind in zip(tasks.tasks, kinds, strict=True))
    return dataclasses.replace(tasks, tasks=tuple(named))


def require_possible(tasks: TaskSet, where: object) -> None:
    """DamagedError unless every start and goal is a state of the environment, in numbers that a simulator can hold."""
    size = env_class(tasks.world.environment).state_dim
    for task in tasks.tasks:
        for name, state in (("state", task.state), ("goal", task.goal)):
            if len(state) != size:
                raise DamagedError(f"{where}: task {task.index}: {name}: expected {size} numbers, found {len(state)}")
            if largest := [value for value in state if abs(value) > LARGEST_STATE]:
                found = f"expected numbers up to {LARGEST_STATE:g}, found {largest[0]:g}"
                raise DamagedError(f"{where}: task {task.index}: {name}: {found}")


def _one_per_episode(
    dataset: Dataset,
    env: PlanningEnv,
    protocol: ProtocolConfig,
    count: int,
    seed: int,
    episodes: NDArray[np.int64],
) -> _Drawn:
    """Episodes in random order; in each, the first pair of a random order that is far enough."""
    rng = stream(seed, "tasks", protocol.name)
    tasks: list[Task] = []
    considered = solved = too_near = 0
    for episode in rng.permutation(episodes).tolist():
        if len(tasks) == count:
            break
        starts = rng.permutation(max(0, int(dataset.lengths[episode]) - protocol.goal_offset_steps + 1))
        states = dataset.states(episode)
        distances = env.goal_distance(states[starts], states[starts + protocol.goal_offset_steps])
        fits = np.flatnonzero(distances >= protocol.min_distance)
        looked_at = distances[: fits[0] + 1] if len(fits) else distances
        considered += len(looked_at)
        solved += int((looked_at < 1).sum())
        too_near += int(((looked_at >= 1) & (looked_at < protocol.min_distance)).sum())
        if len(fits):
            start = int(starts[fits[0]])
            tasks.append(_task(len(tasks), episode, start, states, protocol, float(distances[fits[0]])))
    return _Drawn(tasks, considered, solved, too_near)


def _as_the_authors_draw(dataset: Dataset, env: PlanningEnv, protocol: ProtocolConfig, count: int, seed: int) -> _Drawn:
    """Rows of the whole file, as the published evaluation draws them.

    Any row that has a goal `offset` rows later; `choice` among all but the last such row (or among all, the later
    fix); sorted. Pairs that are solved at the start stay, and are counted.
    """
    rows_per_episode = dataset.lengths + 1
    starts_per_episode = np.maximum(rows_per_episode - protocol.goal_offset_steps, 0)
    total = int(starts_per_episode.sum())
    choices = total if protocol.last_start else total - 1
    if choices < count:
        raise UsageError(
            f"protocol {protocol.name!r}: {choices} possible starts are too few for {count} tasks; collect more"
        )
    # The published code's own generator: the same file and seed give the same rows.
    rows = np.sort(np.random.default_rng(seed).choice(choices, size=count, replace=False))
    first_row = np.concatenate([[0], np.cumsum(starts_per_episode)])
    episodes = np.searchsorted(first_row, rows, side="right") - 1
    tasks = []
    for index, (episode, row) in enumerate(zip(episodes.tolist(), rows.tolist(), strict=True)):
        states, start = dataset.states(episode), row - int(first_row[episode])
        goal = start + protocol.goal_offset_steps
        distance = float(env.goal_distance(states[start][None], states[goal][None])[0])
        tasks.append(_task(index, episode, start, states, protocol, distance))
    return _Drawn(tasks, count, sum(task.distance < 1 for task in tasks), 0)


def _task(
    index: int, episode: int, start: int, states: NDArray[np.float64], protocol: ProtocolConfig, distance: float
) -> Task:
    goal = states[start + protocol.goal_offset_steps]
    return Task(index, int(episode), start, tuple(states[start].tolist()), tuple(goal.tolist()), distance)


def write_tasks(path: Path, tasks: TaskSet) -> None:
    """Freeze a task set; a file that is there must hold the same set, for its results to be compared."""
    if path.exists():
        require_same(path, {"tasks": tasks.sha256}, {"tasks": read_tasks(path).sha256})
    durable.write_json(path, {"sha256": tasks.sha256, **to_plain(tasks)})


def read_frozen(path: Path) -> TaskSet:
    """A task set from anywhere, if it is one that this version could have chosen; its hash is checked too."""
    tasks = read_tasks(path)
    env_class(tasks.world.environment)  # refuses a name that it does not know
    known = protocol_for(
        tasks.protocol.name.partition("-")[0],
        last_start=tasks.protocol.last_start,
        hold_steps=tasks.protocol.hold_steps,
    )
    if differing := differing_fields(known, tasks.protocol):
        raise MismatchError(
            f"{path}: its protocol {tasks.protocol.name!r} is not that of this version ({'; '.join(differing)}); "
            "results under other rules would bear the same name"
        )
    if [task.index for task in tasks.tasks] != list(range(len(tasks.tasks))) or not tasks.tasks or tasks.seed < 0:
        raise DamagedError(f"{path}: expected tasks numbered from 0 and a seed of at least 0")
    return with_kinds(tasks)
