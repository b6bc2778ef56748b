"""The paper's claim, measured: exact for state-affine transitions, and clearly not for others."""

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor, nn

from saltwm.diagnostics import jacobians
from saltwm.diagnostics.jacobians import (
    differentiated,
    history_jacobians,
    in_float64,
    state_dependence,
)
from saltwm.diagnostics.propagation import history_errors, lipschitz, measure, step_jacobians
from saltwm.ground.config import TransformerConfig
from saltwm.ground.errors import ShapeError
from saltwm.model.affine import StateAffine
from saltwm.model.transformer import TransformerPredictor
from saltwm.model.transition import Transition

D, N, H = 8, 5, 20


class Nonlinear(Transition):
    """The negative control: one tanh keeps the next latent from being affine in the last."""

    window = 1

    def __init__(self, gain: float = 1.0) -> None:
        super().__init__(D, D)
        torch.manual_seed(0)
        self.inner, self.outer, self.action = nn.Linear(D, 2 * D), nn.Linear(2 * D, D), nn.Linear(D, 2 * D)
        self.gain = gain

    def _predict(self, latents: Tensor, conditions: Tensor) -> Tensor:
        return latents + self.gain * self.outer(torch.tanh(self.inner(latents) + self.action(conditions)))

    def _rollout(self, history: Tensor, conditions: Tensor) -> Tensor:
        latents = [history[:, -1]]
        for k in range(conditions.shape[1]):
            latents.append(self._predict(latents[-1], conditions[:, k]))
        return torch.stack(latents[1:], dim=1)


def scrambled(transition, scale=0.15, seed=1):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in transition.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return transition


def affine(**options):
    torch.manual_seed(0)
    return scrambled(StateAffine(D, D, **{"modes": 3} | options))


def transformer():
    torch.manual_seed(0)
    config = TransformerConfig(depth=2, heads=2, head_dim=4, mlp_dim=12, projection_dim=10)
    return scrambled(TransformerPredictor(D, D, config), scale=0.4)


def trajectories(seed=2, n=N, horizon=H):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, horizon + 1, D, generator=generator), torch.randn(n, horizon, D, generator=generator)


# --- rho_H -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"modes": 0}, {"spectral": False}], ids=str)
def test_affine_rollout_error_is_the_sum_of_propagated_one_step_errors(options):
    found = measure(affine(**options), *trajectories())
    assert found.rho.shape == (N, H)
    assert found.rho.max() <= 1e-10
    assert found.residual.abs().max() <= 1e-10 * found.delta.abs().max()


def test_affine_propagation_of_the_papers_size_is_exact_over_twenty_steps():
    transition = scrambled(StateAffine(), scale=0.01)
    generator = torch.Generator().manual_seed(3)
    latents, conditions = (torch.randn(2, steps, 192, generator=generator) for steps in (H + 1, H))
    assert measure(transition, latents, conditions).rho.max() <= 1e-10


@pytest.mark.parametrize("transition", [Nonlinear(), transformer()], ids=["tanh", "transformer"])
def test_a_nonlinear_transition_leaves_error_unexplained(transition):
    rho = measure(transition, *trajectories()).rho
    assert rho[:, 0].max() <= 1e-12  # the first error is a one-step error
    assert rho[:, 1:].mean(dim=0).min() >= 1e-2


# --- histories -------------------------------------------------------------------------------------------------------


def test_a_rollout_starts_from_the_whole_window_unless_it_is_given_fewer():
    transition, (latents, conditions) = transformer(), trajectories()
    exact = in_float64(transition)
    whole, one = measure(transition, latents, conditions), measure(transition, latents, conditions, start=1)
    assert (whole.delta.shape, one.delta.shape) == ((N, H - 2, D), (N, H, D))
    z, c = latents.double(), conditions.double()
    assert torch.allclose(whole.delta, exact.rollout(z[:, :3], c) - z[:, 3:], atol=1e-12)
    assert torch.allclose(one.delta, exact.rollout(z[:, :1], c) - z[:, 1:], atol=1e-12)
    assert (whole.delta[:, 0] - one.delta[:, 2]).abs().max() > 1e-3  # the same frame, predicted from other knowledge
    with pytest.raises(ShapeError, match="start: expected 1 to 3 latents, found 4"):
        measure(transition, latents, conditions, start=4)
    with pytest.raises(ShapeError, match="conditions: expected at least 3 action blocks"):
        measure(transition, latents[:, :3], conditions[:, :2])


class LinearHistory(Transition):
    """Linear in a history of three: the paper's Jacobian misses two channels of it, the full one none."""

    window = 3

    def __init__(self) -> None:
        super().__init__(D, D)
        torch.manual_seed(0)
        self.channels = nn.ModuleList(nn.Linear(D, D, bias=False) for _ in range(3))

    def _predict(self, latents: Tensor, conditions: Tensor) -> Tensor:
        padded = torch.cat([torch.zeros_like(latents[:, :2]), latents], dim=1)
        steps = latents.shape[1]
        return conditions + sum(channel(padded[:, w : w + steps]) for w, channel in enumerate(self.channels))

    def _rollout(self, history: Tensor, conditions: Tensor) -> Tensor:
        latents = history
        for end in range(history.shape[1], conditions.shape[1] + 1):
            latents = torch.cat(
                [latents, self._predict(latents[:, -3:], conditions[:, max(0, end - 3) : end])[:, -1:]], 1
            )
        return latents[:, history.shape[1] :]


