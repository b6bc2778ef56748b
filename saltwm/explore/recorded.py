"""Stored episodes of any dataset, whether or not its world can be simulated here."""

from typing import Any

import numpy as np

from saltwm.data.fields import action_names_of, fields_of
from saltwm.disk.dataset import Dataset
from saltwm.explore.desk import Desk, plain, png
from saltwm.explore.messages import Answer, DatasetOf, Recorded
from saltwm.explore.scenes import action_names
from saltwm.ground.errors import UsageError
from saltwm.jobs.inspection import info

BINS = 24
MOST_EPISODES = 5000
"""Rows of the table of episodes."""
MOST_FRAMES = 120
MOST_NUMBERS = 2_000_000
"""Of an episode that is shown: a small file can hold any number of zeros, and each becomes text."""
LAGS = 12


def dataset(desk: Desk, ask: DatasetOf) -> Answer:
    """Facts, histograms of lengths and actions, how long actions last, and a row per episode."""
    found = desk.dataset(ask.dataset)
    facts = info(found)
    actions = found.all_actions
    header = {
        "path": str(found.path),
        "facts": {
            "episodes": facts.episodes,
            "steps": facts.steps,
            "stored frames": facts.frames,
            "a frame every": f"{facts.frame_every} steps",
            "frames": f"{facts.world.image_size} px, {facts.world.render}, {facts.world.renderer}",
            "held out": "yes" if facts.held_out else "no",
            "source": ", ".join(f"{key} {value}" for key, value in facts.source.items()),
            "on disk": f"{facts.bytes_on_disk / 1e6:.1f} MB",
            "sha256": facts.sha256,
        },
        "lengths": _histogram(found.lengths.astype(np.float64)),
        "same_length": int(found.lengths[0]) if len(set(found.lengths.tolist())) == 1 else None,
        "actions": [
            {
                "mean": float(found.action_mean[part]),
                "std": float(found.action_std[part]),
                "bins": _histogram(actions[:, part]),
                "lasting": _lasting(found, part),
            }
            for part in range(actions.shape[1])
        ],
        "action_names": action_names(found.world.environment, actions.shape[1], action_names_of(found)),
        "fields": _fields(found),
        "episodes": _rows(found),
    }
    return Answer(plain(header))


def _fields(found: Dataset) -> list[dict[str, Any]]:
    """Named parts of a state."""
    return [{"name": f.name, "start": f.start, "stop": f.stop, "unit": f.unit} for f in fields_of(found)]


def _histogram(values: np.ndarray) -> dict[str, Any]:
    counts, edges = np.histogram(values, bins=BINS)
    return {"counts": counts, "low": edges[0], "high": edges[-1]}


def _lasting(found: Dataset, part: int) -> list[float | None]:
    """Correlation of an action with itself some steps later, within episodes, for 1 .. LAGS steps."""
    centred = [found.actions(e)[:, part] - found.action_mean[part] for e in range(min(len(found), 400))]
    power = np.concatenate(centred).var()
    lasting: list[float | None] = []
    for lag in range(1, LAGS + 1):
        pairs = [values[:-lag] * values[lag:] for values in centred if len(values) > lag]
        lasting.append(float(np.concatenate(pairs).mean() / power) if pairs and power > 0 else None)
    return lasting


def _rows(found: Dataset) -> list[list[float]]:
    """[episode, steps, mean |a|, mean change of a from one step to the next] of each episode."""
    rows = []
    for episode in range(min(len(found), MOST_EPISODES)):
        actions = found.actions(episode)
        change = np.abs(np.diff(actions, axis=0)).mean() if len(actions) > 1 else 0.0
        rows.append([episode, len(actions), round(float(np.abs(actions).mean()), 4), round(float(change), 4)])
    return rows


def recorded(desk: Desk, ask: Recorded) -> Answer:
    """One episode: its stored frames as pictures, its actions and its states."""
    found = desk.dataset(ask.dataset)
    actions, states = found.actions(ask.episode), found.states(ask.episode)
    if actions.size + states.size > MOST_NUMBERS:
        held = f"{len(actions)} steps with {actions.size + states.size} numbers"
        raise UsageError(f"{ask.dataset}: episode {ask.episode} has {held}, at most {MOST_NUMBERS} are shown")
    steps = np.arange(0, len(actions) + 1, found.frame_every)
    steps = steps[:: -(-len(steps) // MOST_FRAMES)]
    frames = found.read_frames(np.full(len(steps), ask.episode), steps)
    header = {
        "steps": steps,
        "frame_every": found.frame_every,
        "actions": actions,
        "action_names": action_names(found.world.environment, actions.shape[1], action_names_of(found)),
        "states": states,
        "fields": _fields(found),
    }
    return Answer(plain(header), [png(frame) for frame in frames])
