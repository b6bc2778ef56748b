"""Evaluate: plan with a model, or act at random, on a frozen set of tasks, and record every episode.

A job says what is wanted; `settle` makes every choice that it leaves open and freezes its tasks. What is settled is
what the cell's job.json holds, what its workers read, and what `saltwm again` repeats.
"""

import dataclasses
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import tyro

from saltwm.disk import durable
from saltwm.disk.records import Evaluation, TaskSet, method_words
from saltwm.disk.shipped import data_beside
from saltwm.evaluation.protocols import DEFAULT_TASKS, PROTOCOLS, protocol_for
from saltwm.ground.checks import at_least
from saltwm.ground.config import (
    CEMConfig,
    CEMMapConfig,
    GaussNewtonConfig,
    MapConfig,
    ModelConfig,
    OwnPlannerConfig,
    PlannerConfig,
    PriorPlanner,
    ProtocolConfig,
    ProtocolName,
)
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.ground.own_code import is_place
from saltwm.jobs.job import (
    Aside,
    AsJson,
    Filed,
    Maybe,
    Memo,
    Positional,
    ProcessCount,
    RayAddress,
    ResultsFolder,
    command_line,
)
from saltwm.model.own import source as model_source
from saltwm.model.traits import learnt_name, traits_of
from saltwm.planning.names import planner_named, planner_text
from saltwm.processes.device import device_named

if TYPE_CHECKING:
    from saltwm.disk.dataset import Dataset
    from saltwm.evaluation.rollout import Outcome
    from saltwm.planning.policy import Policy

FRAMESKIP = 5
"""Steps in an action block of a policy that has no model to say so."""
DEFAULT_PROTOCOL = "clean"
DEFAULT_SEED = 1
MODELLESS = ("random", "own")
"""What `run` may be besides a path: the random policy, or one that only this process knows."""


def _planner_of(text: str) -> PlannerConfig:
    """The planner of a text that a person wrote: if it names a module, that is imported."""
    if ":" not in text:
        return planner_named(text)
    from saltwm.planning.own import name_planner

    return name_planner(text)


PlannerFlag = Annotated[
    PlannerConfig,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="NAME[,SETTING=VALUE,...]",
        instance_from_str=lambda words: _planner_of(words[0]),
        is_instance=lambda value: isinstance(value, PlannerConfig),
        str_from_instance=lambda planner: [planner_text(planner)],
    ),
]


@dataclass(frozen=True)
class Acting(Filed):
    """Who acts on which tasks, and how it plans."""

    DEPTH = 2
    REMEDY = "own name"

    run: Positional[Memo[str]]
    """Run or checkpoint directory, or the word random."""
    data: Memo[Maybe[Path]] = None
    """Dataset that the tasks are chosen from."""
    task_set: Memo[Maybe[Path]] = None
    """Frozen tasks instead, such as results/tasks/two-room-paper-seed1.json: they say protocol, seed and number."""
    protocol: Maybe[ProtocolName] = None
    """clean, the default: held-out, unsolved, distant goals, bounded actions; paper: the authors'; long: far goals."""
    tasks: Maybe[int] = None
    """Number of tasks; 50 for paper and long, for clean 100 or as many as there are."""
    seed: Maybe[int] = None
    """Seed of the tasks and of the planner; 1 by default."""
    last_start: bool = False
    """paper and long: also draw the last possible start, which the authors' code never does."""
    hold: Maybe[int] = None
    """Consecutive steps that success must last; 1 by default."""
    horizon: Maybe[int] = None
    """Planned action blocks; 5, or for long 10 (also 15 or 20)."""
    look_every: Maybe[int] = None
    """Action blocks executed before the next look and plan; evaluate: all that were planned, as the paper."""
    planner: Maybe[PlannerFlag] = None
    """cem (the default of evaluate), icem, mppi or gradient; gauss-newton for state-affine models; or module:function
    of your own.
    With an action prior (saltwm prior): map for state-affine models, cem-map, prior, cem-prior, icem-prior, mppi-prior.
    Settings follow the name: gauss-newton,mu=0.1. Then give the method a name of its own, too."""
    history: int = 1
    """Frames that a transformer predictor may look back at; the authors' evaluation gives it one."""
    device: str = "cpu"
    """Where the model plans: cpu, auto, gpu, cuda:1, mps, ...; workers take several accelerators in turn."""
    method: Maybe[str] = None
    """Name in tables, folders and pictures; salt, lewm or random by default, with the planner's unless it is cem."""

    @classmethod
    def translated(cls, value: dict[str, Any]) -> dict[str, Any]:
        """The options of a job.json, also of those from before jobs had these names."""
        if "tasks_file" not in value:
            return value
        who = value["checkpoint"] or value.get("policy") or "random"
        return {
            "run": who,
            "data": value["dataset"],
            "task_set": value["tasks_file"],
            "horizon": value["horizon_blocks"],
            "look_every": value.get("look_every"),
            "planner": value["planner"],
            "history": value["history_frames"],
            "method": value["method"],
            "inputs": {"task_set": value["tasks_sha256"], "run": value["checkpoint_sha256"] or who}
            | ({"prior": value["prior_sha256"]} if value.get("prior_sha256") else {}),
        }


