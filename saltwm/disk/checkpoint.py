"""Checkpoints: one directory each, safetensors and strict JSON, whole or absent, complete without the dataset.

    RUN/run.json                       the RunConfig and what it was trained on
    RUN/checkpoints/step-000200/       checkpoint.json, weights.safetensors, optimizer.safetensors, manifest.json
    RUN/metrics.jsonl                  the training curves (no clock in them: repeating a run repeats these bytes)
    checkpoints/ENV-MODEL/             a shipped checkpoint: the same without an optimiser, see jobs/shipment.py

Loading reads values into a structure that the code builds; no file can name code, and every file is hashed first.
"""

import functools
import math
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saltwm.disk import durable
from saltwm.disk.claim import claim
from saltwm.disk.durable import read_config, write_config
from saltwm.disk.layout import Source
from saltwm.disk.shipped import named, require_no_misnomer
from saltwm.ground import own_code
from saltwm.ground.config import ModelConfig, RunConfig, WorldSpec
from saltwm.ground.errors import (
    DamagedError,
    DiskError,
    MismatchError,
    NonFiniteError,
    SaltError,
    UsageError,
    not_a_run,
)
from saltwm.ground.identity import Memo, filed
from saltwm.ground.identity import identity as identity_of
from saltwm.ground.strict_json import IF_SET, LATER, differing_fields
from saltwm.model import own
from saltwm.model.traits import TRANSITIONS, traits_of

if TYPE_CHECKING:  # torch takes a second to import, and most readers want the descriptions alone
    import torch
    from torch import Tensor

    from saltwm.model.world_model import WorldModel

RUN_FILE = "run.json"
INFO_FILE = "checkpoint.json"
WEIGHTS_FILE = "weights.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
REGULARISER_FILE = "regulariser.safetensors"
"""What the terms of an objective learn or keep, where they do; only training reads it."""
PRIOR_FOLDER = "prior"
_OF_PRIORS = (PRIOR_FOLDER, "prior.work", ".prior.lock", ".prior.work.lock", ".tmp-*-prior", ".tmp-*-prior.work")
BESIDES = ("README.md", durable.LOCK_FILE, *_OF_PRIORS)
"""What may lie in a checkpoint without being part of it: its card, its action prior with what learning it needs or left
behind, and what a refused writer left."""
FORMAT = 1
BUFFERS = ("running_mean", "running_var", "num_batches_tracked", "action_mean", "action_std")
"""Ends of the names of tensors that are measured, not learnt."""
_SETTLED_NS = 2_000_000_000
"""Longer than any clock of a file system stands still: a file that old cannot change without a change of its times."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A checkpoint whose weights a run started from, as it described itself."""

    checkpoint_sha256: str
    step: int
    run: RunConfig
    dataset_sha256: str
    dataset_source: Source | None
    dataset_lineage: tuple[str, ...] | None = field(default=None, metadata=IF_SET)
    encoder_frozen: bool
    """Whether the run left the encoder as it was."""


@dataclass(frozen=True)
class RunInfo:
    """What a run directory is: decided once, when training starts."""

    format: int
    run: RunConfig
    world: WorldSpec
    dataset: Memo[str]
    """Path of the dataset as it was given."""
    dataset_sha256: str
    total_steps: Memo[int]
    versions: Memo[dict[str, str]]
    origin: Memo[str | None] = field(default=None, metadata=IF_SET)
    """Path of the checkpoint that it started from, as it was given."""
    lineage: tuple[Origin, ...] | None = field(default=None, metadata=IF_SET)
    """That checkpoint, after those that it came from itself."""
    encoder_weights: Memo[str | None] = field(default=None, metadata=IF_SET)
    """Where the weights of a frozen encoder came from, as it was given; the config has their hash."""
    own_code: dict[str, str] | None = field(default=None, metadata=IF_SET)
    """SHA-256 of the file of each model or objective of a user's own, by its module:name."""


@dataclass(frozen=True)
class CheckpointInfo:
    """What a checkpoint is besides its tensors."""

    format: int
    step: int
    run: RunConfig
    world: WorldSpec
    dataset_sha256: str
    metrics: dict[str, float]
    versions: dict[str, str]
    dataset_source: Source | None = field(default=None, metadata=LATER)
    """Where the dataset's episodes came from; None if nobody wrote it down."""
    dataset_lineage: tuple[str, ...] | None = field(default=None, metadata=IF_SET)
    """SHA-256 that the dataset had before each time it grew, oldest first."""
    lineage: tuple[Origin, ...] | None = field(default=None, metadata=IF_SET)
    """Checkpoints that the run came from, oldest first; the last is the one that it started from."""
    own_code: dict[str, str] | None = field(default=None, metadata=IF_SET)
    """As in RunInfo."""


