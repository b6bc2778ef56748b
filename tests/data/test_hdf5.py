"""The field's files, made here in both layouts, come in with every value in its place, and go out again."""

import io
import shutil
import tarfile
from itertools import pairwise

import h5py
import hdf5plugin
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from saltwm.disk import dataset_writer as parts
from saltwm.disk.dataset import Dataset
from saltwm.disk.layout import Collected, Recipe
from saltwm.envs import make_env
from saltwm.ground.errors import DamagedError, MismatchError, SaltError, Stopped, UsageError
from saltwm.interop import archives, hdf5
from saltwm.interop.hdf5 import export_hdf5, import_hdf5
from saltwm.interop.recordings import write_dataset
from saltwm.jobs.collect import Collect, collect_episode

SIZE = 24


@pytest.fixture(scope="module")
def episodes():
    env = make_env("two-room", variant="paper", image_size=SIZE)
    recipe = Recipe(env.world, "paper", 2, 5, 1, 5, Collected(policy="expert", seed=0))
    return [collect_episode(env, recipe, index) for index in range(5)]


def columns_of(episodes, index_name="ep_idx"):
    """A file's columns as stable-worldmodel lays them out: NaN follows the last action of each episode."""
    nothing = np.full((1, 2), np.nan, np.float32)
    lengths = np.array([len(e.states) for e in episodes])
    return {
        "pixels": np.concatenate([e.frames for e in episodes]),
        "action": np.concatenate([np.concatenate([e.actions, nothing]) for e in episodes]),
        "pos_agent": np.concatenate([e.states for e in episodes]).astype(np.float32),
        "reward": np.zeros(lengths.sum()),
        index_name: np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        "step_idx": np.concatenate([np.arange(n) for n in lengths]),
        "ep_len": lengths.astype(np.int32),
        "ep_offset": np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64),
    }


def make_folder(path):
    path.mkdir()
    return path


def write_file(path, columns, blocks=True):
    """blocks: Blosc-LZ4 chunks of 100 frames, as released; else one raw chunk per frame, as written today."""
    options = {"libver": "latest", "fs_strategy": "page", "fs_page_size": 4 * 2**20} if blocks else {"libver": "latest"}
    with h5py.File(path, "w", **options) as h5:
        for name, values in columns.items():
            rows = 100 if blocks and values.ndim > 2 else 1000 if blocks else 1
            packed = (
                hdf5plugin.Blosc(cname="lz4", clevel=5, shuffle=hdf5plugin.Blosc.SHUFFLE)
                if values.ndim > 2 and blocks
                else {}
            )
            chunks = (rows, *values.shape[1:])
            h5.create_dataset(name, data=values, chunks=chunks, maxshape=(None, *values.shape[1:]), **packed)
    return path


def assert_holds(dataset, episodes):
    assert dataset.lengths.tolist() == [len(e.actions) for e in episodes]
    for index, episode in enumerate(episodes):
        assert np.array_equal(dataset.actions(index), episode.actions)
        assert np.array_equal(dataset.states(index), episode.states.astype(np.float32))
        steps = np.arange(len(episode.frames))
        assert np.array_equal(dataset.read_frames(np.full(len(steps), index), steps), episode.frames)


@pytest.mark.parametrize("index_name", ["ep_idx", "episode_idx"])
@pytest.mark.parametrize("blocks", [True, False])
def test_both_layouts_come_in_whole(tmp_path, episodes, blocks, index_name):
    file = write_file(tmp_path / "tworoom.h5", columns_of(episodes, index_name), blocks)
    dataset = import_hdf5(file, "two-room", tmp_path / "data")
    assert_holds(dataset, episodes)
    assert dataset.world.renderer == "imported"
    assert dataset.variant == "paper"


def compress(path, data):
    path.write_bytes(zstandard.ZstdCompressor().compress(data))
    return path


def tarred(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["h5.zst", "tar.zst"])
def test_archives_are_unpacked_beside_the_output_and_tidied_up(tmp_path, episodes, kind):
    data = write_file(tmp_path / "tworoom.h5", columns_of(episodes)).read_bytes()
    content = tarred({"read.me": b"hello", "set/tworoom.h5": data}) if kind == "tar.zst" else data
    file = compress(tmp_path / f"tworoom.{kind}", content)
    assert_holds(import_hdf5(file, "two-room", tmp_path / "data"), episodes)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["data", "tworoom.h5", file.name])


