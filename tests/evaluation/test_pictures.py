"""Pictures: the recorded actions show the recorded episode, with what was promised at each replanning."""

import subprocess

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from saltwm.data.split import held_out_episodes
from saltwm.disk.film import write_film
from saltwm.disk.records import EpisodeRecord, PlanRecord
from saltwm.envs import make_env
from saltwm.evaluation.protocols import PROTOCOLS
from saltwm.evaluation.rollout import run_tasks
from saltwm.evaluation.tasks import choose_tasks
from saltwm.ground.errors import UsageError
from saltwm.jobs.pictures import caption, play, replay, thinned
from saltwm.planning.policy import RandomPolicy


@pytest.fixture(scope="module")
def played(dataset):
    tasks = choose_tasks(dataset, PROTOCOLS["clean"], 2, 1, held_out_episodes(dataset, 3072, 0.5))
    env = make_env("two-room", image_size=16)
    return tasks, run_tasks(env, tasks.protocol, list(tasks.tasks), RandomPolicy([-1, -1], [1, 1], steps=25), 5)[1]


def test_a_replay_ends_where_the_episode_ended(played):
    tasks, outcome = played
    seen = replay(make_env("two-room"), tasks.tasks[1], outcome)
    assert len(seen.frames) == len(seen.distances) == outcome.record.steps_taken + 1
    assert seen.distances[0] == outcome.record.start_distance
    assert seen.distances[-1] == outcome.record.final_distance
    assert min(seen.distances) == outcome.record.closest_distance


def test_an_episode_is_played_as_gif_and_as_mp4_with_a_strip(played, tmp_path):
    tasks, outcome = played
    for kind in ("gif", "mp4"):
        moving, strip = play(tasks, outcome, tmp_path, kind)
        assert moving.name == f"task-001-{outcome.record.reason}.{kind}"
        with Image.open(strip) as picture:
            assert picture.size == (7 * 160 + 5 * 4 + 16, 160)
    with Image.open(tmp_path / f"task-001-{outcome.record.reason}.gif") as gif:
        assert gif.n_frames <= outcome.record.steps_taken + 1  # equal neighbours are stored once
        assert gif.info["loop"] == 0
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(moving), "-f", "null", "-"]
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""


def test_the_caption_tells_the_plan_in_force():
    plans = (PlanRecord(0, (0.9, 0.2)), PlanRecord(25, (0.8, 0.01)))
    record = EpisodeRecord(0, False, None, 50, "budget", 4.0, 3.0, 2.0, plans)
    assert caption(record, 24, 1.5, 50) == (
        "step 24 of 50   1.50 radii from the goal",
        "plan 1: cost 0.9 before search, 0.2 promised",
    )
    assert caption(record, 25, 1.5, 50)[1] == "plan 2: cost 0.8 before search, 0.01 promised"
    blind = EpisodeRecord(0, False, None, 50, "budget", 4.0, 3.0, 2.0, (PlanRecord(0, ()),))
    assert caption(blind, 3, 1.5, 50)[1] == "acts without predicting"


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"\.gif or \.mp4"):
        write_film(tmp_path / "x.webp", [np.zeros((4, 4, 3), np.uint8)])


@pytest.mark.parametrize("length", [1, 51, 80, 81, 160, 301])
def test_a_long_film_shows_fewer_steps_and_always_the_last(length):
    frames = [np.full((2, 2, 3), step % 256) for step in range(length)]
    shown = thinned(frames, most=80)
    assert min(length, 41) <= len(shown) <= 80
    assert shown[-1] is frames[-1]
    steps = [next(i for i, frame in enumerate(frames) if frame is one) for one in shown]
    assert len(set(np.diff(steps).tolist())) <= 1  # evenly
    assert length > 80 or len(shown) == length


def test_a_small_thing_keeps_its_colour_in_a_gif(tmp_path):
    """Eight red pixels on a background of many greys, which alone would fill the palette."""
    noise = np.random.default_rng(0).integers(0, 200, (60, 60, 1)).astype(np.uint8).repeat(3, axis=2)
    frames = [noise.copy() for _ in range(4)]
    for step, frame in enumerate(frames):
        frame[20:22, 10 * step : 10 * step + 4] = (200, 20, 30)
    write_film(tmp_path / "film.gif", frames)
    with Image.open(tmp_path / "film.gif") as film:
        film.seek(3)
        red, green, _ = np.array(film.convert("RGB"))[20, 31].astype(int)
    assert red > 150
    assert green < 70