def package_versions() -> dict[str, str]:
    """Versions that decide the numbers."""
    return {name: version(name) for name in ("saltwm", "torch", "numpy", "safetensors")}


def directory_name(step: int) -> str:
    """Name of the checkpoint of a step."""
    return f"step-{step:06d}"


# --- writing ------------------------------------------------------------------------------------------------------


def start_run(path: Path, info: RunInfo) -> None:
    """Create the run directory, or check that it is the same run; MismatchError names each differing field."""
    if (path / INFO_FILE).exists():
        raise UsageError(f"{path}: holds a checkpoint, and nothing to go on training from; choose another folder")
    durable.make_folder(path / "checkpoints")
    if (path / RUN_FILE).exists():
        found = read_run(path)
        _require_same_origin(path, info, found)
        _require_same_code(path, info, found)
        if _prolongs(info, found):
            durable.write_json(path / RUN_FILE, filed(info))
    claim(path / RUN_FILE, info, lambda file: read_run(file.parent))


def _require_same_origin(path: Path, info: RunInfo, found: RunInfo) -> None:
    started, wanted = (run.lineage[-1].checkpoint_sha256 if run.lineage else None for run in (found, info))
    if started != wanted:
        there, here = (f"checkpoint {sha[:12]}" if sha else "fresh weights" for sha in (started, wanted))
        named = f" ({info.origin})" if info.origin else ""
        raise MismatchError(
            f"{path}: started from {there}, found {here}{named}; repeat its `from`, or use a new folder"
        )


def _require_same_code(path: Path, info: RunInfo, found: RunInfo) -> None:
    """MismatchError that names the module of a user's own whose file is not the one that the run was begun with."""
    if info.run.model.model != found.run.model.model or info.run.objective.word != found.run.objective.word:
        return  # another job, which is said with all that differs
    was, now = found.own_code or {}, info.own_code or {}
    for place in dict.fromkeys([*was, *now]):
        if was.get(place) != now.get(place):
            hashes = (f"{code.get(place, 'none noted')[:12]}" for code in (was, now))
            raise MismatchError(
                f"{path}: {place}: the file of module {place.partition(':')[0]} is not the one that the run was begun "
                f"with (SHA-256: expected {', found '.join(hashes)}); put it back, or train into a new folder"
            )


def _prolongs(info: RunInfo, found: RunInfo) -> bool:
    """Whether it is the run that was found, with more steps after its end."""
    was, wanted = found.run.train, info.run.train
    same = replace(wanted, steps=was.steps, epochs=was.epochs, restarts=was.restarts)
    return (
        info.total_steps > found.total_steps
        and wanted.restarts == (*(was.restarts or ()), found.total_steps)
        and identity_of(replace(info, run=replace(info.run, train=same))) == identity_of(found)
    )


def save(
    run: Path,
    info: CheckpointInfo,
    weights: "dict[str, Tensor]",
    optimizer: "dict[str, Tensor]",
    keep: int,
    regulariser: "dict[str, Tensor] | None" = None,
) -> Path:
    """Publish RUN/checkpoints/step-N, then remove what is older than the newest `keep` and not the best."""
    path = run / "checkpoints" / directory_name(info.step)
    if path.exists():
        durable.discard_directory(path)  # training came here again only because this one could not be read
    # As bytes, not with save_file, whose errors do not tell a full disk from anything else.
    files = {WEIGHTS_FILE: to_bytes(weights), OPTIMIZER_FILE: to_bytes(optimizer)}
    publish(path, info, files | ({REGULARISER_FILE: to_bytes(regulariser)} if regulariser else {}))
    _prune(run, keep)
    return path


def publish(path: Path, info: CheckpointInfo, files: dict[str, bytes], *, replace: bool = False) -> None:
    """Make `path` a checkpoint of these files, whole or absent; with `replace` in the place of one that is there."""
    try:
        with durable.publish_directory(path, replace=replace) as directory:
            write_config(directory / INFO_FILE, info)
            for name, data in files.items():
                durable.write_bytes(directory / name, data)
    except DiskError as error:
        size = sum(map(len, files.values()))
        why = os.strerror(getattr(error.__cause__, "errno", None) or 0)
        message = f"{path}: cannot write {size} bytes: {why}; what was saved is intact, free some space and repeat"
        raise DiskError(message) from error


