"""Two processes that share a batch learn what one process learns from the whole batch."""

import sys

import numpy as np
import pytest
import torch
from two_processes import joined, results_of_two

from saltwm.losses.sigreg import draw_projections, sigreg
from saltwm.model.layers import BatchNorm, ProjectionHead

B, T, D = 5, 2, 6


def losses_and_gradients(x, images):
    """Loss, statistics and gradients of batch normalisation and SIGReg: x [B, T, D], images [B, 3, 2, 2]."""
    torch.manual_seed(0)
    head, norm = ProjectionHead(D, 7, D).double(), BatchNorm(3).double()
    directions = draw_projections(D, 16, torch.Generator().manual_seed(1)).double()
    latents = head(x.flatten(0, 1)).unflatten(0, (-1, T))
    loss = sigreg(latents, directions) + latents.square().mean() + norm(images).pow(3).mean()
    loss.backward()
    gradients = {f"gradient of {n}": p.grad for m in (head, norm) for n, p in m.named_parameters()}
    statistics = {f"{n} of {m.num_features}": b for m in (head.net[1], norm) for n, b in m.named_buffers()}
    return {"loss": loss.detach()} | gradients | statistics


def data(processes):
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(processes * B, T, D, generator=generator, dtype=torch.float64)
    return x, 3 * torch.randn(processes * B, 3, 2, 2, generator=generator, dtype=torch.float64) + 1


def one_of_two(rank, store, out):
    """What one training process does: its half of the batch, then the mean of the losses and gradients."""
    with joined(rank, store) as distributed:
        halves = [half.chunk(2)[rank] for half in data(2)]
        result = losses_and_gradients(*halves)
        for name, value in result.items():
            if name == "loss" or name.startswith("gradient"):
                distributed.all_reduce(value)
                value.div_(2)
        np.savez(out, **{name: value.numpy() for name, value in result.items()})


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    return results_of_two(__file__, tmp_path_factory.mktemp("processes"))


def test_statistics_and_gradients_of_two_processes_are_those_of_the_whole_batch(two_processes):
    whole = losses_and_gradients(*data(2))
    assert len(whole) == 1 + 8 + 6
    for found in two_processes:
        assert found.keys() == whole.keys()
        for name, expected in whole.items():
            assert np.abs(found[name] - expected.numpy()).max() <= 1e-6, name


def test_half_the_batch_alone_would_learn_something_else():
    """Negative control: without the exchange the numbers differ by far more than the tolerance."""
    whole, halves = (
        losses_and_gradients(*data(2)),
        [losses_and_gradients(*(x.chunk(2)[i] for x in data(2))) for i in (0, 1)],
    )
    name = "gradient of net.0.weight"
    assert (whole[name] - (halves[0][name] + halves[1][name]) / 2).abs().max() > 1e-3


if __name__ == "__main__":
    one_of_two(int(sys.argv[1]), sys.argv[2], sys.argv[3])
