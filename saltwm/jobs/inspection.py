"""What is in a dataset: facts, statistics that say whether it is worth learning from, and pictures to look at."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from saltwm.data.fields import fields_of
from saltwm.disk import durable, layout
from saltwm.disk.dataset import Ancestor, Dataset
from saltwm.disk.film import write_film
from saltwm.envs import make_env
from saltwm.envs.base import StateField
from saltwm.ground.checks import at_least
from saltwm.ground.config import WorldSpec
from saltwm.ground.errors import UsageError
from saltwm.ground.strict_json import to_plain

OFFSET_STEPS, MOST_EPISODES = 25, 2000
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
GRID = 16
"""Cells along each side of the grid on which coverage is counted."""
STILL = 1e-3
"""A field moves in a step when it changes by more than this share of its spread over the dataset."""


# --- facts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DatasetInfo:
    """What a dataset says of itself."""

    path: str
    world: WorldSpec
    variant: str
    source: dict[str, str | int | None]
    held_out: bool
    """Whether every episode is for evaluation."""
    episodes: int
    steps: int
    frames: int
    frame_every: int
    shortest: int
    longest: int
    mean_length: float
    bytes_on_disk: int
    action_mean: tuple[float, ...]
    action_std: tuple[float, ...]
    versions: dict[str, str]
    sha256: str
    lineage: tuple[Ancestor, ...]
    """What it was before each time it grew."""


def info(dataset: Dataset) -> DatasetInfo:
    """Facts about a dataset."""
    lengths = dataset.lengths
    return DatasetInfo(
        path=str(dataset.path),
        world=dataset.world,
        variant=dataset.variant,
        source=to_plain(dataset.recipe.source),
        held_out=dataset.recipe.is_held_out,
        episodes=len(dataset),
        steps=int(lengths.sum()),
        frames=int(layout.frame_counts(lengths, dataset.frame_every).sum()),
        frame_every=dataset.frame_every,
        shortest=int(lengths.min()),
        longest=int(lengths.max()),
        mean_length=float(lengths.mean()),
        bytes_on_disk=sum(file.stat().st_size for file in dataset.path.rglob("*") if file.is_file()),
        action_mean=tuple(dataset.action_mean.tolist()),
        action_std=tuple(dataset.action_std.tolist()),
        versions=dataset.versions,
        sha256=dataset.sha256,
        lineage=dataset.lineage,
    )


# --- statistics -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FieldStats:
    """How one part of the state moves."""

    name: str
    unit: str
    motion: tuple[float, ...]
    """QUANTILES of how far it is from itself `offset_steps` later."""
    moving_share: float
    """Share of the steps in which it moves at all; for a pushed block or cube, the share with contact."""
    coverage: float
    """Share of the cells of a GRID x GRID map of its first two numbers (GRID for one number) that are visited."""


@dataclass(frozen=True)
class DatasetStats:
    """Whether the data are worth learning from."""

    episodes: int
    offset_steps: int
    """Steps between the start and the goal of a pair."""
    pairs: int
    solved_share: float | None
    """Share of the pairs whose start already reaches the goal; none without a simulator that judges it."""
    distance: tuple[float, ...]
    """QUANTILES of the distance from start to goal in success radii; empty without a simulator."""
    action_mean: tuple[float, ...]
    action_std: tuple[float, ...]
    action_min: tuple[float, ...]
    action_max: tuple[float, ...]
    action_at_bound_share: float
    """Share of the action values at or beyond a bound: the environment's, or for recordings their own extremes."""
    fields: tuple[_FieldStats, ...]


@dataclass(frozen=True)
class Sample:
    """Values of the looked-at episodes, of which statistics and their picture are made."""

    dataset: Dataset
    episodes: int
    offset_steps: int
    states: NDArray[np.float64]
    """[N, S], all states"""
    steps: NDArray[np.float64]
    """[M, S], changes from one state to the next"""
    actions: NDArray[np.float32]
    """[M, A]"""
    starts: NDArray[np.float64]
    """[P, S]"""
    goals: NDArray[np.float64]
    """[P, S], the states `offset_steps` after the starts"""
    distance: NDArray[np.float64] | None
    """[P], from start to goal in success radii; none where no simulator judges it"""
    low: NDArray[Any]
    """[A], least value of each action: the environment's bound, or for recordings the least that occurs"""
    high: NDArray[Any]

    @property
    def fields(self) -> list[StateField]:
        """Fields that say where things are; clocks and the solver's memory are not part of the workspace."""
        hidden = ("time", "step", "solver_warm_start", "control")
        return [field for field in fields_of(self.dataset) if field.name not in hidden]


