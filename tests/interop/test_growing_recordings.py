"""Recorded and imported datasets grow: wholly or not at all, with a lineage, and no episode twice."""

import contextlib
import itertools
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import zstandard
from hostile_files import rehash_dataset
from power_cuts import PowerCut, power_cut
from test_recordings import EPISODES, check_same, encoded, episode, write_folder

from saltwm import write_dataset
from saltwm.cli import main
from saltwm.data.fields import action_names_of
from saltwm.disk import durable
from saltwm.disk.dataset import Dataset
from saltwm.ground.errors import DamagedError, LockedError, MismatchError, ShapeError, UsageError
from saltwm.interop.hdf5 import import_hdf5
from saltwm.interop.importing import import_recordings
from saltwm.interop.recordings import Recording

OPTIONS = {"name": "my-robot", "image_size": 16}


def content(path: Path) -> dict[str, object]:
    return {name: entry for name, entry in durable.file_hashes(path).items() if name != ".lock"}


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Two episodes in two parts."""
    monkeypatch.setattr("saltwm.interop.recordings.PART_STEPS", 12)
    return write_dataset(tmp_path / "data", EPISODES[:2], **OPTIONS)


def test_a_program_adds_episodes_and_the_lineage_knows_what_was(old: Dataset) -> None:
    before = content(old.path)
    grown = write_dataset(old.path, [EPISODES[2]], append=True, **OPTIONS)
    check_same(grown)
    assert [(a.episodes, a.sha256) for a in grown.lineage] == [(2, old.sha256)]
    assert grown.as_of(old.sha256).sha256 == old.sha256
    after = content(old.path)
    parts = [name for name in before if name.startswith("part-")]
    assert {name: after[name] for name in parts} == {name: before[name] for name in parts}
    more = write_dataset(old.path, [episode(9)], append=True, **OPTIONS)
    assert [a.episodes for a in more.lineage] == [2, 3]
    assert Dataset.open(old.path, verify="full").sha256 == more.sha256


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "your-robot"}, "environment: expected 'your-robot', found 'my-robot'"),
        ({"image_size": 32}, "image_size: expected 32, found 16"),
        ({"frame_every": 5}, "frame_every: expected 5, found 1"),
        ({"held_out": True}, "split: expected 'held-out', found 'training'"),
        ({"fit": "crop"}, "fit: expected 'crop', found 'pad'"),
    ],
)
def test_what_differs_is_named_and_nothing_changes(old: Dataset, options: dict[str, object], said: str) -> None:
    before = content(old.path)
    with pytest.raises(MismatchError, match=said):
        write_dataset(old.path, [EPISODES[2]], append=True, **(OPTIONS | options))  # type: ignore[arg-type]
    assert content(old.path) == before


def test_episodes_of_another_kind_or_there_already_leave_the_dataset_as_it_was(old: Dataset, tmp_path: Path) -> None:
    before = content(old.path)
    short = Recording(EPISODES[2].frames, EPISODES[2].actions[:, :1], EPISODES[2].states)
    with pytest.raises(ShapeError, match="action: expected shape"):
        write_dataset(old.path, [episode(7), short], append=True, **OPTIONS)
    with pytest.raises(UsageError, match=rf"^{old.path}: episode 1: is episode 1 of {old.path} already; leave it out"):
        write_dataset(old.path, [episode(7), EPISODES[1]], append=True, **OPTIONS)
    with pytest.raises(UsageError, match="no episode was given"):
        write_dataset(old.path, [], append=True, **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        write_dataset(old.path, interrupted(), append=True, **OPTIONS)
    assert content(old.path) == before
    with pytest.raises(UsageError, match="no such dataset"):
        write_dataset(tmp_path / "nowhere", EPISODES, append=True, **OPTIONS)


def interrupted():
    yield episode(7)
    raise KeyboardInterrupt


def test_a_growth_cut_off_before_any_durable_step_is_old_or_new_and_ends_the_same(old, tmp_path):
    added = [EPISODES[2], episode(9)]
    shutil.copytree(old.path, tmp_path / "calm")
    new = write_dataset(tmp_path / "calm", added, append=True, **OPTIONS)
    seen = set()
    for at in itertools.count():
        path = shutil.copytree(old.path, tmp_path / f"cut-{at}")
        with power_cut(at) as cut:
            write_dataset(path, added, append=True, **OPTIONS)
        if not cut:
            break
        found = Dataset.open(path).sha256
        seen.add(found)
        if found == old.sha256:
            write_dataset(path, added, append=True, **OPTIONS)
        durable.remove_leftovers(path)
        assert content(path) == content(new.path), f"cut before durable step {at}"
        shutil.rmtree(path)
    assert at > 8
    assert old.sha256 in seen


def test_a_growth_on_its_way_goes_on_with_the_same_episodes_alone(old, monkeypatch):
    def crash(step, where):
        if where.name == "zarr.json" and where.parent == old.path:
            raise PowerCut

    monkeypatch.setattr(durable, "_before_step", crash)
    with pytest.raises(PowerCut):
        write_dataset(old.path, [EPISODES[2]], append=True, **OPTIONS)
    monkeypatch.setattr(durable, "_before_step", lambda step, where: None)
    assert Dataset.open(old.path).sha256 == old.sha256
    with pytest.raises(MismatchError, match="is on its way to 3 episodes"):
        write_dataset(old.path, [EPISODES[2], episode(9)], append=True, **OPTIONS)
    check_same(write_dataset(old.path, [EPISODES[2]], append=True, **OPTIONS))


def test_a_growth_on_its_way_goes_on_with_other_episodes_and_mixes_none(old: Dataset, tmp_path: Path) -> None:
    """A program says of its episodes no more than how many there are."""
    shutil.copytree(old.path, tmp_path / "calm")
    others = [episode(20, 12), episode(21, 12)]
    calm = write_dataset(tmp_path / "calm", others, append=True, **OPTIONS)
    for at in itertools.count():
        path = shutil.copytree(old.path, tmp_path / f"cut-{at}")
        with power_cut(at) as cut:
            write_dataset(path, [episode(10, 12), episode(11, 12)], append=True, **OPTIONS)
        if not cut:
            break
        if Dataset.open(path).sha256 == old.sha256:
            assert write_dataset(path, others, append=True, **OPTIONS).sha256 == calm.sha256
            assert Dataset.open(path, verify="full").sha256 == calm.sha256, f"cut before durable step {at}"
            assert content(path) == content(calm.path)
        shutil.rmtree(path)
    assert at > 8


# --- begun and killed, or by two at once -----------------------------------------------------------------------------


def test_a_first_write_cut_off_before_any_durable_step_is_repeated_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saltwm.interop.recordings.PART_STEPS", 12)
    calm = write_dataset(tmp_path / "calm", EPISODES, **OPTIONS)
    for at in itertools.count():
        path = tmp_path / f"cut-{at}"
        with power_cut(at) as cut:
            write_dataset(path, EPISODES, **OPTIONS)
        if not cut:
            break
        if not (path / "zarr.json").exists():
            write_dataset(path, EPISODES, **OPTIONS)
        durable.remove_leftovers(path)
        assert content(path) == content(calm.path), f"cut before durable step {at}"
        shutil.rmtree(path)
    assert at > 8
    with pytest.raises(UsageError, match=r"not empty \(it holds collection\.json\)"):
        write_dataset(calm.path, EPISODES, **OPTIONS)


def test_a_first_write_on_its_way_is_not_that_of_another_number_of_episodes(tmp_path: Path) -> None:
    with power_cut("move"):
        write_dataset(tmp_path / "data", EPISODES, **OPTIONS)
    with pytest.raises(DamagedError, match=r"incomplete, 1 of 1 parts are missing; repeat the import, or the program"):
        Dataset.open(tmp_path / "data")
    with pytest.raises(MismatchError, match=r"belongs to another job \(episodes: expected 2, found 3\)"):
        write_dataset(tmp_path / "data", EPISODES[:2], **OPTIONS)
    check_same(write_dataset(tmp_path / "data", EPISODES, **OPTIONS))


@pytest.mark.parametrize("done", [False, True])
def test_of_two_first_writers_the_second_leaves_the_first_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """The first comes, or comes and goes, just after the second has seen that there is no folder."""
    path, only_writer = tmp_path / "data", durable.only_writer
    with contextlib.ExitStack() as first:

        def after_the_first(folder: Path, job: str) -> contextlib.AbstractContextManager[None]:
            monkeypatch.setattr(durable, "only_writer", only_writer)
            if done:
                write_dataset(path, EPISODES, **OPTIONS)
            else:
                first.enter_context(only_writer(path, "of the first"))
                (path / "part-00000").mkdir()
            return only_writer(folder, job)

        monkeypatch.setattr(durable, "only_writer", after_the_first)
        with pytest.raises(UsageError if done else LockedError, match="not empty" if done else "in use by .*the first"):
            write_dataset(path, EPISODES[:1], **OPTIONS)
    assert (path / "part-00000").is_dir()
    if done:
        check_same(Dataset.open(path))


# --- imported --------------------------------------------------------------------------------------------------------


def test_the_same_import_takes_the_takes_that_came_since(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, data = write_folder(tmp_path / "takes", as_video=False), tmp_path / "data"
    words = ["data", "import", str(source), "--out", str(data), "--env", "arm", "--image-size", "32"]
    main([*words, "--episodes", "2"])
    first = Dataset.open(data)
    main(words)
    grown = Dataset.open(data)
    check_same(grown)
    assert [(a.episodes, a.sha256) for a in grown.lineage] == [(2, first.sha256)]
    main(words)  # nothing to do
    assert Dataset.open(data).sha256 == grown.sha256
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([*words, "--episodes", "1"])
    assert (end.value.code, "a dataset only grows" in capsys.readouterr().err) == (3, True)
    table = source / "take-0.csv"
    header, first_row, *rows = (before := table.read_text()).splitlines()
    cells = first_row.split(",")
    table.write_text("\n".join([header, ",".join([*cells[:3], "9.5", *cells[4:]]), *rows, ""]))
    with pytest.raises(MismatchError, match="episode 0: its states are not those of episode 0"):
        import_recordings(source, data, name="arm", image_size=32)
    table.write_text(before.replace("0.1,", "0.1,0.25,", 1).replace("0.25,0.", "0.25,-0.", 1))
    with pytest.raises(MismatchError, match="episode 0: its actions are not those of episode 0"):
        import_recordings(source, data, name="arm", image_size=32)


def test_a_repeated_import_sees_that_the_pictures_are_another_take_s(tmp_path: Path) -> None:
    source, data = write_folder(tmp_path / "takes", as_video=False), tmp_path / "data"
    first = import_recordings(source, data, name="arm", image_size=16)
    picture = source / "take-1" / "0000.png"
    frame = np.asarray(EPISODES[1].frames[0])
    picture.write_bytes(encoded(np.where(frame < 50, frame + 3, frame)))  # as another decoder may see it
    assert import_recordings(source, data, name="arm", image_size=16).sha256 == first.sha256
    picture.write_bytes(encoded(255 - frame))
    with pytest.raises(MismatchError, match="episode 1: its first frame is not that of episode 1 in"):
        import_recordings(source, data, name="arm", image_size=16)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "leg"}, "environment: expected 'leg', found 'arm'"),
        ({"image_size": 8}, "image_size: expected 8, found 16"),
        ({"frame_every": 3}, "frame_every: expected 3, found 1"),
        ({"fit": "crop"}, "fit: expected 'crop', found 'pad'"),
    ],
)
@pytest.mark.parametrize("before", [2, 3])
def test_an_import_with_other_options_is_refused_whether_or_not_it_would_add(
    tmp_path: Path, options: dict[str, object], said: str, before: int
) -> None:
    source, data = write_folder(tmp_path / "takes", as_video=False), tmp_path / "data"
    first = import_recordings(source, data, name="arm", image_size=16, episodes=before)
    with pytest.raises(MismatchError, match=said):
        import_recordings(source, data, **({"name": "arm", "image_size": 16} | options))  # type: ignore[arg-type]
    assert Dataset.open(data).sha256 == first.sha256


def test_a_dataset_that_does_not_know_its_fit_still_grows(old: Dataset) -> None:
    """As those do that were written before it was kept."""
    root = durable.read_json(old.path / "zarr.json")
    for recipe in (root["attributes"]["recipe"], collection := durable.read_json(old.path / "collection.json")):
        del recipe["source"]["fit"]
    durable.write_json(old.path / "collection.json", collection)
    durable.write_json(old.path / "zarr.json", root)
    rehash_dataset(old.path)
    grown = write_dataset(old.path, [EPISODES[2]], append=True, fit="crop", **OPTIONS)
    assert grown.recipe.source.fit is None  # type: ignore[union-attr]
    assert len(grown) == 3


@pytest.mark.parametrize("packed", [False, True])
def test_an_import_of_a_whole_file_takes_what_an_import_of_a_few_left(tmp_path: Path, packed: bool) -> None:
    file = tmp_path / "rooms.h5"
    with h5py.File(file, "w") as h5:
        h5["pixels"] = np.arange(60, dtype=np.uint8)[:, None, None, None] * np.ones((8, 8, 3), np.uint8)
        h5["action"] = np.random.default_rng(0).uniform(-1, 1, (60, 2)).astype(np.float32)
        h5["pos_agent"] = np.zeros((60, 2), np.float32)
        h5["ep_len"], h5["ep_offset"] = np.full(6, 10, np.int32), np.arange(6) * 10
    if packed:
        file = file.with_suffix(".h5.zst")
        file.write_bytes(zstandard.ZstdCompressor().compress(file.with_suffix("").read_bytes()))
    first = import_hdf5(file, "two-room", tmp_path / "data", episodes=2)
    grown = import_hdf5(file, "two-room", tmp_path / "data")
    assert len(grown) == 6
    assert [(a.episodes, a.sha256) for a in grown.lineage] == [(2, first.sha256)]
    before = content(tmp_path / "data")
    for episodes in (None, 6):  # nothing to do
        assert import_hdf5(file, "two-room", tmp_path / "data", episodes=episodes).sha256 == grown.sha256
    assert content(tmp_path / "data") == before


def test_another_folder_is_added_when_one_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, data = write_folder(tmp_path / "monday", as_video=False), tmp_path / "data"
    import_recordings(source, data, name="arm", image_size=32, episodes=2)
    tuesday = tmp_path / "tuesday"
    tuesday.mkdir()
    for name in ("take-2", "take-2.csv"):
        (source / name).rename(tuesday / name)
    words = ["data", "import", str(tuesday), "--out", str(data), "--env", "arm", "--image-size", "32"]
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr().err
    assert end.value.code == 3
    assert "file: expected 'tuesday', found 'monday'" in said
    assert "--append" in said
    main([*words, "--append"])
    dataset = Dataset.open(data)
    check_same(dataset)
    assert dataset.recipe.source.added == ("tuesday",)  # type: ignore[union-attr]
    with pytest.raises(UsageError, match=r"is episode 2 of .* already"):
        import_recordings(tuesday, data, name="arm", image_size=32, append=True)
    assert np.array_equal(Dataset.open(data).lengths, dataset.lengths)


def test_a_folder_whose_actions_are_other_ones_is_not_added(tmp_path: Path) -> None:
    source, data = write_folder(tmp_path / "monday", as_video=False), tmp_path / "data"
    dataset = import_recordings(source, data, name="arm", image_size=32, episodes=2)
    for number in (0, 1):
        shutil.rmtree(source / f"take-{number}")
    table = source / "take-2.csv"
    table.write_text(table.read_text().replace("action_x,action_y", "action_y,action_x"))
    with pytest.raises(MismatchError, match="action_names: expected 'y, x', found 'x, y'"):
        import_recordings(source, data, name="arm", image_size=32, append=True)
    assert Dataset.open(data).sha256 == dataset.sha256


def test_names_of_actions_are_compared_where_both_sides_know_them(tmp_path: Path) -> None:
    named = write_dataset(tmp_path / "named", EPISODES[:2], action_names=("x", "y"), **OPTIONS)
    with pytest.raises(MismatchError, match="action_names: expected 'x, z', found 'x, y'"):
        write_dataset(named.path, [EPISODES[2]], append=True, action_names=("x", "z"), **OPTIONS)
    grown = write_dataset(named.path, [EPISODES[2]], append=True, **OPTIONS)
    assert action_names_of(grown) == ("x", "y")
    unnamed = write_dataset(tmp_path / "unnamed", EPISODES[:2], **OPTIONS)
    assert action_names_of(write_dataset(unnamed.path, [EPISODES[2]], append=True, **OPTIONS)) == ()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("x",), "action: expected 1 numbers, found 2"),
        (("x", "x"), "expected different ones"),
        (("x", "to the left"), "without spaces and commas"),
    ],
)
def test_names_that_do_not_fit_the_actions_are_refused(tmp_path: Path, names: tuple[str, ...], said: str) -> None:
    with pytest.raises((MismatchError, UsageError), match=said):
        write_dataset(tmp_path / "data", EPISODES[:2], action_names=names, **OPTIONS)
    assert not (tmp_path / "data").exists()
