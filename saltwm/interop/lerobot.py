"""LeRobot's dataset format v3: rows in Parquet, many episodes to a file, cameras as MP4, read without lerobot.

    meta/info.json                                  fps, features, path templates
    meta/episodes/chunk-000/file-000.parquet        of each episode: its rows, its files, its seconds of each video
    data/chunk-000/file-000.parquet                 a row per frame: action, observation.state, timestamp, ...
    videos/CAMERA/chunk-000/file-000.mp4

A row holds an observation and the action that follows it. The last action of an episode leads to no frame and is left
out.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saltwm.disk import durable, layout
from saltwm.envs.base import StateField
from saltwm.ground import budget
from saltwm.ground.errors import DamagedError, UsageError
from saltwm.ground.extras import needs
from saltwm.interop.parquet_footer import declared
from saltwm.interop.pictures import read_picture
from saltwm.interop.recordings import NUMBER_BYTES, Recording, choose_camera, distinct_names, numbers
from saltwm.interop.video import read_timed_video

STATE = "observation.state"
GAP_SHARE = 0.1
"""Share of a frame's time by which a row or a frame of a video may be off its place."""
PLACE = re.compile(r"\{video_key\}|\{(chunk|file)_index(:0?\d{1,2}d)?\}|[^{}]")
"""What a path template is made of; Python's own format would take any width and any attribute."""


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

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the robot's motors are called."""
        action = self.info["features"]["action"]
        names = action.get("names")
        listed = next(iter(names.values()), None) if isinstance(names, dict) else names
        if not isinstance(listed, list) or [len(listed)] != action.get("shape"):
            return ()
        return distinct_names(listed) if all(isinstance(name, str) for name in listed) else ()

    def recordings(self) -> Iterator[Recording]:
        """The episodes, one after another."""
        table, name = None, None
        for number, episode in enumerate(self.episodes):
            file = self._file("data_path", episode, "data")
            if file != name:
                table, name = _read_table(file), file
            yield self._recording(number, episode, table, file)

    def _recording(self, number: int, episode: dict[str, Any], table: Any, file: Path) -> Recording:
        where, length = f"{file}", int(self._of(episode, "length"))
        _require_column(where, table, "episode_index")
        rows = table.filter(np.asarray(table["episode_index"]) == self._of(episode, "episode_index"))
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
        seconds = seconds.astype(np.float64).reshape(len(seconds), -1)
        layout.check_finite(where, "timestamp", seconds)  # no gap would be found: NaN is not larger than anything
        off = np.abs(np.diff(seconds[:, 0]) - expected)
        if (off > GAP_SHARE * expected).any():
            step = int(np.argmax(off > GAP_SHARE * expected))
            found = float(seconds[step + 1, 0] - seconds[step, 0])
            raise DamagedError(
                f"{where}, step {step}: {found:.3f} s to the next row, expected {expected:.3f}: frames are missing or "
                "the rate varies; record it at one rate, or cut the episode there"
            )

    def _frames(self, number: int, episode: dict[str, Any], rows: Any, length: int) -> Iterable[NDArray[np.uint8]]:
        if self.info["features"][self.camera]["dtype"] == "image":
            return self._pictures(number, rows)
        file, apart = self._file("video_path", episode, f"videos/{self.camera}"), 1.0 / float(self.info["fps"])
        begin, end = (float(self._of(episode, f"videos/{self.camera}/{at}_timestamp")) for at in ("from", "to"))
        if (length - 0.5) * apart > end - begin:
            raise DamagedError(
                f"{file}: episode {number}: expected {length} frames, {length * apart:.3f} s, found from_timestamp "
                f"{begin:.3f} and to_timestamp {end:.3f} in meta/episodes: the last frames are of another episode"
            )
        return self._video(f"{file}: episode {number}", file, begin, length)

    def _video(self, where: str, file: Path, begin: float, length: int) -> Iterator[NDArray[np.uint8]]:
        """Frames of an episode from a file of many; DamagedError for one whose time is not that of its row."""
        apart = 1.0 / float(self.info["fps"])
        # Half a frame early, so that rounding of the time cannot skip the first one.
        frames = read_timed_video(file, max(0.0, begin - 0.5 * apart), length)
        for step, (seconds, frame) in enumerate(frames):
            expected = begin + step * apart
            if abs(seconds - expected) > GAP_SHARE * apart:
                raise DamagedError(
                    f"{where}, step {step}: expected a frame at {expected:.3f} s of the video, found one at "
                    f"{seconds:.3f}: frames are missing or the rate is not the fps of meta/info.json; encode it again"
                )
            yield frame

    def _pictures(self, number: int, rows: Any) -> Iterator[NDArray[np.uint8]]:
        """The pictures of an episode that are stored among its numbers."""
        _require_column(f"{self.path}: episode {number}", rows, self.camera)
        for step in range(rows.num_rows):
            value = rows[self.camera][step].as_py()
            encoded = value.get("bytes") if isinstance(value, dict) else value
            yield read_picture(f"{self.path}: episode {number}, step {step}", encoded)

    def _file(self, template: str, episode: dict[str, Any], kind: str) -> Path:
        where, text = self.path / "meta" / "info.json", self.info.get(template)
        if not isinstance(text, str) or PLACE.sub("", text):
            expected = "expected a path with {chunk_index} and {file_index}"
            raise DamagedError(f"{where}: {template}: {expected}, found {text!r:.80}")
        numbers = {part: int(self._of(episode, f"{kind}/{part}")) for part in ("chunk_index", "file_index")}
        name = text.format(video_key=self.camera, **numbers)
        file = self.path / name
        if "\0" in name or not file.resolve().is_relative_to(self.path.resolve()):
            raise DamagedError(f"{where}: {template}: leads out of the dataset")
        return file

    def _of(self, episode: dict[str, Any], key: str) -> Any:
        """A number that meta/episodes has of an episode; DamagedError where it has none."""
        value = episode.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            where = f"{self.path / 'meta/episodes'}: episode {episode.get('episode_index')}"
            raise DamagedError(f"{where}: {key}: expected a number, found {value!r:.80}")
        return value


