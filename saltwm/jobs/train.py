"""Train: a preset with a few of its values changed, on a dataset; and looking at a run."""
# ruff: noqa: RUF009 (`_setting` makes a field, as dataclasses.field does)

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import tyro

from saltwm.disk.shipped import named
from saltwm.ground.checks import at_least
from saltwm.ground.config import ModelConfig, ModelName, ObjectiveName, PrecisionName, RunConfig
from saltwm.ground.errors import UsageError
from saltwm.ground.own_code import is_place
from saltwm.jobs.job import Aside, AsJson, Job, Maybe, MaybeSome, Memo, Positional, RunFolder, Some, spell
from saltwm.jobs.presets import run_config
from saltwm.losses.table import has_sigreg, is_own
from saltwm.model.own import name_model
from saltwm.model.traits import traits_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from saltwm.data.features import FrozenEncoder
    from saltwm.disk.dataset import Dataset
    from saltwm.train import TrainResult

PresetWord = Literal["full-size", "cpu", "quick"]
IN_FILES: dict[PresetWord, str] = {"full-size": "paper", "cpu": "cpu", "quick": "quick"}
"""Each preset by the name that configs have for it."""
PATCHES: dict[PresetWord, int] = {"full-size": 14, "cpu": 4, "quick": 4}
"""Along a side: DINO-WM's 196 pixels, or 56, nearest to the small presets' 64."""


def _setting(place: str) -> Any:
    """An option that changes one value of the preset: `train.steps` is the steps of its TrainConfig."""
    return dataclasses.field(default=None, metadata={"setting": place})


