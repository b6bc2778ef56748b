"""Acting live: draw a state, decide once, carry actions out. Each question holds the whole situation."""

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from saltwm.data.fields import action_names_of
from saltwm.envs.base import Frame, PlanningEnv, State
from saltwm.evaluation.protocols import CLEAN_PROTOCOL
from saltwm.explore.browsing import task_set
from saltwm.explore.catalogue import planners_for
from saltwm.explore.desk import Desk, plain, png, shown_size
from saltwm.explore.messages import MOST_HISTORY, Advance, Answer, Command, Decide, Draw, Episode, OfModel
from saltwm.explore.scenes import action_names, scene_of
from saltwm.ground.checks import one_of
from saltwm.ground.config import ModelConfig, PlannerConfig, PriorPlanner
from saltwm.ground.errors import UsageError
from saltwm.jobs.by_hand import BY_HAND_STEPS
from saltwm.jobs.evaluate import Play
from saltwm.jobs.job import spell
from saltwm.model.traits import traits_of
from saltwm.planning.names import planner_named
from saltwm.planning.policy import View

if TYPE_CHECKING:
    from torch import Tensor

    from saltwm.planning.agent import Agent
    from saltwm.planning.cem import Plan
    from saltwm.planning.costs import Situation

SHOWN_CANDIDATES = 24
MOST_ROLLOUTS = 50_000
"""That a search may make for one plan; the paper's CEM makes 9,000. A person waits for the answer."""


def scene(desk: Desk, ask: OfModel) -> Answer:
    """What can be moved, the range that data show of it, and a start and goal to begin with."""
    if not desk.is_simulated(ask.model):
        return _recorded_scene(desk, ask.model)
    desk.expect(ask.model)
    env, info = desk.env_of(ask.model), desk.info(ask.model)
    holds, name = scene_of(env.name), desk.data_of(ask.model)
    header: dict[str, Any] = {
        "simulated": True,
        "dataset": name,
        "handles": [asdict(handle) for handle in holds.handles],
        "sliders": [],
        "action_low": env.action_space.low,
        "action_high": env.action_space.high,
        "action_dim": env.action_dim,
        "action_names": action_names(env.name, env.action_dim),
        "frameskip": info.run.model.frameskip,
        "budget": BY_HAND_STEPS,
        "planners": planners_for(desk, ask.model),
        "history": _history(info.run.model),
    }
    if name is not None:
        dataset = desk.dataset(name)
        some = [dataset.states(episode) for episode in range(min(len(dataset), 100))]
        header |= {
            **_first_task(env, some),
            "lengths": dataset.lengths,
            "sliders": [asdict(slider) | _range(np.concatenate(some), slider.index) for slider in holds.sliders],
        }
    else:
        env.reset(seed=0)
        assert env.goal is not None
        header |= {"episode": None, "lengths": [], "state": env.state(), "goal": env.goal}
    return Answer(plain(header))


def _history(model: ModelConfig) -> dict[str, int]:
    """Frames that the model is shown by itself, and those that it can look back at."""
    traits = traits_of(model.model)
    return {"usual": traits.frames(model), "most": min(traits.window(model), MOST_HISTORY)}


def _recorded_scene(desk: Desk, model: str) -> Answer:
    """The same of a world that is known from recordings alone: nothing can be moved, actions have the range of data."""
    info, name = desk.info(model), desk.data_of(model)
    header: dict[str, Any] = {"dataset": name, "simulated": False}
    named: tuple[str, ...] = ()
    if name is not None:
        dataset = desk.dataset(name)
        named = action_names_of(dataset)
        header |= {
            "action_low": dataset.all_actions.min(axis=0),
            "action_high": dataset.all_actions.max(axis=0),
            "lengths": dataset.lengths,
        }
    dim = info.world.action_dim
    header |= {"action_dim": dim, "action_names": action_names(info.world.environment, dim, named)}
    return Answer(plain(header | {"frameskip": info.run.model.frameskip, "handles": [], "sliders": []}))


def _first_task(env: PlanningEnv, episodes: list[State]) -> dict[str, Any]:
    """The first episode whose goal, as `clean` takes it, is far enough away to be worth a plan."""
    offset = CLEAN_PROTOCOL.goal_offset_steps
    pairs = [(states[0], states[min(offset, len(states) - 1)]) for states in episodes]
    starts, goals = (np.stack(side) for side in zip(*pairs, strict=True))
    chosen = int(np.argmax(env.goal_distance(starts, goals) >= CLEAN_PROTOCOL.min_distance))
    return {"episode": chosen, "state": starts[chosen], "goal": goals[chosen]}


def _range(states: State, index: int) -> dict[str, float]:
    """What data show of one number of the state, outliers left out."""
    low, high = np.quantile(states[:, index], (0.005, 0.995))
    return {"low": float(low), "high": float(high)}


