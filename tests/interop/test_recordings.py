"""Recordings without a simulator: written by programs, or brought in from files that other libraries wrote."""

import csv
import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hostile_files import edit_json
from numpy.typing import NDArray
from PIL import Image

from saltwm import write_dataset
from saltwm.data.fields import action_names_of, fields_of
from saltwm.disk.dataset import Dataset
from saltwm.envs.base import StateField
from saltwm.ground.errors import DamagedError, MismatchError, NonFiniteError, SaltError, ShapeError, UsageError
from saltwm.ground.frames import square
from saltwm.ground.rng import stream
from saltwm.interop.importing import format_of, import_recordings
from saltwm.interop.recordings import Recording
from saltwm.interop.video import read_video
from saltwm.jobs.data import DataImport
from saltwm.jobs.inspection import look_at, stats

FPS = 10
SHAPE = (48, 64)
"""Height and width: oblong, as cameras are."""


def episode(number: int, steps: int = 12) -> Recording:
    """A grey square that actions push to the right and down: codecs change such pictures little."""
    rng = stream(number, "recording")
    actions = rng.uniform(-1, 1, (steps, 2)).astype(np.float32)
    places = np.array([24.0, 20.0]) + np.concatenate([np.zeros((1, 2)), np.cumsum(2 * actions, axis=0)])
    return Recording(np.stack([picture(place) for place in places]), actions, places)


def picture(place: NDArray[np.float64]) -> NDArray[np.uint8]:
    frame = np.full((*SHAPE, 3), 40, np.uint8)
    x, y = np.clip(place, 0, 30).astype(int)
    frame[y : y + 16, x : x + 16] = 200
    return frame


EPISODES = [episode(number, steps) for number, steps in enumerate((12, 15, 9))]


def check_same(dataset: Dataset, tolerance: float = 0.0, states: bool = True) -> None:
    """The dataset holds EPISODES; frames may differ by what a codec loses, on average."""
    assert dataset.lengths.tolist() == [len(recording.actions) for recording in EPISODES]
    for number, recording in enumerate(EPISODES):
        np.testing.assert_array_equal(dataset.actions(number), recording.actions)
        if states:
            np.testing.assert_allclose(dataset.states(number), recording.states, rtol=1e-6)
        steps = np.arange(len(recording.actions) + 1)
        found = dataset.read_frames(np.full(len(steps), number), steps).astype(float)
        wanted = np.stack([square("", frame, dataset.world.image_size) for frame in recording.frames]).astype(float)
        assert np.abs(found - wanted).mean(axis=(1, 2, 3)).max() <= tolerance


# --- written by a program --------------------------------------------------------------------------------------------


def test_episodes_of_a_program_become_a_dataset(tmp_path: Path) -> None:
    fields = (StateField("place", 0, 2, "px"),)
    dataset = write_dataset(tmp_path / "data", iter(EPISODES), name="my-robot", fields=fields, image_size=32)
    check_same(dataset)
    assert dataset.world.environment == "my-robot"
    assert fields_of(dataset) == fields
    Dataset.open(tmp_path / "data", verify="full")


@pytest.mark.parametrize("size", [32, 16])
def test_a_program_may_draw_each_frame_into_the_array_of_the_one_before(tmp_path: Path, size: int) -> None:
    def frames(shade: int) -> Iterator[NDArray[np.uint8]]:
        buffer = np.zeros((32, 32, 3), np.uint8)
        for step in range(7):
            buffer[:] = shade + step
            yield buffer

    episodes = [{"frames": frames(shade), "actions": np.eye(6)} for shade in (0, 100)]
    dataset = write_dataset(tmp_path / "data", episodes, name="my-robot", image_size=size)
    shades = dataset.read_frames(np.repeat([0, 1], 7), np.tile(np.arange(7), 2))[:, 0, 0, 0]
    np.testing.assert_array_equal(shades, [*range(7), *range(100, 107)])


def test_many_parts_and_sparse_frames_hold_the_same_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saltwm.interop.recordings.PART_STEPS", 12)
    episodes = [{"frames": e.frames, "actions": e.actions} for e in EPISODES]
    dataset = write_dataset(tmp_path / "data", episodes, name="my-robot", image_size=16, frame_every=3)
    assert dataset.recipe.parts == 3
    np.testing.assert_array_equal(dataset.actions(2), EPISODES[2].actions)
    np.testing.assert_array_equal(dataset.states(2)[:, 0], np.arange(10))
    assert dataset.read_frames(np.array([2]), np.array([9])).shape == (1, 16, 16, 3)