@dataclass(frozen=True)
class Train(Job):
    """Train a world model on a dataset; a stopped or killed run goes on and ends the same.

    With more --steps than it was begun with, a run is prolonged: its learning rate warms up and falls to 0 once more.
    """

    dataset: Positional[Memo[Path]]
    """Dataset directory."""
    out: Aside[Path]
    """Run directory."""
    preset: PresetWord = "cpu"
    """Where all values start from; full-size: the paper's."""
    model: ModelName = "salt"
    """salt: state-affine transition; lewm: transformer; dino-wm: transformer over the patches of a frozen DINOv2;
    or module:Class of your own."""
    objective: Maybe[str] = None
    """salt, lewm, pldm, sub-jepa, sd-jepa, smwm, delta-jepa, or your own module:name; by default the model's own.
    rollout is the same as salt, one-step the same as lewm."""
    prediction: Maybe[ObjectiveName] = _setting("objective.objective")
    """Prediction loss of an objective that leaves it open; default: rollout for salt, one-step for lewm."""
    weights: Some[str] = ()
    """Weights of the objective's terms that are not the published ones: inverse=5 ..."""
    steps: Maybe[int] = _setting("train.steps")
    """Optimiser steps instead of the preset's."""
    epochs: Maybe[float] = _setting("train.epochs")
    """Passes over the data instead of the preset's."""
    batch_size: Maybe[int] = _setting("train.batch_size")
    """Windows per step, over all devices together."""
    learning_rate: Maybe[float] = _setting("train.learning_rate")
    """Largest learning rate."""
    lambda_: Annotated[Maybe[float], tyro.conf.arg(name="lambda")] = _setting("objective.sigreg_weight")
    """SIGReg weight."""
    projections: Maybe[int] = _setting("objective.sigreg_projections")
    """SIGReg's random directions per step."""
    starts: Maybe[int] = _setting("objective.starts")
    """Rollouts per window, from its first frame and the next ones; every frame is encoded once."""
    rollout_steps: Maybe[int] = _setting("objective.rollout_steps")
    """K, supervised predictions per rollout."""
    channels: MaybeSome[int] = _setting("model.encoder.channels")
    """Output channels of the encoder's strided convolutions."""
    latent_dim: Maybe[int] = _setting("model.latent_dim")
    """d, the size of the latent."""
    modes: Maybe[int] = _setting("model.affine.modes")
    """R, modulation matrices; 0 is the ablation of App. F.1."""
    dino: Memo[Maybe[Path]] = None
    """dino-wm: folder of a DINOv2 as transformers saves it: config.json and model.safetensors."""
    patches: Maybe[int] = None
    """dino-wm: patches along a side that frames are resized to; 14, as published, in full-size and 4 otherwise."""
    features: Aside[Maybe[Path]] = None
    """dino-wm: folder for what the DINOv2 makes of the dataset, computed once; by default one beside the run."""
    free_a0: bool = False
    """Leave A0 unconstrained: the ablation of App. C.4."""
    memory: bool = False
    """SALT affine in the last two latents and the action between them, which show motion; needs --starts 2 or more."""
    seed: Maybe[int] = _setting("train.seed")
    """Seed of weights, batches and projections."""
    split: Maybe[Literal["episode", "window"]] = _setting("train.split")
    """Hold out whole episodes, or windows as the paper."""
    precision: Maybe[PrecisionName] = _setting("train.precision")
    """Precision of weights and products; bf16-mixed lowers products alone."""
    validate_every: Maybe[int] = _setting("train.validate_every")
    """Steps between two measurements."""
    save_every: Maybe[int] = _setting("train.save_every")
    """Steps between two checkpoints."""
    keep: Maybe[int] = _setting("train.keep")
    """Newest checkpoints to keep; the best is kept besides."""
    restarts: MaybeSome[int] = _setting("train.restarts")
    """Steps at which the learning rate warms up again; a run that is prolonged restarts where it ended."""
    from_: Annotated[Maybe[Path], tyro.conf.arg(name="from")] = None
    """Run or checkpoint whose weights a new run starts from; its model's sizes hold too."""
    freeze_encoder: bool = False
    """With --from: leave the encoder as it is; the action encoder and the transition learn."""
    accelerator: Aside[str] = "auto"
    """Fabric accelerator: auto, cpu, gpu, mps, ..."""
    devices: Aside[Maybe[int]] = None
    """Processes per node, one device each; default: 1, or what torchrun or Slurm started."""
    strategy: Aside[Literal["auto", "ddp"]] = "auto"
    """ddp: data-parallel training; auto: ddp when there is more than one device."""
    num_nodes: Aside[int] = 1
    """Nodes."""
    timeout: Aside[float] = 600.0
    """Seconds that processes wait for one another before the run ends."""
    log: Aside[Some[Literal["tensorboard", "wandb"]]] = ()
    """Also log there; metrics.jsonl and timing.jsonl are always written."""
    verify: Aside[Literal["full", "sizes"]] = "full"
    """Check every hash of the dataset first, or only the files' sizes."""
    json: AsJson = False

    def __post_init__(self) -> None:
        """A path may be given as text, as saltwm.load and Dataset.open take it."""
        for name in ("dataset", "out", "dino", "features", "from_"):
            if isinstance(path := getattr(self, name), str):
                object.__setattr__(self, name, Path(path))

    def do(self) -> "TrainResult | None":
        """Train to the end; None in the processes that only compute."""
        from saltwm.disk.dataset import Dataset
        from saltwm.disk.lineage import Start
        from saltwm.processes.launch import Devices, is_main_process
        from saltwm.train import train

        if is_place(self.model):
            name_model(self.model)
        if self.freeze_encoder and self.from_ is None:
            raise UsageError("--freeze-encoder: fresh weights would never learn to see; give --from CHECKPOINT")
        start = Start(self.from_, self.freeze_encoder) if self.from_ is not None else None
        dataset = Dataset.open(self.dataset, verify=self.verify)
        devices = Devices(self.accelerator, self.devices, self.strategy, self.num_nodes, self.timeout)
        config = self.config()
        result = train(config, dataset, self.out, devices, self.log, start, self._frozen(config, dataset))
        return result if is_main_process() else None

    def config(self) -> RunConfig:
        """The preset with this command's options."""
        is_salt = traits_of(self.model).has_matrix and not is_place(self.model)
        if not is_salt and (self.modes is not None or self.free_a0 or self.memory):
            options = "--modes, --free-a0 and --memory"
            raise UsageError(f"{options} are about SALT's transition; leave them out for --model {self.model}")
        if self.epochs is not None and self.steps is not None:
            raise UsageError(f"--steps {self.steps} and --epochs {self.epochs} both say how long; give one")
        config = run_config(IN_FILES[self.preset], self.model, self.objective)
        if self._is_frozen():
            config = dataclasses.replace(config, model=self._over_patches(config.model))
        if self.from_ is not None:
            config = dataclasses.replace(config, model=self._model_of(self.from_))
        if self.lambda_ is not None and config.objective.regulariser and not has_sigreg(config.objective):
            raise UsageError(f"--lambda is SIGReg's weight, and objective {self.objective} has none; use --weights")
        changes = {place: getattr(self, name) for name, place in _SETTINGS.items() if getattr(self, name) is not None}
        changes |= {"train.steps": None} if self.epochs is not None else {}
        changes |= {"model.affine.spectral": False} if self.free_a0 else {}
        changes |= {"model.affine.memory": True} if self.memory else {}
        changes |= {"objective.weights": _weights(self.weights)} if self.weights else {}
        for place, value in changes.items():
            config = _changed(config, place.split("."), value)
        return config

    def _is_frozen(self) -> bool:
        """Whether the model's encoder is frozen; UsageError unless its options are given for it alone."""
        frozen = traits_of(self.model).is_frozen
        if not frozen and (self.dino, self.patches, self.features) != (None, None, None):
            raise UsageError(
                f"--dino, --patches and --features are about dino-wm; leave them out for --model {self.model}"
            )
        if frozen and self.dino is None:
            raise UsageError(
                f"--model {self.model} needs the weights of its encoder, which are not shipped: give --dino FOLDER, "
                "a DINOv2 as transformers saves it (config.json, model.safetensors)"
            )
        if frozen and (self.from_ is not None or self.latent_dim is not None or self.channels is not None):
            raise UsageError(
                f"--from, --latent-dim and --channels are about encoders that learn; --model {self.model} has none"
            )
        if frozen and self.objective not in (None, traits_of(self.model).objective):
            raise UsageError(
                f"--objective {self.objective}: the encoder of {self.model} is frozen, its latents cannot spread"
            )
        return frozen

    def _over_patches(self, model: ModelConfig) -> ModelConfig:
        """The model with the encoder that --dino names."""
        from saltwm.interop.weights.dinov2 import encoder_config

        assert self.dino is not None, "asked before"
        grid = PATCHES[self.preset] if self.patches is None else self.patches
        at_least("patches", grid)
        encoder = encoder_config(self.dino, grid)
        return dataclasses.replace(model, encoder=encoder, latent_dim=grid**2 * encoder.width)

    def _frozen(self, config: RunConfig, dataset: "Dataset") -> "FrozenEncoder | None":
        """The frozen encoder, and where its features of this dataset are kept."""
        if self.dino is None:
            return None
        from saltwm.data.features import FrozenEncoder
        from saltwm.interop.weights.dinov2 import read_weights

        encoder, folder = config.model.encoder, self.dino
        name = f"features-{(encoder.weights_sha256 or '')[:8]}-{encoder.grid}-{dataset.sha256[:8]}"
        place = self.features if self.features is not None else self.out.parent / name
        return FrozenEncoder(folder, lambda: read_weights(folder, encoder), place)

    def _model_of(self, start: Path) -> ModelConfig:
        """The model of a checkpoint, so that nobody has to repeat its sizes."""
        from saltwm.disk.checkpoint import info_of

        found = info_of(start).run.model
        if found.model != self.model:
            raise UsageError(f"--from {start}: holds {found.model}; say --model {found.model}")
        return found

    @classmethod
    def of(
        cls,
        config: RunConfig,
        dataset: Path,
        out: Path,
        start: Path | None = None,
        *,
        freeze_encoder: bool = False,
        dino: Path | None = None,
    ) -> Self | None:
        """The job that gives this config; None if no options do."""
        if traits_of(config.model.model).is_frozen and dino is None:
            return None
        word = next((word for word, name in IN_FILES.items() if name == config.preset), None)
        if word is None:
            return None
        model, objective = config.model.model, config.objective.word
        base = run_config(config.preset, model, objective)
        if start is not None or dino is not None:
            base = dataclasses.replace(base, model=config.model)
        changes = {name: _value(config, place) for name, place in _SETTINGS.items()}
        changes = {name: value for name, value in changes.items() if value != _value(base, _SETTINGS[name])}
        job = cls(
            dataset,
            out,
            word,
            model,
            None if objective == traits_of(model).objective else objective,
            free_a0=not config.model.affine.spectral,
            memory=config.model.affine.memory,
            from_=start,
            freeze_encoder=freeze_encoder,
            dino=dino,
            patches=None if config.model.encoder.grid in (None, PATCHES[word]) else config.model.encoder.grid,
            weights=tuple(f"{name}={weight!r}" for name, weight in (config.objective.weights or {}).items()),
            **changes,
        )
        return job if job.config() == config else None

    @classmethod
    def found_in(cls, folder: Path) -> Self | None:
        """The job of a run; None if the folder is none."""
        if not (folder / "run.json").exists():
            return None
        from saltwm.disk.checkpoint import read_run

        info = read_run(folder)
        start = Path(info.origin) if info.origin else None
        frozen = bool(info.lineage and info.lineage[-1].encoder_frozen)
        dino = Path(info.encoder_weights) if info.encoder_weights else None
        job = cls.of(info.run, Path(info.dataset), folder, start, freeze_encoder=frozen, dino=dino)
        if job is not None and is_own(job.objective):
            raise UsageError(f"{folder}: a file does not run code; name its objective yourself: {spell(job)}")
        if job is None:
            raise UsageError(f"{folder}: trained from Python, with values that no option of saltwm train has")
        return job


