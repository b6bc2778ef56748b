"""The adapter under stand-ins of both generations of stable-worldmodel's calls, written from what is known of them."""

import copy
import dataclasses

import pytest
import torch
from planning_models import SMALL, WORLD, shaken
from torch import nn

from saltwm.ground.errors import MismatchError, ShapeError
from saltwm.interop.solver_adapter import SolverAdapter
from saltwm.model.encoder import IMAGENET_MEAN, IMAGENET_STD

SIZE = WORLD.image_size


def normalised(frames):
    """uint8 [..., h, w, 3] as those solvers see it: float [..., 3, h, w] by ImageNet's mean and deviation."""
    scaled = (frames / 255 - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)
    return scaled.movedim(-1, -3)


def frames(*shape):
    return torch.randint(0, 256, (*shape, SIZE, SIZE, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def expanded(info, samples):
    """The solver's view of a batch: every tensor repeated over candidates without copying."""
    return {
        key: value[:, None].expand(-1, samples, *value.shape[1:]) if torch.is_tensor(value) else value
        for key, value in info.items()
    }


class HeadEvaluator(nn.Module):
    """Stand-in of today's shooting evaluator: encodes the goal on the first call, then rollout and a summed error."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, info, candidates):
        if "goal_emb" not in info:
            goal = {key: value[:, 0] for key, value in info.items() if torch.is_tensor(value)}
            goal["pixels"] = goal["goal"]
            goal.pop("action")
            info["goal_emb"] = self.model.encode(goal)["emb"]
        info = self.model.rollout(info, candidates)
        return (info["predicted_emb"][:, :, -1] - info["goal_emb"][:, None, -1]).square().sum(-1)


class OldSolver:
    """Stand-in of the PyPI release's CEM loop: one dictionary for all iterations, costs from get_cost."""

    def __init__(self, model):
        self.model = model
        self.dtype = next(model.parameters()).dtype

    @torch.inference_mode()
    def solve(self, info, horizon, action_dim, samples=8, iterations=3):
        batch = len(info["pixels"])
        mean, var = torch.zeros(batch, horizon, action_dim), torch.ones(batch, horizon, action_dim)
        generator, info = torch.Generator().manual_seed(0), expanded(info, samples)
        for _ in range(iterations):
            candidates = torch.randn(batch, samples, horizon, action_dim, generator=generator) * var[:, None]
            candidates = candidates + mean[:, None]
            candidates[:, 0] = mean
            costs = self.model.get_cost(info, candidates.to(self.dtype))
            assert costs.shape == (batch, samples)
            best = costs.topk(3, dim=1, largest=False).indices
            elites = torch.stack([candidates[row, best[row]] for row in range(batch)])
            mean, var = elites.mean(1), elites.std(1)
        return mean, costs


def plain_cost(model, context, past, goal, candidates):
    """The summed squared distance by the model's own verbs: context [B, C, h, w, 3] uint8, past [B, C-1, A]."""
    latents, target = model.encode(context), model.encode(goal)[:, -1]
    rows = []
    for row in range(len(context)):
        count = len(candidates[row])
        blocks = torch.cat([past[row].expand(count, -1, -1), candidates[row]], dim=1)
        unseen = max(0, context.shape[1] - model.window)
        conditions = model.action_encoder.encode_normalised(blocks[:, unseen:])
        last = model.rollout(latents[row, unseen:].expand(count, -1, -1), conditions)[:, -1]
        rows.append((last - target[row]).square().sum(-1))
    return torch.stack(rows)


@pytest.mark.parametrize("name", ["salt", "lewm"])
@pytest.mark.parametrize("context", [1, 3])
@torch.inference_mode()
def test_today_s_evaluator_gets_the_model_s_own_costs(name, context):
    model = shaken(dataclasses.replace(SMALL, model=name))
    seen, goal, past = frames(2, context), frames(2, 1), torch.randn(2, context - 1, 10)
    info = {"pixels": normalised(seen), "goal": normalised(goal), "action": torch.full((2, 1, 2), torch.nan)}
    if context > 1:
        info["action_history"] = past
    candidates = torch.randn(2, 5, 4, 10)
    evaluator = HeadEvaluator(SolverAdapter(model))
    info = expanded(info, 5)
    costs = evaluator(info, candidates)
    assert info["predicted_emb"].shape == (2, 5, context + 4, SMALL.latent_dim)
    torch.testing.assert_close(costs, plain_cost(model, seen, past, goal, candidates), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("context", [1, 3])
@torch.inference_mode()
def test_the_release_s_contract_counts_the_context_s_blocks_among_the_candidates(context):
    model = shaken(dataclasses.replace(SMALL, model="lewm"))
    seen, goal = frames(1, context), frames(1, 1)
    sequence = torch.randn(1, 5, 4, 10)
    sequence[:, :, : context - 1] = sequence[:, :1, : context - 1]  # what was done is the same for all candidates
    info = expanded({"pixels": normalised(seen), "goal": normalised(goal)}, 5)
    costs = SolverAdapter(model).get_cost(info, sequence)
    assert info["predicted_emb"].shape == (1, 5, 4 + 1, SMALL.latent_dim)
    past, future = sequence[:, 0, : context - 1], sequence[:, :, context - 1 :]
    torch.testing.assert_close(costs, plain_cost(model, seen, past, goal, future), rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_a_dictionary_with_a_new_goal_is_planned_to_that_one_and_a_caller_s_own_latent_is_kept():
    adapter, candidates = SolverAdapter(shaken(SMALL)), torch.randn(1, 5, 4, 10)
    seen, first, second = normalised(frames(1, 3)).split(1, dim=1)
    reused = expanded({"pixels": seen, "goal": first}, 5)
    before = adapter.get_cost(reused, candidates)
    reused["goal"] = expanded({"goal": second}, 5)["goal"]
    fresh = expanded({"pixels": seen, "goal": second}, 5)
    after = adapter.get_cost(reused, candidates)
    assert torch.equal(after, adapter.get_cost(fresh, candidates))
    assert not torch.equal(after, before)
    own = fresh["goal_emb"]
    given = expanded({"pixels": seen, "goal": first}, 5) | {"goal_emb": own}
    assert torch.equal(adapter.get_cost(given, candidates), after)
    assert given["goal_emb"] is own


def test_the_release_s_solver_runs_and_encodes_once_per_solve():
    adapter = SolverAdapter(shaken(SMALL))
    calls = []
    adapter.model.encoder.trunk.register_forward_hook(lambda *_: calls.append(1))
    info = {"pixels": normalised(frames(2, 1)), "goal": normalised(frames(2, 1)), "id": [1, 2]}
    mean, costs = OldSolver(adapter).solve(info, horizon=2, action_dim=10)
    assert mean.shape == (2, 2, 10)
    assert costs.isfinite().all()
    assert len(calls) == 2  # the start and the goal


@torch.inference_mode()
def test_new_frames_in_an_old_dictionary_are_encoded_anew():
    adapter = SolverAdapter(shaken(SMALL))
    info = expanded({"pixels": normalised(frames(1, 1)), "goal": normalised(frames(1, 1))}, 2)
    candidates = torch.randn(1, 2, 1, 10)
    before = adapter.get_cost(info, candidates)
    info["pixels"] = info["pixels"] + 1
    assert not torch.allclose(adapter.get_cost(info, candidates), before)


@torch.inference_mode()
def test_raw_frames_and_normalised_ones_have_the_same_latents():
    adapter = SolverAdapter(shaken(SMALL))
    raw = frames(2, 3)
    from_floats = adapter.encode({"pixels": normalised(raw), "action": torch.zeros(2, 3, 10)})
    from_bytes = adapter.encode({"pixels": raw.movedim(-1, -3)})
    torch.testing.assert_close(from_floats["emb"], from_bytes["emb"], rtol=1e-4, atol=1e-4)
    assert from_floats["act_emb"].shape == (2, 3, SMALL.latent_dim)
    assert "act_emb" not in from_bytes


@pytest.mark.parametrize("evaluator", [HeadEvaluator, lambda adapter: adapter.get_cost], ids=["today", "release"])
def test_a_solver_may_go_backward_at_every_iteration_and_the_encoder_gets_no_gradient(evaluator):
    adapter = SolverAdapter(shaken(SMALL))
    info = {"pixels": normalised(frames(1, 1)), "goal": normalised(frames(1, 1)), "action": torch.zeros(1, 1, 10)}
    cost, info = evaluator(adapter), expanded(info, 3)
    candidates = torch.randn(1, 3, 2, 10).requires_grad_()
    gradients = []
    for _ in range(2):
        candidates.grad = None
        cost(info, candidates).sum().backward()
        gradients.append(candidates.grad)
    assert gradients[0].ne(0).any()
    assert torch.equal(*gradients)
    assert all(weight.grad is None for weight in adapter.model.encoder.parameters())


def test_what_solvers_look_for_is_there():
    adapter = SolverAdapter(copy.deepcopy(shaken(SMALL)).double())
    assert next(adapter.parameters()).dtype == torch.float64
    assert not hasattr(adapter, "extra_encoders")


def test_missing_goals_and_misshapen_frames_are_refused():
    adapter = SolverAdapter(shaken(SMALL))
    with pytest.raises(MismatchError, match="goal"):
        adapter.get_cost({"pixels": normalised(frames(1, 1, 1))}, torch.zeros(1, 1, 1, 10))
    with pytest.raises(ShapeError, match="pixels"):
        adapter.encode({"pixels": torch.zeros(1, 1, 3, SIZE, SIZE + 1)})
    with pytest.raises(ShapeError, match="candidates"):
        adapter.rollout({"pixels": normalised(frames(1, 1, 1))}, torch.zeros(1, 1, 1, 4))