def open_lerobot(path: Path, camera: str | None = None) -> LeRobot:
    """The dataset, with the named camera or the only one; UsageError or DamagedError says what is not as expected."""
    file = path / "meta" / "info.json"
    if not file.is_file():
        raise UsageError(f"{path}: not a LeRobot dataset (no meta/info.json)")
    try:
        info = json.loads(durable.read_text(durable.inside(path, file)))
        version, features = str(info["codebase_version"]), info["features"]
        cameras = [name for name, feature in features.items() if feature["dtype"] in {"video", "image"}]
        rate, states = float(info["fps"]), int(features.get(STATE, {"shape": [1]})["shape"][0])
        if not (0 < rate < np.inf and states > 0):
            raise ValueError(f"fps {rate}, {states} numbers in a state")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise DamagedError(f"{file}: not the description of a dataset ({type(error).__name__}: {error})") from error
    if not version.startswith("v3"):
        raise UsageError(f"{file}: codebase_version {version}; v3 is read: convert it with LeRobot's own script")
    if "action" not in features:
        raise DamagedError(f"{file}: features: has no action; it has {', '.join(features)}")
    return LeRobot(path, info, _read_episodes(path), choose_camera(path, cameras, camera))


def _read_episodes(path: Path) -> list[dict[str, Any]]:
    files = sorted((path / "meta" / "episodes").glob("*/*.parquet"))
    if not files:
        raise DamagedError(f"{path / 'meta/episodes'}: no Parquet file is there")
    episodes = [episode for file in files for episode in _numbers_of(path, file)]
    lacking = [key for key in ("episode_index", "length", "data/chunk_index") if episodes and key not in episodes[0]]
    if lacking or not episodes:
        raise DamagedError(f"{files[0]}: has no column {lacking[0]!r}" if lacking else f"{files[0]}: no episode")
    try:
        return sorted(episodes, key=lambda episode: int(episode["episode_index"]))
    except (ValueError, TypeError) as error:
        raise DamagedError(f"{files[0]}: episode_index: expected a number for each episode ({error})") from error


def _read_table(file: Path) -> Any:
    with needs("lerobot", "a LeRobot dataset"):
        import pyarrow
        from pyarrow import parquet
    if not file.is_file():
        raise DamagedError(f"{file}: missing")
    found = declared(file)
    # Repeated values take no room in the file, so its size says nothing.
    size = NUMBER_BYTES * found.values + found.packed_bytes + found.wide_bytes
    budget.require(file, f"{found.rows} rows with {found.values} values", size)
    try:
        with parquet.ParquetFile(file) as opened:
            texts = [column.path for column in opened.schema if column.physical_type == "BYTE_ARRAY"]
        with parquet.ParquetFile(file, read_dictionary=texts) as opened:  # a text that is repeated is held once
            return opened.read()
    except (pyarrow.ArrowException, OSError, ValueError) as error:  # ValueError: names that are no text
        raise DamagedError(f"{file}: not a readable Parquet file ({str(error).splitlines()[0][:200]})") from error


def _numbers_of(path: Path, file: Path) -> list[dict[str, Any]]:
    """The rows of a file, of the columns that hold a number in each row, or nothing."""
    table = _read_table(durable.inside(path, file))
    names = [field.name for field in table.schema if _is_number(field.type) or str(field.type) == "null"]
    rows: list[dict[str, Any]] = table.select(names).to_pylist()
    return rows


def _is_number(kind: Any) -> bool:
    return str(kind).startswith(("int", "uint", "halffloat", "float", "double", "bool"))


def _require_column(where: str, rows: Any, name: str) -> None:
    if name not in rows.column_names:
        raise DamagedError(f"{where}: has no column {name!r}; it has {', '.join(rows.column_names)}")


def _column(where: str, rows: Any, name: str) -> NDArray[Any]:
    _require_column(where, rows, name)
    kind = rows.schema.field(name).type
    if not _is_number(getattr(kind, "value_type", kind)):
        raise DamagedError(f"{where}: {name}: expected numbers, found {kind}")
    return numbers(where, name, rows[name].to_pylist())
