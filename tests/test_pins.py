"""What results rest on and nothing else would show: the optimiser's settings, and what is counted."""

import dataclasses

import numpy as np
import pytest
import torch
from report.fake_results import make_results

from saltwm.data.batches import Batches
from saltwm.disk.records import read_cells
from saltwm.evaluation.contests import compare
from saltwm.evaluation.protocols import CLEAN_PROTOCOL
from saltwm.ground.errors import MismatchError
from saltwm.planning.agent import Agent
from saltwm.planning.cem import Plan
from saltwm.processes.launch import Devices, make_fabric
from saltwm.train import Learner, build_model, make_optimizer, make_windows, take_step


@pytest.fixture
def step(tiny, dataset):
    """step(config, number) -> what a step leaves to look at, and the learner."""

    def take(config, number):
        fabric = make_fabric(Devices(accelerator="cpu"), "32-true")
        learner = Learner(build_model(config, dataset), config.objective)
        wrapped, optimizer = fabric.setup(learner, make_optimizer(learner, config))
        _, batch = next(iter(Batches(make_windows(config, dataset), 0, 0, 1, config.train.batch_size)))
        return take_step(fabric, wrapped, optimizer, batch, config, number, 10), learner

    return take


def with_train(config, **changes):
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **changes))


def test_gradients_are_clipped_to_the_largest_norm(step, tiny):
    stepped, learner = step(with_train(tiny, gradient_clip=0.01), 0)
    assert stepped.scalars["gradient_norm"] > 0.1
    clipped = torch.stack([p.grad.norm() for p in learner.parameters() if p.grad is not None]).norm()
    assert clipped.item() == pytest.approx(0.01, rel=1e-3)


def test_every_parameter_decays(tiny, dataset):
    learner = Learner(build_model(tiny, dataset), tiny.objective)
    (group,) = make_optimizer(learner, with_train(tiny, weight_decay=0.125)).param_groups
    assert group["weight_decay"] == 0.125
    assert len(group["params"]) == len(list(learner.parameters()))


def test_each_step_draws_dropout_of_its_own_and_the_same_when_repeated(step, tiny, monkeypatch):
    seeds, real = [], torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda seed: seeds.append(seed) or real(seed))
    drawn = []
    for number in (3, 3, 4):
        step(tiny, number)
        drawn.append(seeds[-1])  # the last before the forward pass
    assert drawn[0] == drawn[1] != drawn[2]


def test_an_agent_plans_in_evaluation_mode_with_whatever_mode_it_is_given(tiny, dataset):
    model = build_model(tiny, dataset).train()
    model.encoder.eval()  # frozen
    modes = [module.training for module in model.modules()]
    seen = []

    def plan(model, situation, *, horizon, generators):
        seen.extend(module.training for module in model.modules())
        actions = torch.zeros(1, horizon, model.action_encoder.block_dim)
        return Plan(actions, actions, torch.zeros(1, 1))

    agent = Agent(model, plan)
    frame = np.zeros((model.world.image_size, model.world.image_size, 3), np.uint8)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    agent.reset(frame)
    agent.act(frame)
    assert not any(seen)
    assert [module.training for module in model.modules()] == modes
    assert any(modes)
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


def test_outcomes_are_paired_only_if_their_tasks_stand_in_one_order(tmp_path):
    make_results(tmp_path, ("two-room",), ("salt", "lewm"), (CLEAN_PROTOCOL,), n=8, pictures=0)
    one, other = read_cells(tmp_path)
    compare([one], [other])
    turned = dataclasses.replace(other, episodes=other.episodes[::-1])
    with pytest.raises(MismatchError, match="not of the same tasks in order"):
        compare([one], [turned])