def draw(desk: Desk, ask: Draw) -> Answer:
    """The picture of a state, and the state as the world allows it."""
    env = desk.env_of(ask.model, ask.variant)
    state = scene_of(env.name).settle(desk.state(env, ask.state))
    env.restore(state)
    return Answer(plain({"state": state}), [png(env.draw(shown_size(env)))])


def advance(desk: Desk, ask: Advance) -> Answer:
    """Carry actions out until they are, the goal is reached or the world ends the episode; a picture of every step."""
    env = desk.env_of(ask.model, ask.variant)
    state, goal = desk.state(env, ask.state), desk.state(env, ask.goal)
    env.reset(options={"state": state, "goal": goal})
    states, distances, pictures = [], [], []
    reached = over = False
    for action in np.array(ask.actions, np.float32).reshape(-1, env.action_dim):
        now, _, _, over, _ = env.step(action)
        states.append(now)
        distances.append(float(env.goal_distance(states[-1][None], goal[None])[0]))
        pictures.append(png(env.draw(shown_size(env))))
        reached = distances[-1] < 1
        if reached or over:
            break
    header = {"states": states, "distances": distances, "reached": reached, "ended": over and not reached}
    return Answer(plain(header), pictures)


def command(desk: Desk, ask: Command) -> Answer:
    """The command that acts from this start to this goal as the page does: the same plans, the same steps."""
    job = Play(
        str(desk.checkpoint(ask.model)),
        planner=_planner(desk, ask),
        horizon=ask.horizon_blocks,
        look_every=ask.look_every,
        history=ask.history_frames,
        **(_by_hand(desk, ask) if ask.recorded is None else _as_recorded(desk, ask, ask.recorded)),
    )
    return Answer({"command": spell(job)})


def _planner(desk: Desk, ask: Command | Decide) -> PlannerConfig:
    """The planner of `cem` or `gauss-newton,mu=0.1`, if it works with the model and its plan can be waited for."""
    one_of("planner", ask.planner.partition(",")[0], planners_for(desk, ask.model))
    planner = planner_named(ask.planner)
    search = getattr(planner, "search", planner)
    at_once = getattr(search, "candidates", getattr(search, "starts", 1))
    rollouts = at_once * getattr(search, "iterations", 1)
    if rollouts > MOST_ROLLOUTS:
        raise UsageError(
            f"planner: {ask.planner} makes {rollouts:,} rollouts for a plan, here at most {MOST_ROLLOUTS:,}"
        )
    return planner


def _by_hand(desk: Desk, ask: Command) -> dict[str, Any]:
    """The options of a start and a goal that a person set."""
    env = desk.env_of(ask.model)
    start, goal = (json.dumps(desk.state(env, numbers).tolist()) for numbers in (ask.start, ask.goal))
    return {"start": start, "goal": goal, "seed": ask.seed, "unbounded": not ask.bounded}


def _as_recorded(desk: Desk, ask: Command, recorded: Episode) -> dict[str, Any]:
    """The options of a recorded task, whose protocol and number say the rest: physics, bounds and random numbers."""
    file, tasks = task_set(desk, recorded)
    if (ask.bounded, ask.seed) != (tasks.protocol.bound_actions, tasks.seed):
        bounds = "inside their bounds" if tasks.protocol.bound_actions else "free"
        raise UsageError(
            f"command: task {recorded.task} of {file.name} has seed {tasks.seed} and actions that are {bounds}; no "
            "command changes these two; choose them again, or move the goal to leave the recorded task"
        )
    return {"task_set": file, "task": recorded.task}


# --- one decision ----------------------------------------------------------------------------------------------------


def decide(desk: Desk, ask: Decide) -> Answer:
    """A plan from one look: its actions, what the model expects of them, and what it was found among."""
    import torch

    from saltwm.ground.rng import torch_stream

    env, model = desk.env_of(ask.model, ask.variant), desk.model(ask.model)
    state, goal = desk.state(env, ask.state), desk.state(env, ask.goal)
    agent = _agent(desk, ask, env)
    past = [desk.state(env, one) for one in ask.past]
    frames = env.draw_many(np.stack([*past, state, goal]), env.image_size)
    with torch.inference_mode():
        started = time.perf_counter()
        situation = agent.situation(_view(ask, agent, frames))
        looked = time.perf_counter()
        horizon = agent.blocks_to_plan(situation)
        # The stream of an evaluation: the same task, seed and number of plans give the same plan.
        generators = [torch_stream(agent.seed, "plan", ask.task, ask.number)]
        found = agent.search(model, situation, horizon=horizon, generators=generators, bounds=agent.bounds)
        planned = time.perf_counter()
        planned_blocks = model.action_encoder.encode_normalised(found.actions)
        path = model.rollout(situation.history, torch.cat([situation.past_conditions, planned_blocks], dim=1))[0]
        costs = (path - situation.goal).square().mean(dim=1)
        now = (situation.history[0, -1] - situation.goal[0]).square().mean()
        drawn = {name: agent.raw(some) for name, some in _populations(agent, situation, found, horizon).items()}
    actions = agent.raw(found.actions)[0]
    header = {
        "expected_costs": costs.tolist(),
        "cost_now": float(now),
        "elite_costs": found.elite_costs[0].tolist(),
        "look_seconds": looked - started,
        "plan_seconds": planned - looked,
        "distance": float(env.goal_distance(state[None], goal[None])[0]),
        "drawn": list(drawn),
        "population": list(drawn.values()),
        **_trails(env, state, actions, list(drawn.values())),
        **pictures_of(desk, ask.model, path),
    }
    blobs = [path.numpy().astype("<f4").tobytes(), *decoded(desk, ask.model, path)]
    return Answer({**plain(header, digits=5), "actions": plain(actions)}, blobs)  # actions come back, so they are exact


