"""Draw docs/pictures/ENV.png for each environment: python docs/pictures/draw_environments.py [ENV ...]

Eight moments of one collected episode; above as the benchmark looks (`full`), below as a small model sees it (`fast`).
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from saltwm.envs import ENVIRONMENTS, make_env
from saltwm.envs.base import Frame, State
from saltwm.ground.rng import stream

MOMENTS, SIZE = 8, 112


def episode(name: str) -> State:
    """States of one episode of the default policy [T + 1, S]."""
    env = make_env(name)
    states = [env.reset(seed=0)[0]]
    act = env.policy(env.policies[0], stream(0, "picture", name))
    while len(states) <= 8 * 15:
        states.append(env.step(act())[0])
    env.close()
    return np.array(states)


def sheet(name: str) -> Frame:
    """Two rows of pictures [2 * SIZE, MOMENTS * SIZE, 3]."""
    states = episode(name)
    moments = states[np.linspace(0, len(states) - 1, MOMENTS).astype(int)]
    rows = []
    for quality, size in (("full", SIZE), ("fast", 64)):
        env = make_env(name, render_quality=quality)
        frames = [
            Image.fromarray(frame).resize((SIZE, SIZE), Image.Resampling.NEAREST)
            for frame in env.draw_many(moments, size)
        ]
        rows.append(np.concatenate([np.asarray(frame) for frame in frames], axis=1))
        env.close()
    return np.concatenate(rows)


for name in sys.argv[1:] or ENVIRONMENTS:
    path = Path(__file__).with_name(f"{name}.png")
    Image.fromarray(sheet(name)).quantize(256).save(path, optimize=True)
    print(path, path.stat().st_size, "bytes")
