"""Each term against a slow float64 reference; its gradient, also where latents vanish; what rows make of them."""

import math

import numpy as np
import pytest
import torch
from test_objective import reference_sigreg

from saltwm.ground.errors import ShapeError
from saltwm.losses.covariance import covariance, covariance_over_time
from saltwm.losses.inverse import InverseDynamics
from saltwm.losses.sigreg import draw_projections, sigreg
from saltwm.losses.similarity import similarity
from saltwm.losses.straightening import straightening
from saltwm.losses.subspaces import SubspaceSIGReg
from saltwm.losses.table import OBJECTIVES, Sizes
from saltwm.losses.triplet import progression_triplet
from saltwm.losses.variance import variance, variance_over_time

B, T, D = 5, 4, 6


def latents(batch=B, frames=T, dim=D, scale=0.6):
    generator = torch.Generator().manual_seed(3)
    return scale * torch.randn(batch, frames, dim, dtype=torch.float64, generator=generator) + 0.3


def directions(count=8, dim=D):
    return draw_projections(dim, count, torch.Generator().manual_seed(4)).double()


# --- references: loops over single numbers ---------------------------------------------------------------------------


def hinge(values):
    return max(0.0, 1 - math.sqrt(np.var(values, ddof=1) + 1e-4))


def slow_variance(z):
    return np.mean([hinge(z[:, t, d]) for t in range(z.shape[1]) for d in range(z.shape[2])])


def slow_variance_over_time(z):
    z = z - z.mean(0)
    return np.mean([hinge(z[b, :, d]) for b in range(len(z)) for d in range(z.shape[2])])


def off_diagonal(rows):
    cov = np.cov(rows, rowvar=False)
    size = len(cov)
    return sum(cov[i, j] ** 2 for i in range(size) for j in range(size) if i != j) / (size * (size - 1))


def slow_covariance(z):
    return np.mean([off_diagonal(z[:, t]) for t in range(z.shape[1])])


def slow_covariance_over_time(z):
    z = z - z.mean(0)
    return np.mean([off_diagonal(z[b]) for b in range(len(z))])


def slow_similarity(z):
    return np.mean([(z[b, t + 1] - z[b, t]) ** 2 for b in range(len(z)) for t in range(z.shape[1] - 1)])


def angle(a, b):
    return a @ b / math.sqrt((a @ a) * (b @ b))


def slow_straightening(z):
    turns = [angle(w[t + 1] - w[t], w[t + 2] - w[t + 1]) for w in z for t in range(len(w) - 2)]
    return 1 - np.mean(turns)


def slow_triplet(z):
    middle = z.shape[1] // 2
    losses = []
    for b in range(len(z)):
        anchor, positive, negative = z[b, middle], z[b, middle + 1], z[b - 1, middle]
        losses.append(max(0.0, angle(anchor, negative) - angle(anchor, positive) + 0.2))
    return np.mean(losses)


TERMS = {
    variance: slow_variance,
    variance_over_time: slow_variance_over_time,
    covariance: slow_covariance,
    covariance_over_time: slow_covariance_over_time,
    similarity: slow_similarity,
    straightening: slow_straightening,
    progression_triplet: slow_triplet,
}
NAMES = [term.__name__ for term in TERMS]


@pytest.mark.parametrize("term", TERMS, ids=NAMES)
@pytest.mark.parametrize("shape", [(5, 4, 6), (4, 3, 2), (7, 6, 3)])
def test_a_term_is_its_formula(term, shape):
    z = latents(*shape)
    expected = TERMS[term](z.numpy())
    assert expected > 1e-3  # a reference that is always 0 would prove nothing
    # The cosines add 1e-8 to squared lengths of about 1.
    assert term(z).item() == pytest.approx(
        expected, rel=1e-6 if term in (straightening, progression_triplet) else 1e-12
    )


@pytest.mark.parametrize("term", TERMS, ids=NAMES)
def test_a_term_has_the_gradient_of_finite_differences(term):
    assert torch.autograd.gradcheck(term, latents(3, 4, 3).requires_grad_(), atol=1e-6)


