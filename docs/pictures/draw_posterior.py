"""Draw docs/pictures/posterior.svg: python docs/pictures/draw_posterior.py

One plan of a frozen task taken apart: what the action prior expected, what was planned, and what happened when the plan
was carried out. Another picture: RUN TASK_SET TASK OUT as arguments.
"""

import contextlib
import io
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
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
from saltwm.report.figures import BLUE, GREY, INK, ORANGE

PICTURE = ("checkpoints/cube-salt", "results/tasks/cube-clean-seed1.json", "2", "docs/pictures/posterior.svg")
"""Run, task set, task and file of the document's picture."""
DRAWS = 40
Numbers = NDArray[np.float64]
_SIZE = (8.4, 3.0)
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "saltwm",  # the same numbers give the same bytes
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
}
_ACTION_LINES = ("prior: one deviation", "prior: mean", "plan: posterior mode")
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


@dataclass(frozen=True)
class PlanPicture:
    """One blind plan of H blocks. Actions are normalised; distances are squared and per latent dimension."""

    prior_mean: Numbers
    """[steps, A] of single actions."""
    prior_std: Numbers
    """[steps, A]"""
    planned: Numbers
    """[steps, A]"""
    prior_predicted: Numbers
    """[draws, H + 1] distance to the goal after each block, as the model predicts it for draws from the prior."""
    plan_predicted: Numbers
    """[H + 1] the same for the plan."""
    happened: Numbers
    """[executed blocks + 1] distance of the true frames' latents to the goal as the plan was carried out."""


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


# --- drawing ---------------------------------------------------------------------------------------------------------


def draw_plan(picture: PlanPicture) -> str:
    """The picture as SVG."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        actions, distances = figure.subplots(1, 2)
        _draw_actions(actions, picture)
        _draw_distances(distances, picture)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    text = buffer.getvalue()
    return text[text.index("<svg") :]  # without the document type, which names an address


def _draw_actions(axes: Axes, picture: PlanPicture) -> None:
    """The first two numbers of each action, one above the other."""
    steps = np.arange(len(picture.planned))
    shown = min(2, picture.planned.shape[1])
    apart = 2.2 * float(np.abs(np.concatenate([picture.prior_mean, picture.planned])[:, :shown]).max() + 1)
    for number in range(shown):
        base = -number * apart
        mean, std = picture.prior_mean[:, number] + base, picture.prior_std[:, number]
        names = _ACTION_LINES if number == 0 else (None, None, None)  # once in the legend
        axes.fill_between(steps, mean - std, mean + std, color=GREY, alpha=0.3, lw=0, label=names[0])
        axes.plot(steps, mean, color=GREY, lw=1.5, label=names[1])
        axes.plot(steps, picture.planned[:, number] + base, color=ORANGE, lw=1.5, label=names[2])
        axes.axhline(base, color=INK, lw=0.4)
    axes.set_yticks([-number * apart for number in range(shown)], [f"action {number}" for number in range(shown)])
    axes.set_title("What the data expect, and what is planned")
    axes.set_xlabel("environment step")
    axes.legend(loc="center right")


def _draw_distances(axes: Axes, picture: PlanPicture) -> None:
    for draw in picture.prior_predicted:
        axes.plot(draw, color=GREY, lw=0.6, alpha=0.5)
    axes.plot([], [], color=GREY, lw=1, label="draws from the prior, predicted")
    axes.plot(picture.plan_predicted, "o-", color=ORANGE, label="plan, predicted")
    axes.plot(picture.happened, "s--", color=BLUE, label="plan, what happened")
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(len(picture.plan_predicted)))
    axes.set_title("Where it leads")
    axes.set_xlabel("action block")
    axes.set_ylabel("|z - z_g|² per dimension")
    axes.legend(loc="lower left")


if __name__ == "__main__":
    run, task_set, task, out = sys.argv[1:] or PICTURE
    picture_plan(run, task_set, int(task), out)