def test_frames_are_averaged_down_on_the_way(tmp_path, episodes):
    file = write_file(tmp_path / "tworoom.h5", columns_of(episodes))
    dataset = import_hdf5(file, "two-room", tmp_path / "data", image_size=8)
    frame = dataset.read_frames(np.array([2]), np.array([7]))[0]
    means = episodes[2].frames[7].reshape(8, 3, 8, 3, 3).mean(axis=(1, 3))
    assert np.abs(frame - means).max() < 1.0  # rounded once along each axis
    with pytest.raises(UsageError, match="frames of 24 pixels cannot become 32"):
        import_hdf5(file, "two-room", tmp_path / "larger", image_size=32)


def test_the_first_episodes_alone_can_be_imported(tmp_path, episodes):
    file = write_file(tmp_path / "tworoom.h5", columns_of(episodes))
    assert_holds(import_hdf5(file, "two-room", tmp_path / "data", episodes=3), episodes[:3])
    with pytest.raises(UsageError, match="has 5 episodes, 6 were asked for"):
        import_hdf5(file, "two-room", tmp_path / "more", episodes=6)


def test_an_import_grows_when_more_episodes_of_its_file_are_asked_for(tmp_path, episodes, monkeypatch):
    file = write_file(tmp_path / "tworoom.h5", columns_of(episodes))
    first = import_hdf5(file, "two-room", tmp_path / "data", episodes=3)
    assert import_hdf5(file, "two-room", tmp_path / "data", episodes=3).sha256 == first.sha256  # no more
    with monkeypatch.context() as patch:
        patch.setattr(parts, "finish", lambda *_: (_ for _ in ()).throw(Stopped("stopped", 15)))
        with pytest.raises(Stopped):
            import_hdf5(file, "two-room", tmp_path / "data", episodes=5)
    assert len(Dataset.open(tmp_path / "data")) == 3
    with pytest.raises(MismatchError, match="on its way to 5 episodes"):
        import_hdf5(file, "two-room", tmp_path / "data", episodes=4)
    grown = import_hdf5(file, "two-room", tmp_path / "data", episodes=5)
    assert_holds(grown, episodes)
    assert [(a.episodes, a.sha256) for a in grown.lineage] == [(3, first.sha256)]
    with pytest.raises(MismatchError, match="has 5 episodes and cannot have 4: a dataset only grows"):
        import_hdf5(file, "two-room", tmp_path / "data", episodes=4)


def test_each_chunk_is_read_once(tmp_path, episodes, monkeypatch):
    monkeypatch.setattr(hdf5, "PART_STEPS", 100)  # parts end inside chunks
    file = write_file(tmp_path / "tworoom.h5", columns_of(episodes))
    reads = []

    class Counting:
        def __init__(self, column):
            self._column, self.chunks = column, column.chunks

        def __getitem__(self, rows):
            reads.append((rows.start, rows.stop))
            return self._column[rows]

    original = hdf5._Rows.__init__
    monkeypatch.setattr(hdf5._Rows, "__init__", lambda self, column: original(self, Counting(column)))
    dataset = import_hdf5(file, "two-room", tmp_path / "data")
    assert dataset.recipe.parts > 2
    rows = sum(len(e.frames) for e in episodes)
    assert reads == [(start, start + 100) for start in range(0, rows, 100)]


def test_an_interrupted_import_goes_on_and_ends_the_same(tmp_path, episodes, monkeypatch):
    monkeypatch.setattr(hdf5, "PART_STEPS", 100)
    data = write_file(tmp_path / "tworoom.h5", columns_of(episodes)).read_bytes()
    file = compress(tmp_path / "tworoom.h5.zst", data)
    written = parts.write_part

    def stop_at_the_third(path, recipe, part, made):
        if part == 2:
            raise Stopped("stopped", 15)
        written(path, recipe, part, made)

    with monkeypatch.context() as patch:
        patch.setattr(parts, "write_part", stop_at_the_third)
        with pytest.raises(Stopped):
            import_hdf5(file, "two-room", tmp_path / "data")
    assert [p.name for p in sorted((tmp_path / "data").glob("part-*"))] == ["part-00000", "part-00001"]
    resumed = import_hdf5(file, "two-room", tmp_path / "data")
    whole = import_hdf5(file, "two-room", tmp_path / "whole")
    assert resumed.sha256 == whole.sha256
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "tworoom.h5", "tworoom.h5.zst", "whole"]


