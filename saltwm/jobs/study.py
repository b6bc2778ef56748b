"""The paper's studies, each as one resumable command: `saltwm study NAME`.

A study is a list of commands: collect, train, evaluate and diagnose for each variant that it compares. What is done is
not run again, and each command goes on where it was stopped. Finished runs from elsewhere are adopted by what their
checkpoints say they are, never by their names. jobs/study_plans.py says what each of them trains and asks;
report/studies.py reads the records.
"""

import dataclasses
import itertools
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from saltwm.disk.durable import read_config
from saltwm.disk.records import Evaluation, Training, read_tasks
from saltwm.evaluation import sweep
from saltwm.evaluation.protocols import PROTOCOLS
from saltwm.ground.checks import at_least, one_of
from saltwm.ground.config import RunConfig
from saltwm.ground.errors import MismatchError, SaltError, Stopped, UsageError
from saltwm.ground.progress import note
from saltwm.jobs.bench import Bench
from saltwm.jobs.collect import Collect
from saltwm.jobs.evaluate import Evaluate, cell_name, method_name, tasks_name
from saltwm.jobs.job import Aside, AsJson, Job, Maybe, Positional, Some, spell
from saltwm.jobs.lanes import lanes
from saltwm.jobs.measures import Diagnose
from saltwm.jobs.prior import Prior
from saltwm.jobs.recipes import recipe
from saltwm.jobs.shipping import Card, card_of_run
from saltwm.jobs.study_plans import PLANS, PRESET, Asked, Plan, Variant
from saltwm.jobs.train import Train
from saltwm.planning.names import planner_named

if TYPE_CHECKING:
    from saltwm.disk.checkpoint import CheckpointInfo

SHIPPED = Path("checkpoints")
RESULTS = Path("results")
"""Records of the shipped models, and the default place of new ones."""
TASKS = RESULTS / "tasks"
SIMILAR = {"cube-double": "cube"}
"""An environment without records of its own costs about what its sibling does."""


# --- commands --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One command of a study, what shows that it was done, and what it took last time something like it was run."""

    job: Job
    done: bool
    seconds: float | None
    """None where nothing like it is recorded."""
    strand: tuple[str, ...] = ()
    """The environment and the variant that it is about: it may need what earlier steps of both make, and no others."""
    record: Path | None = None
    """Of an evaluation: the file that it leaves."""

    def waits_for(self, earlier: "Step") -> bool:
        """Whether it needs what an earlier step of the study makes; evaluations of one variant need not each other."""
        is_of_both = self.strand[: len(earlier.strand)] == earlier.strand
        return is_of_both and (isinstance(earlier.job, (Collect, Train, Prior)) or isinstance(self.job, Card))

    @property
    def name(self) -> str:
        """Of this step alone, whatever its command: an evaluation is spelt otherwise once its tasks are written."""
        return "-".join((*self.strand, self.job.VERB)) if self.record is None else f"{self.record.parent.name}-evaluate"

    @property
    def command(self) -> str:
        """As a person types it."""
        return spell(self.job)