def test_statistics_of_recordings_need_no_simulator(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", EPISODES, name="my-robot", image_size=16)
    found = stats(look_at(dataset, 5))
    assert found.solved_share is None
    assert found.fields[0].name == "state"


def changed(**fields: Any) -> Recording:
    recording = EPISODES[1]
    return Recording(**{"frames": recording.frames, "actions": recording.actions, "states": recording.states} | fields)


def with_nan(values: Any) -> Any:
    values = np.array(values)
    values[4, 1] = np.nan
    return values


@pytest.mark.parametrize(
    ("second", "error", "said"),
    [
        (changed(actions=with_nan(EPISODES[1].actions)), NonFiniteError, "episode 1, step 4: action is nan"),
        (changed(states=with_nan(EPISODES[1].states)), NonFiniteError, "episode 1, step 4: state is nan"),
        (
            changed(actions=1e300 * np.eye(15, 2, -3)),
            NonFiniteError,
            r"episode 1, step 3: action is 1e\+300 in dimension 0, too large for float32",
        ),
        (changed(frames=EPISODES[1].frames[:-1]), ShapeError, "episode 1: frame: expected 16, one more than actions"),
        (changed(frames=[frame / 255 for frame in EPISODES[1].frames]), ShapeError, "step 0: frame: expected uint8"),
        (changed(frames=np.moveaxis(EPISODES[1].frames, 3, 1)), ShapeError, "channels come last"),
        (changed(actions=EPISODES[1].actions[:, 0]), ShapeError, r"episode 1: action: expected \[T, A\]"),
        (changed(actions=EPISODES[1].actions[:, :1]), ShapeError, "episode 1: action: expected shape"),
        (changed(states=EPISODES[1].states[:3]), ShapeError, r"episode 1: state: expected \[16, S\]"),
        ({"frames": [], "action": []}, UsageError, "a dict with frames, actions"),
        (changed(actions=[[1], [1, 2]]), ShapeError, "episode 1: action: expected as many numbers in every row"),
        (changed(states=[[1], [1, 2]]), ShapeError, "episode 1: state: expected as many numbers in every row"),
    ],
)
def test_a_bad_recording_is_refused_by_name_and_leaves_nothing(
    tmp_path: Path, second: Any, error: type[SaltError], said: str
) -> None:
    with pytest.raises(error, match=said):
        write_dataset(tmp_path / "data", [EPISODES[0], second], name="my-robot", image_size=16)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [OSError("camera gone"), ZeroDivisionError(), KeyboardInterrupt(), SystemExit(1)])
def test_a_program_that_fails_between_two_episodes_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr("saltwm.interop.recordings.PART_STEPS", 12)  # the first part is written by then

    def episodes() -> Any:
        yield EPISODES[0]
        raise error

    with pytest.raises(type(error)):
        write_dataset(tmp_path / "data", episodes(), name="my-robot", image_size=16)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["two-room", "My Robot", ""])
def test_a_name_that_would_mislead_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        write_dataset(tmp_path / "data", EPISODES, name=name)
    with pytest.raises(UsageError, match="no episode"):
        write_dataset(tmp_path / "data", [], name="robot")
    assert not list(tmp_path.iterdir())


# --- LeRobot ---------------------------------------------------------------------------------------------------------


def write_video(file: Path, frames: NDArray[np.uint8], fps: float = FPS) -> None:
    import imageio_ffmpeg

    file.parent.mkdir(parents=True, exist_ok=True)
    size = (frames.shape[2], frames.shape[1])
    options = ["-crf", "5", "-g", "2"]
    writer = imageio_ffmpeg.write_frames(str(file), size, fps=fps, macro_block_size=1, output_params=options)
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame))
    writer.close()


