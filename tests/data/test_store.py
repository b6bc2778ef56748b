"""The store gives back what was written, says what is missing, and is a Zarr v3 group to everybody else."""

import dataclasses
import json
import resource
import shutil

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from small_datasets import make_episode, make_recipe

from saltwm.cli.advice import advice
from saltwm.disk import dataset_writer as parts
from saltwm.disk import durable, layout
from saltwm.disk.dataset import Dataset
from saltwm.ground.errors import (
    DamagedError,
    DiskError,
    MismatchError,
    NonFiniteError,
    SaltError,
    ShapeError,
    UsageError,
)


def test_it_gives_back_what_was_written(make_dataset):
    dataset, episodes = make_dataset()
    assert dataset.lengths.tolist() == [len(e.actions) for e in episodes]
    for index, episode in enumerate(episodes):
        assert np.array_equal(dataset.actions(index), episode.actions)
        assert np.array_equal(dataset.states(index), episode.states)
        steps = np.arange(len(episode.frames))
        assert np.array_equal(dataset.read_frames(np.full(len(steps), index), steps), episode.frames)


def test_frames_come_in_the_order_asked_for_across_parts(make_dataset):
    dataset, episodes = make_dataset()
    draw = np.random.default_rng(0)
    chosen = draw.integers(0, len(episodes), 200)
    steps = draw.integers(0, dataset.lengths[chosen] + 1)
    frames = dataset.read_frames(chosen, steps)
    assert all(np.array_equal(f, episodes[e].frames[s]) for f, e, s in zip(frames, chosen, steps, strict=True))
    assert dataset.read_frames(np.zeros(0, int), np.zeros(0, int)).shape == (0, 8, 8, 3)


def test_frames_cross_shards(make_dataset, monkeypatch):
    monkeypatch.setattr(layout, "MAX_SHARD_FRAMES", 16)
    dataset, episodes = make_dataset()
    assert len(list((dataset.path / "part-00000" / "frames").rglob("c/*"))) > 1
    for index, episode in enumerate(episodes):
        steps = np.arange(len(episode.frames))
        assert np.array_equal(dataset.read_frames(np.full(len(steps), index), steps), episode.frames)


def test_action_statistics_are_population_statistics_in_float64(make_dataset):
    dataset, episodes = make_dataset()
    actions = np.concatenate([e.actions for e in episodes]).astype(np.float64)
    assert np.array_equal(dataset.action_mean, actions.mean(axis=0))
    assert np.array_equal(dataset.action_std, actions.std(axis=0, ddof=0))


def test_only_stored_frames_can_be_asked_for(make_dataset):
    dataset, episodes = make_dataset(frame_every=5, lengths=[12, 20])
    assert [len(e.frames) for e in episodes] == [3, 5]
    assert np.array_equal(
        dataset.read_frames(np.array([0, 1]), np.array([10, 15])), [episodes[0].frames[2], episodes[1].frames[3]]
    )
    with pytest.raises(UsageError, match=r"episode 0 has no frame at step 4; stored are steps 0 to 12 in strides of 5"):
        dataset.read_frames(np.array([1, 0]), np.array([5, 4]))
    with pytest.raises(UsageError, match="no frame at step 15"):
        dataset.read_frames(np.array([0]), np.array([15]))
    with pytest.raises(UsageError, match="no episode 2; it has episodes 0 to 1"):
        dataset.read_frames(np.array([2]), np.array([0]))
    with pytest.raises(UsageError, match="no episode -1"):
        dataset.states(-1)


def test_any_zarr_v3_reader_can_read_it(make_dataset):
    dataset, episodes = make_dataset()
    group = zarr.open_group(dataset.path, mode="r")
    assert group.attrs["recipe"]["world"]["environment"] == "two-room"
    frames = group["part-00001/frames"][:]
    assert np.array_equal(frames, np.concatenate([e.frames for e in episodes[3:6]]))
    assert np.array_equal(group["part-00000/states"][:], np.concatenate([e.states for e in episodes[:3]]))
    assert group["part-00002/lengths"][:].tolist() == [len(episodes[6].actions)]


def test_the_same_episodes_give_the_same_bytes(make_dataset):
    first, second = make_dataset()[0], make_dataset()[0]
    assert durable.file_hashes(first.path) == durable.file_hashes(second.path)
    assert first.sha256 == second.sha256 != make_dataset(episodes=6)[0].sha256


@pytest.mark.parametrize("place", ["../{name}", "../{name}/../{name}", "./"])
def test_a_dataset_is_found_by_any_path_that_leads_to_it(make_dataset, monkeypatch, place):
    dataset, episodes = make_dataset()
    monkeypatch.chdir(dataset.path)
    found = Dataset.open(place.format(name=dataset.path.name))
    assert np.array_equal(found.read_frames(np.array([0]), np.array([0]))[0], episodes[0].frames[0])


