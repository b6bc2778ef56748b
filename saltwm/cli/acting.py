"""Verbs about planning, evaluating and diagnosing."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from saltwm.cli.printing import Maybe, Switch, command_line, next_command, print_results, say, show
from saltwm.disk import durable
from saltwm.ground.checks import at_least
from saltwm.ground.config import ProtocolName
from saltwm.ground.errors import UsageError
from saltwm.ground.strict_json import to_plain

if TYPE_CHECKING:
    from saltwm.disk.dataset import Dataset
    from saltwm.disk.records import TaskSet
    from saltwm.ground.config import PlannerConfig
    from saltwm.jobs.evaluate import Request

PlannerName = Literal[
    "cem", "gauss-newton", "icem", "mppi", "gradient", "map", "prior", "cem-prior", "icem-prior", "mppi-prior"
]
DEFAULT_PROTOCOLS: tuple[ProtocolName, ...] = ("paper", "clean")
DEFAULT_SEEDS = (1,)
"""What a suite chooses from data when nothing is said."""


@dataclass(frozen=True)
class _OnTasks:
    """Who acts on which tasks, and how it plans."""

    run_: Annotated[tyro.conf.Positional[str], tyro.conf.arg(name="run")]
    """Run or checkpoint directory, or the word random."""
    data: Maybe[Path] = None
    """Dataset that the tasks are chosen from."""
    task_set: Maybe[Path] = None
    """Frozen tasks instead, such as results/tasks/two-room-paper-seed1.json: they say protocol, seed and number."""
    protocol: Maybe[ProtocolName] = None
    """clean, the default: held-out, unsolved, distant goals, bounded actions; paper: the authors'; long: far goals."""
    tasks: Maybe[int] = None
    """Number of tasks; 50 for paper and long, 100 for clean."""
    seed: Maybe[int] = None
    """Seed of the tasks and of the planner; 1 by default."""
    horizon: Maybe[int] = None
    """Planned action blocks; 5, or for long 10 (also 15 or 20)."""
    look_every: Maybe[int] = None
    """Action blocks executed before the next look and plan; all that were planned by default, as in the paper."""
    planner: Maybe[PlannerName] = None
    """cem, the default, is the paper's; gauss-newton and map are for state-affine models; map, prior and those ending
    in -prior use the action prior that saltwm prior makes."""
    mu: Maybe[float] = None
    """gauss-newton: price of leaving the mean action, instead of its default; name the method with --method."""
    w: Maybe[float] = None
    """map: price of leaving the action prior's mean, instead of its default; name the method with --method."""
    variant: Maybe[Literal["len-1", "len"]] = None
    """paper, long: len-1, the default, never draws the last start, as the authors' code; len: as corrected since."""
    hold: Maybe[int] = None
    """Consecutive steps that success must last; 1 by default."""
    history: int = 1
    """Frames that a transformer predictor may look back at; the authors' evaluation gives it one."""
    method: Maybe[str] = None
    """Name in tables, folders and pictures; salt, lewm or random by default, with the planner's unless it is cem."""

    def request(self) -> "Request":
        """What is asked, for the evaluation."""
        from saltwm.jobs.evaluate import Request

        return Request(
            run=_run_or_random(self.run_),
            protocol=self.protocol,
            tasks=self.tasks,
            seed=self.seed,
            horizon_blocks=self.horizon,
            history_frames=self.history,
            method=self.method,
            planner=_planner(self.planner, self.mu, self.w),
            last_start=None if self.variant is None else self.variant == "len",
            hold_steps=self.hold,
            look_every=self.look_every,
        )


@dataclass(frozen=True)
class Evaluate(_OnTasks):
    """Plan with a trained model (or act at random) on a frozen set of tasks and record every episode."""

    out: Path = Path("results")
    """Results directory."""
    workers: int = 2
    """Processes."""
    pictures: int = 4
    """Episodes to film."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Evaluate and print."""
        from saltwm.jobs.evaluate import evaluate_run

        request, source = self.request(), _tasks_from(self.data, self.task_set)
        evaluation = evaluate_run(request, source, self.out, workers=self.workers, pictures=self.pictures)
        if self.json:
            print(json.dumps(dataclasses.asdict(evaluation)))
            return
        print_results(self.out)
        if self.run_ == "random" or self.data is None:
            next_command(command_line("saltwm", "report", self.out, "--out", "report"))
        else:
            next_command(command_line("saltwm", "diagnose", self.run_, "--data", self.data, "--out", self.out))


