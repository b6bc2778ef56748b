"""Windows: every legal one exactly once, batches as a function of (seed, step), and a clean split."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_datasets import make_recipe, write_dataset

from saltwm.data.batches import Batches
from saltwm.data.split import held_out_episodes
from saltwm.data.windows import Windows
from saltwm.disk.dataset import Dataset
from saltwm.ground.errors import ShapeError, UsageError


def brute_force(lengths, frames, frameskip, frame_every):
    span = (frames - 1) * frameskip
    return [(e, t) for e, n in enumerate(lengths) for t in range(0, n - span + 1, frame_every)]


@pytest.mark.parametrize(
    ("frames", "frameskip", "frame_every"), [(2, 1, 1), (3, 5, 1), (6, 5, 5), (3, 4, 2), (4, 2, 2)]
)
def test_the_windows_are_all_legal_starts_in_order(make_dataset, frames, frameskip, frame_every):
    lengths = [30, 4, 25, 26, 9, 10]
    dataset, _ = make_dataset(lengths=lengths, frame_every=frame_every)
    windows = Windows(dataset, frames, frameskip, validation_fraction=0.0)
    episodes, starts = windows.locate(np.arange(len(windows)))
    assert list(zip(episodes.tolist(), starts.tolist(), strict=True)) == brute_force(
        lengths, frames, frameskip, frame_every
    )


@pytest.mark.parametrize(("frameskip", "frame_every"), [(1, 1), (5, 1), (5, 5), (4, 2)])
def test_a_batch_holds_the_frames_and_the_actions_between_them(make_dataset, frameskip, frame_every):
    dataset, episodes = make_dataset(lengths=[30, 25, 22, 28], frame_every=frame_every)
    windows = Windows(dataset, frames=4, frameskip=frameskip)
    ids = np.random.default_rng(0).permutation(len(windows))[:12]
    batch = windows.batch(ids)
    assert batch.frames.shape == (12, 4, 8, 8, 3)
    assert batch.actions.shape == (12, 3, frameskip * 2)
    for frames, actions, episode, start in zip(batch.frames, batch.actions, *windows.locate(ids), strict=True):
        steps = start + frameskip * np.arange(4)
        assert np.array_equal(frames, episodes[episode].frames[steps // frame_every])
        for block, step in zip(actions, steps, strict=False):
            assert np.array_equal(block.reshape(frameskip, 2), episodes[episode].actions[step : step + frameskip])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**40), batch_size=st.integers(1, 40))
def test_an_epoch_visits_windows_without_replacement_and_the_next_in_another_order(shared_windows, seed, batch_size):
    steps = len(shared_windows.train) // batch_size
    epochs = [
        np.concatenate([shared_windows.training_ids(seed, e * steps + i, batch_size) for i in range(steps)])
        for e in range(2)
    ]
    for ids in epochs:
        assert len(set(ids.tolist())) == steps * batch_size
        assert set(ids.tolist()) <= set(shared_windows.train.tolist())
    assert steps * batch_size < 5 or not np.array_equal(*epochs)


@pytest.fixture(scope="module")
def shared_windows(tmp_path_factory):
    path = tmp_path_factory.mktemp("windows") / "data"
    write_dataset(path, make_recipe(episodes=10))
    return Windows(Dataset.open(path), frames=2, frameskip=2)


def test_a_step_is_a_function_of_seed_and_step_alone(shared_windows):
    dataset = shared_windows.dataset
    forwards = [shared_windows.training_ids(1, step, 8).tolist() for step in range(40)]
    fresh = Windows(dataset, frames=2, frameskip=2)
    backwards = [fresh.training_ids(1, step, 8).tolist() for step in reversed(range(40))]
    assert forwards == backwards[::-1]
    assert forwards[3] != shared_windows.training_ids(2, 3, 8).tolist()


def test_the_episode_split_shares_no_episode_and_the_window_split_says_that_it_does(make_dataset):
    dataset, _ = make_dataset(episodes=20)
    split = Windows(dataset, frames=2, frameskip=1, validation_fraction=0.25)
    sides = [set(split.locate(ids)[0].tolist()) for ids in (split.train, split.validation)]
    assert not sides[0] & sides[1]
    assert sides[1] == set(split.validation_episodes.tolist())
    assert len(split.validation_episodes) == 5
    assert np.array_equal(split.validation_episodes, held_out_episodes(dataset, 3072, 0.25))
    overlapping = Windows(dataset, frames=2, frameskip=1, split="window", validation_fraction=0.25)
    sides = [set(overlapping.locate(ids)[0].tolist()) for ids in (overlapping.train, overlapping.validation)]
    assert sides[0] & sides[1]
    assert overlapping.validation_episodes is None
    for windows in (split, overlapping):
        assert np.array_equal(np.sort(np.concatenate([windows.train, windows.validation])), np.arange(len(windows)))


def test_validation_batches_are_the_same_every_time_and_wrap_around(shared_windows):
    count = len(shared_windows.validation)
    assert np.array_equal(shared_windows.validation_ids(1, 4), shared_windows.validation_ids(1, 4))
    assert set(shared_windows.validation_ids(0, count).tolist()) == set(shared_windows.validation.tolist())
    assert np.array_equal(shared_windows.validation_ids(1, count), shared_windows.validation_ids(0, count))


def test_batches_read_ahead_give_the_same_as_reading_one_by_one(shared_windows):
    stream = Batches(shared_windows, seed=3, first_step=2, last_step=9, batch_size=4)
    seen = dict(iter(stream))
    assert list(seen) == list(range(2, 9))
    for step, batch in seen.items():
        expected = shared_windows.batch(shared_windows.training_ids(3, step, 4))
        assert np.array_equal(batch.frames, expected.frames)
        assert np.array_equal(batch.actions, expected.actions)
    assert stream.waited >= 0.0


def test_ranks_share_the_global_batch_without_overlap(shared_windows):
    whole = dict(iter(Batches(shared_windows, 0, 0, 3, 6)))
    shares = [dict(iter(Batches(shared_windows, 0, 0, 3, 6, rank, 3))) for rank in range(3)]
    for step, batch in whole.items():
        assert np.array_equal(batch.actions, np.concatenate([share[step].actions for share in shares]))
        assert np.array_equal(batch.frames, np.concatenate([share[step].frames for share in shares]))
    with pytest.raises(UsageError, match="cannot be shared evenly"):
        Batches(shared_windows, 0, 0, 3, 5, 0, 2)


def test_reading_ahead_hides_the_reading_behind_the_work(shared_windows):
    stream = Batches(shared_windows, 0, 0, 12, 8)
    for _ in stream:
        time.sleep(0.02)
    assert stream.waited < 0.5 * 12 * 0.02


def test_impossible_windows_are_refused_with_the_reason(make_dataset):
    sparse, _ = make_dataset(frame_every=5, lengths=[20, 20])
    with pytest.raises(UsageError, match="frameskip must be a multiple of 5, found 4"):
        Windows(sparse, frames=2, frameskip=4)
    with pytest.raises(UsageError, match="need episodes of 25 steps, the longest has 20; train with fewer `starts`"):
        Windows(sparse, frames=6, frameskip=5)
    windows = Windows(sparse, frames=3, frameskip=5, validation_fraction=0.0)
    with pytest.raises(UsageError, match="fewer than a batch of 100"):
        windows.training_ids(0, 0, 100)
    with pytest.raises(UsageError, match="no validation window"):
        windows.validation_ids(0, 1)
    with pytest.raises(UsageError, match="window ids must be in"):
        windows.batch(np.array([len(windows)]))
    with pytest.raises(ShapeError):
        windows.batch(np.array([[0]]))
    with pytest.raises(UsageError, match="at least 2 frames"):
        Windows(sparse, frames=1, frameskip=5)
    with pytest.raises(UsageError, match="unknown split 'episodes'; did you mean 'episode'"):
        Windows(sparse, frames=3, frameskip=5, split="episodes")
