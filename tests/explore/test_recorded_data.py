"""Worlds that are known from recordings alone: their episodes, latents and rollouts are shown, nothing is simulated."""

import itertools

import numpy as np
import pytest
from small_runs import write_run

from saltwm.envs.base import StateField
from saltwm.explore import recorded
from saltwm.explore.desk import Desk
from saltwm.explore.folders import find_places
from saltwm.explore.worker import answer
from saltwm.interop.recordings import write_dataset

STEPS, EVERY = 30, 5


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model and a dataset of a robot that nobody here can simulate."""
    root, rng = tmp_path_factory.mktemp("robot"), np.random.default_rng(0)
    episodes = [
        {
            "frames": rng.integers(0, 256, (STEPS + 1, 16, 16, 3), dtype=np.uint8),
            "actions": rng.normal(size=(STEPS, 2)).astype(np.float32),
            "states": rng.normal(size=(STEPS + 1, 3)),
        }
        for _ in range(3)
    ]
    dataset = write_dataset(root / "robot-data", episodes, name="robot", image_size=16, frame_every=EVERY)
    write_run(root / "robot-model", world=dataset.world)
    return [root / "robot-data", root / "robot-model"]


@pytest.fixture(scope="module")
def desk(folders):
    return Desk(find_places(folders))


def ask(desk, question, **options):
    found = answer(desk, question, options)
    assert "error" not in found.header, found.header["error"]
    return found


def blocks_of(desk, count, episode=1, step=5):
    actions = ask(desk, "recorded", dataset="robot-data", episode=episode).header["actions"]
    return [np.reshape(actions[step + k * 5 : step + (k + 1) * 5], -1).tolist() for k in range(count)]


def imagine(desk, blocks, question="imagine"):
    return ask(desk, question, model="robot-model", state=[], episode=1, step=5, blocks=blocks)


def test_a_recording_is_listed_and_its_episodes_are_shown(desk):
    catalogue = ask(desk, "catalogue").header
    assert [entry["simulated"] for entry in catalogue["models"] + catalogue["datasets"]] == [False, False]
    assert ask(desk, "dataset", dataset="robot-data").header["facts"]["episodes"] == 3
    episode = ask(desk, "recorded", dataset="robot-data", episode=2)
    assert len(episode.blobs) == STEPS // EVERY + 1
    assert ask(desk, "gallery", model="robot-model").header["frames"] == 3 * (STEPS // EVERY + 1)


def test_the_parts_of_a_state_have_the_names_that_the_dataset_says(desk, tmp_path):
    named = (StateField("arm", 0, 2), StateField("grip", 2, 3, "N"))
    episode = {"frames": np.zeros((3, 8, 8, 3), np.uint8), "actions": np.zeros((2, 1)), "states": np.zeros((3, 3))}
    write_dataset(tmp_path / "named", [episode], name="robot", image_size=8, fields=named, action_names=("lift",))
    other = Desk(find_places([tmp_path / "named"]))
    for header in (
        ask(other, "dataset", dataset="named").header,
        ask(other, "recorded", dataset="named", episode=0).header,
    ):
        assert header["action_names"] == ["lift"]
        found = [(field["name"], field["start"], field["stop"], field["unit"]) for field in header["fields"]]
        assert found == [("arm", 0, 2, ""), ("grip", 2, 3, "N")]
    unnamed = ask(desk, "dataset", dataset="robot-data").header["fields"]
    assert unnamed == [{"name": "state", "start": 0, "stop": 3, "unit": ""}]


def test_an_episode_of_countless_numbers_is_not_made_into_text(tmp_path, monkeypatch):
    """A small file holds any number of zeros, and as text each takes fifty times its room."""
    steps, still = 30_000, np.zeros((8, 8, 3), np.uint8)
    episode = {"frames": itertools.repeat(still, steps + 1), "actions": np.zeros((steps, 64))}
    write_dataset(tmp_path / "long", [episode], name="robot", image_size=8, frame_every=steps)
    desk = Desk(find_places([tmp_path / "long"]))
    assert ask(desk, "dataset", dataset="long").header["facts"]["steps"] == steps
    monkeypatch.setattr(recorded, "MOST_NUMBERS", 10**6)
    refusal = answer(desk, "recorded", {"dataset": "long", "episode": 0}).header["error"]
    assert "episode 0 has 30000 steps with 1950001 numbers, at most 1000000 are shown" in refusal
    monkeypatch.setattr(recorded, "MOST_NUMBERS", 1_950_001)
    assert "error" not in answer(desk, "recorded", {"dataset": "long", "episode": 0}).header


def test_recorded_actions_are_imagined_beside_the_stored_frames(desk):
    found = imagine(desk, blocks_of(desk, 5))
    assert found.header["pictures"] == 5
    stored = ask(desk, "recorded", dataset="robot-data", episode=1).blobs
    assert found.blobs[2:7] == stored[2:7]  # of steps 10 to 30
    assert all(error > 0 for error in found.header["errors"])


def test_what_other_actions_do_is_said_to_be_unknown(desk):
    blocks = blocks_of(desk, 4)
    blocks[2][3] += 0.5
    found = imagine(desk, blocks).header
    assert found["pictures"] == len(found["errors"]) == 2  # the blocks before the change
    assert imagine(desk, blocks, "decompose").header["blocks"] == 2
    blocks[0][0] += 0.5
    assert imagine(desk, blocks).header["pictures"] == 0
    assert imagine(desk, blocks, "decompose").header == {"blocks": 0}


def test_the_recording_ends_where_it_ends(desk):
    assert imagine(desk, [*blocks_of(desk, 5), [0.0] * 10]).header["pictures"] == 5


def test_shares_of_a_recorded_rollout_add_up(desk):
    found = imagine(desk, blocks_of(desk, 4), "decompose").header
    assert sum(found["shares"]) == pytest.approx(1)
    assert found["rho"] < 1e-9


def test_nobody_acts_in_a_world_without_a_simulator(desk):
    options = {"model": "robot-model", "state": [0.0] * 3}
    assert "no simulator" in answer(desk, "draw", options).header["error"]
    assert ask(desk, "scene", model="robot-model").header["simulated"] is False


def test_a_recorded_evaluation_without_a_simulator_is_told_in_figures(results, tmp_path):
    import json
    import shutil

    root = shutil.copytree(results, tmp_path / "results")
    cell = root / "evaluations/two-room-salt-clean-seed1"
    evaluation = json.loads((cell / "evaluation.json").read_text())
    (cell / "evaluation.json").write_text(json.dumps(evaluation | {"environment": "robot"}))
    desk = Desk(find_places([root]))
    listed = ask(desk, "episodes", results="results").header["cells"]
    assert {entry["environment"]: entry["simulated"] for entry in listed} == {"robot": False, "two-room": True}
    found = ask(desk, "episode", results="results", cell=cell.name, task=1)
    assert found.blobs == []
    assert len(found.header["told"]) == 3
    assert found.header["plans"]
