"""What is shipped is collected again byte for byte, on processors with AVX-512 and without it."""

from pathlib import Path

import numpy as np
import pytest

import saltwm
from saltwm.jobs.shelf import held_out_data
from saltwm.processes.pool import same_arithmetic

pytestmark = pytest.mark.skipif(not same_arithmetic(), reason="the shipped data were made by a processor with AVX2")


@pytest.mark.usefixtures("spawned_workers")  # numpy reads its settings when it is imported, and a fork has it
@pytest.mark.parametrize("environment", ["two-room", "reacher", "push-t", "cube"])
def test_the_first_shipped_episode_is_collected_again_byte_for_byte(environment: str, tmp_path: Path) -> None:
    shipped = saltwm.Dataset.open(f"{environment}-data")
    world = shipped.world
    job = held_out_data(environment, world.image_size, world.render, tmp_path / "again")
    again = type(job)(**{**vars(job), "episodes": 1, "workers": 1}).do()
    assert np.array_equal(again.states(0), shipped.states(0))
    assert np.array_equal(again.actions(0), shipped.actions(0))
    steps = np.arange(0, len(shipped.actions(0)), 5)
    frames = [data.read_frames(np.zeros_like(steps), steps) for data in (again, shipped)]
    assert np.array_equal(*frames)