def test_the_full_jacobian_explains_a_linear_history_that_the_current_state_alone_does_not():
    found = measure(LinearHistory(), *trajectories())
    assert found.augmented_rho.max() <= 1e-9
    assert found.augmented_residual.abs().max() <= 1e-9 * found.delta.abs().max()
    # What App. C.2 warns of: no nonlinearity, and still a discrepancy, from the first step with an error further back.
    assert found.rho[:, 2:].mean(dim=0).min() >= 1e-2


def test_the_full_jacobian_of_a_single_state_is_the_papers():
    found = measure(affine(), *trajectories())
    assert torch.equal(found.augmented_residual, found.residual)
    assert torch.allclose(found.augmented_norms, found.propagation_norms, rtol=1e-12)


def test_full_propagation_is_the_derivative_of_the_rollout_by_the_latents_it_starts_from():
    """On a trajectory that the model predicts itself, where encoded and predicted histories are the same."""
    exact = in_float64(transformer())
    latents, conditions = (x.double()[:2] for x in trajectories(horizon=6))
    own = torch.cat([latents[:, :3], exact.rollout(latents[:, :3], conditions)], dim=1)
    found = measure(exact, own, conditions)
    for n in range(2):
        whole = torch.autograd.functional.jacobian(
            lambda start, c=conditions[n : n + 1]: exact.rollout(start[None], c)[0, -1], latents[n, :3]
        )
        norm = torch.linalg.matrix_norm(whole.reshape(D, 3 * D), ord=2)
        assert torch.isclose(found.augmented_norms[n, -1], norm, rtol=1e-9)


# --- the residual's bound --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transition", [Nonlinear(), transformer()], ids=["tanh", "transformer"])
def test_residuals_stay_within_the_bound_of_proposition_1_and_not_within_a_tenth_of_it(transition):
    latents, conditions = trajectories()
    latents = 0.3 * latents  # errors that are small against the curvature: the bound is then near
    found = measure(transition, latents, conditions)
    constants = lipschitz(transition, latents, conditions, found)
    errors = history_errors(found, transition.window).flatten(2).norm(dim=-1)
    size = found.augmented_residual.norm(dim=-1)
    assert (size[:, 0]).max() <= 1e-12  # nothing is propagated before there is an error
    bound = constants.max() / 2 * errors.square()
    assert (size <= bound + 1e-12).all()
    tenth = 0.1 * torch.cat([torch.zeros_like(constants[:, :1]), constants], dim=1) / 2 * errors.square()
    assert (size > tenth)[:, 1:].double().mean() > 0.5


def test_an_affine_transition_has_no_curvature():
    latents, conditions = trajectories()
    found = measure(affine(), latents, conditions)
    assert lipschitz(affine(), latents, conditions, found).abs().max() == 0


# --- Proposition 1 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transition", [affine(), Nonlinear(), Nonlinear(gain=0.1)], ids=["affine", "tanh", "mild"])
def test_propagated_errors_and_residuals_are_the_rollout_error(transition):
    """Eq. 4, with residuals by their definition (eq. 11) and explicit products of Jacobians."""
    latents, conditions = (x.double() for x in trajectories(horizon=6))
    found = measure(transition, latents, conditions)
    exact = in_float64(transition)
    jacobians = torch.stack([step_jacobians(exact, latents, conditions, t)[:, -1] for t in range(1, 7)], dim=1)
    delta = torch.cat([torch.zeros(N, 1, D, dtype=torch.float64), found.delta], dim=1)[:, :-1]
    moved = exact.predict((latents[:, :-1] + delta), conditions) - exact.predict(latents[:, :-1], conditions)
    residual = moved - torch.einsum("nhij,nhj->nhi", jacobians, delta)
    assert torch.allclose(found.residual, residual, atol=1e-12 * float(found.delta.abs().max()))
    for horizon in range(1, 7):
        total = torch.zeros(N, D, dtype=torch.float64)
        for j in range(1, horizon + 1):
            error = (found.epsilon[:, j - 1] + residual[:, j - 1]).unsqueeze(-1)
            for t in range(j, horizon):
                error = jacobians[:, t] @ error  # by J_{j+1}, ..., J_H: Phi_{j->H}
            total += error.squeeze(-1)
        assert torch.allclose(total, found.delta[:, horizon - 1], rtol=1e-9, atol=1e-11)


