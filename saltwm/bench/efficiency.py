"""Table 2: what both predictors cost (App. B.6), as one record.

Parameters, a forward step and planning are those of the paper's sizes, which need no picture. Training is timed at the
size that is trained here: on this machine a step of the paper's takes minutes. All jobs take turns, so a busy machine
slows both models alike, and times are processor seconds of one thread.
"""

import dataclasses
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import get_args

import torch

from saltwm.bench.planning import BATCH, HORIZONS, PAPER_CEM, paper_model, solve, step_jobs, take_turns_by_processor
from saltwm.bench.timing import one_thread
from saltwm.bench.training import TrainingStep
from saltwm.disk.records import Efficiency, PlanningTime, PredictorCost
from saltwm.envs import env_class
from saltwm.ground.config import ObjectiveName
from saltwm.jobs.collect import Collect
from saltwm.jobs.recipes import recipe
from saltwm.model.world_model import WorldModel
from saltwm.report.paper_figures import FOUR

MODELS = ("salt", "lewm")
ITERATIONS = {"salt": 5, "lewm": 1}
"""Iterations that are run of CEM's thirty; each costs what the next one does."""


def efficiency(*, horizons: tuple[int, ...] = HORIZONS, rounds: int = 3, training_rounds: int = 6) -> Efficiency:
    """Both rows of Table 2."""
    with one_thread(), torch.inference_mode():
        models = {name: paper_model(name) for name in MODELS}
        forward = take_turns_by_processor(step_jobs(models["salt"], models["lewm"]), max(5, 2 * rounds))
        planning: dict[str, list[PlanningTime]] = {name: [] for name in models}
        for dim in sorted({_action_dim(name) for name in FOUR}):
            planners = {name: paper_model(name, dim // 5) for name in MODELS}
            for horizon in horizons:
                for name, seconds in _solve_seconds(planners, horizon, dim, rounds).items():
                    same = [e for e in FOUR if _action_dim(e) == dim]
                    planning[name] += [PlanningTime(e, horizon, seconds) for e in same]
    with one_thread():
        rates = _iterations_per_second(training_rounds)
    rows = tuple(
        PredictorCost(
            model=name,
            parameters=sum(parameter.numel() for parameter in model.transition.parameters()),
            forward_ms=1000 * forward.fastest(name),
            one_step_iterations=rates[name, "one-step"],
            rollout_iterations=rates[name, "rollout"],
            planning_seconds=statistics.mean(time.seconds for time in planning[name]),  # unweighted, App. B.6
            planning=tuple(planning[name]),
        )
        for name, model in models.items()
    )
    config = recipe("cpu", "push-t").train.config()
    how = (
        f"Processor seconds of one thread. Parameters, a step for {BATCH} latents and CEM ({PAPER_CEM.candidates} "
        f"candidates, {PAPER_CEM.iterations} iterations, one task; SALT ran {ITERATIONS['salt']} and LeWM "
        f"{ITERATIONS['lewm']} of them, scaled) at the paper's sizes, planning as the unweighted mean over four "
        f"environments and H = {', '.join(map(str, horizons))}. Training at the `cpu` preset's sizes, "
        f"{config.train.batch_size} windows of 6 frames."
    )
    return Efficiency(how, rows)


def _action_dim(environment: str) -> int:
    """Numbers in a block of five actions."""
    return 5 * int(env_class(environment).action_dim)


def _solve_seconds(models: dict[str, WorldModel], horizon: int, dim: int, rounds: int) -> dict[str, float]:
    """Seconds of a whole CEM solve of one task by each model, which sees as much history as it can."""
    jobs: dict[str, Callable[[], object]] = {
        name: partial(solve, model, horizon, ITERATIONS[name], dim) for name, model in models.items()
    }
    timings = take_turns_by_processor(jobs, rounds)
    return {name: timings.fastest(name) * PAPER_CEM.iterations / ITERATIONS[name] for name in models}


def _iterations_per_second(rounds: int) -> dict[tuple[str, ObjectiveName], float]:
    """Training steps per second for each model with each objective, on matched windows."""
    usual = recipe("cpu", "push-t").train
    with tempfile.TemporaryDirectory() as directory:
        dataset = Collect("two-room", Path(directory) / "data", 60, frame_every=5, workers=1).do()
        steps = {}
        for model in MODELS:
            for objective in get_args(ObjectiveName):
                job = dataclasses.replace(usual, model=model, objective=objective)
                steps[model, objective] = TrainingStep(job.config(), dataset)
        timings = take_turns_by_processor({f"{m} {o}": step.loop for (m, o), step in steps.items()}, rounds)
    return {(m, o): 1 / timings.fastest(f"{m} {o}") for m, o in steps}