_SETTINGS = {f.name: f.metadata["setting"] for f in dataclasses.fields(Train) if "setting" in f.metadata}
"""Option -> the place of its value in a config."""


def _weights(words: tuple[str, ...]) -> dict[str, float]:
    """TERM=NUMBER, each once."""
    weights: dict[str, float] = {}
    for word in words:
        name, _, number = word.partition("=")
        try:
            weights[name] = float(number)
        except ValueError:
            raise UsageError(f"--weights {word}: expected TERM=NUMBER, as inverse=5") from None
    if len(weights) < len(words):
        raise UsageError(f"--weights {' '.join(words)}: a term has one weight")
    return weights


def _value(config: Any, place: str) -> Any:
    for name in place.split("."):
        config = getattr(config, name)
    return config


def _changed(config: Any, place: list[str], value: Any) -> Any:
    """The config with another value at a place in it."""
    inner = value if len(place) == 1 else _changed(getattr(config, place[0]), place[1:], value)
    return dataclasses.replace(config, **{place[0]: inner})


@dataclass(frozen=True)
class Info(Job):
    """Show a model card: what a run or checkpoint is, what it was trained on, what was measured in training."""

    run: Positional[RunFolder]
    json: AsJson = False

    def do(self) -> dict[str, Any]:
        """The card, and what its action prior is, if it has one."""
        from saltwm.disk.checkpoint import card, find_checkpoint
        from saltwm.planning import prior_files

        path = find_checkpoint(self.run)
        found, prior = _with_progress(card(self.run), path), prior_files.find_prior(path)
        if prior is None:
            return found | {"action_prior": "none"}
        info = prior_files.read_info(prior)
        known = {"goals_up_to_blocks": info.prior.farthest_blocks, "plans_of_blocks": info.prior.horizon_blocks}
        return found | {"action_prior": known | {"explained_share_of_held_out_actions": info.held_out.explained}}


