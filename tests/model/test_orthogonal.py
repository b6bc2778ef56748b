"""exp of skew-symmetric matrices against SciPy and against torch's own derivative."""

import numpy as np
import pytest
import scipy.linalg
import torch

from saltwm.model.orthogonal import exp_skew

SCALES = [0.0, 1e-8, 0.1, 0.5, 2.0, 10.0]


@pytest.mark.parametrize("scale", SCALES)
def test_exp_skew_is_a_rotation_and_equals_scipy(scale):
    w = scale * torch.randn(2, 7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rotations = exp_skew(w)
    for w_i, rotation in zip(w.numpy(), rotations.numpy(), strict=True):
        assert np.allclose(rotation, scipy.linalg.expm(w_i - w_i.T), atol=1e-12)
        assert np.allclose(rotation @ rotation.T, np.eye(7), atol=1e-12)


@pytest.mark.parametrize("scale", SCALES)
# At scale 10 the exponent's norm is some 80: rounding it to float32 alone turns a rotation by 1e-5, and each processor
# adds its own.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_the_gradient_equals_torchs_own(scale, dtype, tolerance):
    generator = torch.Generator().manual_seed(1)
    w = scale * torch.randn(2, 9, 9, dtype=torch.float64, generator=generator)
    gradient = torch.randn(2, 9, 9, dtype=torch.float64, generator=generator)
    ours, theirs = w.clone().to(dtype).requires_grad_(), w.clone().requires_grad_()
    exp_skew(ours).backward(gradient.to(dtype))
    torch.matrix_exp(theirs - theirs.mT).backward(gradient)
    assert (ours.grad - theirs.grad).norm() <= tolerance * theirs.grad.norm()


def test_the_gradient_is_that_of_finite_differences():
    w = torch.randn(2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    assert torch.autograd.gradcheck(exp_skew, w)


def test_non_finite_weights_give_non_finite_rotations():
    assert not torch.isfinite(exp_skew(torch.full((3, 3), float("nan")).triu())).all()