@pytest.mark.parametrize("term", TERMS, ids=NAMES)
@pytest.mark.parametrize("value", [0.0, 1.0, 1e-6, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_latents_that_are_all_alike_give_a_finite_value_and_gradient(term, value, dtype):
    z = torch.full((B, T, D), value, dtype=dtype, requires_grad=True)
    found = term(z)
    (gradient,) = torch.autograd.grad(found, z)
    assert found.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("term", TERMS, ids=NAMES)
def test_a_window_or_batch_that_is_too_small_is_refused(term):
    with pytest.raises(ShapeError, match="found 1"):
        term(latents(1, 1, 4))


# --- what they are for: the collapsed, the repeated, the bent --------------------------------------------------------


def test_the_hinge_is_full_for_a_point_and_nothing_for_spread_latents():
    assert variance(torch.zeros(B, T, D)).item() == pytest.approx(0.99, abs=1e-6)
    assert variance(latents(400, 2, 3, scale=3.0)).item() == 0.0


def test_repeated_coordinates_covary_and_independent_ones_hardly_do():
    z = latents(4000, 1, 1)
    assert covariance(z.expand(-1, -1, 4)).item() > 0.1
    assert covariance(latents(4000, 1, 4)).item() < 1e-3


def test_a_straight_path_costs_nothing_and_one_that_turns_back_costs_two():
    along = torch.arange(4.0)[None, :, None] * torch.ones(1, 1, 3)
    assert straightening(along).item() == pytest.approx(0.0, abs=1e-6)
    back = torch.tensor([0.0, 1.0, 0.0, 1.0])[None, :, None] * torch.ones(1, 1, 3)
    assert straightening(back).item() == pytest.approx(2.0, abs=1e-6)


def test_the_triplet_wants_neighbours_alike_and_other_windows_unlike():
    turned = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])[:, None].expand(2, 3, 2)
    assert progression_triplet(turned).item() == 0.0
    same = torch.ones(2, 3, 2)
    assert progression_triplet(same).item() == pytest.approx(0.2, abs=1e-6)


# --- inverse dynamics ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["pair", "difference"])
def test_inverse_dynamics_is_the_mean_squared_error_of_its_network(of):
    torch.manual_seed(0)
    term = InverseDynamics(D, 3, of, (8, 8)).double()
    z, actions = latents(), torch.randn(B, T - 1, 3, dtype=torch.float64)
    weights = [p.detach().numpy() for p in term.net.parameters()]
    errors = []
    for b in range(B):
        for t in range(T - 1):
            pair = z[b, t].numpy(), z[b, t + 1].numpy()
            x = np.concatenate(pair) if of == "pair" else pair[1] - pair[0]
            for w, bias in zip(weights[0::2], weights[1::2], strict=True):
                x = w @ x + bias
                x = x if len(x) == 3 else np.maximum(x, 0)
            errors.append((x - actions[b, t].numpy()) ** 2)
    assert term(z, actions).item() == pytest.approx(np.mean(errors), rel=1e-12)


@pytest.mark.parametrize("of", ["pair", "difference"])
def test_inverse_dynamics_finds_actions_that_moved_the_latent_and_not_others(of):
    torch.manual_seed(0)
    actions = torch.randn(256, 1, 2)
    start = torch.randn(256, 1, D)
    moved = torch.cat([start, start + actions @ torch.randn(2, D)], dim=1)

    def learnt(z):
        term = InverseDynamics(D, 2, of, (32,))
        optimiser = torch.optim.Adam(term.parameters(), 1e-2)
        for _ in range(150):
            loss = term(z, actions)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return loss.item()

    assert learnt(moved) < 0.1
    assert learnt(start.expand(-1, 2, -1)) > 0.4  # the control: nothing moved, so nothing tells the action


def test_the_difference_knows_nothing_of_where_it_starts():
    torch.manual_seed(0)
    z, actions = latents(), torch.randn(B, T - 1, 3, dtype=torch.float64)
    pair, difference = (InverseDynamics(D, 3, of, (8,)).double() for of in ("pair", "difference"))
    assert torch.allclose(difference(z + 5, actions), difference(z, actions), rtol=1e-12)
    assert not torch.allclose(pair(z + 5, actions), pair(z, actions), rtol=1e-2)


