"""Make episodes with many processes: each episode is a function of (seed, index), each part is whole or absent."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from saltwm.disk import dataset_writer as parts
from saltwm.disk import durable
from saltwm.disk.dataset import Dataset
from saltwm.disk.layout import HELD_OUT, ROOT_FILE, Episode, Recipe
from saltwm.envs import env_class, make_env
from saltwm.envs.base import Action, PlanningEnv
from saltwm.ground import rng
from saltwm.ground.checks import at_least, one_of
from saltwm.ground.config import RenderQuality, Variant
from saltwm.ground.errors import SaltError, Stopped
from saltwm.ground.progress import progress
from saltwm.processes.pool import Report, Work, Workers
from saltwm.processes.stopping import stop_signal

PART_STEPS = 4000
"""Steps in a part, about: small enough to lose little to an interruption, large enough for few files."""


def collect(
    env_name: str,
    path: Path | str,
    episodes: int,
    *,
    seed: int = 0,
    policy: str | None = None,
    variant: Variant = "clean",
    image_size: int = 64,
    render: RenderQuality = "fast",
    frame_every: int = 1,
    held_out: bool = False,
    workers: int = 2,
    episodes_per_part: int | None = None,
) -> Dataset:
    """Collect episodes into `path`, or go on where an interrupted collection stopped; the bytes are the same.

    `policy` defaults to the environment's own collecting policy. `held_out` makes a dataset for evaluation alone.
    """
    path = Path(path)
    cls = env_class(env_name)
    policy = cls.policies[0] if policy is None else policy
    one_of(f"{env_name} policy", policy, cls.policies)
    numbers = {"episodes": episodes, "image_size": image_size, "frame_every": frame_every, "workers": workers}
    for name, value in numbers.items():
        at_least(name, value)
    env = make_env(env_name, variant=variant, image_size=image_size, render_quality=render)
    recipe = Recipe(
        world=env.world,
        variant=variant,
        state_dim=env.state_dim,
        episodes=episodes,
        frame_every=frame_every,
        episodes_per_part=episodes_per_part or max(1, PART_STEPS // env.max_episode_steps),
        source={"kind": "collect", "policy": policy, "seed": seed, **(HELD_OUT if held_out else {})},
    )
    env.close()
    with durable.only_writer(path, "collect"):
        parts.start(path, recipe)
        if not (path / ROOT_FILE).exists():
            _collect_missing(path, recipe, workers)
            parts.finish(path, recipe)
    return Dataset.open(path)


def collect_episode(env: PlanningEnv, recipe: Recipe, index: int) -> Episode:
    """Episode `index` of the recipe; depends on nothing else."""
    seed = int(recipe.source["seed"])
    # Streams of their own, so that held-out episodes repeat no training episode, whatever the two seeds are.
    whose = "held-out " if recipe.is_held_out else ""
    env.reset(seed=rng.derive(seed, f"{whose}episode", index))
    act = env.policy(str(recipe.source["policy"]), rng.stream(seed, f"{whose}policy", index))
    states, actions, reached = [env.state()], list[Action](), False
    while len(actions) < env.max_episode_steps and not (reached and env.ends_at_goal):
        action = act()
        state, _, reached, _, _ = env.step(action)
        actions.append(action)
        states.append(state)
    every_state = np.stack(states)
    # Drawn from the states, not on the way: a frame is the picture of its stored state, as every goal's picture is.
    frames = env.draw_many(every_state[:: recipe.frame_every], recipe.world.image_size)
    return Episode(frames, np.stack(actions), every_state)


# --- the processes --------------------------------------------------------------------------------------------------


def _collect_missing(path: Path, recipe: Recipe, workers: int) -> None:
    """Hand the missing parts to worker processes, one at a time each, until all are written."""
    todo = parts.missing_parts(path, recipe)[::-1]
    done = recipe.episodes - sum(len(recipe.part_episodes(part)) for part in todo)
    title = f"collect {recipe.world.environment}"
    with (
        stop_signal() as stopped_by,
        progress(title, recipe.episodes, done) as advance,
        _leftovers_removed(path),
        Workers(workers, _part_writer, path, recipe) as pool,
    ):
        while todo or pool.busy:
            while todo and pool.free:
                pool.assign(todo.pop())
            for event in pool.events():
                if event.kind == "part":
                    advance()
                elif event.kind == "lost":
                    raise SaltError(
                        f"{path}: a worker process {event.why}; what is complete is kept, the same command goes on"
                    )
            if stopped_by():
                message = f"{path}: stopped; what is complete is kept. Go on with: {parts.resume_command(path, recipe)}"
                raise Stopped(message, stopped_by())


def _part_writer(path: Path, recipe: Recipe) -> Work:
    """In a worker: what writes one part of the dataset, and reports each of its episodes."""
    world = recipe.world
    env = make_env(world.environment, variant=recipe.variant, image_size=world.image_size, render_quality=world.render)

    def episodes(part: int, report: Report) -> Iterator[Episode]:
        for index in recipe.part_episodes(part):
            yield collect_episode(env, recipe, index)
            report()

    return lambda part, report: parts.write_part(path, recipe, part, episodes(part, report))


@contextlib.contextmanager
def _leftovers_removed(path: Path) -> Iterator[None]:
    """Remove what stopped workers left half-written, once they are gone."""
    try:
        yield
    finally:
        durable.remove_leftovers(path)
