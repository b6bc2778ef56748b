"""The command line: one verb per job; parse, call, print where the result is and what to run next.

Torch, Fabric and the simulators are imported inside the verbs, so that `saltwm --help` answers at once.
"""

import contextlib
import dataclasses
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import tyro

from saltwm.config import ModelName, ObjectiveName, RenderQuality, RunConfig, Variant
from saltwm.errors import SaltError, Stopped

Positional = tyro.conf.Positional


@dataclass(frozen=True)
class Collect:
    """Collect episodes of an environment into a dataset; an interrupted collection goes on."""

    environment: Positional[str]
    """two-room, push-t, reacher, cube or cube-double."""
    out: Path
    """Dataset directory."""
    episodes: int = 2000
    """Episodes to collect."""
    policy: str | None = None
    """Collecting policy; each environment has its own default."""
    seed: int = 0
    """Episode i is a function of (seed, i)."""
    variant: Variant = "clean"
    """Physics: clean, or paper for the public benchmark's."""
    image_size: int = 64
    """Height and width of a frame in pixels."""
    render: RenderQuality = "fast"
    """full looks like the benchmark; fast leaves out shadows, reflections and multisampling."""
    frame_every: int = 1
    """Keep every n-th frame; 5 keeps just those that windows at the frameskip use."""
    workers: int = 2
    """Processes."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Collect and print."""
        from saltwm.data.collect import collect

        dataset = collect(
            self.environment,
            self.out,
            self.episodes,
            seed=self.seed,
            policy=self.policy,
            variant=self.variant,
            image_size=self.image_size,
            render=self.render,
            frame_every=self.frame_every,
            workers=self.workers,
        )
        summary = {
            "dataset": str(self.out),
            "episodes": len(dataset.lengths),
            "actions": int(dataset.lengths.sum()),
            "sha256": dataset.sha256,
        }
        _show(self.json, summary, f"saltwm train {self.out} --preset quick --out runs/{self.environment}-salt")


@dataclass(frozen=True)
class Train:
    """Train a world model on a dataset; a stopped or killed run goes on and ends the same."""

    dataset: Positional[Path]
    """Dataset directory."""
    out: Path
    """Run directory."""
    preset: Literal["paper", "cpu", "quick"] = "cpu"
    """Where all values start from."""
    model: ModelName = "salt"
    """salt: state-affine transition; lewm: transformer predictor."""
    objective: ObjectiveName | None = None
    """Default: rollout for salt, one-step for lewm."""
    steps: int | None = None
    """Optimiser steps instead of the preset's."""
    epochs: float | None = None
    """Passes over the data instead of the preset's."""
    batch_size: int | None = None
    """Windows per step, over all devices together."""
    learning_rate: float | None = None
    """Largest learning rate."""
    lambda_: Annotated[float | None, tyro.conf.arg(name="lambda")] = None
    """SIGReg weight."""
    latent_dim: int | None = None
    """d, the size of the latent."""
    modes: int | None = None
    """R, modulation matrices; 0 is the ablation of App. F.1."""
    spectral: bool = True
    """Constrain A0; --no-spectral is the ablation of App. C.4."""
    seed: int | None = None
    """Seed of weights, batches and projections."""
    split: Literal["episode", "window"] | None = None
    """Hold out whole episodes, or windows as the paper."""
    precision: str | None = None
    """Fabric precision: 32-true, bf16-mixed, ..."""
    keep: int | None = None
    """Newest checkpoints to keep; the best is kept besides."""
    accelerator: str = "auto"
    """Fabric accelerator: auto, cpu, gpu, mps, ..."""
    devices: int = 1
    """Devices per node."""
    strategy: str = "auto"
    """Fabric strategy: auto, ddp, ..."""
    num_nodes: int = 1
    """Nodes."""
    verify: Literal["full", "sizes"] = "full"
    """Check every hash of the dataset first, or only the files' sizes."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Train and print."""
        from saltwm.data.store import Dataset
        from saltwm.train import Devices, train

        dataset = Dataset.open(self.dataset, verify=self.verify)
        devices = Devices(self.accelerator, self.devices, self.strategy, self.num_nodes)
        result = train(self.config(), dataset, self.out, devices)
        _show(
            self.json,
            dataclasses.asdict(result),
            f"saltwm evaluate {self.out} --data {self.dataset} --protocol clean --out results",
        )

    def config(self) -> RunConfig:
        """The preset with this command's options."""
        from saltwm.presets import run_config

        base = run_config(self.preset, self.model, self.objective)
        model = _replace(base.model, latent_dim=self.latent_dim)
        affine = _replace(model.affine, modes=self.modes, spectral=None if self.spectral else False)
        objective = _replace(base.objective, sigreg_weight=self.lambda_)
        train = _replace(
            base.train,
            steps=self.steps,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=self.seed,
            split=self.split,
            precision=self.precision,
            keep=self.keep,
        )
        if self.epochs is not None and self.steps is None:
            train = dataclasses.replace(train, steps=None)
        return dataclasses.replace(
            base, model=dataclasses.replace(model, affine=affine), objective=objective, train=train
        )


