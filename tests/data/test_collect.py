"""Collection: episodes are functions of (seed, index), whoever makes them and in whatever order."""

from pathlib import Path

import numpy as np
import pytest

from saltwm.cli import main, parse
from saltwm.disk import durable
from saltwm.disk.durable import read_config
from saltwm.disk.layout import Collected, Recipe, check_episode
from saltwm.envs import ENVIRONMENTS, env_class, make_env
from saltwm.ground.errors import LockedError, MismatchError, SaltError, UsageError
from saltwm.jobs import collect as collecting
from saltwm.jobs.collect import Collect, collect_episode
from saltwm.jobs.data import maker
from saltwm.jobs.job import spell

OPTIONS = {"episodes": 7, "image_size": 16, "episodes_per_part": 2, "seed": 5}


def content(path):
    return {name: entry for name, entry in durable.file_hashes(path).items() if name != ".lock"}


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    return Collect("two-room", tmp_path_factory.mktemp("collect") / "data", workers=2, **OPTIONS).do()


def test_the_stored_episodes_are_those_of_the_environment(collected):
    env = make_env("two-room", image_size=16)
    for index in range(7):
        episode = collect_episode(env, collected.recipe, index)
        assert np.array_equal(collected.states(index), episode.states)
        assert np.array_equal(collected.actions(index), episode.actions)
        steps = np.arange(len(episode.frames))
        assert np.array_equal(collected.read_frames(np.full(len(steps), index), steps), episode.frames)


def test_a_frame_is_the_picture_of_its_state_and_actions_lead_from_state_to_state(collected):
    env = make_env("two-room", image_size=16, variant=collected.variant)
    states, actions = collected.states(3), collected.actions(3)
    env.restore(states[0])
    for step, action in enumerate(actions):
        assert np.array_equal(env.render(), collected.read_frames(np.array([3]), np.array([step]))[0])
        assert np.array_equal(env.step(action)[0], states[step + 1])


def test_the_number_of_workers_changes_no_byte(collected, tmp_path):
    alone = Collect("two-room", tmp_path / "data", workers=1, **OPTIONS).do()
    assert content(alone.path) == content(collected.path)


def test_sparse_frames_are_every_nth_of_the_dense_ones(collected, tmp_path):
    sparse = Collect("two-room", tmp_path / "data", workers=1, frame_every=5, **OPTIONS).do()
    for index in range(3):
        assert np.array_equal(sparse.states(index), collected.states(index))
        steps = np.arange(0, sparse.lengths[index] + 1, 5)
        episodes = np.full(len(steps), index)
        assert np.array_equal(sparse.read_frames(episodes, steps), collected.read_frames(episodes, steps))


def test_a_finished_collection_is_opened_not_made_again(collected):
    before = content(collected.path)
    again = Collect("two-room", collected.path, workers=2, **OPTIONS).do()
    assert again.sha256 == collected.sha256
    assert content(collected.path) == before


def test_other_options_in_the_same_place_are_refused(collected):
    with pytest.raises(MismatchError, match=r"source.seed: expected 6, found 5"):
        Collect("two-room", collected.path, **{**OPTIONS, "seed": 6}).do()
    with pytest.raises(MismatchError, match=r"variant: expected 'paper', found 'clean'"):
        Collect("two-room", collected.path, physics="benchmark", **OPTIONS).do()


def test_a_second_collector_is_refused_naming_the_first(tmp_path):
    with durable.only_writer(tmp_path, "collect"), pytest.raises(LockedError, match="saltwm collect"):
        Collect("two-room", tmp_path, **OPTIONS).do()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episodes": 0}, "episodes must be at least 1"),
        ({"image_size": 0}, "image_size must be at least 1"),
        ({"frame_every": 0}, "frame_every must be at least 1"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"policy": "exprt"}, "did you mean 'expert'"),
    ],
)
def test_impossible_requests_are_refused_before_anything_is_written(tmp_path, changes, message):
    with pytest.raises(UsageError, match=message):
        Collect("two-room", tmp_path / "data", **{**OPTIONS, **changes}).do()
    assert not (tmp_path / "data").exists()
    with pytest.raises(UsageError, match="did you mean 'two-room'"):
        Collect("two-rom", tmp_path / "data", 1).do()


def test_a_dataset_s_file_is_its_command(collected):
    job = maker(collected.path)
    words = (
        f"saltwm collect two-room --out {collected.path} --episodes 7 --seed 5 --image-size 16 --episodes-per-part 2"
    )
    assert spell(job) == words
    assert parse(words.split()[1:]) == job
    assert job.recipe() == collected.recipe


def test_again_repeats_a_dataset_byte_for_byte(collected, tmp_path):
    main(["again", str(collected.path), "--out", str(tmp_path / "data")])
    assert content(tmp_path / "data") == content(collected.path)


@pytest.mark.parametrize("shipped", ["two-room", "reacher", "push-t", "cube"])
def test_the_job_of_a_shipped_dataset_gives_its_recipe(shipped):
    path = Path(__file__).parents[2] / "checkpoints" / f"{shipped}-data"
    recipe = read_config(Recipe, path / "collection.json")
    assert maker(path).recipe() == recipe


def test_an_error_in_a_worker_arrives_with_its_kind_and_message(tmp_path):
    recipe = Recipe(make_env("two-room").world, "clean", 2, 4, 1, 2, Collected(policy="nobody", seed=0))
    with pytest.raises(UsageError, match="unknown two-room policy 'nobody'"):
        collecting._collect_missing(tmp_path, recipe, workers=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("spawned_workers")
def test_a_bug_in_a_worker_is_reported_as_its_death(tmp_path, capfd):
    recipe = Recipe(make_env("two-room").world, "clean", 2, 4, 1, 2, Collected(policy="expert", seed="x"))
    with pytest.raises(SaltError, match=r"a worker died \(exit code 1\), 3 times in a row"):
        collecting._collect_missing(tmp_path, recipe, workers=1)
    assert "invalid literal" in capfd.readouterr().err


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_episode_of_any_environment_does_not_depend_on_what_the_worker_made_before(name, monkeypatch):
    """What P04 rests on: after a kill, another process makes the same episode again."""
    monkeypatch.setattr(env_class(name), "max_episode_steps", 15)
    made = []
    for before in ([], [0]):
        env = make_env(name, image_size=16)
        source = Collected(policy=env.policies[0], seed=0)
        recipe = Recipe(env.world, "clean", env.state_dim, 2, 5, 2, source)
        made.append([collect_episode(env, recipe, index) for index in (*before, 1)][-1])
        env.close()
    fresh, used = made
    check_episode("here", 1, fresh, recipe)
    assert np.array_equal(fresh.states, used.states)
    assert np.array_equal(fresh.actions, used.actions)
    assert np.array_equal(fresh.frames, used.frames)
    assert fresh.frames.shape == (4, 16, 16, 3)