@dataclass(frozen=True)
class Suite:
    """Evaluate runs and the random policy under several protocols, horizons and seeds; goes on where it stopped."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run or checkpoint directories; each is evaluated on the dataset of the world that it learnt."""
    data: tuple[Path, ...] = ()
    """Datasets that the tasks are chosen from."""
    task_sets: tuple[Path, ...] = dataclasses.field(default=(), kw_only=True)
    """Frozen tasks instead, such as results/tasks/*.json: they say protocol, seed and number."""
    out: Path = Path("results")
    """Results directory."""
    protocols: Maybe[tuple[ProtocolName, ...]] = None
    """See saltwm evaluate; paper and clean by default."""
    horizons: tuple[int, ...] = ()
    """Planned action blocks; each protocol's own by default."""
    seeds: Maybe[tuple[int, ...]] = None
    """Seeds of the tasks and of the planner; 1 by default, the paper's are 1 2 3."""
    planners: tuple[PlannerName, ...] = ("cem",)
    """Planners that each run is evaluated with."""
    look_every: Maybe[int] = None
    """See saltwm evaluate."""
    tasks: Maybe[int] = None
    """Tasks per cell; 50 for paper and long, 100 for clean."""
    random: Switch = True
    """Leave out the random policy."""
    workers: int = 2
    """Processes."""
    ray: Maybe[str] = None
    """HOST:PORT of a Ray cluster's head: the processes run there, with a CPU each (needs the extra `ray`)."""
    pictures: int = 4
    """Episodes to film per cell."""
    json: bool = False
    """Print rows and means over seeds as JSON."""

    def run(self) -> None:
        """Evaluate what is missing and print everything."""
        from saltwm.disk.records import read_cells, read_plan
        from saltwm.evaluation.protocols import planner_named
        from saltwm.jobs import suite as suites
        from saltwm.report.tables import json_means, json_rows

        suite = suites.Suite(
            runs=self.runs,
            protocols=DEFAULT_PROTOCOLS if self.protocols is None else self.protocols,
            horizons=self.horizons or (None,),
            seeds=DEFAULT_SEEDS if self.seeds is None else self.seeds,
            planners=tuple(planner_named(name) for name in self.planners),
            tasks=self.tasks,
            random=self.random,
            look_every=self.look_every,
        )
        sources = self._sources()
        suites.run_suite(suite, sources, self.out, workers=self.workers, pictures=self.pictures, ray=self.ray)
        if self.json:
            cells = read_cells(self.out)
            print(json.dumps({"rows": json_rows(cells), "means": json_means(cells, read_plan(self.out))}))
            return
        print_results(self.out)
        next_command(command_line("saltwm", "report", self.out, "--out", "report"))

    def _sources(self) -> "list[Dataset] | list[TaskSet]":
        if bool(self.data) == bool(self.task_sets):
            raise UsageError("tasks come from --data DATASETS or from --task-sets FILES: give one of the two")
        for option in ("protocols", "seeds", "tasks"):
            if self.task_sets and getattr(self, option) is not None:
                raise UsageError(f"--{option} chooses tasks from --data; task sets bring their own: leave it out")
        if self.task_sets:
            from saltwm.evaluation.tasks import read_frozen

            return [read_frozen(path) for path in self.task_sets]
        from saltwm.disk.dataset import Dataset

        return [Dataset.open(path, verify="sizes") for path in self.data]


