"""LeRobot's dataset format v3: rows in Parquet, many episodes to a file, cameras as MP4, read without lerobot.

    meta/info.json                                  fps, features, path templates
    meta/episodes/chunk-000/file-000.parquet        of each episode: its rows, its files, its seconds of each video
    data/chunk-000/file-000.parquet                 a row per frame: action, observation.state, timestamp, ...
    videos/CAMERA/chunk-000/file-000.mp4

A row holds an observation and the action that follows it. The last action of an episode leads to no frame and is left
out.
"""

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from saltwm.envs.base import StateField
from saltwm.ground.errors import DamagedError, UsageError
from saltwm.ground.extras import needs
from saltwm.interop.recordings import Recording
from saltwm.interop.video import read_video

STATE = "observation.state"
GAP_SHARE = 0.1
"""Share of a frame's time by which a timestamp may be off its place."""


@dataclass(frozen=True)
class LeRobot:
    """A folder of LeRobot's, opened."""

    path: Path
    info: dict[str, Any]
    episodes: list[dict[str, Any]]
    camera: str

    @property
    def fields(self) -> tuple[StateField, ...]:
        """One field for the robot's state, if it is recorded."""
        feature = self.info["features"].get(STATE)
        return (StateField("robot_state", 0, int(feature["shape"][0])),) if feature else (StateField("step", 0, 1),)

    def recordings(self) -> Iterator[Recording]:
        """The episodes, one after another."""
        table, name = None, None
        for number, episode in enumerate(self.episodes):
            file = self._file("data_path", episode, "data")
            if file != name:
                table, name = _read_table(file), file
            yield self._recording(number, episode, table, file)

    def _recording(self, number: int, episode: dict[str, Any], table: Any, file: Path) -> Recording:
        rows = table.filter(np.asarray(table["episode_index"]) == episode["episode_index"])
        length, where = int(episode["length"]), f"{file}"
        if rows.num_rows != length or length < 2:
            raise DamagedError(f"{where}: episode {number}: expected {length} rows, found {rows.num_rows}")
        self._check_time(f"{where}: episode {number}", _column(where, rows, "timestamp"))
        actions = _column(where, rows, "action")
        states = _column(where, rows, STATE) if STATE in rows.column_names else None
        actions = actions[:, None] if actions.ndim == 1 else actions
        return Recording(self._frames(number, episode, rows, length), actions[:-1], states, where)

    def _check_time(self, where: str, seconds: NDArray[Any]) -> None:
        """DamagedError where rows are missing: a window over a gap would be a jump that no action made."""
        expected = 1.0 / float(self.info["fps"])
        off = np.abs(np.diff(seconds.astype(np.float64)) - expected)
        if (off > GAP_SHARE * expected).any():
            step = int(np.argmax(off > GAP_SHARE * expected))
            found = float(seconds[step + 1] - seconds[step])
            raise DamagedError(
                f"{where}, step {step}: {found:.3f} s to the next row, expected {expected:.3f}: frames are missing or "
                "the rate varies; record it at one rate, or cut the episode there"
            )

    def _frames(self, number: int, episode: dict[str, Any], rows: Any, length: int) -> Iterable[NDArray[np.uint8]]:
        if self.info["features"][self.camera]["dtype"] == "image":
            return [_picture(f"{self.path}: episode {number}", value) for value in rows[self.camera].to_pylist()]
        file = self._file("video_path", episode, f"videos/{self.camera}")
        begin = float(episode[f"videos/{self.camera}/from_timestamp"])
        # Half a frame early, so that rounding of the time cannot skip the first one.
        return read_video(file, max(0.0, begin - 0.5 / float(self.info["fps"])), length)

    def _file(self, template: str, episode: dict[str, Any], kind: str) -> Path:
        numbers = {part: int(episode[f"{kind}/{part}"]) for part in ("chunk_index", "file_index")}
        relative = Path(str(self.info[template]).format(video_key=self.camera, **numbers))
        file = self.path / relative
        if not file.resolve().is_relative_to(self.path.resolve()):
            raise DamagedError(f"{self.path / 'meta/info.json'}: {template}: leads out of the dataset")
        return file


def open_lerobot(path: Path, camera: str | None = None) -> LeRobot:
    """The dataset, with the named camera or the only one; UsageError or DamagedError says what is not as expected."""
    file = path / "meta" / "info.json"
    if not file.is_file():
        raise UsageError(f"{path}: not a LeRobot dataset (no meta/info.json)")
    try:
        info = json.loads(file.read_text())
        version, features = str(info["codebase_version"]), info["features"]
        cameras = [name for name, feature in features.items() if feature["dtype"] in {"video", "image"}]
        _ = (float(info["fps"]), info["data_path"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{file}: not the description of a dataset ({type(error).__name__}: {error})") from error
    if not version.startswith("v3"):
        raise UsageError(f"{file}: codebase_version {version}; v3 is read: convert it with LeRobot's own script")
    if "action" not in features:
        raise DamagedError(f"{file}: features: has no action; it has {', '.join(features)}")
    if camera is None and len(cameras) != 1:
        raise UsageError(f"{path}: has {len(cameras)} cameras ({', '.join(cameras)}); name one with `camera`")
    chosen = cameras[0] if camera is None else camera
    if chosen not in cameras:
        raise UsageError(f"{path}: no camera {chosen!r}; it has {', '.join(cameras) or 'none'}")
    return LeRobot(path, info, _read_episodes(path), chosen)


def _read_episodes(path: Path) -> list[dict[str, Any]]:
    files = sorted((path / "meta" / "episodes").glob("*/*.parquet"))
    if not files:
        raise DamagedError(f"{path / 'meta/episodes'}: no Parquet file is there")
    episodes = [episode for file in files for episode in _read_table(file).to_pylist()]
    lacking = [key for key in ("episode_index", "length", "data/chunk_index") if episodes and key not in episodes[0]]
    if lacking or not episodes:
        raise DamagedError(f"{files[0]}: has no column {lacking[0]!r}" if lacking else f"{files[0]}: no episode")
    return sorted(episodes, key=lambda episode: int(episode["episode_index"]))


def _read_table(file: Path) -> Any:
    with needs("lerobot", "a LeRobot dataset"):
        import pyarrow
        from pyarrow import parquet
    if not file.is_file():
        raise DamagedError(f"{file}: missing")
    try:
        return parquet.read_table(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise DamagedError(f"{file}: not a readable Parquet file ({str(error).splitlines()[0][:200]})") from error


def _column(where: str, rows: Any, name: str) -> NDArray[Any]:
    if name not in rows.column_names:
        raise DamagedError(f"{where}: has no column {name!r}; it has {', '.join(rows.column_names)}")
    values = rows[name].to_pylist()
    if any(value is None for value in values):
        raise DamagedError(f"{where}: {name}: row {values.index(None)} is empty")
    try:
        return np.asarray(values, np.float64)
    except (ValueError, TypeError) as error:
        raise DamagedError(f"{where}: {name}: expected as many numbers in every row ({error})") from error


def _picture(where: str, value: Any) -> NDArray[np.uint8]:
    try:
        return np.asarray(Image.open(io.BytesIO(value["bytes"])).convert("RGB"))
    except (OSError, TypeError, KeyError) as error:
        raise DamagedError(f"{where}: a frame cannot be decoded ({error})") from error