def write_lerobot(path: Path, as_images: bool = False, **info: Any) -> Path:
    """LeRobot's v3 layout, by its documentation (lerobot itself needs torchvision): two episodes in the first files."""
    import pyarrow
    from pyarrow import parquet

    camera, rows, episodes = "observation.images.top", [], []
    for number, recording in enumerate(EPISODES):
        count = len(recording.actions) + 1
        actions = np.concatenate([recording.actions, recording.actions[-1:]])  # the last one leads nowhere
        before = sum(len(other.actions) + 1 for other in EPISODES[:number] if number < 2)
        episodes.append({
            "episode_index": number, "length": count, "tasks": ["push"],
            "data/chunk_index": 0, "data/file_index": int(number == 2),
            f"videos/{camera}/chunk_index": 0, f"videos/{camera}/file_index": int(number == 2),
            f"videos/{camera}/from_timestamp": before / FPS, f"videos/{camera}/to_timestamp": (before + count) / FPS,
        })  # fmt: skip
        for step in range(count):
            row = {
                "episode_index": number, "frame_index": step, "index": step, "task_index": 0,
                "timestamp": np.float32(step / FPS), "action": actions[step].tolist(),
                "observation.state": recording.states[step].astype(np.float32).tolist(),
            }  # fmt: skip
            rows.append(row | ({camera: {"bytes": encoded(recording.frames[step]), "path": None}} if as_images else {}))
    tables = {
        "meta/episodes/chunk-000/file-000.parquet": episodes,
        "data/chunk-000/file-000.parquet": [row for row in rows if row["episode_index"] < 2],
        "data/chunk-000/file-001.parquet": [row for row in rows if row["episode_index"] == 2],
    }
    for name, content in tables.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.Table.from_pylist(content), path / name)
    kind = "image" if as_images else "video"
    features = {
        camera: {"dtype": kind, "shape": [*SHAPE, 3], "names": ["height", "width", "channels"]},
        "observation.state": {"dtype": "float32", "shape": [2], "names": ["x", "y"]},
        "action": {"dtype": "float32", "shape": [2], "names": ["x", "y"]},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    }
    described = {
        "codebase_version": "v3.0", "fps": FPS, "total_episodes": 3, "features": features,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }  # fmt: skip
    (path / "meta" / "info.json").write_text(json.dumps(described | info))
    if not as_images:
        videos = path / "videos" / camera / "chunk-000"
        write_video(videos / "file-000.mp4", np.concatenate([EPISODES[0].frames, EPISODES[1].frames]))
        write_video(videos / "file-001.mp4", np.asarray(EPISODES[2].frames))
    return path


def encoded(frame: NDArray[np.uint8], kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, kind, **({"quality": 98} if kind == "JPEG" else {}))
    return buffer.getvalue()


def test_a_lerobot_dataset_with_video_is_brought_in(tmp_path: Path) -> None:
    source = write_lerobot(tmp_path / "My Robot")
    assert format_of(source) == "lerobot"
    dataset = DataImport(source, tmp_path / "data", image_size=64).do()
    check_same(dataset, tolerance=3.0)  # of 255: what H.264 loses at this quality
    assert dataset.world.environment == "my-robot"
    assert fields_of(dataset) == (StateField("robot_state", 0, 2),)


def test_a_lerobot_dataset_with_images_is_brought_in_exactly(tmp_path: Path) -> None:
    dataset = import_recordings(write_lerobot(tmp_path / "robot", as_images=True), tmp_path / "data", image_size=32)
    check_same(dataset)