def _with_progress(card: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
    """The card with how far its run is to go, where the run is there, and with what is not the preset's."""
    from saltwm.disk.checkpoint import RUN_FILE, read_info, read_run
    from saltwm.jobs.variants import departures_in_words

    info, run = read_info(checkpoint), checkpoint.parent.parent
    shown: dict[str, Any] = {}
    for name, value in card.items():
        shown[name] = value
        if name == "step" and (run / RUN_FILE).exists():
            shown["steps_in_all"] = read_run(run).total_steps
        if name == "preset" and info.run.preset in IN_FILES.values():
            shown["other_than_preset"] = departures_in_words(info.run, info.world.environment)
    return shown


@dataclass(frozen=True)
class Watch(Job):
    """Draw a run's curves in the terminal while it trains; Ctrl-C ends the drawing and leaves the training alone."""

    run: Positional[Path]
    """Run directory."""
    once: bool = False
    """Draw what there is now and end."""
    picture: Maybe[Path] = None
    """Save the curves as a PNG instead."""

    def do(self) -> None:
        """Draw."""
        import contextlib

        from rich.live import Live

        from saltwm.ground.terminal import SafeConsole
        from saltwm.report.watch import read_files, render, save_picture, watch

        console, run = SafeConsole(markup=False, highlight=False, emoji=False), named(self.run)
        if self.picture is not None:
            save_picture(read_files(run), self.picture)
            console.print(f"written: {self.picture}", soft_wrap=True)
        elif self.once or not console.is_terminal:
            console.print(_spelled_out(render(read_files(run), console.width)))
        else:
            with Live(console=console, auto_refresh=False) as live, contextlib.suppress(KeyboardInterrupt):
                watch(run, lambda drawing: live.update(_spelled_out(drawing), refresh=True), console.width)


def _spelled_out(drawing: "RenderableType") -> "RenderableType":
    """A drawing of a run whose name holds control characters, with these spelled out."""
    from rich.console import Group
    from rich.text import Text

    from saltwm.ground.terminal import printable

    if isinstance(drawing, Text):
        return Text(printable(drawing.plain), style=drawing.style)
    return Group(*map(_spelled_out, drawing.renderables)) if isinstance(drawing, Group) else drawing