@dataclass(frozen=True)
class Study(Job):
    """Run one of the paper's studies, or list them with what each costs and how far it is; goes on where it stopped."""

    name: Positional[Maybe[str]] = None
    """objective, objectives, objectives-map, modulation, spectral, lambda, dim, rollout, horizon, efficiency, seeds or
    cube-double."""
    data: Path = Path("work/data")
    """Training sets: a folder for each environment, collected if it is not there."""
    runs: Some[Path] = ()
    """Folders of finished runs; one is adopted if its checkpoint says that it is a variant of the study."""
    environments: Some[str] = ()
    """Only these."""
    out: Path = Path("work/study")
    """Its own runs go to OUT/runs."""
    without_shipped: bool = False
    """Train all of it on your own data: no shipped model is adopted. Needs RESULTS of its own."""
    results: Path = RESULTS
    """Records: evaluations, diagnoses, efficiency; the tables are made of them."""
    workers: int = 2
    """Processes that collect and evaluate."""
    at_once: Aside[int] = 1
    """Commands that run side by side, each with its share of threads and workers and a log in OUT/logs."""
    dino: Maybe[Path] = None
    """A DINOv2 as transformers saves it, for the variants that are DINO-WM; they are left out without one."""
    ray: Maybe[str] = None
    """HOST:PORT of a Ray cluster's head: collecting and evaluating run there, training here."""
    dry_run: bool = False
    """Print the commands that are left instead of running them."""
    json: AsJson = False

    def do(self) -> "list[Progress] | list[Step] | None":
        """The list, what is left to do, or, after doing it, nothing: the records are the result."""
        at_least("workers", self.workers)
        at_least("at_once", self.at_once)
        if self.without_shipped and self.results.resolve() == RESULTS.resolve():
            raise UsageError(f"{self.results}: holds records of the shipped models; name another folder as --results")
        if self.name is None:
            if self.dry_run:
                raise UsageError("`dry_run`: of which study? `saltwm study` lists them")
            some = [dataclasses.replace(self, name=n, environments=self._known_to(plan)) for n, plan in PLANS.items()]
            return [progress_of(study) for study in some if study.environments or not self.environments]
        if self.dry_run:
            return [step for step in steps(self) if not step.done]
        run_study(self)
        return None

    def _known_to(self, plan: Plan) -> tuple[str, ...]:
        """Those of the chosen environments that the plan is about."""
        return tuple(name for name in self.environments if name in {v.environment for v in plan.variants})


def steps(study: Study) -> list[Step]:
    """The commands of a study in the order in which they are run."""
    plan = find_plan(study.name)
    known = dict.fromkeys(variant.environment for variant in plan.variants)
    if study.environments and not known:
        raise UsageError(f"`environments`: study {study.name!r} is about none of them; leave it out")
    for environment in study.environments:
        one_of(f"environment of study {study.name!r}", environment, known)
    variants, swept = _chosen_by(study, plan.variants), _chosen_by(study, plan.swept)
    tried = [one for variant in swept for one in variant.tries().values()]
    bench = Bench("efficiency", study.results)
    commands = [Step(bench, (study.results / "efficiency.json").exists(), None)] if plan.bench else []
    homes = {variant: _adopted(variant, study) for variant in dict.fromkeys((*variants, *tried))}
    _require_one_dataset(homes, study.data)
    tunings = {variant: _tuning(variant, _home(variant, homes, study), study) for variant in tried}
    asked = {variant: _asked(variant, plan, homes, study) for variant in variants}
    asked |= {best: _asked(best, plan, homes, study) for best in filter(None, (_best(v, study) for v in swept))}
    # Records outlive the run that they are of: nothing is trained again that has no more to answer.
    owed = {v: [*asked.get(v, ()), *([tunings[v]] if v in tunings else ())] for v in homes}
    answered = {v for v, some in owed.items() if some and all(step.done for step in some)}
    needed = [
        v.environment
        for v in homes
        if (homes[v] is None and v not in answered)
        or any(not step.done and (isinstance(step.job, Prior) or step is tunings.get(v)) for step in owed[v])
    ]
    commands += [_collect(environment, study) for environment in dict.fromkeys(needed)]
    for variant in homes:
        commands += [] if variant in answered else _training(variant, homes, study)
        commands += owed[variant]
        commands += _card(variant, homes, asked.get(variant, []), study)
    return commands


def _chosen_by(study: Study, variants: tuple[Variant, ...]) -> list[Variant]:
    """Those in the environments that the study is about; DINO-WM only with the weights of its encoder."""
    here = [v.with_dino(study.dino) for v in variants if not study.environments or v.environment in study.environments]
    return [v for v in here if v.dino is not None or not v.needs_dino]


Homes = dict[Variant, Path | None]
"""Where the finished run of each variant is, if there is one."""


def _home(variant: Variant, homes: Homes, study: Study) -> Path:
    return homes[variant] or study.out / "runs" / f"{variant.environment}-{variant.name}"


