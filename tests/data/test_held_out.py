"""Held-out datasets: every episode is for evaluation, none was ever a training episode, and no model learns from it."""

import numpy as np
import pytest

from saltwm.data.split import held_out_episodes
from saltwm.data.stretches import CONTEXT
from saltwm.data.windows import Windows
from saltwm.diagnostics.probe import probe
from saltwm.disk.checkpoint import load
from saltwm.disk.durable import read_config
from saltwm.disk.layout import Recipe
from saltwm.evaluation.protocols import PROTOCOLS
from saltwm.evaluation.tasks import choose_tasks
from saltwm.ground.errors import UsageError
from saltwm.jobs.collect import Collect
from saltwm.jobs.diagnose import encode_stretches
from saltwm.jobs.inspection import info
from saltwm.jobs.job import spell
from saltwm.train import train


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    """As many episodes as the shared dataset has, and of the same seed."""
    path = tmp_path_factory.mktemp("held-out") / "data"
    return Collect("two-room", path, 60, image_size=16, frame_every=5, held_out=True, workers=1).do()


def test_no_episode_repeats_a_training_episode_even_with_the_same_seed(held_out, dataset):
    starts = {tuple(dataset.states(episode)[0]) for episode in range(len(dataset))}
    assert not starts & {tuple(held_out.states(episode)[0]) for episode in range(len(held_out))}


def test_every_episode_is_held_out_and_of_other_datasets_the_share_that_training_leaves(held_out, dataset):
    assert np.array_equal(held_out_episodes(held_out, 3072, 0.1), np.arange(60))
    assert len(held_out_episodes(dataset, 3072, 0.1)) == 6


def test_the_mark_is_shown_and_is_part_of_the_command_that_finishes_the_collection(held_out, dataset):
    assert (info(held_out).held_out, info(dataset).held_out) == (True, False)
    recipe = read_config(Recipe, held_out.path / "collection.json")
    assert spell(Collect.of(recipe, held_out.path)).endswith("--held-out")


def test_training_refuses_it_and_leaves_nothing_behind(held_out, tiny, tmp_path):
    with pytest.raises(UsageError, match="held out, its episodes are for evaluation alone"):
        train(tiny, held_out, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="held out"):
        Windows(held_out, frames=2, frameskip=5, split="window")


def test_tasks_come_from_all_of_its_episodes(held_out, dataset):
    clean, count = PROTOCOLS["clean"], 40
    chosen = choose_tasks(held_out, clean, count, 1, held_out_episodes(held_out, 3072, 0.1))
    assert len({task.episode for task in chosen.tasks}) == count
    with pytest.raises(UsageError, match="of 40 tasks fit in 6 episodes"):
        choose_tasks(dataset, clean, count, 1, held_out_episodes(dataset, 3072, 0.1))


def test_a_model_is_diagnosed_and_probed_on_all_of_it(held_out, run):
    model = load(run)
    latents, _ = encode_stretches(model, held_out, length=4, count=20, seed=0, index=0)
    assert latents.shape[:2] == (20, CONTEXT + 4)
    (position,) = probe(model, held_out, frames=600)  # fitted on one half, scored on the other
    assert position.r2 > 0.2
