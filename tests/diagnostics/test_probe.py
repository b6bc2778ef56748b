"""Linear probes and ranked costs: they find what is there, and nothing where there is nothing."""

import numpy as np
import pytest
import torch

from saltwm import durable
from saltwm.checkpoint import load
from saltwm.config import read_config
from saltwm.diagnostics.diagnose import diagnose_run, training_seconds
from saltwm.diagnostics.probe import cost_order, probe, r_squared, rank_correlation, ridge
from saltwm.records import Diagnosis, Probes, Training


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_a_linear_readout_is_found_exactly(rng):
    x, weights = rng.normal(size=(400, 6)), rng.normal(size=(6, 2))
    y = x @ weights + 3.0
    assert r_squared(y[200:], ridge(x[:200], y[:200])(x[200:])) > 0.999


def test_noise_explains_nothing(rng):
    x, y = rng.normal(size=(400, 6)), rng.normal(size=(400, 2))
    assert r_squared(y[200:], ridge(x[:200], y[:200])(x[200:])) < 0.1


def test_the_position_can_be_read_from_even_barely_trained_latents_but_not_from_shuffled_ones(
    run, dataset, monkeypatch
):
    model = load(run)
    (position,) = probe(model, dataset, frames=300)
    assert position.r2 > 0.2

    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda frames: encode(frames).flip(0))
    (shuffled,) = probe(model, dataset, frames=300)
    assert shuffled.r2 < 0.1


def test_costs_that_order_states_by_distance_are_told_from_shuffled_ones(run, dataset, monkeypatch):
    model = load(run)
    assert cost_order(model, dataset, pairs=400) > 0.3

    encode, generator = model.encode, torch.Generator().manual_seed(0)
    shuffled = lambda frames: encode(frames)[torch.randperm(len(frames), generator=generator)]  # noqa: E731
    monkeypatch.setattr(model, "encode", shuffled)
    assert abs(cost_order(model, dataset, pairs=400)) < 0.15


def test_a_latent_that_is_the_position_orders_costs_perfectly(rng):
    states, goals = rng.normal(size=(2, 200, 2))
    distances = np.linalg.norm(states - goals, axis=1)
    assert rank_correlation(distances**2, distances) == pytest.approx(1.0)


def test_a_collapsed_latent_has_no_order_rather_than_one_of_zero(rng):
    assert rank_correlation(np.zeros(50), rng.normal(size=50)) is None


@pytest.mark.parametrize("kind", ["salt", "lewm"])
def test_a_diagnosis_leaves_probes_and_training_beside_it(kind, run, lewm_run, dataset, tmp_path):
    path = run if kind == "salt" else lewm_run
    found = diagnose_run(path, dataset, tmp_path, horizon=4, trajectories=3, batches=2, frames=100)
    assert read_config(Diagnosis, found.folder / "diagnosis.json") == found.diagnosis
    assert read_config(Probes, found.folder / "probes.json") == found.probes
    assert read_config(Training, found.folder / "training.json") == found.training
    assert [field.field for field in found.probes.fields] == ["agent_position"]
    assert (found.training.method, found.training.steps) == (kind, 6)
    assert found.training.seconds > 0
    spread = found.probes.jacobian_spread
    assert spread < 1e-12 if kind == "salt" else spread > 1e-6


def test_training_time_is_added_up_over_sessions(tmp_path):
    assert training_seconds(tmp_path) is None
    for seconds in (2.0, 10.0, 1.0, 7.0, 3.0):
        durable.append_json_line(tmp_path / "timing.jsonl", {"step": 1, "seconds": seconds})
    assert training_seconds(tmp_path) == 10 + 7 + 3
