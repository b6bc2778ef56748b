"""The plain records that rooms hand to each other through files: tasks, episodes, evaluations, diagnoses.

results/tasks/TASKS.json                       a TaskSet: starts and goals, frozen and hashed
results/evaluations/CELL/evaluation.json       an Evaluation: one method on one task set, with its summary
results/evaluations/CELL/episodes.jsonl        an EpisodeRecord per line, in task order
results/evaluations/CELL/actions.npy           float32 [steps of all episodes, A]: what repeats them
results/evaluations/CELL/pictures/             moving pictures and strips of some episodes
results/suite.json                             a list of PlannedCell: what a suite will evaluate, written before it does
results/diagnostics/RUN/diagnosis.json         a Diagnosis: error propagation by step
results/diagnostics/RUN/probes.json            Probes: what the latents know and whether distances between them mean it
results/diagnostics/RUN/training.json          a Training: what was trained, on what, for how long
results/diagnostics/RUN/decoded.json           a Decoding: pixel errors of decoded open-loop predictions
results/diagnostics/RUN/decoded.png            the picture that it describes
results/diagnostics/RUN/metrics.jsonl          the run's training curves, copied
results/efficiency.json                        an Efficiency: what both predictors cost
results/stages.json                            a list of Stage: how long each step of a reproduction took

Comparisons and anatomies are computed from these when they are read (evaluation/contests.py, evaluation/anatomy.py).
"""

import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from saltwm.disk import durable
from saltwm.disk.durable import read_config
from saltwm.ground import budget
from saltwm.ground.config import ProtocolConfig, WorldSpec
from saltwm.ground.errors import DamagedError
from saltwm.ground.strict_json import IF_SET, LATER, from_plain, to_plain

T = TypeVar("T")


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
    kind: str = field(default="", metadata=LATER)
    """What the task asks for, such as lifting a cube, by the environment's own rule; empty where all are alike."""


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
    """Pairs among them that were already solved: dropped, or kept where the protocol keeps them."""
    pairs_too_near: int
    """Unsolved pairs among them that were dropped, because they lie below the protocol's smallest distance."""
    tasks: tuple[Task, ...]

    @property
    def sha256(self) -> str:
        """Identity of the set: its starts and goals. The kinds follow from those and are not part of it."""
        plain = to_plain(self)
        for task in plain["tasks"]:
            del task["kind"]
        return durable.sha256_json(plain)


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
    """reached, world-ended (by itself, the goal not reached), budget (spent), solved-at-start."""
    start_distance: float
    final_distance: float
    """In success radii, like all distances here."""
    closest_distance: float
    plans: tuple[PlanRecord, ...]

    @property
    def picture(self) -> str:
        """What its film and its strip are called, without an ending."""
        return f"task-{self.task:03d}-{self.reason}"


def filmed(stem: str) -> tuple[int, str] | None:
    """The task and the reason that `EpisodeRecord.picture` made a name of; None for any other name."""
    match = re.fullmatch(r"task-(\d+)-(.+)", stem, re.ASCII | re.DOTALL)
    return (int(match[1]), match[2]) if match else None


@dataclass(frozen=True)
class Rate:
    """A share of n with its 95 % Wilson interval."""

    successes: int
    n: int
    low: float
    high: float

    @property
    def percent(self) -> float:
        """The share in percent."""
        return 100 * self.successes / self.n


@dataclass(frozen=True)
class ModelVariant:
    """Which model of its kind a checkpoint is: what a study varies, and the training seed."""

    model: str
    objective: str
    modes: int | None
    """R; none for a transition without modulation matrices, as spectral."""
    spectral: bool | None
    sigreg_weight: float
    """lambda"""
    latent_dim: int
    """d"""
    rollout_steps: int
    """K"""
    starts: int
    seed: int
    """Seed of the training: weights, batches and projections."""
    departures: tuple[str, ...]
    """What differs from the preset's recipe for the environment: `objective one-step`, `R 0`. Empty: none of this."""
    recipe_sha256: str
    """Hash of the training config without its seed and of the data: runs that share it differ in the seed alone."""
    regulariser: str | None = field(default=None, metadata=IF_SET)
    """The objective whose terms stand in SIGReg's place; none in eq. 10."""
    weights: dict[str, float] | None = field(default=None, metadata=IF_SET)
    """Weights of its terms, as they were in this environment."""
    title: str | None = field(default=None, metadata=IF_SET)
    """The model as people write it, where that is not known to every table."""


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
    look_every: int | None = field(default=None, metadata=LATER)
    """Blocks executed before the next look; None for all that were planned."""
    variant: ModelVariant | None = field(default=None, metadata=LATER)
    """Which model was evaluated; none for a policy without one."""
    history_frames: int = field(default=1, metadata=LATER)
    """Context frames that the model was given."""
    prior_sha256: str | None = field(default=None, metadata=LATER)
    """Hash of the manifest of the action prior that the planner used; None for planners without one."""

    @property
    def departures(self) -> tuple[str, ...]:
        """What its model has otherwise than the recipe; empty where no record says so."""
        return self.variant.departures if self.variant else ()


