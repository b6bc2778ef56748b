"""One held-out task with a shipped model, as an evaluation of the `clean` protocol runs it, and its moving picture."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from saltwm.envs import env_class
from saltwm.ground.checks import at_least
from saltwm.jobs.chunks import run_one
from saltwm.jobs.evaluate import Evaluate, search_in_words, settle, with_best_search
from saltwm.jobs.pictures import play
from saltwm.jobs.shelf import Item


@dataclass(frozen=True)
class Demo:
    """What happened, and where to see it."""

    environment: str
    model: str
    search: str
    """How it planned."""
    task: int
    reached: bool
    steps: int
    budget_steps: int
    start_distance: float
    """In success radii, as `final_distance`."""
    final_distance: float
    success_radius: str
    """A success radius in words, such as its length in this environment."""
    cost_before_search: float
    """Predicted at the goal by the first plan: mean elite cost after its first iteration."""
    cost_after_search: float
    """Mean elite cost of the first plan after its last iteration."""
    cost_at_the_end: float
    """What the last plan promised."""
    moving: str
    strip: str
    seconds: float


def demonstrate(item: Item, task: int, out: Path) -> Demo:
    """Plan towards the goal of one task, film it into `out`, and say how it went."""
    started = time.perf_counter()
    at_least("task", task, 0)
    # Tasks are drawn one after another, so task N is the same however many follow it.
    job = with_best_search(Evaluate(str(item.checkpoint), data=item.data, tasks=task + 1))
    with tempfile.TemporaryDirectory() as scratch:
        settled = settle(job, Path(scratch), or_fewer=True)
        outcome = run_one(settled, task)
    tasks = settled.tasks
    moving, strip = play(tasks, outcome, out, "gif")
    record = outcome.record
    return Demo(
        environment=item.environment,
        model=item.model,
        search=search_in_words(settled.job),
        task=task,
        reached=record.success,
        steps=record.steps_taken,
        budget_steps=tasks.protocol.budget_steps,
        start_distance=record.start_distance,
        final_distance=record.final_distance,
        success_radius=env_class(item.environment).success_radius,
        cost_before_search=record.plans[0].elite_costs[0],
        cost_after_search=record.plans[0].elite_costs[-1],
        cost_at_the_end=record.plans[-1].elite_costs[-1],
        moving=str(moving),
        strip=str(strip),
        seconds=time.perf_counter() - started,
    )