def to_bytes(tensors: "dict[str, Tensor]") -> bytes:
    """The tensors as a safetensors file."""
    from safetensors.torch import save as save_tensors

    return save_tensors({name: tensor.cpu().contiguous() for name, tensor in tensors.items()})


def halved(weights: "dict[str, Tensor]") -> "dict[str, Tensor]":
    """Matrices and kernels in float16, vectors and measured values as they are; NonFiniteError if one overflows."""
    narrow = {name: _is_matrix(name, tensor) for name, tensor in weights.items()}
    halves = {name: tensor.half() if narrow[name] else tensor for name, tensor in weights.items()}
    for name, tensor in halves.items():
        if not tensor.isfinite().all():
            largest = float(weights[name].abs().max())
            raise NonFiniteError(f"{name}: a value of {largest:.3g} does not fit float16; use the `precision` full")
    return halves


def _is_matrix(name: str, tensor: "Tensor") -> bool:
    return tensor.is_floating_point() and tensor.ndim > 1 and not name.endswith(BUFFERS)


def _prune(run: Path, keep: int) -> None:
    """Keep the newest `keep` and the best by validation rollout error; the rest disappears whole."""
    paths = list_checkpoints(run)
    best = min(paths, key=_score)
    for path in paths[:-keep]:
        if path != best or _score(path) == math.inf:
            durable.discard_directory(path)


def _score(path: Path) -> float:
    """Validation rollout error; a checkpoint that was not validated, or cannot be read, is never the best."""
    try:
        return read_info(path).metrics.get("validation_rollout", math.inf)
    except SaltError:
        return math.inf


def optimizer_tensors(optimizer: "torch.optim.Optimizer", names: list[str]) -> "dict[str, Tensor]":
    """The optimiser's state as named tensors; parameter groups and settings come from the config, not from files."""
    import torch

    state = optimizer.state_dict()["state"]
    return {
        f"{key}/{names[index]}": torch.as_tensor(value)
        for index, values in state.items()
        for key, value in values.items()
    }


def restore_optimizer(optimizer: "torch.optim.Optimizer", names: list[str], tensors: "dict[str, Tensor]") -> None:
    """Put the tensors of `optimizer_tensors` back."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        key, parameter = name.split("/", 1)
        state.setdefault(names.index(parameter), {})[key] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


# --- reading ------------------------------------------------------------------------------------------------------


def list_checkpoints(run: Path) -> list[Path]:
    """Checkpoints of a run, oldest first."""
    return sorted((run / "checkpoints").glob("step-*"), key=lambda path: (len(path.name), path.name))


def identity(checkpoint: Path) -> str:
    """SHA-256 of the checkpoint's manifest, and so of every file in it."""
    return durable.sha256(checkpoint / durable.MANIFEST)


def read_run(run: Path) -> RunInfo:
    """The run's description."""
    if not (run / RUN_FILE).exists():
        raise not_a_run(run)
    info = read_config(RunInfo, run / RUN_FILE)
    _require_format(info.format, run)
    return info


def read_info(checkpoint: Path) -> CheckpointInfo:
    """The checkpoint's description."""
    info = read_config(CheckpointInfo, checkpoint / INFO_FILE)
    _require_format(info.format, checkpoint)
    model = info.run.model.model
    if own_code.is_place(model):
        own.require_named(model, checkpoint)
    elif model not in TRANSITIONS:
        known = ", ".join(TRANSITIONS)
        raise DamagedError(f"{checkpoint / INFO_FILE}: run.model.model: expected one of {known}, found {model!r:.80}")
    return info


def info_of(path: Path) -> CheckpointInfo:
    """The description of the checkpoint that a path means, as `find_checkpoint` finds it."""
    return read_info(find_checkpoint(path))


def _require_format(found: int, where: Path) -> None:
    if found != FORMAT:
        raise DamagedError(f"{where}: format {found}, this version reads {FORMAT}; use the saltwm that wrote it")