def name_of_run(path: Path) -> str:
    """Name of the run that a path is of: `salt` for runs/salt and for runs/salt/checkpoints/step-000200."""
    is_checkpoint = path.parent.name == "checkpoints" and re.fullmatch(r"step-\d+", path.name)
    return (path.parent.parent if is_checkpoint else path).name


def method_words(planner: str, history_frames: int, look_every: int | None) -> list[str]:
    """What the name of a method says after its model: gauss-newton, history3, look1; nothing for blind CEM."""
    words = [] if planner in ("", "cem") else [planner]
    words += [] if history_frames == 1 else [f"history{history_frames}"]
    return words + ([] if look_every is None else [f"look{look_every}"])


@dataclass(frozen=True)
class OneFrameStart:
    """The named control of a model that looks back: the same rollouts from the last frame of the start alone.

    The first errors are then those of a prediction that sees no motion; the paper starts from the full window.
    """

    trajectories: int
    one_step_error: float
    """Error of predictions that see as many frames as there are since the start."""
    rollout_error: tuple[float, ...]
    propagation_norm: tuple[float, ...]
    rho: tuple[float, ...]
    rollout_measured: tuple[tuple[float, ...], ...] = field(default=(), metadata=LATER)
    """The rollout errors of each measurement."""

    @property
    def rollout_low(self) -> tuple[float, ...]:
        """Smallest rollout error of each step over the measurements, if they were kept."""
        return tuple(map(min, zip(*self.rollout_measured, strict=True)))

    @property
    def rollout_high(self) -> tuple[float, ...]:
        """Largest of them."""
        return tuple(map(max, zip(*self.rollout_measured, strict=True)))


@dataclass(frozen=True)
class OfRun:
    """What every record of a run begins with."""

    environment: str
    method: str
    objective: str
    run: str


@dataclass(frozen=True)
class Diagnosis(OfRun):
    """Error propagation of one model, by rollout step 1..H (lists have H entries)."""

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
    history: int = field(default=1, metadata=LATER)
    """Latents that rollouts start from: the model's window (App. C.1); older diagnoses started from one."""
    seed: int = field(default=0, metadata=LATER)
    windows: tuple[int, ...] = field(default=(), metadata=LATER)
    """Length of the stretches of each measurement in action blocks, one entry per measurement (App. C.3)."""
    propagation_measured: tuple[tuple[float, ...], ...] = field(default=(), metadata=LATER)
    """The norms of each measurement: the band and the growths come from these."""
    rollout_low: tuple[float, ...] = field(default=(), metadata=LATER)
    """Smallest rollout error over the measurements."""
    rollout_high: tuple[float, ...] = field(default=(), metadata=LATER)
    rollout_measured: tuple[tuple[float, ...], ...] = field(default=(), metadata=LATER)
    """The rollout errors of each measurement, from which growths come."""
    residual: tuple[float, ...] = field(default=(), metadata=LATER)
    """Mean |r_t| of eq. 3 relative to the latents' spread, with the Jacobian of the latest latent alone."""
    augmented_residual: tuple[float, ...] = field(default=(), metadata=LATER)
    """Mean |r_t| with the Jacobian of the whole history: the part that is not linear."""
    residual_bound: tuple[float, ...] = field(default=(), metadata=LATER)
    """Mean L / 2 |e_{t-1}|^2 of Proposition 1, relative to the spread; e is the error of the history that is seen."""
    residual_within_bound: float | None = field(default=None, metadata=LATER)
    """Share of the predictions whose |r_t| is within it."""
    lipschitz: float | None = field(default=None, metadata=LATER)
    """L: the fastest change of the Jacobian found on the way from true histories to predicted ones."""
    augmented_rho: tuple[float, ...] = field(default=(), metadata=LATER)
    """rho_H with the Jacobian of the whole history."""
    augmented_norm: tuple[float, ...] = field(default=(), metadata=LATER)
    """Geometric mean of the spectral norm of z_k's derivative by all latents that the rollout starts from."""
    one_frame: OneFrameStart | None = field(default=None, metadata=LATER)
    """The control of a model that looks back at more than one."""
    variant: ModelVariant | None = field(default=None, metadata=LATER)


