"""P25: what an input declares is compared with a budget before anything is allocated. Beliefs: A6 and A7."""

import contextlib
import dataclasses
import tarfile
import time
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch
import zstandard
from hostile_files import rehash_dataset
from peak_memory import forget_peak, peak_megabytes
from small_datasets import make_recipe, write_dataset

from saltwm.data.split import held_out_episodes
from saltwm.disk import checkpoint, durable, layout
from saltwm.disk.dataset import Dataset, _check_sizes
from saltwm.disk.records import read_tasks
from saltwm.evaluation.protocols import CLEAN_PROTOCOL
from saltwm.evaluation.tasks import choose_tasks, require_possible, write_tasks
from saltwm.ground import budget
from saltwm.ground.errors import DamagedError, SaltError, UsageError
from saltwm.interop import archives, hdf5
from saltwm.interop.hdf5 import import_hdf5

SECONDS = 20.0
"""Far above what a refusal takes, because tests share the machine; an endless loop or an allocation takes longer."""
MEGABYTES = 500


class Cheap:
    """Inside, little time and memory may be used."""

    def __enter__(self):
        forget_peak()
        self.started, self.before = time.perf_counter(), peak_megabytes()

    def __exit__(self, *_):
        assert time.perf_counter() - self.started < SECONDS
        assert peak_megabytes() - self.before < MEGABYTES


def test_what_is_not_cheap_is_noticed_whatever_was_allocated_before():
    """Negative control."""
    np.ones(2**27)  # 1 GB
    with pytest.raises(AssertionError), Cheap():
        np.ones(2**26 + 2**25)
    with Cheap():
        np.ones(2**20)


@pytest.mark.parametrize("text", ["", "none", "nan", "-1", "0", "inf"])
def test_a_budget_that_is_no_number_is_a_usage_error(monkeypatch, text):
    monkeypatch.setenv(budget.VARIABLE, text)
    with pytest.raises(UsageError, match=r"expected a number of gigabytes above 0"):
        budget.budget_bytes()


def test_the_budget_is_raised_and_lowered_by_its_variable(monkeypatch):
    budget.require("file", "it", 2**31)
    monkeypatch.setenv(budget.VARIABLE, "1")
    with pytest.raises(DamagedError, match=r"file: it would take 2 GB, more than the 1 GB .* set SALTWM_BUDGET_GB"):
        budget.require("file", "it", 2**31)
    monkeypatch.setenv(budget.VARIABLE, "64")
    budget.require("file", "it", 2**35)


# --- datasets --------------------------------------------------------------------------------------------------------


def declare(path, **changes):
    """The recipe in both of its files with other counts; hashes made to fit."""
    root = durable.read_json(path / layout.ROOT_FILE)
    recipe = root["attributes"]["recipe"]
    recipe |= {key: value for key, value in changes.items() if key in recipe}
    recipe["world"] |= {key: value for key, value in changes.items() if key in recipe["world"]}
    durable.write_json(path / layout.RECIPE_FILE, recipe)
    durable.write_json(path / layout.ROOT_FILE, root)
    rehash_dataset(path)
    return path


@pytest.fixture
def one_part(tmp_path):
    path = tmp_path / "data"
    write_dataset(path, make_recipe(episodes=2, episodes_per_part=2))
    return path


@pytest.mark.parametrize("changes", [
    {"episodes": 10**12, "episodes_per_part": 10**12},
    {"image_size": 12_000},
    {"image_size": 10**9},
    {"state_dim": 10**9},
    {"action_dim": 10**9},
])  # fmt: skip
def test_a_dataset_that_declares_too_much_is_refused_before_it_is_read(one_part, changes):
    with Cheap(), pytest.raises(DamagedError, match=r"would take .* GB|expected|counts"):
        Dataset.open(declare(one_part, **changes))


def test_the_last_state_of_each_episode_counts_too(monkeypatch):
    """Of episodes of one step, half of the states are last ones."""
    recipe = make_recipe(episodes=1000)
    declared = SimpleNamespace(recipe=recipe, parts=[SimpleNamespace(steps=1000)])
    size = 1000 * (8 + 4 * recipe.world.action_dim + 2 * 8 * recipe.state_dim)
    monkeypatch.setenv(budget.VARIABLE, str((size - 1) / 2**30))
    with pytest.raises(DamagedError, match="1000 episodes of 1000 steps would take"):
        _check_sizes("here", declared)
    monkeypatch.setenv(budget.VARIABLE, str((size + 2**14) / 2**30))
    _check_sizes("here", declared)


@pytest.mark.full
def test_random_declared_sizes_are_refused_cheaply(one_part):
    rng = np.random.default_rng(0)
    names = ("episodes", "episodes_per_part", "image_size", "state_dim", "action_dim", "frame_every")
    for _ in range(500):
        name, value = names[rng.integers(len(names))], int(10 ** rng.uniform(4, 18))
        with Cheap(), pytest.raises(SaltError):
            Dataset.open(declare(one_part, **{name: value}))