@dataclass(frozen=True)
class Evaluate(Acting):
    """Plan with a trained model (or act at random) on a frozen set of tasks and record every episode."""

    out: Aside[ResultsFolder] = Path("results")
    workers: ProcessCount = 2
    ray: RayAddress = None
    pictures: Aside[int] = 4
    """Episodes to film."""
    json: AsJson = False

    def do(self) -> Evaluation:
        """Evaluate into OUT/evaluations/CELL, on the tasks that every other method gets."""
        from saltwm.jobs.cell import evaluate, evaluation_workers

        pool = evaluation_workers(self.workers, self.ray, self.device)
        at_least("pictures", self.pictures, 0)
        settled = settle(self, self.out)
        say_unused_history(self.history, [settled])
        with pool:
            return evaluate(settled, pool, pictures=self.pictures)


@dataclass(frozen=True)
class Play(Acting):
    """Act on one task of a protocol and film it: agent and goal, with the predicted cost at each replanning.

    It is the task of an evaluation with the same options. Without --planner and --look-every it searches as well as
    the model can: with map and a look after each block where there is an action prior, with cem where there is none.
    """

    task: int = 0
    """Number of the task."""
    start: Maybe[str] = None
    """Instead of a stored task: a start, as the JSON list of its state. The explorer spells it."""
    goal: Maybe[str] = None
    """The goal that belongs to --start, as the JSON list of its state."""
    unbounded: bool = False
    """Between --start and --goal: actions may leave their bounds."""
    out: Aside[Path] = Path("play")
    """Where the pictures go."""
    video: Literal["gif", "mp4"] = "gif"
    """Kind of moving picture."""
    json: AsJson = False

    def do(self) -> "Played":
        """Act and film."""
        from saltwm.jobs.by_hand import task_by_hand

        durable.check_folder(self.out)
        by_hand = task_by_hand(self)
        job = self if by_hand is None else dataclasses.replace(self, seed=None)
        return play_task(job, self.task, self.out, self.video, by_hand, titled=True)


class Played(NamedTuple):
    """An episode and its pictures."""

    search: str
    """How it was planned."""
    tasks: TaskSet
    outcome: "Outcome"
    moving: Path
    strip: Path
    seconds: float


def play_task(
    job: Acting, task: int, out: Path, video: str = "gif", by_hand: TaskSet | None = None, *, titled: bool = False
) -> Played:
    """Act on one task as an evaluation would, with the best search that the job leaves open, and film it into `out`."""
    import tempfile
    import time

    from saltwm.jobs.chunks import run_one
    from saltwm.jobs.pictures import play

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:  # no task set stays to bind the next play
        few = with_best_search(_with_few_tasks(job, task))
        settled = settle(few, Path(scratch), by_hand, or_fewer=job.tasks is None)
        outcome = run_one(settled, task)
    moving, strip = play(settled.tasks, outcome, out, video, title=settled.folder.name if titled else None)
    search = "no plan" if settled.job.run in MODELLESS else search_in_words(settled.job)
    return Played(search, settled.tasks, outcome, moving, strip, time.perf_counter() - started)


def _with_few_tasks(job: Acting, task: int) -> Acting:
    """No more tasks than are needed, where the first ones do not depend on how many there are."""
    protocol = PROTOCOLS.get(job.protocol or DEFAULT_PROTOCOL)
    is_free = job.tasks is None and job.task_set is None and job.data is not None and task >= 0
    few = is_free and protocol is not None and protocol.one_per_episode
    return dataclasses.replace(job, tasks=task + 1) if few else job