@dataclass(frozen=True)
class Probe:
    """How well one part of the state can be read linearly from z."""

    field: str
    r2: float
    """Share of the held-out variance explained; 1 is perfect, 0 no better than the mean, below 0 worse."""
    worst: float
    """R2 of the coordinate, or joint, that is read worst."""
    best: float
    """R2 of the one that is read best."""
    network: float | None = dataclasses.field(default=None, metadata=LATER)
    """As r2, read by a small network instead: what is there but not on a line."""
    network_control: float | None = dataclasses.field(default=None, metadata=LATER)
    """R2 of that network fitted to latents of other frames: what it would score by itself."""


@dataclass(frozen=True)
class Probes(OfRun):
    """What one model's latents know, measured on held-out episodes."""

    frames: int
    """Frames that the probes were scored on; as many others fitted them."""
    fields: tuple[Probe, ...]
    """One per part of the state that varies."""
    pairs: int
    """Pairs of frames of one episode, a start and a goal."""
    cost_order: float | None
    """Spearman's correlation over the pairs of |z - z_g|^2 with the true distance; none if either never varies."""
    states: int
    """Latent histories at which the Jacobian was taken, each with the same few action sequences; 0 if it was not."""
    jacobian_spread: float
    """Standard deviation over those states of the Jacobian's largest singular value, relative to its mean; the mean
    over action sequences (Figure 1a). Zero up to rounding for a state-affine transition, and where `states` is 0."""
    sigma_max: tuple[tuple[float, ...], ...] = field(default=(), metadata=LATER)
    """The singular values themselves: one row per action sequence, one entry per state."""


@dataclass(frozen=True)
class Training(OfRun):
    """What was trained, on what, for how long."""

    preset: str
    steps: int
    batch_size: int
    parameters: int
    data: str
    """Path of the dataset that the run was diagnosed with; only a memory aid."""
    dataset_sha256: str
    """The dataset that it was trained on."""
    seconds: float | None
    """Wall time of all sessions; none where the run does not say."""
    variant: ModelVariant | None = field(default=None, metadata=LATER)


@dataclass(frozen=True)
class Decoding(OfRun):
    """Open-loop predictions of one model, decoded on held-out episodes (App. C.5), beside a picture of some.

    Errors are mean squared differences of pixels in 0 .. 1, by frame.
    """

    decoder: str
    """small or paper."""
    steps: int
    """Steps of the decoder's fit."""
    seed: int
    frames: int
    """True frames that it was fitted on."""
    stretches: int
    """Pieces of held-out episodes that the errors are means over."""
    context: int
    """True frames before the first prediction."""
    times: tuple[int, ...]
    """Environment step of each frame, counted from the first."""
    true_mse: tuple[float, ...]
    """Errors of true frames, encoded and decoded: the decoder's own blur, and what the latents do not hold."""
    predicted_mse: tuple[float, ...]
    """Errors of decoded predictions: the frames after the context."""
    mean_mse: tuple[float, ...]
    """Errors of the mean picture of the fitted frames: what a decoder that learnt nothing would draw."""
    picture_sha256: str

    @property
    def tells_frames_apart(self) -> bool:
        """Whether decoded true frames are nearer than the mean picture is; if not, the pictures mean nothing."""
        return sum(self.true_mse) < sum(self.mean_mse)


@dataclass(frozen=True)
class PlanningTime:
    """One CEM solve of the paper's size."""

    environment: str
    horizon_blocks: int
    seconds: float


@dataclass(frozen=True)
class PredictorCost:
    """A row of Table 2."""

    model: str
    parameters: int
    """Parameters of the predictor and its projection head."""
    forward_ms: float
    """One step for a batch of 300 latents."""
    one_step_iterations: float
    """Training iterations per second with the one-step objective."""
    rollout_iterations: float
    planning_seconds: float
    """Unweighted mean of `planning`."""
    planning: tuple[PlanningTime, ...]