def test_every_quantity_equals_a_numpy_reference():
    transition = affine()
    latents, conditions = trajectories(n=2, horizon=4)
    found = measure(transition, latents, conditions)
    w = {name: p.detach().double().numpy() for name, p in transition.named_parameters()}
    u, v = (scipy.linalg.expm(w[k] - w[k].T) for k in ("W_u", "W_v"))
    base = u @ np.diag(np.tanh(w["s"])) @ v.T
    for n, (z, c) in enumerate(zip(latents.double().numpy(), conditions.double().numpy(), strict=True)):
        matrices = [base + np.einsum("r,rij->ij", w["W_g.weight"] @ x, w["N"]) for x in c]
        step = [lambda x, a=a, y=y: a @ x + w["B.weight"] @ y + w["B.bias"] for a, y in zip(matrices, c, strict=True)]
        predicted, product, first_order = z[0], np.eye(D), np.zeros(D)
        for t in range(1, 5):
            predicted = step[t - 1](predicted)
            epsilon = step[t - 1](z[t - 1]) - z[t]
            product = matrices[t - 1] @ product
            first_order = matrices[t - 1] @ first_order + epsilon
            assert np.allclose(found.delta[n, t - 1], predicted - z[t], atol=1e-12)
            assert np.allclose(found.epsilon[n, t - 1], epsilon, atol=1e-12)
            assert np.allclose(found.reconstruction[n, t - 1], first_order, atol=1e-12)
            assert np.isclose(found.propagation_norms[n, t - 1], np.linalg.norm(product, 2), rtol=1e-12)


def test_trajectories_do_not_touch_each_other_and_chunks_change_nothing():
    latents, conditions = trajectories()
    whole = measure(transformer(), latents, conditions)
    in_chunks = measure(transformer(), latents, conditions, chunk=2)
    alone = measure(transformer(), latents[3:4], conditions[3:4])
    assert torch.allclose(whole.rho, in_chunks.rho, atol=1e-9)
    assert torch.allclose(whole.delta[3:4], alone.delta, atol=1e-9)
    assert torch.allclose(whole.propagation_norms[3:4], alone.propagation_norms, rtol=1e-9)


def test_measuring_leaves_the_transition_as_it_was():
    transition = affine().train()
    before = {name: value.clone() for name, value in transition.state_dict().items()}
    measure(transition, *trajectories())
    assert transition.training
    assert all(p.requires_grad and p.dtype == torch.float32 for p in transition.parameters())
    assert all(torch.equal(before[name], value) for name, value in transition.state_dict().items())


# --- Jacobians -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transition", [affine(), Nonlinear(), transformer()], ids=["affine", "tanh", "transformer"])
def test_jacobians_are_those_of_finite_differences_of_the_latest_latent(transition):
    exact = in_float64(transition)
    latents, conditions = (x.double()[:, : exact.window] for x in trajectories())
    found = history_jacobians(exact, latents, conditions)[:, -1]  # earlier history held fixed, App. C.1
    for i in range(D):
        step = torch.zeros_like(latents)
        step[:, -1, i] = 1e-6
        ahead, behind = (exact.predict(latents + s * step, conditions)[:, -1] for s in (1, -1))
        assert torch.allclose(found[:, :, i], (ahead - behind) / 2e-6, atol=1e-7)


def test_jacobians_of_an_affine_transition_do_not_depend_on_the_state():
    latents, conditions = trajectories()
    sigma = state_dependence(affine(), latents[:, :1], conditions[:3, :1])
    assert sigma.shape == (3, N)
    assert (sigma.amax(dim=1) - sigma.amin(dim=1)).max() <= 1e-14
    assert sigma[:, 0].std() > 1e-3  # but on the action they do


def test_a_transition_that_only_says_it_is_affine_is_found_out():
    class Bent(StateAffine):
        def _predict(self, latents, conditions):
            return torch.tanh(super()._predict(latents, conditions))

    bent = scrambled(Bent(D, D, modes=3))
    latents, conditions = (x[:, :1] for x in trajectories())
    assert torch.equal(history_jacobians(bent, latents, conditions)[:, -1], bent.matrix(conditions[:, 0]))
    sigma = state_dependence(bent, latents, conditions[:3])
    assert ((sigma.amax(dim=1) - sigma.amin(dim=1)) / sigma.mean(dim=1)).min() > 1e-2


@pytest.mark.parametrize("transition", [Nonlinear(), transformer()], ids=["tanh", "transformer"])
def test_jacobians_of_other_transitions_depend_on_the_state(transition):
    latents, conditions = (x[:, : transition.window] for x in trajectories())
    sigma = state_dependence(transition, latents, conditions[:3])
    assert ((sigma.amax(dim=1) - sigma.amin(dim=1)) / sigma.mean(dim=1)).min() > 1e-2


def test_jacobians_are_taken_a_few_states_at_a_time_and_come_out_the_same(monkeypatch):
    """Differentiating all states at once needs memory for all of them."""
    transition, sizes = transformer(), []
    latents, conditions = (x[:, : transition.window] for x in trajectories(n=37))
    at_once = state_dependence(transition, latents, conditions[:2], chunk=37)

    def counted(transition, history, conditions):
        sizes.append(len(history))
        return differentiated(transition, history, conditions)

    monkeypatch.setattr(jacobians, "differentiated", counted)
    torch.testing.assert_close(state_dependence(transition, latents, conditions[:2]), at_once, rtol=1e-12, atol=0)
    assert sizes == [16, 16, 5] * 2