def evaluate_policy(policy: "Policy", job: Evaluate) -> Evaluation:
    """Evaluate any Policy in this process and record it as `job.method`; `job.run` is the word own."""
    from saltwm.jobs.cell import evaluate_here

    if job.run != "own" or job.method in (None, "random"):
        raise UsageError("a policy of your own is Evaluate('own', method=NAME, ...), under another name than random")
    return evaluate_here(settle(job, job.out), policy, pictures=job.pictures)


ActingJob = TypeVar("ActingJob", bound=Acting)


def with_best_search(job: ActingJob) -> ActingJob:
    """The job with the best search that its model has an action prior for; as it is where it names one itself."""
    is_chosen = job.planner is not None or job.look_every is not None
    if is_chosen or job.run in MODELLESS:
        return job
    from saltwm.disk import checkpoint
    from saltwm.planning.prior_files import find_prior

    if not checkpoint.named(Path(job.run)).exists():
        return job  # `settle` says what is wrong with it
    path = checkpoint.find_checkpoint(Path(job.run))
    if find_prior(path) is None:
        return job
    has_matrix = traits_of(checkpoint.read_info(path).run.model.model).has_matrix
    look_every = None if job.horizon == 1 else 1  # a plan of one block has no look within it
    return dataclasses.replace(job, planner=MapConfig() if has_matrix else CEMMapConfig(), look_every=look_every)


# --- settling --------------------------------------------------------------------------------------------------------


class Settled(NamedTuple):
    """A job with every choice made, its tasks, and the folder that its records go to."""

    job: Acting
    tasks: TaskSet
    folder: Path


def settle(job: Acting, results: Path, tasks: TaskSet | None = None, *, or_fewer: bool = False) -> Settled:
    """Make the choices that a job leaves open, and freeze its tasks, or the given ones, in RESULTS/tasks.

    With `or_fewer` a number of tasks that the data do not have means all that they have.
    """
    from saltwm.evaluation.tasks import write_tasks
    from saltwm.planning.looks import require_horizon, require_looks

    check_options(job)
    source = tasks or open_source(job)
    protocol = _protocol_of(job, source)
    who = _who(job, protocol, source)
    tasks = source if isinstance(source, TaskSet) else _choose_tasks(job, protocol, source, or_fewer)
    horizon = job.horizon or min(protocol.horizon_blocks, who.longest_plan or protocol.horizon_blocks)
    if who.longest_plan is not None:
        require_horizon(who.longest_plan, horizon)
    require_looks(job.look_every, horizon)
    settled = dataclasses.replace(
        job,
        **_LEFT_TO_THE_TASKS,
        data=_pictures(job, source),
        task_set=results / "tasks" / tasks_name(tasks.world.environment, protocol.name, tasks.seed),
        horizon=horizon,
        run=who.run,
        planner=who.planner,
        history=who.history,
        device=device_named(job.device),
        method=_checked_name(job.method if job.method is not None else who.name),
    ).begun({"task_set": tasks.sha256, **who.inputs})
    assert settled.task_set is not None
    durable.make_folder(settled.task_set.parent)
    if not settled.task_set.exists():  # one line for all methods that meet these tasks
        _say_fewer(job, tasks)
    write_tasks(settled.task_set, tasks)
    assert settled.method is not None
    own_horizon = None if horizon == protocol.horizon_blocks else horizon
    cell = cell_name(tasks.world.environment, settled.method, protocol.name, tasks.seed, own_horizon)
    return Settled(settled, tasks, results / "evaluations" / cell)


def say_unused_history(asked: int, cells: Sequence[Settled]) -> None:
    """One line where more frames were asked for than any of the models looks at."""
    from saltwm.ground.progress import note

    seen = [cell.job.history for cell in cells if cell.job.run not in MODELLESS]
    if seen and max(seen) < asked:
        looks = "one frame" if max(seen) == 1 else f"{max(seen)} frames at most"
        whose = "this model looks" if len(seen) == 1 else "these models look"
        note(f"--history {asked}: {whose} at {looks}")


def tasks_name(environment: str, protocol: str, seed: int) -> str:
    """What the file of a frozen task set is called."""
    return f"{environment}-{protocol}-seed{seed}.json"


def cell_name(environment: str, method: str, protocol: str, seed: int, horizon: int | None = None) -> str:
    """What the folder of an evaluation is called; None for the protocol's own horizon."""
    return f"{environment}-{method}-{protocol}-seed{seed}" + ("" if horizon is None else f"-h{horizon}")


