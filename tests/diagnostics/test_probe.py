"""Linear probes: they find what is there, and nothing where there is nothing."""

import numpy as np
import pytest

from saltwm.checkpoint import load
from saltwm.diagnostics.probe import probe, r_squared, ridge


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
