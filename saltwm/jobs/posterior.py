"""One plan of a frozen task taken apart: the prior, the plan, and what happened when it was carried out."""

import contextlib
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saltwm.disk import durable
from saltwm.disk.checkpoint import load
from saltwm.disk.records import Task, TaskSet
from saltwm.envs import make_env
from saltwm.envs.base import PlanningEnv
from saltwm.evaluation.rollout import drawn
from saltwm.evaluation.tasks import read_frozen
from saltwm.ground.config import MapConfig
from saltwm.ground.errors import UsageError
from saltwm.ground.rng import torch_stream
from saltwm.model.world_model import WorldModel
from saltwm.planning.agent import Agent
from saltwm.planning.cem import Plan, white_noise
from saltwm.planning.costs import Situation
from saltwm.planning.policy import View
from saltwm.planning.prior_files import load_prior
from saltwm.report.posterior import PlanPicture, draw_plan

DRAWS = 40


def picture_plan(
    run: Path | str, task_set: Path | str, task: int, out: Path | str, config: MapConfig | None = None
) -> PlanPicture:
    """Plan the first blocks of a frozen task, carry them out, and write the picture of both to `out` (SVG)."""
    tasks = read_frozen(Path(task_set))
    if not 0 <= task < len(tasks.tasks):
        raise UsageError(f"no task {task}; there are tasks 0 to {len(tasks.tasks) - 1}")
    model, prior = load(run, world=tasks.world), load_prior(run)
    world = tasks.world
    env = make_env(
        world.environment, variant=tasks.protocol.variant, image_size=world.image_size, render_quality=world.render
    )
    with contextlib.closing(env):
        space = env.action_space if tasks.protocol.bound_actions else None
        agent = Agent(
            model,
            config or MapConfig(),
            prior=prior,
            goal_blocks=math.ceil(tasks.protocol.goal_offset_steps / model.config.frameskip),
            action_low=None if space is None else space.low,
            action_high=None if space is None else space.high,
        )
        picture = _picture(agent, env, tasks, tasks.tasks[task])
    durable.write_text(Path(out), draw_plan(picture))
    return picture


@torch.no_grad()
def _picture(agent: Agent, env: PlanningEnv, tasks: TaskSet, task: Task) -> PlanPicture:
    model = agent.model
    start, goal = drawn(env)(task)
    empty = np.empty((1, 0, model.action_encoder.block_dim), np.float32)
    situation = agent.situation(View(start[None, None], empty, goal[None]))
    found = agent.search(
        model,
        situation,
        horizon=agent.horizon_blocks,
        generators=[torch_stream(agent.seed, "plan", task.index, 0)],
        bounds=agent.bounds,
    )
    proposal = situation.proposed()
    _, horizon, block = proposal.mean.shape
    noise = white_noise(DRAWS, horizon, block, [torch_stream(agent.seed, "picture")])[0]
    draws = proposal.mean + proposal.std * noise
    action_dim = model.world.action_dim
    return PlanPicture(
        prior_mean=_numbers(proposal.mean[0].reshape(-1, action_dim)),
        prior_std=_numbers(proposal.std[0].reshape(-1, action_dim)),
        planned=_numbers(found.actions[0].reshape(-1, action_dim)),
        prior_predicted=_numbers(_distances(model, situation, draws)),
        plan_predicted=_numbers(_distances(model, situation, found.actions)[0]),
        happened=_carried_out(agent, env, tasks, task, found, situation),
    )


def _distances(model: WorldModel, situation: Situation, plans: Tensor) -> Tensor:
    """Predicted distance to the goal before the first and after each block: plans [S, H, A] -> [S, H + 1]."""
    z = situation.history[:1, -1:].expand(len(plans), -1, -1)
    predicted = model.rollout(z, model.action_encoder.encode_normalised(plans.to(z)))
    return (torch.cat([z, predicted], dim=1) - situation.goal[0]).square().mean(dim=2)


def _carried_out(
    agent: Agent, env: PlanningEnv, tasks: TaskSet, task: Task, found: Plan, situation: Situation
) -> np.ndarray:
    """Distances of the true frames to the goal, until it is reached or the plan ends: [blocks + 1]."""
    model = agent.model
    raw = model.action_encoder.denormalise(found.actions[0]).reshape(-1, model.world.action_dim).numpy()
    env.restore(np.array(task.state))
    env.set_goal(np.array(task.goal))
    frames, reached = [env.render()], False
    for step, action in enumerate(raw.astype(np.float32), start=1):
        reached = env.step(action)[2] or reached
        if step % model.config.frameskip == 0:
            frames.append(env.render())
            if reached:
                break
    latents = model.encode(torch.from_numpy(np.stack(frames))[None])[0]
    return _numbers((latents - situation.goal[0]).square().mean(dim=1))


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.double().cpu().numpy()