_LEFT_TO_THE_TASKS: dict[str, Any] = {"protocol": None, "tasks": None, "seed": None, "last_start": False, "hold": None}
"""The options that choose tasks, and what they are once the tasks are frozen."""


def check_options(job: Acting) -> None:
    """UsageError for options that no evaluation can have, before anything is opened."""
    at_least("tasks", job.tasks, 1)
    at_least("horizon", job.horizon, 1)
    at_least("history", job.history, 1)
    at_least("seed", job.seed, 0)
    if job.run in MODELLESS and job.look_every is not None:
        raise UsageError("only an agent that plans has a next look to choose: leave out --look-every")
    if job.run == "random" and (job.planner is not None or job.history != 1):
        raise UsageError("the random policy neither plans nor looks back: leave out --planner and --history")
    if job.run in MODELLESS and job.device != Acting.device:
        raise UsageError("without a model there is nothing to put on a device: leave out --device")


# --- tasks -----------------------------------------------------------------------------------------------------------


def open_source(job: Acting) -> "Dataset | TaskSet":
    """What the tasks come from."""
    from saltwm.disk.dataset import Dataset
    from saltwm.envs import has_simulator
    from saltwm.evaluation.tasks import read_frozen

    if job.task_set is not None:
        tasks = read_frozen(job.task_set)
        if job.data is None or tasks.world.renderer == "imported":
            return tasks
    if job.data is None or job.task_set is not None:
        beside = data_beside(job.run)
        hint = f"; --data {beside} is shipped for {job.run}" if job.data is None and beside else ""
        raise UsageError(f"tasks come from --data DATASET or from --task-set FILE: give one of the two{hint}")
    dataset = Dataset.open(job.data, verify="sizes")
    name = dataset.world.environment
    if dataset.recipe.source.kind == "recorded" and not has_simulator(name):
        score = command_line("saltwm", "score", "RUN" if job.run in MODELLESS else job.run, "--data", job.data)
        raise UsageError(
            f"{job.data}: recordings, and no simulator of {name!r} is here to set and judge tasks "
            f"in; judge the model on them alone with: {score}"
        )
    return dataset


def _protocol_of(job: Acting, source: "Dataset | TaskSet") -> ProtocolConfig:
    """The protocol asked for, or that of a frozen set: its tasks are what they are, and no option may say otherwise."""
    if not isinstance(source, TaskSet):
        hold = 1 if job.hold is None else job.hold
        return protocol_for(job.protocol or DEFAULT_PROTOCOL, last_start=job.last_start, hold_steps=hold)
    for option, nothing in _LEFT_TO_THE_TASKS.items():
        if getattr(job, option) != nothing:
            raise UsageError(
                f"--{option.replace('_', '-')} chooses tasks from --data; a frozen task set brings its own "
                f"({source.protocol.name}, seed {source.seed}, {len(source.tasks)} tasks): leave the option out"
            )
    return source.protocol


def _choose_tasks(job: Acting, protocol: ProtocolConfig, dataset: "Dataset", or_fewer: bool) -> TaskSet:
    """Choose the tasks of a dataset; method and horizon make no difference."""
    from saltwm.data.split import held_out
    from saltwm.evaluation.tasks import choose_tasks

    count = job.tasks or DEFAULT_TASKS[job.protocol or DEFAULT_PROTOCOL]
    seed = DEFAULT_SEED if job.seed is None else job.seed
    return choose_tasks(dataset, protocol, count, seed, held_out(dataset), or_fewer=or_fewer or job.tasks is None)


def _say_fewer(job: Acting, tasks: TaskSet) -> None:
    """One line where nobody said how many tasks there are to be, and the data have fewer than usual."""
    from saltwm.ground.progress import note

    usual = DEFAULT_TASKS[job.protocol or DEFAULT_PROTOCOL]
    if job.data is not None and job.tasks is None and len(tasks.tasks) < usual:
        note(f"{job.data}: {len(tasks.tasks)} tasks, not {usual}: there are no more held-out episodes with one")


def _pictures(job: Acting, source: "Dataset | TaskSet") -> Path | None:
    """The dataset whose frames show starts and goals, where they are not what our renderer would draw."""
    if source.world.renderer != "imported":
        return None
    if job.data is None:
        assert isinstance(source, TaskSet)
        raise UsageError(
            f"these tasks start at pictures of an imported dataset ({source.dataset_sha256[:12]}), which a task set "
            "does not hold; give that dataset with --data as well"
        )
    return job.data


