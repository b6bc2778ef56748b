"""P25 and P27 for recordings: what they declare is compared with the budget, and nothing outside of them is read."""

import json
import os
import re
import struct
import subprocess
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from interop.test_recordings import EPISODES, encoded, write_folder, write_lance, write_lerobot, write_video
from PIL import Image
from promises.test_sizes_are_not_believed import Cheap

from saltwm.ground import budget
from saltwm.ground.errors import DamagedError, SaltError, ShapeError
from saltwm.ground.frames import square
from saltwm.interop.importing import import_recordings
from saltwm.interop.minari_data import MinariData, open_minari
from saltwm.interop.pictures import read_picture
from saltwm.interop.recordings import Recording, write_dataset
from saltwm.interop.video import read_video


def refused(source: Path, said: str, error: type[SaltError] = DamagedError, **options: Any) -> None:
    """Within little time and memory, in one line, with nothing left."""
    out = source.parent / "out"
    with Cheap(), pytest.raises(error, match=said) as refusal:
        import_recordings(source, out, **options)
    assert "\n" not in str(refusal.value)
    assert not out.exists()


def png(width: int, height: int) -> bytes:
    """The header of a PNG of this size, and hardly anything after it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(budget.VARIABLE, "0.001")


# --- pictures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ((12_000, 10_000), r"a picture of 12000 x 10000 pixels would take .* set SALTWM_BUDGET_GB"),
        ((60_000, 60_000), "cannot be decoded as a picture"),  # Pillow itself looks no farther
        ((2**31 - 1, 2**31 - 1), "cannot be decoded as a picture"),
    ],
)
def test_a_picture_that_declares_too_much_is_refused_before_it_is_decoded(
    tmp_path: Path, size: tuple[int, int], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(budget.VARIABLE, "0.3")
    source = write_folder(tmp_path / "takes", as_video=False)
    (source / "take-1" / "0003.png").write_bytes(png(*size))
    refused(source, rf"0003\.png: {said}")


def test_a_strip_of_a_picture_is_not_made_square_beyond_the_budget() -> None:
    with (
        Cheap(),
        pytest.raises(DamagedError, match=r"here: a frame of 60000 x 1 pixels made square would take 10\.1 GB"),
    ):
        square("here", np.zeros((1, 60_000, 3), np.uint8), 64)
    assert square("here", np.zeros((1, 60_000, 3), np.uint8), 64, "crop").shape == (64, 64, 3)


def test_only_png_and_jpeg_are_decoded(tmp_path: Path) -> None:
    """Pillow tells a file by its content, and its decoder of EPS starts a program."""
    assert read_picture("x", encoded(np.zeros((4, 5, 3), np.uint8), "JPEG")).shape == (4, 5, 3)
    for kind, options in (("EPS", {}), ("TIFF", {}), ("GIF", {})):
        file = tmp_path / "picture.png"
        Image.new("RGB", (4, 4)).save(file, kind, **options)
        with pytest.raises(DamagedError, match=r"picture\.png: cannot be decoded as a picture"):
            read_picture(str(file), file)
    for value in (None, {}, b"", 7):
        with pytest.raises(DamagedError, match="x: cannot be decoded as a picture"):
            read_picture("x", value)


def test_a_picture_of_16_bits_is_refused_and_not_made_white(tmp_path: Path) -> None:
    """Depth and infrared have such; those of 16 bits a colour lose the lower eight and nothing else."""
    file = tmp_path / "depth.png"
    Image.fromarray(np.full((4, 5), 9000, np.uint16)).save(file)
    with pytest.raises(DamagedError, match=r"depth\.png: expected a picture of 8 bits, found Pillow's mode I;16"):
        read_picture(str(file), file)
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
        Image.new(mode, (5, 4)).save(file)
        assert read_picture(str(file), file).shape == (4, 5, 3)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("name", "said"),
    [("take-1/0003.png", "is a pipe or a device"), ("take-1.csv", "its actions are missing; expected them in take-1")],
)
def test_a_pipe_among_the_files_is_not_waited_for(tmp_path: Path, name: str, said: str) -> None:
    source = write_folder(tmp_path / "takes", as_video=False)
    (source / name).unlink()
    os.mkfifo(source / name)
    refused(source, said)


# --- links -----------------------------------------------------------------------------------------------------------


def move_out(file: Path) -> None:
    """Elsewhere, with a link to it in its place."""
    elsewhere = file.parents[len(file.parts) - 1 - file.parts.index("source")] / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    file.rename(elsewhere / file.name)
    file.symlink_to(elsewhere / file.name)


@pytest.mark.parametrize("name", ["take-1/0003.png", "take-1", "take-1.csv"])
def test_a_link_out_of_a_folder_of_takes_is_refused(tmp_path: Path, name: str) -> None:
    source = write_folder(tmp_path / "source", as_video=False)
    move_out(source / name)
    refused(source, rf"{name}: leads out of .*source, and nothing outside is read; put the file itself there")


def test_a_link_to_a_video_elsewhere_is_refused(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "source", as_video=True)
    move_out(source / "take-1.mp4")
    refused(source, r"take-1\.mp4: leads out of .*source")


@pytest.mark.parametrize(
    "name", ["meta/info.json", "meta/episodes/chunk-000/file-000.parquet", "meta/episodes/chunk-000", "meta"]
)
def test_a_link_out_of_a_lerobot_dataset_is_refused(tmp_path: Path, name: str) -> None:
    source = write_lerobot(tmp_path / "source", as_images=True)
    move_out(source / name)
    refused(source, r"(info\.json|file-000\.parquet): leads out of .*source")


def test_a_link_out_of_a_lance_table_is_refused(tmp_path: Path) -> None:
    source = write_lance(tmp_path / "source" / "pushes.lance").parent
    move_out(next((source / "pushes.lance" / "data").iterdir()))
    refused(source, r"\.lance: leads out of .*source")


def test_a_link_to_minari_s_data_elsewhere_is_refused(tmp_path: Path) -> None:
    with minari_file(tmp_path / "source") as h5:
        h5["episode_0/observations"] = np.arange(9.0)
    move_out(tmp_path / "source" / "data" / "main_data.hdf5")
    refused(tmp_path / "source", r"main_data\.hdf5: leads out of .*source")


# --- videos ----------------------------------------------------------------------------------------------------------


def test_a_video_whose_frames_are_too_large_is_refused(tmp_path: Path, small_budget: None) -> None:
    write_video(tmp_path / "wide.mp4", np.zeros((2, 600, 800, 3), np.uint8))
    with Cheap(), pytest.raises(DamagedError, match=r"wide\.mp4: a frame of 800 x 600 pixels would take"):
        next(read_video(tmp_path / "wide.mp4"))


@pytest.mark.parametrize(
    "playlist",
    ["#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{}\n#EXT-X-ENDLIST\n", "ffconcat version 1.0\nfile '{}'\n"],
)
def test_a_playlist_in_the_place_of_a_video_leads_to_no_other_file(tmp_path: Path, playlist: str) -> None:
    write_video(tmp_path / "private.mp4", np.asarray(EPISODES[0].frames))
    assert len(list(read_video(tmp_path / "private.mp4"))) == len(EPISODES[0].actions) + 1
    (tmp_path / "take.mp4").write_text(playlist.format("private.mp4"))
    with pytest.raises(DamagedError, match=r"take\.mp4: cannot be decoded"):
        list(read_video(tmp_path / "take.mp4"))


@pytest.mark.timeout(60)
def test_a_video_with_countless_damaged_frames_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """ffmpeg says a line about each of them: more than a pipe holds."""
    import imageio_ffmpeg

    file = tmp_path / "take.avi"
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", "16x16", "-r", "10", "-i", "-"]
    frames = np.random.default_rng(0).integers(0, 255, (1500, 16, 16, 3), np.uint8)
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *raw, "-c:v", "mjpeg", str(file)]
    subprocess.run(command, input=frames.tobytes(), check=True)
    harmed = re.sub(rb"(?s)(\xff\xda.{12}).{46}", rb"\g<1>" + b"\x13\xff" * 23, file.read_bytes())
    file.write_bytes(harmed)
    with pytest.raises(DamagedError, match=r"take\.avi: cannot be decoded \(.{1,200}\)$"):
        for _ in read_video(file):
            pass


# --- episodes --------------------------------------------------------------------------------------------------------


def test_frames_beyond_the_actions_are_not_taken_in(tmp_path: Path) -> None:
    drawn = []

    def endless() -> Any:
        while True:
            drawn.append(1)
            yield np.zeros((8, 8, 3), np.uint8)

    with pytest.raises(ShapeError, match="episode 0: frame: expected 6, one more than actions, found more"):
        write_dataset(tmp_path / "data", [Recording(endless(), np.zeros((5, 2)))], name="robot")
    assert len(drawn) == 7
    assert not (tmp_path / "data").exists()


def test_an_episode_of_too_many_frames_is_refused_before_the_first(tmp_path: Path, small_budget: None) -> None:
    def never() -> Any:
        raise AssertionError("a frame was asked for")
        yield

    with pytest.raises(DamagedError, match=r"episode 0: 1001 frames of 64 pixels would take .* set SALTWM_BUDGET_GB"):
        write_dataset(tmp_path / "data", [Recording(never(), np.zeros((1000, 2)))], name="robot")


def test_a_table_of_too_many_rows_is_refused(tmp_path: Path, small_budget: None) -> None:
    source = write_folder(tmp_path / "takes", as_video=False)
    (source / "take-0.csv").write_text("action\n" + "1\n" * 100_000)
    refused(source, r"take-0\.csv: its rows would take")


# --- LeRobot ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ({"data_path": "{chunk_index:999999999d}"}, "data_path: expected a path with"),
        ({"data_path": "{video_key.__class__}/{file_index}"}, "data_path: expected a path with"),
        ({"data_path": "data\0"}, "data_path: leads out of the dataset"),
        ({"data_path": 7}, "data_path: expected a path with .* found 7"),
        ({"fps": 0}, "not the description of a dataset"),
        ({"fps": float("inf")}, "not the description of a dataset"),
    ],
)
def test_a_description_that_asks_for_the_absurd_is_one_line(tmp_path: Path, harm: dict[str, Any], said: str) -> None:
    refused(write_lerobot(tmp_path / "robot", as_images=True, **harm), said)


@pytest.mark.parametrize("lacking", ["data/file_index", "length"])
def test_an_episode_without_its_place_is_named(tmp_path: Path, lacking: str) -> None:
    from pyarrow import parquet

    source = write_lerobot(tmp_path / "robot", as_images=True)
    file = source / "meta/episodes/chunk-000/file-000.parquet"
    table = parquet.read_table(file)
    at = table.column_names.index(lacking)
    parquet.write_table(table.set_column(at, lacking, [[None, None, None]]), file)
    refused(source, f"meta/episodes: episode 0: {lacking}: expected a number, found None")


def test_a_description_without_a_video_path_is_named(tmp_path: Path) -> None:
    source = write_lerobot(tmp_path / "robot")
    info = json.loads((source / "meta/info.json").read_text())
    del info["video_path"]
    (source / "meta/info.json").write_text(json.dumps(info))
    refused(source, "video_path: expected a path with .* found None")


def test_a_small_parquet_file_of_countless_rows_is_refused(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    source = write_lerobot(tmp_path / "robot", as_images=True)
    file = source / "data/chunk-000/file-000.parquet"
    ones = pyarrow.repeat(pyarrow.scalar(1, pyarrow.int8()), 20_000_000)
    parquet.write_table(pyarrow.table(dict.fromkeys(("episode_index", "timestamp", "action"), ones)), file)
    assert file.stat().st_size < 300_000
    refused(source, r"file-000\.parquet: 20000000 rows with 60000000 values would take 2\.24 GB")


@pytest.mark.parametrize("with_schema", [True, False])
@pytest.mark.parametrize("part", ["data", "meta/episodes"])
def test_a_text_that_a_small_parquet_file_repeats_is_held_once(tmp_path: Path, part: str, with_schema: bool) -> None:
    import pyarrow
    from pyarrow import parquet

    source = write_lerobot(tmp_path / "robot", as_images=True)
    file = source / part / "chunk-000/file-000.parquet"
    table = parquet.read_table(file)
    once = pyarrow.array(["x" * 30_000_000])
    many = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * table.num_rows, pyarrow.int32()), once)
    options = {"compression": "zstd", "dictionary_pagesize_limit": 2**30, "store_schema": with_schema}
    if part == "data":  # many rows of an episode that nobody asks for
        table = pyarrow.concat_tables([table, *[table.slice(0, 1)] * 200])
        column = pyarrow.array([*table["episode_index"].to_pylist()[:-200], *[99] * 200], pyarrow.int64())
        table = table.set_column(table.column_names.index("episode_index"), "episode_index", column)
        many = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * table.num_rows, pyarrow.int32()), once)
    parquet.write_table(table.append_column("junk", many), file, **options)
    assert file.stat().st_size < 50_000
    with Cheap():
        assert len(import_recordings(source, tmp_path / "out", image_size=8)) == len(EPISODES)


@pytest.mark.parametrize("column", ["action", "timestamp"])
def test_a_column_of_texts_is_named_where_numbers_belong(tmp_path: Path, column: str) -> None:
    from pyarrow import parquet

    source = write_lerobot(tmp_path / "robot", as_images=True)
    file = source / "data/chunk-000/file-000.parquet"
    table = parquet.read_table(file)
    words = [["left"] * table.num_rows]
    parquet.write_table(table.set_column(table.column_names.index(column), column, words), file)
    refused(source, rf"file-000\.parquet: {column}: expected numbers, found dictionary")


# --- Lance and Minari ------------------------------------------------------------------------------------------------


def test_a_lance_table_is_counted_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_lance(tmp_path / "pushes.lance")
    monkeypatch.setenv(budget.VARIABLE, "0.000001")
    refused(source, r"pushes\.lance: \d+ rows would take")


def test_lance_rows_that_hold_countless_numbers_are_refused_when_the_first_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance = pytest.importorskip("lance")
    import pyarrow

    rows, width = 200, 20_000
    numbers = pyarrow.array(np.zeros(rows * width, np.float32))
    columns = {
        "episode_idx": pyarrow.array(np.zeros(rows, np.int32)),
        "action": pyarrow.FixedSizeListArray.from_arrays(numbers, width),
        "pixels": pyarrow.array([png(8, 8)] * rows),
    }
    lance.write_dataset(pyarrow.table(columns), str(tmp_path / "wide.lance"))
    monkeypatch.setenv(budget.VARIABLE, "0.05")
    refused(tmp_path / "wide.lance", r"episode 0: action of 64 rows would take .* set SALTWM_BUDGET_GB")


def test_a_lance_table_numbers_its_episodes(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    import pyarrow

    columns = {"episode_idx": pyarrow.array(["x" * 1000]), "action": pyarrow.array([1.0]), "pixels": [png(8, 8)]}
    lance.write_dataset(pyarrow.table(columns), str(tmp_path / "words.lance"))
    refused(tmp_path / "words.lance", r"episode_idx: expected whole numbers, found string")


def test_a_lance_picture_is_looked_at_before_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(budget.VARIABLE, "0.3")
    monkeypatch.setattr("interop.test_recordings.encoded", lambda frame, kind: png(12_000, 10_000))
    refused(write_lance(tmp_path / "pushes.lance"), "episode 0, step 0: a picture of 12000 x 10000 pixels")


def minari_file(folder: Path) -> h5py.File:
    (folder / "data").mkdir(parents=True)
    return h5py.File(folder / "data" / "main_data.hdf5", "w")


def test_minari_arrays_that_declare_too_much_are_refused(tmp_path: Path) -> None:
    with minari_file(tmp_path / "bomb") as h5:
        h5.create_dataset("episode_0/observations", (10**9, 8, 8, 3), "uint8", chunks=(1, 8, 8, 3))
    refused(tmp_path / "bomb", r"main_data\.hdf5: episode_0: its arrays would take 179 GB")


@pytest.mark.parametrize("way", ["external", "soft", "raw", "itself"])
def test_minari_arrays_that_lie_elsewhere_are_refused(tmp_path: Path, way: str) -> None:
    secret = tmp_path / "secret"
    with h5py.File(secret, "w") as h5:
        h5["numbers"] = np.arange(9.0)
    with minari_file(tmp_path / "links") as h5:
        group = h5.create_group("episode_0")
        if way == "external":
            group["observations"] = h5py.ExternalLink(str(secret), "numbers")
        elif way == "soft":
            group["observations"] = h5py.SoftLink("/episode_0")
        elif way == "raw":
            group.create_dataset("observations", (9,), "uint8", external=[(str(secret), 0, 9)])
        else:
            group["observations"] = group
    with pytest.raises(
        DamagedError, match=r"main_data\.hdf5: episode_0: 'observations' (is a link|is not stored|has a)"
    ):
        open_minari(tmp_path / "links")


def test_a_minari_episode_that_cannot_be_read_is_damage() -> None:
    class Broken:
        def iterate_episodes(self) -> Any:
            yield SimpleNamespace(actions=np.zeros((2, 1)), observations=np.zeros((3, 4, 4, 3), np.uint8))
            raise KeyError("incorrect metadata checksum")

    episodes = MinariData(Path("mine"), Broken(), "", ()).recordings()
    assert len(next(episodes).actions) == 2
    with pytest.raises(DamagedError, match=r"mine: not a readable Minari dataset \(KeyError: 'incorrect metadata"):
        next(episodes)
