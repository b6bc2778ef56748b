"""Records of evaluations that nobody ran, for tests of what is computed from records."""

import dataclasses

from saltwm.disk import durable
from saltwm.disk.records import Cell, EpisodeRecord, Evaluation
from saltwm.evaluation.statistics import wilson
from saltwm.ground.strict_json import to_plain


def small_episode(task, reached, plans=()):
    """An episode that ended after 10 steps at its goal, or after 50 away from it."""
    return EpisodeRecord(
        task=task,
        success=reached,
        steps_to_success=10 if reached else None,
        steps_taken=10 if reached else 50,
        reason="reached" if reached else "budget",
        start_distance=5.0,
        final_distance=0.5 if reached else 2.0,
        closest_distance=0.5,
        plans=plans,
    )


def small_cell(name, method, episodes, **changes):
    """A finished evaluation of these episodes, or outcomes; `changes` are fields of its record."""
    if episodes and not isinstance(episodes[0], EpisodeRecord):
        episodes = [small_episode(task, bool(reached)) for task, reached in enumerate(episodes)]
    evaluation = Evaluation(
        environment="two-room",
        method=method,
        protocol="clean",
        horizon_blocks=5,
        planner={"kind": "cem"},
        tasks_file="tasks/x.json",
        tasks_sha256="a" * 64,
        checkpoint=None,
        checkpoint_sha256=None,
        seed=1,
        success=wilson(sum(episode.success for episode in episodes), len(episodes)),
        median_steps_to_success=None,
        seconds=1.0,
    )
    return Cell(name, dataclasses.replace(evaluation, **changes), tuple(episodes))


def write_cell(results, cell: Cell) -> None:
    """As an evaluation leaves it in a results folder."""
    folder = results / "evaluations" / cell.name
    folder.mkdir(parents=True)
    durable.write_json(folder / "evaluation.json", to_plain(cell.evaluation))
    for episode in cell.episodes:
        durable.append_json_line(folder / "episodes.jsonl", to_plain(episode))