def stats(sample: Sample) -> DatasetStats:
    """Statistics of a sample."""
    distance = sample.distance
    return DatasetStats(
        episodes=sample.episodes,
        offset_steps=sample.offset_steps,
        pairs=len(sample.starts),
        solved_share=float((distance < 1.0).mean()) if distance is not None else None,
        distance=_quantiles(distance) if distance is not None else (),
        action_mean=_floats(sample.actions.mean(axis=0, dtype=np.float64)),
        action_std=_floats(sample.actions.std(axis=0, dtype=np.float64)),
        action_min=_floats(sample.actions.min(axis=0)),
        action_max=_floats(sample.actions.max(axis=0)),
        action_at_bound_share=float(((sample.actions <= sample.low) | (sample.actions >= sample.high)).mean()),
        fields=tuple(_field_stats(field, sample) for field in sample.fields),
    )


def look_at(dataset: Dataset, offset: int = OFFSET_STEPS, max_episodes: int = MOST_EPISODES) -> Sample:
    """A sample of evenly spaced episodes, at most `max_episodes` of them."""
    at_least("offset_steps", offset)
    chosen = _spread(len(dataset), max_episodes)
    episodes = [dataset.states(int(index)) for index in chosen]
    if max(len(states) for states in episodes) <= offset:
        raise UsageError(f"{dataset.path}: expected an episode of {offset} steps, found none; collect longer ones")
    actions = np.concatenate([dataset.actions(int(index)) for index in chosen])
    starts = np.concatenate([states[:-offset] for states in episodes])
    goals = np.concatenate([states[offset:] for states in episodes])
    distance, low, high = _judged(dataset, actions, starts, goals)
    return Sample(
        dataset,
        episodes=len(chosen),
        offset_steps=offset,
        states=np.concatenate(episodes),
        steps=np.concatenate([np.diff(states, axis=0) for states in episodes]),
        actions=actions,
        starts=starts,
        goals=goals,
        distance=distance,
        low=low,
        high=high,
    )


def _judged(
    dataset: Dataset, actions: NDArray[np.float32], starts: NDArray[np.float64], goals: NDArray[np.float64]
) -> tuple[NDArray[np.float64] | None, NDArray[Any], NDArray[Any]]:
    """Distances of the pairs, if the simulator is here and knows them, and the bounds of actions."""
    try:
        env = make_env(dataset.world.environment, variant=dataset.variant)
    except UsageError:  # recorded, or its simulator is not here
        return None, actions.min(axis=0), actions.max(axis=0)
    with contextlib.closing(env):
        distance = env.goal_distance(starts, goals) if env.measures else None
        return distance, env.action_space.low, env.action_space.high


def _spread(episodes: int, most: int) -> NDArray[np.int64]:
    """Evenly spaced episodes, `most` of them at most."""
    at_least("episodes to look at", most)
    return np.unique(np.linspace(0, episodes - 1, min(most, episodes)).astype(np.int64))