@dataclass(frozen=True)
class Efficiency:
    """What both predictors cost on one machine, measured in turns (App. B.6); results/efficiency.json."""

    how: str
    """A sentence on sizes, threads and what was scaled."""
    predictors: tuple[PredictorCost, ...]


@dataclass(frozen=True)
class Stage:
    """One step of a reproduction and its wall time, added up over the sessions that it took."""

    environment: str
    command: str
    seconds: float
    sessions: int
    finished: bool


@dataclass(frozen=True)
class Cell:
    """A finished evaluation with its episodes; `name` is its folder under results/evaluations."""

    name: str
    evaluation: Evaluation
    episodes: tuple[EpisodeRecord, ...]


@dataclass(frozen=True)
class PlannedCell:
    """An evaluation that a suite includes: until it is there, no mean over its seeds is."""

    environment: str
    protocol: str
    horizon_blocks: int
    method: str
    seed: int


def read_plan(results: Path) -> tuple[PlannedCell, ...]:
    """What suites under `results` include; nothing where none was begun."""
    return _read_list(PlannedCell, Path(results) / "suite.json")


def read_stages(results: Path) -> tuple[Stage, ...]:
    """How long each step of a reproduction took, in the order in which they were begun."""
    return _read_list(Stage, Path(results) / "stages.json")


def _read_list(kind: type[T], path: Path) -> tuple[T, ...]:
    if not path.exists():
        return ()
    items = durable.read_json(path)
    if not isinstance(items, list):
        raise DamagedError(f"{path}: expected a list, found {type(items).__name__}")
    return tuple(from_plain(kind, item, f"{path}: entry {i}") for i, item in enumerate(items))


def read_tasks(path: Path) -> TaskSet:
    """A frozen task set, with its hash checked."""
    value = durable.read_json(path)
    if not isinstance(value, dict) or "sha256" not in value:
        raise DamagedError(f"{path}: not a task set (no sha256)")
    stored = value.pop("sha256")
    tasks = from_plain(TaskSet, value, str(path))
    if tasks.sha256 != stored:
        raise DamagedError(f"{path}: its tasks do not have the hash it names; they were edited")
    budget.require_frames(path, tasks.world.image_size)
    return tasks


def read_task_sets(results: Path) -> dict[str, TaskSet]:
    """Every frozen task set under `results`, by hash."""
    sets = (read_tasks(path) for path in sorted(Path(results).glob("tasks/*.json")))
    return {task_set.sha256: task_set for task_set in sets}


def read_cell(folder: Path) -> Cell:
    """The evaluation in `folder`; DamagedError if its episodes are not the ones that its summary counts."""
    evaluation = read_config(Evaluation, folder / "evaluation.json")
    path = folder / "episodes.jsonl"
    lines = durable.read_json_lines(path)
    episodes = tuple(from_plain(EpisodeRecord, line, f"{path}: line {i}") for i, line in enumerate(lines, start=1))
    if not episodes:
        raise DamagedError(f"{path}: no episodes, though evaluation.json says the evaluation is finished")
    found = (sum(episode.success for episode in episodes), len(episodes))
    expected = (evaluation.success.successes, evaluation.success.n)
    if found != expected:
        raise DamagedError(
            f"{path}: {found[0]} successes in {found[1]} episodes, "
            f"but evaluation.json counts {expected[0]} in {expected[1]}; evaluate again into an empty folder"
        )
    return Cell(folder.name, evaluation, episodes)


def read_decoding(path: Path) -> Decoding:
    """A decoded.json; DamagedError if it does not have an error for each frame."""
    decoding = read_config(Decoding, path)
    found = len(decoding.true_mse), len(decoding.mean_mse), len(decoding.predicted_mse)
    frames = len(decoding.times)
    if not 0 < decoding.context < frames or found != (frames, frames, frames - decoding.context):
        raise DamagedError(
            f"{path}: {frames} frames, {decoding.context} of them context, but {found[0]}, {found[1]} and {found[2]} "
            "errors of true frames, the mean picture and predictions; decode it again"
        )
    return decoding


def read_cells(results: Path) -> tuple[Cell, ...]:
    """Every finished evaluation under `results`, by name; an unfinished one has no evaluation.json yet."""
    return tuple(read_cell(path.parent) for path in sorted(Path(results).glob("evaluations/*/evaluation.json")))