@pytest.mark.parametrize("of", ["pair", "difference"])
def test_inverse_dynamics_has_a_finite_gradient_where_latents_are_all_alike(of):
    term, z = InverseDynamics(D, 3, of), torch.zeros(B, T, D, requires_grad=True)
    gradients = torch.autograd.grad(term(z, torch.ones(B, T - 1, 3)), [z, *term.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


# --- SIGReg in subspaces ---------------------------------------------------------------------------------------------


def test_sigreg_in_subspaces_is_the_mean_over_them_of_sigreg_inside_each():
    torch.manual_seed(0)
    term, z, along = SubspaceSIGReg(D, 3).double(), latents(), directions()
    inside = []
    for basis in term.bases:
        u = basis.T @ along
        inside.append(sigreg(z @ basis, u / u.norm(dim=0)).item())
    assert term(z, along).item() == pytest.approx(np.mean(inside), rel=1e-12)


def test_subspaces_are_orthonormal_differ_and_their_directions_are_unit():
    torch.manual_seed(0)
    term = SubspaceSIGReg(D, 3)
    assert torch.allclose(term.bases.mT @ term.bases, torch.eye(2).expand(3, 2, 2), atol=1e-6)
    assert (term.bases[0] @ term.bases[0].T - term.bases[1] @ term.bases[1].T).norm() > 0.1
    assert torch.allclose(term.directions(directions().float()).norm(dim=0), torch.ones(24), atol=1e-5)


def test_subspaces_are_kept_and_not_learnt():
    term = SubspaceSIGReg(D, 2)
    assert list(term.parameters()) == []
    assert list(term.state_dict()) == ["bases"]


def test_a_latent_that_subspaces_cannot_share_is_refused():
    with pytest.raises(ShapeError, match="multiple of 4"):
        SubspaceSIGReg(D, 4)


@pytest.mark.parametrize("value", [0.0, 1e4])
def test_sigreg_in_subspaces_is_finite_where_latents_are_all_alike(value):
    z = torch.full((B, T, D), value, requires_grad=True)
    found = SubspaceSIGReg(D, 2)(z, directions().float())
    (gradient,) = torch.autograd.grad(found, z)
    assert found.isfinite()
    assert gradient.isfinite().all()


# --- rows: which term sees which coordinates -------------------------------------------------------------------------


def terms_of(name, dim=D, environment="two-room", knots=17):
    """The terms of an objective by name, built for latents of `dim` numbers and action blocks of 3."""
    torch.manual_seed(0)
    return {term.name: term.build(Sizes(dim, 3, environment, knots)) for term in OBJECTIVES[name].terms}


@pytest.mark.parametrize("name", ["salt", "lewm"])
def test_salt_and_lewm_have_sigreg_of_all_coordinates_with_the_runs_knots(name):
    z, along = latents(), directions()
    found = terms_of(name, knots=9)["sigreg"](z, along).item()
    assert found == pytest.approx(reference_sigreg(z.numpy(), along.numpy(), 9), rel=1e-11)


def test_pldm_has_these_terms_of_all_coordinates():
    found, z = terms_of("pldm"), latents()
    slow = {term.__name__: reference for term, reference in TERMS.items()}
    for name in ("variance", "variance_over_time", "covariance", "covariance_over_time", "similarity"):
        assert found.pop(name)(z).item() == pytest.approx(slow[name](z.numpy()), rel=1e-12)
    assert list(found) == ["inverse"]


def test_sd_jepa_has_sigreg_of_all_but_two_coordinates_a_triplet_on_those_and_straightens_all():
    found, z, along = terms_of("sd-jepa"), latents(), directions()
    content = (along[2:] / along[2:].norm(dim=0)).numpy()
    assert found["sigreg"](z, along).item() == pytest.approx(reference_sigreg(z[..., 2:].numpy(), content), rel=1e-11)
    assert found["triplet"](z).item() == pytest.approx(slow_triplet(z[..., :2].numpy()), rel=1e-6)
    assert found["straightening"](z).item() == pytest.approx(slow_straightening(z.numpy()), rel=1e-6)


@pytest.mark.parametrize(
    ("environment", "subspaces"), [("push-t", 16), ("two-room", 32), ("reacher", 32), ("cube", 32)]
)
def test_sub_jepa_has_sixteen_subspaces_on_pusht_and_thirty_two_elsewhere(environment, subspaces):
    (term,) = terms_of("sub-jepa", 64, environment, knots=9).values()
    assert term.bases.shape == (subspaces, 64, 64 // subspaces)
    z, along = latents(dim=64), directions(dim=64)
    term = term.double()
    found = [reference_sigreg(z.numpy(), u.numpy(), 9) for u in term.directions(along).chunk(subspaces, dim=1)]
    assert term(z, along).item() == pytest.approx(np.mean(found), rel=1e-11)


@pytest.mark.parametrize(
    ("name", "of", "hidden"),
    [("pldm", "pair", (512,)), ("smwm", "pair", (256, 256)), ("delta-jepa", "difference", (256, 256))],
)
def test_inverse_dynamics_looks_at_pairs_or_at_differences_through_a_network_of_these_widths(name, of, hidden):
    term = terms_of(name)["inverse"]
    seen = 2 * D if of == "pair" else D
    widths = [tuple(layer.weight.shape) for layer in term.net if hasattr(layer, "weight")]
    assert widths == list(zip((*hidden, 3), (seen, *hidden), strict=True))
    assert term.of == of