@dataclass(frozen=True)
class Evaluate:
    """Plan with a trained model (or act at random) on a frozen set of tasks and record every episode."""

    run_: Annotated[Positional[str], tyro.conf.arg(name="run")]
    """Run or checkpoint directory, or the word random."""
    data: Path
    """Dataset that the tasks are chosen from."""
    out: Path = Path("results")
    """Results directory."""
    protocol: Literal["paper", "clean", "long"] = "clean"
    """paper: as the authors; clean: held-out, unsolved, distant goals, bounded actions; long: goals 100 steps on."""
    tasks: int | None = None
    """Number of tasks; 50 for paper and long, 100 for clean."""
    seed: int = 1
    """Seed of the tasks and of the planner."""
    horizon: int | None = None
    """Planned action blocks, all executed before the next plan; the protocol's by default."""
    history: int = 1
    """Frames that a transformer predictor may look back at; the authors' evaluation gives it one."""
    method: str | None = None
    """Name in tables; salt, lewm or random by default."""
    workers: int = 2
    """Processes."""
    pictures: int = 4
    """Episodes to film."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Evaluate and print."""
        from saltwm.data.store import Dataset
        from saltwm.evaluation.evaluate import Request, evaluate_run

        dataset = Dataset.open(self.data, verify="sizes")
        request = Request(
            run=None if self.run_ == "random" else Path(self.run_),
            protocol=self.protocol,
            tasks=self.tasks,
            seed=self.seed,
            horizon_blocks=self.horizon,
            history_frames=self.history,
            method=self.method,
        )
        evaluation = evaluate_run(request, dataset, self.out, workers=self.workers, pictures=self.pictures)
        if self.json:
            print(json.dumps(dataclasses.asdict(evaluation)))
            return
        _print_results(self.out)
        _next(f"saltwm diagnose {self.run_} --data {self.data} --out {self.out}")


@dataclass(frozen=True)
class Diagnose:
    """Measure how a model's errors propagate: one-step and rollout error, propagation norms, rho_H (App. C)."""

    run_: Annotated[Positional[Path], tyro.conf.arg(name="run")]
    """Run or checkpoint directory."""
    data: Path
    """Dataset whose held-out episodes are used."""
    out: Path = Path("results")
    """Results directory."""
    horizon: int = 20
    """Rollout steps."""
    trajectories: int = 16
    """Trajectories per batch."""
    batches: int = 3
    """Batches; the band spans their smallest and largest norm."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Measure and print."""
        from saltwm.data.store import Dataset
        from saltwm.diagnostics.diagnose import diagnose_run

        dataset = Dataset.open(self.data, verify="sizes")
        diagnosis, path = diagnose_run(
            self.run_, dataset, self.out, horizon=self.horizon, trajectories=self.trajectories, batches=self.batches
        )
        if self.json:
            print(json.dumps(dataclasses.asdict(diagnosis)))
            return
        summary = {
            "diagnosis": str(path),
            "one-step error (share of the latents' spread)": round(diagnosis.one_step_error, 4),
            f"rollout error after {len(diagnosis.rollout_error)} steps": round(diagnosis.rollout_error[-1], 4),
            "growth of the propagation norm": round(diagnosis.propagation_norm[-1] / diagnosis.propagation_norm[0], 2),
            "largest rho_H": f"{max(diagnosis.rho):.1e}",
            "effective rank": round(diagnosis.effective_rank, 1),
        }
        _show(False, summary, f"saltwm report {self.out} --out report")


@dataclass(frozen=True)
class Report:
    """Write one self-contained page from the records under a results directory."""

    results: Positional[Path]
    """Results directory."""
    out: Path = Path("report")
    """Where index.html goes."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Build the page."""
        from saltwm.report import build_report

        page = build_report(self.results, self.out)
        _show(self.json, {"report": str(page)}, f"open {page} in a browser")


