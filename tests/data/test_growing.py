"""A dataset grows: new parts beside the old ones, the old hash in its lineage, and nothing lost on the way."""

import dataclasses
import itertools
import json
import shutil

import numpy as np
import pytest
from power_cuts import power_cut
from small_datasets import make_episode, make_recipe, write_dataset

from saltwm.cli import main
from saltwm.data.split import _why_same_episodes, held_out_episodes, why_seen
from saltwm.disk import checkpoint, durable, layout
from saltwm.disk import dataset_writer as parts
from saltwm.disk.dataset import Dataset
from saltwm.ground.errors import DamagedError, MismatchError
from saltwm.jobs.collect import Collect
from saltwm.jobs.data import maker
from saltwm.jobs.inspection import info
from saltwm.train import train

OPTIONS = {"image_size": 16, "frame_every": 5, "episodes_per_part": 4, "workers": 1}


def content(path):
    return {name: entry for name, entry in durable.file_hashes(path).items() if name != ".lock"}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """30 episodes, the last part of them not full."""
    return Collect("two-room", tmp_path_factory.mktemp("small") / "data", 30, **OPTIONS).do()


@pytest.fixture(scope="module")
def grown(small, tmp_path_factory):
    """The same with 50."""
    path = tmp_path_factory.mktemp("grown") / "data"
    shutil.copytree(small.path, path)
    return Collect("two-room", path, 50, **OPTIONS).do()


# --- what it holds ---------------------------------------------------------------------------------------------------


def test_a_grown_dataset_holds_the_episodes_of_one_collected_at_once(grown, tmp_path):
    whole = Collect("two-room", tmp_path / "data", 50, **OPTIONS).do()
    for index in range(50):
        assert np.array_equal(grown.states(index), whole.states(index))
        assert np.array_equal(grown.actions(index), whole.actions(index))
        steps = np.arange(0, whole.lengths[index] + 1, 5)
        episodes = np.full(len(steps), index)
        assert np.array_equal(grown.read_frames(episodes, steps), whole.read_frames(episodes, steps))
    assert np.allclose(grown.action_mean, whole.action_mean, rtol=0, atol=1e-12)


def test_growing_changes_no_byte_of_the_parts_that_were_there(small, grown):
    before, after = content(small.path), content(grown.path)
    old = {name: entry for name, entry in before.items() if name.startswith("part-")}
    assert len(old) > 20
    assert {name: after[name] for name in old} == old


def test_its_lineage_names_what_it_was_and_opens_it_again(small, grown):
    assert [(a.episodes, a.sha256) for a in grown.lineage] == [(30, small.sha256)]
    assert info(grown).lineage == grown.lineage
    was = grown.as_of(small.sha256)
    assert (was.sha256, len(was), was.recipe, was.lineage) == (small.sha256, 30, small.recipe, ())
    assert np.array_equal(was.all_actions, small.all_actions)
    assert np.array_equal(was.action_std, small.action_std)
    assert grown.as_of("0" * 64) is grown
    assert [grown.is_or_was(sha) for sha in (grown.sha256, small.sha256, "0" * 64)] == [True, True, False]


def test_it_grows_again_and_remembers_both_times(grown, small, tmp_path):
    shutil.copytree(grown.path, tmp_path / "data")
    more = Collect("two-room", tmp_path / "data", 53, **OPTIONS).do()
    assert [(a.episodes, a.sha256) for a in more.lineage] == [(30, small.sha256), (50, grown.sha256)]
    assert more.as_of(grown.sha256).lineage == grown.lineage
    assert len(more.as_of(small.sha256)) == 30


def test_the_same_command_once_more_finds_nothing_to_do(grown):
    before = content(grown.path)
    assert Collect("two-room", grown.path, 50, **OPTIONS).do().sha256 == grown.sha256
    assert content(grown.path) == before
    assert maker(grown.path).episodes == 50


