"""Small datasets made on the spot, by the same writer that collections use."""

from pathlib import Path

import numpy as np

from saltwm.disk import dataset_writer as parts
from saltwm.disk.layout import Collected, Episode, Recipe
from saltwm.ground import rng
from saltwm.ground.config import WorldSpec

SIZE = 8


def make_recipe(episodes=7, frame_every=1, episodes_per_part=3, image_size=SIZE):
    world = WorldSpec("two-room", action_dim=2, image_size=image_size)
    source = Collected(policy="expert", seed=0)
    return Recipe(world, "clean", 3, episodes, frame_every, episodes_per_part, source)


def make_episode(index, recipe, length=None):
    """Frames, actions and states from which episode and step can be read back."""
    draw = rng.stream(0, "test episode", index)
    steps = int(draw.integers(5, 30)) if length is None else length
    shown = np.arange(0, steps + 1, recipe.frame_every)
    size = recipe.world.image_size
    frames = draw.integers(0, 256, (len(shown), size, size, 3), dtype=np.uint8)
    frames[:, 0, 0, 0] = index
    frames[:, 0, 0, 1] = shown
    actions = draw.normal(size=(steps, recipe.world.action_dim)).astype(np.float32)
    actions[:, 0] = np.arange(steps)
    states = draw.normal(size=(steps + 1, recipe.state_dim))
    states[:, 0], states[:, 1] = index, np.arange(steps + 1)
    return Episode(frames, actions, states)


def write_dataset(path, recipe, lengths=None):
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    episodes = [make_episode(i, recipe, lengths and lengths[i]) for i in range(recipe.episodes)]
    parts.start(path, recipe)
    for part in range(recipe.parts):
        chosen = recipe.part_episodes(part)
        parts.write_part(path, recipe, part, episodes[chosen.start : chosen.stop])
    parts.finish(path, recipe)
    return episodes