@pytest.mark.parametrize(
    ("harm", "error", "said"),
    [
        ({"codebase_version": "v2.1"}, UsageError, "codebase_version v2.1; v3 is read"),
        ({"fps": 20}, DamagedError, r"episode 0, step 0: 0.100 s to the next row, expected 0.050"),
        ({"data_path": "../{chunk_index}{file_index}.parquet"}, DamagedError, "leads out of the dataset"),
        ({"features": {}}, DamagedError, "features: has no action"),
    ],
)
def test_a_lerobot_description_that_is_wrong_is_refused(
    tmp_path: Path, harm: dict[str, Any], error: type[SaltError], said: str
) -> None:
    with pytest.raises(error, match=said):
        import_recordings(write_lerobot(tmp_path / "robot", as_images=True, **harm), tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_lerobot_video_that_is_cut_or_no_video_is_refused(tmp_path: Path) -> None:
    source = write_lerobot(tmp_path / "robot")
    video = next((source / "videos").rglob("file-001.mp4"))
    write_video(video, np.asarray(EPISODES[2].frames)[:-3])
    with pytest.raises(ShapeError, match=r"episode 2: frame: expected 10, one more than actions, found 7"):
        import_recordings(source, tmp_path / "data")
    video.write_bytes(b"not a video" * 100)
    with pytest.raises(DamagedError, match=r"file-001\.mp4: cannot be decoded"):
        import_recordings(source, tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("fps", "times", "said"),
    [
        (2 * FPS, None, r"file-000\.mp4: episode 0, step 1: expected a frame at 0\.100 s .*, found one at 0\.050"),
        (FPS, "gte(N,5)", r"file-000\.mp4: episode 0, step 5: expected a frame at 0\.500 s .*, found one at 0\.800"),
        (FPS, "gte(N,20)", r"file-000\.mp4: episode 1, step 7: expected a frame at 2\.000 s .*, found one at 2\.300"),
    ],
)
def test_a_lerobot_video_whose_frames_have_other_times_is_refused(
    tmp_path: Path, fps: float, times: str | None, said: str
) -> None:
    """At another rate, or with frames missing whose times are kept: the frames would stand beside other rows."""
    import imageio_ffmpeg

    source = write_lerobot(tmp_path / "robot")
    video = next((source / "videos").rglob("file-000.mp4"))
    write_video(video, np.concatenate([EPISODES[0].frames, EPISODES[1].frames]), fps)
    if times is not None:
        command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(video)]
        command += ["-vf", f"setpts='PTS+{times}*0.3/TB'", "-fps_mode", "passthrough", str(tmp_path / "later.mp4")]
        subprocess.run(command, check=True)
        (tmp_path / "later.mp4").replace(video)
    with pytest.raises(DamagedError, match=said):
        import_recordings(source, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_lerobot_episode_that_is_longer_than_its_piece_of_the_video_is_refused(tmp_path: Path) -> None:
    from pyarrow import parquet

    source = write_lerobot(tmp_path / "robot")
    file = source / "meta/episodes/chunk-000/file-000.parquet"
    table = parquet.read_table(file)
    at = table.column_names.index("videos/observation.images.top/to_timestamp")
    parquet.write_table(table.set_column(at, table.column_names[at], [[1.0, 2.9, 1.0]]), file)
    with pytest.raises(DamagedError, match=r"episode 0: expected 13 frames, 1\.300 s, found .* to_timestamp 1\.000"):
        import_recordings(source, tmp_path / "data")


def test_a_lerobot_row_without_a_time_is_refused(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    source = write_lerobot(tmp_path / "robot", as_images=True)
    file = source / "data/chunk-000/file-000.parquet"
    table = parquet.read_table(file)
    seconds = [float("nan") if row == 4 else second for row, second in enumerate(table["timestamp"].to_pylist())]
    column = pyarrow.array(seconds, pyarrow.float32())
    parquet.write_table(table.set_column(table.column_names.index("timestamp"), "timestamp", column), file)
    with pytest.raises(NonFiniteError, match="episode 0, step 4: timestamp is nan"):
        import_recordings(source, tmp_path / "data")


# --- Lance and Minari, written by their own libraries ----------------------------------------------------------------


def write_lance(path: Path, drop: int | None = None, kind: str = "PNG") -> Path:
    """As stable-worldmodel lays a table out: a row per frame, pictures as encoded bytes."""
    lance = pytest.importorskip("lance")
    import pyarrow

    rows = [
        {
            "episode_idx": number, "step_idx": step, "pixels": encoded(recording.frames[step], kind),
            "action": np.append(recording.actions, [[0, 0]], axis=0)[step].tolist(),
            "proprio": recording.states[step].tolist(),
        }
        for number, recording in enumerate(EPISODES)
        for step in range(len(recording.actions) + 1)
    ]  # fmt: skip
    if drop is not None:
        del rows[drop]
    pair = pyarrow.list_(pyarrow.float32(), 2)
    schema = pyarrow.schema([
        ("episode_idx", pyarrow.int32()), ("step_idx", pyarrow.int32()), ("pixels", pyarrow.binary()),
        ("action", pair), ("proprio", pair),
    ])  # fmt: skip
    lance.write_dataset(pyarrow.Table.from_pylist(rows, schema), str(path))
    return path


def test_a_lance_table_is_brought_in(tmp_path: Path) -> None:
    write_lance(tmp_path / "tables" / "pushes.lance")
    dataset = import_recordings(tmp_path / "tables", tmp_path / "data", name="pushes", image_size=32)
    check_same(dataset)
    assert fields_of(dataset) == (StateField("proprio", 0, 2),)


def test_a_lance_table_of_lists_of_any_length_is_refused_with_what_to_write(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    import pyarrow

    fixed = lance.dataset(str(write_lance(tmp_path / "fixed.lance"))).to_table()
    at = fixed.schema.get_field_index("proprio")
    loose = fixed.set_column(at, "proprio", fixed["proprio"].cast(pyarrow.list_(pyarrow.float32())))
    lance.write_dataset(loose, str(tmp_path / "loose.lance"))
    wanted = r"proprio: expected lists of one size, pyarrow.list_\(.+, N\), found list"
    with pytest.raises(UsageError, match=wanted):
        import_recordings(tmp_path / "loose.lance", tmp_path / "data")


def test_a_single_file_that_is_no_benchmark_file_is_told_what_an_import_takes(tmp_path: Path) -> None:
    for name, said in (("take.mp4", "such as NAME.mp4 beside NAME.csv"), ("own.h5", "calls saltwm.write_dataset")):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(UsageError, match=said):
            DataImport(tmp_path / name, tmp_path / "data").do()


def test_a_lance_table_with_a_gap_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match="episode 0: step_idx: expected 4, found a gap"):
        import_recordings(write_lance(tmp_path / "pushes.lance", drop=4), tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_minari_dataset_is_brought_in(tmp_path: Path) -> None:
    """Minari's own storage writes it; its DataCollector would need jax."""
    storage_of = pytest.importorskip("minari.dataset.minari_storage")
    from minari.data_collector import EpisodeBuffer

    observations = gymnasium.spaces.Dict(
        {
            "camera": gymnasium.spaces.Box(0, 255, (*SHAPE, 3), np.uint8),
            "place": gymnasium.spaces.Box(-99, 99, (2,), np.float64),
        }
    )
    source = tmp_path / "minari"
    (source / "data").mkdir(parents=True)
    actions = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    storage = storage_of.MinariStorage.new(source / "data", observations, actions, jpeg_encoding=False)
    for number, recording in enumerate(EPISODES):
        ends = [False] * (len(recording.actions) - 1) + [True]
        seen = {"camera": list(recording.frames), "place": list(recording.states)}
        storage.update_episodes(
            [EpisodeBuffer(number, None, None, seen, list(recording.actions), [0.0] * len(ends), ends, ends, None)]
        )
    storage.update_metadata({"dataset_id": "pushes/test-v0", "minari_version": "0.5.4"})
    dataset = import_recordings(source, tmp_path / "data", name="pushes", image_size=32)
    check_same(dataset)
    assert fields_of(dataset) == (StateField("place", 0, 2),)


# --- folders ---------------------------------------------------------------------------------------------------------


def write_folder(path: Path, as_video: bool) -> Path:
    path.mkdir()
    for number, recording in enumerate(EPISODES):
        take = path / f"take-{number}"
        if as_video:
            write_video(take.with_suffix(".mp4"), np.asarray(recording.frames))
        else:
            take.mkdir()
            for step, frame in enumerate(recording.frames):
                (take / f"{step:04d}.png").write_bytes(encoded(frame))
        with (path / f"take-{number}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["time", "action_x", "action_y", "state_x", "state_y", "remark"])
            for step, place in enumerate(recording.states):
                last = step == len(recording.actions)
                action = ["", ""] if last else [repr(float(value)) for value in recording.actions[step]]
                table.writerow([step / FPS, *action, *map(repr, place.tolist()), "x"])
    return path


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["left gripper", "wrist"], ("left_gripper", "wrist")),
        ({"motors": ["a", "b"]}, ("a", "b")),
        (None, ()),
        (["a"], ()),
        (["a", "a"], ()),
        ([["a"], {"b": 1}], ()),
        ("ab", ()),
        ({}, ()),
        (7, ()),
    ],
)
def test_a_lerobot_motor_keeps_its_name_if_all_have_one(tmp_path: Path, names: Any, found: tuple[str, ...]) -> None:
    source = write_lerobot(tmp_path / "robot", as_images=True)
    edit_json(source / "meta/info.json", lambda info: info["features"]["action"].update(names=names))
    assert action_names_of(import_recordings(source, tmp_path / "data", image_size=16)) == found


@pytest.mark.parametrize("as_video", [True, False])
def test_a_folder_with_tables_is_brought_in(tmp_path: Path, as_video: bool) -> None:
    source = write_folder(tmp_path / "takes", as_video)
    dataset = import_recordings(source, tmp_path / "data", image_size=64)
    check_same(dataset, tolerance=3.0 if as_video else 0.0)
    assert [field.name for field in fields_of(dataset)] == ["x", "y"]
    assert action_names_of(dataset) == ("x", "y")


@pytest.mark.parametrize(("degrees", "turns"), [(90, 1), (180, 2), (270, 3)])
def test_a_video_of_a_phone_comes_in_upright(tmp_path: Path, degrees: int, turns: int) -> None:
    """Phones store the picture of the sensor, and by how much a player turns it, counterclockwise."""
    import imageio_ffmpeg

    frames = np.asarray(EPISODES[0].frames)
    write_video(tmp_path / "sensor.mp4", frames)
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-display_rotation", str(degrees)]
    command += ["-i", str(tmp_path / "sensor.mp4"), "-c", "copy", str(tmp_path / "turned.mp4")]
    subprocess.run(command, check=True)
    found = np.stack(list(read_video(tmp_path / "turned.mp4"))).astype(float)
    wanted = np.rot90(frames, turns, axes=(1, 2)).astype(float)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).mean() <= 3.0  # of 255: what H.264 loses at this quality


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("action_x", "force_x", "columns: expected action_x, action_y as in the first take, found action_y"),
        ("state_y", "y", "columns: expected state_x, state_y as in the first take, found state_x"),
        (
            "remark",
            "Action_X",
            "columns: expected action_x, action_y as in the first take, found action_x, action_y, Action_X",
        ),
        ("action_x,action_y", "force_x,force_y", "has no column that begins with action"),
        ("0.3,", "0.9,", r"take-1.csv: row 4: 0.700 s to the next row, usually 0.100"),
        ("0.3,", "nan,", r"take-1.csv: row 5: time is nan; give every row its time"),
        ("0.2,", "0.2,much", r"take-1.csv: row 4: action_x is 'much.*', not a number"),
    ],
)
def test_a_table_that_is_wrong_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    source = write_folder(tmp_path / "takes", as_video=False)
    table = source / "take-1.csv"
    begins = "\n" if old[0].isdigit() else ""
    table.write_text(table.read_text().replace(begins + old, begins + new, 1))
    with pytest.raises((DamagedError, MismatchError, NonFiniteError), match=said):
        import_recordings(source, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def write_take(folder: Path, name: str, header: list[str], rows: list[list[float]], pictures: list[str]) -> None:
    """A take whose picture number n is of brightness n."""
    (folder / name).mkdir(parents=True)
    for number, picture_name in enumerate(pictures):
        (folder / name / picture_name).write_bytes(encoded(np.full((8, 8, 3), number, np.uint8)))
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8-sig") as file:  # as spreadsheets write it
        csv.writer(file).writerows([header, *rows])


def numbered(pattern: str, count: int = 4) -> list[str]:
    return [pattern.format(number) for number in range(count)]


def test_pictures_and_takes_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    source, data = tmp_path / "takes", tmp_path / "data"
    for take in (1, 2):
        write_take(
            source, f"take-{take}", ["action"], [[take + n / 100] for n in range(12)], numbered("frame_{}.png", 12)
        )
    dataset = import_recordings(source, data, image_size=8)
    shown = dataset.read_frames(np.zeros(12, np.int64), np.arange(12))
    assert shown[:, 0, 0, 0].tolist() == list(range(12))
    write_take(source, "take-10", ["action"], [[10 + n / 100] for n in range(12)], numbered("frame_{}.png", 12))
    grown = import_recordings(source, data, image_size=8)
    assert [int(grown.actions(number)[0, 0]) for number in range(3)] == [1, 2, 10]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ["1.png", "01.png", "2.png", "3.png"],
            r"\d\.png: may come before or after 0?1\.png; expected numbers of as many",
        ),
        (["1.png", "1.jpg", "2.png", "3.png"], r"1\.\w+: may come before or after 1\.\w+; expected numbers of as many"),
        (["0.9.png", "0.10.png", "0.11.png", "0.12.png"], r"0\.9\.png: may come before or after 0\.10\.png"),
    ],
)
def test_names_that_leave_the_order_open_are_refused(tmp_path: Path, names: list[str], said: str) -> None:
    write_take(tmp_path / "takes", "take-1", ["action"], [[1]] * 4, names)
    with pytest.raises(DamagedError, match=said):
        import_recordings(tmp_path / "takes", tmp_path / "data", image_size=8)
    assert not (tmp_path / "data").exists()