def test_black_frames_and_zero_actions_are_stored_like_any_other(tmp_path):
    """Zarr leaves chunks of fill values out; here an absent chunk must always mean damage."""
    recipe = make_recipe(episodes=1)
    episode = layout.Episode(np.zeros((4, 8, 8, 3), np.uint8), np.zeros((3, 2), np.float32), np.zeros((4, 3)))
    parts.start(tmp_path, recipe)
    parts.write_part(tmp_path, recipe, 0, [episode])
    parts.finish(tmp_path, recipe)
    dataset = Dataset.open(tmp_path)
    assert not dataset.read_frames(np.zeros(4, int), np.arange(4)).any()
    next(file for file in (tmp_path / "part-00000" / "frames" / "c").rglob("*") if file.is_file()).unlink()
    with pytest.raises(DamagedError, match="missing, though manifest"):
        Dataset.open(tmp_path, verify="sizes")


# --- complete or not --------------------------------------------------------------------------------------------------


def test_an_incomplete_dataset_names_the_command_that_finishes_it(tmp_path):
    recipe = make_recipe()
    parts.start(tmp_path, recipe)
    parts.write_part(tmp_path, recipe, 1, [make_episode(i, recipe) for i in (3, 4, 5)])
    with pytest.raises(DamagedError, match=r"2 of 3 parts are missing") as error:
        Dataset.open(tmp_path)
    assert advice(error.value).endswith(f"finish it with: saltwm again {tmp_path}")
    assert parts.missing_parts(tmp_path, recipe) == [0, 2]


def test_a_missing_dataset_and_a_directory_of_another_kind_are_usage_errors(tmp_path):
    with pytest.raises(UsageError, match="no such dataset"):
        Dataset.open(tmp_path / "nothing")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UsageError, match=r"not a dataset.*neither zarr.json nor collection.json"):
        Dataset.open(tmp_path)


def test_a_directory_with_other_things_in_it_is_not_written_to(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UsageError, match=r"not empty \(it holds thesis.tex\)"):
        parts.start(tmp_path, make_recipe())
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_resume_with_other_options_names_each_differing_field(tmp_path):
    recipe = make_recipe()
    parts.start(tmp_path, recipe)
    parts.start(tmp_path, recipe)
    world = dataclasses.replace(recipe.world, image_size=16)
    other = dataclasses.replace(recipe, world=world, episodes=9, source=dataclasses.replace(recipe.source, seed=1))
    with pytest.raises(
        MismatchError,
        match=r"world.image_size: expected .*, found 8; episodes: expected 9, found 7; source.seed: .* found 0",
    ):
        parts.start(tmp_path, other)


