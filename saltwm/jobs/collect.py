"""Make episodes with many processes: each episode is a function of (seed, index), each part is whole or absent."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from saltwm.disk import durable
from saltwm.ground.checks import at_least, one_of
from saltwm.ground.config import RenderQuality, Variant
from saltwm.ground.errors import DamagedError, MismatchError, Stopped
from saltwm.ground.strict_json import differing_fields, from_plain, to_plain
from saltwm.jobs.job import Aside, AsJson, Job, Maybe, Positional, ProcessCount, RayAddress

if TYPE_CHECKING:
    from saltwm.disk.dataset import Dataset
    from saltwm.disk.layout import Collected, Episode, Recipe
    from saltwm.envs.base import Action, PlanningEnv
    from saltwm.interop.on_ray import RayWorkers
    from saltwm.processes.pool import Report, Work, Workers

PART_SECONDS = 3600.0
"""A part that another machine has not made after this time is taken for lost."""
Physics = Literal["clean", "benchmark"]
IN_FILES: dict[Physics, Variant] = {"clean": "clean", "benchmark": "paper"}
"""Each physics by the name that datasets have for it."""


@dataclass(frozen=True)
class Collect(Job):
    """Collect episodes of an environment into a dataset; an interrupted collection goes on to the same bytes.

    A finished dataset takes more: the same command with more --episodes adds those that are missing.
    """

    environment: Positional[str]
    """two-room, push-t, reacher, cube, cube-double, or module:Class for a class of your own."""
    out: Aside[Path]
    """Dataset directory."""
    episodes: int = 2000
    """Episodes in all; more than a finished dataset has makes it grow."""
    policy: Maybe[str] = None
    """How to act; by default expert (two-room), pusher (push-t), random (reacher), oracle (cube, cube-double)."""
    seed: int = 0
    """Episode i is a function of (seed, i)."""
    physics: Physics = "clean"
    """clean, or benchmark for the public benchmark's."""
    image_size: int = 64
    """Height and width of a frame in pixels."""
    render: RenderQuality = "fast"
    """full looks like the benchmark; fast has no shadows, reflections and multisampling; soft is fast without jags."""
    frame_every: int = 1
    """Keep every n-th frame; 5 keeps just those that windows at the frameskip use."""
    held_out: bool = False
    """Every episode is for evaluation: train refuses the dataset, and tasks may come from all of it."""
    episodes_per_part: Maybe[int] = None
    """Episodes that are written at a time; by default as many as have about 4000 steps."""
    workers: ProcessCount = 2
    ray: RayAddress = None
    json: AsJson = False

    def do(self) -> "Dataset":
        """Collect what is missing; the dataset."""
        from saltwm.disk import dataset_writer as parts
        from saltwm.disk.dataset import Dataset

        recipe = self.recipe()
        with durable.only_writer(self.out, "collect"):
            recipe = parts.start(self.out, recipe)
            if not parts.is_finished(self.out, recipe):
                _collect_missing(self.out, recipe, self.workers, self.ray)
                parts.finish(self.out, recipe)
        return Dataset.open(self.out)

    def recipe(self) -> "Recipe":
        """What the dataset's files say of this job."""
        from saltwm.disk.layout import Collected, HeldOut, Recipe
        from saltwm.envs import env_class, introduce
        from saltwm.envs.base import spell_fields

        cls, variant = env_class(introduce(self.environment)), IN_FILES[self.physics]
        policy = cls.policies[0] if self.policy is None else self.policy
        one_of(f"{self.environment} policy", policy, cls.policies)
        for name in ("episodes", "image_size", "frame_every", "workers", "episodes_per_part"):
            at_least(name, getattr(self, name))
        env = cls(variant=variant, image_size=self.image_size, render_quality=self.render)
        with contextlib.closing(env):
            return Recipe(
                world=env.world,
                variant=variant,
                state_dim=env.state_dim,
                episodes=self.episodes,
                frame_every=self.frame_every,
                episodes_per_part=self.episodes_per_part or _usual_part(env.max_episode_steps),
                source=(HeldOut if self.held_out else Collected)(
                    policy=policy,
                    seed=self.seed,
                    state_fields=spell_fields(cls.state_fields) if cls.named_by else None,
                ),
            )

    @classmethod
    def of(cls, recipe: "Recipe", out: Path) -> Self:
        """The job that makes the dataset of a recipe."""
        from saltwm.envs import env_class

        world, source = recipe.world, _collected(recipe)
        env, policy = env_class(world.environment), source.policy
        usual = recipe.episodes_per_part == _usual_part(env.max_episode_steps)
        return cls(
            world.environment,
            out,
            recipe.episodes,
            policy=None if policy == env.policies[0] else policy,
            seed=source.seed,
            physics=next(word for word, name in IN_FILES.items() if name == recipe.variant),
            image_size=world.image_size,
            render=world.render,
            frame_every=recipe.frame_every,
            held_out=recipe.is_held_out,
            episodes_per_part=None if usual else recipe.episodes_per_part,
        )


def _collected(recipe: "Recipe") -> "Collected":
    """The recipe's source, which a policy made."""
    from saltwm.disk.layout import Collected

    assert isinstance(recipe.source, Collected)
    return recipe.source