def _change(field: StateField, difference: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far a field moved: differences [N, S] -> [N]; a full turn of an angle counts as 0."""
    moved = difference[:, field.start : field.stop]
    if field.unit == "rad":
        moved = (moved + np.pi) % (2 * np.pi) - np.pi
    return np.asarray(np.linalg.norm(moved, axis=1))


def _field_stats(field: StateField, sample: Sample) -> _FieldStats:
    place = slice(field.start, field.stop)
    spread = sample.states[:, place].std()
    changed = _change(field, sample.steps) > STILL * spread
    return _FieldStats(
        name=field.name,
        unit=field.unit,
        motion=_quantiles(_change(field, sample.goals - sample.starts)),
        moving_share=float(changed.mean()),
        coverage=_coverage(sample.states[:, place][:, :2]),
    )


def _coverage(values: NDArray[np.float64]) -> float:
    """Share of the cells between the extremes that hold a value: [N, 1 or 2] -> share."""
    low, high = values.min(axis=0), values.max(axis=0)
    cells = ((values - low) / np.where(high > low, high - low, 1.0) * GRID).astype(np.int64).clip(0, GRID - 1)
    return len(np.unique(cells, axis=0)) / GRID ** values.shape[1]


def _quantiles(values: NDArray[np.float64]) -> tuple[float, ...]:
    return _floats(np.quantile(values, QUANTILES))


def _floats(values: NDArray[Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def plot_stats(sample: Sample, file: Path) -> None:
    """A picture of the same: distances of pairs, motion and map of each field, actions."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    from saltwm.report.figures import BLUE, GREY, INK, ORANGE

    dataset, distance, fields = sample.dataset, sample.distance, sample.fields
    figure = Figure(figsize=(4 * (len(fields) + 1), 6.5), layout="constrained")
    axes = figure.subplots(2, len(fields) + 1, squeeze=False)
    if distance is None:
        axes[0, 0].set(title="no simulator: no distances")
    else:
        axes[0, 0].hist(distance, bins=50, color=BLUE)
        axes[0, 0].axvline(1.0, color=INK, linewidth=1)
        title = f"pairs {sample.offset_steps} steps apart: {100 * (distance < 1.0).mean():.1f} % solved"
        axes[0, 0].set(title=title, xlabel="distance in success radii")
    axes[1, 0].set_prop_cycle(color=(BLUE, ORANGE, GREY))
    axes[1, 0].hist(sample.actions, bins=50, histtype="step")
    axes[1, 0].set(title="actions, one line per dimension", xlabel="value")
    for column, field in enumerate(fields, start=1):
        place = slice(field.start, field.stop)
        motion = _change(field, sample.goals - sample.starts)
        axes[0, column].hist(motion, bins=50, color=ORANGE)
        axes[0, column].set(title=f"{field.name}: motion in {sample.offset_steps} steps", xlabel=field.unit)
        values = sample.states[:, place]
        if values.shape[1] > 1:
            axes[1, column].hist2d(values[:, 0], values[:, 1], bins=4 * GRID, norm=LogNorm(0.1), cmap="Blues")
            axes[1, column].invert_yaxis()
        else:
            axes[1, column].hist(values[:, 0], bins=4 * GRID, color=BLUE)
        axes[1, column].set(title=f"{field.name}: where", xlabel=field.unit)
    figure.suptitle(f"{dataset.path.name}: {dataset.world.environment}, {len(dataset)} episodes")
    durable.write_file(file, lambda temporary: figure.savefig(temporary, dpi=80, metadata={"Software": None}))


# --- pictures -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preview:
    """Where the pictures are."""

    contact_sheet: str
    animation: str


def preview(
    dataset: Dataset, out: Path | str, episodes: int = 6, frames: int = 8, only: tuple[int, ...] = ()
) -> Preview:
    """A contact sheet (a row per episode, time to the right) and a moving picture of the first of them.

    `only` names the episodes; otherwise they are evenly spaced.
    """
    out = Path(out)
    if out.resolve() == dataset.path.resolve():
        raise UsageError(f"{out}: pictures do not belong into the dataset; choose another directory")
    at_least("frames of an episode", frames)
    for episode in only:
        dataset.states(episode)  # says which episodes there are
    chosen = np.array(only, np.int64) if only else _spread(len(dataset), episodes)
    durable.make_folder(out)
    result = Preview(str(out / "contact-sheet.png"), str(out / "episode.gif"))
    sheet = Image.fromarray(_contact_sheet(dataset, chosen, frames))
    durable.write_file(Path(result.contact_sheet), sheet.save)
    moving = list(_enlarged(_episode_frames(dataset, int(chosen[0]))))
    write_film(Path(result.animation), moving, frame_seconds=0.1 * dataset.frame_every)
    return result


def _contact_sheet(dataset: Dataset, episodes: NDArray[np.int64], columns: int) -> NDArray[np.uint8]:
    rows = []
    for episode in episodes:
        every = _episode_frames(dataset, int(episode))
        shown = every[np.linspace(0, len(every) - 1, columns).astype(np.int64)]
        framed = np.pad(_enlarged(shown, 112), ((0, 0), (2, 2), (2, 2), (0, 0)), constant_values=160)
        rows.append(np.concatenate(list(framed), axis=1))
    return np.concatenate(rows, axis=0)


def _episode_frames(dataset: Dataset, episode: int) -> NDArray[np.uint8]:
    steps = np.arange(0, dataset.lengths[episode] + 1, dataset.frame_every)
    return dataset.read_frames(np.full(len(steps), episode), steps)


def _enlarged(frames: NDArray[np.uint8], at_least: int = 192) -> NDArray[np.uint8]:
    """Every pixel as a square, so that a small frame is seen as it is: [N, H, W, 3] -> [N, kH, kW, 3]."""
    times = -(-at_least // frames.shape[1])
    return frames.repeat(times, axis=1).repeat(times, axis=2)