def read_checkpoint(checkpoint: Path) -> "tuple[CheckpointInfo, dict[str, Tensor], dict[str, Tensor]]":
    """Info, weights and optimiser tensors, after checking every hash: all that training goes on from."""
    verify(checkpoint)
    if not (checkpoint / OPTIMIZER_FILE).exists():
        raise UsageError(f"{checkpoint}: weights alone, without the optimiser that training would go on with")
    return read_info(checkpoint), read_tensors(checkpoint / WEIGHTS_FILE), read_tensors(checkpoint / OPTIMIZER_FILE)


def read_regulariser(checkpoint: Path) -> "dict[str, Tensor]":
    """What the objective's terms learnt; nothing for most."""
    path = checkpoint / REGULARISER_FILE
    return read_tensors(path) if path.exists() else {}


def read_weights(checkpoint: Path) -> "tuple[CheckpointInfo, dict[str, Tensor]]":
    """Info and weights, after checking every hash; what was stored in float16 comes as float32."""
    verify(checkpoint)
    weights = read_tensors(checkpoint / WEIGHTS_FILE)
    return read_info(checkpoint), {name: _widened(tensor) for name, tensor in weights.items()}


def _widened(tensor: "Tensor") -> "Tensor":
    return tensor.float() if str(tensor.dtype) == "torch.float16" else tensor


