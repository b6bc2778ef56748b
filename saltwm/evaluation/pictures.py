"""Moving pictures and strips of evaluated episodes, repeated from their recorded actions."""

from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from saltwm import durable
from saltwm.envs import make_env
from saltwm.envs.base import Frame, PlanningEnv
from saltwm.evaluation.rollout import Outcome
from saltwm.records import Task, TaskSet

PICTURE_SIZE = 160
STRIP_FRAMES = 6
GAP = 4


def film(tasks: TaskSet, outcomes: list[Outcome], directory: Path) -> list[Path]:
    """A GIF (agent beside goal) and a strip for each outcome: directory/task-007-reached.gif and .png."""
    directory.mkdir(parents=True, exist_ok=True)
    env = make_env(tasks.world.environment, variant=tasks.protocol.variant, render_quality=tasks.world.render)
    paths = []
    for outcome in outcomes:
        task = tasks.tasks[outcome.record.task]
        goal, frames = replay(env, task, outcome)
        path = directory / f"task-{task.index:03d}-{outcome.record.reason}"
        write_gif(path.with_suffix(".gif"), [beside(frame, goal) for frame in frames])
        chosen = np.linspace(0, len(frames) - 1, STRIP_FRAMES).round().astype(int)
        strip = beside(*[frames[index] for index in chosen], goal)
        durable.write_file(path.with_suffix(".png"), partial(Image.fromarray(strip).save, format="PNG"))
        paths += [path.with_suffix(".gif"), path.with_suffix(".png")]
    return paths


def replay(env: PlanningEnv, task: Task, outcome: Outcome) -> tuple[Frame, list[Frame]]:
    """The goal's picture and one picture per step: recorded actions from a restored state repeat the episode."""
    env.restore(np.array(task.goal))
    goal = env.draw(PICTURE_SIZE)
    env.restore(np.array(task.state))
    frames = [env.draw(PICTURE_SIZE)]
    for action in outcome.actions:
        env.step(action)
        frames.append(env.draw(PICTURE_SIZE))
    return goal, frames


def beside(*frames: Frame) -> Frame:
    """Pictures side by side; the last one, the goal, is set apart by a white gap."""
    gap = np.full((frames[0].shape[0], GAP, 3), 255, np.uint8)
    return np.concatenate([*frames[:-1], gap, frames[-1]], axis=1)


def write_gif(path: Path, frames: list[Frame], milliseconds: int = 80) -> None:
    """An endless GIF that rests on its last frame."""
    images = [Image.fromarray(frame).quantize(64) for frame in frames]
    durations = [milliseconds] * (len(images) - 1) + [1200]

    def save(file: Path) -> None:
        images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=True)

    durable.write_file(path, save)