def _training(variant: Variant, homes: Homes, study: Study) -> list[Step]:
    """The training of a variant that no finished run is."""
    if homes[variant] is not None:
        return []
    train = variant.train(study.data / variant.environment, _home(variant, homes, study))
    return [Step(train, False, _training_seconds(variant, study.results), _strand(variant))]


def _asked(variant: Variant, plan: Plan, homes: Homes, study: Study) -> list[Step]:
    """What a plan evaluates and diagnoses of a variant."""
    home = _home(variant, homes, study)
    asked = (*plan.asked, *(plan.asked_of_salt if variant.model == "salt" else ()))
    found = [step for some in asked for step in _evaluations(variant, home, some, study)]
    found += [_diagnosis(variant, home, study)] if plan.diagnosed else []
    return [_prior(variant, home, found, study), *found] if any(one.search != "cem" for one in asked) else found


def _prior(variant: Variant, run: Path, asked: list[Step], study: Study) -> Step:
    """Learning the action prior that evaluations plan with; without one that is left it is not wanted any more."""
    from saltwm.disk.checkpoint import PRIOR_FOLDER

    is_done = (run / PRIOR_FOLDER).is_dir() or all(step.done for step in asked)
    return Step(Prior(run, study.data / variant.environment), is_done, None, _strand(variant))


def _card(variant: Variant, homes: Homes, asked: list[Step], study: Study) -> list[Step]:
    """The card of a run whose weights stay here, with all that was evaluated of it; a shipped model has its own."""
    from saltwm.jobs.shipment import SHIPMENT_FILE

    home = _home(variant, homes, study)
    # A variant that is trained again, for a sweep say, keeps the card of the run that its records are of.
    of_it = [step.record for step in asked if step.record and (not step.done or _is_of(homes[variant], step.record))]
    if not of_it or (home / SHIPMENT_FILE).exists():
        return []
    card = card_of_run(study.results, home.name)
    written = card.read_text(encoding="utf-8") if card.exists() else ""
    done = bool(written) and all(_names(written, record.parent.name) for record in of_it)
    return [Step(Card(home, study.results), done, None, _strand(variant))]


def _names(text: str, cell: str) -> bool:
    """Whether a text has the name of a cell, and not one that merely begins with it."""
    return re.search(rf"{re.escape(cell)}(?![\w-])", text) is not None


def _is_of(run: Path | None, record: Path) -> bool:
    """Whether an evaluation is of these weights, and not of an earlier training of the same variant."""
    from saltwm.disk.checkpoint import find_checkpoint, identity

    return run is not None and read_config(Evaluation, record).checkpoint_sha256 == identity(find_checkpoint(run))


def find_plan(name: str | None) -> Plan:
    """The study of that name."""
    one_of("study", name or "", PLANS)
    return PLANS[name or ""]