@dataclass(frozen=True)
class Play(_OnTasks):
    """Act on one task of a protocol and film it: agent and goal, with the predicted cost at each replanning.

    It is the task of an evaluation with the same options.
    """

    task: int = 0
    """Number of the task."""
    out: Path = Path("play")
    """Where the pictures go."""
    video: Literal["gif", "mp4"] = "gif"
    """Kind of moving picture."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Act, film and print."""
        import tempfile

        from saltwm.jobs.chunks import run_one
        from saltwm.jobs.evaluate import make_job
        from saltwm.jobs.pictures import play

        durable.check_folder(self.out)
        request, source = self.request(), _tasks_from(self.data, self.task_set)
        with tempfile.TemporaryDirectory() as scratch:  # no task set stays to bind the next play
            job, cell = make_job(request, source, Path(scratch))
            tasks, outcome = run_one(job, self.task)
        moving, strip = play(tasks, outcome, self.out, self.video, title=cell.name)
        record = outcome.record
        promised = {f"step {p.step}": f"{p.elite_costs[-1]:.4g}" for p in record.plans if p.elite_costs}
        result = {
            "outcome": record.reason,
            "steps": record.steps_taken,
            "start_distance": round(record.start_distance, 3),
            "final_distance": round(record.final_distance, 3),
            "promised_costs": promised,
            "moving": str(moving),
            "strip": str(strip),
        }
        show(self.json, result, f"open {moving}")


@dataclass(frozen=True)
class Anatomy:
    """Take apart where two methods fail on the same tasks: by kind, paired, and a page for each failed episode."""

    results: tyro.conf.Positional[Path]
    """Results directory."""
    a: tyro.conf.Positional[str]
    """A method (salt, lewm, ...) or the name of one evaluation."""
    b: tyro.conf.Positional[str]
    """The other."""
    out: Path = Path("anatomy")
    """Where index.html and the episodes' pages go."""
    pages: int = 40
    """Failed episodes that get a page with pictures: of each environment those near the median ratio r."""
    json: bool = False
    """Print the counts as JSON."""

    def run(self) -> None:
        """Count, film what failed, and write the pages."""
        from saltwm.disk.records import read_cells
        from saltwm.evaluation.anatomy import examples, pair_up
        from saltwm.jobs.failures import film_failures
        from saltwm.report.anatomy import PICTURES, anatomy_table, write_anatomy

        at_least("pages", self.pages, 0)
        durable.check_folder(self.out)
        pairs = pair_up(self.results, self.a, self.b)
        shown = examples(pairs, {cell.name: cell for cell in read_cells(self.results)}, self.pages)
        film_failures(self.results, [one for chosen in shown for one in chosen], self.out / PICTURES)
        page = write_anatomy(self.results, pairs, self.out, shown)
        if self.json:
            print(json.dumps([dataclasses.asdict(pair) for pair in pairs]))
            return
        say(anatomy_table(pairs))
        next_command(f"open {page} in a browser")


