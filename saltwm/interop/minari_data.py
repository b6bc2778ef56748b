"""A dataset of Minari's: episodes of T actions and T + 1 observations, pictures among the observations."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from saltwm.envs.base import StateField
from saltwm.ground import budget
from saltwm.ground.errors import DamagedError, UsageError
from saltwm.ground.extras import needs
from saltwm.interop.recordings import Recording, choose_camera, field_name, require_inside


@dataclass(frozen=True)
class MinariData:
    """An opened dataset."""

    path: Path
    data: Any
    camera: str
    """Key of the pictures, a dot between levels; empty where the observation itself is one."""
    states: tuple[str, ...]
    """Keys of the vectors that make the state."""

    @property
    def episodes(self) -> range:
        """Numbers of the episodes."""
        return range(int(self.data.total_episodes))

    @property
    def fields(self) -> tuple[StateField, ...]:
        """A field for each vector of the observation."""
        found, start = [], 0
        for key in self.states:
            size = int(np.prod(_spaces(self.data.observation_space)[key].shape))
            found.append(StateField(field_name(key.replace(".", "_")), start, start + size))
            start += size
        return tuple(found) or (StateField("step", 0, 1),)

    @property
    def action_names(self) -> tuple[str, ...]:
        """None: the format has no place for them."""
        return ()

    def recordings(self) -> Iterator[Recording]:
        """The episodes, one after another."""
        for number, episode in enumerate(_readable(self.path, iter(self.data.iterate_episodes()))):
            actions = np.asarray(episode.actions)
            if actions.ndim != 2:
                raise UsageError(f"{self.path}: episode {number}: actions {list(actions.shape)}: expected vectors")
            values = [np.asarray(_inside(episode.observations, key)) for key in self.states]
            states = np.concatenate([v.reshape(len(v), -1) for v in values], axis=1) if values else None
            yield Recording(_inside(episode.observations, self.camera), actions, states, str(self.path))


def open_minari(path: Path, camera: str | None = None) -> MinariData:
    """The dataset at PATH, which holds data/main_data.hdf5."""
    with needs("minari", "a Minari dataset"):
        from minari import MinariDataset
    place = path / "data" if (path / "data" / "main_data.hdf5").is_file() else path
    if not (place / "main_data.hdf5").is_file():
        raise UsageError(f"{path}: not a Minari dataset (no data/main_data.hdf5)")
    require_inside(path, place)
    _require_own_content(place / "main_data.hdf5")
    try:
        data = MinariDataset(place)
        spaces = _spaces(data.observation_space)
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise DamagedError(f"{place}: not a readable Minari dataset ({type(error).__name__}: {error})") from error
    cameras = [key for key, space in spaces.items() if len(space.shape or ()) == 3 and space.dtype == np.uint8]
    vectors = tuple(key for key, space in spaces.items() if len(space.shape or ()) == 1 and space.dtype.kind == "f")
    return MinariData(path, data, choose_camera(path, cameras, camera), vectors)


def _readable(path: Path, episodes: Iterator[Any]) -> Iterator[Any]:
    """The episodes; DamagedError at the first that h5py or Minari cannot read."""
    while True:
        try:
            episode = next(episodes, None)
        except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
            raise DamagedError(f"{path}: not a readable Minari dataset ({type(error).__name__}: {error})") from error
        if episode is None:
            return
        yield episode


def _require_own_content(file: Path) -> None:
    """DamagedError for an episode that declares more than the budget, or has numbers that lie in other files.

    Minari reads whole episodes with h5py, which follows every link and believes every size.
    """
    try:
        with h5py.File(file, "r") as h5:
            for name in h5:
                arrays = _arrays(f"{file}: {name}", h5, name, set())
                budget.require(
                    f"{file}: {name}", "its arrays", sum(int(a.size or 0) * a.dtype.itemsize for a in arrays)
                )
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise DamagedError(f"{file}: not a readable HDF5 file ({error})") from error


def _arrays(where: str, parent: Any, name: str, seen: set[int]) -> Iterator[h5py.Dataset]:
    """Every array below `name`, each stored in this very file and under one name: a group may hold itself."""
    if not isinstance(parent.get(name, getlink=True), h5py.HardLink):
        raise DamagedError(f"{where}: {name!r} is a link to elsewhere")
    found = parent[name]
    address = h5py.h5o.get_info(found.id).addr
    if address in seen:
        raise DamagedError(f"{where}: {name!r} has a second name")
    seen.add(address)
    if isinstance(found, h5py.Group):
        for inner in found:
            yield from _arrays(where, found, inner, seen)
    elif isinstance(found, h5py.Dataset):
        if found.is_virtual or found.external:
            raise DamagedError(f"{where}: {name!r} is not stored in the file itself")
        yield found


def _spaces(space: Any, prefix: str = "") -> dict[str, Any]:
    """Every array of an observation space by its key."""
    inner = getattr(space, "spaces", None)
    if not isinstance(inner, dict):
        return {prefix: space}
    found: dict[str, Any] = {}
    for key, value in inner.items():
        found |= _spaces(value, f"{prefix}.{key}" if prefix else key)
    return found


def _inside(observations: Any, key: str) -> NDArray[Any]:
    for part in key.split(".") if key else []:
        observations = observations[part]
    return np.asarray(observations)