def run_study(study: Study) -> None:
    """Run what is missing, `at_once` commands at a time; one that fails or is stopped ends the study there."""
    of_one_lane = dataclasses.replace(study, workers=max(1, study.workers // study.at_once))
    started: dict[str, Step] = {}
    with lanes(study.at_once, study.out / "logs") as some:
        while missing := [step for step in steps(of_one_lane) if not step.done]:
            for step in ready(missing, some.running):
                if some.has_room:
                    note(f"{len(missing)} to do: {step.command}")
                    some.start(step.command, step.name)
                    started[step.name] = step
            name, code = some.next_end()
            _require_done(study, of_one_lane, started[name], code)


def ready(missing: list[Step], running: list[str]) -> list[Step]:
    """Those of the missing steps that are not running and wait for none that is missing."""
    return [
        step
        for number, step in enumerate(missing)
        if step.name not in running and not any(step.waits_for(earlier) for earlier in missing[:number])
    ]


def _require_done(study: Study, of_one_lane: Study, ended: Step, code: int) -> None:
    """An error unless a command ended well and left what the study looks for."""
    if code in (130, 143, -signal.SIGINT, -signal.SIGTERM):
        # The command that was stopped has named itself; it is the study that goes on with all of them.
        message = f"study {study.name}: stopped; nothing that was finished is lost. Go on with: {spell(study)}"
        raise Stopped(message, abs(code) % 128)
    if code:
        raise StudyFailedError(f"study {study.name}: exit code {code} of: {ended.command}", code)
    if any(step.name == ended.name and not step.done for step in steps(of_one_lane)):
        raise MismatchError(f"study {study.name}: this ended well and left nothing that it can find: {ended.command}")
    if study.at_once > 1:
        note(f"done: {ended.command}")


def _strand(variant: Variant) -> tuple[str, ...]:
    return variant.environment, variant.name


class StudyFailedError(SaltError):
    """A command of the study failed; its own message was printed, and its exit code is passed on."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code if 0 < code < 128 else SaltError.exit_code


def _collect(environment: str, study: Study) -> Step:
    out = study.data / environment
    collect = dataclasses.replace(recipe(PRESET, environment).collect, out=out, workers=study.workers, ray=study.ray)
    return Step(collect, (out / "zarr.json").exists(), None, (environment,))


def _evaluations(variant: Variant, run: Path, asked: Asked, study: Study) -> Iterator[Step]:
    for seed, horizon in itertools.product(asked.seeds, asked.horizons):
        job = dataclasses.replace(_evaluation(variant, run, study, asked.planner(variant)), horizon=horizon)
        frozen = TASKS / tasks_name(variant.environment, asked.protocol, seed)
        if frozen.exists():
            job = dataclasses.replace(job, task_set=frozen)
        else:
            data = _held_out(variant, study)
            job = dataclasses.replace(job, data=data, protocol=asked.protocol, seed=seed, tasks=asked.tasks)
        record = _record(study.results, variant.environment, str(job.method), asked.protocol, seed, horizon)
        done, seconds = _is_evaluated(variant, record, study), _evaluation_seconds(variant, asked, horizon, study)
        yield Step(job, done, seconds, _strand(variant), record)


def _evaluation(variant: Variant, run: Path, study: Study, planner: str = "cem") -> Evaluate:
    """What all evaluations of a variant by one planner have in common."""
    return Evaluate(
        str(run),
        history=variant.history,
        planner=None if planner == "cem" else planner_named(planner),
        method=variant.method_by(planner),
        out=study.results,
        workers=study.workers,
        ray=study.ray,
    )


def _record(results: Path, environment: str, method: str, protocol: str, seed: int, horizon: int | None = None) -> Path:
    """Where an evaluation leaves its record; the protocol's own horizon, for long 10, is not part of its name."""
    is_own = horizon is None or PROTOCOLS[protocol].horizon_blocks == horizon
    cell = cell_name(environment, method, protocol, seed, None if is_own else horizon)
    return results / "evaluations" / cell / "evaluation.json"


def _is_evaluated(variant: Variant, record: Path, study: Study) -> bool:
    """Whether the record is there; MismatchError if it is of another model, to which somebody gave this name."""
    from saltwm.jobs.variants import departures_in_words, recipe_sha256

    if not record.exists():
        return False
    found, config = read_config(Evaluation, record).variant, variant.config()
    if found is None:  # of before records knew their variant
        return True
    wanted = (config.model.model, f"seed {config.train.seed}", *departures_in_words(config, variant.environment))
    there = (found.model, f"seed {found.seed}", *found.departures)
    if there != wanted:
        raise MismatchError(
            f"{record.parent}: is of another model ({', '.join(there)}) than the study's {variant.name}; evaluate that "
            "one under a name of its own"
        )
    dataset = _studied_dataset(variant.environment, study)
    if dataset is not None and found.recipe_sha256 != recipe_sha256(config, dataset):
        raise MismatchError(
            f"{record.parent}: is of a {variant.name} that was trained otherwise than the study's (steps, sizes or "
            "dataset); evaluate that one under a name of its own, or keep this study's records apart with --results"
        )
    return True


def _studied_dataset(environment: str, study: Study) -> str | None:
    """Hash of what the study's models learn from: its own data, or else what the shipped model learnt from."""
    own = _to_learn_from(study.data / environment)
    if own is not None or study.without_shipped or not (SHIPPED / f"{environment}-salt").exists():
        return own
    return _learnt_from(SHIPPED / f"{environment}-salt")


# --- the sweep -------------------------------------------------------------------------------------------------------


def _tuning(variant: Variant, run: Path, study: Study) -> Step:
    """How many tuning tasks a variant reaches: of the training set's held-out episodes, not of the evaluation's."""
    job = dataclasses.replace(
        _evaluation(variant, run, study),
        data=study.data / variant.environment,
        protocol="clean",
        tasks=sweep.TASKS,
        seed=sweep.SEED,
        planner=sweep.PLANNER,
        out=study.results / sweep.FOLDER,
        pictures=0,
    )
    record = _tuned(variant, study)
    return Step(job, _is_evaluated(variant, record, study), None, _strand(variant), record)


def _tuned(variant: Variant, study: Study) -> Path:
    return _record(study.results / sweep.FOLDER, variant.environment, variant.method, "clean", sweep.SEED)


def _best(variant: Variant, study: Study) -> Variant | None:
    """The variant with the weight that the sweep chose; None before all of them were tried."""
    tried = variant.tries()
    files = {factor: _tuned(one, study) for factor, one in tried.items()}
    if not all(file.exists() for file in files.values()):
        return None
    tuning = read_tasks(study.results / sweep.FOLDER / "tasks" / tasks_name(variant.environment, "clean", sweep.SEED))
    for folder in (TASKS, study.results / "tasks"):
        for evaluation in sorted(folder.glob(f"{variant.environment}-clean-seed*.json")):
            sweep.require_apart(tuning, read_tasks(evaluation))
    reached = {factor: read_config(Evaluation, file).success.successes for factor, file in files.items()}
    return tried[sweep.chosen(reached, 1.0)]


def _held_out(variant: Variant, study: Study) -> Path:
    """The shipped data of the environment where there are some, otherwise what it was trained on."""
    shipped = SHIPPED / f"{variant.environment}-data"
    return shipped if shipped.exists() else study.data / variant.environment


def _diagnosis(variant: Variant, run: Path, study: Study) -> Step:
    job = Diagnose(run, _held_out(variant, study), study.results)
    return Step(job, (job.folder / job.RECORD).exists(), None, _strand(variant))


# --- adopting --------------------------------------------------------------------------------------------------------


def _adopted(variant: Variant, study: Study) -> Path | None:
    """A finished run that is this variant: the shipped model, one of the study's own, or one under `runs`."""
    shipped = () if study.without_shipped else (SHIPPED,)
    for folder in (*shipped, study.out / "runs", *study.runs):
        for run, info in _finished_runs(folder):
            if _is_of_recipe(info, variant.environment) and same_training(info.run, variant.config()):
                return run
    return None


def _is_of_recipe(info: "CheckpointInfo", environment: str) -> bool:
    """Whether a run saw the recipe's pictures and started from fresh weights: its config tells neither."""
    pictures = recipe(PRESET, environment).collect
    seen = (info.world.environment, info.world.image_size, info.world.render)
    return seen == (environment, pictures.image_size, pictures.render) and not info.lineage


def same_training(found: RunConfig, wanted: RunConfig) -> bool:
    """Whether two configs train the same weights: how often a run measured and saved itself does not matter."""
    from saltwm.jobs.variants import NOT_LEARNT_FROM

    unlearnt = {name: getattr(wanted.train, name) for name in NOT_LEARNT_FROM}
    found = dataclasses.replace(found, train=dataclasses.replace(found.train, **unlearnt))
    if wanted.model.model == "lewm":  # it has no affine transition
        found = dataclasses.replace(found, model=dataclasses.replace(found.model, affine=wanted.model.affine))
    return found == wanted


def _finished_runs(folder: Path) -> list[tuple[Path, "CheckpointInfo"]]:
    """The runs and shipped checkpoints in a folder that took all their steps."""
    paths = sorted(path for path in folder.glob("*") if path.is_dir() and not path.name.startswith("."))
    found = [(path, _read_info(path, _newest(path))) for path in paths]
    return [(path, info) for path, info in found if info is not None and info.step == info.run.train.steps]


def _newest(path: Path) -> float:
    """Changes when the run saves a checkpoint, so that what was read of it is read again."""
    return max((entry.stat().st_mtime for entry in [path, *path.glob("checkpoints")]), default=0.0)


@cache
def _read_info(path: Path, changed: float) -> "CheckpointInfo | None":
    from saltwm.disk.checkpoint import info_of

    try:
        return info_of(path)
    except SaltError:  # a dataset, or a run without a checkpoint yet: nothing to adopt
        return None


def _require_one_dataset(homes: Homes, data: Path) -> None:
    """MismatchError unless the runs of each environment learn from the same data: else a study compares datasets."""
    first: dict[str, tuple[Path, str]] = {}
    for variant, home in homes.items():
        place = home or data / variant.environment
        digest = _learnt_from(place) if home else _to_learn_from(place)
        if digest is None:
            continue
        other, known = first.setdefault(variant.environment, (place, digest))
        if digest != known:
            raise MismatchError(
                f"{place}: dataset {digest[:12]}, {other}: dataset {known[:12]}; a study compares runs of one dataset"
                + (", leave ours out with --without-shipped" if SHIPPED in (place.parent, other.parent) else "")
            )


def _learnt_from(run: Path) -> str | None:
    info = _read_info(run, _newest(run))
    return info.dataset_sha256 if info else None


def _to_learn_from(dataset: Path) -> str | None:
    """Hash of the dataset that a training would read; None if it is still to be collected."""
    from saltwm.disk.dataset import read_root

    return read_root(dataset).sha256 if (dataset / "zarr.json").exists() else None


# --- what it costs ---------------------------------------------------------------------------------------------------


def _training_seconds(variant: Variant, results: Path) -> float | None:
    """What the recipe's own training of that model took, by the records."""
    environment = SIMILAR.get(variant.environment, variant.environment)
    path = results / "diagnostics" / f"{environment}-{variant.model}" / "training.json"
    return read_config(Training, path).seconds if path.exists() else None


def _evaluation_seconds(variant: Variant, asked: Asked, horizon: int | None, study: Study) -> float | None:
    """What the recipe's own model took on such tasks, by the records: with as many frames, or else with one."""
    environment = SIMILAR.get(variant.environment, variant.environment)
    planner = planner_named(asked.planner(variant))
    names = dict.fromkeys(method_name(variant.model, planner, frames) for frames in (variant.history, 1))
    paths = (_record(study.results, environment, name, asked.protocol, 1, horizon) for name in names)
    return next((read_config(Evaluation, path).seconds for path in paths if path.exists()), None)


@dataclass(frozen=True)
class Progress:
    """How far a study is and what the rest would take."""

    name: str
    place: str
    question: str
    done: int
    steps: int
    seconds_left: float
    """Of the commands whose like is recorded."""
    unknown: int
    """Commands left that nothing like was recorded of."""


def progress_of(study: Study) -> Progress:
    """One line of the list."""
    plan, todo = find_plan(study.name), steps(study)
    left = [step for step in todo if not step.done]
    known = [step.seconds for step in left if step.seconds is not None]
    tried = {one for variant in _chosen_by(study, plan.swept) for one in variant.tries().values()}
    trained = sum(_adopted(v, study) is not None for v in {*_chosen_by(study, plan.variants), *tried})
    done = trained + sum(step.done for step in todo)
    return Progress(
        study.name or "", plan.place, plan.question, done, trained + len(todo), sum(known), len(left) - len(known)
    )