@dataclass(frozen=True)
class Reproduce:
    """Collect, train, evaluate, diagnose and report an environment from nothing; goes on where it stopped."""

    environment: Positional[str]
    """two-room, push-t, reacher, cube or cube-double."""
    out: Path
    """Directory for everything."""
    preset: Literal["cpu", "quick"] = "cpu"
    """quick: SALT and random in minutes; cpu: SALT, LeWM and random."""
    workers: int = 2
    """Processes for collecting and evaluating."""

    def run(self) -> None:
        """The verbs one after another; each can be run by hand as printed."""
        for verb in self.verbs():
            _say(f"\n[bold]$ saltwm {_spell(verb)}[/bold]")
            verb.run()
        _print_results(self.out / "results")
        _next(f"open {self.out / 'report' / 'index.html'} in a browser")

    def verbs(self) -> Iterator[Any]:
        """What will be run, in order."""
        from saltwm.presets import recipe

        plan = recipe(self.preset, self.environment)
        data, results = self.out / "data", self.out / "results"
        yield Collect(
            self.environment,
            data,
            plan.episodes,
            image_size=plan.image_size,
            frame_every=plan.frame_every,
            workers=self.workers,
        )
        models: tuple[ModelName, ...] = ("salt",) if self.preset == "quick" else ("salt", "lewm")
        runs = [self.out / "runs" / f"{self.environment}-{model}" for model in models]
        for run, model in zip(runs, models, strict=True):
            yield Train(data, run, self.preset, model)
        for protocol, tasks in plan.tasks.items():
            for seed in plan.paper_seeds if protocol == "paper" else (1,):
                for run in ("random", *map(str, runs)):
                    yield Evaluate(run, data, results, protocol, tasks, seed, workers=self.workers)  # type: ignore[arg-type]
        for run in runs:
            yield Diagnose(run, data, results)
        yield Report(results, self.out / "report")


@dataclass(frozen=True)
class Info:
    """Show a model card: what a run or checkpoint is, what it was trained on, how it did."""

    run_: Annotated[Positional[Path], tyro.conf.arg(name="run")]
    """Run or checkpoint directory."""
    json: bool = False
    """Print as JSON."""

    def run(self) -> None:
        """Print the card."""
        from saltwm.checkpoint import card

        _show(self.json, card(self.run_), None)


@dataclass(frozen=True)
class Doctor:
    """Check the machine: versions, threads, devices, renderers; what is missing and how to get it."""

    json: bool = False
    """Print as JSON."""

    def run(self) -> None:
        """Print the findings."""
        from saltwm.doctor import examine

        findings = examine()
        if self.json:
            print(json.dumps([dataclasses.asdict(finding) for finding in findings]))
            return
        from rich.table import Table

        table = Table("what", "found", "what to do", box=None, header_style="bold")
        for finding in findings:
            table.add_row(finding.what, finding.found, finding.remedy)
        _say(table)


Verb = (
    Annotated[Collect, tyro.conf.subcommand("collect")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Diagnose, tyro.conf.subcommand("diagnose")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Info, tyro.conf.subcommand("info")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
)

DESCRIPTION = "Learn state-affine latent dynamics from pixels, plan with them, and measure both honestly."


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `saltwm` command."""
    verb: Any = tyro.cli(Verb, prog="saltwm", description=DESCRIPTION, args=arguments, config=(tyro.conf.OmitSubcommandPrefixes,))  # type: ignore[call-overload]
    try:
        with _sigterm_is_a_stop():
            verb.run()
    except SaltError as error:
        _say_error(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _say_error("stopped; nothing that was finished is lost, the same command goes on")
        sys.exit(130)


@contextlib.contextmanager
def _sigterm_is_a_stop() -> Iterator[None]:
    """SIGTERM unwinds like Ctrl-C, so that locks, workers and temporary files are cleaned up."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise Stopped("stopped; nothing that was finished is lost, the same command goes on", number)

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


# --- printing ---------------------------------------------------------------------------------------------------------


def _say(message: Any) -> None:
    from rich.console import Console

    Console(highlight=False).print(message)


def _say_error(message: str) -> None:
    print(f"saltwm: {message}", file=sys.stderr)


def _next(command: str) -> None:
    _say(f"next: {command}")


def _show(as_json: bool, result: dict[str, Any], next_command: str | None) -> None:
    """A result as aligned lines with the next command, or as JSON alone."""
    if as_json:
        print(json.dumps(result))
        return
    from rich.table import Table

    table = Table(box=None, show_header=False)
    for key, value in result.items():
        table.add_row(key.replace("_", " "), json.dumps(value) if isinstance(value, dict) else str(value))
    _say(table)
    if next_command:
        _next(next_command)


def _print_results(results: Path) -> None:
    """The success table of everything evaluated so far."""
    from saltwm.records import read_cells
    from saltwm.report.tables import success_table

    _say(success_table(read_cells(results)))


def _replace(value: Any, **changes: Any) -> Any:
    """The dataclass with those changes that are not None."""
    return dataclasses.replace(value, **{name: change for name, change in changes.items() if change is not None})


def _spell(verb: Any) -> str:
    """The command line that a verb stands for, options at their defaults left out."""
    words = [type(verb).__name__.lower()]
    for field in dataclasses.fields(verb):
        value = getattr(verb, field.name)
        name = field.name.rstrip("_").replace("_", "-")
        if field.name in ("environment", "dataset", "results") or name == "run":
            words.append(str(value))
        elif value != field.default:
            words.append(f"--{name} {value}")
    return " ".join(words)
