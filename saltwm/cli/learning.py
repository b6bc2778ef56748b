"""Verbs about training and trained models."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from saltwm.cli.printing import RESULTS, Maybe, Switch, command_line, show
from saltwm.ground.config import ModelName, ObjectiveName, PrecisionName, RunConfig
from saltwm.ground.errors import UsageError

if TYPE_CHECKING:
    from saltwm.train import TrainResult


@dataclass(frozen=True)
class Train:
    """Train a world model on a dataset; a stopped or killed run goes on and ends the same."""

    dataset: tyro.conf.Positional[Path]
    """Dataset directory."""
    out: Path
    """Run directory."""
    preset: Literal["paper", "cpu", "quick"] = "cpu"
    """Where all values start from."""
    model: ModelName = "salt"
    """salt: state-affine transition; lewm: transformer predictor."""
    objective: Maybe[ObjectiveName] = None
    """Default: rollout for salt, one-step for lewm."""
    steps: Maybe[int] = None
    """Optimiser steps instead of the preset's."""
    epochs: Maybe[float] = None
    """Passes over the data instead of the preset's."""
    batch_size: Maybe[int] = None
    """Windows per step, over all devices together."""
    learning_rate: Maybe[float] = None
    """Largest learning rate."""
    lambda_: Annotated[Maybe[float], tyro.conf.arg(name="lambda")] = None
    """SIGReg weight."""
    projections: Maybe[int] = None
    """SIGReg's random directions per step."""
    starts: Maybe[int] = None
    """Rollouts per window, from its first frame and the next ones; every frame is encoded once."""
    channels: Maybe[tuple[int, ...]] = None
    """Output channels of the encoder's strided convolutions."""
    latent_dim: Maybe[int] = None
    """d, the size of the latent."""
    modes: Maybe[int] = None
    """R, modulation matrices; 0 is the ablation of App. F.1."""
    spectral: Switch = True
    """Leave A0 unconstrained: the ablation of App. C.4."""
    memory: bool = False
    """SALT affine in the last two latents and the action between them, which show motion; needs --starts 2 or more."""
    seed: Maybe[int] = None
    """Seed of weights, batches and projections."""
    split: Maybe[Literal["episode", "window"]] = None
    """Hold out whole episodes, or windows as the paper."""
    precision: Maybe[PrecisionName] = None
    """Of weights and products; bf16-mixed lowers products alone."""
    validate_every: Maybe[int] = None
    """Steps between two measurements."""
    save_every: Maybe[int] = None
    """Steps between two checkpoints."""
    keep: Maybe[int] = None
    """Newest checkpoints to keep; the best is kept besides."""
    accelerator: str = "auto"
    """Fabric accelerator: auto, cpu, gpu, mps, ..."""
    devices: Maybe[int] = None
    """Processes per node, one device each; default: 1, or what torchrun or Slurm started."""
    strategy: Literal["auto", "ddp"] = "auto"
    """ddp: one copy of the model per device, gradients averaged; auto: that if there is more than one."""
    num_nodes: int = 1
    """Nodes."""
    timeout: float = 600.0
    """Seconds that processes wait for one another before the run ends."""
    log: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Also log there; metrics.jsonl and timing.jsonl are always written."""
    verify: Literal["full", "sizes"] = "full"
    """Check every hash of the dataset first, or only the files' sizes."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Train and print."""
        from saltwm.disk.dataset import Dataset
        from saltwm.processes.launch import Devices, is_main_process
        from saltwm.train import train

        dataset = Dataset.open(self.dataset, verify=self.verify)
        devices = Devices(self.accelerator, self.devices, self.strategy, self.num_nodes, self.timeout)
        config = self.config()
        result = train(config, dataset, self.out, devices, self.log)
        if not is_main_process():
            return
        protocol = "clean" if config.train.split == "episode" else "paper"  # no episode is left unseen by windows
        show(
            self.json,
            dataclasses.asdict(result) if self.json or result.frames_per_second else _finished_before(result),
            command_line(
                "saltwm", "evaluate", self.out, "--data", self.dataset, "--protocol", protocol, "--out", RESULTS
            ),
        )

    def config(self) -> RunConfig:
        """The preset with this command's options."""
        from saltwm.jobs.presets import run_config
        from saltwm.model.traits import traits_of

        if not traits_of(self.model).has_matrix and (self.modes is not None or not self.spectral or self.memory):
            options = "--modes, --no-spectral and --memory"
            raise UsageError(f"{options} are about SALT's transition; leave them out for --model {self.model}")
        if self.epochs is not None and self.steps is not None:
            raise UsageError(f"--steps {self.steps} and --epochs {self.epochs} both say how long; give one")
        base = run_config(self.preset, self.model, self.objective)
        encoder = _replace(base.model.encoder, channels=self.channels)
        model = _replace(base.model, latent_dim=self.latent_dim, encoder=encoder)
        affine = _replace(model.affine, modes=self.modes, spectral=None if self.spectral else False, memory=self.memory)
        objective = _replace(
            base.objective, sigreg_weight=self.lambda_, sigreg_projections=self.projections, starts=self.starts
        )
        train = _replace(
            base.train,
            steps=self.steps,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=self.seed,
            split=self.split,
            precision=self.precision,
            validate_every=self.validate_every,
            save_every=self.save_every,
            keep=self.keep,
        )
        if self.epochs is not None and self.steps is None:
            train = dataclasses.replace(train, steps=None)
        return dataclasses.replace(
            base, model=dataclasses.replace(model, affine=affine), objective=objective, train=train
        )


@dataclass(frozen=True)
class Info:
    """Show a model card: what a run or checkpoint is, what it was trained on, how it did."""

    run_: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(name="run")]
    """Run or checkpoint directory."""
    json: bool = False
    """Print as JSON."""

    def run(self) -> None:
        """Print the card."""
        from saltwm.disk.checkpoint import card

        show(self.json, card(self.run_))


@dataclass(frozen=True)
class Watch:
    """Draw a run's curves in the terminal while it trains; ends with the run or with Ctrl-C."""

    run_: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(name="run")]
    """Run directory."""
    once: bool = False
    """Draw what there is now and end."""
    picture: Maybe[Path] = None
    """Save the curves as a PNG instead."""

    def run(self) -> None:
        """Draw."""
        from rich.console import Console
        from rich.live import Live

        from saltwm.report.watch import read_files, render, save_picture, watch

        console = Console()
        if self.picture is not None:
            save_picture(read_files(self.run_), self.picture)
            console.print(f"written: {self.picture}")
        elif self.once or not console.is_terminal:
            console.print(render(read_files(self.run_), console.width))
        else:
            with Live(console=console, auto_refresh=False) as live:
                watch(self.run_, lambda drawing: live.update(drawing, refresh=True), console.width)


def _finished_before(result: "TrainResult") -> dict[str, Any]:
    """What there is to say when no step was left to take: no speed."""
    found = {name: getattr(result, name) for name in ("run", "checkpoint", "step", "metrics")}
    return {**found, "nothing_to_do": "all steps were done before"}


def _replace(value: Any, **changes: Any) -> Any:
    """The dataclass with those changes that are not None."""
    return dataclasses.replace(value, **{name: change for name, change in changes.items() if change is not None})