def test_the_command_line_grows_a_dataset(small, tmp_path, capsys):
    shutil.copytree(small.path, tmp_path / "data")
    words = ["--image-size", "16", "--frame-every", "5", "--episodes-per-part", "4", "--workers", "1", "--json"]
    main(["collect", "two-room", "--out", str(tmp_path / "data"), "--episodes", "34", *words])
    found = json.loads(capsys.readouterr().out)
    assert (found["episodes"], found["before"]) == (34, [{"episodes": 30, "sha256": small.sha256}])


# --- the split -------------------------------------------------------------------------------------------------------


def test_an_episode_stays_on_its_side_of_the_split(small, grown):
    before, after = held_out_episodes(small, 3072, 0.1), held_out_episodes(grown, 3072, 0.1)
    assert np.array_equal(after[after < 30], before)
    assert len(after) == 5
    # The control: one split of all 50 would have moved some of the first 30.
    whole = Dataset.open(grown.path)
    whole.recipe = dataclasses.replace(grown.recipe, stages=None)
    moved = held_out_episodes(whole, 3072, 0.1)
    assert not np.array_equal(moved[moved < 30], before)


def test_a_checkpoint_and_its_data_know_each_other_after_growth(small, grown, tiny, tmp_path):
    train(tiny, small, tmp_path / "old")
    train(tiny, grown, tmp_path / "new")
    old, new = (checkpoint.read_info(checkpoint.find_checkpoint(tmp_path / name)) for name in ("old", "new"))
    assert old.dataset_lineage is None
    assert new.dataset_lineage == (small.sha256,)
    assert checkpoint.card(tmp_path / "new")["dataset_lineage"] == [small.sha256]
    for trained in (old, new):
        assert why_seen(trained, grown) is None
        assert why_seen(trained, small) is None
    # Windows of all episodes were seen, whichever of the two hashes says so.
    windows = dataclasses.replace(old.run, train=dataclasses.replace(old.run.train, split="window"))
    assert "saw frames of every episode" in why_seen(dataclasses.replace(old, run=windows), grown)


