"""The state-affine transition against an independent float64 reference, and its cache against every kind of edit."""

import copy
import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saltwm.model import affine
from saltwm.model.affine import StateAffine
from saltwm.report import paper_figures


def scrambled(dim=6, condition_dim=6, modes=3, spectral=True, seed=0, scale=0.5):
    """A transition far from its initialisation, in float64."""
    generator = torch.Generator().manual_seed(seed)
    transition = StateAffine(dim, condition_dim, modes, spectral).double()
    with torch.no_grad():
        for parameter in transition.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return transition


def reference_base(transition):
    weights = {name: p.detach().numpy() for name, p in transition.named_parameters()}
    if "A_free" in weights:
        return weights["A_free"]
    u = scipy.linalg.expm(weights["W_u"] - weights["W_u"].T)
    v = scipy.linalg.expm(weights["W_v"] - weights["W_v"].T)
    return u @ np.diag(np.tanh(weights["s"])) @ v.T


def reference_step(transition, z, c):
    """Eq. 8, one sample at a time."""
    weights = {name: p.detach().numpy() for name, p in transition.named_parameters()}
    out = []
    for z_i, c_i in zip(z.numpy(), c.numpy(), strict=True):
        a = reference_base(transition).copy()
        for r in range(transition.modes):
            a += (weights["W_g.weight"][r] @ c_i) * weights["N"][r]
        out.append(a @ z_i + weights["B.weight"] @ c_i + weights["B.bias"])
    return np.stack(out)


@pytest.mark.parametrize("spectral", [True, False])
@pytest.mark.parametrize("modes", [0, 3])
@pytest.mark.parametrize("scale", [0.05, 0.5, 3.0])
def test_a_step_equals_the_papers_formula(modes, spectral, scale):
    transition = scrambled(modes=modes, spectral=spectral, scale=scale)
    z, c = torch.randn(2, 7, 6, dtype=torch.float64)
    expected = reference_step(transition, z, c)
    error = np.abs(transition(z, c).detach().numpy() - expected).max() / np.abs(expected).max()
    assert error <= 1e-12


def test_a_step_of_the_papers_size_equals_the_papers_formula():
    transition = scrambled(192, 192, 16, scale=0.02)
    z, c = torch.randn(2, 3, 192, dtype=torch.float64)
    expected = reference_step(transition, z, c)
    assert np.abs(transition(z, c).detach().numpy() - expected).max() <= 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("modes", "spectral", "count"),
    [(16, True, 703_872), (0, True, 703_872 - 592_896), (16, False, 703_872 - 36_864 - 192)],
)
def test_parameter_counts_are_the_papers(modes, spectral, count):
    assert sum(p.numel() for p in StateAffine(192, 192, modes, spectral).parameters()) == count


def test_every_part_has_the_shape_of_the_papers_table():
    found = {name: tuple(p.shape) for name, p in StateAffine().named_parameters()}
    names = {"W_g": "W_g.weight", "B": "B.weight", "b": "B.bias"}
    assert found == {names.get(symbol, symbol): shape for symbol, (_, shape, _) in paper_figures.TRANSITION.items()}


def test_initialisation_follows_the_papers_table():
    transition = StateAffine()
    names = set(transition.state_dict())
    assert names == {"W_u", "W_v", "s", "W_g.weight", "N", "B.weight", "B.bias"}
    for name in ("W_u", "W_v", "N", "B.weight", "B.bias"):
        assert not transition.state_dict()[name].any()
    assert (transition.s == 3).all()
    assert transition.W_g.weight.abs().max() <= 1 / math.sqrt(192)
    z, c = torch.randn(2, 5, 192)
    assert torch.allclose(transition(z, c), math.tanh(3) * z, atol=1e-6)
    assert torch.equal(StateAffine(spectral=False).A_free, math.tanh(3.0) * torch.eye(192))


def test_singular_values_of_the_base_matrix_are_tanh_s():
    transition = scrambled(scale=2.0)
    found = np.linalg.svd(transition.base_matrix().detach().numpy(), compute_uv=False)
    expected = np.sort(np.abs(np.tanh(transition.s.detach().numpy())))[::-1]
    assert np.allclose(found, expected, atol=1e-13)
    assert found.max() < 1


def test_matrix_is_the_jacobian_of_a_step():
    transition = scrambled()
    z, c = torch.randn(2, 4, 6, dtype=torch.float64)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda z, c: transition.predict(z[None, None], c[None, None])[0, 0]))(
        z, c
    )
    assert torch.allclose(transition.matrix(c), jacobian, atol=1e-13)


def test_gradients_are_those_of_finite_differences():
    transition = scrambled(4, 4, 2, scale=0.7)
    names = [name for name, _ in transition.named_parameters()]
    z, c = torch.randn(2, 3, 4, dtype=torch.float64)
    history, conditions = z[:, None], c[:, None].repeat(1, 3, 1)

    def rollout(*values):
        return torch.func.functional_call(transition, dict(zip(names, values[2:], strict=True)), values[:2])

    inputs = [z, c, *(p.detach() for p in transition.parameters())]
    assert torch.autograd.gradcheck(rollout, [x.clone().requires_grad_() for x in inputs])
    recursive = [x.clone().requires_grad_() for x in (history, conditions)]
    assert torch.autograd.gradcheck(transition.rollout, recursive)