def test_an_unfinished_dataset_of_countless_parts_is_counted_at_once(one_part):
    declare(one_part, episodes=10**15, episodes_per_part=1)
    (one_part / layout.ROOT_FILE).unlink()
    with Cheap(), pytest.raises(DamagedError, match=r"999999999999999 of 1000000000000000 parts are missing"):
        Dataset.open(one_part)


@pytest.mark.parametrize("changes", [{"episodes_per_part": 0}, {"episodes": -3}, {"stages": [5, 4]}])
def test_an_unfinished_dataset_whose_parts_cannot_be_counted_is_damage(one_part, changes):
    recipe = durable.read_json(one_part / layout.RECIPE_FILE)
    durable.write_json(one_part / layout.RECIPE_FILE, recipe | changes)
    (one_part / layout.ROOT_FILE).unlink()
    with pytest.raises(DamagedError, match=r"collection\.json: counts that cannot be"):
        Dataset.open(one_part)


# --- other people's files --------------------------------------------------------------------------------------------


def write_hdf5(path, rows, side, stored=False):
    with h5py.File(path, "w") as h5:
        shapes = {"pixels": (rows, side, side, 3), "action": (rows, 2), "proprio": (rows, 2), "ep_len": (1,)}
        for name, shape in (shapes | {"ep_offset": (1,)}).items():
            dtype = "uint8" if name == "pixels" else "float32" if name in ("action", "proprio") else "int64"
            column = h5.create_dataset(name, shape, dtype, chunks=(1, *shape[1:]) if side < 100 else None)
            if stored and side < 100:
                column[0] = 0
    return path


@pytest.mark.parametrize(("rows", "side", "stored"), [(10**9, 8, False), (10**9, 8, True), (4, 60_000, False)])
def test_an_hdf5_file_that_declares_too_much_is_refused(tmp_path, rows, side, stored):
    file = write_hdf5(tmp_path / "bomb.h5", rows, side, stored)
    with Cheap(), pytest.raises(DamagedError, match=r"would take .* GB|stores none of it|too large to read"):
        import_hdf5(file, "two-room", tmp_path / "out")


def write_one_episode(path, rows, side, chunks):
    """A file of one episode of black frames, of which a single chunk takes room."""
    shapes = {"pixels": (side, side, 3), "action": (2,), "pos_agent": (2,)}
    with h5py.File(path, "w") as h5:
        for name, shape in shapes.items():
            kind, pieces = ("uint8", chunks) if name == "pixels" else ("float32", (min(rows, 1000), 2))
            h5.create_dataset(name, (rows, *shape), kind, chunks=pieces)[(0,) * (1 + len(shape))] = 0
        h5["ep_len"], h5["ep_offset"] = np.array([rows], np.int32), np.array([0], np.int64)
    return path


@pytest.mark.parametrize(("chunks", "said"), [
    ((1, 224, 224, 3), r"an episode of 80000 frames of 224 pixels would take 11\.2 GB"),
    ((80_000, 4, 4, 3), r"a block of 80000 frames of 224 pixels would take 11\.2 GB"),
])  # fmt: skip
def test_an_hdf5_file_of_one_endless_episode_is_refused(tmp_path, chunks, said):
    file = write_one_episode(tmp_path / "bomb.h5", 80_000, 224, chunks)
    with Cheap(), pytest.raises(DamagedError, match=rf"bomb\.h5: {said}"):
        import_hdf5(file, "two-room", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_long_episode_is_held_at_the_size_that_was_asked_for(tmp_path):
    file = write_one_episode(tmp_path / "long.h5", 1500, 224, (100, 224, 224, 3))  # 226 MB at its own size
    forget_peak()
    before = peak_megabytes()
    assert import_hdf5(file, "two-room", tmp_path / "out", image_size=8).lengths.tolist() == [1499]
    assert peak_megabytes() - before < 150


def test_a_lack_of_memory_is_not_taken_for_damage(tmp_path):
    write_one_episode(tmp_path / "fine.h5", 4, 8, (4, 8, 8, 3))
    for words, kind in (("memory allocation failed for raw data chunk", MemoryError), ("bad heap", DamagedError)):
        with pytest.raises(kind, match=words), hdf5._opened(tmp_path / "fine.h5"):
            raise OSError(f"Can't synchronously read data ({words})")


def tar_of(path, members):
    """Members of (header, content) as .tar.zst."""
    with open(path, "wb") as file, zstandard.ZstdCompressor().stream_writer(file) as out:
        for header, content in members:
            header.size = len(content)
            out.write(header.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512))
        out.write(bytes(1024))
    return path


def header(name, kind=tarfile.REGTYPE):
    made = tarfile.TarInfo(name)
    made.type = kind
    return made


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_an_archive_with_a_header_of_any_length_is_refused(tmp_path, kind):
    members = [(header("x", kind), bytes(200 * 2**20)), (header("a.h5"), b"data")]
    bomb = tar_of(tmp_path / "bomb.tar.zst", members)
    forget_peak()
    before = peak_megabytes()
    with (
        pytest.raises(DamagedError, match=r"bomb\.tar\.zst: its headers take more than 4 MB; pack the \.h5 file alone"),
        archives.unpacked(bomb, tmp_path / "out"),
    ):
        pass
    assert peak_megabytes() - before < 100