def _usual_part(episode_steps: int) -> int:
    """Episodes in a part by default."""
    from saltwm.disk.layout import PART_STEPS

    return max(1, PART_STEPS // episode_steps)


def collect_episode(env: "PlanningEnv", recipe: "Recipe", index: int) -> "Episode":
    """Episode `index` of the recipe; depends on nothing else."""
    import numpy as np

    from saltwm.disk.layout import Episode
    from saltwm.ground import rng

    source = _collected(recipe)
    seed = source.seed
    # Streams of their own, so that held-out episodes repeat no training episode, whatever the two seeds are.
    whose = "held-out " if recipe.is_held_out else ""
    env.reset(seed=rng.derive(seed, f"{whose}episode", index))
    act = env.policy(source.policy, rng.stream(seed, f"{whose}policy", index))
    size = recipe.world.image_size
    states, reached, over = [env.state()], False, False
    seen = [] if env.restores else [np.array(env.draw(size))]  # the next may be drawn into the same array
    actions: list[Action] = []
    while len(actions) < env.max_episode_steps and not (reached and env.ends_at_goal) and not over:
        action = act()
        state, _, reached, over, _ = env.step(action)
        actions.append(action)
        states.append(state)
        if not env.restores and len(actions) % recipe.frame_every == 0:
            seen.append(np.array(env.draw(size)))
    every_state = np.stack(states)
    # Drawn from the states, not on the way: a frame is the picture of its stored state, as every goal's picture is.
    frames = env.draw_many(every_state[:: recipe.frame_every], size) if env.restores else np.stack(seen)
    return Episode(frames, np.stack(actions), every_state)


def _collect_missing(path: Path, recipe: "Recipe", workers: int, ray: str | None = None) -> None:
    """Hand the missing parts to worker processes, one at a time each, until all are written."""
    from saltwm.disk import dataset_writer as parts
    from saltwm.ground.progress import progress
    from saltwm.processes.pool import work_off
    from saltwm.processes.stopping import stop_signal

    todo = parts.missing_parts(path, recipe)
    done = recipe.episodes - sum(len(recipe.part_episodes(part)) for part in todo)
    with (
        stop_signal() as stopped_by,
        progress(f"collect {recipe.world.environment}", recipe.episodes, done) as advance,
        _leftovers_removed(path),
        _pool(path, recipe, workers, ray) as pool,
    ):
        for event in work_off(pool, todo, lambda part: f"{path}: part {part}"):
            if event is not None and event.kind == "part":
                advance()
            elif event is not None and event.kind == "done" and ray is not None:  # episodes are not reported there
                advance(len(recipe.part_episodes(event.item)))
            if stopped_by():
                # `saltwm reproduce` collects too: the command that goes on is the one that was given
                raise Stopped(f"{path}: stopped; what is complete is kept, the same command goes on", stopped_by())


def _pool(path: Path, recipe: "Recipe", workers: int, ray: str | None) -> "Workers | RayWorkers":
    from saltwm.processes.pool import Workers, same_arithmetic

    if ray is None:
        return Workers(workers, _part_writer, path, recipe, settings=same_arithmetic())
    from saltwm.interop.on_ray import RayWorkers

    return RayWorkers(ray, workers, Parts(path, recipe), item_seconds=PART_SECONDS)


@dataclass(frozen=True)
class Parts:
    """Parts that another machine makes: the recipe goes there, the files of a part come back."""

    path: Path
    recipe: "Recipe"
    kind = "part"

    def order(self, part: int) -> tuple[dict[str, Any], int]:
        """The recipe, and the number of the part."""
        return to_plain(self.recipe), part

    def files(self, part: int) -> dict[str, Path]:
        """None: a recipe says it all."""
        return {}

    def receive(self, part: int, result: dict[str, bytes]) -> None:
        """Publish the part, whole or absent."""
        from saltwm.disk.layout import part_path

        with durable.publish_directory(part_path(self.path, part)) as directory:
            for name, data in result.items():
                file = directory / name
                if not file.resolve().is_relative_to(directory.resolve()):
                    raise DamagedError(f"{self.path}: part {part}: a node sent a file {name!r}, which leads elsewhere")
                durable.make_folder(file.parent)
                durable.write_bytes(file, data)


def prepare_sent(order: dict[str, Any], folder: Path) -> Callable[[int], dict[str, bytes]]:
    """On another machine: what makes a part of the recipe and gives its files."""
    import tempfile

    from saltwm.disk.layout import Recipe, part_path

    write = _writer(from_plain(Recipe, order, "the recipe"))

    def make(part: int) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory(prefix="saltwm-") as name:
            write(Path(name), part, lambda: None)
            made = part_path(Path(name), part)
            files = sorted(file for file in made.rglob("*") if file.is_file() and file.name != durable.MANIFEST)
            return {file.relative_to(made).as_posix(): durable.read_bytes(file) for file in files}

    return make


def _part_writer(path: Path, recipe: "Recipe") -> "Work":
    """In a worker: what writes one part of the dataset, and reports each of its episodes."""
    write = _writer(recipe)
    return lambda part, report: write(path, part, report)


def _writer(recipe: "Recipe") -> "Callable[[Path, int, Report], None]":
    """What writes a part of the recipe into a folder; MismatchError where pictures would be drawn by something else."""
    from saltwm.disk import dataset_writer as parts
    from saltwm.envs import make_env

    world = recipe.world
    env = make_env(world.environment, variant=recipe.variant, image_size=world.image_size, render_quality=world.render)
    if different := differing_fields(world, env.world):
        raise MismatchError(f"this machine makes another world than the dataset's: {'; '.join(different)}")

    def episodes(part: int, report: "Report") -> "Iterator[Episode]":
        for index in recipe.part_episodes(part):
            yield collect_episode(env, recipe, index)
            report()

    return lambda path, part, report: parts.write_part(path, recipe, part, episodes(part, report))


@contextlib.contextmanager
def _leftovers_removed(path: Path) -> Iterator[None]:
    """Remove what stopped workers left half-written, once they are gone."""
    try:
        yield
    finally:
        durable.remove_leftovers(path)