def test_a_rollout_is_the_step_repeated():
    transition = scrambled()
    z, c = torch.randn(4, 6, dtype=torch.float64), torch.randn(4, 5, 6, dtype=torch.float64)
    latents = transition.rollout(z[:, None], c)
    for k in range(5):
        z = transition(z, c[:, k])
        assert torch.allclose(latents[:, k], z, atol=1e-12)


def test_predictions_of_neighbours_do_not_touch_each_other():
    transition = scrambled().eval()
    history, conditions = torch.randn(4, 1, 6, dtype=torch.float64), torch.randn(4, 5, 6, dtype=torch.float64)
    alone = transition.rollout(history[:1], conditions[:1])
    history[1:] = 1e6
    assert torch.allclose(transition.rollout(history, conditions)[:1], alone, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([0, 3]), st.booleans())
def test_a_step_is_affine_in_the_latent(seed, modes, spectral):
    transition = scrambled(modes=modes, spectral=spectral, seed=seed)
    x, y, c = torch.randn(3, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    midpoint = transition((x + y) / 2, c)
    assert torch.allclose(midpoint, (transition(x, c) + transition(y, c)) / 2, atol=1e-12)


# --- the base matrix: computed once, never stale ---------------------------------------------------------------------


@pytest.fixture
def exponentials(monkeypatch):
    """Counts the evaluations of exp."""
    calls = []

    def counting(w, true=affine.exp_skew):
        calls.append(1)
        return true(w)

    monkeypatch.setattr(affine, "exp_skew", counting)
    return calls


def test_the_base_matrix_is_computed_once_per_rollout_in_training(exponentials):
    transition = scrambled().train()
    transition.rollout(torch.randn(2, 1, 6, dtype=torch.float64), torch.randn(2, 5, 6, dtype=torch.float64))
    transition.predict(torch.randn(2, 5, 6, dtype=torch.float64), torch.randn(2, 5, 6, dtype=torch.float64))
    assert len(exponentials) == 2


def test_the_base_matrix_is_computed_once_in_evaluation(exponentials):
    transition = scrambled().eval().requires_grad_(False)
    for _ in range(4):
        transition.rollout(torch.randn(2, 1, 6, dtype=torch.float64), torch.randn(2, 5, 6, dtype=torch.float64))
        transition.base_matrix()
    assert len(exponentials) == 1


def _sgd_step(transition):
    for parameter in transition.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(transition.parameters(), lr=0.1).step()


EDITS = {
    "load_state_dict": lambda t: t.load_state_dict(scrambled(seed=1).state_dict()),
    "load_state_dict, assigned": lambda t: t.load_state_dict(scrambled(seed=1).state_dict(), assign=True),
    "float": lambda t: t.float(),
    "to another type and back": lambda t: t.to(torch.float32).to(torch.float64),
    "in place": lambda t: t.s.mul_(0.5),
    "through data": lambda t: t.s.data.mul_(0.5),
    "through a view": lambda t: t.N.view(-1)[3:4].add_(1.0),
    "through numpy": lambda t: np.negative(t.W_u.numpy(), out=t.W_u.numpy()),
    "another tensor": lambda t: setattr(t.W_v, "data", torch.randn(6, 6, dtype=torch.float64)),
    "an optimiser's step": _sgd_step,
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_an_edited_transition_never_uses_an_old_base_matrix(edit):
    transition = scrambled().eval().requires_grad_(False)
    z, c = torch.randn(2, 3, 6, dtype=torch.float64)
    transition(z, c)
    edit(transition)
    dtype = transition.s.dtype
    fresh = copy.deepcopy(transition)
    fresh._cached = None
    assert torch.equal(transition(z.to(dtype), c.to(dtype)), fresh(z.to(dtype), c.to(dtype)))
    expected = reference_step(copy.deepcopy(transition).double(), z, c)
    assert np.allclose(
        transition(z.to(dtype), c.to(dtype)).numpy(), expected, atol=1e-4 if dtype == torch.float32 else 1e-12
    )


def test_a_base_matrix_cached_in_inference_mode_can_be_differentiated_through():
    transition = scrambled().eval().requires_grad_(False)
    with torch.inference_mode():
        transition(torch.randn(1, 6, dtype=torch.float64), torch.randn(1, 6, dtype=torch.float64))
    z = torch.randn(1, 6, dtype=torch.float64, requires_grad=True)
    c = torch.randn(1, 6, dtype=torch.float64)
    transition(z, c).sum().backward()
    assert torch.allclose(z.grad[0], transition.matrix(c)[0].sum(0))


def test_gradients_reach_the_parameters_in_evaluation_mode_too():
    transition = scrambled().eval()
    transition(torch.randn(2, 6, dtype=torch.float64), torch.randn(2, 6, dtype=torch.float64)).sum().backward()
    assert transition.W_u.grad.abs().sum() > 0


def test_the_base_matrix_keeps_full_precision_under_autocast():
    transition = StateAffine(32, 32, 2)
    z, c = torch.randn(2, 4, 32)
    expected = transition(z, c)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, base = transition(z, c), transition.base_matrix()
    assert base.dtype == found.dtype == torch.float32
    assert torch.equal(found, expected)
    assert torch.equal(base, math.tanh(3) * torch.eye(32))