def test_two_takes_of_one_number_are_refused(tmp_path: Path) -> None:
    for name in ("take-1", "take-01"):
        write_take(tmp_path / "takes", name, ["action"], [[1]] * 4, numbered("{}.png"))
    with pytest.raises(DamagedError, match=r"take-0?1: may come before or after take-0?1;"):
        import_recordings(tmp_path / "takes", tmp_path / "data", image_size=8)


def test_columns_go_by_their_names_whatever_their_order(tmp_path: Path) -> None:
    source = tmp_path / "takes"
    write_take(source, "t1", ["action_x", "action_y", "state_a", "state_b"], [[1, 2, 10, 20]] * 4, numbered("{}.png"))
    write_take(source, "t2", ["state_b", "Action_Y", "action_x", "state_a"], [[20, 2, 1, 10]] * 4, numbered("{}.png"))
    dataset = import_recordings(source, tmp_path / "data", image_size=8)
    for number in range(2):
        assert dataset.actions(number)[0].tolist() == [1, 2]
        assert dataset.states(number)[0].tolist() == [10, 20]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    write_take(tmp_path / "takes", "t1", ["action_x", "Action_x"], [[1, 2]] * 4, numbered("{}.png"))
    with pytest.raises(DamagedError, match=r"t1\.csv: two columns are called action_x; give each a name"):
        import_recordings(tmp_path / "takes", tmp_path / "data", image_size=8)


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (["state_x (m)", "state_y, raw"], ["x_(m)", "y__raw"]),
        (["State_a", "STATE_b"], ["a", "b"]),
    ],
)
def test_state_columns_of_any_name_can_be_read_again(tmp_path: Path, columns: list[str], names: list[str]) -> None:
    write_take(tmp_path / "takes", "t1", ["Action_x", *columns], [[1, 10, 3]] * 4, numbered("{}.png"))
    dataset = import_recordings(tmp_path / "takes", tmp_path / "data", image_size=8)
    assert [field.name for field in fields_of(dataset)] == names
    assert dataset.states(0)[0].tolist() == [10, 3]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ((StateField("x (m)", 0, 2),), r"state field 'x \(m\)': expected a name without spaces and commas"),
        ((StateField("", 0, 2),), "state field '': expected a name"),
        ((StateField("x", 0, 2, "m, s"),), "state field 'x': unit: expected no comma, found 'm, s'"),
        ((StateField("x", 1, 2),), "state field 'x': expected its numbers from 0 on, found 1 to 2"),
        (
            (StateField("x", 0, 0), StateField("y", 0, 2)),
            "state field 'x': expected its numbers from 0 on, found 0 to 0",
        ),
    ],
)
def test_fields_that_could_not_be_read_again_are_refused_before_anything_is_written(
    tmp_path: Path, fields: tuple[StateField, ...], said: str
) -> None:
    def never() -> Any:
        raise AssertionError("an episode was asked for")
        yield

    with pytest.raises(UsageError, match=said):
        write_dataset(tmp_path / "data", never(), name="my-robot", fields=fields)


def test_what_holds_no_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither videos"):
        import_recordings(tmp_path, tmp_path / "data")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UsageError, match=r"expected a benchmark file .* or the folder that holds recordings"):
        DataImport(tmp_path / "notes.txt", tmp_path / "data").do()
    with pytest.raises(UsageError, match="expected a file ending in"):
        DataImport(tmp_path / "notes.txt", tmp_path / "data", "two-room").do()
    (tmp_path / "notes.h5").write_text("hello")
    with pytest.raises(DamagedError, match="not a readable HDF5 file"):
        DataImport(tmp_path / "notes.h5", tmp_path / "data", "two-room").do()
    assert not (tmp_path / "data").exists()
