"""Moving pictures and strips of evaluated episodes, repeated from their recorded actions."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from saltwm.disk import durable
from saltwm.disk.film import write_film
from saltwm.disk.records import EpisodeRecord, Task, TaskSet
from saltwm.envs import make_env
from saltwm.envs.base import Frame, PlanningEnv, State
from saltwm.evaluation.rollout import Outcome
from saltwm.jobs.imagined import Imagination, repeated

T = TypeVar("T")

PICTURE_SIZE = 160
STRIP_FRAMES = 6
GAP = 4
GREY = 205
BAND_HEIGHT = 34
MOST_FRAMES = 80
"""The most that a film for the report has: six seconds, half a megabyte. The report embeds every film."""


@dataclass(frozen=True)
class _Replay:
    """An episode seen again: its states, a picture of each, the goal's picture, and the distances in success radii."""

    states: State
    frames: list[Frame]
    goal: Frame
    distances: list[float]


def film(
    tasks: TaskSet,
    outcomes: list[Outcome],
    directory: Path,
    imagine: Callable[[PlanningEnv], Imagination | None] = lambda env: None,
) -> list[Path]:
    """A GIF and a strip for each outcome: directory/task-007-reached.gif and .png.

    The GIF shows the agent, what the plan in force expects where there is an imagination, and the goal.
    """
    if not outcomes:
        return []
    durable.make_folder(directory)
    paths = []
    with contextlib.closing(_env_of(tasks)) as env:
        imagination = imagine(env)
        for outcome in outcomes:
            path = directory / outcome.record.picture
            seen = replay(env, tasks.tasks[outcome.record.task], outcome)
            dreams = [] if imagination is None else [_drawn(env, imagination.during(seen.states, outcome))]
            shown = [_beside(*panels, seen.goal) for panels in zip(seen.frames, *dreams, strict=True)]
            write_film(path.with_suffix(".gif"), thinned(shown))
            _write_strip(path.with_suffix(".png"), seen)
            paths += [path.with_suffix(".gif"), path.with_suffix(".png")]
    return paths


def _drawn(env: PlanningEnv, states: list[State | None]) -> list[Frame]:
    """A picture of each state, grey where there is none; most are the one before, and are drawn once."""
    grey: Frame = np.full((PICTURE_SIZE, PICTURE_SIZE, 3), GREY, np.uint8)
    pictures: dict[bytes, Frame] = {}
    for state in states:
        if state is not None and state.tobytes() not in pictures:
            env.restore(state)
            pictures[state.tobytes()] = np.array(env.draw(PICTURE_SIZE))  # not the array that it draws into
    return [grey if state is None else pictures[state.tobytes()] for state in states]


def play(tasks: TaskSet, outcome: Outcome, directory: Path, kind: str, title: str | None = None) -> list[Path]:
    """The episode as a gif or mp4 that says at each step what the plan in force promises, and as a strip.

    `title` goes before the names of the files, so that others' pictures of the same task can lie beside them.
    """
    durable.make_folder(directory)
    record = outcome.record
    with contextlib.closing(_env_of(tasks)) as env:
        seen = replay(env, tasks.tasks[record.task], outcome)
    frames = [
        _captioned(_beside(frame, seen.goal), caption(record, step, distance, tasks.protocol.budget_steps))
        for step, (frame, distance) in enumerate(zip(seen.frames, seen.distances, strict=True))
    ]
    name = "-".join([*([title] if title else []), record.picture])
    moving, strip = directory / f"{name}.{kind}", directory / f"{name}.png"
    write_film(moving, frames)
    _write_strip(strip, seen)
    return [moving, strip]


def _env_of(tasks: TaskSet) -> PlanningEnv:
    return make_env(tasks.world.environment, variant=tasks.protocol.variant, render_quality=tasks.world.render)


def replay(env: PlanningEnv, task: Task, outcome: Outcome) -> _Replay:
    """Recorded actions from a restored state repeat the episode."""
    states, goal = repeated(env, task, outcome), np.array(task.goal)
    *frames, goal_frame = env.draw_many(np.concatenate([states, goal[None]]), PICTURE_SIZE)
    distances = env.goal_distance(states, np.repeat(goal[None], len(states), axis=0))
    return _Replay(states, frames, goal_frame, distances.tolist())


# --- drawing --------------------------------------------------------------------------------------------------------


def _beside(*frames: Frame) -> Frame:
    """Pictures side by side with grey gaps; the last one, the goal, is set apart by a wider one."""
    gap = np.full((frames[0].shape[0], GAP, 3), GREY, np.uint8)
    apart = np.concatenate([gap] * 4, axis=1)
    seen = [part for frame in frames[:-1] for part in (frame, gap)][:-1]
    return np.concatenate([*seen, apart, frames[-1]], axis=1)


def thinned(frames: Sequence[T], most: int = MOST_FRAMES) -> Sequence[T]:
    """Every frame of a short episode, every second, third, ... of a longer one; the last one always."""
    every = -(-len(frames) // most)
    return frames[-1::-every][::-1]


def caption(record: EpisodeRecord, step: int, distance: float, budget: int) -> tuple[str, str]:
    """Two lines below a frame: where the episode is, and what the plan in force promised of its end."""
    now = f"step {step} of {budget}   {distance:.2f} radii from the goal"
    made = [(number, plan) for number, plan in enumerate(record.plans, start=1) if plan.step <= step]
    if not made or not made[-1][1].elite_costs:
        return now, "acts without predicting"
    number, plan = made[-1]
    return now, f"plan {number}: cost {plan.elite_costs[0]:.3g} before search, {plan.elite_costs[-1]:.3g} promised"


def _captioned(frame: Frame, lines: tuple[str, str]) -> Frame:
    """A frame with a white band of text below it."""
    band = np.full((BAND_HEIGHT, frame.shape[1], 3), 255, np.uint8)
    image = Image.fromarray(np.concatenate([frame, band]))
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=11)
    for number, line in enumerate(lines):
        draw.text((4, frame.shape[0] + 2 + 15 * number), line, fill=(29, 33, 39), font=font)
    return np.array(image)


# --- files ----------------------------------------------------------------------------------------------------------


def _write_strip(path: Path, seen: _Replay) -> None:
    """Six moments from the start to the end of an episode, and the goal, as a PNG."""
    chosen = np.linspace(0, len(seen.frames) - 1, STRIP_FRAMES).round().astype(int)
    strip = _beside(*[seen.frames[index] for index in chosen], seen.goal)
    durable.write_file(path, partial(Image.fromarray(strip).save, format="PNG"))
