"""Batch normalisation on one process is torch's own."""

import pytest
import torch
from torch import nn

from saltwm.ground.errors import ShapeError
from saltwm.model.layers import BatchNorm


@pytest.mark.parametrize(("shape", "reference"), [((9, 5), nn.BatchNorm1d), ((4, 5, 3, 2), nn.BatchNorm2d)])
def test_one_process_does_what_torch_does(shape, reference):
    ours, theirs = BatchNorm(5).double(), reference(5).double()
    for _ in range(3):
        x = torch.randn(shape, dtype=torch.float64)
        assert torch.equal(ours(x), theirs(x))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(ours.state_dict()[k], theirs.state_dict()[k]) for k in theirs.state_dict())
    assert torch.equal(ours.eval()(x), theirs.eval()(x))


@pytest.mark.parametrize("shape", [(9,), (9, 4), (9, 5, 3), (9, 4, 3, 3), (2, 5, 3, 3, 3)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ShapeError):
        BatchNorm(5)(torch.randn(shape))