def test_a_run_that_was_begun_before_goes_on_with_the_data_that_it_began_with(small, grown, tiny, tmp_path):
    train(tiny, small, tmp_path / "calm")
    shutil.copytree(tmp_path / "calm", tmp_path / "late")
    shutil.rmtree(tmp_path / "late" / "checkpoints" / "step-000006")
    train(tiny, grown, tmp_path / "late")
    for name in (
        "checkpoints/step-000006/weights.safetensors",
        "metrics.jsonl",
        "checkpoints/step-000006/manifest.json",
    ):
        assert (tmp_path / "late" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()


# --- interrupted -----------------------------------------------------------------------------------------------------


def grow(path):
    """7 episodes become 12, in this process."""
    with durable.only_writer(path, "collect"):
        recipe = parts.start(path, make_recipe(episodes=12))
        for part in parts.missing_parts(path, recipe):
            parts.write_part(path, recipe, part, [make_episode(i, recipe) for i in recipe.part_episodes(part)])
        durable.remove_leftovers(path)
        if not parts.is_finished(path, recipe):
            parts.finish(path, recipe)


def test_a_growth_crashed_before_any_durable_step_is_old_or_new_and_ends_with_the_same_bytes(tmp_path):
    write_dataset(tmp_path / "old", make_recipe(episodes=7))
    old, calm = Dataset.open(tmp_path / "old"), tmp_path / "calm"
    shutil.copytree(old.path, calm)
    grow(calm)
    new, seen = Dataset.open(calm).sha256, set()
    for at in itertools.count():
        path = shutil.copytree(old.path, tmp_path / f"crashed-{at}")
        with power_cut(at) as cut:
            grow(path)
        if not cut:
            break
        seen.add(Dataset.open(path).sha256)
        grow(path)
        assert content(path) == content(calm), f"crash before durable step {at}"
    assert at > 8
    assert seen <= {old.sha256, new}
    assert old.sha256 in seen


def test_a_dataset_on_its_way_is_read_as_it_was_and_goes_on_to_nothing_else(tmp_path):
    write_dataset(tmp_path, make_recipe(episodes=7))
    old = Dataset.open(tmp_path).sha256
    recipe = parts.start(tmp_path, make_recipe(episodes=12))
    parts.write_part(tmp_path, recipe, 3, [make_episode(i, recipe) for i in recipe.part_episodes(3)])
    assert Dataset.open(tmp_path).sha256 == old
    with pytest.raises(MismatchError, match=r"is on its way to 12 episodes, found `episodes` 20; finish it with"):
        parts.start(tmp_path, make_recipe(episodes=20))
    with pytest.raises(MismatchError, match=r"is on its way to 12 episodes, found `episodes` 7"):
        parts.start(tmp_path, make_recipe(episodes=7))


# --- refused ---------------------------------------------------------------------------------------------------------


def test_a_dataset_only_grows_and_only_when_it_is_finished(small, tmp_path):
    before = content(small.path)
    with pytest.raises(MismatchError, match="has 30 episodes and cannot have 29: a dataset only grows"):
        Collect("two-room", small.path, 29, **OPTIONS).do()
    with pytest.raises(MismatchError, match=r"source.seed: expected 1, found 0"):
        Collect("two-room", small.path, 50, seed=1, **OPTIONS).do()
    assert content(small.path) == before
    parts.start(tmp_path, make_recipe(episodes=7))
    with pytest.raises(MismatchError, match="is on its way to 7 episodes"):
        parts.start(tmp_path, make_recipe(episodes=12))


def rewrite_root(path, change):
    """Change the root's attributes and give them the right hash, as somebody who means harm would."""
    root = json.loads((path / layout.ROOT_FILE).read_text())
    change(root["attributes"])
    content = {key: value for key, value in root["attributes"].items() if key != "sha256"}
    root["attributes"]["sha256"] = durable.sha256_json(content)
    durable.write_json(path / layout.ROOT_FILE, root)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: root["lineage"][0].update(sha256="a" * 64), "lineage: aaaaaaaaaaaa is not the hash of its first"),
        (lambda root: root["lineage"].clear(), "counts that cannot be"),
        (lambda root: root["lineage"][0].update(action_mean=[0.0]), "action statistics of another dimension"),
        (lambda root: root["recipe"].update(stages=[50]), "counts that cannot be"),
        (lambda root: root["recipe"].update(stages=[-3]), "counts that cannot be"),
        (lambda root: root["recipe"].update(stages=[10**30]), "counts that cannot be"),
    ],
)
def test_a_lineage_that_is_not_true_is_found(grown, tmp_path, change, message):
    shutil.copytree(grown.path, tmp_path / "data")
    rewrite_root(tmp_path / "data", change)
    with pytest.raises(DamagedError, match=message):
        Dataset.open(tmp_path / "data")


def test_a_part_too_many_is_refused_unless_the_dataset_is_growing_to_it(grown, tmp_path):
    path = tmp_path / "data"
    shutil.copytree(grown.path, path)
    shutil.copytree(path / "part-00000", path / f"part-{grown.recipe.parts:05d}")
    with pytest.raises(DamagedError, match="does not belong to the dataset"):
        Dataset.open(path)


def test_recordings_that_a_dataset_grew_by_are_known_again():
    trained, grown = (layout.Recorded(state_fields="", file="a.hdf5", added=added) for added in (None, ("b.hdf5",)))
    other = layout.Recorded(state_fields="", file="b.hdf5")
    assert "episodes of b.hdf5" in _why_same_episodes(grown, other)
    assert "episodes of b.hdf5" in _why_same_episodes(other, grown)
    assert "episodes of a.hdf5" in _why_same_episodes(trained, grown)
    assert _why_same_episodes(trained, other) is None
    assert _why_same_episodes(*[layout.Recorded(state_fields="")] * 2) is None  # a program's, which nobody can name
