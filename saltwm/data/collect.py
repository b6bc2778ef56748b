"""Make episodes with many processes: each episode is a function of (seed, index), each part is whole or absent."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

from saltwm import durable, errors, rng
from saltwm.config import RenderQuality, Variant, one_of
from saltwm.data import parts
from saltwm.data.layout import Episode, Recipe
from saltwm.data.stopping import stop_signal
from saltwm.data.store import Dataset
from saltwm.envs import env_class, make_env
from saltwm.envs.base import Action, PlanningEnv
from saltwm.errors import SaltError, Stopped, UsageError
from saltwm.progress import progress

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
    workers: int = 2,
    episodes_per_part: int | None = None,
) -> Dataset:
    """Collect episodes into `path`, or go on where an interrupted collection stopped; the bytes are the same.

    `policy` defaults to the environment's own collecting policy.
    """
    path = Path(path)
    cls = env_class(env_name)
    policy = cls.policies[0] if policy is None else policy
    one_of(f"{env_name} policy", policy, cls.policies)
    for name, value in (("episodes", episodes), ("frame_every", frame_every), ("workers", workers)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, found {value}")
    env = make_env(env_name, variant=variant, image_size=image_size, render_quality=render)
    recipe = Recipe(
        world=env.world,
        variant=variant,
        state_dim=env.state_dim,
        episodes=episodes,
        frame_every=frame_every,
        episodes_per_part=episodes_per_part or max(1, PART_STEPS // env.max_episode_steps),
        source={"kind": "collect", "policy": policy, "seed": seed},
    )
    env.close()
    with durable.only_writer(path, "collect"):
        parts.start(path, recipe)
        if not (path / "zarr.json").exists():
            _collect_missing(path, recipe, workers)
            parts.finish(path, recipe)
    return Dataset.open(path)


def collect_episode(env: PlanningEnv, recipe: Recipe, index: int) -> Episode:
    """Episode `index` of the recipe; depends on nothing else."""
    seed = int(recipe.source["seed"])
    env.reset(seed=rng.derive(seed, "episode", index))
    act = env.policy(str(recipe.source["policy"]), rng.stream(seed, "policy", index))
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
        _Workers(min(workers, len(todo)), path, recipe) as pool,
    ):
        while todo or pool.busy:
            while todo and pool.idle:
                pool.assign(todo.pop())
            pool.receive(advance)
            if stopped_by():
                message = f"{path}: stopped; what is complete is kept. Go on with: {parts.resume_command(path, recipe)}"
                raise Stopped(message, stopped_by())


class _Workers:
    """Processes that write one part at a time and report each episode; none outlives the block."""

    def __init__(self, count: int, path: Path, recipe: Recipe) -> None:
        self._path = path
        self.busy: dict[Connection, Any] = {}
        self.idle: list[tuple[Connection, Any]] = []
        context = multiprocessing.get_context("spawn")
        with _one_thread_each():
            for _ in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs, path, recipe), daemon=True)
                process.start()
                theirs.close()
                self.idle.append((ours, process))

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *_: object) -> None:
        processes = [*self.busy.values(), *(process for _, process in self.idle)]
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        durable.remove_leftovers(self._path)

    def assign(self, part: int) -> None:
        """Give a part to an idle worker."""
        connection, process = self.idle.pop()
        connection.send(part)
        self.busy[connection] = process

    def receive(self, advance: Callable[..., None]) -> None:
        """Take in reports for a moment; a worker's error is raised here, and so is its death."""
        for connection in wait(list(self.busy), timeout=0.1):
            assert isinstance(connection, Connection)
            try:
                kind, text = connection.recv()
            except EOFError as error:
                code = self._exit_code(connection)
                raise SaltError(
                    f"{self._path}: a worker process died ({code}); what is complete is kept, the same command goes on"
                ) from error
            if kind == "episode":
                advance()
            elif kind == "part":
                self.idle.append((connection, self.busy.pop(connection)))
            else:
                raise _error_of(kind)(text)

    def _exit_code(self, connection: Connection) -> str:
        process = self.busy[connection]
        process.join(timeout=5)
        code = process.exitcode
        return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def _work(connection: Connection, path: Path, recipe: Recipe) -> None:
    """A worker's life: parts come in, (kind, text) goes out: "episode", "part" or an error's name and message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    _die_with_parent()
    try:
        world = recipe.world
        options = {"variant": recipe.variant, "image_size": world.image_size, "render_quality": world.render}
        env = make_env(world.environment, **options)
        while True:
            part = connection.recv()
            parts.write_part(path, recipe, part, _reported(env, recipe, part, connection))
            connection.send(("part", ""))
    except SaltError as error:
        connection.send((type(error).__name__, str(error)))
    except EOFError:
        pass  # the parent is done


def _reported(env: PlanningEnv, recipe: Recipe, part: int, connection: Connection) -> Iterator[Episode]:
    for index in recipe.part_episodes(part):
        yield collect_episode(env, recipe, index)
        connection.send(("episode", ""))


def _die_with_parent() -> None:
    """End this process when its parent dies, even by SIGKILL: an orphan must not write beside the next collector."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _error_of(name: str) -> type[SaltError]:
    kind = getattr(errors, name, SaltError)
    return kind if isinstance(kind, type) and issubclass(kind, SaltError) else SaltError


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Children started inside use one thread for arithmetic and software rendering: there is one of them per core."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LP_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