@pytest.mark.parametrize("limit", [200, 1000, 3000, 6000])
def test_a_full_disk_is_said_so_and_leaves_no_half_part(tmp_path, limit):
    recipe = make_recipe()
    parts.start(tmp_path, recipe)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(DiskError, match="part-00000: cannot write"):
            parts.write_part(tmp_path, recipe, 0, [make_episode(i, recipe) for i in range(3)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [file.name for file in tmp_path.iterdir()] == ["collection.json"]
    parts.write_part(tmp_path, recipe, 0, [make_episode(i, recipe) for i in range(3)])


# --- at the door ------------------------------------------------------------------------------------------------------


def corrupted(episode, field, place, value):
    values = getattr(episode, field).copy()
    values[place] = value
    return dataclasses.replace(episode, **{field: values})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", ["actions", "states"])
def test_non_finite_values_are_refused_with_episode_step_and_field(tmp_path, field, value):
    recipe = make_recipe(episodes=3)
    episodes = [make_episode(i, recipe) for i in range(3)]
    episodes[2] = corrupted(episodes[2], field, (4, 1), value)
    with pytest.raises(NonFiniteError, match=rf"{tmp_path}: episode 2, step 4: {field[:-1]} is {value} in dimension 1"):
        parts.write_part(tmp_path, recipe, 0, episodes)
    assert list(tmp_path.iterdir()) == []


MISSHAPEN = {
    "actions in float64": lambda e: dataclasses.replace(e, actions=e.actions.astype(np.float64)),
    "an action too few": lambda e: dataclasses.replace(e, actions=e.actions[1:]),
    "no action": lambda e: layout.Episode(e.frames[:1], e.actions[:0], e.states[:1]),
    "an action dimension more": lambda e: dataclasses.replace(e, actions=np.zeros((len(e.actions), 3), np.float32)),
    "states in float32": lambda e: dataclasses.replace(e, states=e.states.astype(np.float32)),
    "a state too many": lambda e: dataclasses.replace(e, states=np.concatenate([e.states, e.states[:1]])),
    "a flat state": lambda e: dataclasses.replace(e, states=e.states[:, 0]),
    "float frames": lambda e: dataclasses.replace(e, frames=e.frames / 255.0),
    "a frame too few": lambda e: dataclasses.replace(e, frames=e.frames[1:]),
    "frames of another size": lambda e: dataclasses.replace(e, frames=np.zeros((len(e.frames), 8, 9, 3), np.uint8)),
    "grey frames": lambda e: dataclasses.replace(e, frames=e.frames[..., :1]),
}


@pytest.mark.parametrize("kind", MISSHAPEN)
def test_misshapen_episodes_are_refused_with_episode_and_field(tmp_path, kind):
    recipe = make_recipe(episodes=2)
    episodes = [make_episode(0, recipe), MISSHAPEN[kind](make_episode(1, recipe))]
    with pytest.raises(ShapeError, match=rf"{tmp_path}: episode 1: (action|state|frame): expected"):
        parts.write_part(tmp_path, recipe, 0, episodes)
    assert list(tmp_path.iterdir()) == []


def rewritten_root(path, change):
    """A root that hashes correctly but says something else: what a wrong writer would make."""
    root = json.loads((path / "zarr.json").read_text())
    attributes = root["attributes"]
    del attributes["sha256"]
    change(attributes)
    attributes["sha256"] = durable.sha256_json(attributes)
    durable.write_json(path / "zarr.json", root)
    durable.write_json(path / "collection.json", attributes["recipe"])


def republished(path, array, values):
    """Replace an array of part 0 and its hashes: what a writer without a door would make."""
    part = path / "part-00000"
    shutil.rmtree(part / array)
    parts.write_table(part / array, values)
    durable.write_json(part / durable.MANIFEST, durable.file_hashes(part))
    digest = durable.sha256(part / durable.MANIFEST)
    rewritten_root(path, lambda attributes: attributes["parts"][0].update(manifest_sha256=digest))


@pytest.mark.parametrize(("array", "field"), [("actions", "action"), ("states", "state")])
def test_a_dataset_written_with_a_nan_is_refused_at_opening(make_dataset, array, field):
    dataset, episodes = make_dataset()
    values = np.concatenate([getattr(e, array) for e in episodes[:3]])
    row = len(getattr(episodes[0], array)) + 2
    values[row, 1] = np.nan
    republished(dataset.path, array, values)
    with pytest.raises(NonFiniteError, match=f"episode 1, step 2: {field} is nan in dimension 1"):
        Dataset.open(dataset.path)


@pytest.mark.parametrize("array", ["actions", "states", "lengths"])
def test_a_dataset_written_with_other_shapes_or_types_is_refused_at_opening(make_dataset, array):
    dataset, _ = make_dataset()
    values = {"lengths": np.ones(3, np.int64)}.get(array, np.zeros((5, 2), np.float64))
    republished(dataset.path, array, values)
    with pytest.raises(SaltError, match=f"part-00000/{array}"):
        Dataset.open(dataset.path)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a["recipe"].update(episodes=10**12),
        lambda a: a["recipe"].update(episodes_per_part=0),
        lambda a: a["recipe"].update(frame_every=-1),
        lambda a: a["recipe"]["world"].update(image_size=10**9),
        lambda a: a["recipe"]["world"].update(action_dim=0),
        lambda a: a.update(action_mean=[0.0]),
        lambda a: a.update(action_std=[1.0, 1.0]),
        lambda a: a.update(format="another"),
        lambda a: a.update(format_version=2),
        lambda a: a.update(parts=[]),
        lambda a: a.update(extra="_target_"),
        lambda a: a.pop("versions"),
    ],
)
def test_roots_that_cannot_be_are_refused(make_dataset, change):
    dataset, _ = make_dataset()
    rewritten_root(dataset.path, change)
    with pytest.raises(SaltError):
        Dataset.open(dataset.path)


def test_a_chunk_that_fails_its_checksum_names_file_and_episode(make_dataset):
    """`sizes` does not hash; the chunk's own checksum still refuses the frame."""
    dataset, episodes = make_dataset()
    shard = next(f for f in (dataset.path / "part-00001" / "frames" / "c").rglob("*") if f.is_file())
    data = bytearray(shard.read_bytes())
    data[len(episodes[3].frames) * 190 + 60] ^= 0xFF  # some frame of the part; incompressible ones are about 200 bytes
    shard.write_bytes(bytes(data))
    reopened = Dataset.open(dataset.path, verify="sizes")
    everything = [(e, s) for e in (3, 4, 5) for s in range(reopened.lengths[e] + 1)]
    chosen, steps = np.array(everything).T
    with pytest.raises(DamagedError, match=r"part-00001/frames: frames of episode [345] cannot be read"):
        reopened.read_frames(chosen, steps)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_garbage_in_the_root_is_a_salt_error(tmp_path_factory, garbage):
    path = tmp_path_factory.mktemp("garbage")
    (path / "zarr.json").write_bytes(garbage)
    (path / "collection.json").write_bytes(garbage)
    with pytest.raises(SaltError):
        Dataset.open(path)