# --- who decides -----------------------------------------------------------------------------------------------------


class _Who(NamedTuple):
    """Who decides, its name in tables, and the hashes that say which one it is."""

    run: str
    name: str
    inputs: dict[str, str]
    planner: PlannerConfig | None = None
    history: int = 1
    longest_plan: int | None = None
    """Blocks that its action prior proposes; None for planners without one."""


def _who(job: Acting, protocol: ProtocolConfig, source: "Dataset | TaskSet") -> _Who:
    if job.run in MODELLESS:
        return _Who(job.run, job.run, {"run": job.run})
    if not Path(job.run).exists() and difflib.get_close_matches(job.run, ["random"]):
        raise UsageError(f"{job.run}: no such run; did you mean the word random?")
    from saltwm.data.split import why_seen
    from saltwm.disk import checkpoint

    path = checkpoint.find_checkpoint(Path(job.run))
    info = checkpoint.read_info(path)
    checkpoint.require_same_world(info.world, source.world, path)
    seen = why_seen(info, source) if protocol.held_out else None
    if seen is not None:
        raise MismatchError(
            f"{path}: protocol {protocol.name!r} wants episodes that training did not see, and {seen}; give data of "
            "its own for evaluation (saltwm collect with --held-out), or evaluate with --protocol paper"
        )
    model, planner = info.run.model, job.planner or CEMConfig()
    if not can_plan(model, planner):
        instead = "cem-map" if isinstance(planner, MapConfig) else "cem"
        why = f"{planner.kind} needs a state-affine model (salt), and this is {model.model}"
        raise UsageError(f"{path}: {why}; use {instead}")
    traits = traits_of(model.model)
    history = min(max(job.history, traits.frames(model)), traits.window(model))
    name = method_name(learnt_name(info.run), planner, shown_history(model, job.history), job.look_every)
    inputs, longest_plan = {"run": checkpoint.identity(path)}, None
    if isinstance(planner, PriorPlanner):
        inputs["prior"], longest_plan = _own_prior(path)
    if isinstance(planner, OwnPlannerConfig):
        inputs["planner"] = _source(planner)
    if is_place(model.model):
        inputs["model"] = durable.sha256(model_source(model.model))
    return _Who(str(path), name, inputs, planner, history, longest_plan)


def _own_prior(path: Path) -> tuple[str, int]:
    """Hash of the checkpoint's action prior, and the blocks that it proposes; or an error that says how to make one."""
    from saltwm.planning import prior_files

    folder = prior_files.require_prior(path)
    info = prior_files.read_info(folder)
    prior_files.require_own(info, path, folder)
    return prior_files.identity(folder), info.prior.horizon_blocks


def _source(planner: OwnPlannerConfig) -> str:
    """Hash of the file that a user's planner is in; UsageError unless a person named it."""
    from saltwm.planning import own

    own.require_named(planner)
    return durable.sha256(Path(own.source(planner.function)))


def search_in_words(job: Acting) -> str:
    """How a settled job searches: cem, or map with a look after each block."""
    planner = planner_text(job.planner or CEMConfig())
    if job.look_every is None:
        return planner
    return f"{planner} with a look after {'each block' if job.look_every == 1 else f'{job.look_every} blocks'}"


def shown_history(model: ModelConfig, asked: int) -> int:
    """Frames that a model uses of those asked for, where they are more than it is shown anyway; otherwise 1."""
    traits = traits_of(model.model)
    history = min(asked, traits.window(model))
    return history if history > traits.frames(model) else 1


def can_plan(model: ModelConfig, planner: PlannerConfig) -> bool:
    """Whether the planner works with such a model: Gauss-Newton goes through A(c), for the posterior mode too."""
    return traits_of(model.model).has_matrix or not isinstance(planner, GaussNewtonConfig | MapConfig)


def method_name(model: str, planner: PlannerConfig, history: int = 1, look_every: int | None = None) -> str:
    """What a model with a planner is called unless it is given a name: lewm-history3, salt-gauss-newton-look1."""
    kind = planner.function.rpartition(":")[2] if isinstance(planner, OwnPlannerConfig) else planner.kind
    return "-".join([model, *method_words(kind, history, look_every)])


def _checked_name(method: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", method):
        raise UsageError(f"method {method!r}: a name of letters, digits and _.+- is needed, because folders bear it")
    return method