def verify(checkpoint: Path) -> None:
    """DamagedError unless every file is there with its hash, and no other."""
    durable.verify_directory(checkpoint, besides=BESIDES)


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """A safetensors file; anything else is damage."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file") from error
    except (SafetensorError, ValueError, KeyError, OSError, RuntimeError) as error:
        raise DamagedError(f"{path}: not a readable safetensors file: {error}") from error


def _verify_once(checkpoint: Path) -> None:
    """`verify`, which this process does not repeat while no file has another inode, size or time.

    Enough to choose among checkpoints: who then reads weights verifies them, whatever was found before.
    """
    found = [(str(file), file.lstat()) for file in sorted(checkpoint.rglob("*"))]
    if max((at.st_ctime_ns for _, at in found), default=0) > time.time_ns() - _SETTLED_NS:
        verify(checkpoint)
    else:
        fields = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
        _verify_files(checkpoint, tuple((name, *(getattr(at, field) for field in fields)) for name, at in found))


@functools.lru_cache(maxsize=256)  # an error is not kept: a damaged checkpoint is reported each time
def _verify_files(checkpoint: Path, stamps: tuple[tuple[str | int, ...], ...]) -> None:
    verify(checkpoint)


def newest_readable(run: Path, say: Callable[[str], None], check: Callable[[Path], None] = verify) -> Path | None:
    """The newest whole checkpoint, or None. Damaged ones are reported; if all are damaged it is an error."""
    paths = list_checkpoints(run)
    for path in reversed(paths):
        try:
            check(path)
            _require_own_name(path)
            return path
        except SaltError as error:
            say(f"skipping {path.name}: {error}")
    if paths:
        raise DamagedError(f"{run}: none of its {len(paths)} checkpoints is readable; nothing was changed")
    return None


def _require_own_name(path: Path) -> None:
    """Two whole directories exchanged pass every hash; their names then lie."""
    step = read_info(path).step
    if path.name != directory_name(step):
        raise DamagedError(f"{path}: holds step {step}")


def _say_aside(message: str) -> None:
    """On standard error, so that results on standard output stay clean."""
    from saltwm.ground.terminal import printable

    print(printable(message), file=sys.stderr)


def find_checkpoint(path: Path, say: Callable[[str], None] = _say_aside) -> Path:
    """The checkpoint that a path means: itself, the newest readable one of a run, or one shipped under that name."""
    path = named(path)
    if (path / INFO_FILE).exists():
        return path
    require_no_misnomer(path, "training run", "-salt")
    model = read_run(path).run.model.model
    if own_code.is_place(model):
        own.require_named(model, path)  # or each of its checkpoints would be called damaged
    found = newest_readable(path, say, _verify_once)
    if found is None:
        raise UsageError(f"{path}: no checkpoint yet", remedy="finish", path=path)
    return found


def load(path: Path | str, *, world: WorldSpec | None = None) -> "WorldModel":
    """A model ready to plan, from a run or a checkpoint; with `world`, only if it was trained for that world."""
    from saltwm.model.world_model import WorldModel

    checkpoint = find_checkpoint(Path(path))
    verify(checkpoint)
    info = read_info(checkpoint)
    if world is not None:
        require_same_world(info.world, world, checkpoint)
    file = checkpoint / WEIGHTS_FILE
    weights = read_tensors(file)
    _require_fitting(blueprint(info.run.model, info.world, len(weights), file), weights, file)
    _require_sane(weights, file)
    model = WorldModel(info.run.model, info.world)
    model.load_state_dict(weights)  # widens float16 to the model's float32
    model.checkpoint_sha256, model.encoder_sum_when_read = identity(checkpoint), model.encoder_sum()
    return model.eval()


def blueprint(config: ModelConfig, world: WorldSpec, tensors: int, where: Path) -> "dict[str, Tensor]":
    """State dict of the model that a file of `tensors` tensors describes; absurd sizes cost no memory and no time."""
    import torch

    from saltwm.model.world_model import WorldModel

    layers = len(config.encoder.channels) + traits_of(config.model).layers(config)
    layers += config.encoder.depth if config.encoder.kind != "conv" else 0
    if layers > tensors:
        raise DamagedError(f"{where}: {tensors} tensors cannot be those of a model of {layers} layers")
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.filterwarnings("error", "Initializing zero-element tensors")  # no model has a size of zero
            return WorldModel(config, world).state_dict()
    except (ArithmeticError, RuntimeError, TypeError, ValueError, UserWarning) as error:
        raise DamagedError(f"{where}: no model of such sizes can be built: {str(error).splitlines()[0]}") from error


def load_weights(model: "torch.nn.Module", weights: "dict[str, Tensor]", where: Path) -> None:
    """Strict: the same names and shapes, or DamagedError with the first few that differ."""
    _require_fitting(model.state_dict(), weights, where)
    model.load_state_dict(weights)


def _require_fitting(expected: "dict[str, Tensor]", weights: "dict[str, Tensor]", where: Path) -> None:
    missing, extra = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    wrong = [name for name in expected.keys() & weights.keys() if _kind(expected[name]) != _kind(weights[name])]
    if missing or extra or wrong:
        raise DamagedError(f"{where}: missing {missing[:3]}, not expected {extra[:3]}, of another shape {wrong[:3]}")


def _require_sane(weights: "dict[str, Tensor]", where: Path) -> None:
    """DamagedError for a weight that is not finite, or an action scale that is not positive."""
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            raise DamagedError(f"{where}: {name}: expected finite numbers, found NaN or an infinity")
        if name.endswith("action_std") and not (tensor > 0).all():
            raise DamagedError(f"{where}: {name}: expected deviations above 0, found {float(tensor.min()):g}")


def _kind(tensor: "Tensor") -> "tuple[torch.Size, bool]":
    return tensor.shape, tensor.is_floating_point()


def require_same_world(trained: WorldSpec, world: WorldSpec, where: Path) -> None:
    """MismatchError naming each differing field unless a model trained for one world may act in the other."""
    different = differing_fields(trained, world)
    if different:
        raise MismatchError(f"{where} was trained for another world: {'; '.join(different)}")


def _history(info: CheckpointInfo) -> dict[str, Any]:
    """What a card says of how data and run came about, where there is anything to say."""
    origins = [
        {
            "checkpoint_sha256": origin.checkpoint_sha256,
            "step": origin.step,
            "dataset_sha256": origin.dataset_sha256,
            "encoder_frozen": origin.encoder_frozen,
        }
        for origin in info.lineage or ()
    ]
    found = {"dataset_lineage": info.dataset_lineage, "restarts": info.run.train.restarts, "lineage": origins}
    return {name: list(values) for name, values in found.items() if values}


def card(path: Path) -> dict[str, Any]:
    """A model card: what it is, what it was trained on, what was measured in training."""
    checkpoint = find_checkpoint(path)
    info, weights = read_weights(checkpoint)
    return {
        "checkpoint": str(checkpoint),
        "step": info.step,
        "model": info.run.model.model,
        "objective": info.run.objective.word,
        "preset": info.run.preset,
        "environment": info.world.environment,
        "image_size": info.world.image_size,
        "parameters": sum(tensor.numel() for name, tensor in weights.items() if not name.endswith(BUFFERS)),
        "bytes": (checkpoint / WEIGHTS_FILE).stat().st_size,
        "dataset_sha256": info.dataset_sha256,
        **_history(info),
        "metrics": info.metrics,
        "versions": info.versions,
    }