def _agent(desk: Desk, ask: Decide, env: PlanningEnv) -> "Agent":
    from saltwm.planning.agent import Agent

    planner = _planner(desk, ask)
    return Agent(
        desk.model(ask.model),
        planner,
        horizon_blocks=ask.horizon_blocks,
        look_every=ask.look_every,
        goal_blocks=ask.goal_blocks,
        history_frames=ask.history_frames,
        action_low=env.action_space.low if ask.bounded else None,
        action_high=env.action_space.high if ask.bounded else None,
        seed=ask.seed,
        prior=desk.prior(ask.model) if isinstance(planner, PriorPlanner) else None,
    )


def _view(ask: Decide, agent: "Agent", frames: Frame) -> View:
    """What the agent sees: the frames of its window and the blocks between them, the goal, the rest of the last plan.

    `frames` are the past ones, the present and the goal; the page may know more of the past than the agent looks at.
    """
    action_dim = agent.model.world.action_dim
    block = agent.model.config.frameskip * action_dim
    done = np.array(ask.past_actions, np.float32)
    if done.size != len(ask.past) * block:
        expected = f"{agent.model.config.frameskip} actions of {action_dim} numbers from each"
        raise UsageError(f"past_actions: expected {expected} of {len(ask.past)} past states, found {done.size} numbers")
    back = min(len(ask.past), agent.window - 1)
    blocks = done.reshape(1, -1, block)[:, len(ask.past) - back :]
    rest = np.array(ask.rest, np.float32).reshape(1, -1, action_dim) if ask.rest else None
    return View(frames[None, -2 - back : -1], blocks, frames[-1:], np.array([ask.executed_blocks]), rest)


def _populations(agent: "Agent", situation: "Situation", found: "Plan", horizon: int) -> "dict[str, Tensor]":
    """Draws [S, H, F A] of what a planner began with, and of what it ended with, where it searches a distribution."""
    import torch

    from saltwm.ground.rng import torch_stream
    from saltwm.planning.prior import first_blocks

    noise = torch.randn(SHOWN_CANDIDATES, *found.actions.shape[1:], generator=torch_stream(agent.seed, "shown"))
    first = getattr(agent.planner, "initial_std", None)
    drawn = {}
    if situation.proposal is not None:  # the prior's mean and deviations
        expected = first_blocks(situation.proposal, horizon)
        drawn["draws of the prior"] = expected.mean.cpu() + expected.std.cpu() * noise
    elif first is not None:
        drawn["first candidates"] = first * noise
    if bool((found.std > 0).any()):
        drawn["last candidates"] = found.actions + found.std * noise
    return {name: some if agent.bounds is None else agent.bounds.clamp(some) for name, some in drawn.items()}


def _trails(
    env: PlanningEnv, state: State, actions: NDArray[np.float32], shown: list[NDArray[np.float32]]
) -> dict[str, Any]:
    """Where the plan and its candidates lead in the picture, where actions have a place in it."""
    trails = scene_of(env.name).trails
    if trails is None:
        return {"trail": None, "trails": []}
    return {"trail": trails(env, state, actions[None])[0], "trails": [trails(env, state, some) for some in shown]}


def pictures_of(desk: Desk, model: str, path: "Tensor") -> dict[str, Any]:
    """Which stored frames are nearest to imagined latents; nothing without a dataset."""
    if desk.data_of(model) is None:
        return {"nearest": [], "decoded": 0}
    drawn = 0 if desk.decoder(model) is None else len(path)
    return {"nearest": desk.gallery(model).nearest(path), "decoded": drawn}


def decoded(desk: Desk, model: str, path: "Tensor") -> list[bytes]:
    """What the decoder makes of imagined latents, once it is fitted."""
    decoder = desk.decoder(model)
    return [] if decoder is None else [png(picture) for picture in decoder.draw(path)]
