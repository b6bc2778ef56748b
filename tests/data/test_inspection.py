"""Statistics against values counted by hand, and pictures that can be opened."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image
from small_datasets import make_recipe

from saltwm.disk import dataset_writer as parts
from saltwm.disk.dataset import Dataset
from saltwm.disk.layout import Episode
from saltwm.ground.errors import UsageError
from saltwm.jobs.collect import Collect
from saltwm.jobs.inspection import info, look_at, plot_stats, preview, stats
from saltwm.report.figures import BLUE


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    return Collect(
        "two-room", tmp_path_factory.mktemp("inspect") / "data", 8, image_size=16, workers=1, frame_every=5
    ).do()


def to_rgb8(colour):
    return tuple(round(255 * part) for part in to_rgb(colour))


def straight_walk(tmp_path, speed):
    """One episode that moves `speed` units to the right in each of 40 steps."""
    recipe = replace(make_recipe(episodes=1), state_dim=2)
    states = np.stack([21.0 + speed * np.arange(41), np.full(41, 100.0)], axis=1)
    actions = np.zeros((40, 2), np.float32)
    actions[:10, 0] = 1.0
    tmp_path.mkdir(exist_ok=True)
    parts.start(tmp_path, recipe)
    parts.write_part(tmp_path, recipe, 0, [Episode(np.zeros((41, 8, 8, 3), np.uint8), actions, states)])
    parts.finish(tmp_path, recipe)
    return Dataset.open(tmp_path)


def test_info_says_what_was_collected(collected):
    facts = info(collected)
    assert (facts.episodes, facts.steps, facts.frame_every) == (8, int(collected.lengths.sum()), 5)
    assert facts.frames == int((collected.lengths // 5 + 1).sum())
    assert facts.source == {"kind": "collect", "policy": "expert", "seed": 0}
    assert facts.bytes_on_disk > 1000


def test_a_straight_walk_has_the_statistics_of_a_straight_walk(tmp_path):
    found = stats(look_at(straight_walk(tmp_path, speed=2.0), 10))
    assert found.pairs == 31
    assert found.distance == pytest.approx([20 / 16] * 5)
    assert found.solved_share == 0.0
    (field,) = found.fields
    assert field.motion == pytest.approx([20.0] * 5)
    assert field.moving_share == 1.0
    assert field.coverage == pytest.approx(16 / 256)  # one row of the map
    assert found.action_at_bound_share == pytest.approx(10 / 80)
    assert found.action_mean == pytest.approx((0.25, 0.0))


def test_pairs_that_are_already_solved_are_counted(tmp_path):
    assert stats(look_at(straight_walk(tmp_path / "slow", speed=1.5), 10)).solved_share == 1.0
    assert stats(look_at(straight_walk(tmp_path / "fast", speed=1.7), 10)).solved_share == 0.0


def test_a_dataset_that_stands_still_is_seen_to(tmp_path):
    (field,) = stats(look_at(straight_walk(tmp_path, speed=0.0), 10)).fields
    assert field.moving_share == 0.0
    assert field.coverage == pytest.approx(1 / 256)


def test_too_long_an_offset_is_refused(tmp_path):
    with pytest.raises(UsageError, match="expected an episode of 41 steps, found none"):
        look_at(straight_walk(tmp_path, speed=1.0), 41)


def test_pictures_open_and_have_the_frames_in_them(collected, tmp_path):
    plot_stats(look_at(collected), tmp_path / "stats.png")
    with Image.open(tmp_path / "stats.png") as figure:
        assert figure.size[0] > 300
        colours = {tuple(pixel[:3]) for pixel in np.asarray(figure.convert("RGB")).reshape(-1, 3).tolist()}
        assert to_rgb8(BLUE) in colours  # the report's colours, and none of matplotlib's own
        assert not {to_rgb8(f"tab:{name}") for name in ("blue", "orange", "green", "purple")} & colours
    made = preview(collected, tmp_path / "preview", episodes=3, frames=4)
    with Image.open(made.contact_sheet) as sheet, Image.open(made.animation) as film:
        assert sheet.size == (4 * 116, 3 * 116)
        first = collected.read_frames(np.array([0]), np.array([0]))[0]
        assert np.array_equal(np.asarray(sheet)[2:114:7, 2:114:7], first)
        assert film.n_frames == collected.lengths[0] // 5 + 1


def test_pictures_do_not_go_into_the_dataset(collected):
    with pytest.raises(UsageError, match="choose another directory"):
        preview(collected, collected.path)


def test_numbers_that_count_nothing_are_refused(collected, tmp_path):
    for offset in (0, -5):
        with pytest.raises(UsageError, match=f"offset_steps must be at least 1, found {offset}"):
            look_at(collected, offset)
    with pytest.raises(UsageError, match="episodes to look at must be at least 1, found 0"):
        look_at(collected, max_episodes=0)
    for nothing in ({"episodes": 0}, {"frames": 0}):
        with pytest.raises(UsageError, match="must be at least 1, found 0"):
            preview(collected, tmp_path / "pictures", **nothing)
    assert not (tmp_path / "pictures").exists()