@dataclass(frozen=True)
class Diagnose:
    """Measure how a model's errors propagate (App. C) and what its latents know: probes, costs against distances."""

    run_: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(name="run")]
    """Run or checkpoint directory."""
    data: Path
    """Dataset whose held-out episodes are used."""
    out: Path = Path("results")
    """Results directory."""
    horizon: int = 20
    """Rollout steps."""
    windows: tuple[int, ...] = (20, 25, 30)
    """Lengths of the stretches that are measured, in action blocks; shorter where no episode is long enough."""
    trajectories: Maybe[int] = None
    """Trajectories per batch; 40 for SALT and 16 for LeWM, as the paper."""
    batches: int = 3
    """Batches for each of these lengths; the band spans the smallest and largest norm of all of them."""
    seed: int = 0
    """Seed of the stretches that are drawn."""
    frames: int = 2000
    """Held-out frames that the probes are scored on, and pairs of frames whose costs are ranked."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Measure and print."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.diagnose import diagnose_run
        from saltwm.report.tables import probe_scores

        dataset = Dataset.open(self.data, verify="sizes")
        found = diagnose_run(
            self.run_,
            dataset,
            self.out,
            horizon=self.horizon,
            windows=self.windows,
            trajectories=self.trajectories,
            batches=self.batches,
            frames=self.frames,
            seed=self.seed,
        )
        if self.json:
            records = {"diagnosis": found.diagnosis, "probes": found.probes, "training": found.training}
            print(json.dumps({name: to_plain(record) for name, record in records.items()}))
            return
        diagnosis, probes = found.diagnosis, found.probes
        summary = {
            "records": str(found.folder),
            "one-step error (share of the latents' spread)": round(diagnosis.one_step_error, 4),
            f"rollout error after {len(diagnosis.rollout_error)} steps": round(diagnosis.rollout_error[-1], 4),
            "growth of the propagation norm": round(diagnosis.propagation_norm[-1] / diagnosis.propagation_norm[0], 2),
            "largest rho_H": f"{max(diagnosis.rho):.1e}",
            "Jacobian varies with the state by": f"{probes.jacobian_spread:.1e}",
            "effective rank": round(diagnosis.effective_rank, 1),
            "state read linearly from z (R2)": {probe.field: probe_scores(probe) for probe in probes.fields},
            "rank correlation of cost and true distance": probes.cost_order,
        }
        show(False, summary, command_line("saltwm", "report", self.out, "--out", "report"))


@dataclass(frozen=True)
class Decode:
    """Draw open-loop predictions with a decoder fitted afterwards (App. C.5): for looking, never for planning."""

    run_: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(name="run")]
    """Run or checkpoint directory; its model is left as it is."""
    data: Path
    """Dataset: training episodes fit the decoder, held-out ones are drawn; of a held-out dataset, one half each."""
    out: Path = Path("results")
    """Results directory."""
    decoder: Literal["small", "paper"] = "small"
    """small: transposed convolutions, minutes on a core; paper: cross-attention in 16 px patches, for a GPU."""
    steps: Maybe[int] = None
    """Of the decoder's fit; 1000 for small, 30000 for paper."""
    episodes: int = 3
    """Episodes to draw."""
    frames: int = 10_000
    """Frames to fit the decoder on, held in memory; fewer if there are not as many."""
    seed: int = 0
    """Seed of the decoder and of the choice of episodes."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Fit, draw and print."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.decode import decode_run

        dataset = Dataset.open(self.data, verify="sizes")
        found = decode_run(
            self.run_,
            dataset,
            self.out,
            decoder=self.decoder,
            steps=self.steps,
            episodes=self.episodes,
            frames=self.frames,
            seed=self.seed,
        )
        record = found.record
        if self.json:
            print(json.dumps(to_plain(record)))
            return
        first, last = record.times[record.context], record.times[-1]
        summary = {
            "picture": str(found.picture),
            "decoder": f"{record.decoder}, {record.steps} steps on {record.frames} frames",
            f"pixel error on {record.stretches} held-out stretches": "mean squared, pixels in 0 .. 1",
            "  of the mean picture": sum(record.mean_mse) / len(record.mean_mse),
            "  of decoded true frames": sum(record.true_mse) / len(record.true_mse),
            f"  of decoded predictions, t = {first} and {last}": (record.predicted_mse[0], record.predicted_mse[-1]),
            "decoder draws better than the mean picture": record.tells_frames_apart,
        }
        show(False, summary, command_line("saltwm", "report", self.out, "--out", "report"))


@dataclass(frozen=True)
class Report:
    """Write one self-contained page from the records under a results directory."""

    results: tyro.conf.Positional[Path]
    """Results directory."""
    out: Path = Path("report")
    """Where index.html goes."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Build the page."""
        from saltwm.report import build_report

        page = build_report(self.results, self.out)
        show(self.json, {"report": str(page)}, f"open {page} in a browser")


# --- what options mean ------------------------------------------------------------------------------------------------


def _run_or_random(word: str) -> Path | None:
    """The run that is meant, None if it is the random policy; a word that is nearly that is asked about."""
    import difflib

    if word == "random":
        return None
    if not Path(word).exists() and difflib.get_close_matches(word, ["random"]):
        raise UsageError(f"{word}: no such run; did you mean the word random?")
    return Path(word)


def _tasks_from(data: Path | None, task_set: Path | None) -> "Dataset | TaskSet":
    if (data is None) == (task_set is None):
        raise UsageError("tasks come from --data DATASET or from --task-set FILE: give one of the two")
    if task_set is not None:
        from saltwm.evaluation.tasks import read_frozen

        return read_frozen(task_set)
    from saltwm.disk.dataset import Dataset

    assert data is not None
    return Dataset.open(data, verify="sizes")


def _planner(name: PlannerName | None, mu: float | None, w: float | None = None) -> "PlannerConfig | None":
    """The planner that is asked for, None if nothing is said of one."""
    from saltwm.evaluation.protocols import planner_named

    return None if name is None and mu is None and w is None else planner_named(name or "cem", mu, w)