@pytest.mark.parametrize("stopped_at", [0, 1, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_an_import_never_goes_on_from_a_file_of_the_same_name_and_size(
    tmp_path, episodes, monkeypatch, stopped_at, packed
):
    """P26: the recipe knows the source by its SHA-256."""
    monkeypatch.setattr(hdf5, "PART_STEPS", 100)
    columns = columns_of(episodes)
    other = {**columns, "pixels": 255 - columns["pixels"]}
    file, another = (
        write_file(make_folder(tmp_path / name) / "tworoom.h5", c, blocks=False)
        for name, c in (("a", columns), ("b", other))
    )
    assert file.stat().st_size == another.stat().st_size
    if packed:
        file, another = (compress(f.with_suffix(".h5.zst"), f.read_bytes()) for f in (file, another))
    written = parts.write_part

    def stop(path, recipe, part, made):
        if part == stopped_at:
            raise Stopped("stopped", 15)
        written(path, recipe, part, made)

    with monkeypatch.context() as patch:
        patch.setattr(parts, "write_part", stop)
        with pytest.raises(Stopped):
            import_hdf5(file, "two-room", tmp_path / "data")
    with pytest.raises(MismatchError, match=r"source.sha256: expected \w{12}, found \w{12}"):
        import_hdf5(another, "two-room", tmp_path / "data")
    assert (
        import_hdf5(file, "two-room", tmp_path / "data").sha256
        == import_hdf5(file, "two-room", tmp_path / "whole").sha256
    )
    with pytest.raises(MismatchError, match=r"belongs to another job .*sha256: expected"):
        import_hdf5(another, "two-room", tmp_path / "data")


def test_a_file_that_lies_where_an_archive_would_be_unpacked_is_not_used(tmp_path, episodes):
    """P26: nothing beside the output is trusted."""
    columns = columns_of(episodes)
    data = write_file(tmp_path / "tworoom.h5", columns).read_bytes()
    file = compress(tmp_path / "tworoom.h5.zst", data)
    forged = write_file(tmp_path / "forged.h5", {**columns, "pixels": np.full_like(columns["pixels"], 200)})
    forged.rename(tmp_path / f"data.unpacked-{file.stat().st_size}.h5")
    dataset = import_hdf5(file, "two-room", tmp_path / "data")
    assert np.array_equal(dataset.read_frames(np.array([0]), np.array([0]))[0], columns["pixels"][0])


def test_a_file_that_changes_while_it_is_imported_makes_no_dataset(tmp_path, episodes, monkeypatch):
    file = write_file(tmp_path / "tworoom.h5", columns_of(episodes))
    written = parts.write_part

    def replaced(path, recipe, part, made):
        written(path, recipe, part, made)
        shutil.copy(file, tmp_path / "copy")
        (tmp_path / "copy").rename(file)

    monkeypatch.setattr(parts, "write_part", replaced)
    with pytest.raises(DamagedError, match="changed while it was read"):
        import_hdf5(file, "two-room", tmp_path / "data")
    assert not (tmp_path / "data" / "zarr.json").exists()


def test_a_finished_import_is_opened_and_another_one_refused(tmp_path, episodes):
    file = write_file(tmp_path / "tworoom.h5", columns_of(episodes))
    first = import_hdf5(file, "two-room", tmp_path / "data")
    assert import_hdf5(file, "two-room", tmp_path / "data").sha256 == first.sha256
    with pytest.raises(MismatchError, match="image_size: expected 8, found 24"):
        import_hdf5(file, "two-room", tmp_path / "data", image_size=8)


# --- files that are not what they seem ------------------------------------------------------------------------------


def change(name, values):
    return lambda columns: columns.__setitem__(name, values(columns[name]))


def shift_actions(actions):
    """The mistake that training would never notice: actions written one row late."""
    return np.nan_to_num(np.roll(actions, 1, axis=0))


def nan_inside(actions):
    changed = actions.copy()
    changed[5] = np.nan
    return changed


WRONG = {
    "actions a row late": (change("action", shift_actions), MismatchError, "actions are not beside their frames"),
    "a NaN inside": (change("action", nan_inside), SaltError, "episode 0, step 5: action is nan"),
    "an action dimension more": (
        change("action", lambda a: np.repeat(a, 2, 1)),
        DamagedError,
        "action: expected floats",
    ),
    "integer actions": (change("action", lambda a: np.zeros(a.shape, int)), DamagedError, "action: expected floats"),
    "float pixels": (change("pixels", lambda p: p / 255.0), DamagedError, "pixels: expected uint8"),
    "grey pixels": (change("pixels", lambda p: p[..., :1]), DamagedError, "pixels: expected uint8"),
    "rows missing": (change("pixels", lambda p: p[:-1]), DamagedError, "expected floats"),
    "a length too long": (change("ep_len", lambda n: n + 1), DamagedError, "ep_len sums to"),
    "offsets shifted": (change("ep_offset", lambda n: n + 1), DamagedError, "not its running sum"),
    "lengths as text": (change("ep_len", lambda n: n.astype("S3")), DamagedError, "a whole number per episode"),
    "more lengths than rows": (
        change("ep_len", lambda n: np.resize(n, 10_000)),
        DamagedError,
        "ep_len: expected a whole number per episode",
    ),
    "a length beyond the file": (
        change("ep_len", lambda n: n + 2**40 * (np.arange(len(n)) == 0)),
        DamagedError,
        "at most the file's",
    ),
    "an empty index": (change("ep_len", lambda n: n[:0]), DamagedError, "ep_len and ep_offset"),
    "an episode of one row": (change("ep_len", lambda n: n * 0 + 1), DamagedError, "at least 2 rows"),
    "episode numbers shifted": (change("ep_idx", lambda n: np.roll(n, 3)), DamagedError, "changes inside an episode"),
    "steps that do not count": (change("step_idx", lambda n: n + 1), DamagedError, "does not count from 0"),
    "three coordinates": (
        change("pos_agent", lambda s: np.repeat(s, 2, 1)),
        DamagedError,
        "pos_agent: expected floats",
    ),
    "no actions": (lambda columns: columns.pop("action"), DamagedError, "has no column 'action'"),
    "no states": (lambda columns: columns.pop("pos_agent"), DamagedError, "has no column 'pos_agent'"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_file_is_refused_with_its_reason(tmp_path, episodes, kind):
    damage, error, message = WRONG[kind]
    columns = columns_of(episodes)
    damage(columns)
    file = write_file(tmp_path / "tworoom.h5", columns)
    with pytest.raises(error, match=message) as caught:
        import_hdf5(file, "two-room", tmp_path / "data")
    assert str(tmp_path) in str(caught.value)
    assert not (tmp_path / "data" / "zarr.json").exists()


def test_one_number_in_the_place_of_lengths_is_refused(tmp_path, episodes):
    file = write_file(tmp_path / "tworoom.h5", columns_of(episodes))
    with h5py.File(file, "a") as h5:
        del h5["ep_len"]
        h5["ep_len"] = 5
    with pytest.raises(DamagedError, match="ep_len: expected a whole number per episode"):
        import_hdf5(file, "two-room", tmp_path / "data")


def test_columns_that_lead_out_of_the_file_are_refused(tmp_path, episodes):
    columns = columns_of(episodes)
    secret = write_file(tmp_path / "secret.h5", {"action": columns.pop("action")})
    file = write_file(tmp_path / "tworoom.h5", columns)
    with h5py.File(file, "a") as h5:
        h5["action"] = h5py.ExternalLink(str(secret), "action")
    with pytest.raises(DamagedError, match="'action' is not stored in the file itself"):
        import_hdf5(file, "two-room", tmp_path / "data")


@pytest.mark.parametrize("name", ["../evil.h5", "/etc/evil.h5"])
def test_archives_with_paths_that_leave_are_refused(tmp_path, name):
    file = compress(tmp_path / "set.tar.zst", tarred({name: b"x"}))
    with pytest.raises(DamagedError, match="a path that leaves the archive"):
        import_hdf5(file, "two-room", tmp_path / "data")


@pytest.mark.parametrize(
    ("kind", "kept"),  # a tar file ends in zeros, of which the last is not missed
    [("h5.zst", 0.0), ("h5.zst", 0.5), ("h5.zst", 0.99999), ("tar.zst", 0.0), ("tar.zst", 0.5)],
)
def test_a_truncated_archive_is_named_and_leaves_nothing_unpacked(tmp_path, kind, kept):
    """An HDF5 file's directory is near its start: what is unpacked of a cut one may open, and lack frames."""
    data = np.random.default_rng(0).bytes(300_000)
    whole = zstandard.compress(tarred({"a.h5": data}) if kind == "tar.zst" else data)
    file = tmp_path / f"cut.{kind}"
    file.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(DamagedError, match=rf"{file}: cannot be unpacked"), archives.unpacked(file, tmp_path / "data"):
        pass
    assert list(tmp_path.iterdir()) == [file]


def test_an_archive_of_several_frames_is_unpacked_whole(tmp_path):
    file = tmp_path / "two.h5.zst"
    file.write_bytes(zstandard.compress(b"first") + zstandard.compress(b"second"))
    with archives.unpacked(file, tmp_path / "data") as unpacked:
        assert unpacked.read_bytes() == b"firstsecond"


@settings(max_examples=25, deadline=None)
@given(
    place=st.floats(0, 1), kind=st.sampled_from(["cut", "flip"]), archive=st.sampled_from(["h5", "h5.zst", "tar.zst"])
)
def test_truncated_and_altered_files_end_in_a_salt_error_or_the_right_content(
    tmp_path_factory, episodes, place, kind, archive
):
    tmp_path = tmp_path_factory.mktemp("damage")
    data = write_file(tmp_path / "a.h5", columns_of(episodes[:2])).read_bytes()
    packed = {
        "h5": lambda: data,
        "h5.zst": lambda: zstandard.compress(data),
        "tar.zst": lambda: zstandard.compress(tarred({"a.h5": data})),
    }
    content = bytearray(packed[archive]())
    at = min(int(place * len(content)), len(content) - 1)
    if kind == "cut":
        content = content[:at]
    else:
        content[at] ^= 0xFF
    file = tmp_path / f"b.{archive}"
    file.write_bytes(bytes(content))
    try:
        dataset = import_hdf5(file, "two-room", tmp_path / "data")
    except SaltError:
        return
    # HDF5 has no checksums of its own: a flip in a raw value is a value, but shapes and counts hold.
    assert dataset.lengths.tolist() == [len(e.actions) for e in episodes[:2]]


def test_other_files_and_environments_are_usage_errors(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        import_hdf5(tmp_path / "nothing.h5", "two-room", tmp_path / "data")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UsageError, match=r"expected a file ending in \.h5"):
        import_hdf5(tmp_path / "notes.txt", "two-room", tmp_path / "data")
    with h5py.File(tmp_path / "double.h5", "w") as file:
        file["pixels"], file["action"] = np.zeros((3, 8, 8, 3), np.uint8), np.zeros((3, 5), np.float32)
        file["ep_len"], file["ep_offset"] = np.array([3]), np.array([0])
    with pytest.raises(DamagedError, match=r"has no column 'saltwm_state'.*for cube-double no other column is known"):
        import_hdf5(tmp_path / "double.h5", "cube-double", tmp_path / "data")
    assert not (tmp_path / "data").exists()
    with pytest.raises(UsageError, match="did you mean 'two-room'"):
        import_hdf5(tmp_path / "notes.txt", "two-rom", tmp_path / "data")


# --- export ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    return Collect("two-room", tmp_path_factory.mktemp("export") / "data", 5, image_size=16, workers=1).do()


@pytest.mark.parametrize("chunk_rows", [100, 1, 7])
def test_export_and_import_give_the_same_dataset_back(tmp_path, collected, chunk_rows):
    export_hdf5(collected, tmp_path / "out.h5", chunk_rows)
    back = import_hdf5(tmp_path / "out.h5", "two-room", tmp_path / "back")
    assert np.array_equal(back.lengths, collected.lengths)
    for index in range(len(collected)):
        assert np.array_equal(back.states(index), collected.states(index))
        assert np.array_equal(back.actions(index), collected.actions(index))
        steps = np.arange(collected.lengths[index] + 1)
        rows = np.full(len(steps), index)
        assert np.array_equal(back.read_frames(rows, steps), collected.read_frames(rows, steps))


def test_an_exported_file_has_what_stable_worldmodel_reads(tmp_path, collected):
    """Flat datasets with one row per frame, ep_len and ep_offset at the root, NaN after the last action."""
    export_hdf5(collected, tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5", "r", swmr=True, rdcc_nbytes=2**20) as h5:
        rows = int((collected.lengths + 1).sum())
        columns = {name: (h5[name].shape, h5[name].dtype.name) for name in h5}
        assert columns == {
            "ep_len": ((5,), "int32"),
            "ep_offset": ((5,), "int64"),
            "ep_idx": ((rows,), "int32"),
            "step_idx": ((rows,), "int64"),
            "action": ((rows, 2), "float32"),
            "pixels": ((rows, 16, 16, 3), "uint8"),
            "pos_agent": ((rows, 2), "float32"),
            "proprio": ((rows, 2), "float32"),
            "saltwm_state": ((rows, 2), "float64"),
        }
        assert not h5.attrs
        assert h5["pixels"].chunks == (100, 16, 16, 3)
        assert 32001 in [h5["pixels"].id.get_create_plist().get_filter(i)[0] for i in range(1)]
        last = h5["ep_offset"][:] + h5["ep_len"][:] - 1
        missing = np.isnan(h5["action"][:]).all(axis=1)
        assert np.flatnonzero(missing).tolist() == last.tolist()


def test_a_dataset_with_sparse_frames_cannot_be_exported(tmp_path):
    sparse = Collect("two-room", tmp_path / "data", 2, image_size=16, frame_every=5, workers=1).do()
    with pytest.raises(UsageError, match="collect with a `frame_every` of 1"):
        export_hdf5(sparse, tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()


def test_recordings_cannot_be_exported_whatever_their_name(tmp_path):
    episodes = [{"frames": np.zeros((4, 8, 8, 3), np.uint8), "actions": np.eye(3, 2)}]
    recorded = write_dataset(tmp_path / "data", episodes, name="my-robot", image_size=8)
    with pytest.raises(UsageError, match="was written from recordings, which cannot be exported"):
        export_hdf5(recorded, tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()


def test_the_columns_of_every_environment_fit_its_state():
    """Widths of the released columns: push-t state 7, reacher qpos 2 and qvel 2, cube qpos 21 and qvel 20."""
    from saltwm.envs import ENVIRONMENTS, env_class

    widths = {}
    for env in ENVIRONMENTS:
        fields = {field.name: field for field in env_class(env).state_fields}
        for column in env_class(env).columns:
            first, last = fields[column.fields[0]], fields[column.fields[-1]]
            inner = [fields[name] for name in column.fields]
            assert all(a.stop == b.start for a, b in pairwise(inner))
            widths[env, column.names[0]] = last.stop - first.start
    assert widths == {
        ("two-room", "pos_agent"): 2,
        ("push-t", "state"): 7,
        ("reacher", "qpos"): 2,
        ("reacher", "qvel"): 2,
        ("cube", "qpos"): 21,
        ("cube", "qvel"): 20,
    }


def test_push_t_actions_are_found_aligned_and_misaligned(tmp_path):
    """The agent follows its target with a lag, so the test must tell one row from the next all the same."""
    env = make_env("push-t", image_size=8)
    recipe = Recipe(env.world, "clean", 10, 4, 1, 4, Collected(policy="random", seed=0))
    made = [collect_episode(env, recipe, index) for index in range(4)]
    columns = columns_of(made, "episode_idx")
    columns["state"] = np.concatenate([e.states[:, :7] for e in made]).astype(np.float32)
    dataset = import_hdf5(write_file(tmp_path / "pusht.h5", columns), "push-t", tmp_path / "data")
    assert dataset.recipe.source.zero_state_fields == "block_velocity, block_spin"
    assert not dataset.states(0)[:, 7:].any()
    columns["action"] = shift_actions(columns["action"])
    with pytest.raises(MismatchError, match="actions are not beside their frames"):
        import_hdf5(write_file(tmp_path / "late.h5", columns), "push-t", tmp_path / "late")
