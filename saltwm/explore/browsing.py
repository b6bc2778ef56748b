"""Recorded episodes: found by what they are, and repeated from their actions."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from saltwm.disk import checkpoint
from saltwm.disk.records import Cell, EpisodeRecord, Evaluation, TaskSet, read_cell, read_tasks
from saltwm.envs.base import Frame, State
from saltwm.evaluation.anatomy import dissect
from saltwm.evaluation.rollout import Outcome
from saltwm.evaluation.tasks import with_kinds
from saltwm.explore.desk import Desk, plain, png, shown_size
from saltwm.explore.folders import inside
from saltwm.explore.messages import Answer, Episode, EpisodesOf
from saltwm.ground.config import PlannerConfig
from saltwm.ground.errors import DamagedError, SaltError, UsageError
from saltwm.ground.strict_json import from_plain
from saltwm.jobs.chunks import read_outcomes
from saltwm.jobs.evaluate import Acting, Evaluate, Play
from saltwm.jobs.imagined import expected, repeated
from saltwm.jobs.job import spell
from saltwm.jobs.pictures import thinned
from saltwm.planning.names import planner_text

if TYPE_CHECKING:
    from torch import Tensor

MOST_FRAMES = 120
"""Of one episode that are drawn; of a longer one every second, third, ..."""


def episodes(desk: Desk, ask: EpisodesOf) -> Answer:
    """All cells of a results folder with a row per episode."""
    root = desk.path(ask.results, "results")
    cells, problems = [], []
    for folder in _cell_folders(root):
        try:
            cells.append(_cell(desk, root, folder))
        except SaltError as error:
            problems.append(str(error))
    return Answer({"cells": plain(cells), "problems": problems})


def _cell_folders(root: Path) -> list[Path]:
    """Folders of finished evaluations that are really there, none behind a link."""
    if (root / "evaluations").is_symlink():
        return []
    found = (root / "evaluations").glob("*/evaluation.json")
    return sorted(file.parent for file in found if not file.parent.is_symlink())


def _cell(desk: Desk, root: Path, folder: Path) -> dict[str, Any]:
    cell = _read(root, folder)
    evaluation = cell.evaluation
    return {
        "name": cell.name,
        "environment": evaluation.environment,
        "method": evaluation.method,
        "protocol": evaluation.protocol,
        "planner": _planner_text(evaluation),
        "horizon": evaluation.horizon_blocks,
        "look_every": evaluation.look_every,
        "history": evaluation.history_frames,
        "seed": evaluation.seed,
        "tasks": evaluation.tasks_sha256,
        "model": _model_of(desk, evaluation.checkpoint_sha256),
        "simulated": desk.has_simulator(evaluation.environment) and (folder / "actions.npy").exists(),
        "episodes": _rows(cell.episodes, _kinds(desk, root, cell)),
    }


def _read(root: Path, folder: Path) -> Cell:
    for name in ("evaluation.json", "episodes.jsonl"):
        inside(root, f"evaluations/{folder.name}/{name}")
    return read_cell(folder)


def _planner_text(evaluation: Evaluation) -> str | None:
    """The planner with its settings, as Act takes it; its kind alone where its settings are of another time."""
    kinds: Any = PlannerConfig  # a union, which no type of a type names
    try:
        return planner_text(from_plain(kinds, evaluation.planner, "planner"))
    except DamagedError:
        return evaluation.planner.get("kind")


def _rows(episodes: Sequence[EpisodeRecord], kinds: Sequence[str]) -> list[list[Any]]:
    """[task, success, steps, reason, start, final, closest distance, r, kind] of each episode."""
    rows = []
    for place, episode in enumerate(episodes):
        kind = kinds[place] if place < len(kinds) else ""
        distances = (episode.start_distance, episode.final_distance, episode.closest_distance)
        ratio = dissect(episode).ratio
        rounded = [round(value, 3) for value in distances]
        r = None if ratio is None else round(ratio, 3)
        rows.append([episode.task, episode.success, episode.steps_taken, episode.reason, *rounded, r, kind])
    return rows


def _kinds(desk: Desk, root: Path, cell: Cell) -> list[str]:
    """What each task asks for; nothing where the tasks are gone or of a foreign environment."""
    try:
        tasks = _tasks(root, cell)
    except SaltError:
        return []
    if not desk.has_simulator(tasks.world.environment):
        return []
    return [task.kind for task in with_kinds(tasks).tasks]


def _tasks(root: Path, cell: Cell) -> TaskSet:
    path = inside(root, cell.evaluation.tasks_file)
    tasks, sha256 = _read_tasks(path, path.stat().st_mtime_ns)
    if sha256 != cell.evaluation.tasks_sha256:
        raise DamagedError(f"{path}: not the tasks that {cell.name} was evaluated on")
    return tasks


@functools.lru_cache(maxsize=64)
def _read_tasks(path: Path, _: int) -> tuple[TaskSet, str]:
    """The tasks and their hash, which takes longer than reading them and is asked for by every cell."""
    tasks = read_tasks(path)
    return tasks, tasks.sha256


def _model_of(desk: Desk, sha256: str | None) -> str | None:
    """The model that was evaluated, if it is among the places: known by its hash, never by its path."""
    return None if sha256 is None else _models_by_hash(desk).get(sha256)


@functools.lru_cache(maxsize=4)
def _models_by_hash(desk: Desk) -> dict[str, str]:
    found = {}
    for name in desk.names("model"):
        try:
            desk.info(name)
            found[checkpoint.identity(desk.checkpoint(name))] = name
        except (SaltError, OSError):
            continue  # the catalogue says what is wrong with it
    return found


# --- one episode -----------------------------------------------------------------------------------------------------


def episode(desk: Desk, ask: Episode) -> Answer:
    """The episode seen again: now, goal, and what was imagined at each plan; costs and distances by step."""
    root, folder = _found(desk, ask)
    cell = _read(root, folder)
    inside(root, f"evaluations/{folder.name}/actions.npy")
    if not desk.has_simulator(cell.evaluation.environment):
        return _told(cell, ask.task)
    tasks = _tasks(root, cell)
    outcome = next((o for o in read_outcomes(folder) if o.record.task == ask.task), None)
    if outcome is None or ask.task >= len(tasks.tasks):
        raise UsageError(f"{ask.cell}: no task {ask.task}")
    env = desk.env(tasks.world, tasks.protocol.variant)
    goal = np.array(tasks.tasks[ask.task].goal)
    states = repeated(env, tasks.tasks[ask.task], outcome)
    shown = list(thinned(range(len(states)), MOST_FRAMES))
    pictures = env.draw_many(np.concatenate([states[shown], goal[None]]), shown_size(env))
    name = _model_of(desk, cell.evaluation.checkpoint_sha256)
    looked_at = cell.evaluation.history_frames
    imagined, frames = ([], []) if name is None else _imagined(desk, name, states, goal, outcome, looked_at)
    header = {
        "steps": shown,
        "distances": env.goal_distance(states, np.repeat(goal[None], len(states), axis=0)),
        "success_radius": env.success_radius,
        "budget": tasks.protocol.budget_steps,
        "plans": [{"step": plan.step, "costs": plan.elite_costs} for plan in outcome.record.plans],
        "imagined": imagined,
        "decoded": name is not None and desk.decoder(name) is not None,
        "model": name,
        "actions": outcome.actions,
        "state": states[0],
        "goal": goal,
        "bounded": tasks.protocol.bound_actions,
        "variant": tasks.protocol.variant,
        "goal_steps": tasks.protocol.goal_offset_steps,
        "command": _command(desk, root, cell, name, ask.task),
    }
    return Answer(plain(header), [png(picture) for picture in (*pictures, *frames)])


def _found(desk: Desk, ask: Episode) -> tuple[Path, Path]:
    """The results folder, and that of the cell in it."""
    root = desk.path(ask.results, "results")
    folder = next((folder for folder in _cell_folders(root) if folder.name == ask.cell), None)
    if folder is None:
        raise UsageError(f"{ask.results}: no evaluation is called {ask.cell!r:.80}")
    return root, folder


def task_set(desk: Desk, ask: Episode) -> tuple[Path, TaskSet]:
    """The frozen tasks that a recorded episode is one of, and their file."""
    root, folder = _found(desk, ask)
    cell = _read(root, folder)
    return root / cell.evaluation.tasks_file, _tasks(root, cell)


def _told(cell: Cell, task: int) -> Answer:
    """What the record alone says of an episode whose world cannot be simulated here."""
    record = next((record for record in cell.episodes if record.task == task), None)
    if record is None:
        raise UsageError(f"{cell.name}: no task {task}")
    return Answer(
        plain(
            {
                "steps": [],
                "distances": [],
                "imagined": [],
                "plans": [{"step": plan.step, "costs": plan.elite_costs} for plan in record.plans],
                "told": [record.start_distance, record.closest_distance, record.final_distance],
                "command": None,
            }
        )
    )


def _command(desk: Desk, root: Path, cell: Cell, model: str | None, task: int) -> str | None:
    """The command that acts on this task with the settings of the evaluation; None if its job cannot be read."""
    try:
        file = inside(root, f"evaluations/{cell.name}/job.json")
        job = Evaluate.found_in(file.parent)
    except SaltError:
        return None
    if job is None:
        return None
    options = {field.name: getattr(job, field.name) for field in dataclasses.fields(Acting)}
    options |= {"task_set": root / cell.evaluation.tasks_file, "method": None}
    if model is not None:
        options["run"] = str(desk.path(model, "model"))
    return spell(Play(**options, task=task))


def _imagined(
    desk: Desk, model: str, states: State, goal: State, outcome: Outcome, frames: int
) -> tuple[list[dict[str, Any]], list[Frame]]:
    """What each plan expected after each of its whole blocks that were carried out, and pictures that show it.

    Nothing without a dataset: its frames are the pictures, and its latents the unit of errors.
    """
    if desk.data_of(model) is None:
        return [], []
    import torch

    gallery = desk.gallery(model)

    def seen(step: int) -> "Tensor":
        return desk.latent(model, tuple(states[step].tolist()))

    plans = expected(desk.model(model), outcome, seen, frames)
    if not plans:
        return [], []
    path, target = torch.stack([plan.latent for plan in plans]), desk.latent(model, tuple(goal.tolist()))
    entries = [
        {
            "step": plan.step,
            "expected_cost": float((plan.latent - target).square().mean()),
            "seen_cost": float((seen(plan.step) - target).square().mean()),
            "error": float((plan.latent - seen(plan.step)).norm()) / gallery.spread,
        }
        for plan in plans
    ]
    decoder = desk.decoder(model)
    return entries, list(gallery.frames[gallery.nearest(path)] if decoder is None else decoder.draw(path))
