"""What many tests share: a small Two-Room dataset, a tiny configuration and a run trained with it for a few steps."""

import dataclasses
import multiprocessing
import signal

import pytest
import torch
from forked import Forked

from saltwm.ground.config import (
    AffineConfig,
    EncoderConfig,
    ModelConfig,
    ObjectiveConfig,
    RunConfig,
    TrainConfig,
    TransformerConfig,
)

torch.set_num_threads(1)
# The background job of a shell ignores Ctrl-C, and so would every process that a test starts in order to interrupt it.
signal.signal(signal.SIGINT, signal.default_int_handler)

TINY = RunConfig(
    preset="tiny",
    model=ModelConfig(
        latent_dim=16,
        encoder=EncoderConfig(kind="conv", channels=(8, 16), width=24, projection_dim=32),
        affine=AffineConfig(modes=2),
        transformer=TransformerConfig(depth=1, heads=2, head_dim=8, mlp_dim=32, projection_dim=32),
    ),
    objective=ObjectiveConfig(sigreg_weight=0.3, sigreg_projections=16),
    train=TrainConfig(batch_size=8, steps=6, learning_rate=1e-3, validate_every=2, save_every=2, validation_batches=1),
)


HEAVY_FIRST = (
    "test_on_ray.py",
    "test_verbs.py",
    "test_evaluation_promises.py",
    "test_many_devices.py",
    "test_training_promises.py",
    "test_data_promises.py",
    "test_browser.py",
    "test_growing_runs.py",
    "test_study.py",
    "test_cell.py",
    "test_shipping_verbs.py",
    "test_own_model.py",
    "test_disk_that_lies.py",
)
"""Files of minutes: begun early, so that no process is left with one of them when the others are through."""


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(HEAVY_FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(scope="session", autouse=True)
def forked_workers():
    """Workers that a test starts in its own process are forked, not spawned."""
    from saltwm.processes import pool

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "multiprocessing", Forked())
        yield


@pytest.fixture
def spawned_workers(monkeypatch):
    """Workers as the pool itself starts them, where that is the claim."""
    from saltwm.processes import pool

    monkeypatch.setattr(pool, "multiprocessing", multiprocessing)


@pytest.fixture(scope="session")
def tiny():
    """A run that takes a second."""
    return TINY


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    """60 Two-Room episodes at 16 px, every 5th frame."""
    from saltwm.jobs.collect import Collect

    path = tmp_path_factory.mktemp("data") / "two-room"
    return Collect("two-room", path, 60, image_size=16, frame_every=5, workers=1, episodes_per_part=20).do()


@pytest.fixture(scope="session")
def run(tmp_path_factory, dataset):
    """A SALT run trained to its end."""
    from saltwm.train import train

    path = tmp_path_factory.mktemp("runs") / "salt"
    train(TINY, dataset, path)
    return path


@pytest.fixture(scope="session")
def lewm_run(tmp_path_factory, dataset):
    """A LeWM run trained to its end."""
    from saltwm.train import train

    path = tmp_path_factory.mktemp("runs") / "lewm"
    model = dataclasses.replace(TINY.model, model="lewm")
    objective = dataclasses.replace(TINY.objective, objective="one-step")
    train(dataclasses.replace(TINY, model=model, objective=objective), dataset, path)
    return path