def test_an_archive_of_countless_members_is_refused(tmp_path):
    bomb = tar_of(tmp_path / "bomb.tar.zst", ((header(f"{number}"), b"") for number in range(10_000)))
    with (
        Cheap(),
        pytest.raises(DamagedError, match=r"its headers take more than 4 MB"),
        archives.unpacked(bomb, tmp_path / "out"),
    ):
        pass


def test_members_before_the_hdf5_file_count_too(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "SMALL_ARCHIVE", 8 * 2**20)
    for size, fits in ((6, True), (64, False)):
        file = tar_of(tmp_path / f"{size}.tar.zst", [(header("x"), bytes(size * 2**20)), (header("a.h5"), b"data")])
        expected = contextlib.nullcontext() if fits else pytest.raises(DamagedError, match=r"unpacks to more than")
        with Cheap(), expected, archives.unpacked(file, tmp_path / "out") as unpacked:
            assert unpacked.read_bytes() == b"data"


def test_an_archive_that_unpacks_to_a_multiple_of_its_size_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "SMALL_ARCHIVE", 2**20)
    bomb = tmp_path / "bomb.h5.zst"
    bomb.write_bytes(zstandard.ZstdCompressor().compress(bytes(64 * 2**20)))
    with (
        Cheap(),
        pytest.raises(DamagedError, match=r"unpacks to more than .* set SALTWM_BUDGET_GB"),
        archives.unpacked(bomb, tmp_path / "out"),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["bomb.h5.zst"]
    monkeypatch.setenv(budget.VARIABLE, "1")
    with archives.unpacked(bomb, tmp_path / "out") as file:
        assert file.stat().st_size == 64 * 2**20


# --- task sets and checkpoints ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tasks(dataset):
    return choose_tasks(dataset, CLEAN_PROTOCOL, 2, 1, held_out_episodes(dataset, 3072, 0.5))


@pytest.mark.parametrize("size", [12_000, 200_000, 0, -4])
def test_a_task_set_of_absurd_pictures_is_refused(tasks, tmp_path, size):
    world = dataclasses.replace(tasks.world, image_size=size)
    write_tasks(tmp_path / "tasks.json", dataclasses.replace(tasks, world=world))
    with Cheap(), pytest.raises(DamagedError, match=r"frames of|image_size: expected at least 1"):
        read_tasks(tmp_path / "tasks.json")


@pytest.mark.parametrize("field", ["state", "goal"])
@pytest.mark.parametrize(("change", "found"), [
    (lambda s: s[:-1], "found 1"), (lambda s: (*s, 0.0), "found 3"), (lambda s: (), "found 0"),
    (lambda s: (1e308, *s[1:]), "up to 1e.06"),
])  # fmt: skip
def test_a_task_whose_states_cannot_be_is_named(tasks, field, change, found):
    require_possible(tasks, "tasks.json")
    task = tasks.tasks[1]
    changed = dataclasses.replace(task, **{field: change(getattr(task, field))})
    with pytest.raises(DamagedError, match=f"tasks.json: task 1: {field}: expected .*{found}"):
        require_possible(dataclasses.replace(tasks, tasks=(tasks.tasks[0], changed)), "tasks.json")


def altered(run, tmp_path, change):
    """A checkpoint with other weights and hashes that fit."""
    source = checkpoint.find_checkpoint(run)
    info, weights = checkpoint.read_weights(source)
    change(weights)
    checkpoint.publish(tmp_path / "altered", info, {checkpoint.WEIGHTS_FILE: checkpoint.to_bytes(weights)})
    return tmp_path / "altered"


@pytest.mark.parametrize("value", [0.0, -1.0, torch.nan, torch.inf])
def test_an_action_scale_that_is_not_positive_is_refused(run, tmp_path, value):
    def change(weights):
        weights["action_encoder.action_std"][0] = value

    with pytest.raises(DamagedError, match=r"action_std: expected"):
        checkpoint.load(altered(run, tmp_path, change))


def test_weights_that_are_not_finite_are_refused_and_others_load(run, tmp_path):
    checkpoint.load(altered(run, tmp_path / "as-they-are", lambda weights: None))

    def change(weights):
        weights["transition.N"].view(-1)[-1] = torch.nan

    with pytest.raises(DamagedError, match=r"transition.N: expected finite numbers"):
        checkpoint.load(altered(run, tmp_path, change))


def test_a_checkpoint_of_countless_convolutions_is_refused_at_once(run):
    info = checkpoint.read_info(checkpoint.find_checkpoint(run))
    encoder = dataclasses.replace(info.run.model.encoder, kind="conv", channels=(4,) * 12_000)
    config = dataclasses.replace(info.run.model, encoder=encoder)
    with Cheap(), pytest.raises(DamagedError, match=r"40 tensors cannot be those of a model of 12000 layers"):
        checkpoint.blueprint(config, info.world, 40, run)
