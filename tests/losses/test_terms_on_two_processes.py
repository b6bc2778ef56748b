"""Terms of two processes that share a batch are those of the whole batch, value and gradient."""

import sys

import numpy as np
import pytest
import torch
from two_processes import joined, results_of_two

from saltwm.ground.config import EncoderConfig, ModelConfig, ObjectiveConfig, TransformerConfig, WorldSpec
from saltwm.losses.regulariser import Regulariser
from saltwm.losses.sigreg import draw_projections
from saltwm.losses.table import OBJECTIVES, Seen
from saltwm.model.world_model import WorldModel

B, T, D = 5, 4, 32
EVERY_TERM = {"covariance_over_time": 1.0, "inverse": 1.0}


def losses_and_gradients(z, actions):
    """Every term of every objective, with its gradient: z [B, T, D], actions [B, T - 1, 4]."""
    encoder = EncoderConfig(kind="conv", channels=(4,), width=8, projection_dim=8)
    transformer = TransformerConfig(depth=1, heads=1, head_dim=4, mlp_dim=8, projection_dim=8)
    model = WorldModel(
        ModelConfig("lewm", D, 2, 3, encoder, transformer=transformer), WorldSpec("two-room", 2, image_size=8)
    )
    along = draw_projections(D, 8, torch.Generator().manual_seed(1)).double()
    found = {}
    for name in OBJECTIVES:
        objective = ObjectiveConfig(regulariser=name, weights=EVERY_TERM if name == "pldm" else None)
        regulariser = Regulariser(objective, model).double()
        for term in regulariser(Seen(z, actions, along)):
            leaf = z.clone().requires_grad_()
            value = regulariser(Seen(leaf, actions, along))[term]
            found[f"{name} {term}"] = value.detach()
            found[f"gradient of {name} {term}"] = torch.autograd.grad(value, leaf)[0]
    return found


def data():
    generator = torch.Generator().manual_seed(2)
    z = torch.randn(2 * B, T, D, generator=generator, dtype=torch.float64) * 0.7
    return z, torch.randn(2 * B, T - 1, 4, generator=generator, dtype=torch.float64)


def one_of_two(rank, store, out):
    """One process: its half of the batch. Losses are averaged; each process has the gradients of its own latents."""
    with joined(rank, store) as distributed:
        result = losses_and_gradients(*(half.chunk(2)[rank] for half in data()))
        for name, value in result.items():
            if not name.startswith("gradient"):
                distributed.all_reduce(value)
            value.div_(2)
        np.savez(out, **{name: value.numpy() for name, value in result.items()})


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    return results_of_two(__file__, tmp_path_factory.mktemp("processes"))


def test_every_term_of_two_processes_is_that_of_the_whole_batch(two_processes):
    whole = losses_and_gradients(*data())
    assert {name.split()[-1] for name in whole} == {t.name for row in OBJECTIVES.values() for t in row.terms}
    for name, expected in whole.items():
        found = [half[name] for half in two_processes]
        joined = np.concatenate(found) if name.startswith("gradient") else found[0]
        assert np.abs(joined - expected.numpy()).max() <= 1e-9, name


def test_half_the_batch_alone_would_give_other_terms():
    """Negative control for the terms that look across the batch."""
    z, actions = data()
    whole, half = losses_and_gradients(z, actions), losses_and_gradients(z[:B], actions[:B])
    for name in ("salt sigreg", "pldm variance", "pldm covariance", "sd-jepa triplet", "sub-jepa sigreg"):
        other = losses_and_gradients(z[B:], actions[B:])[name]
        assert abs((half[name] + other) / 2 - whole[name]) > 1e-4, name


if __name__ == "__main__":
    one_of_two(int(sys.argv[1]), sys.argv[2], sys.argv[3])
