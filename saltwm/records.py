"""The plain records that rooms hand to each other through files: tasks, episodes, evaluations, diagnoses.

    results/tasks/TASKS.json                       a TaskSet: starts and goals, frozen and hashed
    results/evaluations/CELL/evaluation.json       an Evaluation: one method on one task set, with its summary
    results/evaluations/CELL/episodes.jsonl        an EpisodeRecord per line, in task order
    results/evaluations/CELL/pictures/             moving pictures and strips of some episodes
    results/diagnostics/RUN/diagnosis.json         a Diagnosis: error propagation by step
    results/diagnostics/RUN/metrics.jsonl          the run's training curves, copied
"""

from dataclasses import dataclass
from typing import Any

from saltwm import durable
from saltwm.config import ProtocolConfig, WorldSpec, to_plain


@dataclass(frozen=True)
class Task:
    """One start and goal, both states of the same stored episode."""

    index: int
    episode: int
    start_step: int
    state: tuple[float, ...]
    goal: tuple[float, ...]
    distance: float
    """From start to goal in success radii."""


@dataclass(frozen=True)
class TaskSet:
    """Tasks chosen once and shared by all methods; results on different sets are never paired."""

    world: WorldSpec
    protocol: ProtocolConfig
    seed: int
    dataset_sha256: str
    pairs_considered: int
    """Start-goal pairs looked at until the set was full."""
    pairs_solved_at_start: int
    """Of those, dropped (or, where the protocol keeps them, kept) although already solved."""
    pairs_too_near: int
    """Of those, dropped for lying below the protocol's smallest distance though unsolved."""
    tasks: tuple[Task, ...]

    @property
    def sha256(self) -> str:
        """Identity of the set."""
        return durable.sha256_json(to_plain(self))


@dataclass(frozen=True)
class PlanRecord:
    """One planning call: when, and the mean elite cost after each iteration (empty for a random policy)."""

    step: int
    elite_costs: tuple[float, ...]


@dataclass(frozen=True)
class EpisodeRecord:
    """What happened on one task. No clock in it: the same seeds give the same bytes."""

    task: int
    success: bool
    steps_to_success: int | None
    steps_taken: int
    reason: str
    """reached, budget (spent), solved-at-start."""
    start_distance: float
    final_distance: float
    """In success radii, like all distances here."""
    closest_distance: float
    plans: tuple[PlanRecord, ...]


@dataclass(frozen=True)
class Rate:
    """A share of n with its 95 % Wilson interval."""

    successes: int
    n: int
    low: float
    high: float


@dataclass(frozen=True)
class Evaluation:
    """One method on one task set. `seconds` is the only field that a repetition may change."""

    environment: str
    method: str
    """salt, lewm, random, or a user's own name."""
    protocol: str
    horizon_blocks: int
    planner: dict[str, Any]
    tasks_file: str
    tasks_sha256: str
    checkpoint: str | None
    """Path of the run that was evaluated."""
    checkpoint_sha256: str | None
    seed: int
    success: Rate
    median_steps_to_success: float | None
    seconds: float


@dataclass(frozen=True)
class Diagnosis:
    """Error propagation of one model, by rollout step 1..H (lists have H entries)."""

    environment: str
    method: str
    objective: str
    run: str
    trajectories: int
    one_step_error: float
    """Mean |epsilon| / mean |z - mean z|: one-step error relative to the latents' spread."""
    rollout_error: tuple[float, ...]
    """Mean |delta_k| relative to the same spread."""
    propagation_norm: tuple[float, ...]
    """Geometric mean over trajectories of the spectral norm of Phi_{0->k}."""
    propagation_low: tuple[float, ...]
    """Smallest over the measured batches."""
    propagation_high: tuple[float, ...]
    """Largest over the measured batches."""
    rho: tuple[float, ...]
    """Mean relative discrepancy of the first-order reconstruction, rho_H."""
    effective_rank: float
    """Effective number of latent dimensions (exponential of the spectrum's entropy)."""
    sigma_max_base: float | None
    """Largest singular value of A0, where there is one."""
